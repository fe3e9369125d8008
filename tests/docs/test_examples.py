"""What the documents show works when it is pasted, and every example runs."""

import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.request import urlopen

import pytest

from rota.cli import EXIT_REFUSED, main

ROOT = Path(__file__).parents[2]
_PYTHON = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks(document: str) -> list[str]:
    return _PYTHON.findall((ROOT / document).read_text(encoding="utf-8"))


def python(*words: str, cwd: Path) -> str:
    """What a program of its own prints."""
    ended = subprocess.run([sys.executable, *words], cwd=cwd, capture_output=True, text=True, check=False, timeout=120)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def test_the_first_example_prints_what_the_readme_says(tmp_path: Path) -> None:
    (code,) = blocks("README.md")
    (tmp_path / "daily.py").write_text(code, encoding="utf-8")
    assert python("daily.py", cwd=tmp_path) == "8\n"
    assert "total: 8\n" in python("-m", "rota.cli", "run", "daily.py", "--param", "day=monday", cwd=tmp_path)
    assert python("-m", "rota.cli", "runs", cwd=tmp_path).count("success") == 4


def test_the_guide_to_the_embedded_runtime_works_as_one_program(tmp_path: Path) -> None:
    code = blocks("docs/guides/embedded.md")
    guarded = [code[0], 'if __name__ == "__main__":', *(f"    {line}" for line in code[1].splitlines()), code[2]]
    (tmp_path / "guide.py").write_text("\n".join([*guarded, "test_the_total()"]), encoding="utf-8")
    printed = python("guide.py", cwd=tmp_path).splitlines()
    assert printed[-1] == "6"
    assert "RunEnded None success" in printed


def test_the_guide_to_workflows_works_as_one_program(tmp_path: Path) -> None:
    code = "\n".join([*blocks("docs/guides/workflows.md"), "test_a_good_day()", "print('passed')"])
    (tmp_path / "guide.py").write_text(code, encoding="utf-8")
    assert python("guide.py", cwd=tmp_path) == "passed\n"


def test_the_guide_to_agents_works_as_it_stands(tmp_path: Path) -> None:
    (code,) = blocks("docs/guides/agents.md")
    (tmp_path / "guide.py").write_text(code, encoding="utf-8")
    assert python("guide.py", cwd=tmp_path) == "812\n"


def test_the_guide_to_queries_works_as_it_stands(tmp_path: Path) -> None:
    (code,) = blocks("docs/guides/queries.md")
    (tmp_path / "guide.py").write_text(code, encoding="utf-8")
    assert python("guide.py", cwd=tmp_path) == "Rome 30\nOslo 19\n2\n"


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


@contextmanager
def serving(cwd: Path) -> Iterator[tuple[str, str]]:
    """`rota up` on free ports: where gRPC and HTTP are."""
    words = ["-m", "rota", "up", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"]
    process = subprocess.Popen([sys.executable, *words], cwd=cwd, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        ready = next(line for line in process.stderr if "ready:" in line)
        found = re.search(r"ready: (grpc://\S+) and (http://\S+);", ready)
        assert found is not None, ready
        yield found[1], found[2]
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=30)


def test_the_guide_to_the_service_works_as_it_stands(tmp_path: Path) -> None:
    (tmp_path / "daily.py").write_text(blocks("README.md")[0], encoding="utf-8")
    (code,) = blocks("docs/guides/service.md")
    text = (ROOT / "docs/guides/service.md").read_text(encoding="utf-8")
    commands = [
        line.split()[1:] for line in text.splitlines() if line.startswith(("rota pools", "rota queues", "rota tenants"))
    ]
    with serving(tmp_path) as (grpc, http):
        used = code.replace("grpc://127.0.0.1:7433", grpc)
        (tmp_path / "use.py").write_text(f"from daily import daily\n{used}", encoding="utf-8")
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
