"""What the documents show works when it is pasted, and every example runs."""

import shlex
import subprocess
import sys
from pathlib import Path
from urllib.request import urlopen

import pytest

from rota.cli import EXIT_REFUSED, main
from scripts.serving import serving
from tests.docs import stories
from tests.docs.test_stories import TOLD

pytestmark = pytest.mark.full

ROOT = Path(__file__).parents[2]
# How many blocks of Python the tests of this file run of each document; stories are run by tests of their own.
RUN_HERE = {
    "docs/guides/agents.md": 1,
    "docs/guides/embedded.md": 3,
    "docs/guides/queries.md": 2,
    "docs/guides/service.md": 1,
    "docs/guides/streams.md": 1,
    "docs/guides/workflows.md": 4,
    "docs/reference/metrics.md": 1,
}


def blocks(document: str) -> list[str]:
    """The Python of a document, but for what it says is not run."""
    found = stories.blocks((ROOT / document).read_text(encoding="utf-8"))
    return [block.text for block in found if block.language == "python" and not block.mark.startswith("not run: ")]


def test_every_block_of_python_is_run_or_says_why_not() -> None:
    documents = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    counted = {str(path.relative_to(ROOT)): len(blocks(str(path.relative_to(ROOT)))) for path in documents}
    told = {str(path.relative_to(ROOT)) for path in TOLD}
    assert {name: count for name, count in counted.items() if count and name not in told} == RUN_HERE


def python(*words: str, cwd: Path) -> str:
    """What a program of its own prints."""
    ended = subprocess.run([sys.executable, *words], cwd=cwd, capture_output=True, text=True, check=False, timeout=120)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def test_the_guide_to_the_embedded_runtime_works_as_one_program(tmp_path: Path) -> None:
    code = blocks("docs/guides/embedded.md")
    (tmp_path / "guide.py").write_text("\n".join([*code, "test_the_total()"]), encoding="utf-8")
    printed = python("guide.py", cwd=tmp_path).splitlines()
    assert printed[-1] == "6"
    assert "RunEnded None success" in printed


def test_the_guide_to_workflows_works_as_one_program(tmp_path: Path) -> None:
    code = "\n".join([*blocks("docs/guides/workflows.md"), "test_a_good_day()", "print('passed')"])
    (tmp_path / "guide.py").write_text(code, encoding="utf-8")
    assert python("guide.py", cwd=tmp_path) == "passed\n"


@pytest.mark.parametrize("broken", ["load", "publish"])
def test_a_run_that_the_guide_alerts_of_has_failed(broken: str, tmp_path: Path) -> None:
    code = "\n".join(
        [
            *blocks("docs/guides/workflows.md"),
            "def fails(*args): raise ValueError('no')",
            f"bad = run_workflow(nightly, replace={{{broken!r}: fails}})",
            "good = run_workflow(nightly)",
            "print(bad.state, bad.tasks['alert'].state, good.state, good.tasks['alert'].state)",
        ]
    )
    (tmp_path / "guide.py").write_text(code, encoding="utf-8")
    alerted, ended = python("guide.py", cwd=tmp_path).splitlines()
    assert alerted.startswith("nightly trial: ")
    assert ended == "failed failed success skipped"


def test_the_guide_to_agents_works_as_it_stands(tmp_path: Path) -> None:
    (code,) = blocks("docs/guides/agents.md")
    (tmp_path / "guide.py").write_text(code, encoding="utf-8")
    assert python("guide.py", cwd=tmp_path) == "812\n"


def test_the_guide_to_queries_works_as_it_stands(tmp_path: Path) -> None:
    code, in_a_workflow = blocks("docs/guides/queries.md")
    (tmp_path / "guide.py").write_text(code, encoding="utf-8")
    assert python("guide.py", cwd=tmp_path) == "Rome 30\nOslo 19\n2\n"
    (tmp_path / "workflow.py").write_text(in_a_workflow, encoding="utf-8")
    used = """
from rota.testing import run_workflow

@rota.workflow
def report():
    totals(trips(), cities(), 10)

print(run_workflow(report).results["totals"].to_pylist())
"""
    (tmp_path / "use.py").write_text(
        f"import rota\nfrom workflow import cities, totals, trips\n{used}", encoding="utf-8"
    )
    assert python("use.py", cwd=tmp_path) == "[{'land': 'Norway', 'km': 12}, {'land': 'Italy', 'km': 30}]\n"


def test_the_recorder_on_the_page_of_metrics_is_told_of_moves(tmp_path: Path) -> None:
    (code,) = blocks("docs/reference/metrics.md")
    (tmp_path / "recorder.py").write_text(code, encoding="utf-8")
    assert python("recorder.py", cwd=tmp_path) == "1\n"


def test_the_guide_to_streams_works_as_it_stands(tmp_path: Path) -> None:
    (code,) = blocks("docs/guides/streams.md")
    (tmp_path / "guide.py").write_text(code, encoding="utf-8")
    assert python("guide.py", cwd=tmp_path) == "at least once\n1 Oslo 0 2\n"


def test_the_commands_of_the_guide_to_agents_are_understood(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "docs/guides/agents.md").read_text(encoding="utf-8")
    typed = [line.partition("#")[0] for line in text.splitlines() if line.startswith("rota ")]
    assert len(typed) > 10
    for line in typed:
        # There is no data, so each is refused for want of that and for nothing else.
        assert main([*shlex.split(line)[1:], "--data", "none"]) == EXIT_REFUSED
        assert "store.missing" in capsys.readouterr().err


def test_the_guide_to_the_service_works_as_it_stands(tmp_path: Path) -> None:
    (tmp_path / "daily.py").write_text(blocks("README.md")[0], encoding="utf-8")
    (code,) = blocks("docs/guides/service.md")
    text = (ROOT / "docs/guides/service.md").read_text(encoding="utf-8")
    commands = [
        line.split()[1:] for line in text.splitlines() if line.startswith(("rota pools", "rota queues", "rota tenants"))
    ]
    with serving(tmp_path) as (grpc, http):
        used = code.replace("grpc://127.0.0.1:7433", grpc)
        (tmp_path / "use.py").write_text(used, encoding="utf-8")
        assert python("use.py", cwd=tmp_path) == "8\n"
        with urlopen(f"{http}/api/v1/runs") as answer:  # noqa: S310 - our own service
            assert b'"state":"success"' in answer.read()
        assert len(commands) == 3
        for words in commands:
            python("-m", "rota", *words, "--coordinator", grpc, cwd=tmp_path)
        assert "PutPool" in python("-m", "rota", "audit", cwd=tmp_path)


@pytest.mark.parametrize("example", sorted((ROOT / "examples").glob("*.py")), ids=lambda path: path.name)
def test_every_example_runs(example: Path, tmp_path: Path) -> None:
    assert python(str(example), cwd=tmp_path).strip(), "an example shows something"
