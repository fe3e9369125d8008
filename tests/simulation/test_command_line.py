"""`rota sim` does what it was asked, or says what is wrong with the question: exit code 2, nothing on stdout."""

import json
import re

import pytest

from rota.cli import main
from rota.sim.mutants import BY_NAME

BROKEN_SOON = "story_without_numbers"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--mutants", ""), r"--mutants: .*''.* all, sample, "),
        (("--mutants", "nobody"), r"--mutants: .*'nobody'.* all, sample, "),
        (("--seed", "1", "--seeds", "5"), r"--seed .*--seeds$"),
        (("--seed", "0", "--first", "0"), r"--seed .*--first$"),
        (("--seed", "1", "--seeds", "5", "--first", "2"), r"--seed .*--seeds .*--first$"),
        (("--mutants", "sample", "--seed", "0"), r"--mutants .*--seed$"),
        (("--mutants", "sample", "--seeds", "7"), r"--mutants .*--seeds$"),
        (("--seed", "-1"), r"--seed: '-1' .*\b0\b"),
        (("--seed=-1",), r"--seed: '-1' .*\b0\b"),
        (("--first", "-3"), r"--first: '-3' .*\b0\b"),
        (("--seeds", "0"), r"--seeds: '0' .*\b1\b"),
        (("--seeds", "many"), r"--seeds: 'many' .*\b1\b"),
        (("--jobs", "1.5"), r"--jobs: '1\.5' .*\b1\b"),
    ],
)
def test_wrong_usage_is_named_and_nothing_is_run(
    words: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["sim", *words])
    captured = capsys.readouterr()
    assert stopped.value.code == 2
    assert re.search(said, captured.err.splitlines()[-1]), captured.err
    assert not captured.out


def test_the_help_of_a_wrong_name_lists_every_mutant(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["sim", "--mutants", "nobody"])
    said = capsys.readouterr().err
    assert all(name in said for name in BY_NAME)


def test_a_hunt_answers_in_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sim", "--mutants", BROKEN_SOON, "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["missed"] == []
    assert [found["mutant"] for found in answer["mutants"]] == [BROKEN_SOON]


def test_seeds_begin_where_they_are_told_to(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sim", "--first", "3", "--seeds", "1", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["speed"]["seeds"] == 1
    assert answer["broken"] == []
    assert answer["happened"]
