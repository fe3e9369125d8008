"""What both ends of a gRPC stream agree on: versions, trouble as a status, lines for operators."""

import asyncio
import re
import subprocess
import sys
from typing import Any

import grpc
import msgspec
import pytest

from rota.core.errors import CODES, Refused, Unavailable
from rota.wire.channels import (
    PROTOCOL,
    TROUBLE,
    VERSION,
    Call,
    check_answered,
    check_version,
    greeting,
    pack_trouble,
    status_of,
    trouble_at_end,
)
from tests.refusals import refused

WHERE = "grpc://host:1"


class Ended(Call):
    """A call that is over."""

    def __init__(self, code: grpc.StatusCode, details: str, trailing: Any = ()) -> None:
        self._end = (code, details, trailing)

    async def code(self) -> grpc.StatusCode:
        return self._end[0]

    async def details(self) -> str:
        return self._end[1]

    async def trailing_metadata(self) -> Any:
        return self._end[2]


def end_of(code: grpc.StatusCode, details: str = "", trailing: Any = ()) -> Refused | Unavailable:
    return asyncio.run(trouble_at_end(Ended(code, details, trailing), WHERE))


@pytest.mark.parametrize("code", CODES)
def test_every_trouble_arrives_as_it_was(code: str):
    for sent in (Refused(code, "why", "do this", path="a.b"), Unavailable(code, "why", retry_after_ms=7)):
        details, trailing = pack_trouble(sent)
        met = end_of(status_of(sent), details, trailing)
        assert (type(met), met.args) == (type(sent), sent.args)


def test_a_status_says_whose_fault_it_is():
    assert status_of(Refused("auth.missing", "")) is grpc.StatusCode.UNAUTHENTICATED
    assert status_of(Refused("auth.tenant", "")) is grpc.StatusCode.PERMISSION_DENIED
    assert status_of(Refused("field.type", "")) is grpc.StatusCode.INVALID_ARGUMENT
    assert status_of(Refused("protocol.version", "")) is grpc.StatusCode.FAILED_PRECONDITION
    assert status_of(Unavailable("leader.none")) is grpc.StatusCode.UNAVAILABLE


def test_long_trouble_is_cut_so_that_it_fits_into_headers():
    details, ((name, content),) = pack_trouble(Refused("field.type", "x" * 100_000, "y" * 100_000))
    assert name == TROUBLE
    assert len(details) + len(content) < 8_000


@pytest.mark.parametrize(
    ("code", "details", "kind", "said"),
    [
        (grpc.StatusCode.UNAUTHENTICATED, "", Refused, r"auth\.wrong: .*grpc://host:1 "),
        (grpc.StatusCode.PERMISSION_DENIED, "", Refused, r"auth\.role: .*grpc://host:1 "),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, "too big", Refused, r"field\.size: .*too big"),
        (grpc.StatusCode.UNIMPLEMENTED, "", Refused, r"protocol\.version: .*grpc://host:1 "),
        (grpc.StatusCode.INTERNAL, "bang", Unavailable, r"leader\.none: .*grpc://host:1 .*INTERNAL.*bang"),
        (grpc.StatusCode.UNAVAILABLE, "gone", Unavailable, r"leader\.none: .*grpc://host:1: gone\."),
    ],
)
def test_a_status_of_somebody_else_means_something_too(code: grpc.StatusCode, details: str, kind: type, said: str):
    met = end_of(code, details)
    assert isinstance(met, kind)
    assert re.match(said, str(met)), str(met)


def test_trouble_that_cannot_be_read_is_trouble_still():
    assert "nobody answers" in str(end_of(grpc.StatusCode.UNAVAILABLE, "x", ((TROUBLE, b"\xc1"),)))
    newer = msgspec.msgpack.encode(["code.of_tomorrow", "it is full", "", "", 0])
    assert "it is full" in str(end_of(grpc.StatusCode.UNAVAILABLE, "x", ((TROUBLE, newer),)))


@pytest.mark.parametrize("said", [None, "", "-1", "one", "1.0", "9" * 50, "²"])
def test_a_caller_says_which_version_it_speaks(said: str | None):
    with refused("protocol.version", "(rota-protocol)"):
        check_version(said)


def test_a_version_is_refused_only_if_it_is_newer():
    check_version(str(PROTOCOL))
    with pytest.raises(Refused, match=f"speaks version {PROTOCOL + 1} .* this coordinator version {PROTOCOL}"):
        check_version(str(PROTOCOL + 1))
    check_answered(str(PROTOCOL), WHERE)
    with pytest.raises(Refused, match=f"answers in version {PROTOCOL + 1} .* this is version {PROTOCOL}"):
        check_answered(str(PROTOCOL + 1), WHERE)
    with refused("protocol.version", WHERE, " Rota"):
        check_answered(None, WHERE)


def test_a_caller_greets_with_what_can_be_sent():
    assert greeting("", "") == [(VERSION, str(PROTOCOL))]
    assert dict(greeting("s3cret", "acme")) == {
        VERSION: str(PROTOCOL),
        "rota-tenant": "acme",
        "authorization": "Bearer s3cret",
    }
    for token in ("a\nb", "späť"):
        with pytest.raises(Refused, match=r"auth\.wrong") as caught:
            greeting(token)
        assert token not in str(caught.value)
    with pytest.raises(Refused, match=r"field\.value: the tenant"):
        greeting("", "ä")


FORKING = """
import asyncio, contextlib, subprocess, threading
from rota.wire.channels import grpc

async def main():
    server = grpc.aio.server()
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        await channel.channel_ready()
        forking = asyncio.create_task(asyncio.to_thread(fork))
        while not forking.done():
            with contextlib.suppress(grpc.RpcError):
                await channel.unary_unary("/nothing/there")(b"")
        print(await forking)
    await server.stop(None)

def fork():
    # With a function to run before `exec`, Python forks for good instead of sharing the parent's memory.
    return {subprocess.run(["true"], preexec_fn=threading.active_count).returncode for _ in range(40)}

asyncio.run(main())
"""


@pytest.mark.slow
def test_a_process_that_talks_over_grpc_can_start_others_by_forking():
    done = subprocess.run([sys.executable, "-c", FORKING], capture_output=True, timeout=60, check=False, text=True)
    assert (done.stdout, done.returncode) == ("{0}\n", 0), done.stderr
