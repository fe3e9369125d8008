"""Mistakes against sections 4 and 6 of the design: limits, pauses, schedules, the ladder and reasons."""

from rota.sim.mistakes import Mutant, mistake

OF_LIMITS: tuple[Mutant, ...] = (
    mistake(
        "pool_slot_leaked",
        "limits never leak",
        "core.evolve.leases",
        "        state.usage[(tenant, need.pool)].give_back(need)\n",
        "        pass\n",
    ),
    mistake(
        "pool_overrun",
        "limits hold",
        "core.limits",
        "    if pool.slots and taken + need.amount > pool.slots:\n",
        "    if pool.slots and taken > pool.slots:\n",
    ),
    mistake(
        "key_limit_ignored",
        "limits hold per key",
        "core.limits",
        "        if here + need.amount > pool.slots_per_key:\n",
        "        if here > pool.slots_per_key:\n",
    ),
    mistake(
        "rate_ignored",
        "rates hold",
        "core.limits",
        "            self.tokens = available_tokens(pool, self, now) - MINUTE_MS\n",
        "            self.tokens = available_tokens(pool, self, now)\n",
    ),
    mistake(
        "slots_overrun",
        "a worker is not given more than it can hold",
        "core.live",
        "        self.slots_free -= 1\n",
        "        self.slots_free -= len(self.leases) % 2\n",
    ),
    mistake(
        "run_cap_ignored",
        "a graph has no more active runs than it may",
        "core.decide.runs",
        "    if cap and state.active_runs.get(name, 0) >= cap:\n",
        "    if cap and state.active_runs.get(name, 0) > cap:\n",
    ),
    mistake(
        "run_cap_of_each_version",
        "the cap of a graph's runs is its name's, whatever the version",
        "core.decide.runs",
        "    if cap and state.active_runs.get(name, 0) >= cap:\n",
        "    same = [one for one in state.runs.values() if one.row.graph == run.row.graph]\n"
        "    if cap and sum(one.row.state is RunState.RUNNING for one in same) >= cap:\n",
    ),
    mistake(
        "task_cap_ignored",
        "a graph has no more active tasks than it may",
        "core.graph",
        "        if self.graph.max_active_tasks:\n            pools =",
        "        if self.graph.max_active_tasks > 2:\n            pools =",
    ),
    mistake(
        "pause_ignored",
        "a paused run is given nothing",
        "core.live",
        "        return not (row.paused or self.is_held or row.fault or row.stopping is not None)\n",
        "        return not (self.is_held or row.fault or row.stopping is not None)\n",
    ),
    mistake(
        "slot_fired_twice",
        "a schedule instant fires once",
        "core.evolve.definitions",
        '    state.touched.puts[("Schedule", *key)] = schedule\n\n\ndef schedule_dropped',
        "    del schedule\n\n\ndef schedule_dropped",
    ),
    mistake(
        "busy_taken_for_starving",
        "only a task that nobody can serve climbs the ladder",
        "core.decide.timers",
        "    if state.index.is_servable(bucket) or is_paused(state, bucket):\n        return Decision([])\n"
        "    if not may_climb",
        "    if not may_climb",
        (
            "core.decide.timers",
            "        if not bucket.live or state.index.is_servable(bucket) or is_paused(state, bucket):\n",
            "        if not bucket.live:\n",
        ),
    ),
    mistake(
        "reason_missing",
        "every wait has a reason",
        "core.why",
        '        return (*held, reason("retry.cooldown", text, at=task.due_at))\n',
        "        return held\n",
    ),
)
