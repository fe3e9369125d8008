"""What needs a database server of its own is marked, so that a quick check can leave it out."""

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        # Only what is parametrised has one.
        callspec = getattr(item, "callspec", None)
        if callspec is not None and getattr(callspec.params.get("adapter"), "is_shared", False):
            item.add_marker("servers")
