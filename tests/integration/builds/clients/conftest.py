"""Clients that nobody here wrote, and a service for them."""

from collections.abc import Iterator

import pytest

from tests.integration.builds.clients.bazel import Bazel, open_bazel
from tests.integration.builds.clients.service import IMPATIENT, Service, open_service


@pytest.fixture(scope="session")
def bazel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bazel]:
    """One for all tests: its start takes as long as many of them."""
    with open_bazel(tmp_path_factory.mktemp("bazel")) as one:
        yield one


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A `rota up` for tests that do it no harm; each uses an instance of its own, so that nothing is found there."""
    with open_service(tmp_path_factory.mktemp("shared"), IMPATIENT) as service:
        service.up()
        yield service
