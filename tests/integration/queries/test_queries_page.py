"""The page for queries: a statement is answered by workers, its first rows are shown, and what is wrong is said."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec import structs

import rota
from rota.api.analysts import check_query, readable
from rota.core.commands import SubmitRun
from rota.core.errors import Refused
from rota.core.ids import BlobRef
from rota.core.model import TaskSpec
from rota.wire.asking import asking_graph
from rota.wire.work import ParamOf, PythonWork, encode_work
from tests.integration.deadlines import until
from tests.integration.http_stage import PATIENCE_S, Stage, gate_of, staged
from tests.integration.page_stage import Page, Person, buttons, hidden

READER, WRITER, ANALYST = "reader-token", "writer-token", "analyst-token"
EVIL = "<script>alert(1)</script><img src=x onerror=alert(2)>"


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    folder = tmp_path_factory.mktemp("tables")
    lines = [f"{number},{('de', 'fr', 'it')[number % 3]},{number * 2}" for number in range(30_000)]
    (folder / "people.csv").write_text("\n".join(["id,country,score", *lines]) + "\n")
    tables = {"people": str(folder / "people.csv"), "gone": str(folder / "gone.csv"), "far": "s3://nowhere/at/all"}
    tokens = f"reader:{READER}\nwriter:{WRITER}\nanalyst:{ANALYST}"
    with staged(gate=gate_of(tokens), tables=tables, slots=2) as one:
        one.http.headers["Authorization"] = f"Bearer {WRITER}"
        yield one


@pytest.fixture
def writer(stage: Stage) -> Iterator[Person]:
    with Person(stage, WRITER) as one:
        yield one


def ask(person: Person, statement: str, status: int = 303) -> Page:
    form = {**hidden(person.look("/queries"), "/queries"), "sql": statement}
    return person.follow(person.send("/queries", form), status)


def answered(person: Person, statement: str) -> Page:
    """The page once the query has ended."""
    page = ask(person, statement)
    run = page.response.url.params["run"]
    person.stage.rota.run(run).wait(PATIENCE_S)
    return until(lambda: person.look(str(page.response.url)), "the answer")


def cells(page: Page) -> list[str]:
    return [given.get("title") or "" for given in page.named("td") if "title" in given and "class" not in given]


def test_a_statement_is_answered_by_workers_and_its_first_rows_are_shown(stage: Stage, writer: Person):
    page = answered(writer, "select country, count(*) as people, null as nothing\nfrom people\ngroup by 1 order by 1")
    assert "3 rows" in page.text
    assert [cell for cell in cells(page) if len(cell) < 10] == ["de", "10000", "fr", "10000", "it", "10000"]
    assert "country" in page.text
    assert "int64" in page.text.lower()
    assert "NULL" in page.text
    run = page.response.url.params["run"]
    assert f"/runs/{run}" in page.links
    assert "select country, count(*)" in page.text, "the statement is kept"
    assert dict(stage.get(f"runs/{run}")["labels"])["by"].startswith("writer@default#")


def test_of_many_rows_some_are_shown_and_no_more_are_made_than_are_counted(writer: Person):
    page = answered(writer, "select * from people")
    assert "10,000 or more" in page.text
    assert "200" in page.text
    assert len(cells(page)) == 200 * 3, "of three columns"
    assert len(page.html) < 300_000


def test_what_is_wrong_is_said_beside_the_statement_with_its_place(writer: Person):
    page = answered(writer, "select *\nfrm people")
    assert "query.syntax" in page.text
    assert "line 2, column" in page.text
    assert "frm people ^" in page.text.replace("\n", " ")
    assert "select *" in page.text


def test_a_table_that_there_is_not_may_be_another_one(writer: Person):
    assert "Did you mean people?" in answered(writer, "select * from poeple").text
    assert "query.source" in answered(writer, "select * from gone").text
    assert re.search(r"query\.table: .*zzz.*far, gone, people", answered(writer, "select * from zzz").text)


def test_a_statement_may_only_read(writer: Person, tmp_path: Path):
    for statement in (
        f"copy people to '{tmp_path}/out.csv'",
        "create table copied as select 1",
        f"create external table x stored as csv location '{tmp_path}'",
        "select * from '/etc/passwd'",
    ):
        page = answered(writer, statement)
        assert page.text.count("query.") >= 1, statement
    assert list(tmp_path.iterdir()) == []


def test_hostile_values_are_text(writer: Person):
    page = answered(writer, f"select '{EVIL}' as \"{EVIL}\"")
    assert EVIL in cells(page)
    assert not page.named("img")


def test_an_empty_statement_is_refused_where_it_was_written(writer: Person):
    assert "query.syntax" in ask(writer, "  ", 422).text
    assert "field.size" in ask(writer, "select 1 -- " + "x" * 70_000, 413).text


def test_asking_twice_from_the_same_page_asks_once(stage: Stage, writer: Person):
    form = {**hidden(writer.look("/queries"), "/queries"), "sql": "select 42"}
    first, second = (writer.send("/queries", form).headers["location"] for _ in range(2))
    assert first == second


def test_who_may_only_look_has_no_box_and_is_refused(stage: Stage, writer: Person):
    shown = answered(writer, "select 1 as one")
    with Person(stage, READER) as person:
        page = person.look(str(shown.response.url))
        assert "one" in page.text
        assert not page.named("textarea")
        form = {**hidden(writer.look("/queries"), "/queries"), "sql": "select 1"}
        assert person.send("/queries", form).status_code == 403


def test_an_analyst_asks_about_the_tables_of_the_settings_and_nothing_else(stage: Stage, writer: Person):
    with Person(stage, ANALYST) as analyst:
        assert "30000" in cells(answered(analyst, "select count(*) as all from people"))
        refused = answered(analyst, "select * from '/etc/passwd'")
        assert "query." in refused.text
        assert "root:" not in refused.text
        # It is theirs to cancel, and nothing else is theirs to do.
        asked = ask(analyst, "select 1").response.url.params["run"]
        assert set(buttons(analyst.look(f"/runs/{asked}"))) <= {f"/runs/{asked}/cancel"}
        stage.submit({"id": "a", "command": {"shell": "sleep 1000"}}, run="of-others")
        assert buttons(analyst.look("/runs/of-others")) == []
        analyst.look("/runs/of-others/cancel", 403)
        stage.rota.run("of-others").cancel()


@pytest.mark.parametrize("lie", ["table", "function", "task", "bundle"])
def test_an_analyst_may_not_submit_what_only_looks_like_a_statement_of_the_page(stage: Stage, lie: str):
    tables = {"people": "/etc/passwd"} if lie == "table" else dict(stage.tables)
    graph = asking_graph("1", tables)
    if lie == "function":
        work = encode_work(PythonWork(function="os:system", args=(ParamOf("sql"),)))
        graph = structs.replace(graph, tasks=(structs.replace(graph.tasks[0], work=work), graph.tasks[1]))
    elif lie == "task":
        graph = structs.replace(graph, tasks=(*graph.tasks, TaskSpec(id="more", kind="command", work=b"")))
    elif lie == "bundle":
        graph = structs.replace(graph, bundle=BlobRef("x", 1, "0" * 64))
    with pytest.raises(Refused, match=r"auth\.role"):
        check_query(SubmitRun(tenant="default", command_id="c", run="r", graph=graph), readable(stage.tables, ()))


def test_where_no_worker_has_the_engine_that_is_said():
    with staged(slots=0) as one, Person(one, "") as person:
        page = ask(person, "select 1", 422)
        assert "query.engine" in page.text
        assert "select 1" in page.text


def test_a_query_that_is_none_is_not_shown(stage: Stage, writer: Person):
    stage.submit({"id": "a", "command": {"shell": "true"}}, run="no-query")
    assert "and no query" in writer.look("/queries?run=no-query", 404).text
    assert "run.unknown" in writer.look("/queries?run=never-was", 404).text


def test_pages_are_made_without_the_engine_and_without_arrow():
    line = "import sys, rota.app.pages; sys.exit(' '.join({'pyarrow', 'datafusion'} & set(sys.modules)) or 0)"
    assert subprocess.run([sys.executable, "-c", line], check=False).returncode == 0


def test_how_a_statement_was_planned_is_folded_beside_its_answer(stage: Stage, writer: Person):
    page = answered(writer, "select country, count(*) as people from people group by 1")
    summaries = [given for given in page.named("details") if given.get("class") == "plan"]
    assert summaries
    assert all("open" not in given for given in summaries)
    assert "Logical plan" in page.text
    assert "TableScan: people" in page.text
    assert "Physical plan" in page.text
    assert "DataSourceExec: file_groups={" in page.text
    assert "people.csv" not in page.html, "where a table is may be a secret"
    run = page.response.url.params["run"]
    assert "TableScan: people" in writer.look(f"/runs/{run}").text


def test_the_plan_of_a_program_s_query_is_on_the_page_of_its_run(stage: Stage, writer: Person, tmp_path: Path):
    (tmp_path / "trips.csv").write_text("k,v\n" + "\n".join(f"{number % 7},{number}" for number in range(1_000)))
    with rota.Session.on(stage.rota, partitions=2) as session:
        session.register_csv("trips", str(tmp_path / "trips.csv"))
        handle = session.submit("select k, sum(v) from trips group by k")
        handle.wait(PATIENCE_S)
    page = writer.look(f"/runs/{handle.id}")
    for word in ("Logical plan", "TableScan: trips", "Physical plan", "Stages", "Exchange: hash of stage-1"):
        assert word in page.text
    assert "trips.csv" not in page.html
