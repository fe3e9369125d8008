"""The service ByteStream: large content, read and written piece by piece. None is ever held as a whole."""

import asyncio
from collections.abc import AsyncIterator, Mapping

from rota.api.auth import Role
from rota.api.reapi.calls import Caller, Method, Sort
from rota.api.reapi.capabilities import Instances
from rota.api.reapi.statuses import refusal_of
from rota.core.errors import Refused, Unavailable
from rota.ports import Content, ContentFull, ContentLost, Upload, WrongContent
from rota.wire.reapi import bytestream_pb2 as bs
from rota.wire.reapi.digests import EMPTY
from rota.wire.reapi.methods import QUERY_WRITE_STATUS, READ, WRITE
from rota.wire.reapi.names import UploadName, check_instance, read_blob_name, read_upload_name

# Field 10 of a ReadResponse, a string of bytes.
_DATA_TAG = b"\x52"


class ByteStream:
    """Reads and writes the content of each tenant."""

    def __init__(self, content: Content, instances: Instances = check_instance) -> None:
        self._content = content
        self._instances = instances
        # Who writes under a name now: of two that do, the later one is what is left of a client that came back.
        self._writing: dict[tuple[str, UploadName], asyncio.Event] = {}

    def methods(self) -> Mapping[str, Method]:
        """See `Service`."""
        read, written = Role.READER, Role.WRITER
        return {
            READ: Method(bs.ReadRequest, self._read, read, Sort.MANY_ANSWERS, is_for_workers=True),
            WRITE: Method(bs.WriteRequest, self._write, written, Sort.MANY_PIECES, is_for_workers=True),
            QUERY_WRITE_STATUS: Method(bs.QueryWriteStatusRequest, self._query, written, is_for_workers=True),
        }
