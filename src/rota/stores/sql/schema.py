"""The tables of a data folder, as they were in version 1 and as later versions add to them, and the views for people.

The text is written out rather than made from the records: what is on disk changes only by a migration, and a record
that gains a field without one fails the store contract. Comments inside the statements are kept by SQLite and shown
by `.schema`.
"""

from collections.abc import Sequence

from rota.stores.sql.views import Dialect, views


def adding(columns: Sequence[str], *tables: str) -> tuple[str, ...]:
    """The statements that add columns to tables, in the same order to each: rows move between them as they are."""
    return tuple(f"ALTER TABLE {table} ADD COLUMN {column}" for table in tables for column in columns)


_RUN_COLUMNS = """
    tenant TEXT NOT NULL,
    id TEXT NOT NULL,
    graph TEXT NOT NULL, -- the digest of its definition
    name TEXT NOT NULL,
    kind TEXT NOT NULL,
    state TEXT NOT NULL,
    priority TEXT NOT NULL,
    created_at INTEGER NOT NULL, -- all instants are milliseconds since 1970, UTC; 0 means not yet
    started_at INTEGER NOT NULL,
    ended_at INTEGER NOT NULL,
    deadline_at INTEGER NOT NULL,
    params BLOB NOT NULL,
    schedule TEXT NOT NULL,
    slot_at INTEGER NOT NULL,
    parent TEXT NOT NULL,
    command_id TEXT NOT NULL,
    paused INTEGER NOT NULL,
    stopping TEXT,
    pending TEXT NOT NULL, -- JSON: the cursor of a long cascade
    grown INTEGER NOT NULL,
    reason TEXT NOT NULL,
    fault TEXT NOT NULL,
    story INTEGER NOT NULL,
    -- The one task of a one-task run, all NULL in others.
    solo_state TEXT,
    solo_attempt INTEGER,
    solo_budget_from INTEGER,
    solo_interruptions INTEGER,
    solo_losses INTEGER,
    solo_fence INTEGER,
    solo_done_fence INTEGER,
    solo_worker_tenant TEXT,
    solo_worker TEXT,
    solo_incarnation TEXT,
    solo_lease_ms INTEGER,
    solo_eligible_at INTEGER,
    solo_assigned_at INTEGER,
    solo_started_at INTEGER,
    solo_ended_at INTEGER,
    solo_due_at INTEGER,
    solo_failure TEXT,
    solo_error TEXT,
    solo_result BLOB,
    solo_avoid_tenant TEXT,
    solo_avoid TEXT,
    solo_requires TEXT,
    solo_cycles INTEGER,
    solo_tier INTEGER,
    -- The first stories of a one-task run; others, and later ones, have rows in `story`.
    told BLOB NOT NULL"""

_TASK_COLUMNS = """
    run_no INTEGER NOT NULL,
    idx INTEGER NOT NULL,
    state TEXT NOT NULL,
    attempt INTEGER NOT NULL,
    budget_from INTEGER NOT NULL,
    interruptions INTEGER NOT NULL,
    losses INTEGER NOT NULL,
    fence INTEGER NOT NULL, -- epoch << 40 | lease number
    done_fence INTEGER NOT NULL,
    worker_tenant TEXT NOT NULL,
    worker TEXT NOT NULL,
    incarnation TEXT NOT NULL,
    lease_ms INTEGER NOT NULL,
    eligible_at INTEGER NOT NULL,
    assigned_at INTEGER NOT NULL,
    started_at INTEGER NOT NULL,
    ended_at INTEGER NOT NULL,
    due_at INTEGER NOT NULL,
    failure TEXT,
    error TEXT NOT NULL,
    result BLOB,
    avoid_tenant TEXT NOT NULL,
    avoid TEXT NOT NULL,
    requires TEXT, -- JSON
    cycles INTEGER NOT NULL,
    tier INTEGER NOT NULL,
    PRIMARY KEY (run_no, idx)"""

_GROWTH_COLUMNS = """
    run_no INTEGER NOT NULL,
    number INTEGER NOT NULL,
    specs TEXT NOT NULL, -- JSON
    expands TEXT NOT NULL,
    width INTEGER NOT NULL,
    PRIMARY KEY (run_no, number)"""

_GRAPH_COLUMNS = """
    tenant TEXT NOT NULL,
    digest TEXT NOT NULL,
    graph TEXT NOT NULL, -- JSON
    put_at INTEGER NOT NULL,
    PRIMARY KEY (tenant, digest)"""

TABLES = (
    "CREATE TABLE meta (name TEXT PRIMARY KEY, value INTEGER NOT NULL) STRICT, WITHOUT ROWID",
    # A run's number outlives it, so it is never given twice: tasks and stories hang on it wherever the run is.
    f"""CREATE TABLE run (
    run_no INTEGER PRIMARY KEY AUTOINCREMENT,{_RUN_COLUMNS},
    UNIQUE (tenant, id)
) STRICT""",
    f"CREATE TABLE task ({_TASK_COLUMNS}\n) STRICT, WITHOUT ROWID",
    f"CREATE TABLE growth ({_GROWTH_COLUMNS}\n) STRICT, WITHOUT ROWID",
    f"CREATE TABLE graph ({_GRAPH_COLUMNS}\n) STRICT",
    """CREATE TABLE worker (
    tenant TEXT NOT NULL,
    id TEXT NOT NULL,
    incarnation TEXT NOT NULL,
    capacity TEXT NOT NULL, -- JSON
    registered_at INTEGER NOT NULL,
    draining INTEGER NOT NULL,
    quarantined_until INTEGER NOT NULL,
    gone_at INTEGER NOT NULL,
    PRIMARY KEY (tenant, id)
) STRICT""",
    """CREATE TABLE queue (
    tenant TEXT NOT NULL,
    name TEXT NOT NULL,
    properties TEXT NOT NULL, -- JSON
    allocation TEXT NOT NULL,
    worker_timeout_ms INTEGER NOT NULL,
    unservable TEXT NOT NULL,
    pull INTEGER NOT NULL,
    PRIMARY KEY (tenant, name)
) STRICT""",
    """CREATE TABLE pool (
    tenant TEXT NOT NULL,
    name TEXT NOT NULL,
    slots INTEGER NOT NULL,
    slots_per_key INTEGER NOT NULL,
    starts_per_minute INTEGER NOT NULL,
    burst INTEGER NOT NULL,
    PRIMARY KEY (tenant, name)
) STRICT""",
    """CREATE TABLE schedule (
    tenant TEXT NOT NULL,
    id TEXT NOT NULL,
    graph TEXT NOT NULL,
    spec TEXT NOT NULL, -- JSON
    priority TEXT NOT NULL,
    cursor INTEGER,
    fired INTEGER NOT NULL,
    missed INTEGER NOT NULL,
    paused INTEGER NOT NULL,
    PRIMARY KEY (tenant, id)
) STRICT""",
    """CREATE TABLE receipt (
    tenant TEXT NOT NULL,
    command_id TEXT NOT NULL,
    digest INTEGER NOT NULL,
    answer TEXT NOT NULL,
    at INTEGER NOT NULL,
    PRIMARY KEY (tenant, command_id)
) STRICT, WITHOUT ROWID""",
    """CREATE TABLE story (
    run_no INTEGER NOT NULL,
    number INTEGER NOT NULL,
    at INTEGER NOT NULL,
    changes BLOB NOT NULL, -- MessagePack: what one commit changed about the run
    PRIMARY KEY (run_no, number)
) STRICT, WITHOUT ROWID""",
    # `moved` is 0 while tasks or growths of the run are still among the living; the archiver moves them in slices.
    f"CREATE TABLE history_run (\n    run_no INTEGER PRIMARY KEY,{_RUN_COLUMNS},\n    moved INTEGER NOT NULL\n) STRICT",
    "CREATE INDEX history_run_by_id ON history_run (tenant, id)",
    "CREATE INDEX history_run_by_end ON history_run (tenant, ended_at)",
    "CREATE INDEX history_run_by_name ON history_run (tenant, name, ended_at)",
    "CREATE INDEX history_run_unmoved ON history_run (run_no) WHERE moved = 0",
    f"CREATE TABLE history_task ({_TASK_COLUMNS}\n) STRICT, WITHOUT ROWID",
    f"CREATE TABLE history_growth ({_GROWTH_COLUMNS}\n) STRICT, WITHOUT ROWID",
    # Definitions that no live run needs and a run in history does: they give its tasks their names.
    f"CREATE TABLE history_graph ({_GRAPH_COLUMNS}\n) STRICT",
    "INSERT INTO meta (name, value) VALUES ('epoch', 0), ('migrated', 1)",
)


# Version 2.
TENANTS_AND_AUDITS = (
    """CREATE TABLE tenant (
    tenant TEXT NOT NULL PRIMARY KEY,
    weight INTEGER NOT NULL -- its share under load
) WITHOUT ROWID""",
    """CREATE TABLE audit (
    no INTEGER PRIMARY KEY AUTOINCREMENT,
    tenant TEXT NOT NULL,
    at INTEGER NOT NULL,
    actor TEXT NOT NULL, -- who asked
    command TEXT NOT NULL,
    about TEXT NOT NULL, -- JSON, cut if it is long
    command_id TEXT NOT NULL
)""",
    "CREATE INDEX audit_by_tenant ON audit (tenant, no)",
    "CREATE INDEX audit_by_time ON audit (at)",
)

_OF_RUNS = (
    "version INTEGER NOT NULL DEFAULT 0",
    "backfill INTEGER NOT NULL DEFAULT 0",
    # Of runs with several tasks these mean nothing, as all of `solo_…`; rows of before have the defaults there too.
    "solo_first_started_at INTEGER DEFAULT 0",
    "solo_skips TEXT DEFAULT '[]'",
    "solo_note TEXT DEFAULT ''",
)
_OF_TASKS = (
    "first_started_at INTEGER NOT NULL DEFAULT 0",
    "skips TEXT NOT NULL DEFAULT '[]'",
    "note TEXT NOT NULL DEFAULT ''",
)
_OF_SCHEDULES = (
    "params BLOB NOT NULL DEFAULT x''",
    "version INTEGER NOT NULL DEFAULT 0",
    "backfill INTEGER NOT NULL DEFAULT 0",
)

# Version 3. A column with a default costs nothing per row, however many there are.
WORKFLOWS = (
    """CREATE TABLE workflow (
    tenant TEXT NOT NULL,
    name TEXT NOT NULL,
    version INTEGER NOT NULL, -- the one that new runs are of
    graph TEXT NOT NULL,
    versions TEXT NOT NULL, -- JSON: the newest last
    paused INTEGER NOT NULL,
    source TEXT NOT NULL,
    doc TEXT NOT NULL,
    latest INTEGER NOT NULL, -- the highest number that a version had
    is_dropped INTEGER NOT NULL,
    spec TEXT, -- JSON: the calendar that was taken away,
    cursor INTEGER, -- and how far it had been decided
    PRIMARY KEY (tenant, name)
) STRICT""",
    *adding(_OF_RUNS, "run", "history_run"),
    *adding(_OF_TASKS, "task", "history_task"),
    *adding(_OF_SCHEDULES, "schedule"),
    # 1 once housekeeping has begun to remove a run: from then on nobody finds it, and nothing brings back half of it.
    *adding(("going INTEGER NOT NULL DEFAULT 0",), "history_run"),
)

_KEYS_OF_RUNS = (
    "merge TEXT NOT NULL DEFAULT ''",
    "labels TEXT NOT NULL DEFAULT '[]'",
    "share TEXT NOT NULL DEFAULT ''",
)

_OF_QUEUES = (
    "retain_completed_for_ms INTEGER NOT NULL DEFAULT 0",
    "client_action_timeout_ms INTEGER NOT NULL DEFAULT 60000",
    "max_action_executing_timeout_ms INTEGER NOT NULL DEFAULT 0",
    "max_job_retries INTEGER NOT NULL DEFAULT 3",
    "worker_match_logging_interval_ms INTEGER NOT NULL DEFAULT 60000",
    "unservable_ms INTEGER NOT NULL DEFAULT 60000",
)

# Version 4.
BUILDS = (*adding(_KEYS_OF_RUNS, "run", "history_run"), *adding(_OF_QUEUES, "queue"))

# Version 5.
AGENTS = (
    """CREATE TABLE pause (
    tenant TEXT NOT NULL,
    scope TEXT NOT NULL, -- empty for everything, or one requirement: workspace=docs
    paused INTEGER NOT NULL, -- 0 once it was lifted
    at INTEGER NOT NULL,
    actor TEXT NOT NULL,
    reason TEXT NOT NULL,
    PRIMARY KEY (tenant, scope)
) STRICT""",
    *adding(
        (
            "after TEXT NOT NULL DEFAULT '[]'",
            "approval TEXT NOT NULL DEFAULT 'none'",
            "solo_token_hash TEXT DEFAULT ''",
        ),
        "run",
        "history_run",
    ),
    *adding(("token_hash TEXT NOT NULL DEFAULT ''",), "task", "history_task"),
    *adding(("owner TEXT NOT NULL DEFAULT ''",), "worker"),
)

# Version 6.
FEEDS = adding(("feeds TEXT NOT NULL DEFAULT ''",), "growth", "history_growth")

# Version 7.
IDLE_TIME = adding(("idle_ms INTEGER NOT NULL DEFAULT 0",), "run", "history_run")

# Version 8. One row: what tells this store from every other one, also in a copy.
IDENTITY = (
    "CREATE TABLE identity (only INTEGER PRIMARY KEY CHECK (only = 1), value TEXT NOT NULL) STRICT, WITHOUT ROWID",
)

# Version 9.
REVOKED_LEASES = (
    *adding(("solo_revoked TEXT DEFAULT '[]'",), "run", "history_run"),
    *adding(("revoked TEXT NOT NULL DEFAULT '[]'",), "task", "history_task"),
    *adding(("quarantine_cause TEXT NOT NULL DEFAULT ''",), "worker"),
)

# Dropped and made again with every version.
VIEWS = views(
    Dialect(
        time=lambda column: (
            f"CASE WHEN {column} > 0 THEN strftime('%Y-%m-%dT%H:%M:%fZ', {column} / 1000.0, 'unixepoch') END"
        ),
        day=lambda instant: f"date({instant} / 1000, 'unixepoch')",
        true="1",
        false="0",
        first="0",
        nodes="""json_extract(node.value, '$.id') AS task_id, json_extract(node.value, '$.width') AS width,
            json_extract(node.value, '$.expansion') IS NOT NULL AS is_mapped,
            sum(json_extract(node.value, '$.width')) OVER (ORDER BY node.key) - json_extract(node.value, '$.width')
                AS before""",
        graph_nodes="json_each(g.graph, '$.tasks') node",
    )
)
