"""A query on its way: what was asked (`LogicalPlan`), and how it will be run (`PhysicalPlan`)."""

import re
from collections.abc import Callable

import datafusion as df
import pyarrow as pa
from msgspec import Struct, structs

from rota.core.errors import Refused
from rota.kinds.query import sizing
from rota.kinds.query.cutting import Uncut, cut, lines_of, whole
from rota.kinds.query.engine import SqlEngine
from rota.kinds.query.proven_plans import count_text_scans, why_unproven, why_unproven_scans
from rota.kinds.query.schemas import unreadable_column
from rota.kinds.query.settings import changed_settings
from rota.kinds.query.sources import is_splittable
from rota.kinds.query.stages import Stage
from rota.wire.plans import has_sink_of_files
from rota.wire.plans.tree import scanned_bytes
from rota.wire.queries import Answered, Texts

# Logical nodes that may write files, and those that change a table in memory already when they are planned.
_WRITING = ("CopyTo:", "Dml: op=[Insert")
_CHANGING = ("Dml: op=[Delete", "Dml: op=[Update")
# Of each text of a plan, so that all of them travel with a task.
TEXT_BYTES_MAX = 10_000
# Where files are is nobody's business who looks at a query; how many groups of them there are is what is slow.
_FILES = re.compile(r"file_groups=\{(\d+ groups?): \[.*?\]\]\}|\(file_groups=\[.*?\]\)")


class LogicalPlan(Struct, frozen=True):
    """What was asked, whatever it is run on."""

    plan: df.LogicalPlan
    schema: pa.Schema
    optimized: df.LogicalPlan
    # Whether its statement made a table of the session from a query, which ran in the session's process.
    makes_rows: bool = False

    def show(self) -> str:
        """The plan for people."""
        return self.plan.display_indent()


class PhysicalPlan(Struct, frozen=True, kw_only=True):
    """How a query is run: stages, each of some tasks, the last of which give the answer.

    `unstaged` says why it is one task although it might have been several; "" if nothing stands against it. Without any
    stage it cannot be run but where it was planned.
    """

    stages: tuple[Stage, ...]
    schema: pa.Schema
    partitions: int
    text: str
    unstaged: str = ""
    # What was asked, for people.
    asked: str = ""

    def texts(self) -> Texts:
        """What it looks like to somebody who cannot plan it: no names of files, and not too much of it."""
        return texts_of(self.asked, self.text, self._shown() if len(self.stages) > 1 else "")

    def _shown(self) -> str:
        try:
            return self.show()
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException:
            # What the engine cannot show it may yet run; its panics are no Exceptions.
            return ""

    def show(self) -> str:
        """The stages for people."""
        lines: list[str] = []
        if self.unstaged:
            lines.append(f"one task, because {self.unstaged}")
        for stage in self.stages:
            after = f" after {', '.join(stage.upstream)}" if stage.upstream else ""
            tasks = "1 task" if stage.tasks == 1 else f"{stage.tasks} tasks"
            alone = f", because {stage.alone}" if stage.alone else ""
            lines.append(f"{stage.id}: {tasks}{after}{alone}")
            shown = self.text.rstrip("\n").split("\n") if stage.is_logical else lines_of(stage)
            lines += (f"  {line}" for line in shown)
        return "\n".join(lines)


def texts_of(logical: str, physical: str, stages: str = "") -> Texts:
    """Plans by their names, as they are shown to others."""
    named = (("Logical plan", logical), ("Physical plan", physical), ("Stages", stages))
    return tuple((name, _readable(text)) for name, text in named if text)


def _readable(text: str) -> str:
    content = _FILES.sub(lambda found: f"file_groups={{{found[1] or '…'}}}", text).rstrip().encode(errors="replace")
    if len(content) <= TEXT_BYTES_MAX:
        return content.decode()
    return f"{content[:TEXT_BYTES_MAX].decode(errors='ignore')}\n… and {len(content) - TEXT_BYTES_MAX:,} bytes more"


class Wishes(Struct, frozen=True, kw_only=True):
    """What may be chosen about how a query is cut. 0 partitions: as many as the data and the slots ask for.

    `strict`: refuse a query that cannot be cut instead of running it as one task.
    """

    partitions: int = 0
    strict: bool = False


def logical_plan(engine: SqlEngine, frame: df.DataFrame) -> LogicalPlan:
    """What a frame asks for. What would be done as often as it is planned is refused: that may be more than once."""
    plan = frame.logical_plan()
    if _has_node(plan, _CHANGING):
        text = "rows of tables are not changed or deleted here"
        hint = "Register another table in its place: register_table(name, session.sql(…).to_arrow())."
        raise Refused("query.unsupported", text, hint, path="sql")
    with engine.complaining():
        optimized = frame.optimized_logical_plan()
        # The frame's own schema has the types from before branches of a UNION or a CASE get a common one.
        schema = engine.frame_of(optimized).schema()
    if unreadable := unreadable_column(schema):
        hint = "Cast it: arrow_cast(…, 'Interval(MonthDayNano)')."
        raise Refused("query.type", f"the answer has a {unreadable}, and no program could read it", hint, path="sql")
    return LogicalPlan(plan, schema, optimized)


def _has_node(plan: df.LogicalPlan, starts: tuple[str, ...]) -> bool:
    return any(line.lstrip().startswith(starts) for line in plan.display_indent().splitlines())


def frame_here(engine: SqlEngine, asked: LogicalPlan) -> df.DataFrame:
    """A query as it is run in this process. What would write files is refused: they would be seen half written."""
    frame = engine.frame_of(asked.plan)
    if _has_node(asked.plan, _WRITING):
        with engine.complaining():
            shown = frame.execution_plan().display_indent()
        if has_sink_of_files(shown):
            text = "COPY, and INSERT into tables of files, would show a part of what they write"
            hint = "Use write_parquet or write_csv of a frame, or --output of `rota sql`."
            raise Refused("query.unsupported", text, hint, path="sql")
    return frame


def physical_plan(engine: SqlEngine, asked: LogicalPlan, slots: Callable[[], int], wishes: Wishes) -> PhysicalPlan:
    """Plan a query for as many slots as there are, which is asked if it reads enough to be worth several partitions.

    How much it reads is known when it is planned, so it may be planned twice. The first guess is what the query before
    it needed: the next one is often like it.
    """
    if wishes.strict and _reads_no_table(asked.optimized):
        wishes = structs.replace(wishes, strict=False)
    partitions = wishes.partitions or engine.partitions or 1
    planned = _plan(engine, asked, partitions)
    read = _scanned(planned)
    if not wishes.partitions:
        is_alone = read <= sizing.ALONE_BYTES or not is_splittable(planned)
        fitting = 1 if is_alone else sizing.partitions(slots(), read)
        if fitting != partitions:
            partitions = fitting
            planned = _plan(engine, asked, partitions)
    unstaged = ""
    with engine.complaining():
        unproven = _why_unproven_literals(asked.optimized)
        unproven = unproven or _why_unproven_scans(asked.optimized, planned, engine.context)
        try:
            if unproven:
                raise Uncut(unproven)
            # Who asks for a number of partitions wants to see them.
            again_bytes = 0 if wishes.partitions else sizing.AGAIN_BYTES
            stages = cut(planned, engine.context, again_bytes, asked.schema, partitions)
            if alone := next((stage.alone for stage in stages if stage.alone), ""):
                _check_strict(wishes, f"a stage of it would be one task: {alone}")
        except Uncut as uncut:
            _check_strict(wishes, f"it cannot be split into stages: {uncut}")
            unstaged = str(uncut)
            stages = _one_task(engine, asked, planned, may_be_physical=not unproven)
    settings = changed_settings(engine.context) if stages else ()
    return PhysicalPlan(
        stages=tuple(structs.replace(stage, settings=settings) for stage in stages) if settings else stages,
        schema=asked.schema,
        partitions=partitions,
        text=planned.display_indent(),
        unstaged=unstaged,
        asked=asked.show(),
    )


def _reads_no_table(plan: df.LogicalPlan) -> bool:
    """Whether a statement only tells of plans, tables or settings, such as EXPLAIN and SHOW: no task has to run it."""
    lines = [line.strip() for line in plan.display_indent().splitlines()]
    if lines[0] in ("Explain", "DescribeTable"):
        return True
    scans = [line for line in lines if line.startswith("TableScan:")]
    return bool(scans) and all(line.startswith("TableScan: information_schema.") for line in scans)


def _check_strict(wishes: Wishes, reason: str) -> None:
    """Refuse what is not spread over tasks, if that is wanted."""
    if wishes.strict:
        hint = "Leave strict out, and it runs as one task."
        raise Refused("query.unstaged", f"this query is not run by several tasks: {reason}", hint, path="sql")


def _why_unproven_scans(optimized: df.LogicalPlan, planned: df.ExecutionPlan, context: df.SessionContext) -> str:
    """Why CSV or JSON scans of a physical plan may be encoded without an option of their files; "" if none may be.

    The options are in the logical plan only, so each scan of the physical plan must be one of its checked scans.
    """
    content = encoded(planned)
    if not content or why_unproven(content):
        # It is not sent, for another reason.
        return ""
    count = count_text_scans(content)
    if not count:
        return ""
    reason, checked = _checked_scans(optimized, context)
    if not reason and count > checked:
        return "not every scan of CSV or JSON files is known to survive being sent"
    return reason


def _checked_scans(plan: df.LogicalPlan, context: df.SessionContext) -> tuple[str, int]:
    """Why a scan of a logical plan is unproven, "" if none is; and how many CSV and JSON scans were checked."""
    try:
        return why_unproven_scans(plan.to_bytes(context))
    except Exception:
        # A table in memory, here or below.
        inputs = plan.inputs()
    if _count_scans(plan) > (sum(map(_count_scans, inputs)) if inputs else 1):
        return "a subquery beside a table in memory is not known to survive being sent", 0
    found = [_checked_scans(each, context) for each in inputs]
    return next((reason for reason, _ in found if reason), ""), sum(count for _, count in found)


def _count_scans(plan: df.LogicalPlan) -> int:
    """How many tables a plan reads, those of subqueries in its expressions among them."""
    return sum(line.lstrip().startswith("TableScan:") for line in plan.display_indent().splitlines())


def _why_unproven_literals(plan: df.LogicalPlan) -> str:
    """A literal of type Float16 is encoded as a Float32, and nothing tells the two apart."""
    is_lost = "Float16(" in plan.display_indent()
    return "a literal of type Float16 does not survive being sent" if is_lost else ""


def _one_task(
    engine: SqlEngine, asked: LogicalPlan, planned: df.ExecutionPlan, *, may_be_physical: bool
) -> tuple[Stage, ...]:
    """The query as one task, for a worker to plan, or as it was planned; nothing if neither can be sent.

    `may_be_physical`: whether the encoding of the physical plan keeps all options of its scans.
    """
    # Before it is optimized, a plan has IN and EXISTS with subqueries, which cannot be encoded. After that it may have
    # literals that are lost.
    plan = asked.plan if _why_unproven_literals(asked.optimized) else asked.optimized
    try:
        content = plan.to_bytes(engine.context)
    except Exception:
        # Tables in memory travel with a physical plan only.
        if not may_be_physical:
            return ()
        try:
            return whole(planned, engine.context)
        except Uncut:
            return ()
    stage = Stage(
        id="stage-1",
        plan=content,
        output=Answered(),
        schema=asked.schema,
        is_whole=True,
        is_logical=True,
        physical=encoded(planned),
    )
    return (stage,)


def _plan(engine: SqlEngine, asked: LogicalPlan, partitions: int) -> df.ExecutionPlan:
    engine.set_partitions(partitions)
    frame = engine.frame_of(asked.plan)
    with engine.complaining():
        return frame.execution_plan()


def _scanned(plan: df.ExecutionPlan) -> int:
    """How much a plan reads; 0 of one that cannot be written down, of which it is told why where it is cut."""
    return scanned_bytes(encoded(plan))


def encoded(plan: df.ExecutionPlan) -> bytes:
    """A plan as it is sent; b"" if it cannot be."""
    try:
        return plan.to_bytes()
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException:
        # A panic of the engine is not an Exception.
        return b""
