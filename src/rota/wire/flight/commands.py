"""Commands of Flight SQL in and out of the envelope in which they travel."""

from collections.abc import Callable

from google.protobuf.any_pb2 import Any as Envelope
from google.protobuf.message import DecodeError, Message

from rota.core.errors import Refused
from rota.wire.flight import flight_sql_pb2 as pb

PREFIX = "type.googleapis.com/arrow.flight.protocol.sql."
NAME_CHARS_MAX = 200

# What is asked for, by the name of the specification. Those without a message of their own have no fields.
COMMANDS: dict[str, Callable[[], Message] | None] = {
    "CommandGetSqlInfo": pb.GetSqlInfo,
    "CommandGetCatalogs": None,
    "CommandGetDbSchemas": pb.GetDbSchemas,
    "CommandGetTables": pb.GetTables,
    "CommandGetTableTypes": None,
    "CommandGetPrimaryKeys": pb.GetKeys,
    "CommandGetImportedKeys": pb.GetKeys,
    "CommandGetExportedKeys": pb.GetKeys,
    "CommandStatementQuery": pb.Statement,
    "CommandStatementUpdate": pb.Statement,
    "CommandPreparedStatementQuery": pb.Prepared,
    "CommandPreparedStatementUpdate": pb.Prepared,
    "TicketStatementQuery": pb.Ticket,
    "ActionCreatePreparedStatementRequest": pb.Statement,
    "ActionClosePreparedStatementRequest": pb.Prepared,
    "ActionCancelQueryRequest": pb.CancelQuery,
}


def unpack(content: bytes | None) -> tuple[str, Message | None]:
    """The name of what is asked for, and its fields. Raises Refused."""
    if content is None:
        raise Refused("query.unsupported", "there are only commands of Flight SQL here, and no paths", path="command")
    envelope = Envelope()
    try:
        envelope.ParseFromString(content)
        name = envelope.type_url.removeprefix(PREFIX)
        kind = COMMANDS.get(name)
        if name not in COMMANDS:
            text = f"there is no {name[:NAME_CHARS_MAX] or 'command without a name'} here"
            raise Refused("query.unsupported", text, path="command")
        return name, None if kind is None else _parsed(kind(), envelope.value)
    except DecodeError as error:
        raise Refused("field.value", f"a command of Flight SQL cannot be read: {error}", path="command") from None


def _parsed(message: Message, content: bytes) -> Message:
    message.ParseFromString(content)
    return message


def unpack_cancel(content: bytes) -> pb.CancelQuery:
    """What `CancelFlightInfo` is to end; it is not in an envelope, and has the same shape as `CancelQuery`."""
    try:
        return pb.CancelQuery.FromString(content)
    except DecodeError as error:
        raise Refused("field.value", f"what to cancel cannot be read: {error}", path="action") from None


def pack(name: str, message: Message) -> bytes:
    """A message under its name."""
    return Envelope(type_url=PREFIX + name, value=message.SerializeToString()).SerializeToString()
