"""From an action to the run that carries it out."""

import pytest
from msgspec import structs

from rota.core.ids import Digest
from rota.core.model import PriorityClass
from rota.kinds.build.scheduling import Asked, class_of, merge_key, submission
from rota.wire.builds import BUILD, BuildWork, decode_work

ACTION = Digest("ab" * 32, 17)
WORK = BuildWork(
    instance="main", action=ACTION, content="grpc://here:1", invocation="i-1", target="//a:b", mnemonic="Genrule"
)
ASKED = Asked(tenant="t", work=WORK, queue="q", properties=(("cpu_arch", "x86_64"),))


@pytest.mark.parametrize(
    ("priority", "expected"),
    [
        (-(1 << 31), PriorityClass.URGENT),
        (-101, PriorityClass.URGENT),
        (-100, PriorityClass.HIGH),
        (-1, PriorityClass.HIGH),
        (0, PriorityClass.NORMAL),
        (1, PriorityClass.LOW),
        ((1 << 31) - 1, PriorityClass.LOW),
    ],
)
def test_lower_numbers_are_sooner(priority: int, expected: PriorityClass) -> None:
    command, graph = submission(structs.replace(ASKED, priority=priority), "r")
    assert command.priority is class_of(priority) is expected
    assert graph.tasks[0].priority == max(-1_000_000, min(1_000_000, -priority))


def test_actions_that_are_scheduled_alike_share_a_graph() -> None:
    one, _ = submission(ASKED, "r1")
    work = structs.replace(WORK, action=Digest("cd" * 32, 1), target="//c:d")
    other, graph = submission(structs.replace(ASKED, work=work), "r2")
    assert one.digest == other.digest
    assert decode_work(other.params) == work
    (task,) = graph.tasks
    assert (task.kind, task.queue, task.requires, task.work) == (BUILD, "q", (("cpu_arch", "x86_64"),), b"")


def test_who_asks_for_the_same_finds_those_who_did() -> None:
    one, other = submission(ASKED, "r1")[0], submission(ASKED, "r2")[0]
    assert one.merge == other.merge != ""
    others = [
        structs.replace(WORK, instance=""),
        structs.replace(WORK, content="grpc://there:1"),
        structs.replace(WORK, action=Digest(ACTION.hash, 18)),
    ]
    assert len({merge_key(work) for work in (WORK, *others)}) == 4
    assert submission(structs.replace(ASKED, is_shared=False), "r")[0].merge == ""


def test_what_the_client_says_of_itself_becomes_labels_and_whose_turn_it_is() -> None:
    command, _ = submission(ASKED, "r")
    assert command.share == "i-1"
    assert dict(command.labels) == {
        "action": ACTION.hash,
        "instance": "main",
        "invocation": "i-1",
        "mnemonic": "Genrule",
        "target": "//a:b",
    }
    nobody = BuildWork(instance="", action=ACTION, content="grpc://here:1")
    assert [name for name, _ in submission(structs.replace(ASKED, work=nobody), "r")[0].labels] == ["action"]
