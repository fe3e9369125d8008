"""What several modules start: a service of real processes, once for each module that asks for it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import rota
from tests.integration.service.pair import Pair
from tests.integration.service.stage import open_stage

# Long enough for whatever else this machine is busy with: nothing of this is about leases.
LEASE_S = 20


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """A `rota server` and a `rota worker`."""
    with open_stage(tmp_path_factory.mktemp("pair"), lease_s=LEASE_S) as stage:
        yield Pair(stage)


@pytest.fixture(params=["embedded", "remote"])
def in_processes(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[rota.Rota]:
    """A client, embedded and remote; its tasks run in processes of their own."""
    remote = request.param == "remote"
    with request.getfixturevalue("pair").connect() if remote else rota.Rota.embedded(tmp_path / "data") as one:
        yield one
