"""What an item waits for may be in history: what succeeded there is done, what failed there is refused."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from rota.api.auth import ANYONE
from rota.api.items import submit_work
from rota.core.commands import SubmitRun
from rota.core.errors import Refused
from rota.core.questions import GetRun
from rota.core.states import RunState
from rota.wire.items import SubmitWork, WorkItem


class Coordinator:
    """Knows some live runs, and some in history."""

    def __init__(self, live: tuple[str, ...], history: dict[str, RunState]) -> None:
        self.live = live
        self.history = history
        self.made: list[tuple[str, ...]] = []
        self.store: Any = self
        self.clock: Any = None

    async def ask(self, request: Any) -> tuple[object, object]:
        names = request.after if isinstance(request, SubmitRun) else (request.run,)
        for place, name in enumerate(names):
            if name not in self.live:
                path = f"after[{place}]" if isinstance(request, SubmitRun) else "run"
                raise Refused("run.unknown", name, path=path)
        if isinstance(request, GetRun):
            return request.run, None
        self.made.append(request.after)
        return request.run, None

    async def ended(self, tenant: str, run: str) -> Any:
        state = self.history.get(run)
        return None if state is None else SimpleNamespace(run=SimpleNamespace(state=state, tenant=tenant))


def submit(coordinator: Coordinator, *depends_on: str) -> str:
    work = WorkItem(title="t", depends_on=depends_on)
    return asyncio.run(submit_work(coordinator, ANYONE, SubmitWork(tenant="t", command_id="c", item="i", work=work)))


def test_what_succeeded_long_ago_is_not_waited_for() -> None:
    coordinator = Coordinator(("now",), {"then": RunState.SUCCESS})
    assert submit(coordinator, "then", "now") == "i"
    assert coordinator.made == [("now",)]


@pytest.mark.parametrize("state", [RunState.FAILED, RunState.CANCELLED])
def test_what_failed_long_ago_is_refused_with_a_way_on(state: RunState) -> None:
    coordinator = Coordinator((), {"then": state})
    with pytest.raises(Refused) as caught:
        submit(coordinator, "then")
    assert caught.value.code == "run.ended" and "rota work retry then" in caught.value.hint
    assert caught.value.path == "depends_on[0]" and not coordinator.made


def test_what_nobody_knows_is_refused() -> None:
    coordinator = Coordinator(("now",), {})
    with pytest.raises(Refused) as caught:
        submit(coordinator, "now", "never")
    assert (caught.value.code, caught.value.path) == ("run.unknown", "depends_on[1]")
