"""Telling a failure: the stories of the runs that it names."""

import re
from collections.abc import Iterator

from rota.core.ids import RunId, RunKey
from rota.core.story import story_lines
from rota.sim.scene import Scene

_RUN = re.compile(r"\('(?P<tenant>\w+)', '(?P<run>[^']+)'")
_LINES_MAX = 60


def tell(seed: int, broken: str) -> Iterator[str]:
    """The stories of the runs that a failure names."""
    scene = Scene(seed)
    scene.run()
    named: dict[RunKey, None] = {(match["tenant"], RunId(match["run"])): None for match in _RUN.finditer(broken)}
    for key in named:
        stories = scene.stage.store.disk.stories.get(key, [])
        yield f"the story of {key[0]}/{key[1]}:"
        lines = list(story_lines(stories, stories[0].at if stories else 0))
        yield from (f"  {line}" for line in lines[-_LINES_MAX:])
