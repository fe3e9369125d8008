"""From snapshots to the view of a cycle. One that cannot be read is left out and reported; the others are seen."""

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

from msgspec import Struct

from rota.core.audience import Session
from rota.core.cycle import CycleSettings, View, Waiting
from rota.core.demand import Demand, property_values
from rota.core.ids import DEFAULT_TENANT, RunId, WorkerId, WorkerKey
from rota.core.ladder import Starvation
from rota.core.model import Capacity
from rota.core.wakes import WakeMemory
from rota.kinds.agent.matching import PRIORITY_WEIGHT, Owner, capacity_of, demand_of, is_for_sessions, requires_of
from rota.kinds.agent.snapshots import (
    AT_WORK,
    NOT_CLAIMABLE,
    AgentRun,
    RunSnapshot,
    RunStatus,
    SessionSnapshot,
    SessionState,
)

# Most runs and sessions look like the ones a cycle ago; so many different ones are remembered.
_KNOWN_MAX = 16_384
# Whoever is in such a state claims now or before long. A session that stops does not count as one that could claim.
_LIVE = (SessionState.ACTIVE, SessionState.STARTING)
# Asking an enumeration for a member takes longer than the rest of what is asked of most runs.
_QUEUED = RunStatus.QUEUED


class Sight(Struct, frozen=True):
    """A view, and what its keys stand for; runs by their ids."""

    view: View
    works: dict[str, RunSnapshot]
    sessions: dict[WorkerKey, SessionSnapshot]
    unclaimable: int
    errors: list[Exception]


def look(
    pending: Sequence[RunSnapshot],
    active: Iterable[AgentRun],
    sessions: Iterable[SessionSnapshot],
    rows: Mapping[str, Starvation],
    wakes: WakeMemory,
    settings: CycleSettings,
) -> Sight:
    """What a cycle sees. Of two snapshots with one id the first counts."""
    errors: list[Exception] = []
    works: dict[str, RunSnapshot] = {}
    waiting = _read_runs(pending, rows, works, errors)
    live = _read_sessions(sessions, _bound(active, errors), errors)
    view = View(
        waiting=waiting,
        sessions=[one for one, _ in live.values()],
        woken=wakes.woken,
        offered=wakes.offered,
        settings=settings,
    )
    known = {key: snapshot for key, (_, snapshot) in live.items()}
    return Sight(view, works, known, len(pending) - len(waiting), errors)


def is_claimable(work: RunSnapshot) -> bool:
    """Whether sessions may claim a run, now that it is pending."""
    run, task = work.run, work.task
    return (
        run.status is _QUEUED
        and not task.paused
        and task.status not in NOT_CLAIMABLE
        and (task.owner is None or is_for_sessions(task.owner))
        and bool(run.id.strip() and task.id.strip())
    )


def _read_runs(
    pending: Iterable[RunSnapshot],
    rows: Mapping[str, Starvation],
    works: dict[str, RunSnapshot],
    errors: list[Exception],
) -> list[Waiting]:
    waiting: list[Waiting] = []
    for work in pending:
        try:
            if not is_claimable(work):
                continue
            run, task = work.run, work.task
            if run.id in works:
                continue
            asked = _demand(
                task.workspace_id, run.channel, task.owner, run.required_capabilities, run.preferred_capabilities
            )
            waiting.append(
                Waiting(
                    key=(DEFAULT_TENANT, RunId(run.id)),
                    demand=asked,
                    weight=PRIORITY_WEIGHT[task.priority],
                    eligible_since=run.waits_since,
                    starvation=rows.get(run.id),
                )
            )
            works[run.id] = work
        except Exception as error:  # one that cannot be read must not keep the others waiting
            errors.append(_about("run", getattr(getattr(work, "run", None), "id", "?"), error))
    return waiting


def _read_sessions(
    sessions: Iterable[SessionSnapshot], bound: dict[str, None], errors: list[Exception]
) -> dict[WorkerKey, tuple[Session, SessionSnapshot]]:
    live: dict[WorkerKey, tuple[Session, SessionSnapshot]] = {}
    for one in sessions:
        try:
            if not one.id.strip() or one.state not in _LIVE:
                continue
            capacity, values = _offer(one.id, one.agent_name, one.workspace_id, one.channel, tuple(one.capabilities))
            idle = one.state == SessionState.ACTIVE and not one.prompting and one.id not in bound
            seen = Session(
                key=(DEFAULT_TENANT, WorkerId(one.id)),
                capacity=capacity,
                values=values,
                created_at=one.created_at,
                idle=idle,
            )
            live.setdefault(seen.key, (seen, one))
        except Exception as error:  # likewise
            errors.append(_about("session", getattr(one, "id", "?"), error))
    return live


def _bound(active: Iterable[AgentRun], errors: list[Exception]) -> dict[str, None]:
    """Sessions that have a run in hand; one lease is all that a session may hold here."""
    bound: dict[str, None] = {}
    for run in active:
        try:
            if run.session_id and run.status in AT_WORK:
                bound[run.session_id] = None
        except Exception as error:  # a session that is woken while it is busy loses nothing
            errors.append(_about("run", getattr(run, "id", "?"), error))
    return bound


@lru_cache(_KNOWN_MAX)
def _demand(
    workspace: str, channel: str, owner: Owner | None, required: tuple[str, ...], preferred: tuple[str, ...]
) -> Demand:
    return demand_of(
        requires_of(
            workspace=workspace.strip(),
            channel=channel.strip(),
            owner=owner,
            requires=_trimmed(required),
            prefers=_trimmed(preferred),
        )
    )


@lru_cache(_KNOWN_MAX)
def _offer(
    id: str, agent: str, workspace: str, channel: str, capabilities: tuple[str, ...]
) -> tuple[Capacity, dict[str, tuple[str, ...]]]:
    capacity = capacity_of(
        id,
        agent=agent.strip(),
        workspace=workspace.strip(),
        channel=channel.strip(),
        capabilities=_trimmed(capabilities),
    )
    return capacity, property_values(capacity)


def _trimmed(names: tuple[str, ...]) -> Iterable[str]:
    return dict.fromkeys(name.strip() for name in names)


def _about(what: str, id: str, error: Exception) -> Exception:
    told = ValueError(f"{what} {id} cannot be read: {error}")
    told.__cause__ = error
    return told
