"""What the engine complains about, as refusals with a code: what is wrong, where, and what might be meant."""

import difflib
import re
from collections.abc import Callable, Iterable

from rota.core.errors import Refused
from rota.wire.stores import hint_for, in_words, is_of_store

_POSITION = re.compile(r"\s+at Line: (\d+), Column: (\d+)")
_PARSER = re.compile(r'(?:Parser|Tokenizer)Error\("(.*)"\)', re.DOTALL)
_PREFIXES = (
    "DataFusion error: ",
    "Error during planning: ",
    "Execution error: ",
    "Schema error: ",
    "Arrow error: ",
    "Internal error: ",
    "External error: ",
    "This feature is not implemented: ",
    "type_coercion caused by ",
)
_PYTHON = re.compile(r"PyErr \{ type: <class '([\w.]+)'>, value: \w+\((.*?)\), traceback: ", re.DOTALL)
_TABLE = re.compile(r"table '([^']+)' not found")
_COLUMN = re.compile(r"No field named (.+?)\.(?:\s|$)")
_MEANT = re.compile(r"Did you mean '(.+?)'\?")
_FIELDS = re.compile(r"Valid fields are (.+)\.$", re.DOTALL)
_NEAREST_MAX = 3
# Comparing takes time that grows with the square of it, and people have shorter names.
_NAME_CHARS_MAX = 200
_COLUMNS_SHOWN_MAX = 10
_FILES = (".parquet", ".csv", ".json", "/")
# How much of what the engine says is told; it may list every signature of a function.
_CHARS_MAX = 1_000

# The first line of this table whose pattern is found says what it was. The texts are those of DataFusion 55.
_CODES: tuple[tuple[str, str, str], ...] = (
    (r"PyErr \{", "query.function_failed", "Correct the function, and register it again."),
    (r"ParserError|TokenizerError|No SQL statements were provided", "query.syntax", ""),
    (r"only supports a single SQL statement", "query.syntax", "Give one statement at a time."),
    (r"Prepared statement '[^']*' does not exist", "query.statement", "Run PREPARE in this session first."),
    (r"Prepared statement '[^']*' already exists", "query.statement", "Choose another name, or DEALLOCATE it first."),
    (r"(DDL|DML|Statement) not supported", "query.unsupported", "Only statements that read are taken here."),
    (r"table function '[^']+' not found", "query.function", ""),
    (_TABLE.pattern, "query.table", ""),
    (r"No field named", "query.column", ""),
    (
        r"[Aa]mbiguous reference|must appear in the GROUP BY|must be in GROUP BY|column out of bounds"
        r"|require unique expression names",
        "query.column",
        "",
    ),
    (r"No function matches|failed to match any signature", "query.type", "Cast what the function is given."),
    (r"Invalid function|Unknown function", "query.function", ""),
    (r"[Pp]laceholder", "query.parameter", "Give a value for each parameter."),
    (r"Resources exhausted", "query.memory", "Use more partitions, or give workers more memory."),
    (
        r"No files found at|No suitable object store|Parquet error|Object Store error|Object at location"
        r"|does not exist|No such file|Is a directory|Permission denied|Csv error|Json error|Ipc error"
        r"|[Uu]nable to (open|read)",
        "query.source",
        "See that the file is there, whole, and may be read by workers too.",
    ),
    (
        r"[Cc]annot coerce|[Cc]annot cast|Cast error|Divide by zero|[Oo]verflow|Cannot infer common|type_coercion"
        r"|data type",
        "query.type",
        "",
    ),
    (r"not implemented|not supported|Unsupported", "query.unsupported", ""),
)


def refusal(error: BaseException, sql: str = "", tables: Callable[[], Iterable[str]] = tuple) -> Refused:
    """What an engine's error means to who asked. `tables` are the names that could have been meant."""
    text = str(error).strip()
    if is_of_store(text) and "PyErr {" not in text:
        return Refused("query.source", f"a bucket cannot be read: {in_words(text)}", hint_for(text), path="sql")
    code, hint = next(
        ((code, hint) for pattern, code, hint in _CODES if re.search(pattern, text)), ("query.failed", "")
    )
    if code == "query.syntax":
        reason, where = _syntax(text, sql)
        return Refused(code, reason, hint or "Correct the statement.", path=where)
    if code == "query.table":
        return _unknown_table(text, tables)
    if code == "query.column" and _COLUMN.search(text):
        return _unknown_column(text)
    if code == "query.function_failed":
        return Refused(code, _python_error(text), hint, path="sql")
    return Refused(code, _plain(text), hint, path="sql")


def _syntax(text: str, sql: str) -> tuple[str, str]:
    found = _PARSER.search(text)
    said = found.group(1) if found else _plain(text)
    if "a single SQL statement" in said:
        return "there is more than one statement", "sql"
    position = _POSITION.search(said)
    if position is not None:
        line, column = int(position.group(1)), int(position.group(2))
        said = said[: position.start()] + said[position.end() :]
    else:
        # It reached the end, and does not say where that is.
        lines = sql.rstrip().split("\n")
        line, column = len(lines), len(lines[-1]) + 1
    said = said.replace('\\"', '"')
    return said[:1].lower() + said[1:], f"line {line}, column {column}"


def _unknown_table(text: str, tables: Callable[[], Iterable[str]]) -> Refused:
    found = _TABLE.search(text)
    assert found is not None, "this pattern chose the code"
    name = found.group(1)
    short = name.removeprefix("datafusion.public.")[:_NAME_CHARS_MAX]
    known = {each.removeprefix("datafusion.public."): None for each in tables()}
    near = difflib.get_close_matches(short, known, n=_NEAREST_MAX, cutoff=0.6)
    if near:
        hint = f"Did you mean {' or '.join(near)}?"
    elif short.endswith(_FILES):
        hint = "If it is a file, see that it is there; what workers read has to be registered."
    elif known:
        hint = "SHOW TABLES lists those that are there."
    else:
        hint = "None is registered yet: register_parquet and the like of a session do, or --table of `rota sql`."
    return Refused("query.table", f"there is no table {short}", hint, path="sql")


def _unknown_column(text: str) -> Refused:
    found = _COLUMN.search(text)
    assert found is not None, "whoever calls has looked"
    meant, fields = _MEANT.search(text), _FIELDS.search(text)
    hint = ""
    if meant is not None:
        hint = f"Did you mean {meant.group(1)}?"
    elif fields is not None:
        known = fields.group(1).split(", ")
        more = f" and {len(known) - _COLUMNS_SHOWN_MAX} more" if len(known) > _COLUMNS_SHOWN_MAX else ""
        hint = f"There are {', '.join(known[:_COLUMNS_SHOWN_MAX])}{more}."
    return Refused("query.column", f"there is no column {found.group(1)}", hint, path="sql")


def _python_error(text: str) -> str:
    found = _PYTHON.search(text)
    if found is None:
        return _plain(text)
    kind, said = found.group(1), found.group(2)
    return f"a function of the query raised {kind}: {said.strip(chr(39) + chr(34))}"


def _plain(text: str) -> str:
    """A message on one line, without the names of the engine's own layers before it."""
    text = " ".join(re.sub(r"Optimizer rule '\w+' failed\s+caused by\s+", "", text).split())
    while True:
        for prefix in _PREFIXES:
            if text.startswith(prefix):
                text = text[len(prefix) :]
                break
        else:
            return text if len(text) <= _CHARS_MAX else text[: _CHARS_MAX - 1] + "…"
