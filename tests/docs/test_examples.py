"""What the documents show works when it is pasted, and every example runs."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

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


@pytest.mark.parametrize("example", sorted((ROOT / "examples").glob("*.py")), ids=lambda path: path.name)
def test_every_example_runs(example: Path, tmp_path: Path) -> None:
    assert python(str(example), cwd=tmp_path).strip(), "an example shows something"
