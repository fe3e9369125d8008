"""What is in deploy/, and the guide to it, agree with the program: settings, commands, ports, probes, metrics."""

import argparse
import re
import shlex
import subprocess
import tomllib
from configparser import RawConfigParser
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import yaml

from rota.cli import COMMANDS
from rota.config import SETTINGS, load_config
from rota.config.addresses import read_target
from rota.config.settings import LOCK_ID
from rota.control.standing import Cause
from rota.control.telemetry import METRICS
from rota.core.errors import CODES
from rota.core.reasons import REASON_CODES
from tests.servers.programs import find_program

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
TOMLS = sorted(DEPLOY.glob("*.toml"))

GUIDE = (ROOT / "docs" / "guides" / "operations.md").read_text(encoding="utf-8")
# Words of the journal, which look like error codes.
JOURNALLED = {
    "auth.refused",
    "coordinator.away",
    "reign.began",
    "elect.failed",
    "holds.failed",
    "store.away",
    "store.crowded",
    "leader.unknown",
    "epoch.overtaken",
    "commit.retry",
    "commit.refused",
}

_VARIABLES = {each.env for each in SETTINGS if each.env}


class Unit(RawConfigParser):
    """A unit of systemd: names as they are written."""

    def optionxform(self, optionstr: str) -> str:
        return optionstr


def unit(path: Path) -> Unit:
    found = Unit(strict=False)
    found.read_string(path.read_text(encoding="utf-8"))
    return found


def compose() -> dict[str, Any]:
    return yaml.safe_load((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))


def parse(words: list[str]) -> argparse.Namespace:
    """What the command line makes of these words; a word that it does not know ends the program."""
    name, *rest = words
    parser = argparse.ArgumentParser(prog=f"rota {name}")
    import_module(COMMANDS[name][0]).describe(parser)
    return parser.parse_args(rest)


def rota_services() -> dict[str, Any]:
    return {name: each for name, each in compose()["services"].items() if each["image"] == "rota"}


def test_a_word_that_no_command_knows_is_noticed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse(["server", "--lead"])
    assert "--lead" in capsys.readouterr().err


@pytest.mark.parametrize("path", TOMLS, ids=lambda path: path.name)
def test_a_file_of_settings_is_accepted(path: Path) -> None:
    config = load_config({}, {}, str(path))
    assert config.file == str(path)
    assert len(config.sources) > 2, "it says something"


def test_there_is_a_file_of_settings_for_each_role() -> None:
    assert {path.stem: set(tomllib.loads(path.read_text(encoding="utf-8"))) for path in TOMLS} == {
        "server": {"server", "tls", "auth", "pools"},
        "worker": {"client", "auth", "worker"},
    }


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_what_a_unit_starts_is_a_command_of_ours_with_a_file_that_is_here(path: Path) -> None:
    program, *words = shlex.split(unit(path)["Service"]["ExecStart"])
    assert program.endswith("/rota")
    options = parse(words)
    config = Path(options.config)
    assert (config.parent, DEPLOY / config.name in TOMLS) == (Path("/etc/rota"), True)


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_a_unit_gives_its_process_time_to_stop_and_little_to_do_harm_with(path: Path) -> None:
    service = unit(path)["Service"]
    assert service["KillMode"] == "mixed", "SIGTERM is for the process that knows what it means"
    assert service["NoNewPrivileges"] == "yes"
    assert service["ProtectSystem"] == "strict"
    assert service["User"] != "root"
    folders = service["StateDirectory"].split("/")
    assert folders[0] in ("rota", "rota-worker"), "what it may write"
    config = load_config({}, {}, str(DEPLOY / f"{path.stem.removeprefix('rota-').rstrip('@')}.toml"))
    needed_s = config.worker.drain_s + config.server.heartbeat_timeout_s if "worker" in path.name else 40
    assert int(service["TimeoutStopSec"]) > needed_s


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_a_unit_may_write_blobs_that_are_a_mounted_folder(path: Path) -> None:
    writable = unit(path)["Service"]["ReadWritePaths"].split()
    (blobs,) = {
        each["environment"]["ROTA_SERVER_BLOBS"] for name, each in rota_services().items() if name.startswith("server")
    }
    assert any(blobs.startswith(f"{folder.removeprefix('-')}/") for folder in writable)
    assert all(folder.startswith("-") for folder in writable), "it need not be there"


def found_by_systemd(name: str, text: str, folder: Path) -> list[str]:
    """What `systemd-analyze verify` says of a unit."""
    analyze = find_program("systemd-analyze", [], "apt-get install systemd")
    # The program that it starts is not installed here; everything else is looked at as it is.
    here = folder / name.replace("@", "@one")
    here.write_text(re.sub(r"^ExecStart=\S+", "ExecStart=/bin/true", text, flags=re.MULTILINE), encoding="utf-8")
    line = [analyze, "verify", "--man=no", "--recursive-errors=no", str(here)]
    done = subprocess.run(line, capture_output=True, text=True, check=False, timeout=60)
    return [line for line in (done.stdout + done.stderr).splitlines() if "rota-" in line]


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_systemd_finds_nothing_wrong_with_a_unit(path: Path, tmp_path: Path) -> None:
    assert found_by_systemd(path.name, path.read_text(encoding="utf-8"), tmp_path) == []


def test_a_misspelt_key_of_a_unit_is_noticed(tmp_path: Path) -> None:
    text = UNITS[0].read_text(encoding="utf-8").replace("ProtectClock", "ProtectClok")
    assert "ProtectClok" in " ".join(found_by_systemd(UNITS[0].name, text, tmp_path))


def test_every_variable_in_the_compose_file_is_a_setting_or_of_another_program() -> None:
    others = {"PGPASSWORD"}
    for name, service in rota_services().items():
        named = set(service["environment"])
        assert named <= _VARIABLES | others, f"{name}: {named - _VARIABLES - others}"


def test_what_the_compose_file_starts_is_accepted_with_its_variables() -> None:
    assert set(rota_services()) == {"server-1", "server-2", "worker"}
    for service in rota_services().values():
        parse(service["command"])
        given = {name: re.sub(r"\$\{\w+:\?[^}]*\}", "made-up", value) for name, value in service["environment"].items()}
        config = load_config({}, given)
        assert config.sources


def test_coordinators_differ_in_nothing_but_what_they_are_called() -> None:
    one, two = (dict(rota_services()[name]["environment"]) for name in ("server-1", "server-2"))
    assert (one.pop("ROTA_SERVER_ADVERTISE"), two.pop("ROTA_SERVER_ADVERTISE")) == ("server-1", "server-2")
    assert one == two


def test_workers_reach_every_coordinator_and_the_blobs_where_these_keep_them() -> None:
    services = rota_services()
    servers = {name: each for name, each in services.items() if name.startswith("server")}
    listens = {str(each["environment"]["ROTA_SERVER_LISTEN"]).rpartition(":")[2] for each in servers.values()}
    targets = services["worker"]["environment"]["ROTA_COORDINATOR"].split(",")
    assert {str(read_target(target, "coordinator").address) for target in targets} == {
        f"{name}:{port}" for name in servers for port in listens
    }
    mounts = {mount.partition(":")[2] for each in services.values() for mount in each["volumes"]}
    (mount,) = mounts
    assert all(each["environment"]["ROTA_SERVER_BLOBS"].startswith(f"{mount}/") for each in servers.values())


def test_a_worker_in_a_container_has_time_to_drain() -> None:
    worker = rota_services()["worker"]
    drain_s = int(worker["environment"]["ROTA_WORKER_DRAIN_S"])
    assert int(worker["stop_grace_period"].removesuffix("s")) > drain_s + load_config({}, {}).server.heartbeat_timeout_s


def test_health_is_asked_where_it_is_answered() -> None:
    services = compose()["services"]
    page = (ROOT / "docs" / "reference" / "http.md").read_text(encoding="utf-8")
    assert "/readyz" in " ".join(services["server-1"]["healthcheck"]["test"])
    assert "/leaderz" in " ".join(services["proxy"]["healthcheck"]["test"])
    for path in ("/readyz", "/leaderz"):
        assert f"`GET {path}`" in page


def test_the_proxy_leads_to_whoever_leads_and_knows_every_coordinator() -> None:
    text = (DEPLOY / "haproxy.cfg").read_text(encoding="utf-8")
    sections = {part.split("\n")[0]: part for part in re.split(r"\n(?=\w)", text) if not part.startswith("#")}
    servers = [name for name in rota_services() if name.startswith("server")]
    environment = rota_services()["server-1"]["environment"]
    ports = {
        "http": environment["ROTA_SERVER_HTTP"].rpartition(":")[2],
        "grpc": environment["ROTA_SERVER_LISTEN"].rpartition(":")[2],
    }
    for way, port in ports.items():
        backend = sections[f"backend leader_{way}"]
        assert re.findall(r"^ +server (\S+) (\S+)$", backend, re.M) == [(name, f"{name}:{port}") for name in servers]
        assert "uri /leaderz" in backend
        assert f"bind :{port}" in sections[f"frontend {way}"]
    assert f"check port {ports['http']}" in sections["defaults"]


def test_the_image_is_made_from_the_wheel_with_the_shared_stores() -> None:
    text = (DEPLOY / "Dockerfile").read_text(encoding="utf-8")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    (extras,) = re.findall(r'"\$\{wheel\}\[([\w,]+)\]"', text)
    assert set(extras.split(",")) <= set(project["optional-dependencies"])
    assert {"postgres", "etcd"} <= set(extras.split(","))
    assert 'ENTRYPOINT ["rota"]' in text
    assert re.findall(r"^USER (\w+)$", text, re.M) == ["rota"]


def test_every_metric_that_the_guide_watches_exists() -> None:
    known = {metric.name: metric for metric in METRICS}
    named = set(re.findall(r"\brota_[a-z_]+", GUIDE)) - {"rota_"}
    assert len(named) > 8
    shown = {name.removesuffix("_bucket"): name.endswith("_bucket") for name in named}
    assert set(shown) <= set(known)
    assert all((known[name].sort == "histogram") == is_bucket for name, is_bucket in shown.items())


def test_every_reason_for_stepping_down_that_the_guide_names_exists() -> None:
    rows = [line for line in GUIDE.splitlines() if "rota_step_downs_total" in line]
    named = {word for line in rows for word in re.findall(r"`([a-z]+_[a-z]+)`", line)}
    assert named
    assert named <= set(Cause)


def test_every_dotted_word_of_the_guide_is_a_setting_a_code_a_reason_or_a_word_of_the_journal() -> None:
    named = set(re.findall(r"`([a-z]+\.[a-z_]+)`", GUIDE))
    assert len(named) > 25
    assert named - {each.path for each in SETTINGS} - set(CODES) - set(REASON_CODES) - JOURNALLED == set()


def test_every_word_of_the_journal_that_the_guide_names_is_written() -> None:
    source = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "src" / "rota").rglob("*.py"))
    for word in JOURNALLED:
        assert f"`{word}`" in GUIDE
        assert f'Tell("{word}"' in source


def test_the_lock_that_the_guide_looks_for_is_the_one_that_is_taken() -> None:
    assert f"= {LOCK_ID} and l.granted" in GUIDE
    assert f"is {LOCK_ID} (`0x{LOCK_ID:X}`)" in GUIDE
