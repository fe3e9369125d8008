"""Values of common libraries on their whole way: returned by one task, taken by another, read by the client."""

from pathlib import Path
from typing import Any

import pytest

import rota
from rota.wire.values import PICKLE, pack
from tests.integration.service.pair import Pair
from tests.library_values import LARGE, MAKERS, make, same
from tests.refusals import refused

MANY = 200 * 1024 * 1024


@rota.task
def made(name: str, size: int) -> Any:
    return make(name, size)


@rota.task
def is_same(value: Any, name: str, size: int) -> bool:
    return same(value, make(name, size))


@rota.workflow
def passing_on(names: list[str], size: int):
    is_same.partial(size=size).expand_kwargs(pairs(made.partial(size=size).expand(name=names), names))


@rota.task
def pairs(values: list[Any], names: list[str]) -> list[dict[str, Any]]:
    return [{"value": value, "name": name} for value, name in zip(values, names, strict=True)]


@pytest.mark.slow
@pytest.mark.parametrize("threads", [False, True], ids=["processes", "threads"])
@pytest.mark.parametrize("size", [0, 100_000])
def test_a_value_is_passed_on_and_read_as_it_was(size: int, threads: bool, tmp_path: Path) -> None:
    names = list(MAKERS)
    with rota.Rota.embedded(tmp_path, threads=threads, slots=2) as one:
        run = one.submit(passing_on, {"names": names, "size": size})
        assert run.result("is_same", timeout_s=120) == [True] * len(names)
        for name, value in zip(names, run.result("made"), strict=True):
            assert same(value, make(name, size)), name


class Trap:
    """Opening it leaves a file behind."""

    def __init__(self, file: str) -> None:
        self.file = file

    def __reduce__(self) -> tuple[Any, ...]:
        return _open_trap, (self.file,)


def _open_trap(file: str) -> str:
    Path(file).touch()
    return file


@rota.task
def trap(file: str, padding: int) -> Any:
    return Trap(file), bytes(padding)


@pytest.mark.slow
@pytest.mark.parametrize("size", [0, 100_000])
def test_a_remote_client_is_given_values_and_opens_no_pickle(pair: Pair, size: int) -> None:
    with pair.connect(trust=False) as one:
        for name in MAKERS:
            run = one.submit(made, {"name": name, "size": size})
            assert run.wait(60).state == "success"
            expected = make(name, size)
            if pack(expected)[0] == PICKLE:
                with refused("result.untrusted", "'made'", "trust=True", path="task"):
                    run.result()
            else:
                assert same(run.result(), expected), name


@pytest.mark.slow
@pytest.mark.parametrize("padding", [0, 100_000])
def test_a_pickle_is_opened_only_by_a_client_that_trusts_its_coordinator(
    pair: Pair, padding: int, tmp_path: Path
) -> None:
    sprung = tmp_path / "sprung"
    with pair.connect(trust=False) as one, pair.connect() as trusting:
        run = one.submit(trap, {"file": str(sprung), "padding": padding})
        run.wait(60)
        for ask in (run.result, lambda: run.open(run.task("trap"))):
            with refused("result.untrusted"):
                ask()
        assert not sprung.exists()
        trusted = trusting.submit(trap, {"file": str(sprung), "padding": padding})
        assert trusted.result(timeout_s=60) == (str(sprung), bytes(padding))
        assert sprung.exists()


def test_a_client_of_its_own_folder_trusts_it_and_a_remote_one_has_to_say_so(pair: Pair, tmp_path: Path) -> None:
    with rota.Rota.embedded(tmp_path, threads=True) as one:
        assert one.submit(made, {"name": "set", "size": 40}, run="set").result() == set(range(10))
        # Through the socket of the process that holds the folder.
        with rota.Rota.open(tmp_path) as other:
            assert other.run("set").result() == set(range(10))
    with rota.connect(pair.url, tenant=pair.tenant()) as remote, refused("result.untrusted"):
        remote.submit(made, {"name": "set", "size": 40}).result(timeout_s=60)


@pytest.mark.full
@pytest.mark.parametrize("name", ["numpy", "pandas frame", "polars frame", "arrow table", "tensor", "bytes"])
def test_two_hundred_megabytes_are_passed_on(name: str, tmp_path: Path) -> None:
    @rota.workflow
    def alone(name: str, size: int):
        is_same(made(name, size), name, size)

    assert name in LARGE
    with rota.Rota.embedded(tmp_path, slots=1) as one:
        run = one.submit(alone, {"name": name, "size": MANY})
        assert run.result("is_same", timeout_s=300) is True
        assert same(run.result("made"), make(name, MANY))
