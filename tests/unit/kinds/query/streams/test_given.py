"""The doors of a stream: whatever is given, it is taken or refused by the name of its option."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import rota
from rota.core.errors import Refused
from rota.kinds.query.streams.given import PARTITIONS_MAX, SECONDS_MAX
from rota.kinds.query.streams.sinks import FolderSink
from tests.refusals import refused

ROWS = pa.table({"at": [0, 100, 200], "k": [1, 2, 3]})
NAN, VAST = float("nan"), 10**5_000
NO_TEXTS = (None, 5, b"w", ["w"], "\ud800")
NO_SECONDS = (None, "10", True, NAN, float("inf"), -1, SECONDS_MAX + 1, VAST, [1])
NO_COUNTS = (None, "3", 1.0, True, NAN, 0, -1, 1 << 63, VAST)
NO_AMOUNTS = (None, "3", 1.5, True, NAN, -1, 1 << 63, VAST)
NO_PLACES = (None, 5, "", "a\0b", b"x", "\udcff", ["x"])
NO_POLICIES = (None, "", "give_up", ["fail"], 5)
NO_COLUMNS = (None, "k", 5, [None], [["k"]], {"k": 1})
NO_PAIRS = (None, 5, (1,), (1, 2, 3), {})
NO_TRUTHS = (None, "x", 1, 0)


def session(folder: Path, **options: Any) -> rota.StreamSession:
    return rota.StreamSession(folder, every_s=options.pop("every_s", 0), **options)


def stream(folder: Path) -> rota.StreamSession:
    made = session(folder)
    made.register_rows("c", ROWS)
    made.register_rows("d", ROWS)
    return made


class Source:
    """As little as looks like a source."""

    can: Any = 0
    called = "mine"
    partitions = 1
    schema = ROWS.schema
    open = check_known = remembered = recall = look = beginning = end_of_range = is_over = read = print

    def __init__(self, **other: Any) -> None:
        vars(self).update(other)


WINDOW = {"name": "w", "source": "c", "time": "at", "tumbling_s": 1, "aggregates": {"n": "count(*)"}}
SLIDING = {each: value for each, value in WINDOW.items() if each != "tumbling_s"}
JOIN = {"name": "j", "left": "c", "right": "d", "on": ["k"], "time": ("at", "at"), "within_s": (0, 1)}
DISTINCT = {"name": "u", "source": "c", "on": ["k"], "time": "at", "ttl_s": 1}
FILES = {"name": "f", "path": "/nowhere", "form": "csv", "schema": ROWS.schema}
# By door: what it takes, and what it does not by the option's name.
DOORS: dict[str, tuple[dict[str, Any], dict[str, tuple[Any, ...]]]] = {
    "register_source": (
        {"name": "s", "source": Source()},
        {
            "name": NO_TEXTS,
            "source": (None, [], "c", 5, Source, Source(called=None), Source(schema=[])),
            "idle_s": NO_SECONDS,
            "policies": ("fail", {}),
        },
    ),
    "register_files": (
        FILES,
        {
            "name": NO_TEXTS,
            "path": NO_PLACES,
            "form": (None, "", "xml", ["csv"], 5),
            "schema": ("x", [("a", "int64")], ROWS),
            "partitions": (*NO_COUNTS, PARTITIONS_MAX + 1),
            "bounded": NO_TRUTHS,
            "idle_s": NO_SECONDS,
            "on_poison": NO_POLICIES,
            "on_schema": NO_POLICIES,
            "on_missing": NO_POLICIES,
        },
    ),
    "register_rate": (
        {"name": "r", "rows_per_s": 10},
        {
            "name": NO_TEXTS,
            "rows_per_s": NO_COUNTS,
            "keys": NO_COUNTS,
            "partitions": (*NO_COUNTS, 10**30),
            "rows": NO_AMOUNTS,
            "from_ms": NO_AMOUNTS,
        },
    ),
    "register_window": (
        WINDOW,
        {
            "name": NO_TEXTS,
            "source": (*NO_TEXTS, []),
            "time": NO_TEXTS,
            "by": NO_COLUMNS,
            "aggregates": (None, "count(*)", [], {"n": 5}, {5: "count(*)"}, {"n": None}),
            "tumbling_s": NO_SECONDS[1:],
            "watermark_delay_s": NO_SECONDS,
            "allowed_lateness_s": NO_SECONDS,
            "ahead_s": NO_SECONDS,
            "on_no_time": NO_POLICIES,
            "on_far_future": NO_POLICIES,
        },
    ),
    "register_distinct": (
        DISTINCT,
        {"name": NO_TEXTS, "source": NO_TEXTS, "on": NO_COLUMNS, "time": NO_TEXTS, "ttl_s": (*NO_SECONDS, 0)},
    ),
    "register_join": (
        JOIN,
        {
            "name": NO_TEXTS,
            "left": NO_TEXTS,
            "right": NO_TEXTS,
            "on": NO_COLUMNS,
            "time": (*NO_PAIRS, "at", ("at", None)),
            "within_s": (*NO_PAIRS, "01", ("0", 1), (0, NAN), (None, 1)),
            "watermark_delay_s": NO_SECONDS,
            "waiting_max": NO_COUNTS,
        },
    ),
    "register_view": (
        {"name": "v", "sql": "select k from c"},
        {"name": NO_TEXTS, "sql": NO_TEXTS, "on_error": NO_POLICIES},
    ),
    "register_sink": (
        {"name": "c", "sink": FolderSink("/nowhere")},
        {"name": NO_TEXTS, "sink": (None, 5, print, FolderSink)},
    ),
    "write_files": (
        {"name": "c", "folder": "/nowhere"},
        {"name": NO_TEXTS, "folder": NO_PLACES, "form": (None, "json", ["csv"], 5)},
    ),
    "call": ({"name": "c", "function": print}, {"function": (None, 5, "print")}),
    "start": (
        {"follow": False},
        {"restore": (None, 1.5, True, -1, "1" * 5_000, "a\0b", b"x"), "follow": NO_TRUTHS, "now_ms": (5, "x")},
    ),
    "state": ({"name": "c"}, {}),
}


@pytest.mark.parametrize("door", DOORS)
def test_what_a_door_takes_is_taken(tmp_path: Path, door: str) -> None:
    getattr(stream(tmp_path / "s"), door)(**DOORS[door][0])


@pytest.mark.parametrize("door", DOORS)
def test_what_cannot_be_used_is_refused_by_the_name_of_its_option(one_stream: rota.StreamSession, door: str) -> None:
    taken, wrong = DOORS[door]
    for option, values in wrong.items():
        for value in values:
            refuse(partial(getattr(one_stream, door), **{**taken, option: value}), option)


@pytest.fixture(scope="module")
def one_stream(tmp_path_factory: pytest.TempPathFactory) -> rota.StreamSession:
    """One for all that is refused: it does not change by that."""
    return stream(tmp_path_factory.mktemp("doors") / "s")


def refuse(do: Callable[[], object], option: str) -> None:
    with pytest.raises(Refused, match=r"field\.value") as refused:
        do()
    assert refused.value.path == option
    assert refused.value.hint
    assert len(str(refused.value)) < 400


@pytest.mark.parametrize(
    ("option", "values"),
    {
        "folder": NO_PLACES,
        "tables": ("x", [], 5),
        "rows_max": NO_COUNTS,
        "parallelism": (*NO_COUNTS, 10**15),
        "keep": NO_COUNTS,
        "state_every": NO_COUNTS,
        "every_s": NO_SECONDS,
        "incarnation": NO_AMOUNTS,
    }.items(),
)
def test_a_stream_is_not_made_with_what_cannot_be_used(option: str, values: tuple[Any, ...]) -> None:
    for value in values:
        refuse(lambda given={"folder": "s", option: value}: session(**given), option)


@pytest.mark.parametrize("shape", [5, "60", (60,), (60, 10, 1), (60, None), ("60", "10"), (60, 7), {}])
def test_a_sliding_window_has_a_size_and_a_slide(one_stream: rota.StreamSession, shape: Any) -> None:
    refuse(lambda: one_stream.register_window(**SLIDING, sliding_s=shape), "sliding_s")


def test_a_shape_that_is_nothing_is_none(tmp_path: Path) -> None:
    stream(tmp_path).register_window(**WINDOW, sliding_s=0, session_s=None)


@pytest.mark.parametrize(
    "tables", [(None,), ("x",), (ROWS, ROWS.drop_columns("k")), (ROWS, ROWS.append_column("z", ROWS["k"])), ()]
)
def test_tables_have_the_same_columns(tmp_path: Path, tables: tuple[Any, ...]) -> None:
    with pytest.raises(Refused, match=r"field\.value") as refused:
        session(tmp_path).register_rows("c", *tables)
    assert refused.value.path == "tables"


def test_tables_with_types_that_cannot_be_made_one_are_refused(tmp_path: Path) -> None:
    texts = pa.table({"at": ["x"], "k": [1]})
    with refused("query.type", "int64", path="tables"):
        session(tmp_path).register_rows("c", ROWS, texts)
    session(tmp_path).register_rows(
        "c", ROWS, ROWS.select(["k", "at"]), pa.table({"at": pa.array([1], "int8"), "k": [1]})
    )


@pytest.mark.parametrize("name", [None, 5, b"x", "\ud800", "", "41", "a/b"])
def test_a_savepoint_has_a_name(tmp_path: Path, name: Any) -> None:
    with stream(tmp_path).start(follow=False) as running:
        list(running)
        refuse(lambda: running.savepoint(name), "name")
        if name != "":
            with pytest.raises(Refused, match=r"field\.value"):
                running.stop(savepoint=name)


def test_what_a_savepoint_returned_is_what_can_be_restored(tmp_path: Path) -> None:
    with stream(tmp_path / "one").start(follow=False) as running:
        list(running)
        saved = running.savepoint("x")
    with stream(tmp_path / "one").start(follow=False, restore=saved) as running:
        assert running.last is not None


@pytest.mark.parametrize("name", ["sql", "schema", "self", "_rows", "_state"])
def test_a_stream_may_be_called_like_something_of_ours(tmp_path: Path, name: str) -> None:
    made = session(tmp_path)
    made.register_rows(name, ROWS)
    made.register_view("v", 'select at, k from "NAME"'.replace("NAME", name))
    made.register_window("w", name, time="at", sliding_s=(2, 1), by=["k"], aggregates={"n": "count(*)"})
    (only,) = made.run()
    assert (only.rows["v"].num_rows, only.rows["w"].num_rows) == (3, 6)


def test_columns_that_nobody_could_tell_apart_are_refused(tmp_path: Path) -> None:
    with refused("query.column", ": a, a", path="source"):
        session(tmp_path).register_rows("c", pa.table([[1], [2]], names=["a", "a"]))


def test_a_restore_that_is_refused_makes_no_folder(tmp_path: Path) -> None:
    with pytest.raises(Refused, match=r"stream\.unknown"):
        stream(tmp_path / "s").start(restore="none")
    assert not (tmp_path / "s").exists()
