"""What is archived is given back: no container of a coordinator grows with the number of runs and items that ended."""

import gc
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest
from msgspec import structs

from rota.api import sessions, wakes
from rota.api.http import feed
from rota.control import tally
from rota.core import order
from rota.core.bounds import TimeLimits
from rota.core.decide import decision
from rota.stores.sqlite import opening
from rota.ui import reading
from tests.container_sizes import grown, sizes_of
from tests.integration.deadlines import until
from tests.integration.http_stage import Stage, shell, staged
from tests.integration.page_stage import BROWSER

ROUND = 60
# What is bounded by a number is bounded by a small one here, so that what has no bound shows.
BOUND = 20
CACHE_KB = 256


@pytest.fixture
def bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decision, "RECEIPTS_MAX", BOUND)
    monkeypatch.setattr(decision, "RECEIPTS_KEPT_MS_LEAST", 0)
    monkeypatch.setattr(order, "HEAP_SLACK", 0)
    monkeypatch.setattr(sessions, "ENDED_TOKENS_MAX", BOUND)
    monkeypatch.setattr(wakes, "KEPT_MAX", 4)
    monkeypatch.setattr(reading, "VIEWS_KEPT_MAX", BOUND)
    monkeypatch.setattr(reading, "SUMS_KEPT_MAX", BOUND)
    monkeypatch.setattr(feed, "EVENTS_KEPT_MAX", BOUND)
    monkeypatch.setattr(tally, "GRAPHS_SHOWN_MAX", BOUND)
    monkeypatch.setattr(opening, "CACHE_KB", CACHE_KB)
    monkeypatch.setattr(feed, "RUNS_KNOWN_MAX", BOUND)


@pytest.fixture
def stage(bounded: None, tmp_path: Path) -> Iterator[Stage]:
    limits = structs.replace(TimeLimits(), retain_ended_ms=50)
    with staged(tmp_path, limits=limits) as one:
        yield one


class Load:
    """Runs and items of every outcome, sessions that come and go, and people who look."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.number = 0

    def post(self, path: str, body: Any = None) -> Any:
        response = self.stage.http.post(f"/api/v1/{path}", json=body or {})
        assert response.is_success, response.text
        return response.json() if response.content else None

    def step(self) -> None:
        self.number += 1
        number = self.number
        how = number % 4
        # One that is cancelled must not have ended before.
        line = {1: "exit 1", 2: "sleep 1000"}.get(how, "true")
        tasks = [shell("a", line), shell("b", upstream=["a"])]
        run = self.post("runs", {"graph": {"name": f"g{number}", "tasks": tasks}, "params": {"number": number}})["id"]
        if how == 2:
            self.post(f"runs/{run}/cancel")
        session = f"session-{number % 5}" if how else f"session-{number}"
        self.post("sessions", {"session": session, "limit": 2, "workspace": f"w{how}"})
        body = {"title": f"title {number}", "payload": {"number": number}, "workspace": f"w{how}", "max_attempts": 1}
        self.post("work", body)
        for claim in self.post(f"sessions/{session}/claims")["claims"]:
            said: dict[str, Any] = {"fence": claim["fence"], "token": claim["token"]}
            verb, more = ("fail", {"error": f"error {number}"}) if how == 3 else ("complete", {"result": number})
            self.post(f"sessions/{session}/claims/{claim['item']}/{verb}", {**said, **more})
        if not how:
            assert self.stage.http.delete(f"/api/v1/sessions/{session}").is_success
        if number % 3 == 0:
            for path in ("/", "/runs", f"/runs/{run}", "/work", f"/api/v1/runs/{run}", "/metrics"):
                self.stage.http.get(path, headers=BROWSER)

    def run(self, count: int) -> None:
        """So many steps, until what they left is archived."""
        for _ in range(count):
            self.step()
        until(lambda: self.stage.call(self.is_given_back), "everything to be archived")
        # What the test itself counts.
        self.stage.counts.seen.clear()
        gc.collect()

    def is_given_back(self) -> bool:
        """Definitions go a moment after the last run that used them."""
        state = self.loop.state
        return not state.runs and all(graph.users for graph in state.graphs.values())

    @property
    def loop(self) -> Any:
        loop = self.stage.line.driver.machine.loop
        assert loop is not None
        return loop

    def sizes(self) -> dict[str, int]:
        stage, driver = self.stage, self.stage.line.driver
        return stage.call(
            lambda: sizes_of(
                machine=driver.machine, desk=stage.line.desk, service=stage.service, server=stage.server, driver=driver
            )
        )


def test_no_container_grows_with_the_runs_and_items_that_ended(stage: Stage):
    load = Load(stage)
    # Until everything that is bounded is full.
    load.run(ROUND)
    before, native = load.sizes(), apsw.memory_used()
    load.run(2 * ROUND)
    assert grown(before, load.sizes(), by=ROUND // 3) == []
    assert apsw.memory_used() - native < CACHE_KB * 1024, "SQLite keeps no more than its cache"


def test_the_walk_notices_a_container_that_grows(stage: Stage):
    load = Load(stage)
    load.run(10)
    before = load.sizes()
    stage.line.desk.forgotten = {number: f"run {number}" for number in range(100)}  # pyright: ignore[reportAttributeAccessIssue] - on purpose
    assert [line.partition(":")[0] for line in grown(before, load.sizes(), by=50)] == ["desk.forgotten"]


@pytest.mark.long
def test_memory_is_flat_over_many_runs(tmp_path: Path):
    """As many runs and items as an hour of steady work has; the last two thirds take no more memory than a cache."""
    limits = structs.replace(TimeLimits(), retain_ended_ms=200)
    with staged(tmp_path, limits=limits) as stage:
        load = Load(stage)
        load.run(1_000)
        first = _resident_bytes()
        began = time.monotonic()
        load.run(2_000)
        last = _resident_bytes()
        assert last - first < 8 * 1024 * 1024, f"{last - first:,} bytes in {time.monotonic() - began:.0f} s"


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096
