"""The content against a dictionary: whatever is done in whatever order, nothing wrong is given out and nothing that has
to stay goes."""

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from rota.ports import ContentFull, ContentLost
from rota.stores.blobs import open_blobs
from rota.stores.cas.packs import ITEM_BYTES
from tests.effort import examples
from tests.unit.stores.cas.stage import ACME, OTHER, Stage, digest_of, some_bytes

pytestmark = pytest.mark.slow

CONTENTS = [some_bytes(size, seed) for size in (10, 900, 5_000) for seed in range(6)]
content_numbers = st.integers(0, len(CONTENTS) - 1)
tenants = st.sampled_from([ACME, OTHER])


class ContentMachine(RuleBasedStateMachine):
    """Room for a few contents, packs for a few more, and a clock that moves now and then."""

    is_local = True

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.folder = TemporaryDirectory()
        blobs = None if self.is_local else open_blobs("memory:///")
        self.stage = Stage(
            Path(self.folder.name),
            blobs,
            bytes_max=30_000,
            small_bytes_max=1_000,
            pack_bytes_max=3_000,
            recent_bytes_max=1_500,
        )
        # When each was used last that may be there, and all that were ever put: packs may still hold what went.
        self.used: dict[tuple[str, int], int] = {}
        self.put_once: set[tuple[str, int]] = set()
        self.keep_from: int | None = None
        self.do(self.stage.open())

    def do(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self.loop.run_until_complete(asyncio.wait_for(work, 60))

    @rule(number=content_numbers, tenant=tenants)
    def put(self, number: int, tenant: str) -> None:
        try:
            self.do(self.stage.put(CONTENTS[number], tenant))
        except ContentFull:
            assert self.keep_from is not None, "something can always go"
        else:
            self.used[tenant, number] = self.stage.now
            self.put_once.add((tenant, number))

    @rule(number=content_numbers, tenant=tenants, parts=st.integers(1, 4), is_finished=st.booleans())
    def upload(self, number: int, tenant: str, parts: int, is_finished: bool) -> None:
        content = CONTENTS[number]

        async def send() -> None:
            upload = self.stage.content.upload(tenant, digest_of(content), "u")
            step = len(content) // parts + 1
            for offset in range(0, len(content) if is_finished else step, step):
                await upload.write(offset, content[offset : offset + step])
            if is_finished:
                await upload.finish()

        try:
            self.do(send())
        except ContentFull:
            assert self.keep_from is not None, "something can always go"
        else:
            if is_finished:
                self.used[tenant, number] = self.stage.now
                self.put_once.add((tenant, number))

    @rule(number=content_numbers, tenant=tenants, offset=st.integers(0, 10), limit=st.integers(0, 6_000))
    def read(self, number: int, tenant: str, offset: int, limit: int) -> None:
        content = CONTENTS[number]

        async def whole() -> bytes:
            reading = self.stage.content.read(tenant, digest_of(content), offset, limit)
            return b"".join([piece async for piece in reading])

        try:
            assert self.do(whole()) == content[offset:][: limit or len(content)]
            assert (tenant, number) in self.put_once
            self.used[tenant, number] = self.stage.now
        except ContentLost:
            assert not self.has_to_be_there(tenant, number)

    @rule(seconds=st.integers(1, 500))
    def wait(self, seconds: int) -> None:
        self.stage.now += seconds * 1_000

    @rule(is_kept=st.booleans())
    def keep(self, is_kept: bool) -> None:
        # What has gone before that is not owed to anybody.
        self.used = {which: at for which, at in self.used.items() if self.is_there(*which)}
        self.keep_from = self.stage.now if is_kept else None
        self.stage.content.keep_since(self.keep_from)

    @rule()
    def tidy(self) -> None:
        self.do(self.stage.content.tidy())

    @rule(has_journal=st.booleans())
    def restart(self, has_journal: bool) -> None:
        self.do(self.stage.content.close())
        if not has_journal:
            self.stage.lose_journal()
        self.do(self.stage.open())
        self.stage.content.keep_since(self.keep_from)

    @rule()
    def check(self) -> None:
        assert self.do(self.stage.content.check()).damaged == 0

    def is_there(self, tenant: str, number: int) -> bool:
        """Looked at from the side: asking would count as a use."""
        digest = digest_of(CONTENTS[number])
        return self.stage.content._stock.index.find(tenant, bytes.fromhex(digest.hash), digest.size) is not None

    def has_to_be_there(self, tenant: str, number: int) -> bool:
        used = self.used.get((tenant, number))
        return used is not None and self.keep_from is not None and used >= self.keep_from

    @invariant()
    def what_may_not_go_is_there_and_nothing_that_never_was(self) -> None:
        for tenant in (ACME, OTHER):
            for number in range(len(CONTENTS)):
                if self.is_there(tenant, number):
                    assert (tenant, number) in self.put_once
                else:
                    assert not self.has_to_be_there(tenant, number)

    @invariant()
    def the_bytes_add_up(self) -> None:
        stock = self.stage.content._stock
        index = stock.index
        slots = [slot for shelf in index.shelves for slot in shelf.slots.values()]
        assert len(slots) == len(index)
        large = sum(index.sizes[slot] for slot in slots if not index.packs[slot])
        assert stock.disk_bytes == large + sum(pack.size for pack in stock.packs.values())
        for pack in stock.packs.values():
            inside = [index.sizes[slot] for slot in slots if index.packs[slot] == pack.number]
            assert pack.live <= pack.size
            assert pack.live == sum(inside) + len(inside) * ITEM_BYTES

    def teardown(self) -> None:
        self.do(self.stage.content.close())
        self.loop.run_until_complete(self.loop.shutdown_default_executor())
        self.loop.close()
        self.folder.cleanup()


class ContentElsewhereMachine(ContentMachine):
    """The same on blobs that are no files."""

    is_local = False


# Each step is on a real disk: a third of what the profile asks for is as long as other machines take.
_EFFORT = settings(examples(33), stateful_step_count=40)
TestContent = ContentMachine.TestCase
TestContent.settings = _EFFORT
TestContentElsewhere = ContentElsewhereMachine.TestCase
TestContentElsewhere.settings = _EFFORT
