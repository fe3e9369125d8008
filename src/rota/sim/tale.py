"""Telling stories: what the durable account says happened to a run, one line per change."""

import re
from collections.abc import Callable, Iterable, Iterator

from rota.core.ids import Millis, RunKey, show_fence
from rota.core.records import Story
from rota.sim.scene import Scene
from rota.sim.stories import AnyChange, read_story

_RUN = re.compile(r"\('(?P<tenant>\w+)', '(?P<run>[^']+)'")
_LINES_MAX = 60


Namer = Callable[[int], str]
_UNTOLD = ("tenant", "run", "row", "at", "worker_tenant", "incarnation", "growth", "lease_ms", "result")


def story_lines(stories: Iterable[Story], began_at: Millis, namer: Namer = str) -> Iterator[str]:
    """A run's story for people."""
    for story in stories:
        for change in read_story(story.changes):
            yield f"{(story.at - began_at) / 1000:8.3f} s  {describe(change, namer)}"


def describe(change: AnyChange, namer: Namer = str) -> str:
    """One change as a short line: its name, then what it is about."""
    parts: list[str] = []
    for name in change.__struct_fields__:
        value = getattr(change, name)
        if name == "task":
            parts.append(namer(value))
        elif name == "tasks":
            parts.append(", ".join(namer(task) for task in value))
        elif name not in _UNTOLD and value not in ("", None, 0, False, ()):
            parts.append(f"{name}={show_fence(value) if name == 'fence' else value}")
    return f"{type(change).__name__:<16}{'  '.join(parts)}"


def tell(seed: int, broken: str) -> Iterator[str]:
    """The stories of the runs that a failure names."""
    scene = Scene(seed)
    scene.run()
    named: dict[RunKey, None] = {(match["tenant"], match["run"]): None for match in _RUN.finditer(broken)}
    for key in named:
        stories = scene.stage.store.disk.stories.get(key, [])
        yield f"the story of {key[0]}/{key[1]}:"
        lines = list(story_lines(stories, stories[0].at if stories else 0))
        yield from (f"  {line}" for line in lines[-_LINES_MAX:])
