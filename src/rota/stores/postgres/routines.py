"""The routines that Rota keeps in its schema: a commit is one statement, and one way there and back.

Rows are found by keys and never by looking through a table, whatever the planner believes about tables that were
empty when it first looked; so its other ways are closed to it. Each routine compares the epoch before anything else,
under a lock on the row that an election has to change.
"""

import hashlib

from rota.core.records import RECORD_NAMES, GraphRecord
from rota.stores.postgres.rows import GROWTH, OWN, SOLO, TASK, Taken, taken
from rota.stores.postgres.schema import VIEWS
from rota.stores.postgres.trouble import FENCED
from rota.stores.sql.columns import ALONE, AUDIT, RUN
from rota.stores.sql.columns import GROWTH as GROWTH_TABLE
from rota.stores.sql.columns import TASK as TASK_TABLE

_TOLD = ("told text", "coalesce(decode(t.told, 'base64'), ''::bytea)")
_PLANNED = "SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off"
_STORY = ("tenant text", "run text", "created_at bigint", "number bigint", "at bigint", "changes text")
_AUDIT = ("tenant text", "at bigint", "actor text", "command text", "about text", "command_id text")
_ALONE = {cls: name for cls, (name, _, _) in ALONE.items()}
# The parameters of `write` after the epoch, all JSON and all optional, in the order of `rows.documents`.
PARAMETERS = (
    *("runs", "tasks", "growths"),
    *[f"{name}s" for name in _ALONE.values()],
    *("stories", "audits", "archives", "drops", "revives"),
)


def routines(schema: str) -> list[str]:
    """The statements that make the routines and the views anew. They go with the program, not with the data."""
    made = [f"DROP FUNCTION IF EXISTS {name}" for name in ("reigns", "write", "tidy")]
    made += [f"DROP VIEW IF EXISTS {name}" for name in reversed(VIEWS)]
    made += [f"CREATE VIEW {name} AS\n{text}" for name, text in VIEWS.items()]
    return [*made, _reigns(schema), _write(schema), _tidy(schema)]


def digest_of(statements: list[str]) -> str:
    """What tells one program's routines from another's."""
    return hashlib.sha256("\n".join(statements).encode()).hexdigest()[:32]


def write_statement(schema: str) -> str:
    """The statement that commits a batch."""
    marks = ", ".join(f"${number}" for number in range(2, len(PARAMETERS) + 2))
    return f"SELECT {schema}.write($1, {marks})"


def _reigns(s: str) -> str:
    return f"""CREATE FUNCTION {s}.reigns(given bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    found bigint;
BEGIN
    -- What is acknowledged is on the disk, whatever the server is set to; what waits for more than that still does.
    IF current_setting('synchronous_commit') IN ('off', 'local', 'remote_write') THEN
        PERFORM set_config('synchronous_commit', 'on', true);
    END IF;
    SELECT epoch INTO found FROM {s}.reign FOR SHARE;
    IF given <= 0 OR found IS DISTINCT FROM given THEN
        RAISE EXCEPTION 'epoch % has passed; % reigns', given, found USING ERRCODE = '{FENCED}';
    END IF;
END $$"""


def _rows(document: str, declared: str) -> str:
    return f"json_to_recordset({document}) AS t ({declared})"


def _sets(columns: tuple[str, ...], key: tuple[str, ...]) -> str:
    sets = ", ".join(f"{name} = excluded.{name}" for name in columns if name not in key)
    return f"ON CONFLICT ({', '.join(key)}) DO UPDATE SET {sets}"


def _put_runs(s: str) -> str:
    names = (*RUN.columns, "told")
    declared = ", ".join([*[one.declared for one in (*OWN, *SOLO)], _TOLD[0]])
    values = [one.value for one in OWN]
    values += [f"CASE WHEN t.solo_state IS NOT NULL THEN {one.value} END" for one in SOLO]
    tail = _sets(RUN.columns, ("tenant", "id"))
    return f"""INSERT INTO {s}.run ({", ".join(names)})
    SELECT {", ".join([*values, _TOLD[1]])} FROM {_rows("runs", declared)}
    {tail}, told = run.told || excluded.told"""


def _put_tasks(s: str) -> str:
    names = ("run_no", *[one.column.name for one in TASK])
    return f"""WITH parts AS MATERIALIZED (
        SELECT (SELECT r.run_no FROM {s}.run r WHERE r.tenant = t.tenant AND r.id = t.run) AS run_no, t.rows
        FROM {_rows("tasks", "tenant text, run text, rows json")}
    )
    INSERT INTO {s}.task ({", ".join(names)})
    SELECT parts.run_no, {_values(TASK)} FROM parts, {_rows("parts.rows", _declared(TASK))}
    {_sets(names, ("run_no", "idx"))}"""


def _values(columns: tuple[Taken, ...]) -> str:
    return ", ".join(one.value for one in columns)


def _declared(columns: tuple[Taken, ...]) -> str:
    return ", ".join(one.declared for one in columns)


def _put_growths(s: str) -> str:
    names = ("run_no", *[one.column.name for one in GROWTH[2:]])
    return f"""INSERT INTO {s}.growth ({", ".join(names)})
    SELECT (SELECT r.run_no FROM {s}.run r WHERE r.tenant = t.tenant AND r.id = t.run), {_values(GROWTH[2:])}
    FROM {_rows("growths", _declared(GROWTH))}
    {_sets(names, ("run_no", "number"))}"""


def _put_alone(s: str, cls: type) -> str:
    name, table, key = ALONE[cls]
    columns = taken(cls)
    return f"""INSERT INTO {s}.{name} ({table.listed})
    SELECT {_values(columns)} FROM {_rows(f"{name}s", _declared(columns))}
    {_sets(table.columns, key)}"""


def _tell(s: str) -> str:
    return f"""INSERT INTO {s}.story (run_no, number, at, changes)
    SELECT (SELECT r.run_no FROM {s}.run r
            WHERE r.tenant = t.tenant AND r.id = t.run AND r.created_at = t.created_at),
        t.number, t.at, decode(t.changes, 'base64')
    FROM {_rows("stories", ", ".join(_STORY))}"""


def _audit(s: str) -> str:
    return f"""INSERT INTO {s}.audit ({AUDIT.listed})
    SELECT {", ".join(f"t.{name}" for name in AUDIT.columns)} FROM {_rows("audits", ", ".join(_AUDIT))}"""


def _archive(s: str) -> str:
    return f"""INSERT INTO {s}.history_run (run_no, {RUN.listed}, told, moved)
        SELECT r.run_no, {", ".join(f"r.{name}" for name in RUN.columns)}, r.told,
            NOT EXISTS (SELECT 1 FROM {s}.task WHERE task.run_no = r.run_no)
            AND NOT EXISTS (SELECT 1 FROM {s}.growth WHERE growth.run_no = r.run_no)
        FROM json_array_elements(archives) AS e (key), {s}.run r WHERE r.tenant = e.key->>0 AND r.id = e.key->>1;
        DELETE FROM {s}.run r USING json_array_elements(archives) AS e (key)
        WHERE r.tenant = e.key->>0 AND r.id = e.key->>1"""


def _revive(s: str) -> str:
    """Take runs out of history, under the numbers they always had.

    Not what housekeeping has begun to remove, and not in the way of a later run of that id. What the archiver has not
    moved yet is among the living still.
    """

    def back(table: str, columns: tuple[str, ...], *more: str) -> str:
        names = ", ".join((*columns, *more))
        return f"""INSERT INTO {s}.{table} ({names})
            SELECT {names} FROM {s}.history_{table} WHERE run_no = revived.run_no;
            DELETE FROM {s}.history_{table} WHERE run_no = revived.run_no"""

    parts = [back("task", TASK_TABLE.columns), back("growth", GROWTH_TABLE.columns)]
    moves = ";\n            ".join([back("run", ("run_no", *RUN.columns), "told"), *parts])
    return f"""FOR key IN SELECT e.value FROM json_array_elements(revives) AS e (value) LOOP
            -- One after the other: two of one id are not revived both.
            SELECT h.run_no, h.tenant, h.name, h.graph INTO revived FROM {s}.history_run h
            WHERE h.tenant = key->>0 AND h.id = key->>1 AND h.created_at = (key->>2)::bigint AND NOT h.going
                AND NOT EXISTS (SELECT 1 FROM {s}.run r WHERE r.tenant = h.tenant AND r.id = h.id);
            CONTINUE WHEN NOT FOUND;
            {moves};
            owners := array_append(owners, revived.tenant);
            names := array_append(names, revived.name);
            digests := array_append(digests, revived.graph);
        END LOOP"""


def _take_graphs(s: str) -> str:
    """A definition that was kept for runs which live again, and which they have brought back."""
    return f"""DELETE FROM {s}.history_graph k
        USING unnest(owners, names, digests) AS e (tenant, name, digest), {s}.graph g
        WHERE k.tenant = e.tenant AND k.digest = e.digest AND g.tenant = e.tenant AND g.digest = e.digest
            AND NOT EXISTS (SELECT 1 FROM {s}.history_run h
                WHERE h.tenant = e.tenant AND h.name = e.name AND h.graph = e.digest)"""


def _drop_part(s: str, table: str, number: str) -> str:
    return f"""DELETE FROM {s}.{table} p USING json_array_elements(dropped) AS e (key), {s}.run r
            WHERE r.tenant = e.key->>0 AND r.id = e.key->>1 AND p.run_no = r.run_no
                AND p.{number} = (e.key->>2)::bigint"""


def _drop_runs(s: str) -> str:
    parts = [
        f"""DELETE FROM {s}.{table} p USING json_array_elements(dropped) AS e (key), {s}.run r
            WHERE r.tenant = e.key->>0 AND r.id = e.key->>1 AND p.run_no = r.run_no"""
        for table in ("task", "growth", "story")
    ]
    run = f"""DELETE FROM {s}.run r USING json_array_elements(dropped) AS e (key)
            WHERE r.tenant = e.key->>0 AND r.id = e.key->>1"""
    return ";\n            ".join([*parts, run])


def _drop_alone(s: str, cls: type) -> str:
    name, _, key = ALONE[cls]
    where = " AND ".join(f"p.{column} = e.key->>{at}" for at, column in enumerate(key))
    return f"DELETE FROM {s}.{name} p USING json_array_elements(dropped) AS e (key) WHERE {where}"


def _keep_graphs(s: str) -> str:
    """A definition that a run in history was made of stays with the history."""
    names = ALONE[GraphRecord][1].columns
    return f"""INSERT INTO {s}.history_graph ({", ".join(names)})
            SELECT {", ".join(f"g.{name}" for name in names)}
            FROM json_array_elements(dropped) AS e (key), {s}.graph g
            WHERE g.tenant = e.key->>0 AND g.digest = e.key->>1 AND EXISTS (
                SELECT 1 FROM {s}.history_run h
                WHERE h.tenant = g.tenant AND h.name = g.graph->>'name' AND h.graph = g.digest)
            {_sets(names, ("tenant", "digest"))}"""


def _if_dropped(name: str, *statements: str) -> str:
    body = ";\n            ".join(statements)
    return f"""dropped := drops->'{name}';
        IF dropped IS NOT NULL THEN
            {body};
        END IF;"""


def _write(s: str) -> str:
    """What leaves history, then puts, drops, stories, archives: what is archived is as it was put, and told.

    Definitions are dropped last: a run that goes to history with this very commit needs its own there.
    """
    puts = {"runs": _put_runs(s), "tasks": _put_tasks(s), "growths": _put_growths(s)}
    puts |= {f"{name}s": _put_alone(s, cls) for cls, name in _ALONE.items()}
    parts = [
        _if_dropped("Task", _drop_part(s, "task", "idx")),
        _if_dropped("Growth", _drop_part(s, "growth", "number")),
    ]
    parts += [_if_dropped(RECORD_NAMES[cls], _drop_alone(s, cls)) for cls in ALONE if cls is not GraphRecord]
    parts.append(_if_dropped("Run", _drop_runs(s)))
    graphs = _if_dropped("GraphRecord", _keep_graphs(s), _drop_alone(s, GraphRecord))

    def if_given(name: str, body: str) -> str:
        return f"IF {name} IS NOT NULL THEN\n    {body};\n    END IF;"

    told = {"stories": _tell(s), "audits": _audit(s), "archives": _archive(s)}
    body = "\n    ".join(
        [
            if_given("revives", _revive(s)),
            *[if_given(name, text) for name, text in puts.items()],
            if_given("drops", "\n        ".join(parts).removesuffix(";")),
            *[if_given(name, text) for name, text in told.items()],
            if_given("revives", _take_graphs(s)),
            if_given("drops", graphs.removesuffix(";")),
        ]
    )
    parameters = ", ".join(f"{name} json" for name in PARAMETERS)
    return f"""CREATE FUNCTION {s}.write(given bigint, {parameters}) RETURNS void LANGUAGE plpgsql {_PLANNED} AS $$
#variable_conflict use_column
DECLARE
    dropped json;
    key json;
    revived record;
    owners text[];
    names text[];
    digests text[];
BEGIN
    PERFORM {s}.reigns(given);
    {body}
END $$"""


# A part's tables, live and ended, and what numbers it within its run.
_PARTS = (("task", "history_task", "idx"), ("growth", "history_growth", "number"))
_ALL_PARTS = (*[(table, key) for live, ended, key in _PARTS for table in (live, ended)], ("story", "number"))


def _first(s: str, table: str, key: str, run_no: str) -> str:
    """The first rows of a run, as many as there is room for, as a condition."""
    return (
        f"p.run_no = {run_no} AND p.{key} <= (SELECT max(f.{key}) FROM (SELECT q.{key} FROM {s}.{table} q"
        f" WHERE q.run_no = {run_no} ORDER BY q.{key} LIMIT budget - done) f)"
    )


def _count(*last: str) -> str:
    """Count the rows of a statement. If there is no room for more, do this last, and return."""
    return f"""GET DIAGNOSTICS rows = ROW_COUNT;
            done := done + rows;
            IF done >= budget THEN
                {" ".join((*last, "RETURN done;"))}
            END IF;"""


def _remove(s: str, which: str, order: str) -> str:
    """Remove runs with all that is their own, as many as there is room for.

    A run of which a part was removed is nobody's any more. It is found by the index of those that are not moved.
    """
    # Most runs have one task and nothing of their own elsewhere: to ask costs less than to delete nothing.
    has_parts = " OR ".join(
        f"EXISTS (SELECT 1 FROM {s}.{table} p WHERE p.run_no = h.run_no)" for table, _ in _ALL_PARTS
    )
    half_gone = f"UPDATE {s}.history_run h SET going = true, moved = false WHERE h.run_no = expired.run_no;"
    delete = "\n                ".join(
        f"""DELETE FROM {s}.{table} p WHERE {_first(s, table, key, "expired.run_no")};
                {_count(half_gone)}"""
        for table, key in _ALL_PARTS
    )
    return f"""FOR expired IN SELECT h.run_no, h.tenant, h.name, h.graph, {has_parts} AS has_parts
            FROM {s}.history_run h WHERE {which} ORDER BY {order} LIMIT budget - done
        LOOP
            IF expired.has_parts THEN
                {delete}
            END IF;
            DELETE FROM {s}.history_run h WHERE h.run_no = expired.run_no;
            DELETE FROM {s}.history_graph g
            WHERE g.tenant = expired.tenant AND g.digest = expired.graph AND NOT EXISTS (
                SELECT 1 FROM {s}.history_run h
                WHERE h.tenant = expired.tenant AND h.name = expired.name AND h.graph = expired.graph);
            done := done + 1;
            IF done >= budget THEN
                RETURN done;
            END IF;
        END LOOP;"""


def _tidy(s: str) -> str:
    """One slice of housekeeping: move the parts of ended runs, remove what ended before an instant."""
    move = "\n        ".join(
        f"""WITH gone AS (DELETE FROM {s}.{live} p WHERE {_first(s, live, key, "moving")} RETURNING p.*)
            INSERT INTO {s}.{ended} SELECT * FROM gone;
            {_count()}"""
        for live, ended, key in _PARTS
    )
    return f"""CREATE FUNCTION {s}.tidy(given bigint, before bigint, budget bigint) RETURNS bigint
LANGUAGE plpgsql {_PLANNED} AS $$
DECLARE
    done bigint := 0;
    rows bigint;
    moving bigint;
    owner text;
    expired record;
BEGIN
    PERFORM {s}.reigns(given);
    FOR moving IN SELECT h.run_no FROM {s}.history_run h WHERE NOT h.moved AND NOT h.going
        ORDER BY h.run_no LIMIT budget
    LOOP
        {move}
        UPDATE {s}.history_run h SET moved = true WHERE h.run_no = moving;
        done := done + 1;
        IF done >= budget THEN
            RETURN done;
        END IF;
    END LOOP;
    {_remove(s, "NOT h.moved AND h.going", "h.run_no")}
    -- Without a list of tenants: hop from one to the next along the index.
    owner := (SELECT min(h.tenant) FROM {s}.history_run h);
    WHILE owner IS NOT NULL LOOP
        {_remove(s, "h.tenant = owner AND h.ended_at <= before", "h.ended_at, h.run_no")}
        owner := (SELECT min(h.tenant) FROM {s}.history_run h WHERE h.tenant > owner);
    END LOOP;
    DELETE FROM {s}.audit WHERE no IN (
        SELECT a.no FROM {s}.audit a WHERE a.at <= before ORDER BY a.at LIMIT budget - done);
    GET DIAGNOSTICS rows = ROW_COUNT;
    RETURN done + rows;
END $$"""
