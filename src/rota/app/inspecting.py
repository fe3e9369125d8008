"""What goes on inside a coordinator's process: for `rota debug dump`, when nothing else says what is wrong.

Where each thread and task is, never what it has in its variables.
"""

import asyncio
import os
import platform
import resource
import sys
import threading
import traceback
from collections.abc import Callable, Iterable

from rota import __version__
from rota.control.driver import CoordinatorDriver
from rota.wire.requests import ServiceInside

TASKS_MAX = 500
FRAMES_MAX = 15
_KIB = 1024


def look_inside(
    driver: CoordinatorDriver,
    journal: Callable[[], Iterable[str]] = tuple[str],
    metrics: Callable[[], str] = str,
) -> ServiceInside:
    """How this process stands, asked from its event loop; `journal` and `metrics` tell theirs, if any are kept."""
    loop = driver.machine.loop
    return ServiceInside(
        pid=os.getpid(),
        version=__version__,
        python=platform.python_version(),
        role=driver.machine.leadership.role.value,
        epoch=loop.state.epoch if loop is not None else 0,
        memory_bytes_max=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _KIB,
        journal=tuple(journal()),
        metrics=metrics(),
        threads=_threads(),
        tasks=tuple(_tasks()),
    )


def _threads() -> dict[str, str]:
    frames = sys._current_frames()  # pyright: ignore[reportPrivateUsage] - it is the documented way
    return {
        f"{thread.name} ({thread.ident})": "".join(traceback.format_stack(frames[thread.ident], FRAMES_MAX))
        for thread in threading.enumerate()
        if thread.ident in frames
    }


def _tasks() -> list[str]:
    """Each task with where it waits, the innermost last."""
    found = sorted(asyncio.all_tasks(), key=lambda task: task.get_name())
    return [_told(task) for task in found[:TASKS_MAX]]


def _told(task: "asyncio.Task[object]") -> str:
    named = getattr(task.get_coro(), "__qualname__", "")
    frames = task.get_stack(limit=FRAMES_MAX)
    places = (f"  {frame.f_code.co_filename}:{frame.f_lineno} {frame.f_code.co_qualname}" for frame in frames)
    return "\n".join([f"{task.get_name()} {named}", *places])
