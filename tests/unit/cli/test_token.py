"""`rota token new`: whatever it prints or puts into a file is accepted as it was meant, and nothing else is printed."""

import json
import stat
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rota.api.auth import ANY_TENANT, TOKEN_ROLES, Role
from rota.api.tokens import find, read_tokens
from rota.cli import main
from rota.core.ids import DEFAULT_TENANT

NAMES = st.text(st.characters(codec="ascii", exclude_characters=" "), min_size=1, max_size=8)
LISTS = st.lists(NAMES, max_size=3)


def made(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    code = main(["token", "new", *words])
    return code, capsys.readouterr().out


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(TOKEN_ROLES), st.just("") | NAMES, LISTS, LISTS, LISTS, st.text(max_size=10))
def test_an_entry_is_read_as_what_was_asked_for_or_it_is_refused(
    capsys: pytest.CaptureFixture[str],
    role: str,
    tenant: str,
    capabilities: list[str],
    workspaces: list[str],
    agents: list[str],
    note: str,
) -> None:
    given: dict[str, Any] = {"--capability": capabilities, "--workspace": workspaces, "--agent": agents}
    words = [f"{option}={name}" for option, names in given.items() for name in names]
    code, out = made(capsys, f"--role={role}", f"--tenant={tenant}", f"--note={note}", *words)
    if code:
        assert (code, out) == (3, "")
        return
    (entry,) = read_tokens(out, "a file")
    usual = ANY_TENANT if role == Role.WORKER else DEFAULT_TENANT
    who = entry.principal
    assert (who.role, who.tenant) == (role, tenant or usual)
    assert (who.capabilities, who.workspaces, who.agents) == tuple(map(tuple, given.values()))
    assert not entry.is_plain


@pytest.mark.parametrize("role", TOKEN_ROLES)
def test_every_role_has_tokens(capsys: pytest.CaptureFixture[str], role: str) -> None:
    code, out = made(capsys, "--role", role, "--tenant", "acme", "--note", "the nightly jobs")
    (entry,) = read_tokens(out, "a file")
    assert (code, entry.principal.role, entry.principal.tenant) == (0, role, "acme")


def test_tokens_that_are_added_to_a_file_are_accepted_with_those_before(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "tokens"
    path.write_text("writer:older", encoding="utf-8")
    path.chmod(0o640)
    tokens = [made(capsys, "--role", "reader", "--file", str(path))[1].strip() for _ in range(3)]
    entries = read_tokens(path.read_text(encoding="utf-8"), "a file")
    assert len({*tokens}) == 3
    assert all(len(bytes.fromhex(token)) == 32 for token in tokens)
    for token, role in [("older", Role.WRITER), *((token, Role.READER) for token in tokens)]:
        found = find(entries, token)
        assert found is not None and found.principal.role is role
    assert stat.S_IMODE(path.stat().st_mode) == 0o640, "what its owner chose stays"


def test_a_file_that_is_made_is_for_its_owner_alone(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    printed = json.loads(made(capsys, "--role", "admin", "--file", str(path), "--json")[1])
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert path.read_text(encoding="utf-8") == f"{printed['entry']}\n"
    assert printed["entry"] == f"admin:{printed['token']}"
    assert printed["token"] not in printed["name"]
