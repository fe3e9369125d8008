"""Options, environment and rota.toml become one `Config`; what is wrong is refused with its place and a hint."""

import re
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.config import SETTINGS, Config, Secret, commands_for, limits_for, load_config
from rota.config.lines import lines_of
from rota.config.settings import LEASE_S_MAX
from rota.core.bounds import TimeLimits, check_ladder
from rota.core.commands import PutPool, PutQueue, PutTenant
from rota.core.errors import Refused
from rota.core.model import PropertyRule


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to be in."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def load(folder: Path, text: str, env: Mapping[str, str] | None = None, **options: object) -> Config:
    (folder / "rota.toml").write_text(text, encoding="utf-8")
    return load_config(options, env)


def refused(folder: Path, text: str, env: Mapping[str, str] | None = None) -> Refused:
    with pytest.raises(Refused) as caught:
        load(folder, text, env)
    return caught.value


# Where values come from.


def test_without_a_file_and_variables_everything_has_its_default(here: Path):
    config = load_config()
    assert config == Config()
    assert all(source == "default" for _, _, source in config.values())
    assert config.server.limits == TimeLimits()


def test_an_option_beats_a_variable_beats_the_file_beats_the_default(here: Path):
    text = "[server]\nlisten = '127.0.0.1:1'\nhttp = '127.0.0.1:1'\nkeep_days = 1\n"
    env = {"ROTA_SERVER_LISTEN": "127.0.0.1:2", "ROTA_SERVER_HTTP": "127.0.0.1:2"}
    config = load(here, text, env, **{"server.listen": "127.0.0.1:3", "server.data": None})
    server = config.server
    assert (server.listen, server.http, server.keep_days, server.data) == ("127.0.0.1:3", "127.0.0.1:2", 1, "./.rota")
    sources = {setting.path: source for setting, _, source in config.values()}
    assert sources["server.listen"] == "option"
    assert sources["server.http"] == "ROTA_SERVER_HTTP"
    assert sources["server.keep_days"] == "rota.toml:4"
    assert sources["server.data"] == "default"


def test_the_file_is_the_one_that_is_named_then_that_of_the_variable_then_the_one_at_hand(here: Path):
    for name, days in (("rota.toml", 1), ("b.toml", 2), ("c.toml", 3)):
        (here / name).write_text(f"[server]\nkeep_days = {days}\n")
    assert load_config().server.keep_days == 1
    assert load_config(env={"ROTA_CONFIG": "b.toml"}).server.keep_days == 2
    config = load_config(env={"ROTA_CONFIG": "b.toml"}, file="c.toml")
    assert (config.server.keep_days, config.file, config.sources["server.keep_days"]) == (3, "c.toml", "c.toml:2")


@pytest.mark.parametrize("env", [{"ROTA_CONFIG": "gone.toml"}, {"ROTA_CONFIG": ""}])
def test_a_file_that_was_named_and_cannot_be_read_is_refused(here: Path, env: dict[str, str]):
    with pytest.raises(Refused, match=r"config\.file: .* cannot be read"):
        load_config(env=env)


@pytest.mark.parametrize("content", [b"[server\n", b"\xff\xfe", b"x = 1\n" * 300_000])
def test_a_file_that_is_no_toml_is_refused(here: Path, content: bytes):
    (here / "rota.toml").write_bytes(content)
    with pytest.raises(Refused, match=r"config\.file: rota\.toml "):
        load_config()


def test_variables_are_read_by_the_type_of_their_setting(here: Path):
    env = {
        "ROTA_WORKER_SLOTS": "4",
        "ROTA_WORKER_THREADS": "true",
        "ROTA_WORKER_QUEUES": "gpu, cpu,",
        "ROTA_SERVER_HTTP": "",
        "ROTA_HEARTBEAT_TIMEOUT_SECS": "60",
        "ROTA_MAX_TASK_RETRIES": "0",
        "ROTA_COORDINATOR": "grpcs://rota.example.org",
    }
    config = load_config(env=env)
    assert (config.worker.slots, config.worker.threads, config.worker.queues) == (4, True, ("gpu", "cpu"))
    assert (config.server.http, config.server.limits.lease_ms, config.server.max_task_retries) == ("", 60_000, 0)
    assert config.client.coordinator == "grpcs://rota.example.org"


def test_every_setting_but_tables_has_a_variable_of_its_own():
    assert [setting.path for setting in SETTINGS if not setting.env] == [
        "worker.properties",
        "worker.property_commands",
        "builds.instances",
        "queries.tables",
    ]
    names = [setting.env for setting in SETTINGS if setting.env]
    assert len(set(names)) == len(names)
    assert all(name.startswith("ROTA_") for name in names)


# What is wrong.


@pytest.mark.parametrize(
    ("text", "path", "hint"),
    [
        ("[server]\ndata = 'x'\nlissten = 'y'\n", "server.lissten", r"'listen'.*\brota\.toml:3\."),
        ("\n[sever]\n", "sever", r"'server'.*\brota\.toml:2\."),
        ("[server]\nzzz = 1\n", "server.zzz", "data, listen, http"),
        ("[pools.db]\nslots = 1\nslotz = 2\n", "pools.db.slotz", r"'slots'.*\brota\.toml:3\."),
        ("[tenants.acme]\nweigth = 2\n", "tenants.acme.weigth", "'weight'"),
        ("keep_days = 3\n", "keep_days", "server, tls"),
        ("server.lisen = '1'\n", "server.lisen", r"'listen'.*\brota\.toml:1\."),
    ],
)
def test_an_unknown_key_is_refused_with_its_place_and_the_nearest_name(here: Path, text: str, path: str, hint: str):
    refusal = refused(here, text)
    assert (refusal.code, refusal.path) == ("config.unknown", path)
    assert re.search(hint, refusal.hint), refusal.hint


@pytest.mark.parametrize(
    ("text", "path", "reason"),
    [
        ("[server]\nkeep_days = 'x'\n", "server.keep_days", "expected `int`, got `str`"),
        ("[server]\nkeep_days = -1\n", "server.keep_days", "expected `int` >= 0"),
        ("[server]\nheartbeat_timeout_s = 0\n", "server.heartbeat_timeout_s", "expected `int` >= 1"),
        ("[server]\nheartbeat_timeout_s = 3601\n", "server.heartbeat_timeout_s", "expected `int` <= 3600"),
        ("[server]\nlisten = 7433\n", "server.listen", "expected `str`, got `int`"),
        ("[server]\nlisten = '7433'\n", "server.listen", "'7433'"),
        ("[server]\nlisten = '::1:7433'\n", "server.listen", "'::1:7433'"),
        ("[server]\nlisten = 'localhost:70000'\n", "server.listen", "'localhost:70000'"),
        ("[server]\ndata = ''\n", "server.data", "expected `str` of length >= 1"),
        ("server = 1\n", "server", "'server'"),
        ("[client]\ncoordinator = 'http://x'\n", "client.coordinator", "coordinator"),
        ("[client]\ntenant = ' x'\n", "client.tenant", "' x'"),
        ("[worker]\nqueues = 'gpu'\n", "worker.queues", "expected `array`, got `str`"),
        ("[streams]\nfolders = ['s3://lake/streams']\n", "streams.folders", "'s3://lake/streams'"),
        ("[streams]\nfolders = ['/a', '/b', '/a']\n", "streams.folders", "'/a'"),
        ("[streams]\nfolders = ['/a', 'acme=/a']\n", "streams.folders", "'/a'"),
        ("[streams]\nfolders = ['acme=']\n", "streams.folders", "'acme='"),
        ("[streams]\nfolders = [' x=/a']\n", "streams.folders", "' x'"),
        ("[worker]\negress_allow = ['10.0.0.1/8']\n", "worker.egress_allow", "10.0.0.1/8 has host bits"),
        ("[worker.properties]\ngpu = []\n", "worker.properties.gpu", "list"),
        ("[worker.properties]\ngpu = 1.5\n", "worker.properties", "expected `str | array`, got `float`"),
        ("[worker.property_commands]\ngpu = 'nvidia-smi'\n", "worker.property_commands", "expected `array`, got `str`"),
        ("[pools.db]\nslots = -1\n", "pools.db.slots", "-1 "),
        ("[pools.db]\nslots = 'x'\n", "pools.db.slots", "expected `int`, got `str`"),
        ("[pools.'@x']\nslots = 1\n", "pools.@x.name", "'@x' starts with @"),
        ("[queues.q]\nproperties = {gpu = 'exactly'}\n", "queues.q", "invalid enum value 'exactly'"),
        ("[tenants.acme]\nweight = 0\n", "tenants.acme.weight", "out of range"),
        ("[tenants.acme]\nweight = 101\n", "tenants.acme.weight", "out of range"),
        ("pools = 3\n", "pools", "'pools'"),
        ("[pools]\ndb = 3\n", "pools.db", "table"),
        ("[pools.a]\nname = 'x'\n[pools.b]\nname = 'x'\n", "pools", "'x' of tenant 'default'"),
    ],
)
def test_a_value_that_cannot_be_is_refused(here: Path, text: str, path: str, reason: str):
    refusal = refused(here, text)
    assert refusal.code == "config.value"
    assert refusal.path.startswith(path)
    assert reason in refusal.reason


def test_a_wrong_variable_is_named_in_the_refusal(here: Path):
    refusal = refused(here, "", {"ROTA_HEARTBEAT_TIMEOUT_SECS": "thirty"})
    assert (refusal.code, refusal.path) == ("config.value", "server.heartbeat_timeout_s")
    assert "ROTA_HEARTBEAT_TIMEOUT_SECS" in refusal.hint


# Secrets.


@pytest.mark.parametrize(
    "text",
    [
        "[auth]\ntokens = 'hush-hush'\n",
        "[auth]\ntoken = 'hush-hush'\n",
        "[auth]\nworker_token = 'hush-hush'\n",
        "[auth]\nbearer_token = 'hush-hush'\n",
        "[server]\npassword = 'hush-hush'\n",
    ],
)
def test_a_secret_in_the_file_is_refused_and_not_repeated(here: Path, text: str):
    refusal = refused(here, text)
    assert refusal.code == "config.secret"
    assert "rota.toml:2" in refusal.hint
    assert "hush" not in str(refusal)


def test_a_token_is_in_no_text_that_a_config_has(here: Path):
    env = {
        "ROTA_COORDINATOR_BEARER_TOKENS": "writer@acme:hush-1,hush-2",
        "ROTA_COORDINATOR_BEARER_TOKEN": "hush-3",
        "ROTA_EXECUTOR_TASK_BEARER_TOKEN": "hush-4",
    }
    config = load_config(env=env)
    assert "hush" not in f"{config!r} {config} {config.auth} {list(config.values())}"
    assert config.auth.token is not None
    assert config.auth.token.reveal() == "hush-3"
    with pytest.raises(TypeError):
        config.auth.token.__reduce__()


def test_a_variable_that_is_set_and_empty_is_not_one_that_is_not_set(here: Path):
    assert load_config().auth.tokens is None
    empty = load_config(env={"ROTA_COORDINATOR_BEARER_TOKENS": ""}).auth.tokens
    assert isinstance(empty, Secret)
    assert not empty
    assert repr(empty) == "Secret(empty)"


# Definitions.


def test_definitions_become_the_commands_of_a_start(here: Path):
    text = """
[pools.db]
slots = 5
[pools.theirs]
tenant = "acme"
name = "db"
starts_per_minute = 60
burst = 10
[queues.gpu]
properties = { gpu_count = "minimum", arch = "exact" }
unservable = "fail"
[tenants.acme]
weight = 30
[tenants.other]
"""
    defined = load(here, text).definitions
    queue, mine, theirs, share, usual = commands_for(defined, "s1")
    assert isinstance(queue, PutQueue)
    assert queue.queue.properties == (("gpu_count", PropertyRule.MINIMUM), ("arch", PropertyRule.EXACT))
    assert isinstance(mine, PutPool)
    assert (mine.pool.name, mine.tenant, mine.pool.slots) == ("db", "default", 5)
    assert isinstance(theirs, PutPool)
    assert (theirs.pool.name, theirs.tenant, theirs.pool.burst) == ("db", "acme", 10)
    assert isinstance(share, PutTenant)
    assert isinstance(usual, PutTenant)
    assert (share.tenant, share.weight, usual.tenant, usual.weight) == ("acme", 30, "other", 1)
    assert {each.actor for each in (queue, mine, theirs, share, usual)} == {"rota.toml"}
    again = commands_for(defined, "s2")
    assert not {each.command_id for each in again} & {queue.command_id, mine.command_id, theirs.command_id}


def test_properties_of_a_worker_may_be_words_numbers_and_lists(here: Path):
    values = "[worker.properties]\nrack = 'a1'\ncores = 8\nisa = ['avx', 512]\n"
    worker = load(here, f"{values}[worker.property_commands]\nx = ['cat', 'y']\n").worker
    assert worker.properties == {"rack": "a1", "cores": "8", "isa": ("avx", "512")}
    assert worker.property_commands == {"x": ("cat", "y")}


# The ladder that follows from the heartbeat timeout.


@given(st.integers(1_000, LEASE_S_MAX * 1_000))
def test_every_allowed_heartbeat_timeout_gives_a_ladder_that_holds(lease_ms: int):
    limits = limits_for(lease_ms)
    check_ladder(limits)
    assert limits.lease_ms == lease_ms
    assert limits.beat_ms <= 5_000


def test_the_usual_heartbeat_timeout_gives_the_usual_ladder():
    assert limits_for(30_000) == TimeLimits()


def test_patience_with_a_start_and_with_a_run_are_chosen_apart_from_the_lease(here: Path):
    chosen = "[server]\nheartbeat_timeout_s = 90\ndispatch_timeout_s = 60\norphan_timeout_s = 600\n"
    limits = load(here, chosen).server.limits
    assert (limits.lease_ms, limits.dispatch_ms, limits.orphan_ms) == (90_000, 60_000, 600_000)
    assert load(here, "").server.limits == TimeLimits()


def test_patience_with_a_start_that_outlasts_the_lease_is_refused(here: Path):
    refusal = refused(here, "[server]\ndispatch_timeout_s = 30\n")
    assert (refusal.code, refusal.path) == ("config.value", "server.dispatch_timeout_s")
    assert "less than server.heartbeat_timeout_s" in refusal.reason
    assert "rota.toml:2" in refusal.hint
    refusal = refused(here, "", {"ROTA_SERVER_DISPATCH_TIMEOUT_S": "2", "ROTA_HEARTBEAT_TIMEOUT_SECS": "2"})
    assert "ROTA_SERVER_DISPATCH_TIMEOUT_S" in refusal.hint


def test_a_longer_lease_is_no_reason_to_be_longer_without_a_coordinator():
    short, long = limits_for(6_000), limits_for(300_000)
    assert (short.term_ms, short.settle_ms, short.dispatch_ms, short.stall_ms) == (1_000, 3_000, 2_000, 200)
    assert (long.term_ms, long.settle_ms, long.dispatch_ms, long.stall_ms) == (5_000, 150_000, 100_000, 1_000)


# Lines.


def test_the_line_of_a_key_is_found_however_it_is_written():
    text = '# x\nserver.data = "a"\n\n[worker] # y\n  name="b"\n[worker.properties]\n"a b" = 1\n'
    found = lines_of(f'{text}[pools."my db"]\nslots = 2\n')
    assert (found["server"], found["server.data"], found["worker"], found["worker.name"]) == (2, 2, 4, 5)
    assert (found["worker.properties"], found["worker.properties.a b"], found["pools.my db.slots"]) == (6, 7, 9)


# Stores that coordinators share.


def test_a_password_in_the_url_of_a_store_comes_from_its_variable_only(tmp_path: Path):
    url = "postgresql://rota:hunter2@db/rota"
    assert load_config(env={"ROTA_SERVER_STORE": url}).server.store == url
    file = tmp_path / "rota.toml"
    file.write_text(f"[server]\nstore = '{url}'\n")
    for read in (
        lambda: load_config(file=str(file)),
        lambda: load_config({"server.store": url}),
        lambda: load_config({"server.lock_url": url}),
    ):
        with pytest.raises(Refused, match=r"config\.secret") as caught:
            read()
        assert "hunter2" not in str(caught.value)


def test_a_store_without_a_password_may_stand_anywhere(tmp_path: Path):
    file = tmp_path / "rota.toml"
    file.write_text("[server]\nstore = 'postgresql://rota@db/rota'\nlock_id = -5\nadvertise = 'one.example.org'\n")
    server = load_config(file=str(file)).server
    assert (server.store, server.lock_id, server.advertise) == ("postgresql://rota@db/rota", -5, "one.example.org")


@pytest.mark.parametrize(
    "options",
    [
        {"server.store": "mysql://x"},
        {"server.lock_id": 1 << 63},
        {"server.advertise": "http://x"},
        {"server.advertise": "x:7433"},
        {"server.advertise": "[::1]"},
        {"server.advertise": "x/../y"},
        {"server.advertise": "0.0.0.0"},  # noqa: S104 - it is refused
        {"client.coordinator": "grpc://a:1,http://b"},
        {"client.coordinator": "grpc://a:1,"},
    ],
)
def test_what_cannot_be_meant_of_several_coordinators_is_refused(options: dict[str, object]):
    with pytest.raises(Refused, match=r"config\.value"):
        load_config(options)
