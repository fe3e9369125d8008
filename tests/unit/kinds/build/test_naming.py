"""Names of operations: everything that is needed to find one again."""

import pytest

from rota.core.ids import Digest
from rota.kinds.build.naming import OperationName, new_name, new_run, read_name

ACTION = Digest("ab" * 32, 17)


@pytest.mark.parametrize("instance", ["", "main", "a/b/c", "operations", "operations/operations", "x y"])
def test_a_name_says_which_run_of_which_instance_it_is(instance: str) -> None:
    name = new_name(instance, new_run(ACTION))
    assert read_name(str(name)) == name


@pytest.mark.parametrize("instance", ["", "a/b"])
def test_a_name_of_a_cached_result_says_which_action_it_was(instance: str) -> None:
    name = OperationName(instance, cached=ACTION)
    assert read_name(str(name)) == name


def test_each_client_has_a_name_of_its_own() -> None:
    run = new_run(ACTION)
    assert new_name("", run) != new_name("", run)
    assert new_run(ACTION) != run


@pytest.mark.parametrize(
    "text",
    [
        "",
        "operations",
        "operations/",
        "build-abababababab-0123456789abcdef.1",
        "operations/etl-1.1",
        "operations/build-abababababab-0123456789abcdef",
        "operations/build-abababababab-0123456789abcdef.",
        "operations/build-abababababab-0123456789abcdef.1.2",
        "operations/build-ABABABABABAB-0123456789abcdef.1",
        "xoperations/build-abababababab-0123456789abcdef.1",
        "operations/cached-ab-1",
        f"operations/cached-{'ab' * 32}--1",
        "operations/build-abababababab-0123456789abcdef.1\n",
    ],
)
def test_what_is_no_name_of_ours_is_noticed(text: str) -> None:
    assert read_name(text) is None
