"""Names, sizes and habits: every file is held to the rules, and every rule is shown a file that breaks it."""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

from tests.tidy import rules

ROOT = Path(__file__).parents[2]
SRC = ROOT / "src" / "rota"
DETERMINISTIC = ("core", "control", "sim", "worker")
CACHES = ("__pycache__", "build", "dist", ".git")

Rule = Callable[[str], Iterator[str]]


def repository_files() -> Iterator[Path]:
    for top in sorted(ROOT.iterdir()):
        # In a second worktree .git is a file, and says where the first one is.
        if top.name in (*CACHES, ".git") or (top.is_dir() and top.name.startswith(".") and top.name != ".ci"):
            continue
        for path in [top] if top.is_file() else sorted(top.rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                yield path


def text_files() -> Iterator[Path]:
    return (path for path in repository_files() if b"\0" not in path.read_bytes())


def source_files() -> list[Path]:
    return sorted(SRC.rglob("*.py"))


def source_and_test_files() -> list[Path]:
    return source_files() + sorted((ROOT / "tests").rglob("*.py"))


def python_files() -> Iterator[Path]:
    return (path for path in repository_files() if path.suffix == ".py")


def files_without_print() -> Iterator[Path]:
    return (path for path in source_files() if path.relative_to(SRC).parts[0] != "cli")


def deterministic_files() -> Iterator[Path]:
    return (path for path in source_files() if path.relative_to(SRC).parts[0] in DETERMINISTIC)


HELD: list[tuple[Rule, Callable[[], Iterable[Path]]]] = [
    (rules.is_too_long, source_files),
    (rules.has_long_function, source_files),
    (rules.sleeps, source_and_test_files),
    (rules.prints, files_without_print),
    (rules.is_unfinished, source_and_test_files),
    (rules.names_a_machine_path, text_files),
    (rules.lacks_final_newline, text_files),
    (rules.suppresses_without_reason, python_files),
    (rules.iterates_over_set, deterministic_files),
]

BROKEN: list[tuple[Rule, str]] = [
    (rules.is_too_long, "x = 1\n" * 701),
    (rules.has_long_function, "def f():\n" + "    x = 1\n" * 70),
    (rules.has_long_function, "class A:\n    async def f(self):\n" + "        x = 1\n" * 70),
    (rules.sleeps, "import time\ntime.sleep(1)\n"),
    (rules.sleeps, "from time import monotonic, sleep\n"),
    (rules.prints, "def f():\n    print('here')\n"),
    (rules.is_unfinished, f"# {'TO'}DO: later\n"),
    (rules.is_unfinished, f'"""Works. {"FIX"}ME"""\n'),
    (rules.is_unfinished, f"x = 1  # {'X' * 3}\n"),
    (rules.names_a_machine_path, "see " + "/".join(("", "work", "main")) + "\n"),
    (rules.names_a_machine_path, "HOME='" + "/".join(("", "root", ".cache")) + "'\n"),
    (rules.lacks_final_newline, "x = 1"),
    (rules.lacks_final_newline, "x = 1\n\n"),
    (rules.suppresses_without_reason, "import os  # noqa\n"),
    (rules.suppresses_without_reason, "import os  # noqa: F401\n"),
    (rules.suppresses_without_reason, "import os  # noqa: F401, E402\n"),
    (rules.suppresses_without_reason, "x: int = ''  # type: ignore\n"),
    (rules.suppresses_without_reason, "x: int = ''  # type: ignore[assignment]  # why\n"),
    (rules.suppresses_without_reason, "x: int = ''  # pyright: ignore[reportAssignmentType]\n"),
    (rules.iterates_over_set, "for x in {1, 2}:\n    pass\n"),
    (rules.iterates_over_set, "for x in set(names):\n    pass\n"),
    (rules.iterates_over_set, "for x in frozenset(names) - gone:\n    pass\n"),
    (rules.iterates_over_set, "y = [x for x in {a.id for a in b}]\n"),
    (rules.iterates_over_set, "y = list(set(names))\n"),
    (rules.iterates_over_set, "y = ','.join({*names})\n"),
    (rules.iterates_over_set, "def f():\n    seen = set()\n    return [x for x in seen]\n"),
    (rules.iterates_over_set, "def f(seen: set[int]):\n    for x in seen:\n        g(x)\n"),
    (rules.iterates_over_set, "ENDED: Final = frozenset({1})\ndef f():\n    yield from ENDED\n"),
]

KEPT: list[tuple[Rule, str]] = [
    (rules.is_too_long, "x = 1\n" * 700),
    (rules.has_long_function, "def f():\n" + "    x = 1\n" * 69),
    (rules.names_a_machine_path, "GET /v1/work/claim and https://example.org/root/x and ./work/x\n"),
    (rules.suppresses_without_reason, "import os  # noqa: F401 - imported for its side effect\n"),
    (rules.suppresses_without_reason, "x = f()  # pyright: ignore[reportUnknown]  # the stub lacks a type\n"),
    (rules.iterates_over_set, "for x in sorted({1, 2}):\n    pass\nif x in {1, 2}:\n    pass\n"),
    (rules.iterates_over_set, "y = {*{1, 2}, 3}\nz = frozenset(x for x in y) | {x for x in y}\n"),
    (rules.iterates_over_set, "def f():\n    seen = set()\n    return len(seen)\ndef g(seen):\n    return [*seen]\n"),
]


def name_of(value: object) -> str:
    return getattr(value, "__name__", "example")


@pytest.mark.parametrize(("rule", "files"), HELD, ids=name_of)
def test_every_file_keeps_the_rule(rule: Rule, files: Callable[[], Iterable[Path]]) -> None:
    seen = list(files())
    assert seen, "a rule that is held to no file proves nothing"
    complaints = [
        f"{path.relative_to(ROOT)}:{complaint}" for path in seen for complaint in rule(path.read_text(encoding="utf-8"))
    ]
    assert not complaints, "\n".join(["", rule.__doc__ or "", *complaints])


@pytest.mark.parametrize(("rule", "text"), BROKEN, ids=name_of)
def test_a_file_that_breaks_the_rule_is_noticed(rule: Rule, text: str) -> None:
    assert list(rule(text))


@pytest.mark.parametrize(("rule", "text"), KEPT, ids=name_of)
def test_a_file_that_only_looks_like_it_is_left_alone(rule: Rule, text: str) -> None:
    assert not list(rule(text))


def test_every_rule_has_been_seen_to_fail() -> None:
    assert {name_of(rule) for rule, _ in HELD} == {name_of(rule) for rule, _ in BROKEN}


def test_modules_and_folders_say_what_they_hold() -> None:
    complaints = [
        f"{path.relative_to(ROOT)}: {complaint}"
        for path in source_files()
        for complaint in rules.has_vague_name(path.relative_to(SRC).parts)
    ]
    assert not complaints, "\n".join(["", *complaints])


@pytest.mark.parametrize("parts", [("core", "utils.py"), ("common", "ids.py"), ("api", "handlers.py")])
def test_a_vague_module_name_is_noticed(parts: tuple[str, ...]) -> None:
    assert list(rules.has_vague_name(parts))
