"""`rota sim` does what it was asked, or says what is wrong with the question: exit code 2, nothing on stdout."""

import json

import pytest

from rota.cli import main
from rota.sim.mutants import BY_NAME

BROKEN_SOON = "story_without_numbers"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--mutants", ""), "no mutant ''; there are all, sample, "),
        (("--mutants", "nobody"), "no mutant 'nobody'; there are all, sample, "),
        (("--seed", "1", "--seeds", "5"), "--seed does not go with --seeds"),
        (("--seed", "0", "--first", "0"), "--seed does not go with --first"),
        (("--seed", "1", "--seeds", "5", "--first", "2"), "--seed does not go with --seeds and --first"),
        (("--mutants", "sample", "--seed", "0"), "--mutants does not go with --seed"),
        (("--mutants", "sample", "--seeds", "7"), "--mutants does not go with --seeds"),
        (("--seed", "-1"), "'-1' is not a whole number of 0 or more"),
        (("--seed=-1",), "'-1' is not a whole number of 0 or more"),
        (("--first", "-3"), "'-3' is not a whole number of 0 or more"),
        (("--seeds", "0"), "'0' is not a whole number of 1 or more"),
        (("--seeds", "many"), "'many' is not a whole number of 1 or more"),
        (("--jobs", "1.5"), "'1.5' is not a whole number of 1 or more"),
    ],
)
def test_wrong_usage_is_named_and_nothing_is_run(
    words: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["sim", *words])
    captured = capsys.readouterr()
    assert stopped.value.code == 2
    assert said in captured.err
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
