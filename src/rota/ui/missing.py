"""What somebody may have meant who asked for a run that there is not."""

from contextvars import ContextVar
from difflib import get_close_matches

from rota.core.errors import Refused
from rota.ui.reading import Reader

NEAR_SHOWN = 5
LOOKED_AT_MAX = 200
# Less like it than this is no suggestion.
LIKENESS = 0.5

# Runs that are like the one that this request asked for; a refusal cannot carry them to the page that tells it.
NEAR: ContextVar[tuple[str, ...]] = ContextVar("near", default=())


async def note_near(reader: Reader, run: str, refused: Refused) -> None:
    """Remember which runs are like this one, if it is that which there is not."""
    if refused.code != "run.unknown":
        return
    # A beginning or a part of an id is what people type and what lines of logs break.
    found = [view.id for view in (await reader.runs_page(find=run, limit=NEAR_SHOWN)).runs] if run.strip() else []
    if len(found) < NEAR_SHOWN:
        newest = [view.id for view in (await reader.runs_page(limit=LOOKED_AT_MAX, history=False)).runs]
        found += get_close_matches(run, newest, NEAR_SHOWN, LIKENESS)
    NEAR.set(tuple(dict.fromkeys(found))[:NEAR_SHOWN])
