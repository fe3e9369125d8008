"""Names that were not found: the beginning of an id stands for it, and of the others it is said which was meant.

Nobody is asked anything until a name was refused, so that whoever gives it whole does not wait for this.
"""

import argparse

from rota.cli.listing import TASKS, names_of
from rota.cli.parsers import nearest
from rota.cli.reaching import reach
from rota.cli.showing import say
from rota.core.errors import Refused, Unavailable

CANDIDATES_SHOWN = 10
UNKNOWN_RUN = "run.unknown"

# Where on a command line a name may stand that was not found, and of which list it should be.
_PLACES: dict[str, tuple[tuple[str, ...], str]] = {
    UNKNOWN_RUN: (("run_id", "resume", "item"), "runs"),
    "task.unknown": (("task", "tasks"), TASKS),
    "workflow.unknown": (("name", "what"), "workflows"),
    "worker.unknown": (("name",), "workers"),
    "pool.unknown": (("name",), "pools"),
    "queue.unknown": (("name",), "queues"),
    "backfill.unknown": (("name",), "backfills"),
}


def mend(options: argparse.Namespace, refused: Refused) -> int:
    """Carry out again what named a run by the beginning of its id; or raise the refusal, with what was meant."""
    if refused.code not in _PLACES or not hasattr(options, "coordinator"):
        raise refused
    places, kind = _PLACES[refused.code]
    place, given = _given(options, places, refused.reason)
    if not given:
        raise refused
    known = _ask(options, kind)
    begun = [id for id in known if id.startswith(given)] if refused.code == UNKNOWN_RUN else []
    if len(begun) > 1:
        shown = ", ".join(begun[:CANDIDATES_SHOWN]) + (", …" if len(begun) > CANDIDATES_SHOWN else "")
        text = f"{given!r} is how the ids of {len(begun)} runs begin: {shown}"
        raise Refused(UNKNOWN_RUN, text, "Give more of the one that is meant.", path="run")
    if begun:
        say(f"rota: {given} is {begun[0]}")
        setattr(options, place, begun[0])
        return options.run(options)
    meant = nearest(given, known, 3)
    if not meant or given in known or "Did you mean" in refused.hint:
        # Nothing is near, or whoever refused it has said what is.
        raise refused
    hint = f"Did you mean {' or '.join(meant)}? {refused.hint}".strip()
    raise Refused(refused.code, refused.reason, hint, path=refused.path)


def _given(options: argparse.Namespace, places: tuple[str, ...], reason: str) -> tuple[str, str]:
    """Where a name was given, and which; of several the one that the refusal names."""
    for place in places:
        given = getattr(options, place, "")
        words = [given] if isinstance(given, str) else given
        found = next((word for word in words if word and repr(word) in reason), words[0] if words else "")
        if found:
            return place, found
    return "", ""


def _ask(options: argparse.Namespace, kind: str) -> list[str]:
    """Names that there are; none if nobody tells: it is the refusal that matters."""
    try:
        with reach(options) as rota:
            return names_of(rota, kind, getattr(options, "run_id", ""))
    except (Refused, Unavailable, OSError):
        return []
