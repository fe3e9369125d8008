"""Real servers for every test: one PostgreSQL or one etcd, or three of its members, empty, of its own."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.rig.backing import OPENERS, Backing, EtcdMembers, PostgresBacking, open_etcd, open_members, open_postgres


@pytest.fixture(params=["postgres", pytest.param("etcd", marks=pytest.mark.full)])
def backing(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Backing]:
    """Each of the two."""
    assert set(OPENERS) == {"postgres", "etcd"}
    with OPENERS[request.param](tmp_path) as found:
        yield found


@pytest.fixture
def postgres(tmp_path: Path) -> Iterator[PostgresBacking]:
    """PostgreSQL only."""
    with open_postgres(tmp_path) as found:
        yield found


@pytest.fixture
def etcd(tmp_path: Path) -> Iterator[Backing]:
    """One member of etcd only."""
    with open_etcd(tmp_path) as found:
        yield found


@pytest.fixture
def etcd_members(tmp_path: Path) -> Iterator[EtcdMembers]:
    """Three members of etcd."""
    with open_members(tmp_path) as found:
        yield found
