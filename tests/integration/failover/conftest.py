"""Real servers for every test: one PostgreSQL or one etcd, or three of its members, empty, of its own."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.rig.backing import Backing, EtcdClusterBacking, open_backing


@pytest.fixture(params=["postgres", "etcd"])
def backing(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Backing]:
    """Each of the two."""
    with open_backing(request.param, tmp_path) as found:
        yield found


@pytest.fixture
def postgres(tmp_path: Path) -> Iterator[Backing]:
    """PostgreSQL only."""
    with open_backing("postgres", tmp_path) as found:
        yield found


@pytest.fixture
def etcd(tmp_path: Path) -> Iterator[Backing]:
    """One member of etcd only."""
    with open_backing("etcd", tmp_path) as found:
        yield found


@pytest.fixture
def etcd_members(tmp_path: Path) -> Iterator[EtcdClusterBacking]:
    """Three members of etcd."""
    with open_backing(EtcdClusterBacking.name, tmp_path) as found:
        assert isinstance(found, EtcdClusterBacking)
        yield found
