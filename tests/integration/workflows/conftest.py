"""One `rota up` for the tests of a module."""

from collections.abc import Iterator

import pytest

from tests.integration.workflows.place import Place, open_place

# What a process of a task may have: enough for Python and far less than a machine has.
SETTINGS = """
    [worker]
    memory_mb = 800
    """


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """A service with a worker, whose tasks run in processes of their own."""
    with open_place(tmp_path_factory.mktemp("place"), settings=SETTINGS) as one:
        yield one
