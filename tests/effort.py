"""How many examples a property is tried with: a quarter in `make check` and `make test`, all in `make test-full`."""

from hypothesis import settings

# What hypothesis tries unless it is told otherwise.
USUAL = 100


def examples(count: int) -> settings:
    """So many examples in `make test-full`, and in proportion elsewhere."""
    return settings(max_examples=max(5, count * settings().max_examples // USUAL))
