"""One wheel, and one environment with nothing else, for all tests of what is installed."""

from pathlib import Path

import pytest

from tests.install.environments import build, install_with_pip


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("wheel"), "wheel")


@pytest.fixture(scope="session")
def bare(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of an environment with the wheel and without extras, made by pip."""
    return install_with_pip(tmp_path_factory.mktemp("bare") / "venv", wheel)
