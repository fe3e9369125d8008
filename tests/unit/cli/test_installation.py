"""What is installed, what an extra brings, and which server of a store is warned of."""

from importlib import metadata

import pytest

from rota.cli import EXIT_REFUSED, installation, main
from rota.cli.examining import _server_version

REQUIRED = [
    "apsw>=3.51.3",
    "httpcore[asyncio]>=1.0.5",
    "datafusion==55.0.0; extra == 'query'",
    "protobuf>=7.35; extra == 'query'",
    'protobuf>=7.35; extra == "build"',
    "rota[query]; extra == 'iceberg'",
    "pyiceberg[pyarrow,sql-sqlite]>=0.11; extra == 'iceberg'",
    "ruff>=0.9; extra == 'dev'",
]


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Packages with their versions, as the rules see them."""
    there = {"apsw": "3.54", "httpcore": "1.0.9", "datafusion": "55.0.0", "protobuf": "7.36", "pyiceberg": "0.11"}

    def version(name: str) -> str:
        if name not in there:
            raise metadata.PackageNotFoundError(name)
        return there[name]

    monkeypatch.setattr(metadata, "requires", lambda name: REQUIRED)
    monkeypatch.setattr(metadata, "version", version)
    return there


def test_nothing_lacks_where_everything_is_there(installed: dict[str, str]) -> None:
    assert installation.lacking_packages() == {"": [], "query": [], "build": [], "iceberg": []}
    (found,) = installation.check_install()
    assert (found.grade, found.hint) == ("ok", "")


def test_a_package_that_is_always_needed_fails_the_install(installed: dict[str, str]) -> None:
    del installed["httpcore"]
    (found,) = installation.check_install()
    assert (found.grade, found.what) == ("fail", "install")
    assert "httpcore" in found.text
    assert "pip install" in found.hint


def test_an_extra_lacks_what_is_missing_or_in_another_version(installed: dict[str, str]) -> None:
    del installed["protobuf"]
    installed["datafusion"] = "54.0.0"
    lacking = installation.lacking_packages()
    assert [each.split(" ")[0] for each in lacking["query"]] == ["datafusion==55.0.0", "protobuf"]
    assert lacking["build"] == ["protobuf"]
    (found,) = installation.check_install()
    assert found.grade == "ok", "nobody asked for a query yet"
    assert "pip install 'rota[query,build]'" in found.hint


def test_what_cannot_be_imported_fails_the_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(name: str) -> None:
        raise ImportError("libfoo.so.1")

    monkeypatch.setattr(installation, "import_module", broken)
    (found,) = installation.check_install()
    assert found.grade == "fail"
    assert "libfoo.so.1" in found.text


@pytest.mark.parametrize(
    ("module", "extras"),
    [("datafusion", ["query"]), ("google.protobuf", ["query", "build"]), ("apsw", []), ("ruff", []), ("pandas", [])],
)
def test_a_module_is_known_by_its_extras(installed: dict[str, str], module: str, extras: list[str]) -> None:
    assert installation.extras_with(module) == extras


def test_a_command_that_lacks_a_module_of_an_extra_names_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def lacking(*_: object) -> int:
        raise ModuleNotFoundError("No module named 'mcp'", name="mcp.server")

    monkeypatch.setattr("rota.cli.doctor.run", lacking)
    assert main(["doctor"]) == EXIT_REFUSED
    assert "pip install 'rota[agent]'" in capsys.readouterr().err


def test_a_module_of_nobody_is_not_explained_away(monkeypatch: pytest.MonkeyPatch) -> None:
    def lacking(*_: object) -> int:
        raise ModuleNotFoundError("No module named 'mine'", name="mine")

    monkeypatch.setattr("rota.cli.doctor.run", lacking)
    with pytest.raises(ModuleNotFoundError, match="mine"):
        main(["doctor"])


@pytest.mark.parametrize(
    ("server", "grades"),
    [
        ("etcd 3.5.0", ["warn"]),
        ("etcd 3.5.4", ["warn"]),
        ("etcd 3.5.5", []),
        ("etcd 3.6.0", []),
        ("etcd 3.4.27", []),
        ("PostgreSQL 15.4", []),
        ("PostgreSQL 3.5.1", []),
    ],
)
def test_an_etcd_that_can_lose_data_is_warned_of(server: str, grades: list[str]) -> None:
    found = list(_server_version(server))
    assert [each.grade for each in found] == grades
    assert all(server in each.text for each in found)
