"""What is asked of the loop, by whom, and which run it is about."""

from msgspec import Struct

from rota.control.events import Token
from rota.core.commands import Command, StartRuns, Tick
from rota.core.ids import NO_RUN, RunId, RunKey
from rota.core.prepared_graph import PreparedGraph
from rota.core.questions import Question
from rota.core.state import State


class Ask(Struct, frozen=True):
    """A command with whoever waits for its answer."""

    command: Command | Question
    token: Token | None = None
    # Its graph, laid out for the state that it is asked of first, and for no other.
    prepared: PreparedGraph | None = None


_TICKS_OF_RUNS = frozenset({"due", "deadline", "archive", "overrun", "review", "replan", "orphan", "starved", "parked"})


def run_of(command: Command, state: State) -> RunKey:
    """The run a command is about, if it is about one."""
    if isinstance(command, Tick):
        key = command.key
        return (str(key[0]), RunId(str(key[1]))) if command.kind in _TICKS_OF_RUNS else ("", NO_RUN)
    if isinstance(command, StartRuns):
        waiting = state.waiting_runs.get((command.tenant, command.name), {})
        return next((key for key in waiting if not state.runs[key].row.fault), ("", NO_RUN))
    return command.tenant, RunId(str(getattr(command, "run", "")))
