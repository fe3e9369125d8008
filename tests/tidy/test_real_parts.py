"""`make test` meets every real component at least once, in a file that is named here and in CONTRIBUTING.md."""

import ast
from pathlib import Path

ROOT = Path(__file__).parents[2]
PARTS = {
    "the store contract on PostgreSQL and etcd": "tests/contract/test_store_contract.py",
    "a failover with real processes": "tests/integration/failover/test_killed_leaders.py",
    "a Bazel build": "tests/integration/builds/clients/test_bazel.py",
    "a query on two workers": "tests/integration/queries/test_staged_tpch.py",
    "a browser": "tests/e2e/test_pages_in_a_browser.py",
    "an MCP client": "tests/integration/service/test_mcp.py",
    "an ADBC client": "tests/integration/queries/test_flight.py",
    "the wheel in an empty environment": "tests/install/test_wheel.py",
}


def left_to_others(decorated: list[ast.expr]) -> bool:
    return any(isinstance(each, ast.Attribute) and each.attr in ("full", "long") for each in decorated)


def run_in_make_test(source: str) -> list[str]:
    """The tests of a file that are marked neither full nor long."""
    tree = ast.parse(source)
    for node in tree.body:
        if (
            isinstance(node, ast.Assign)
            and ast.unparse(node.targets[0]) == "pytestmark"
            and "full" in ast.unparse(node)
        ):
            return []
    tests = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    return [node.name for node in tests if node.name.startswith("test_") and not left_to_others(node.decorator_list)]


def test_make_test_meets_every_real_component() -> None:
    lacking = [part for part, name in PARTS.items() if not run_in_make_test((ROOT / name).read_text(encoding="utf-8"))]
    assert lacking == []


def test_the_page_for_contributors_names_the_files() -> None:
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    assert [name for name in PARTS.values() if name.removeprefix("tests/") not in page] == []


def test_marks_are_seen() -> None:
    assert run_in_make_test("def test_a(): pass\n@pytest.mark.full\ndef test_b(): pass\n") == ["test_a"]
    assert run_in_make_test("pytestmark = pytest.mark.full\ndef test_a(): pass\n") == []
