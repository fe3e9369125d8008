"""From a work item to a run, and its words back from what they became."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.core.errors import Refused
from rota.core.graph import check_graph, graph_digest
from rota.kinds.agent.items import amended, compile_item, graph_of, read_owner
from rota.kinds.agent.matching import Owner, OwnerKind, requires_of
from rota.wire.items import ApprovalPolicy, Priority, ResolveWork, SubmitWork, WorkItem, words_of

NAMES = st.from_regex(r"[a-z][a-z.]{0,9}", fullmatch=True)
CAPABILITIES = st.lists(NAMES, unique=True, max_size=4)
OWNERS = st.one_of(st.just(""), NAMES.map("pool:{}".format), NAMES.map("session:{}".format))


def submission(**about: object) -> SubmitWork:
    return SubmitWork(tenant="t", command_id="c", item="i", work=WorkItem(**{"title": "do it", **about}))  # type: ignore[arg-type]  # what tests give


@pytest.mark.slow
@given(
    workspace=st.one_of(st.just(""), NAMES),
    channel=st.one_of(st.just(""), NAMES),
    owner=OWNERS,
    requires=CAPABILITIES,
    prefers=CAPABILITIES,
)
def test_the_words_of_an_item_are_read_back_from_its_requirements(
    workspace: str, channel: str, owner: str, requires: list[str], prefers: list[str]
) -> None:
    pairs = requires_of(
        workspace=workspace, channel=channel, owner=read_owner(owner), requires=requires, prefers=prefers
    )
    words = words_of(pairs)
    assert (words.workspace, words.channel, words.owner) == (workspace, channel, owner)
    assert (words.requires, words.prefers) == (tuple(sorted(requires)), tuple(sorted(prefers)))


def test_items_that_ask_for_the_same_share_a_graph() -> None:
    one = compile_item(submission(requires=("a", "b"), title="one", payload=msgspec.msgpack.encode([1])))
    two = compile_item(submission(requires=("b", "a"), title="two", priority=Priority.URGENT))
    assert one.graph is not None and two.graph is not None
    assert graph_digest(one.graph) == graph_digest(two.graph)
    check_graph(one.graph)
    assert one.graph.tasks[0].retry.retries == 2
    assert graph_of((), 1).tasks[0].retry.retries == 0


def test_what_tells_items_apart_is_in_their_labels_and_parameters() -> None:
    made = compile_item(
        submission(
            workspace="w",
            channel="c",
            owner="pool:p",
            labels=(("team", "a"),),
            approval=ApprovalPolicy.MANUAL,
            depends_on=("x",),
            deadline_at=5,
            parent="p",
        )
    )
    assert dict(made.labels) == {"title": "do it", "workspace": "w", "channel": "c", "owner": "pool:p", "team": "a"}
    assert made.needs_approval and made.after == ("x",) and made.deadline_at == 5 and made.parent == "p"


@pytest.mark.parametrize(
    ("about", "path"),
    [
        ({"title": "  "}, "title"),
        ({"title": "x" * 201}, "title"),
        ({"payload": b"x" * 65_537}, "payload"),
        ({"payload": b"\xc1"}, "payload"),
        ({"max_attempts": 11}, "max_attempts"),
        ({"requires": ("a b",)}, "requires[0]"),
        ({"owner": "extension:x"}, "owner"),
        ({"owner": "pool"}, "owner"),
        ({"labels": (("owner", "x"),)}, "labels"),
    ],
)
def test_what_cannot_be_an_item_is_refused(about: dict[str, object], path: str) -> None:
    with pytest.raises(Refused) as caught:
        compile_item(submission(**about))
    assert caught.value.path == path


def test_a_parked_item_keeps_what_is_not_changed() -> None:
    before = requires_of(workspace="w", channel="c", owner=Owner(OwnerKind.POOL, "p"), requires=("a",), prefers=("b",))
    asked = ResolveWork(tenant="t", command_id="c", item="i")
    assert amended(before, asked) is None
    changed = amended(before, msgspec.structs.replace(asked, requires=("x",), owner=""))
    assert changed is not None
    words = words_of(changed)
    assert (words.workspace, words.channel, words.owner) == ("w", "c", "")
    assert (words.requires, words.prefers) == (("x",), ("b",))
