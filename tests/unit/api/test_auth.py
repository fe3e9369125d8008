"""Tokens, roles and tenants: who gets in, what for, and how that changes while a coordinator runs."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rota.api import tokens as tokens_module
from rota.api.auth import ANYONE, NEEDS, Principal, Role
from rota.api.tokens import Gate, check_exposure, find, merge, read_tokens
from rota.config import Secret, fingerprint, read_address
from rota.config.settings import Auth
from rota.control.events import Tell
from rota.core.commands import (
    CancelRun,
    ClaimTask,
    ClientCommand,
    Command,
    PutPool,
    RegisterWorker,
    RenewLease,
    Report,
    Tick,
)
from rota.core.errors import Refused
from rota.core.history import ListAudits
from rota.core.model import Pool
from rota.core.questions import GetRun, ListTenants, Question
from rota.wire.items import ResolveWork, SubmitWork
from rota.wire.requests import FindBundle, InspectService, PutBundle
from rota.wire.sessions import OfSession, SessionRequest
from tests.refusals import refused

SECOND = 1_000


class Door:
    """A gate with a clock to move, and everything it told and counted."""

    def __init__(self, **settings: Any) -> None:
        self.now = 1_000_000
        self.told: list[Tell] = []
        self.counted: list[str] = []
        self.gate = Gate(Auth(**settings), lambda: self.now, tell=self.told.append, count=self.counted.append)

    def refusal(self, token: str | None, tenant: str | None = None) -> str:
        with pytest.raises(Refused) as caught:
            self.gate.admit(token, tenant)
        if token:
            assert token not in str(caught.value)
        return caught.value.code

    def lets_in(self, token: str) -> bool:
        try:
            self.gate.admit(token)
        except Refused:
            return False
        return True

    def what(self) -> list[str]:
        return [said.what for said in self.told]


def put(file: Path, text: str) -> None:
    """Replace a file as careful people do, so that nobody reads a half."""
    fresh = file.with_suffix(".new")
    fresh.write_text(text)
    fresh.replace(file)


# Entries.


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("s1", [f"admin@default#{fingerprint('s1')}"]),
        ("reader:s1", [f"reader@default#{fingerprint('s1')}"]),
        ("worker:s1", [f"worker@*#{fingerprint('s1')}"]),
        ("writer@acme:s1", [f"writer@acme#{fingerprint('s1')}"]),
        ("admin@*:s1==", [f"admin@*#{fingerprint('s1==')}"]),
        (" s1 , reader:s2\n\n# none here, admin:s3\nworker@acme:s4 # Joe's", ["admin@d", "reader@d", "worker@acme"]),
        ("", []),
        ("# nothing\n , ,\n", []),
    ],
)
def test_entries_say_role_and_tenant_or_are_an_admin_of_the_default_one(text: str, names: list[str]):
    found = [entry.principal.name for entry in read_tokens(text, "a test")]
    assert len(found) == len(names)
    assert all(name.startswith(start) for name, start in zip(found, names, strict=True))


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("ok,wrter@acme:hush", "Did you mean writer?"),
        ("ok,hush:hush", "reader, writer, admin, worker, agent, analyst."),
        ("ok,owner:hush", "reader, writer"),
        ("ok,reader:", "._~+/-"),
        ("ok,reader:hush hush", "._~+/-"),
        ("ok,hüsh", "._~+/-"),
        ("ok," + "hush" * 300, "._~+/-"),
        ("ok,reader@ :hush", "role@tenant:secret"),
    ],
)
def test_an_entry_that_cannot_be_read_is_refused_by_its_number_and_not_repeated(text: str, hint: str):
    with pytest.raises(Refused) as caught:
        read_tokens(text, "the list")
    assert hint in caught.value.hint
    assert "hush" not in str(caught.value)
    assert "hüsh" not in str(caught.value)
    if "printable" not in hint:
        assert "entry 2 of the list" in caught.value.reason


def test_too_many_tokens_are_refused():
    with pytest.raises(Refused, match="1001 tokens"):
        read_tokens(",".join(f"t{number}" for number in range(1_001)), "x")


def test_a_token_that_is_named_with_a_role_has_that_role_wherever_else_it_stands():
    door = Door(tokens=Secret("reader@acme:s1"), token=Secret("s1"))
    assert door.gate.admit("s1").role is Role.READER
    assert len(door.gate.names) == 1


@pytest.mark.parametrize(
    "settings",
    [{"tokens": Secret("reader:s1,writer:s1")}, {"token": Secret("s1"), "worker_token": Secret("s1")}],
)
def test_a_token_of_two_sorts_is_refused(settings: dict[str, Any]):
    with refused("config.value", f"#{fingerprint('s1')}"):
        Door(**settings)
    assert len(merge(read_tokens("s1,s1,reader:s2,reader:s2", "x"))) == 2


def test_every_entry_is_compared_whichever_matches(monkeypatch: pytest.MonkeyPatch):
    compared: list[bytes] = []

    def compare(one: bytes, other: bytes) -> bool:
        compared.append(one)
        return one == other

    monkeypatch.setattr(tokens_module, "compare_digest", compare)
    entries = read_tokens("s1,s2,s3", "x")
    for token in ("s1", "s2", "s3", "s4", ""):
        compared.clear()
        assert (find(entries, token) is not None) == (token in ("s1", "s2", "s3"))
        assert compared == [entry.digest for entry in entries]
    assert all(len(digest) == 32 for digest in compared), "only digests are kept and compared"


# Getting in.


def test_without_any_configuration_everybody_is_the_owner():
    door = Door()
    assert door.gate.is_open
    assert door.gate.admit(None) == ANYONE
    assert door.gate.admit("whatever", "acme").tenant == "acme"
    for need in NEEDS.values():
        ANYONE.may(need, "acme")


@pytest.mark.parametrize("settings", [{"tokens": Secret("")}, {"token": Secret("")}, {"worker_token": Secret(" ")}])
def test_configured_and_empty_lets_nobody_in(settings: dict[str, Any]):
    door = Door(**settings)
    assert not door.gate.is_open
    assert door.refusal(None) == "auth.missing"
    assert door.refusal("") == "auth.missing"
    assert door.refusal("s1") == "auth.wrong"


@pytest.mark.parametrize("header", ["s1", "Bearer s1", "bearer s1", "BEARER  s1 "])
def test_a_token_may_come_bare_or_as_a_header(header: str):
    assert Door(tokens=Secret("reader:s1")).gate.admit(header).role is Role.READER


@pytest.mark.parametrize("header", ["s2", "Bearer", "Bearer s2", "Basic s1", "s1 s1", "S1", "s1\udcff", "s1" * 100_000])
def test_any_other_token_is_wrong(header: str):
    assert Door(tokens=Secret("reader:s1")).refusal(header) == "auth.wrong"


def test_a_client_s_own_token_is_accepted_and_a_worker_s_has_the_worker_s_role():
    door = Door(token=Secret("mine"), worker_token=Secret("theirs"))
    assert (door.gate.admit("mine").role, door.gate.admit("mine").tenant) == (Role.ADMIN, "default")
    assert (door.gate.admit("theirs").role, door.gate.admit("theirs").tenant) == (Role.WORKER, "*")


def test_a_caller_acts_for_the_tenant_it_asks_for_if_its_token_allows_that():
    door = Door(tokens=Secret("writer@acme:s1,reader@*:s2"))
    assert door.gate.admit("s1").acting_tenant == "acme"
    assert door.gate.admit("s1", "acme").tenant == "acme"
    assert door.refusal("s1", "other") == "auth.tenant"
    assert door.gate.admit("s2").acting_tenant == "default"
    narrowed = door.gate.admit("s2", "other")
    assert narrowed.tenant == "other"
    with pytest.raises(Refused, match=r"auth\.tenant"):
        narrowed.may(Role.READER, "acme")


def test_refusals_are_counted_and_told_without_the_token():
    door = Door(tokens=Secret("s1"))
    door.refusal("hush")
    door.refusal(None)
    assert door.counted == ["auth.wrong", "auth.missing"]
    assert door.what() == ["auth.refused", "auth.refused"]
    with pytest.raises(Refused):
        door.gate.admit("hush", peer="10.0.0.9")
    assert door.told[-1].about[:2] == (("cause", "auth.wrong"), ("peer", "10.0.0.9"))
    assert "hush" not in str(door.told)


# Roles.


def kinds(root: type[Any]) -> Iterator[type[Any]]:
    for kind in root.__subclasses__():
        yield kind
        yield from kinds(kind)


def test_every_command_of_a_client_and_every_question_has_its_role():
    asked = {*kinds(ClientCommand), *kinds(Question), RegisterWorker, RenewLease, Report}
    asked = {kind for kind in asked if kind.__module__.startswith("rota.")} - {OfSession}
    assert set(NEEDS) == asked
    assert {kind for kind, need in NEEDS.items() if need is Role.AGENT} == set(SessionRequest.__args__)
    others = {kind for kind in asked if issubclass(kind, Question) and not issubclass(kind, OfSession)}
    assert {kind for kind in others if NEEDS[kind] is not Role.READER} == {
        FindBundle,
        InspectService,
        ListAudits,
        ListTenants,
        PutBundle,
        ResolveWork,
        SubmitWork,
    }
    assert {kind for kind, need in NEEDS.items() if need is Role.WORKER} == {
        ClaimTask,
        RegisterWorker,
        RenewLease,
        Report,
    }


@pytest.mark.parametrize("role", [role for role in Role if role not in (Role.OWNER, Role.AGENT, Role.ANALYST)])
@pytest.mark.parametrize("need", [Role.READER, Role.WRITER, Role.ADMIN, Role.WORKER])
def test_who_may_do_what(role: Role, need: Role):
    ladder = [Role.READER, Role.WRITER, Role.ADMIN]
    if Role.WORKER in (role, need):
        allowed = role is need
    else:
        allowed = ladder.index(role) >= ladder.index(need)
    principal = Principal("x", role, "acme")
    if allowed:
        principal.may(need, "acme")
    else:
        with pytest.raises(Refused, match=r"auth\.role"):
            principal.may(need, "acme")
    with pytest.raises(Refused, match=r"auth\.tenant"):
        principal.may(need, "other")


@pytest.mark.parametrize("need", [role for role in Role if role is not Role.OWNER])
def test_an_agent_may_read_and_do_an_agents_work(need: Role):
    assert Role.AGENT.covers(need) == (need in (Role.AGENT, Role.READER))
    assert need is Role.AGENT or not need.covers(Role.AGENT)


@pytest.mark.parametrize("need", [role for role in Role if role is not Role.OWNER])
def test_an_analyst_may_read_and_nothing_of_others(need: Role):
    assert Role.ANALYST.covers(need) == (need in (Role.ANALYST, Role.READER))
    assert need is Role.ANALYST or not need.covers(Role.ANALYST)


def test_an_agents_sessions_offer_what_its_token_allows_and_nothing_else():
    few, none, all_of_them = read_tokens("agent+review+code.python:a,agent:b,agent@acme+*:c", "the list")
    few.principal.may_offer(["review", "code.python"])
    none.principal.may_offer([])
    all_of_them.principal.may_offer(["anything"])
    ANYONE.may_offer(["anything"])
    for entry, offered in ((few, "deploy"), (none, "review")):
        with pytest.raises(Refused, match=r"auth\.capability") as refused:
            entry.principal.may_offer([offered])
        assert offered in refused.value.reason


@pytest.mark.parametrize("text", ["writer+review:a", "agent+:a", "agent+a b:a", "agent+*x:a"])
def test_capabilities_that_cannot_be_are_refused(text: str):
    with pytest.raises(Refused, match=r"config\.value"):
        read_tokens(text, "the list")


def test_requests_are_judged_by_their_kind_and_their_tenant():
    door = Door(tokens=Secret("reader@acme:s1"))
    reader = door.gate.admit("s1")
    reader.may_ask(GetRun(tenant="acme", run="r"))
    requests: list[tuple[Command | Question, str]] = [
        (GetRun(tenant="other", run="r"), "auth.tenant"),
        (CancelRun(tenant="acme", command_id="c", run="r"), "auth.role"),
        (PutPool(tenant="acme", command_id="c", pool=Pool(tenant="acme", name="p")), "auth.role"),
        (Tick(tenant="acme", kind="step", key=()), "field.type"),
    ]
    for request, code in requests:
        with pytest.raises(Refused) as caught:
            reader.may_ask(request)
        assert caught.value.code == code


# Rotation.


@pytest.fixture
def tokens(tmp_path: Path) -> Path:
    file = tmp_path / "tokens"
    file.write_text("# ours\nreader:old\n")
    return file


def test_a_changed_file_is_in_force_after_a_second(tokens: Path):
    door = Door(token_file=str(tokens))
    version = door.gate.version
    put(tokens, "reader:old\nreader:new\n")
    assert not door.lets_in("new"), "not every call looks at the disk"
    door.now += SECOND
    assert door.lets_in("new") and door.lets_in("old")
    put(tokens, "reader:new\n")
    door.now += SECOND
    assert door.lets_in("new") and not door.lets_in("old")
    assert door.gate.version == version + 2
    assert door.what().count("auth.reloaded") == 2


def test_a_file_that_looks_unchanged_is_read_at_the_interval(tokens: Path):
    door = Door(token_file=str(tokens), reload_interval_s=60)
    stamp = tokens.stat()
    tokens.write_text("# ours\nreader:new\n")
    os.utime(tokens, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    door.now += 59 * SECOND
    assert door.lets_in("old")
    door.now += SECOND
    assert door.lets_in("new") and not door.lets_in("old")


def test_a_file_that_becomes_empty_revokes_everything_in_it(tokens: Path):
    door = Door(token_file=str(tokens))
    put(tokens, "# nobody\n")
    door.now += SECOND
    assert door.refusal("old") == "auth.wrong"
    assert not door.gate.is_open


@pytest.mark.parametrize("how", ["gone", "a folder", "not text", "no token", "two sorts"])
def test_a_file_that_cannot_be_used_any_more_keeps_what_was_accepted_and_says_so_now_and_then(tokens: Path, how: str):
    door = Door(token_file=str(tokens), token=Secret("mine"))
    if how in ("gone", "a folder"):
        tokens.unlink()
        if how == "a folder":
            tokens.mkdir()
    elif how == "not text":
        tokens.write_bytes(b"\xff\xfe\xff")
    else:
        put(tokens, "hush hush" if how == "no token" else "reader:x,writer:x")
    for _ in range(600):
        door.now += 100
        assert door.lets_in("old") and door.lets_in("mine")
    assert 1 <= door.what().count("auth.reload_failed") <= 3
    assert "hush" not in str(door.told)
    if how == "a folder":
        tokens.rmdir()
    put(tokens, "reader:new")
    door.now += SECOND
    assert door.lets_in("new") and not door.lets_in("old")


def test_a_coordinator_does_not_start_with_a_file_it_cannot_read(tmp_path: Path):
    with refused("config.file", str(tmp_path / "gone"), "No such file", path="auth.token_file"):
        Door(token_file=str(tmp_path / "gone"))


def test_a_file_beyond_all_measure_is_refused(tokens: Path):
    tokens.write_bytes(b"#" * ((1 << 20) + 1))
    with pytest.raises(Refused, match="too large"):
        Door(token_file=str(tokens))


# Listening beyond this machine.


@pytest.mark.parametrize("elsewhere", ["0.0.0.0:7433", "[::]:1", "10.1.2.3:7433", "rota.example.org:7433"])
def test_listening_elsewhere_takes_tokens_and_wants_tls(elsewhere: str):
    addresses = [read_address(text, "x") for text in ("127.0.0.1:1", elsewhere)]
    with pytest.raises(Refused, match=r"auth\.exposed") as caught:
        check_exposure(addresses, is_open=True, has_tls=True)
    assert "ROTA_COORDINATOR_BEARER_TOKENS" in caught.value.hint
    (warning,) = check_exposure(addresses, is_open=False, has_tls=False)
    assert elsewhere in warning
    assert check_exposure(addresses, is_open=False, has_tls=True) == []


def test_on_this_machine_nothing_is_needed():
    addresses = [read_address(text, "x") for text in ("127.0.0.1:1", "[::1]:2", "localhost:3")]
    assert check_exposure(addresses, is_open=True, has_tls=False) == []


def test_a_token_file_that_is_no_file_is_refused_and_not_waited_for(tmp_path: Path):
    os.mkfifo(tmp_path / "pipe")
    with refused("config.file", str(tmp_path / "pipe"), path="auth.token_file"):
        Door(token_file=str(tmp_path / "pipe"))


@pytest.mark.parametrize("entry", ["writer@:abc", "writer@acme :abc", "writer@日本:abc"])
def test_a_tenant_that_no_header_can_hold_is_refused_where_it_is_read(entry: str):
    with refused("config.value", " 1 ", "ROTA_COORDINATOR_BEARER_TOKENS", "role@tenant:secret"):
        Door(tokens=Secret(entry))


def test_what_concerns_all_tenants_says_so_to_whom_is_of_one():
    admin = Principal("admin@acme#1", Role.ADMIN, "acme")
    with refused("auth.tenant", "admin@acme#1", "admin@*"):
        admin.may_ask(InspectService(tenant="acme"))
