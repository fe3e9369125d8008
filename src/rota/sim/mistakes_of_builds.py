"""Mistakes about runs that are joined instead of made twice, and about runs that are charged as one."""

from rota.sim.mistakes import Mutant, mistake

OF_BUILDS: tuple[Mutant, ...] = (
    mistake(
        "revoked_lease_not_counted",
        "a lease that was revoked counts against limits until its time is over",
        "core.evolve.leases",
        "        _revoke(state, change.fence)\n",
        "        end_lease(state, change.fence, change.at)\n",
    ),
    mistake(
        "revoked_lease_not_loaded",
        "a revoked lease is durable with its task",
        "core.load",
        "                load_revoked(state, run, task, now)\n",
        "                task.revoked = ()\n",
    ),
    mistake(
        "regranted_at_once",
        "a silent worker keeps what it has for the time of its queue",
        "core.presence",
        "    return lease.expires_at - lease.task.lease_ms + lease.bucket.demand.worker_timeout_ms + 1\n",
        "    return lease.expires_at - lease.task.lease_ms + 1_000\n",
    ),
    mistake(
        "everything_regranted",
        "only work that may run twice is granted again before its lease is over",
        "core.presence",
        "    return lease.run.graph.graph.regrant_when_silent and lease.bucket.demand.worker_timeout_ms > 0\n",
        "    return lease.bucket.demand.worker_timeout_ms > 0\n",
    ),
    mistake(
        "key_forgotten_by_loading",
        "a key is durable with its run",
        "core.load",
        "        state.take_merge(run)\n",
        "",
        # What the recount of memory would find is left out: the rule is checked from commits, too.
        ("core.invariants", "    if merging != state.merging:\n", "    if False:\n"),
    ),
    mistake(
        "key_kept_by_an_ended_run",
        "who joins sees an end that comes after it asked",
        "core.evolve.runs",
        "    state.leave_merge(run)\n",
        "",
        ("core.invariants", "    if merging != state.merging:\n", "    if False:\n"),
    ),
    mistake(
        "key_kept_by_an_opened_run",
        "of the runs with one key at most one has not ended",
        "core.state",
        '            row.merge = ""\n',
        "            pass\n",
    ),
    mistake(
        "joined_without_a_receipt",
        "a retry of a submission that joined gets the same answer",
        "core.decide",
        "    needs_receipt = not decision.changes if isinstance(command, cm.SubmitRun) else bool(decision.changes)\n",
        "    needs_receipt = bool(decision.changes) and not isinstance(command, cm.SubmitRun)\n",
    ),
    mistake(
        "share_forgotten_by_loading",
        "runs of one share are charged on one account",
        "core.state",
        "self.books.purse(row.priority, row.tenant, row.share), self.run_number)",
        'self.books.purse(row.priority, row.tenant, row.share if self.uses else ""), self.run_number)',
        (
            "core.state",
            "self.books.leave(row.priority, row.tenant, row.share)",
            "self.books.leave(row.priority, row.tenant)",
        ),
    ),
    mistake(
        "share_closed_too_early",
        "a share lasts as long as one of its runs",
        "core.order",
        "            if not purse.of_run.runs:\n",
        "            if purse.of_run.runs < 2:\n",
    ),
    mistake(
        "unheard_too_early",
        "an attempt may run for as long as its queue lets it without a word",
        "core.evolve.leases",
        "max(begun_at + unheard_ms, now + min(unheard_ms, grace_ms))",
        "max(begun_at + unheard_ms // 3, now + min(unheard_ms // 3, grace_ms))",
    ),
    mistake(
        "retries_of_the_queue_ignored",
        "internal failures have the retries of their queue",
        "core.decide.leases",
        "    of_queue = state.queue_of(run, task).max_job_retries\n",
        "    of_queue = state.queue_of(run, task).max_job_retries + 3\n",
    ),
    mistake(
        "parked_where_nobody_looks",
        "what is parked in a queue of builds fails",
        "core.decide.timers",
        '    "parked": give_up,\n',
        '    "parked": nothing,\n',
        (
            "core.decide.timers",
            "            late.changes += give_up(state, (*key, idx), now).changes\n",
            "            pass\n",
        ),
    ),
)
