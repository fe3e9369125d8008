"""Tables for queries, made once for each test process."""

from pathlib import Path

import pytest

from tests.queries.tpch import generate


@pytest.fixture(scope="session")
def tpch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """TPC-H at a small scale, three files for each of the larger tables."""
    return generate(tmp_path_factory.mktemp("tpch"))
