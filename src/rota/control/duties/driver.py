"""Duties of a leader: begun with every reign, cancelled with its end, and heard of if they end otherwise."""

import asyncio
from collections.abc import Callable, Coroutine

from rota.control.events import Tell
from rota.control.standing import Standing

Duty = Callable[[], Coroutine[object, object, None]]


class Duties:
    """The duties of one coordinator. `tell` hears of those that did not come to their own end."""

    def __init__(self, standing: Standing, tell: Callable[[Tell], None]) -> None:
        self._standing = standing
        self._tell = tell
        self._duties: list[tuple[str, Duty]] = []
        self._tasks: dict[asyncio.Task[None], str] = {}
        self._is_reigning = False

    def add(self, name: str, duty: Duty) -> None:
        """One more, from now on."""
        self._duties.append((name, duty))
        if self._is_reigning:
            self._begin(name, duty)

    def begin(self) -> None:
        """A reign begins."""
        self._is_reigning = True
        for name, duty in self._duties:
            self._begin(name, duty)

    def _begin(self, name: str, duty: Duty) -> None:
        task = asyncio.get_running_loop().create_task(duty(), name=f"rota-{name}")
        self._tasks[task] = name
        task.add_done_callback(self._over)

    def end(self) -> None:
        """The reign has ended. What is cancelled now is over by the next pass, or says so later."""
        self._is_reigning = False
        for task in self._tasks:
            task.cancel()
        if not self._tasks:
            self._standing.clear_stepping_down()

    async def stop(self) -> None:
        """There will be no other reign; nobody needs to hear of what is cancelled."""
        tasks = list(self._tasks)
        self._tasks.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _over(self, task: asyncio.Task[None]) -> None:
        name = self._tasks.pop(task, "")
        error = None if task.cancelled() else task.exception()
        if name and (task.cancelled() or error is not None):
            text = "cancelled" if error is None else f"{type(error).__name__}: {error}"
            level = self._standing.level_of(cancelled=task.cancelled())
            self._tell(Tell("duty.ended", (("duty", name), ("error", text)), level))
        if not self._tasks:
            self._standing.clear_stepping_down()
