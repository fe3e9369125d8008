"""The journal: a line for everything an operator should know, and a bounded number of lines."""

import asyncio
import json

from rota.app.journal import RARE, RARE_EVERY_MS, Journal
from rota.control.events import Escalate, Level, Tell
from rota.core.ladder import Tier


class Desk:
    """A journal with a clock to move and the lines it wrote."""

    def __init__(self) -> None:
        self.now = 1_700_000_000_000
        self.text = ""
        self.wall = self.now
        self.journal = Journal(lambda: self.now, self.write, lambda: self.wall)

    def write(self, line: str) -> None:
        self.text += line

    @property
    def lines(self) -> list[dict[str, str]]:
        return [json.loads(line) for line in self.text.splitlines()]


def test_what_is_told_becomes_one_line_of_json():
    desk = Desk()
    desk.journal(Tell("step_down", (("reason", "two\nlines"), ("at", "never"))))
    desk.journal(Escalate("acme", "r", 3, 2))
    assert desk.lines == [
        {
            "at": "2023-11-14T22:13:20.000+00:00",
            "level": "warning",
            "what": "step_down",
            "reason": "two\nlines",
            "_at": "never",
        },
        {
            "at": "2023-11-14T22:13:20.000+00:00",
            "level": "info",
            "what": "starved",
            "tenant": "acme",
            "run": "r",
            "task": "3",
            "tier": "2",
        },
    ]


def test_a_task_that_nobody_can_do_is_told_loudly_once_with_its_reason():
    desk = Desk()
    for is_new in (True, False):
        desk.journal(Escalate("acme", "r", 0, Tier.EVENT, is_new=is_new, why="no worker fits"))
    first, second = desk.lines
    assert (first["what"], first["level"], first["reason"]) == ("task.starved", "warning", "no worker fits")
    assert (second["what"], second["level"]) == ("starved", "info")


def test_a_line_has_no_secret_whoever_wrote_it():
    desk = Desk()
    desk.journal(Tell("store.away", (("error", "postgresql://rota:hunter2@db/rota?password=hunter2 is gone"),)))
    desk.journal(Tell("request.failed", (("error", "Authorization: Bearer hunter2-and-more; api_key='hunter2'"),)))
    assert "hunter2" not in desk.text
    assert "://…@db/rota" in desk.text


def test_whoever_tells_something_may_be_louder_than_usual_and_never_quieter():
    desk = Desk()
    desk.journal(Tell("spawner.ended", level=Level.ERROR))
    desk.journal(Tell("fault", level=Level.INFO))
    assert [line["level"] for line in desk.lines] == ["error", "error"]


def test_a_kind_that_repeats_is_cut_short_and_summed_up_and_others_are_not_disturbed():
    desk = Desk()
    for _ in range(1_000):
        desk.journal(Tell("fault"))
    desk.journal(Tell("step_down"))
    assert [line["what"] for line in desk.lines] == ["fault"] * 10 + ["step_down"]
    desk.now += 1_000
    desk.journal(Tell("fault"))
    assert [line.get("more") for line in desk.lines[11:]] == ["990", None]


def test_what_was_left_out_is_said_at_the_end():
    desk = Desk()
    for _ in range(12):
        desk.journal(Tell("fault"))
    desk.journal.close()
    assert desk.lines[-1]["more"] == "2"


def test_long_words_are_cut_and_new_kinds_without_end_do_not_fill_memory():
    desk = Desk()
    desk.journal(Tell("x", (("error", "e" * 100_000),)))
    assert len(desk.lines[0]["error"]) == 1_000
    for number in range(10_000):
        desk.journal(Tell(f"kind-{number}"))
    assert len(desk.lines) == 200
    desk.journal.close()
    assert desk.lines[-1] == {**desk.lines[-1], "what": "other", "more": str(10_001 - 200)}


def test_a_day_that_is_set_back_stops_no_lines():
    desk = Desk()
    for _ in range(12):
        desk.journal(Tell("fault"))
    desk.wall -= 3_600_000
    desk.now += 1_000
    desk.journal(Tell("fault"))
    assert [line.get("more") for line in desk.lines[10:]] == ["2", None]
    assert desk.lines[-1]["at"].startswith("2023-11-14T21:13:20"), "what is written is the time of day"


def test_one_noisy_cause_hides_no_other():
    desk = Desk()
    for _ in range(1_000):
        desk.journal(Tell("auth.refused", (("cause", "auth.wrong"), ("peer", "a"))))
    desk.journal(Tell("auth.refused", (("cause", "auth.tenant"), ("peer", "b"))))
    assert [line["cause"] for line in desk.lines] == ["auth.wrong"] * 10 + ["auth.tenant"]
    desk.journal.close()
    assert desk.lines[-1] == {**desk.lines[-1], "what": "auth.refused", "cause": "auth.wrong", "more": "990"}


def test_what_repeats_by_itself_is_said_once_in_half_a_minute_for_each_cause():
    desk = Desk()
    for _ in range(RARE_EVERY_MS // 1_000):
        for cause in ("auth.wrong", "leader.none"):
            desk.journal(Tell(RARE[0], (("cause", cause), ("error", "no"))))
        desk.now += 1_000
    assert [line["cause"] for line in desk.lines] == ["auth.wrong", "leader.none"]
    desk.journal(Tell(RARE[0], (("cause", "auth.wrong"), ("error", "still"))))
    assert [line.get("more") for line in desk.lines[2:]] == ["29", "29", None]


def test_what_was_left_out_is_said_though_nothing_more_happens():
    desk = Desk()

    async def wait() -> None:
        summed_up = asyncio.Event()

        def write(line: str) -> None:
            desk.write(line)
            if "more" in line:
                summed_up.set()

        loop = asyncio.get_running_loop()
        journal = Journal(lambda: round(loop.time() * 1_000), write)
        journal.start()
        for _ in range(12):
            journal(Tell("fault"))
        async with asyncio.timeout(20):
            await summed_up.wait()
        journal.close()

    asyncio.run(wait())
    assert [line.get("more") for line in desk.lines[10:]] == ["2"]
