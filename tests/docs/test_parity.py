"""docs/parity.md names modules that exist, variables as they are, and each state once."""

import re
from pathlib import Path

from rota.config import SETTINGS
from rota.core.states import PHASES, TaskState

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "parity.md").read_text(encoding="utf-8")


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def test_every_module_that_is_named_exists() -> None:
    named = set(re.findall(r"`(rota/[\w/]+(?:\.py)?)/?`", TEXT))
    assert len(named) > 20
    assert [name for name in sorted(named) if not (ROOT / "src" / name).exists()] == []


def test_the_variables_are_settings_with_these_defaults() -> None:
    known = {setting.env: setting for setting in SETTINGS}
    rows = [cells(line) for line in TEXT.splitlines() if line.startswith("| `ROTA_")]
    assert len(rows) == 8
    for name, default, path, meaning in rows:
        setting = known[name.strip("`")]
        assert (setting.path, meaning != "") == (path.strip("`"), True)
        assert ("–" if setting.default in ("", None) else str(setting.default)) == default


def test_the_lifecycle_has_each_state_in_its_phase() -> None:
    rows = [cells(line) for line in TEXT.splitlines() if re.match(r"\| [A-Z][a-z]+ \| `", line)]
    told = {
        TaskState(state): phase.strip("`") for _, phase, states, _ in rows for state in re.findall(r"`(\w+)`", states)
    }
    assert told == {state: phase.value for state, phase in PHASES.items()}
