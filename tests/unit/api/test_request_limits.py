"""How large a request may be: by its type, by its caller's role, and the same in the guide."""

import asyncio
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from rota.api.auth import NEEDS, Principal, Role
from rota.api.counter import Counter
from rota.api.http.reading import BODY_BYTES_MAX as HTTP_BODY_BYTES_MAX
from rota.api.http.reading import ITEMS_MAX, NAMES_BYTES_MAX, SUBMISSION_BYTES_MAX, SUBMISSION_ITEMS_MAX
from rota.api.request_limits import (
    AROUND_BYTES,
    BATCH_BYTES_MAX,
    BYTES_MAX,
    GROWTH_BYTES_MAX,
    bytes_max,
    check_head,
    message_bytes_max,
)
from rota.core.bounds import BUNDLE_PACKED_BYTES_MAX
from rota.wire.channels import FRAME_BYTES_MAX
from rota.wire.large_requests import BODY_BYTES_MAX, REQUEST_BYTES_MAX, SMALL_BYTES_MAX, read_head
from rota.wire.requests import Response
from tests.refusals import refused

ROOT = Path(__file__).parents[3]


def who(role: Role) -> Principal:
    return Principal("x", role, "default")


@pytest.mark.parametrize("role", [Role.READER, Role.AGENT, Role.WORKER])
def test_those_who_send_no_graphs_send_nothing_large(role: Role):
    assert message_bytes_max(who(role)) == BATCH_BYTES_MAX + AROUND_BYTES


@pytest.mark.parametrize("role", [Role.WRITER, Role.ADMIN, Role.OWNER, Role.ANALYST])
def test_those_who_submit_may_send_a_large_graph(role: Role):
    assert message_bytes_max(who(role)) == REQUEST_BYTES_MAX + AROUND_BYTES


@pytest.mark.parametrize("role", list(Role))
@pytest.mark.parametrize("kind", list(NEEDS), ids=lambda kind: kind.__name__)
def test_what_a_caller_may_not_ask_is_not_read_when_it_is_large(role: Role, kind: type):
    most = bytes_max(who(role), kind.__name__)
    assert most == BODY_BYTES_MAX or (kind in BYTES_MAX and most == BYTES_MAX[kind])
    if most > BODY_BYTES_MAX:
        assert who(role).may_do(kind) or role is Role.ANALYST


def test_a_type_that_is_not_known_or_does_not_come_first_is_small():
    assert bytes_max(who(Role.OWNER), "OfTomorrow") == BODY_BYTES_MAX
    late = msgspec.msgpack.encode([1, {"run": "r" * BODY_BYTES_MAX, "type": "SubmitRun"}])
    with refused("field.size"):
        check_head(who(Role.OWNER), read_head(late))


class _Answers(Counter):
    """A connection that keeps what it is answered, and may not get as far as its desk."""

    def __init__(self, role: Role) -> None:
        desk: Any = None
        super().__init__(desk, who(role))
        self.said: list[Response] = []

    def send(self, response: Response) -> None:
        self.said.append(response)


@pytest.mark.parametrize(
    "content",
    [
        msgspec.msgpack.encode([7, {"type": "GetRun", "tenant": "t", "run": "r" * BODY_BYTES_MAX}]),
        msgspec.msgpack.encode([7, {"type": "SubmitRun", "graph": [{}] * (2 * BODY_BYTES_MAX)}]),
        msgspec.msgpack.encode([7, [{}] * (2 * BODY_BYTES_MAX)]),
    ],
    ids=["of a type", "of another role", "of no type"],
)
def test_a_request_that_is_too_large_is_answered_with_a_refusal_under_its_number(content: bytes):
    assert len(content) > SMALL_BYTES_MAX
    connection = _Answers(Role.READER)
    asyncio.run(connection.take(content))
    (answer,) = connection.said
    assert answer.number == 7
    assert answer.trouble is not None
    assert (answer.trouble.code, answer.trouble.retry_after_ms) == ("field.size", 0)


def test_the_guide_has_these_numbers():
    page = (ROOT / "docs" / "guides" / "service.md").read_text(encoding="utf-8")
    table = page.partition("## Limits of a request")[2].partition("\n## ")[0]
    found = {
        name: number.replace(",", "") for name, number in re.findall(r"^\| `(\w+)` \| [^|]+ \| ([\d,]+) ", table, re.M)
    }
    assert found == {
        "submission": str(REQUEST_BYTES_MAX),
        "growth": str(GROWTH_BYTES_MAX),
        "bundle": str(BUNDLE_PACKED_BYTES_MAX),
        "names": str(NAMES_BYTES_MAX),
        "other": str(BODY_BYTES_MAX),
        "batch": str(BATCH_BYTES_MAX),
        "frame": str(FRAME_BYTES_MAX),
        "values": str(ITEMS_MAX),
        "submission_values": str(SUBMISSION_ITEMS_MAX),
    }
    assert (SUBMISSION_BYTES_MAX, HTTP_BODY_BYTES_MAX) == (REQUEST_BYTES_MAX, BODY_BYTES_MAX), "the same over HTTP"
