"""What needs a database server of its own is slow: a quick check leaves it out."""

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        # Only what is parametrised has one.
        callspec = getattr(item, "callspec", None)
        if callspec is not None and getattr(callspec.params.get("adapter"), "is_shared", False):
            item.add_marker("slow")
