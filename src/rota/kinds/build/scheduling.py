"""From an action to the run that carries it out."""

from functools import lru_cache
from hashlib import sha256

from msgspec import Struct

from rota.core.bounds import LABEL_CHARS_MAX, PRIORITY_MAX, TEXT_CHARS_MAX
from rota.core.commands import SubmitRun
from rota.core.graph import graph_digest
from rota.core.ids import CommandId, GraphDigest, Millis, RunId, TaskId
from rota.core.model import Graph, Pairs, PriorityClass, TaskSpec
from rota.wire.builds import BUILD, BuildWork, encode_build

# Where classes begin, in the numbers of the API: lower is sooner.
URGENT_BELOW = -100


class Asked(Struct, frozen=True, kw_only=True):
    """An action as a client asks for it. `properties` are what it wants of its worker."""

    tenant: str
    work: BuildWork
    queue: str
    properties: Pairs = ()
    priority: int = 0
    # When its inputs began to be looked through.
    since: Millis = 0
    # Whether the same action may serve others that ask for it meanwhile.
    is_shared: bool = True


def class_of(priority: int) -> PriorityClass:
    """The class of a priority of the API, where lower is sooner and zero is usual."""
    if priority < URGENT_BELOW:
        return PriorityClass.URGENT
    if priority < 0:
        return PriorityClass.HIGH
    return PriorityClass.LOW if priority else PriorityClass.NORMAL


@lru_cache(maxsize=1_024)
def graph_for(queue: str, properties: Pairs, priority: int) -> tuple[Graph, str]:
    """How it is to be scheduled, and the digest of that; many actions have the same, and the coordinator knows it then.

    Whatever an action did is its result, so only what is nobody's fault is tried again, as often as the queue says.
    """
    sooner = max(-PRIORITY_MAX, min(PRIORITY_MAX, -priority))
    spec = TaskSpec(id=TaskId("action"), kind=BUILD, queue=queue, requires=properties, priority=sooner)
    # An action that runs twice at once has one result: the first that is reported by the live lease.
    graph = Graph(name=BUILD, kind=BUILD, tasks=(spec,), regrant_when_silent=True)
    return graph, graph_digest(graph)


def merge_key(work: BuildWork) -> str:
    """By this those find each other who ask for the same, where the same content is."""
    about = (work.instance, work.content, work.action.hash, str(work.action.size))
    return sha256("\0".join(about).encode()).hexdigest()


def submission(asked: Asked, run: str) -> tuple[SubmitRun, Graph]:
    """The command that makes the run, and the graph that goes with it if the coordinator does not know it."""
    work = asked.work
    graph, digest = graph_for(asked.queue, asked.properties, asked.priority)
    labels = (
        ("action", work.action.hash),
        ("instance", work.instance),
        ("invocation", work.invocation),
        ("mnemonic", work.mnemonic),
        ("target", work.target),
    )
    command = SubmitRun(
        tenant=asked.tenant,
        command_id=CommandId(f"submit-{run}"),
        run=RunId(run),
        is_fresh=True,
        digest=GraphDigest(digest),
        priority=class_of(asked.priority),
        params=encode_build(work),
        merge=merge_key(work) if asked.is_shared else "",
        labels=tuple((name, value[:LABEL_CHARS_MAX]) for name, value in labels if value),
        share=work.invocation[:TEXT_CHARS_MAX],
    )
    return command, graph
