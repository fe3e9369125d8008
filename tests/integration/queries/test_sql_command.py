"""`rota sql` as people type it: every form of an answer, values, files, plans, errors; here and on workers."""

import csv
import io
import json
import os
import pty
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rota.app import Rota
from rota.cli import main
from tests.integration.deadlines import PATIENCE_S, until
from tests.integration.queries.flights import TRIPS, make_tables, until_begun, until_cancelled
from tests.integration.service.stage import Stage, open_stage

pytestmark = pytest.mark.full

Said = tuple[int, str, str]
Say = Callable[..., Said]


@pytest.fixture
def say(capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Say:
    """Types a statement in a folder with two tables."""
    make_tables(tmp_path)
    monkeypatch.chdir(tmp_path)

    def run(*words: object) -> Said:
        code = main(["sql", *(str(word) for word in words)])
        captured = capfdbinary.readouterr()
        return code, captured.out.decode(errors="replace"), captured.err.decode()

    return run


# Answers.


def test_an_answer_is_a_table_for_people(say: Say) -> None:
    code, out, err = say("select name, people from 'cities.csv' order by name")
    assert (code, out, err) == (0, "name  people\nOslo  700000\nRome  2800000\n", "rota: 2 rows\n")


def test_values_are_shown_as_people_write_them(say: Say) -> None:
    sql = (
        "select null as n, true as y, 'Århus 漢字' as u, 'a\nb\x1b[2J' as c, X'00ff' as b, [1, null] as l,"
        " {'k': 'v'} as s, date '2024-02-29' as d, interval '1 month 2 day 1.5 second' as i, repeat('w', 100) as w"
    )
    code, out, _ = say(sql)
    assert code == 0
    heading, row = out.splitlines()
    assert heading.split() == list("nyucblsdiw")
    assert row.startswith(
        'NULL  true  Århus 漢字  a b [2J  00ff  [1,null]  {"k":"v"}  2024-02-29  1 month 2 days 00:00:01.5  '
    )
    assert row.endswith("w" * 59 + "…")


def test_a_file_that_cannot_hold_a_column_is_refused_and_not_made(say: Say, tmp_path: Path) -> None:
    target = tmp_path / "answer.parquet"
    code, out, err = say("select interval '1 day' as i", "--output", str(target))
    assert (code, out) == (3, "")
    assert err.startswith("rota: query.type: ")
    assert not target.exists()


def test_only_the_first_rows_of_many_are_shown(say: Say) -> None:
    code, out, err = say("select value from generate_series(1, 1000)")
    assert (code, len(out.splitlines())) == (0, 101)
    assert err == "rota: 1000 rows, the first 100 are shown; --format csv prints all\n"


def test_an_answer_without_rows_has_its_columns_in_every_form(say: Say) -> None:
    sql = "select id, city from trips where id < 0"
    table = ("--table", "trips=trips")
    assert say(sql, *table) == (0, "id  city\n", "rota: 0 rows\n")
    assert say(sql, *table, "--format", "csv") == (0, '"id","city"\n', "")
    assert say(sql, *table, "--json") == (0, "[]\n", "")
    assert say(sql, *table, "--output", "none.parquet") == (0, "", "")
    assert pq.read_table("none.parquet").schema.names == ["id", "city"]


def test_an_answer_without_columns_is_only_counted(say: Say) -> None:
    assert say("select from 'cities.csv'") == (0, "", "rota: 2 rows, without columns\n")
    assert say("select from 'cities.csv'", "--json") == (0, "[\n {},\n {}\n]\n", "")


def test_csv_has_every_row_and_every_type(say: Say) -> None:
    sql = (
        "select null as n, true as y, 'a \"b\", c' as t, X'00ff' as b, [1] as l, interval '1 day' as i,"
        " arrow_cast('v', 'Utf8View') as v, arrow_cast('d', 'Dictionary(Int8, Utf8)') as d,"
        " arrow_cast(1.5, 'Decimal128(5, 2)') as e, date '2024-02-29' as f"
    )
    code, out, err = say(sql, "--format", "csv")
    assert (code, err) == (0, "")
    (row,) = csv.DictReader(io.StringIO(out))
    assert row == {
        "n": "",
        "y": "true",
        "t": 'a "b", c',
        "b": "00ff",
        "l": "[1]",
        "i": "1 day",
        "v": "v",
        "d": "d",
        "e": "1.50",
        "f": "2024-02-29",
    }
    assert len(say("select value from generate_series(1, 1000)", "--format", "csv")[1].splitlines()) == 1001


def test_json_can_be_read_by_programs(say: Say) -> None:
    sql = "select 1 as a, null as b, 'å' as c, [1, 2] as d, {'x': date '2024-02-29'} as e, 1.5 as f, X'00' as g"
    code, out, err = say(sql, "--format", "json")
    assert (code, err) == (0, "")
    assert json.loads(out) == [
        {"a": 1, "b": None, "c": "å", "d": [1, 2], "e": {"x": "2024-02-29"}, "f": 1.5, "g": "AA=="}
    ]


def test_names_that_come_twice_stay_apart_in_every_form(say: Say) -> None:
    sql = "select l.name, r.name from 'cities.csv' l join 'cities.csv' r on l.name < r.name"
    assert say(sql)[1] == "name  name\nOslo  Rome\n"
    assert say(sql, "--format", "csv")[1] == '"name","name"\n"Oslo","Rome"\n'
    assert json.loads(say(sql, "--json")[1]) == [{"name": "Oslo", "name_2": "Rome"}]
    assert say(sql, "--output", "both.parquet")[0] == 0
    assert pq.read_table("both.parquet").to_pylist() == [{"name": "Oslo", "name_2": "Rome"}]


# Files.


@pytest.mark.parametrize(
    ("file", "more", "begins"),
    [
        ("x.csv", (), b'"a"\n1\n'),
        ("x.json", (), b'[\n {"a":1}\n]\n'),
        ("x.parquet", (), b"PAR1"),
        ("x", (), b'"a"\n1\n'),
        ("x.txt", ("--format", "json"), b'[\n {"a":1}\n]\n'),
        ("x.json", ("--format", "table"), b'"a"\n1\n'),
    ],
)
def test_into_a_file_it_goes_in_the_form_that_its_name_says(
    say: Say, file: str, more: tuple[str, ...], begins: bytes
) -> None:
    assert say("select 1 as a", "--output", file, *more) == (0, "", "")
    assert Path(file).read_bytes().startswith(begins)


def test_a_folder_is_no_file_to_put_an_answer_into(say: Say) -> None:
    code, out, err = say("select 1", "--output", "trips")
    assert (code, out) == (3, "")
    assert re.fullmatch(r"rota: query\.target: .*\btrips\b.*\(at --output\).*\n", err)


def test_a_file_stays_what_it_was_if_the_query_fails(say: Say) -> None:
    Path("x.csv").write_text("what was there")
    code, _, err = say("select cast(name as int) from 'cities.csv'", "--output", "x.csv")
    assert (code, "query.type" in err) == (3, True)
    assert Path("x.csv").read_text() == "what was there"
    assert not list(Path().glob(".x*"))


@pytest.mark.parametrize("form", ["csv", "json", "parquet"])
def test_nothing_is_printed_of_an_answer_that_fails_half_way(tmp_path: Path, form: str) -> None:
    sql = "select 1 / (20000 - value) as x from generate_series(1, 30000)"
    words = [sys.executable, "-m", "rota", "sql", sql, "--format", form]
    done = subprocess.run(words, capture_output=True, check=False, cwd=tmp_path, timeout=PATIENCE_S)
    assert (done.returncode, done.stdout) == (3, b"")
    assert done.stderr.startswith(b"rota: query.type: Divide by zero")


def test_parquet_goes_through_a_pipe(say: Say, tmp_path: Path) -> None:
    words = [sys.executable, "-m", "rota", "sql", "select 1 as a", "--format", "parquet"]
    done = subprocess.run(words, capture_output=True, check=True, cwd=tmp_path, timeout=PATIENCE_S)
    assert pq.read_table(pa.BufferReader(done.stdout)).to_pylist() == [{"a": 1}]


def test_the_statement_may_come_from_stdin(say: Say, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("select 1\n  + 1 as n\n"))
    assert say("-", "--json") == (0, '[\n {"n":2}\n]\n', "")


# Values and plans.


@pytest.mark.parametrize(
    ("given", "value"),
    [
        ("1", 1),
        ("-1", -1),
        ("0", 0),
        ("1.5", 1.5),
        ("-2e3", -2000.0),
        ("true", True),
        ("false", False),
        ("null", None),
        ("007", "007"),
        ("'42'", "42"),
        ("nan", "nan"),
        ("1_000", "1_000"),
        ("", ""),
        ("x'; drop table t; --", "x'; drop table t; --"),
        ("12345678901234567890", "12345678901234567890"),
    ],
)
def test_values_are_what_they_look_like(say: Say, given: str, value: object) -> None:
    code, out, err = say("select ? as v", f"--param={given}", "--json")
    assert (code, err) == (0, "")
    assert json.loads(out) == [{"v": value}]


def test_values_go_to_their_places(say: Say) -> None:
    code, out, _ = say("select $2 as a, $1 as b", "--param", "x", "--param", "y", "--json")
    assert (code, json.loads(out)) == (0, [{"a": "y", "b": "x"}])


def test_plans_are_shown_in_full_and_nothing_is_run(say: Say) -> None:
    sql, table = "select city, count(*) from trips group by city", ("--table", "trips=trips/")
    code, out, err = say(sql, *table, "--explain", "logical")
    assert (code, err) == (0, "")
    assert out.splitlines()[0].startswith("Projection") or out.startswith("Aggregate")
    assert "DataSourceExec" in say(sql, *table, "--explain", "physical")[1]
    code, out, err = say(f"explain {sql}", *table)
    assert out.startswith("logical_plan:\n  ")
    assert "…" not in out


# Errors.


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("selec",), 3, r"rota: query\.syntax: .*\bselec\b.*\(at line 1, column 1\)"),
        (("",), 3, r"rota: query\.syntax: .*\(at sql\)"),
        (
            ("select * from nothing",),
            3,
            r"rota: query\.table: .*\bnothing\b.*\(at sql\).*--table",
        ),
        (
            ("select * from 'nothing.parquet'",),
            3,
            r"rota: query\.table: .*\bnothing\.parquet\b.*\(at sql\)(?!.*--table)",
        ),
        (
            ("select nothing from 'cities.csv'",),
            3,
            r"rota: query\.column: .*\bnothing\b.*\(at sql\).*\bpeople\b",
        ),
        (("select 1 / 0",), 3, r"rota: query\.type: .*\bzero\b.*\(at sql\)"),
        (("select 1 as a, 2 as a",), 3, "rota: query.column: "),
        (("select ?",), 3, "rota: query.parameter: "),
        (("select 1", "--param", "1"), 3, "rota: query.parameter: "),
        (
            ("select 1", "--table", "x"),
            3,
            r"rota: field\.value: .*'x'.*\(at --table\).*NAME=PATH",
        ),
        (("select 1", "--table", "x=nothing"), 3, r"rota: query\.source: .*\bnothing\b"),
        (("select 1", "--output", "no/x.csv"), 3, r"rota: query\.target: .*/no\b.*\(at --output\)"),
        (("select 1", "--strict"), 3, r"rota: field\.value: .*\(at --strict\).*--coordinator"),
        (("select 1", "--partitions", "2"), 3, r"rota: field\.value: .*\(at --partitions\).*--coordinator"),
        (
            ("select 1", "--partitions", "-2", "--coordinator", "grpc://127.0.0.1:1"),
            3,
            r"rota: field\.value: .*-2\b.*\(at --partitions\)",
        ),
        (("select 1", "--coordinator", "grpc://127.0.0.1:1"), 4, r"rota: leader\.none: .*grpc://127\.0\.0\.1:1\b"),
    ],
)
def test_what_is_wrong_is_one_line_and_an_exit_code(say: Say, words: tuple[str, ...], code: int, said: str) -> None:
    ended, out, err = say(*words)
    assert (ended, out, bool(re.search(said, err))) == (code, "", True), err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    "words", [("select 1", "--format", "xml"), ("select 1", "--explain", "x"), (), ("select 1", "--partitions", "x")]
)
def test_wrong_usage_is_exit_code_2(say: Say, words: tuple[str, ...]) -> None:
    with pytest.raises(SystemExit) as caught:
        say(*words)
    assert caught.value.code == 2


# On workers.


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    """A coordinator without a worker."""
    make_tables(tmp_path / "tables")
    with open_stage(tmp_path) as one:
        one.start_server()
        yield one


class Typed:
    """`rota sql` on a terminal of its own."""

    def __init__(self, stage: Stage, *words: str) -> None:
        self._end, child = pty.openpty()
        self.popen = subprocess.Popen(
            [sys.executable, "-m", "rota", "sql", *words],
            cwd=stage.folder,
            env={**stage.env, "ROTA_COORDINATOR": stage.url},
            stdout=subprocess.PIPE,
            stderr=child,
        )
        os.close(child)
        os.set_blocking(self._end, False)
        self._said = b""

    def said(self) -> str:
        with suppress(BlockingIOError, OSError):
            while more := os.read(self._end, 65_536):
                self._said += more
        return self._said.decode()

    def ended(self) -> tuple[int, str, str]:
        out, _ = self.popen.communicate(timeout=PATIENCE_S)
        said = self.said()
        os.close(self._end)
        return self.popen.returncode, out.decode(), said


def test_on_a_terminal_one_sees_how_far_it_is(stage: Stage) -> None:
    typed = Typed(stage, "select count(*) as n from trips", "--table=trips=tables/trips")
    until(lambda: "stage-1 0/1" in typed.said(), "progress")
    stage.start_worker("one")
    code, out, said = typed.ended()
    assert (code, out) == (0, f"n\n{TRIPS}\n")
    assert said.endswith("\r\x1b[Krota: 1 row\r\n"), "the line of progress is gone"


def test_interrupting_ends_the_run(stage: Stage) -> None:
    typed = Typed(stage, "select count(*) from trips", "--table=trips=tables/trips")
    (run,) = until_begun(stage)
    until(lambda: "stage-1" in typed.said(), "progress")
    typed.popen.send_signal(signal.SIGINT)
    code, out, said = typed.ended()
    assert (code, out) == (130, "")
    assert said.endswith("\r\x1b[Krota: interrupted\r\n")
    assert until_cancelled(stage, run.id).reason == "interrupted"


def test_interrupting_a_query_of_this_process_ends_it(tmp_path: Path) -> None:
    end, child = pty.openpty()
    sql = (
        "select count(*) from generate_series(1, 1000000) a(x), generate_series(1, 1000000) b(y) where (x * y) % 7 = 3"
    )
    words = [sys.executable, "-m", "rota", "sql", sql]
    popen = subprocess.Popen(words, cwd=tmp_path, stdout=subprocess.PIPE, stderr=child)
    os.close(child)
    assert os.read(end, 1), "it shows how far it is"
    popen.send_signal(signal.SIGINT)
    out, _ = popen.communicate(timeout=PATIENCE_S)
    os.close(end)
    assert (popen.returncode, out) == (130, b"")


def test_workers_answer_like_this_process_does(stage: Stage) -> None:
    stage.start_worker("one")

    def typed(*words: str) -> tuple[int, str, str]:
        done = stage.run_command("sql", *words, "--table=trips=tables/trips")
        return done.returncode, done.stdout.decode(), done.stderr.decode()

    sql = "select city, count(*) as n from trips group by city order by city"
    assert typed(sql, "--json")[:2] == typed(sql, "--json", "--partitions=3")[:2]
    assert typed(sql, "--format=csv") == (0, '"city","n"\n"Oslo",334\n"Rome",333\n"Århus",333\n', "")
    code, out, err = typed(sql, "--explain=stages", "--partitions=2")
    assert (code, err) == (0, "")
    assert out.startswith("stage-1: 2 tasks\n")
    code, out, err = typed("select cast(city as int) from trips")
    assert (code, out) == (3, "")
    assert err.startswith("rota: query.type: ")
    assert "`rota logs query-" in err
    code, out, err = typed(
        "with recursive t as (select 1 as n union all select n + 1 from t where n < 3) select * from t"
    )
    assert (code, out) == (0, "n\n1\n2\n3\n")
    assert "one task" in err
    code, out, err = typed(
        "with recursive t as (select 1 as n union all select n + 1 from t where n < 3) select * from t", "--strict"
    )
    assert (code, out, "query.unstaged" in err) == (3, "", True)
    assert typed("select * from 'tables/cities.csv'")[0] == 3, "what workers read is registered"


def test_a_coordinator_is_named_as_for_every_other_command(stage: Stage) -> None:
    """By an option, a data folder, a variable or a file of settings; without them, or with --local, it runs here."""
    stage.start_worker("one")
    elsewhere = stage.folder / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "rota.toml").write_text(f"[client]\ncoordinator = '{stage.url}'\n", encoding="utf-8")

    def typed(*words: str, cwd: Path = stage.folder, **env: str) -> tuple[str, int]:
        """What is printed, and how many runs it made at the coordinator."""
        before = len(stage.client().runs(name="query"))
        command = [sys.executable, "-m", "rota", "sql", "select 40 + 2 as n", *words]
        done = subprocess.run(command, cwd=cwd, env={**stage.env, **env}, capture_output=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout.decode(), len(stage.client().runs(name="query")) - before

    answer = "n\n42\n"
    there = {"ROTA_COORDINATOR": stage.url}
    assert typed("--coordinator", stage.url) == (answer, 1)
    assert typed("--data", str(stage.folder / "server")) == (answer, 1)
    assert typed(**there) == (answer, 1)
    assert typed(cwd=elsewhere) == (answer, 1)
    assert typed() == (answer, 0)
    assert typed("--local", **there) == (answer, 0)


def test_a_data_folder_without_a_coordinator_is_said_to_have_none(tmp_path: Path, say: Say) -> None:
    with Rota.embedded(tmp_path / "data", slots=0):
        pass
    code, out, err = say("select 1", "--data", tmp_path / "data")
    assert (code, out, err.startswith("rota: leader.none: ")) == (4, "", True)
