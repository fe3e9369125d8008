"""One client's side of the desk: numbers that are used again, and the end."""

import asyncio
from pathlib import Path

from rota.api.counter import Counter
from rota.core.questions import ListWorkers
from rota.wire.requests import Forget, Request, Response, Watch, pack
from tests.unit.client.ways import ADMIN, TENANT, Host, Office, story


class Listening(Counter):
    """A client in this process."""

    def __init__(self, office: Office) -> None:
        super().__init__(office.desk, ADMIN)
        self.heard: list[Response] = []

    def send(self, response: Response) -> None:
        self.heard.append(response)


def test_a_watch_under_a_number_in_use_takes_its_place(tmp_path: Path):
    async def use() -> None:
        office = Office(Host(), tmp_path)
        counter = Listening(office)
        await counter.take(pack(Request(1, Watch(TENANT, "r"))))
        await counter.take(pack(Request(1, Watch(TENANT, "s"))))
        (watcher,) = office.host.watchers
        watcher([story(0, "r")])
        assert counter.heard == []
        watcher([story(0, "s")])
        assert [(each.number, each.more) for each in counter.heard] == [(1, True)]
        await counter.take(pack(Request(2, Forget(1))))
        assert office.host.watchers == []

    asyncio.run(use())


def test_a_question_under_a_number_in_use_is_the_one_that_is_answered(tmp_path: Path):
    async def use() -> None:
        office = Office(Host(), tmp_path)
        counter = Listening(office)
        first, second = asyncio.Event(), asyncio.Event()
        gates = [first, second]
        office.host.answer = lambda request: gates.pop(0)
        for _ in range(2):
            await counter.take(pack(Request(1, ListWorkers(tenant=TENANT))))
            await asyncio.sleep(0)
        first.set()
        second.set()
        while not counter.heard:
            await asyncio.sleep(0)
        for _ in range(5):
            await asyncio.sleep(0)
        assert [each.number for each in counter.heard] == [1]
        assert counter._asking == {}

    asyncio.run(use())


def test_nothing_is_said_after_the_end(tmp_path: Path):
    async def use() -> None:
        office = Office(Host(), tmp_path)
        counter, other = Listening(office), Listening(office)
        other.send = lambda response: counter.close()
        gate = asyncio.Event()
        office.host.answer = lambda request: gate
        for each in (other, counter):
            await each.take(pack(Request(1, Watch(TENANT, "r"))))
            await each.take(pack(Request(2, ListWorkers(tenant=TENANT))))
        # The first hears it, and with that the second ends in the middle of the telling.
        office.host.watchers[0]([story(0)])
        office.host.watchers[0]([story(1)])
        gate.set()
        while other._asking:
            await asyncio.sleep(0)
        counter.say(Response(1))
        await counter.take(pack(Request(3, ListWorkers(tenant=TENANT))))
        assert counter.heard == []
        assert counter._asking == counter._held == {}
        other.close()
        assert office.host.watchers == []

    asyncio.run(use())
