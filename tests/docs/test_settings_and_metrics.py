"""The pages of settings and metrics say what the code says: every name, variable, default and label, and no other."""

import re
import tomllib
from pathlib import Path

import pytest

from rota.api.reapi.telemetry import METRICS as FRONT_END_METRICS
from rota.config import SETTINGS, Setting, load_config
from rota.config.spawners import KEYS, SpawnerSettings
from rota.control.tally import AGAIN, MOVED_TO
from rota.control.telemetry import METRICS
from rota.core.state import DECIDED

REFERENCE = Path(__file__).parents[2] / "docs" / "reference"
SRC = Path(__file__).parents[2] / "src" / "rota"

_ROW = re.compile(r"^\| `(?P<name>[\w.]+)` \|(?P<rest>.*)\|$", re.MULTILINE)
_TOML = re.compile(r"^```toml\n(.*?)^```", re.MULTILINE | re.DOTALL)


def rows(page: str) -> dict[str, list[str]]:
    text = (REFERENCE / page).read_text(encoding="utf-8")
    found = [(row["name"], [cell.strip() for cell in row["rest"].split("|")]) for row in _ROW.finditer(text)]
    assert len({name for name, _ in found}) == len(found), "nothing is documented twice"
    return dict(found)


def shown(setting: Setting) -> str:
    """A default as the page writes it; nothing is a dash."""
    default = setting.default
    if isinstance(default, bool):
        return f"`{str(default).lower()}`"
    return f"`{default}`" if default not in (None, "", (), {}) else "–"


def test_every_setting_is_documented_with_its_variable_and_default_and_no_other_is() -> None:
    documented = {name: cells[:2] for name, cells in rows("settings.md").items()}
    assert documented == {each.path: [f"`{each.env}`" if each.env else "–", shown(each)] for each in SETTINGS}


def test_every_setting_has_a_reason() -> None:
    assert [name for name, cells in rows("settings.md").items() if len(cells[2]) < 20] == []


def test_every_variable_that_any_page_or_message_names_exists() -> None:
    known = {*(each.env for each in SETTINGS), "ROTA_CONFIG"}
    pages = [*REFERENCE.glob("settings.md"), REFERENCE.parent / "guides" / "security.md", SRC / "api" / "auth.py"]
    named = {name for page in pages for name in re.findall(r"\bROTA_[A-Z_]+\b", page.read_text(encoding="utf-8"))}
    assert named - known == set()


def test_the_example_is_a_file_that_is_accepted_and_uses_every_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (example,) = _TOML.findall((REFERENCE / "settings.md").read_text(encoding="utf-8"))
    monkeypatch.chdir(tmp_path)
    Path("rota.toml").write_text(example, encoding="utf-8")
    config = load_config()
    assert config.server.limits.lease_ms == 20_000
    assert [pool.name for pool in config.definitions.pools] == ["warehouse", "mailer"]
    assert [(share.tenant, share.weight) for share in config.definitions.tenants] == [("acme", 30)]
    assert set(tomllib.loads(example)) == {
        *(each.section for each in SETTINGS),
        "queues",
        "pools",
        "tenants",
        "spawners",
    }
    assert [spawner.name for spawner in config.spawners] == ["reviewers", "gpu"]


def test_every_key_of_a_spawner_is_documented_with_its_default_and_no_other_is() -> None:
    text = (REFERENCE / "settings.md").read_text(encoding="utf-8")
    documented = dict(re.findall(r"^\| `spawners\.\*\.(\w+)` \| \w+ \| (\S+) \| .{20,} \|$", text, re.MULTILINE))
    usual = SpawnerSettings(name="x")
    defaults = {key: getattr(usual, key) for key in KEYS}
    shown = {key: f"`{str(value).lower()}`" if value or value is False else "–" for key, value in defaults.items()}
    assert documented == shown


def test_every_metric_is_documented_with_its_sort_and_labels_and_no_other_is() -> None:
    documented = {name: cells[:2] for name, cells in rows("metrics.md").items()}
    expected = {
        metric.name: [metric.sort, ", ".join(f"`{label}`" for label in metric.labels) or "–"]
        for metric in (*METRICS, *FRONT_END_METRICS)
    }
    assert documented == expected
    assert [name for name, cells in rows("metrics.md").items() if not cells[2]] == []


def test_every_sort_of_decision_is_documented_and_no_other_is() -> None:
    page = (REFERENCE / "metrics.md").read_text(encoding="utf-8")
    _, _, rest = page.partition("Values of `decision`:")
    listed, _, _ = rest.partition("Worth an alert:")
    documented = set(re.findall(r"`(\w+)`", listed))
    assert documented == {*MOVED_TO, *AGAIN.values(), *DECIDED, "max_active_runs_cap"}
