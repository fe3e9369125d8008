"""Mistakes against what workflows promise: versions, calendars, backfills, pauses, branches, the past, history."""

from rota.sim.mistakes import Mutant, mistake

OF_WORKFLOWS: tuple[Mutant, ...] = (
    # Calendars and backfills.
    mistake(
        "held_slots_forgotten",
        "a slot that is held back is made later",
        "core.calendar",
        "        cursor = run[-1] if run else cursor\n        held",
        "        cursor = now if run else cursor\n        held",
    ),
    mistake(
        "cursor_ahead_of_its_runs",
        "cursor and runs commit together",
        "core.decide.timers",
        "    for slot in found.run:\n        name",
        "    for slot in found.run[:1]:\n        name",
    ),
    mistake(
        "backfill_under_the_cap",
        "a backfill takes no room under the cap of its workflow",
        "core.live",
        '        return (row.tenant, f"\\0{row.schedule}" if row.backfill else row.name)\n',
        "        return (row.tenant, row.name)\n",
    ),
    mistake(
        "backfill_without_a_cap",
        "a backfill has no more unfinished runs than it may",
        "core.decide.workflows",
        "        max_active_runs=command.max_active_runs,\n",
        "        max_active_runs=0,\n",
    ),
    mistake(
        "backfill_over_early",
        "a backfill is over when all its runs have ended",
        "core.decide.timers",
        "    if schedule.backfill and not (changes or active or found.held) and found.next_at is None:\n",
        "    if schedule.backfill and not (changes or found.held) and found.next_at is None:\n",
    ),
    mistake(
        "cancelled_backfill_goes_on",
        "a cancelled backfill makes no more runs",
        "core.decide.workflows",
        "    changes: list[Change] = [ScheduleDropped(schedule.tenant, schedule.id, now)]\n",
        "    changes: list[Change] = []\n",
    ),
    mistake(
        "backfill_not_resumed",
        "what was held back by a pause is looked at when it ends",
        "core.evolve.workflows",
        "        for schedule in state.schedules_of(*key):\n",
        "        for schedule in [one for one in state.schedules_of(*key) if not one.backfill]:\n",
    ),
    # Versions and pauses.
    mistake(
        "version_reused",
        "the number of a version stands for one content",
        "core.decide.workflows",
        "        latest += 1\n",
        "        latest = max(1, len(versions))\n",
    ),
    mistake(
        "version_always_new",
        "the same content is the same version",
        "core.decide.workflows",
        "    found = next((each for each in versions if each.graph == digest), None)\n",
        "    found = next((each for each in versions[-1:] if each.graph == digest), None)\n",
    ),
    mistake(
        "version_not_the_asked_one",
        "who asks for a version gets that one",
        "core.decide.runs",
        "    version = find_version(workflow, command.version)\n",
        "    version = find_version(workflow, 0)\n",
    ),
    mistake(
        "workflow_pause_ignored_by_new_runs",
        "no run of a paused workflow starts",
        "core.evolve.runs",
        "    run.is_held = state.is_held(row)\n    state.runs[run.key] = run\n    state.join_lineage(run)\n"
        "    if row.command_id:\n        state.by_command[(row.tenant, row.command_id)] = run.key\n"
        "    if row.state is RunState.RUNNING:\n",
        "    state.runs[run.key] = run\n    state.join_lineage(run)\n"
        "    if row.command_id:\n        state.by_command[(row.tenant, row.command_id)] = run.key\n"
        "    if row.state is RunState.RUNNING:\n",
    ),
    mistake(
        "workflow_pause_not_loaded",
        "a pause outlives the coordinator",
        "core.load",
        "    run.is_held = state.is_held(row)\n",
        "",
    ),
    mistake(
        "params_unchecked",
        "parameters are checked where a run is accepted",
        "core.decide.runs",
        "    return version.graph, version.number, check_params(version.params, command.params)\n",
        '    return version.graph, version.number, command.params or check_params(version.params, b"")\n',
    ),
    # Branches, sensors and the past.
    mistake(
        "branch_not_loaded",
        "what a branch decided outlives the coordinator",
        "core.evolve.runs",
        "        if task.skips:\n            run.force(task.skips, 1)\n",
        "",
    ),
    mistake(
        "branch_forgotten",
        "what a branch decided against does not run, whatever its rule says",
        "core.plan",
        "            return Verdict.SKIP\n        total",
        "            pass\n        total",
        (
            "core.snapshot",
            "if states.get(branch) is SUCCESS for name in names}\n",
            "if branch in () for name in names}\n",
        ),
    ),
    mistake(
        "branch_kept_when_cleared",
        "a branch that is asked again has decided nothing",
        "core.evolve.tasks",
        "            run.force(task.skips, -1)\n            task.skips = ()\n",
        "            pass\n",
    ),
    mistake(
        "first_look_forgotten",
        "whoever comes back to look again counts from its first look",
        "core.evolve.leases",
        "            task.first_started_at = task.first_started_at or task.assigned_at\n",
        "            task.first_started_at = 0\n",
    ),
    mistake(
        "past_ignored",
        "a task that depends on the past waits for it",
        "core.plan",
        "        if verdict is Verdict.SCHEDULE and node in graph.past and past_of(self.run, node):\n",
        "        if verdict is Verdict.SCHEDULE and node in graph.past and self.run.before is self.run:\n",
    ),
    mistake(
        "past_not_looked_at",
        "who waits for the past is told when it has gone well",
        "core.evolve.moves",
        '            state.set_timer(0, "past", *run.after.key)\n',
        "            pass\n",
    ),
    mistake(
        "past_archived",
        "how a run went is kept while the next one depends on it",
        "core.live",
        "        return bool(self.graph.past) and (self.after is None or self.after.row.state not in RUN_TERMINAL)\n",
        "        return bool(self.graph.past) and self.after is None\n",
    ),
    # Remedies and history.
    mistake(
        "mark_leaves_the_lease",
        "what is marked is not at work any more",
        "core.decide.remedies",
        "        if task is not None and task.state in LEASED:\n            cause",
        "        if task is not None and task.state in LEASED and not task.fence:\n            cause",
        (
            "core.evolve.tasks",
            "            end_lease(state, task.fence, change.at)\n            task.attempt -= 1\n",
            "",
        ),
    ),
    mistake(
        "note_lost_when_cleared",
        "what was said about a task is kept",
        "core.evolve.tasks",
        "        task.cycles = task.tier = 0\n        task.first_started_at = 0\n",
        '        task.cycles = task.tier = 0\n        task.note = ""\n        task.first_started_at = 0\n',
    ),
    mistake(
        "moved_run_keeps_old_rows",
        "a moved run has the tasks of its new version",
        "core.evolve.runs",
        '            state.touched.drops[("Task", *run.key, idx)] = None\n',
        "            pass\n",
    ),
    mistake(
        "overtaken_task_starts",
        "a task starts only while its rule holds",
        "core.decide.leases",
        "    if cascade.may_start(task.idx):\n",
        "    if cascade is not None:\n",
        ("core.decide.remedies", "    tasks.update(dict.fromkeys(_waiting_for(run, list(tasks))))\n", ""),
    ),
    mistake(
        "moved_run_not_judged",
        "every task of the other version is judged",
        "core.decide.remedies",
        "        changes.append(PendingSet(*run.key, (Slice(NONE, 0, len(graph.specs)),)))\n",
        "        pass\n",
    ),
    mistake(
        "revived_and_kept_in_history",
        "a run is in one place",
        "core.evolve.runs",
        "    state.touched.revives.append((row.tenant, row.id, row.created_at))\n",
        "    pass\n",
    ),
    mistake(
        "revived_story_begins_anew",
        "a run has one story, however often it comes back",
        "core.evolve.runs",
        "    row.solo = None\n    graph = state.graphs[(row.tenant, row.graph)]\n",
        "    row.solo = None\n    row.story = 0\n    graph = state.graphs[(row.tenant, row.graph)]\n",
    ),
    mistake(
        "revived_run_never_archived",
        "a run that came back goes to history again",
        "core.evolve.runs",
        '    state.set_timer(change.at + state.limits.retain_ended_ms, "archive", *run.key)\n    state.touched.revives',
        "    state.touched.revives",
    ),
)
