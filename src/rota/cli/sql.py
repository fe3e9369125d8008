"""`rota sql`: ask one question, of files or of tables that are registered with it."""

import argparse
import importlib.util
import os
import re
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from rota.cli.bars import bar
from rota.cli.choices import COORDINATOR
from rota.cli.reaching import elsewhere, reach
from rota.cli.showing import put, put_table, say, show_count
from rota.core.errors import Refused, Unavailable

if TYPE_CHECKING:
    import pyarrow as pa

    from rota.app.sql.handles import Progress, QueryHandle
    from rota.app.sql.session import Session

FORMATS = ("table", "csv", "json", "parquet")
ROWS_SHOWN = 100
CELL_CHARS_MAX = 60
# In a pipe nobody sees that a query waits; after so long it is said.
SAY_AFTER_S = 5.0
LOOK_EVERY_S = 0.1
_BAR_CHARS = 20
# What a statement that explains another one gives.
_EXPLAINED = ["plan_type", "plan"]
_INTEGER = re.compile(r"-?(0|[1-9][0-9]{0,17})")
_NUMBER = re.compile(r"-?[0-9]+\.[0-9]*([eE][-+]?[0-9]+)?|-?[0-9]+[eE][-+]?[0-9]+")
EXAMPLES = """
  rota sql "select 1 + 1"
  rota sql "select country, count(*) from 'people.parquet' group by country order by 2 desc"
  rota sql "select * from trips where km > ?" --table trips=trips/ --param 40 --format csv > long.csv
  rota sql "select …" --table lineitem=/shared/lineitem --coordinator grpc://host:7433
  rota sql "select …" --table trips=trips/ --explain stages --data .rota
"""


def describe(parser: argparse.ArgumentParser) -> None:
    """Its options."""
    parser.add_argument("statement", metavar="SQL", help="the statement; - reads it from stdin")
    text = "a table: a file or folder of Parquet, CSV or JSON lines; may be given again"
    parser.add_argument("--table", action="append", default=[], metavar="NAME=PATH", help=text)
    text = "a value for the next ? or $1, $2 …: a number, true, false, null, or a text; '42' in quotes is a text"
    parser.add_argument("--param", action="append", default=[], metavar="VALUE", help=text)
    place = parser.add_mutually_exclusive_group()
    text = "have the workers of this data folder's coordinator run it"
    place.add_argument("--data", metavar="DIR", help=text)
    text = f"have the workers of this coordinator run it (default ${COORDINATOR}; without either it runs here)"
    place.add_argument("--coordinator", metavar="URL", help=text)
    place.add_argument("--local", action="store_true", help=f"run it here, also if ${COORDINATOR} is set")
    text = "how many parts data is split into on workers (default: by slots and size)"
    parser.add_argument("--partitions", type=int, default=0, metavar="N", help=text)
    parser.add_argument("--strict", action="store_true", help="refuse a query that cannot be cut into stages")
    text = "how the answer is printed (default: table; into a file as its name ends, else csv)"
    parser.add_argument("--format", choices=FORMATS, default="", help=text)
    parser.add_argument("--json", dest="format", action="store_const", const="json", help="print JSON: --format json")
    parser.add_argument("--output", default="", metavar="FILE", help="where the answer goes (default: stdout)")
    text = "show how it would be run, and do not run it"
    parser.add_argument("--explain", choices=("logical", "physical", "stages"), default="", help=text)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Ask, and print the answer."""
    if importlib.util.find_spec("datafusion") is None:
        raise Refused("query.engine", "queries need DataFusion", "Install it: pip install 'rota[query]'.")
    form = _form(options)
    statement = sys.stdin.read() if options.statement == "-" else options.statement
    with _session(options) as session:
        for given in options.table:
            register(session, given)
        frame = session.sql(statement, [read_value(each) for each in options.param])
        if options.explain:
            put(frame.explain(options.explain).rstrip())
            return 0
        # All of it is there before any of it is printed.
        handle = frame.submit()
        handle.is_ours_alone = True
        try:
            watch(handle)
            write(handle.stream(), form, options.output)
        except KeyboardInterrupt:
            handle.cancel("interrupted")
            raise
    return 0


def _form(options: argparse.Namespace) -> str:
    """How the answer is printed. Refuses options that do not go together, before anything is run."""
    for name, value in (("--partitions", options.partitions), ("--strict", options.strict)):
        if value and _runs_here(options):
            raise Refused("field.value", f"{name} is for queries on workers", "Add --coordinator.", path=name)
    if options.partitions < 0:
        raise Refused("field.value", f"there cannot be {options.partitions} parts", path="--partitions")
    if options.output:
        folder = Path(options.output).absolute().parent
        if not folder.is_dir():
            raise Refused("query.target", f"there is no folder {folder}", "Make it first.", path="--output")
        if Path(options.output).is_dir():
            text = f"{options.output} is a folder"
            raise Refused("query.target", text, "Name a file in it.", path="--output")
        ending = Path(options.output).suffix.removeprefix(".")
        form = options.format or (ending if ending in FORMATS else "csv")
        return "csv" if form == "table" else form
    if options.format == "parquet" and sys.stdout.isatty():
        raise Refused("field.value", "Parquet is nothing for a terminal", "Name a file with --output.", path="--format")
    return options.format or "table"


def _runs_here(options: argparse.Namespace) -> bool:
    """Whether no coordinator is named, by an option or the settings."""
    return options.local or (options.data is None and not elsewhere(options))


def _session(options: argparse.Namespace) -> "Session":
    from rota.app.sql.session import Session

    if _runs_here(options):
        return Session(files=True)
    # Files are for workers to find too, so that here they have to be registered.
    url = elsewhere(options)
    if url:
        return Session.connect(url, partitions=options.partitions, strict=options.strict)
    return _session_of_folder(options)


def _session_of_folder(options: argparse.Namespace) -> "Session":
    from rota.app.sql.cluster import Choices
    from rota.app.sql.runtimes import ClusterRuntime
    from rota.app.sql.session import Session

    rota = reach(options)
    if rota.is_host:
        rota.close()
        text = f"no coordinator is running on {options.data}. Start it with `rota up`, or leave --data out."
        raise Unavailable("leader.none", text)
    choices = Choices(partitions=options.partitions, strict=options.strict)
    return Session(runtime=ClusterRuntime(rota, choices, owns=True))


def register(session: "Session", given: str) -> None:
    """Make a file or folder known as a table."""
    name, equals, path = given.partition("=")
    if not equals or not name or not path:
        raise Refused("field.value", f"{given!r} names no table", "Write it as NAME=PATH.", path="--table")
    session.register_path(name, path)


def read_value(text: str) -> Any:
    """A parameter from the command line. What could be meant otherwise is a text, such as 007."""
    if len(text) >= 2 and text[0] == text[-1] == "'":
        return text[1:-1]
    if _INTEGER.fullmatch(text):
        return int(text)
    if _NUMBER.fullmatch(text):
        return float(text)
    return {"true": True, "false": False, "null": None}.get(text, text)


def watch(handle: "QueryHandle") -> None:
    """Wait for a query, and show on a terminal how far it is."""
    if handle.unstaged:
        say(f"rota: it runs as one task, because {handle.unstaged}")
    if not sys.stderr.isatty():
        wait_in_a_pipe(handle)
        return
    try:
        while True:
            try:
                handle.wait(LOOK_EVERY_S)
                return
            except TimeoutError:
                sys.stderr.write(f"\r{bars(handle.progress())}\x1b[K")
                sys.stderr.flush()
    finally:
        sys.stderr.write("\r\x1b[K")
        sys.stderr.flush()


def wait_in_a_pipe(handle: "QueryHandle", say_after_s: float = SAY_AFTER_S) -> None:
    """Wait where no bar moves; it is said once that nobody has begun."""
    try:
        handle.wait(say_after_s)
        return
    except TimeoutError:
        first, *rest = handle.progress().stages
    if not any(stage.running or stage.done for stage in (first, *rest)):
        task = first.id if first.tasks == 1 else f"{first.id}[0]"
        say(f"rota: query {handle.id} waits for a worker. Why says: rota why {handle.id} '{task}'")
    handle.wait()


def bars(progress: "Progress") -> str:
    """How far each stage is, on one line."""
    stages = "  ".join(
        f"{stage.id} {stage.done}/{stage.tasks}" for stage in progress.stages if stage.done < stage.tasks
    )
    return f"[{bar(progress.fraction, 1, _BAR_CHARS)}] {stages}"


def write(answer: "pa.RecordBatchReader", form: str, output: str) -> None:
    """The answer in one of the forms."""
    if form == "table":
        show(answer)
        return
    from rota.app.sql.printing import write_as

    if not output:
        write_as(answer, form, sys.stdout.buffer)
        return
    with _put_into(Path(output)) as target:
        write_as(answer, form, target)


@contextmanager
def _put_into(path: Path) -> Generator[IO[bytes]]:
    """A file that is there when all of it is; what was there before stays until then."""
    if path.exists() and not path.is_file():
        # Such as a pipe.
        with path.open("wb") as target:
            yield target
        return
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with aside.open("wb") as target:
            yield target
        aside.replace(path)
    finally:
        aside.unlink(missing_ok=True)


def show(answer: "pa.RecordBatchReader") -> None:
    """The first rows, in columns, and how many there are in all."""
    from rota.kinds.query.cell_text import cell_texts

    is_plan = answer.schema.names == _EXPLAINED
    rows: list[list[str]] = []
    count = 0
    for batch in answer:
        room = ROWS_SHOWN - len(rows)
        if room > 0 and batch.num_columns:
            shown: Any = batch.slice(0, room)
            # By column: names may come twice.
            columns = [cell_texts(shown.column(number)) for number in range(shown.num_columns)]
            rows += (["NULL" if text is None else text for text in row] for row in zip(*columns, strict=True))
        count += batch.num_rows
    if is_plan:
        for kind, plan in rows:
            put(f"{kind}:\n  {plan.rstrip().replace(chr(10), chr(10) + '  ')}")
        return
    if answer.schema.names:
        put_table(answer.schema.names, [[_cut(text) for text in row] for row in rows])
    more = f", the first {len(rows)} are shown; --format csv prints all" if count > len(rows) else ""
    say(f"rota: {show_count(count, 'row')}{more if answer.schema.names else ', without columns'}")


def _cut(text: str) -> str:
    return text if len(text) <= CELL_CHARS_MAX else text[: CELL_CHARS_MAX - 1] + "…"
