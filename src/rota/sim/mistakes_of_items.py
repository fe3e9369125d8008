"""Mistakes about work that is claimed, and about runs that wait for others, for a person or for a pause to end."""

from rota.sim.mistakes import Mutant, mistake

OF_ITEMS: tuple[Mutant, ...] = (
    mistake(
        "token_not_asked_for",
        "only who knows the token speaks for the lease",
        "core.decide.leases",
        "        if not is_token(task, command.token_hash):\n",
        "        if False:\n",
    ),
    mistake(
        "after_any_end",
        "a run starts when those that it waits for have succeeded",
        "core.decide.runs",
        "if state.runs[(tenant, name)].row.state is RunState.SUCCESS]",
        "if state.runs[(tenant, name)].row.state in RUN_TERMINAL]",
    ),
    mistake(
        "after_forgotten_by_loading",
        "who waits for a run is known after a change of coordinator",
        "core.load",
        "        state.relate(run)\n",
        "        pass\n",
    ),
    mistake(
        "approval_not_waited_for",
        "a run that needs approval starts with it",
        "core.decide.runs",
        "    is_free = not (row.after or command.needs_approval or state.is_held(row))\n",
        "    is_free = not (row.after or state.is_held(row))\n",
    ),
    mistake(
        "claimed_in_a_pause",
        "nobody is given what is paused",
        "core.claiming",
        "        return is_asked_for(bucket, command) and not state.hold_reasons(bucket, now)\n",
        "        return is_asked_for(bucket, command)\n",
    ),
    mistake(
        "pause_forgotten_by_loading",
        "a pause is durable",
        "core.load",
        "            state.pauses[(record.tenant, record.scope)] = record\n",
        "            pass\n",
    ),
    mistake(
        "parts_go_on",
        "pausing a run pauses what is part of it",
        "core.evolve.runs",
        "    hold(state, run, flag)\n    hold_parts(state, run)\n",
        "    hold(state, run, flag)\n",
        ("core.invariants", "    if run.is_held != state.is_held(run.row):\n", "    if False:\n"),
    ),
    mistake(
        "offered_again_at_once",
        "what was claimed and lost before rests before it is offered again",
        "core.decide.leases",
        "    if counted and task.interruptions and lease.worker.row.capacity.pull:\n",
        "    if False:\n",
    ),
)
