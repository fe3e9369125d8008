"""Commands of Flight SQL: read with suspicion, and refused with a code whatever they are."""

import pytest
from google.protobuf.any_pb2 import Any as Envelope
from hypothesis import given
from hypothesis import strategies as st

from rota.core.errors import Refused
from rota.wire.flight import flight_sql_pb2 as pb
from rota.wire.flight.commands import COMMANDS, PREFIX, pack, unpack, unpack_cancel


@pytest.mark.parametrize("name", list(COMMANDS))
def test_every_command_is_read_as_it_was_written(name: str) -> None:
    kind = COMMANDS[name]
    found, message = unpack(Envelope(type_url=PREFIX + name).SerializeToString())
    assert found == name
    assert message == (None if kind is None else kind())


def test_fields_arrive() -> None:
    name, message = unpack(pack("CommandStatementQuery", pb.Statement(query="select 'å'")))
    assert (name, message) == ("CommandStatementQuery", pb.Statement(query="select 'å'"))


@pytest.mark.parametrize(
    ("content", "code", "said"),
    [
        (b"", "query.unsupported", "without a name"),
        (None, "query.unsupported", "no paths"),
        (b"\xff\xff\xff", "field.value", "cannot be read"),
        (Envelope(type_url="x" * 10_000).SerializeToString(), "query.unsupported", f" {'x' * 200} "),
        (Envelope(type_url=PREFIX + "CommandFly").SerializeToString(), "query.unsupported", " CommandFly "),
        (Envelope(type_url="CommandFly").SerializeToString(), "query.unsupported", " CommandFly "),
        (
            Envelope(type_url=PREFIX + "CommandStatementQuery", value=b"\x0a\xff").SerializeToString(),
            "field.value",
            "cannot be read",
        ),
    ],
)
def test_what_cannot_be_meant_is_refused(content: bytes | None, code: str, said: str) -> None:
    with pytest.raises(Refused) as caught:
        unpack(content)
    assert caught.value.code == code
    assert said in caught.value.reason
    assert len(str(caught.value)) < 1_000


@given(st.binary(max_size=300))
def test_random_bytes_are_refused_or_read_and_nothing_else(content: bytes) -> None:
    for read in (unpack, unpack_cancel):
        try:
            read(content)
        except Refused as refused:
            assert refused.code in ("query.unsupported", "field.value")


@given(st.sampled_from(sorted(COMMANDS)), st.binary(max_size=300))
def test_random_fields_of_known_commands_are_refused_or_read(name: str, value: bytes) -> None:
    try:
        found, _ = unpack(Envelope(type_url=PREFIX + name, value=value).SerializeToString())
        assert found == name
    except Refused as refused:
        assert refused.code == "field.value"
