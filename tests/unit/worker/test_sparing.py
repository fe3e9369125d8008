"""Lines for an operator, now and then."""

from rota.worker.remote.sparing import KINDS_MAX, Sparing


def test_a_kind_of_line_is_said_once_in_a_while_and_the_rest_is_counted():
    now = [0.0]
    said: list[str] = []
    sparing = Sparing(said.append, lambda: now[0], every_s=10)
    for _ in range(5):
        sparing.tell("a", "first")
    sparing.tell("b", "other")
    now[0] = 10.0
    sparing.tell("a", "again")
    assert said == ["first", "other", "again (4 more like this)"]
    for number in range(KINDS_MAX * 10):
        sparing.tell(f"kind {number}", "many")
    assert len(said) <= KINDS_MAX + 10
