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
    # Wakes, claims that wait, and the ladder.
    mistake(
        "cooldown_kept_by_returned_work",
        "work that comes back is told at once",
        "core.state",
        "                self.wakes.forget_item(run.key)\n",
        "                pass\n",
    ),
    mistake(
        "wake_repeated_at_once",
        "a session is not told of the same offer within the cooldown",
        "core.cycle",
        "        before = self.now - quiet_ms(item, self.view.settings, self.now, late=late)\n",
        "        before = self.now\n",
    ),
    mistake(
        "waiting_claim_forgotten",
        "claimable work and a waiting eligible claimant meet",
        "control.pullers",
        "            wait_for_work(worker, command, now)\n",
        "            stop_waiting(worker)\n",
    ),
    mistake(
        "waiting_claim_cools_down",
        "a claim that waits has no cooldown",
        "core.cycle",
        "        asking = audience.free & audience.waiting\n",
        "        asking = audience.free & audience.waiting & ~cooling\n",
        # As if wakes counted that are older than the offer.
        ("core.state", "                self.wakes.forget_item(run.key)\n", "                pass\n"),
    ),
    mistake(
        "unclaimed_never_climbs",
        "an offer that no session claims within the threshold climbs",
        "core.decide.timers",
        "    starving = chain(_unserved(state, now), _unclaimed(state, now))\n",
        "    starving = _unserved(state, now)\n",
    ),
    mistake(
        "declined_at_once",
        "an offer climbs when it has stood for the threshold",
        "core.ladder",
        "now - max(offered_at, claimed_at) >= starve_ms\n",
        "now - max(offered_at, claimed_at) >= starve_ms // 4\n",
    ),
    mistake(
        "tier_reached_early",
        "each tier of the ladder has its threshold",
        "core.ladder",
        "    if cycles >= thresholds.event:\n",
        "    if cycles >= thresholds.spawn:\n",
    ),
    mistake(
        "cycles_kept_by_a_claim",
        "a claim ends the climb",
        "core.evolve.leases",
        "    task.cycles = task.tier = 0\n",
        "",
    ),
    mistake(
        "workspace_ignored",
        "a task is granted to a worker that has what it requires",
        "core.demand",
        "        if value not in have:\n            shown",
        "        if have and value not in have:\n            shown",
    ),
)
