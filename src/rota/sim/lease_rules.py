"""Leases: who may have which, for how long, and what may come of it."""

from rota.core import changes as ch
from rota.core.bounds import INTERRUPTIONS_MAX
from rota.core.decide.claims import SIGNED_OFF
from rota.core.decide.leases import OVERRAN, UNHEARD
from rota.core.ids import NO_FENCE, Fence, RunKey, fence_epoch
from rota.core.model import FailureClass
from rota.core.reap import FELL_SILENT, LEASE_RAN_OUT
from rota.core.retry import retries_allowed
from rota.core.states import ASSIGNED, CANCELLED, FAILED, QUEUED, RUNNING, SUCCESS, UP_FOR_RESCHEDULE, UP_FOR_RETRY
from rota.core.trigger import Verdict, evaluate_trigger_rule
from rota.sim.broken import Broken
from rota.sim.item_rules import ItemRules
from rota.sim.limit_rules import LimitRules
from rota.sim.models import LeaseModel, Model, TaskModel
from rota.sim.workflow_rules import WorkflowRules

# A process that hangs up for a moment, or is not heard for two beats, may lose its place to a copy of itself; a copy
# that takes it again and again was let in without looking.
TAKEOVERS_MAX = 8
# What only happens to work that was claimed.
CLAIMED_AND_LOST = (LEASE_RAN_OUT, SIGNED_OFF)


class LeaseRules:
    """Grants, starts, outcomes and returns."""

    def __init__(self, model: Model, limits: LimitRules, workflows: WorkflowRules, items: ItemRules) -> None:
        self.model = model
        self.workflows = workflows
        self.items = items
        self.limits = limits
        self.newest_fence = NO_FENCE
        self._floor = NO_FENCE
        self.granted_now: list[Fence] = []
        self.takeovers = 0

    def commit_begins(self) -> None:
        """Inside one commit runs are told one after the other, so only older commits give an order of fences."""
        self._floor = self.newest_fence

    def commit_ends(self) -> None:
        """A commit happens at one instant: what it ends and what it grants are compared with the limits together."""
        for fence in self.granted_now:
            if fence in self.model.live:
                self.limits.check_lease(self.model.live[fence])
        self.granted_now.clear()

    def granted(self, run: RunKey, change: ch.LeaseGranted) -> None:
        """P-FENCE: fences only grow. P-LIMIT: nothing is exceeded. P-HOLD: held runs wait. P-UNSPENT, P-STANDS."""
        if change.fence <= self._floor or change.fence in self.model.granted:
            raise Broken(f"P-FENCE: fence {change.fence} after {self._floor}")
        if fence_epoch(change.fence) != self.model.epoch:
            raise Broken(f"P-FENCE: fence of epoch {fence_epoch(change.fence)} granted in {self.model.epoch}")
        if self.model.held[run]:
            raise Broken(f"P-HOLD: {run}/{change.task} was granted while its run was {list(self.model.held[run])}")
        self.workflows.check_held(run, f"was granted task {change.task}")
        self.newest_fence = max(self.newest_fence, change.fence)
        model = self.model.move(run, change.task, ASSIGNED, change.at)
        model.fence, model.assigned_at = change.fence, change.at
        model.forget_own_note()
        if change.attempt != model.spent + 1:
            raise Broken(f"P-UNSPENT: {run}/{change.task} is granted as {change.attempt} after {model.spent} outcomes")
        model.cycles = 0
        self.model.granted_to[(run, change.worker)] = change.at
        self._check_rule(run, change.task)
        self._check_fit(run, change)
        pools = self.limits.pools_of(run, change.task)
        self.model.live[change.fence] = LeaseModel(change.worker, change.incarnation, pools)
        self.model.granted[change.fence] = change.at
        self.granted_now.append(change.fence)
        self.limits.spend_tokens(run[0], pools, change.at)
        self.items.granted(run, change.task, change.fence)

    def _check_rule(self, run: RunKey, idx: int) -> None:
        """P-STANDS: what a task waited for is still as it has to be when it is granted."""
        spec, graph = self.model.spec(run, idx), self.model.graph(run)
        if spec is None or graph is None:
            return
        above = [other for other in graph.tasks if other.id in spec.upstream]
        if not above or not all(other.width for other in above) or any(other.is_setup for other in graph.tasks):
            return
        states = [self.model.task(run, up).state for up in self.model.tasks_of(run, spec.upstream)]
        if evaluate_trigger_rule(spec.trigger_rule, states) is not Verdict.SCHEDULE:
            raise Broken(f"P-STANDS: {run}/{idx} is granted while {spec.trigger_rule} of {list(map(str, states))}")

    def _check_fit(self, run: RunKey, change: ch.LeaseGranted) -> None:
        """P-FIT: who is granted a task has what it requires. One whose requirements were replaced is left out."""
        worker = self.model.facts.worker(change.worker_tenant, change.worker)
        spec = self.model.spec(run, change.task)
        if spec is None or worker is None or (*run, change.task) in self.model.amended:
            return
        misfit = self.model.facts.misfit(run[0], spec, worker)
        if misfit:
            raise Broken(f"P-FIT: {run}/{change.task} was granted to {change.worker}: {misfit}")

    def started(self, run: RunKey, change: ch.AttemptStarted) -> None:
        """P-FENCE: only the holder of the live fence starts."""
        model = self._must_hold(run, change.task, change.fence)
        model.first_started_at = model.first_started_at or change.at
        self.model.move(run, change.task, RUNNING, change.at)

    def ended(self, run: RunKey, change: ch.AttemptEnded) -> None:
        """P-ONE: one outcome per attempt, by the holder of the live fence. P-BUDGET: no more retries than allowed."""
        model = self._must_hold(run, change.task, change.fence)
        if change.failure is FailureClass.TIMEOUT and change.error.startswith(OVERRAN):
            self._check_overrun(run, change)
        elif change.failure is FailureClass.INTERNAL and change.error.startswith(UNHEARD):
            self._check_unheard(run, change)
        elif not self.model.facts.has_concluded(change.fence):
            raise Broken(f"P-ONE: {run}/{change.task} got an outcome that the holder of {change.fence} never gave")
        model.spent += 1
        model.due_at = change.due_at
        if change.state is UP_FOR_RESCHEDULE:
            # Whoever comes back to look again counts from its first look.
            model.first_started_at = model.first_started_at or model.assigned_at
        else:
            model.tries += 1
        self.workflows.branched(run, change)
        if change.state is SUCCESS:
            model.interrupted = 0
        spec = self.model.spec(run, change.task)
        if change.state is UP_FOR_RETRY and spec is not None and change.failure is not None:
            queue = self.model.facts.queue(run[0], spec.queue)
            allowed = retries_allowed(spec.retry, change.failure, of_queue=queue.max_job_retries)
            if model.tries > allowed:
                raise Broken(f"P-BUDGET: {run}/{change.task} is tried again after {model.tries} of {allowed} retries")
        if change.state is FAILED and spec is not None and change.failure is not None:
            self._check_given_up(run, change, model.tries)
        self.model.move(run, change.task, change.state, change.at)

    def _check_given_up(self, run: RunKey, change: ch.AttemptEnded, tries: int) -> None:
        """P-BUDGET: a task has all its retries; looking again costs none of them."""
        spec = self.model.spec(run, change.task)
        if spec is None or change.failure is None or change.failure is FailureClass.INPUT_LOST:
            return
        queue = self.model.facts.queue(run[0], spec.queue)
        allowed = retries_allowed(spec.retry, change.failure, of_queue=queue.max_job_retries)
        if tries <= allowed:
            raise Broken(f"P-BUDGET: {run}/{change.task} failed for good after {tries} of {allowed} retries")

    def _check_overrun(self, run: RunKey, change: ch.AttemptEnded) -> None:
        """P-OVERRUN: an attempt is not ended for its length before its limit and the grace are over."""
        model = self.model
        spec, waited = model.spec(run, change.task), change.at - model.granted[change.fence]
        if spec is None or model.mix.skew_ms or model.mix.clock_step:
            return
        if not spec.timeout_ms or waited < spec.timeout_ms + model.mix.limits.overrun_ms:
            raise Broken(f"P-OVERRUN: {run}/{change.task} was ended as too long after {waited} ms")

    def _check_unheard(self, run: RunKey, change: ch.AttemptEnded) -> None:
        """P-UNHEARD: an attempt is not taken back for silence about it before its queue's limit is over."""
        model, spec = self.model, self.model.spec(run, change.task)
        model.facts.note("went_unheard")
        if spec is None or model.mix.skew_ms or model.mix.clock_step:
            return
        limit_ms = model.facts.queue(run[0], spec.queue).max_action_executing_timeout_ms
        waited = change.at - model.granted[change.fence]
        if not limit_ms or waited < limit_ms:
            raise Broken(f"P-UNHEARD: {run}/{change.task} was taken back after {waited} of {limit_ms} ms")

    def returned(self, run: RunKey, change: ch.LeaseReturned) -> None:
        """P-LEASE: nobody's lease is cut short. P-OUTAGE: finished work is not thrown away. P-POISON: not for ever."""
        model = self._must_hold(run, change.task, change.fence)
        if change.cause.startswith(FELL_SILENT):
            model.ended_silent[change.fence] = None
            self._check_patience(run, change)
        if change.cause == "not held any more":
            if self.model.facts.is_lost_work(change.fence):
                raise Broken(f"P-OUTAGE: {run}/{change.task} was finished by its worker and taken away")
            if self.model.facts.is_running(change.fence):
                raise Broken(f"P-ABSENCE: {run}/{change.task} was said not to be held, and runs")
        if change.cause == ch.RELEASED and self.model.facts.is_running(change.fence):
            raise Broken(f"P-GONE: {run}/{change.task} was handed back while it runs")
        if change.cause.startswith(LEASE_RAN_OUT):
            self.model.facts.note("lease_ran_out")
        if change.revoked:
            self._revoked(run, change)
        self.model.ended_for[change.fence] = change.cause
        if change.cause == "its worker restarted" and self.model.facts.is_well(
            self.model.live[change.fence].incarnation
        ):
            self.takeovers += 1
            if self.takeovers > TAKEOVERS_MAX:
                raise Broken(f"P-CLONE: {run}/{change.task} was taken from a worker that is alive and well")
        # What a person ends after it began has been an attempt.
        model.spent += change.state is CANCELLED and model.state is RUNNING
        model.due_at = change.due_at
        if change.due_at:
            self.model.facts.note("redelivered_later")
        elif change.counted and model.interrupted and change.state is QUEUED and self._was_claimed(change):
            raise Broken(f"P-REDELIVER: {run}/{change.task} was claimed and lost again, and is offered at once")
        model.interrupted += change.counted
        if model.interrupted > INTERRUPTIONS_MAX:
            raise Broken(f"P-POISON: {run}/{change.task} was interrupted {model.interrupted} times")
        self.model.move(run, change.task, change.state, change.at)

    def _revoked(self, run: RunKey, change: ch.LeaseReturned) -> None:
        """P-REGRANT: only work that may run twice, only after its queue's time, and limits count both."""
        model = self.model
        model.facts.note("revoked")
        graph, spec = model.graph(run), model.spec(run, change.task)
        lease = model.live[change.fence]
        model.revoked[change.fence] = (lease, change.at)
        model.task(run, change.task).revoked[change.fence] = None
        if graph is None or spec is None or not graph.regrant_when_silent:
            raise Broken(f"P-REGRANT: {run}/{change.task} was revoked and must not run twice")
        lease.timeout_ms = model.facts.queue(run[0], spec.queue).worker_timeout_ms
        waited = change.at - model.granted[change.fence]
        if waited <= lease.timeout_ms and not (model.mix.skew_ms or model.mix.clock_step):
            raise Broken(f"P-REGRANT: {run}/{change.task} was revoked after {waited} of {lease.timeout_ms} ms")

    def revoked_ended(self, run: RunKey, change: ch.RevokedLeaseEnded) -> None:
        """P-REGRANT: a revoked lease that its worker is at work on counts until its time is over."""
        model = self.model
        lease, revoked_at = model.revoked.pop(change.fence)
        del model.task(run, change.task).revoked[change.fence]
        if model.mix.skew_ms or model.mix.clock_step or not model.facts.is_running(change.fence):
            return
        worker = model.facts.worker("shared", lease.worker)
        waited = change.at - revoked_at + lease.timeout_ms
        # A worker that was removed, or is another process by now, holds nothing.
        is_same = worker is not None and worker.incarnation == lease.incarnation
        if is_same and waited < model.mix.limits.lease_ms:
            raise Broken(f"P-REGRANT: {run}/{change.task} counted for {waited} ms of its lease, and runs")

    def _was_claimed(self, change: ch.LeaseReturned) -> bool:
        """Whether the lease was a claim. A session that left is not stored any more; the cause of the return tells."""
        lease = self.model.live[change.fence]
        worker = self.model.facts.worker("shared", lease.worker)
        is_pull = worker is not None and worker.capacity.pull
        return is_pull or change.cause in CLAIMED_AND_LOST

    def _check_patience(self, run: RunKey, change: ch.LeaseReturned) -> None:
        if self.model.mix.skew_ms or self.model.mix.clock_step:
            return
        lease_ms = self.model.mix.limits.lease_ms
        waited = change.at - self.model.granted[change.fence]
        if waited < lease_ms:
            raise Broken(f"P-LEASE: {run}/{change.task} was taken away after {waited} of {lease_ms} ms")
        if fence_epoch(change.fence) < self.model.epoch:
            waited = change.at - self.model.facts.reign_began_at(self.model.epoch)
            if waited < lease_ms:
                raise Broken(f"P-LEASE: {run}/{change.task} was taken away {waited} ms after an election")

    def _must_hold(self, run: RunKey, idx: int, fence: Fence) -> TaskModel:
        model = self.model.task(run, idx)
        if model.fence != fence:
            raise Broken(f"P-FENCE: {run}/{idx} was changed by fence {fence}, {model.fence} holds it")
        return model
