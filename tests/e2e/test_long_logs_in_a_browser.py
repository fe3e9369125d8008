"""A log of many megabytes in a real browser: whatever line is shown, linked to or found is that line of the raw log."""

import random
import re
from collections.abc import Iterator

import httpx
import pytest
from playwright.sync_api import Page, expect

from tests.e2e.conftest import PATIENCE_MS
from tests.e2e.test_pages_in_a_browser import ended, home, submit
from tests.integration.deadlines import until
from tests.integration.http_stage import shell
from tests.integration.service.stage import Stage, open_stage

pytestmark = pytest.mark.full

expect.set_options(timeout=PATIENCE_MS)
LINES = 160_000
ERROR_AT = 87_654
WIDE_AT = 100_001
# Much more than 8 MB; a line in colour, a progress bar and a line of 200 KB are among the others.
PRINTS = f"""awk 'BEGIN {{
  for (n = 1; n <= {LINES}; n++) {{
    if (n == 11) printf "\\033[31mred\\033[0m 11\\n";
    else if (n == 12) printf "10 %%\\r20 %%\\r12\\r\\n";
    else if (n == {ERROR_AT}) print "ValueError: no cheese in line " n;
    else if (n == {WIDE_AT}) {{ for (i = 0; i < 20000; i++) printf "0123456789"; print "" }}
    else printf "line %d of a long log, which goes on and on and on and on%s\\n", n, n % 1000 ? "" : " Needle";
  }}
}}'"""
MARKED = "document.querySelectorAll('.line').length"
FIRST = """() => { const log = document.getElementById('log');
  return [...log.querySelectorAll('.line')].find((line) => line.offsetTop + line.offsetHeight > log.scrollTop)?.id; }"""

SCROLL = """part => { const log = document.getElementById('log');
  log.scrollTop = part * (log.scrollHeight - log.clientHeight); }"""


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with open_stage(tmp_path_factory.mktemp("logs"), lease_s=20) as one:
        one.start_up("--slots=2")
        submit(one, "long", shell("talk", PRINTS))
        ended(one, "long")
        yield one


@pytest.fixture(scope="module")
def raw(stage: Stage) -> list[str]:
    """The oracle: the lines of the raw log."""

    def read() -> list[str]:
        text = httpx.get(f"{home(stage)}/runs/long/tasks/talk/log").text
        return text.split("\n")[:-1] if text.count("\n") == LINES else []

    return until(read, "the whole log")


@pytest.fixture
def log(stage: Stage, raw: list[str], page: Page) -> Page:
    """The page of the task, which shows the end of its log."""
    page.goto(f"{home(stage)}/runs/long/tasks/talk")
    expect(page.locator(f"#L{LINES}")).to_have_text(raw[-1])
    return page


def number_of(line: str | None) -> int:
    return int((line or "L0")[1:])


def found(page: Page) -> int:
    expect(page.locator(".line.now")).to_have_count(1)
    return number_of(page.locator(".line.now").get_attribute("id"))


def test_a_link_to_a_line_shows_that_line_of_the_raw_log(stage: Stage, raw: list[str], page: Page):
    chance = random.Random(7)
    plain = [1, 2, ERROR_AT, LINES, *(chance.randrange(1, LINES) for _ in range(5))]
    for number in plain:
        page.goto("about:blank")
        page.goto(f"{home(stage)}/runs/long/tasks/talk?attempt=1#L{number}")
        expect(page.locator(".line.here")).to_have_text(raw[number - 1])
        expect(page.locator(".line.here")).to_be_in_viewport()
        assert number_of(page.locator(".line.here").get_attribute("id")) == number
        assert page.evaluate(MARKED) <= 800, "only lines that are looked at are in the page"
    page.goto("about:blank")
    page.goto(f"{home(stage)}/runs/long/tasks/talk?attempt=1#L11-L12")
    expect(page.locator(".line.here")).to_have_text(["red 11", re.compile("^10 %\\s+20 %\\s+12\\s*$")])


def test_scrolling_to_any_place_shows_the_lines_of_that_place(log: Page, raw: list[str]):
    for part in (0.5, 0.1, 0.93, 0, 1):
        log.evaluate(SCROLL, part)
        number = until(
            lambda part=part: n if abs((n := number_of(log.evaluate(FIRST))) - part * LINES) < LINES / 100 else 0,
            f"the lines at {part}",
        )
        if number != WIDE_AT:
            expect(log.locator(f"#L{number}")).to_have_text(raw[number - 1])
        assert log.evaluate(MARKED) <= 800


def test_the_first_error_is_the_first_of_the_raw_log(log: Page, raw: list[str]):
    log.keyboard.press("e")
    assert found(log) == next(n for n, line in enumerate(raw, 1) if "Error" in line) == ERROR_AT
    expect(log.locator(".line.now")).to_be_in_viewport()


@pytest.mark.parametrize("text", ["needle", "line 15999", "0123456789", "of a LONG log", "nothing of this"])
def test_a_search_finds_as_many_lines_as_one_in_the_raw_log(log: Page, raw: list[str], text: str):
    expected = [n for n, line in enumerate(raw, 1) if text.lower() in line.lower()]
    field = log.get_by_label("Search the log")
    field.fill(text)
    known = min(len(expected), 100_000)
    said = {0: "no lines", 1: "1 line"}.get(known, f"{known}{'+' if known < len(expected) else ''} lines")
    expect(log.locator("#log-bar output")).to_have_text(said)
    for number in expected[:3]:
        field.press("Enter")
        expect(log.locator(f"#L{number}.now")).to_be_in_viewport()
        assert found(log) == number
    if 1 < len(expected) <= known:
        for number in (*reversed(expected[:2]), expected[-1]):
            field.press("Shift+Enter")
            expect(log.locator(f"#L{number}.now")).to_be_in_viewport()
