"""Submissions under an id that somebody chose: as long as history has a run of that id, there is no second one.

Whoever decides knows only what lives. Two runs of one id would have a story each, but one page, one log and one answer
to `rota run`: the older one could not be reached any more.
"""

from typing import Any

from rota.api import reviving
from rota.api.reviving import Coordinator
from rota.core.commands import ClientCommand, SubmitRun
from rota.core.errors import Refused


async def carry_out(coordinator: Coordinator, command: ClientCommand) -> Any:
    """Have a command carried out. A repetition of the one that made a run in history is answered with that one's id."""
    if isinstance(command, SubmitRun) and not command.is_fresh:
        ended = await coordinator.store.ended(command.tenant, command.run)
        if ended is not None and ended.run.command_id == command.command_id:
            _check_same(command, ended.run.params)
            return ended.run.id
        if ended is not None:
            text = f"there was a run {command.run!r} already: it ended as {ended.run.state}, and is in history"
            raise Refused("run.exists", text, "Choose another id.", path="run")
    return await reviving.carry_out(coordinator, command)


def _check_same(command: SubmitRun, params: bytes) -> None:
    # Parameters that were declared are completed when the run is made.
    if not (command.workflow or command.declared) and command.params != params:
        text = f"{command.command_id!r} was the id of another command, which made run {command.run!r}"
        raise Refused("command.id_reused", text, "Choose a new id for each command.")
