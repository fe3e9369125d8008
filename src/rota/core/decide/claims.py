"""Deciding about those who ask for their work themselves: claims, renewals, beats, leaving.

A claim picks the best of what may be claimed, in one decision, so nobody can have the same work twice. Whoever holds a
lease shows its fence and, where it was given one, the secret whose hash the lease keeps.
"""

from rota.core import commands as cm
from rota.core.bounds import LEASE_MS_MAX
from rota.core.changes import AttemptStarted, TokenReplaced
from rota.core.claiming import pick_claim
from rota.core.decide.decision import Decision
from rota.core.decide.leases import grant, is_token, send_back
from rota.core.decide.workers import check_owner, gone
from rota.core.errors import Refused
from rota.core.graph import check_number
from rota.core.ids import Fence, Incarnation, Millis, WorkerId
from rota.core.live import Lease, LiveWorker
from rota.core.model import Mood
from rota.core.records import Receipt
from rota.core.state import State

LEASE_MS_LEAST = 1_000
SIGNED_OFF = "its worker left"


def claim(state: State, command: cm.ClaimTask, now: Millis) -> Decision:
    """Give a pull worker the best task it may have, or nothing. The scheduler never claims for it."""
    worker = find_holder(state, command.tenant, command.worker, command.incarnation, command.owner)
    check_number(command.lease_ms, LEASE_MS_LEAST, LEASE_MS_MAX, "lease_ms")
    check_number(command.wait_ms, 0, LEASE_MS_MAX, "wait_ms")
    if worker.row.draining or worker.mood is Mood.STOPPING:
        raise Refused("worker.draining", f"worker {command.worker!r} takes no new work", path="worker")
    if worker.slots_free <= 0:
        held = ", ".join(f"{lease.run.row.id} (fence {fence})" for fence, lease in worker.leases.items())
        hint = "Complete, fail or release that first, or register with a higher limit."
        raise Refused("lease.held", f"{command.worker!r} holds as much as it may: {held[:200]}", hint, path="worker")
    picked = pick_claim(state, worker, command, now)
    if picked is None:
        return Decision([], answer="")
    overtaken = send_back(picked.run, picked.task, now)
    if overtaken:
        return Decision(overtaken, answer="")
    granted = grant(
        state,
        picked.run,
        picked.task,
        worker,
        command.lease_ms,
        now,
        overdue=picked.overdue,
        token_hash=command.token_hash,
    )
    # Who claims work has begun it: what is lost from here on counts.
    started = AttemptStarted(*picked.run.key, picked.task.idx, granted.fence, now)
    return Decision([granted, started], answer=str(granted.fence))


def claim_again(state: State, command: cm.ClaimTask, receipt: Receipt, now: Millis) -> Decision:
    """A claim that is repeated is answered with the same lease, under a new secret: the first answer may be lost."""
    lease = state.leases.get(Fence(int(receipt.answer))) if receipt.answer else None
    if lease is None:
        hint = "Claim again under another id."
        raise Refused("lease.expired", "what was claimed under this id is not held any more", hint, path="command_id")
    find_holder(state, command.tenant, command.worker, command.incarnation, command.owner)
    if lease.task.token_hash == command.token_hash:
        return Decision([], answer=receipt.answer, is_repeat=True)
    replaced = TokenReplaced(*lease.run.key, lease.task.idx, lease.fence, command.token_hash, now)
    return Decision([replaced], answer=receipt.answer, is_repeat=True)


def find_holder(state: State, tenant: str, name: WorkerId, incarnation: Incarnation, owner: str) -> LiveWorker:
    """A registered worker in its present incarnation, if it is its owner who speaks for it."""
    worker = state.workers.get((tenant, name))
    if worker is None or worker.row.incarnation != incarnation:
        raise Refused("worker.unknown", f"worker {name!r} is not registered in this incarnation", "Register again.")
    check_owner(worker, owner)
    return worker


def find_held(state: State, command: cm.RenewLease) -> Lease:
    """The lease that somebody speaks of, if it is theirs; else a refusal that says what is wrong."""
    worker = state.workers.get((command.tenant, command.worker))
    if worker is not None:
        check_owner(worker, command.owner)
    lease = state.leases.get(command.fence)
    if lease is None:
        text = f"nobody holds fence {command.fence} any more"
        raise Refused("lease.lost", text, "Another may have the work. Stop and discard.", path="fence")
    if lease.worker.key != (command.tenant, command.worker) or lease.task.incarnation != command.incarnation:
        text = f"fence {command.fence} is held by another"
        raise Refused("lease.foreign", text, "Stop and discard.", path="fence")
    if not is_token(lease.task, command.token_hash):
        text = f"this is not the token of fence {command.fence}"
        raise Refused("lease.token", text, "Use the newest one that a claim gave.", path="token")
    return lease


def renew(state: State, command: cm.RenewLease, now: Millis) -> Decision:
    """Keep a pull worker's lease. Memory only: nothing is written, and `detail` says until when."""
    check_number(command.lease_ms, LEASE_MS_LEAST, LEASE_MS_MAX, "lease_ms")
    lease = find_held(state, command)
    if command.lease_ms > lease.task.lease_ms:
        # A longer promise would not survive a change of coordinator, which knows only what was granted.
        hint = f"Claim for longer, or renew for at most {lease.task.lease_ms} ms."
        raise Refused("field.value", f"{command.lease_ms} ms is longer than the lease", hint, path="lease_ms")
    return Decision([], answer="renewed", detail=(lease.fence, now - state.stalled_ms + command.lease_ms))


def beat(state: State, command: cm.BeatWorker, now: Millis) -> Decision:  # noqa: ARG001 - the loop hears of it
    """A pull worker is alive; the answer is which fences it holds."""
    worker = find_holder(state, command.tenant, command.worker, command.incarnation, command.owner)
    return Decision([], answer=",".join(str(fence) for fence in worker.leases))


def withdraw(state: State, command: cm.WithdrawClaim, now: Millis) -> Decision:  # noqa: ARG001 - the loop forgets it
    """A claim waits no longer. One that has ended, or was never made, is withdrawn already."""
    worker = state.workers.get((command.tenant, command.worker))
    if worker is not None:
        check_owner(worker, command.owner)
    return Decision([], answer=command.worker)


def leave(state: State, command: cm.LeaveWorker, now: Millis) -> Decision:
    """A pull worker is struck off at its own wish. Leaving twice is not an error."""
    worker = state.workers.get((command.tenant, command.worker))
    if worker is None or worker.row.incarnation != command.incarnation:
        return Decision([], answer=command.worker)
    check_owner(worker, command.owner)
    return Decision(gone(worker, now, SIGNED_OFF), answer=command.worker)
