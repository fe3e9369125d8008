"""Every setting there is: its name, its variable, its default, its range and the reason why it exists.

The structs are the table. Reading, `rota doctor` and the test of docs/reference/settings.md are derived from it.
"""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, cast, get_args, get_origin, get_type_hints

from msgspec import Meta, Struct, field, structs

from rota.config.secret import Secret
from rota.config.spawners import SpawnerSettings
from rota.core.bounds import FAN_OUT_MAX, HISTORY_KEPT_MS, ID_CHARS_MAX, RETRIES_MAX, WORKER_SLOTS_MAX, TimeLimits
from rota.core.cluster import CLUSTER_PATTERN
from rota.core.ids import DEFAULT_TENANT
from rota.core.ladder import ClimbRule
from rota.core.model import Pool, Queue, Tenant

DAY_MS = 24 * 3_600_000
LEASE_S_MIN = 1
LEASE_S_MAX = 3_600
# "Rota", as bytes.
LOCK_ID = 0x526F7461

Words = tuple[str, ...]


def limits_for(lease_ms: int) -> TimeLimits:
    """The ladder of time limits for a lease of that length.

    What a worker or its stream is waited for grows and shrinks with the lease. A term only shrinks: patience with
    workers is no reason to be longer without a coordinator. Below a second the rungs would meet.
    """
    usual = TimeLimits()
    return TimeLimits(
        lease_ms=lease_ms,
        term_ms=min(usual.term_ms, lease_ms // 6),
        settle_ms=lease_ms // 2,
        dispatch_ms=lease_ms // 3,
        stall_ms=min(usual.stall_ms, lease_ms // 30),
    )


def _meta(what: str, env: str = "", **bounds: Any) -> Meta:
    return Meta(description=what, extra={"env": env}, **bounds)


def _file(what: str) -> Meta:
    # A name that is given is not empty; the default is, and means that none was given.
    return _meta(what, min_length=1)


class Section(Struct, frozen=True, kw_only=True):
    """One table of rota.toml."""


class Server(Section, frozen=True, kw_only=True):
    """`[server]`: a coordinator."""

    data: Annotated[str, _meta("the folder with everything a coordinator keeps", min_length=1)] = "./.rota"
    listen: Annotated[str, _meta("where workers and clients reach it (gRPC)", min_length=1)] = "127.0.0.1:7433"
    http: Annotated[str, _meta("where HTTP is served; empty: nowhere")] = "127.0.0.1:7434"
    advertise: Annotated[str, _meta("the host that others reach it by; empty: the one it listens on")] = ""
    store: Annotated[
        str, _meta("what several coordinators share: postgresql://… or etcd://…; empty: SQLite in `data`")
    ] = ""
    lock_url: Annotated[str, _meta("PostgreSQL without the pooler that `store` goes through")] = ""
    lock_id: Annotated[int, _meta("PostgreSQL's advisory lock of whoever leads", ge=-(1 << 63), le=(1 << 63) - 1)] = (
        LOCK_ID
    )
    blobs: Annotated[str, _meta("where logs and large values go: a folder or a URL; empty: in `data`")] = ""
    keep_days: Annotated[int, _meta("how long ended runs stay in history", ge=0, le=36_500)] = HISTORY_KEPT_MS // DAY_MS
    heartbeat_timeout_s: Annotated[
        int,
        _meta(
            "how long a silent worker keeps its work (its lease)",
            "ROTA_HEARTBEAT_TIMEOUT_SECS",
            ge=LEASE_S_MIN,
            le=LEASE_S_MAX,
        ),
    ] = 30
    dispatch_timeout_s: Annotated[
        int, _meta("how long a start may go without an answer; 0: a third of the lease", ge=0, le=LEASE_S_MAX)
    ] = 0
    orphan_timeout_s: Annotated[
        int, _meta("how long a run in which nothing moves is left before it fails", ge=1, le=DAY_MS // 1_000)
    ] = TimeLimits().orphan_ms // 1_000
    starve_s: Annotated[
        int, _meta("how long what nobody can do waits before anything is done about it", ge=1, le=DAY_MS // 1_000)
    ] = TimeLimits().starve_ms // 1_000
    sweep_s: Annotated[
        int, _meta("how often what waits is looked at as a whole; each time is a cycle of the ladder", ge=1, le=3_600)
    ] = TimeLimits().sweep_ms // 1_000
    fan_out_max: Annotated[
        int,
        _meta(
            "how many sessions a starved item wakes in a sweep; 0: every idle one that could claim it",
            ge=0,
            le=FAN_OUT_MAX,
        ),
    ] = 0
    climb_rule: Annotated[
        str,
        _meta(
            "which items climb the ladder: `unserved` (no session could or would claim them), or all that are `queued`",
            pattern="^(unserved|queued)$",
        ),
    ] = ClimbRule.UNSERVED.value
    max_task_retries: Annotated[
        int,
        _meta("retries of tasks whose kind leaves them to the service", "ROTA_MAX_TASK_RETRIES", ge=0, le=RETRIES_MAX),
    ] = 3

    @property
    def limits(self) -> TimeLimits:
        """The ladder of time limits that follows from the heartbeat timeout, with what was chosen besides."""
        usual = limits_for(self.heartbeat_timeout_s * 1_000)
        return structs.replace(
            usual,
            dispatch_ms=self.dispatch_timeout_s * 1_000 or usual.dispatch_ms,
            orphan_ms=self.orphan_timeout_s * 1_000,
            starve_ms=self.starve_s * 1_000,
            sweep_ms=self.sweep_s * 1_000,
        )

    @property
    def keep_ms(self) -> int:
        """How long ended runs stay in history."""
        return self.keep_days * DAY_MS


class Tls(Section, frozen=True, kw_only=True):
    """`[tls]`: what a coordinator shows, and whom it trusts. `rota.config.tls` reads and checks the files."""

    cert: Annotated[str, _file("the certificate a coordinator shows, with its chain (PEM)")] = ""
    key: Annotated[str, _file("its private key (PEM, not encrypted)")] = ""
    client_ca: Annotated[str, _file("whose certificates clients and workers must show: mutual TLS (PEM)")] = ""


class Etcd(Section, frozen=True, kw_only=True):
    """`[etcd]`: how the etcd of `server.store` is spoken to over TLS (`etcds://`)."""

    ca: Annotated[str, _file("who vouches for etcd's certificate (PEM); empty: whom the system trusts")] = ""
    cert: Annotated[str, _file("the certificate to show where etcd asks for one (PEM)")] = ""
    key: Annotated[str, _file("its private key (PEM, not encrypted)")] = ""


class Auth(Section, frozen=True, kw_only=True):
    """`[auth]`: who may call. Tokens come from the environment or from a file of their own, never from rota.toml."""

    token_file: Annotated[
        str,
        _meta(
            "a file of accepted tokens, read again when it changes", "ROTA_COORDINATOR_BEARER_TOKEN_FILE", min_length=1
        ),
    ] = ""
    reload_interval_s: Annotated[
        int,
        _meta(
            "how often that file is read even if it looks unchanged",
            "ROTA_COORDINATOR_AUTH_RELOAD_INTERVAL_SECS",
            ge=1,
            le=86_400,
        ),
    ] = 60
    tokens: Annotated[Secret | None, _meta("tokens that are accepted", "ROTA_COORDINATOR_BEARER_TOKENS")] = None
    token: Annotated[Secret | None, _meta("the token a client presents", "ROTA_COORDINATOR_BEARER_TOKEN")] = None
    worker_token_file: Annotated[
        str,
        _meta(
            "a file with the token a worker presents, read anew at each dial",
            "ROTA_EXECUTOR_TASK_BEARER_TOKEN_FILE",
            min_length=1,
        ),
    ] = ""
    worker_token: Annotated[Secret | None, _meta("the token a worker presents", "ROTA_EXECUTOR_TASK_BEARER_TOKEN")] = (
        None
    )

    @property
    def asks_for_tokens(self) -> bool:
        """Whether a coordinator lets nobody in without a token: any source of tokens is named, be it empty."""
        return bool(self.token_file) or any(each is not None for each in (self.tokens, self.token, self.worker_token))


class ClientSide(Section, frozen=True, kw_only=True):
    """`[client]`: how clients and workers reach a coordinator."""

    coordinator: Annotated[str, _meta("grpc://host:port, or grpcs:// for TLS", "ROTA_COORDINATOR", min_length=1)] = ""
    tenant: Annotated[str, _meta("for whom a client asks", min_length=1, max_length=ID_CHARS_MAX)] = DEFAULT_TENANT
    ca: Annotated[str, _file("who vouches for the coordinator's certificate (PEM); empty: whom the system trusts")] = ""
    cert: Annotated[str, _file("the certificate to show where mutual TLS is demanded (PEM)")] = ""
    key: Annotated[str, _file("its private key (PEM, not encrypted)")] = ""


class WorkerSide(Section, frozen=True, kw_only=True):
    """`[worker]`: one worker."""

    data: Annotated[str, _meta("the folder with a worker's identity and unsent logs", min_length=1)] = ".rota-worker"
    name: Annotated[str, _meta("its name; empty: made up once", min_length=1, max_length=ID_CHARS_MAX)] = ""
    cluster: Annotated[
        str,
        _meta(
            "the id of the cluster it belongs to; empty: that of the first coordinator it meets",
            pattern=CLUSTER_PATTERN,
        ),
    ] = ""
    slots: Annotated[int, _meta("attempts at once; 0: one for each processor", ge=0, le=WORKER_SLOTS_MAX)] = 0
    tenants: Annotated[Words, _meta("whose work it takes; empty: everybody's")] = ()
    queues: Annotated[Words, _meta("from which queues; empty: all")] = ()
    properties: Annotated[dict[str, str | Words], _meta("what it has, as tasks ask for it")] = field(
        default_factory=dict[str, str | Words]
    )
    property_commands: Annotated[dict[str, Words], _meta("commands that say what it has, run once at start")] = field(
        default_factory=dict[str, Words]
    )
    drain_s: Annotated[int, _meta("how long it finishes work when asked to stop", ge=0, le=86_400)] = 60
    run_as: Annotated[str, _meta("the user that work runs as; empty: the worker's own", min_length=1)] = ""
    memory_mb: Annotated[int, _meta("address space of each process of a task; 0: no limit", ge=0, le=1 << 40)] = 0
    threads: Annotated[bool, _meta("run Python tasks in threads, which cannot be killed")] = False
    egress_allow: Annotated[Words, _meta("private networks that `http` tasks may reach")] = ()
    build_sandbox: Annotated[
        str,
        _meta(
            "`bubblewrap`: actions see the host's programs and their own folder, and have no network; `auto`: the "
            "same, and no builds where that does not work; `none`: actions have all that the worker has",
            pattern="^(none|bubblewrap|auto)$",
        ),
    ] = "auto"
    build_paths: Annotated[Words, _meta("what actions in a sandbox see of the host besides `/usr`, read-only")] = ()
    build_cache_mb: Annotated[int, _meta("content of builds kept for the next action", ge=0, le=1 << 40)] = 10_240
    build_content: Annotated[Words, _meta("front ends (grpc://host:port) that are given its token")] = ()
    exchange_folder: Annotated[
        str, _meta("a folder that all workers share, for what tasks of queries pass on; empty: each its own")
    ] = ""
    exchange_listen: Annotated[
        str, _meta("where other workers fetch what its tasks of queries pass on (HTTP)", min_length=1)
    ] = "127.0.0.1:0"
    exchange_mb: Annotated[
        int, _meta("how much tasks of queries may have on its disk to pass on; 0: no limit", ge=0, le=1 << 40)
    ] = 51_200
    query_stores: Annotated[
        Words, _meta("buckets (s3://name) that queries may use with its keys; empty: all but that of the blobs")
    ] = ()


class Builds(Section, frozen=True, kw_only=True):
    """`[builds]`: a front end for builds, which speaks the Remote Execution API."""

    listen: Annotated[str, _meta("where clients and workers reach it, with gRPC; empty: `rota up` starts none")] = ""
    http: Annotated[str, _meta("where its metrics are served; empty: nowhere")] = ""
    advertise: Annotated[str, _meta("the host that workers reach it by; empty: the one it listens on")] = ""
    data: Annotated[str, _meta("its folder, with the content of builds; empty: `builds` in `server.data`")] = ""
    blobs: Annotated[str, _meta("where that content goes: a folder or a URL; empty: in `data`")] = ""
    content_gb: Annotated[int, _meta("how much content is kept", ge=1, le=1 << 30)] = 50
    results_mb: Annotated[int, _meta("how many results of actions are kept", ge=1, le=1 << 30)] = 1_024
    queue: Annotated[str, _meta("the queue in which actions wait", min_length=1, max_length=ID_CHARS_MAX)] = "builds"
    sandbox: Annotated[
        str,
        _meta(
            "`bubblewrap`: actions run on workers that have it; `none`: on any; results of the two are kept apart; "
            "empty: as `worker.build_sandbox` says",
            pattern="^(none|bubblewrap|)$",
        ),
    ] = ""
    instances: Annotated[
        dict[str, str], _meta("instances by name, each with its queue; if there are any, no others are served")
    ] = field(default_factory=dict[str, str])


class Queries(Section, frozen=True, kw_only=True):
    """`[queries]`: tables, and a front end for queries, which speaks Flight SQL."""

    listen: Annotated[str, _meta("where drivers reach it, with gRPC; empty: 127.0.0.1:8982")] = ""
    tables: Annotated[
        dict[str, str], _meta("tables by name, each a file or folder of Parquet, CSV or JSON lines, or its URL")
    ] = field(default_factory=dict[str, str])
    folders: Annotated[Words, _meta("what analysts may read beside the tables: folders, files, URLs of buckets")] = ()


class Streams(Section, frozen=True, kw_only=True):
    """`[streams]`: where a coordinator finds the streams that it shows."""

    folders: Annotated[
        Words, _meta("folders in which streams have theirs, or TENANT=FOLDER; empty: `streams` in `server.data`")
    ] = ()


class Backend(Struct, frozen=True):
    """A store that a scheduler names, and where in the file."""

    scheduler: str
    store: str
    path: str
    where: str


class Definitions(Struct, frozen=True):
    """What is defined in the file and put into the coordinator at its start."""

    queues: tuple[Queue, ...] = ()
    pools: tuple[Pool, ...] = ()
    tenants: tuple[Tenant, ...] = ()
    # Named by schedulers; `rota.config.schedulers` compares them with the coordinator's own.
    backends: tuple[Backend, ...] = ()


class Config(Struct, frozen=True, kw_only=True):
    """All settings, and where each came from: `sources` has the path of every setting."""

    server: Server = Server()
    tls: Tls = Tls()
    etcd: Etcd = Etcd()
    auth: Auth = Auth()
    client: ClientSide = ClientSide()
    worker: WorkerSide = WorkerSide()
    builds: Builds = Builds()
    queries: Queries = Queries()
    streams: Streams = Streams()
    definitions: Definitions = Definitions()
    spawners: tuple[SpawnerSettings, ...] = ()
    sources: Mapping[str, str] = field(default_factory=dict[str, str])
    # The file that was read; empty if there was none.
    file: str = ""

    def values(self) -> Iterator[tuple["Setting", object, str]]:
        """Every setting with its value and where that came from."""
        for setting in SETTINGS:
            value = getattr(getattr(self, setting.section), setting.name)
            yield setting, value, self.sources.get(setting.path, "default")


class Setting(Struct, frozen=True):
    """One row of the table of settings."""

    section: str
    name: str
    env: str
    kind: Any
    default: object
    what: str

    @property
    def path(self) -> str:
        """Its name in rota.toml, with the table in front."""
        return f"{self.section}.{self.name}"

    @property
    def is_secret(self) -> bool:
        """Whether it is a token, which no file of settings holds and nobody is shown."""
        return Secret in get_args(self.plain_kind)

    @property
    def plain_kind(self) -> Any:
        """Its type without its bounds."""
        return get_args(self.kind)[0]

    @property
    def is_list(self) -> bool:
        """Whether a variable gives it as words with commas between them."""
        return self.plain_kind == Words

    @property
    def is_table(self) -> bool:
        """Whether it is a table of its own, which no variable could give."""
        return get_origin(self.plain_kind) is dict


SECTIONS: dict[str, type[Section]] = {
    "server": Server,
    "tls": Tls,
    "etcd": Etcd,
    "auth": Auth,
    "client": ClientSide,
    "worker": WorkerSide,
    "builds": Builds,
    "queries": Queries,
    "streams": Streams,
}


def _settings() -> Iterator[Setting]:
    for section, kind in SECTIONS.items():
        usual = kind()
        hints = get_type_hints(kind, include_extras=True)
        for name in kind.__struct_fields__:
            meta = next(part for part in get_args(hints[name]) if isinstance(part, Meta))
            env = cast(dict[str, str], meta.extra or {})["env"] or f"ROTA_{section}_{name}".upper()
            setting = Setting(section, name, env, hints[name], getattr(usual, name), meta.description or "")
            yield structs.replace(setting, env="") if setting.is_table else setting


SETTINGS: tuple[Setting, ...] = tuple(_settings())
