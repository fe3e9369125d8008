"""Who is let in to a front end, what for, and how calls end that go on when they should not."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from pathlib import Path

import grpc
import pytest

from rota.api.auth import Role
from rota.api.reapi.calls import Caller, Method, Sort
from rota.api.reapi.server import ReapiServer
from rota.api.tokens import Gate
from rota.config.settings import Auth
from rota.core.errors import Refused, Unavailable
from rota.ports import ContentLost
from rota.wire.reapi import remote_execution_pb2 as pb
from rota.wire.reapi.digests import as_message, digest_of
from rota.wire.reapi.methods import (
    BATCH_UPDATE_BLOBS,
    EXECUTE,
    FIND_MISSING_BLOBS,
    GET_ACTION_RESULT,
    GET_CAPABILITIES,
    REQUEST_METADATA,
    UPDATE_ACTION_RESULT,
    WAIT_EXECUTION,
)
from rota.wire.reapi.names import check_instance
from tests.unit.api.reapi.stage import DEADLINE_S, Stage, Told, gate_of, play, staged

TOKENS = "reader:r1,writer:w1,admin@acme:a1,worker:k1,worker@acme:k2"
UNAUTHENTICATED = grpc.StatusCode.UNAUTHENTICATED
DENIED = grpc.StatusCode.PERMISSION_DENIED


def some_batch(content: bytes = b"x") -> pb.BatchUpdateBlobsRequest:
    request = pb.BatchUpdateBlobsRequest()
    request.requests.add(digest=as_message(digest_of(content)), data=content)
    return request


async def code_of(stage: Stage, method: str, request: object, **said: str) -> grpc.StatusCode:
    try:
        await stage.ask(method, request, **said)
    except Told as told:
        return told.code
    return grpc.StatusCode.OK


@pytest.mark.parametrize(
    ("token", "tenant", "reads", "writes", "results"),
    [
        ("", "", UNAUTHENTICATED, UNAUTHENTICATED, UNAUTHENTICATED),
        ("wrong", "", UNAUTHENTICATED, UNAUTHENTICATED, UNAUTHENTICATED),
        ("r1", "", "ok", DENIED, DENIED),
        ("w1", "", "ok", "ok", "ok"),
        ("w1", "acme", DENIED, DENIED, DENIED),
        ("a1", "", "ok", "ok", "ok"),
        ("a1", "acme", "ok", "ok", "ok"),
        ("k1", "", "ok", "ok", DENIED),
        ("k1", "acme", "ok", "ok", DENIED),
        ("k2", "acme", "ok", "ok", DENIED),
        ("k2", "default", DENIED, DENIED, DENIED),
    ],
)
def test_a_token_says_who_may_do_what(token: str, tenant: str, reads: object, writes: object, results: object):
    async def scene() -> None:
        async with staged(gate_of(TOKENS)) as stage:
            kept = pb.UpdateActionResultRequest(
                action_digest=as_message(digest_of(b"action")), action_result=pb.ActionResult()
            )
            for method, request, expected in (
                (FIND_MISSING_BLOBS, pb.FindMissingBlobsRequest(), reads),
                (GET_CAPABILITIES, pb.GetCapabilitiesRequest(), reads),
                (BATCH_UPDATE_BLOBS, some_batch(), writes),
                (UPDATE_ACTION_RESULT, kept, results),
            ):
                code = await code_of(stage, method, request, token=token, tenant=tenant)
                assert code is (grpc.StatusCode.OK if expected == "ok" else expected), method

    play(scene)


def test_content_is_the_tenants_that_the_caller_acts_for():
    async def scene() -> None:
        async with staged(gate_of(TOKENS)) as stage:
            await stage.ask(BATCH_UPDATE_BLOBS, some_batch(b"of acme"), token="k1", tenant="acme")
            await stage.ask(BATCH_UPDATE_BLOBS, some_batch(b"of default"), token="w1")
            assert [tenant for tenant, _ in stage.shelf.kept] == ["acme", "default"]
            assert await stage.read(digest_of(b"of acme"), token="a1") == b"of acme"
            for token in ("r1", "k1"):
                with pytest.raises(Told) as told:
                    await stage.read(digest_of(b"of acme"), token=token)
                assert told.value.code is grpc.StatusCode.NOT_FOUND

    play(scene)


def test_a_tenant_that_is_no_name_is_refused():
    async def scene() -> None:
        async with staged() as stage:
            code = await code_of(stage, FIND_MISSING_BLOBS, pb.FindMissingBlobsRequest(), tenant="x" * 300)
            assert code is grpc.StatusCode.INVALID_ARGUMENT

    play(scene)


def only_main(name: str) -> str:
    if check_instance(name) not in ("main", "a/b"):
        raise Refused("instance.unknown", f"there is no instance {name!r}", "There are: main, a/b.")
    return check_instance(name)


def test_an_unknown_instance_is_an_argument_that_is_wrong():
    async def scene() -> None:
        async with staged(instances=only_main) as stage:
            requests = {
                GET_CAPABILITIES: pb.GetCapabilitiesRequest,
                FIND_MISSING_BLOBS: pb.FindMissingBlobsRequest,
                BATCH_UPDATE_BLOBS: pb.BatchUpdateBlobsRequest,
                GET_ACTION_RESULT: pb.GetActionResultRequest,
            }
            for method, kind in requests.items():
                with pytest.raises(Told, match=r"instance\.unknown: .*'other'.* main, a/b") as told:
                    await stage.ask(method, kind(instance_name="other"))
                assert told.value.code is grpc.StatusCode.INVALID_ARGUMENT
            with pytest.raises(Told, match=r"instance\.unknown"):
                await stage.read(digest_of(b"x"), instance="other")
            with pytest.raises(Told, match=r"instance\.unknown"):
                await stage.write(b"x", instance="other")
            await stage.ask(GET_CAPABILITIES, pb.GetCapabilitiesRequest(instance_name="a/b"))
            assert await stage.write(b"x", instance="/a/b") == 1

    play(scene)


def test_what_a_server_can_do_is_told():
    async def scene() -> None:
        async with staged(gate_of(TOKENS)) as stage:
            told = await stage.ask(GET_CAPABILITIES, b"", pb.ServerCapabilities, token="w1")
            assert (told.low_api_version.major, told.low_api_version.minor) == (2, 0)
            assert (told.high_api_version.major, told.high_api_version.minor) == (2, 3)
            cache, execution = told.cache_capabilities, told.execution_capabilities
            assert list(cache.digest_functions) == [pb.DigestFunction.SHA256]
            assert cache.action_cache_update_capabilities.update_enabled
            assert cache.symlink_absolute_path_strategy == pb.SymlinkAbsolutePathStrategy.DISALLOWED
            assert cache.max_batch_total_size_bytes == 3 << 20
            assert not cache.supported_compressors
            assert execution.exec_enabled
            assert execution.digest_function == pb.DigestFunction.SHA256
            [range_] = execution.execution_priority_capabilities.priorities
            assert (range_.min_priority, range_.max_priority) == (-1_000_000, 1_000_000)
            reader = await stage.ask(GET_CAPABILITIES, b"", pb.ServerCapabilities, token="r1")
            assert not reader.cache_capabilities.action_cache_update_capabilities.update_enabled

    play(scene)


class Play:
    """A service of somebody else, on the same server."""

    def __init__(self) -> None:
        self.abouts: list[pb.RequestMetadata] = []
        self.waiting = asyncio.Event()
        self.ended: list[str] = []
        self.error: Exception = Refused("run.unknown", "no")

    def methods(self) -> Mapping[str, Method]:
        return {
            EXECUTE: Method(pb.ExecuteRequest, self._execute, Role.WRITER, Sort.MANY_ANSWERS),
            WAIT_EXECUTION: Method(pb.WaitExecutionRequest, self._fail, Role.READER),
        }

    async def _execute(self, caller: Caller, request: pb.ExecuteRequest) -> AsyncIterator[pb.ActionResult]:
        self.abouts.append(caller.about)
        yield pb.ActionResult(exit_code=1)
        self.waiting.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.ended.append(caller.tenant)

    async def _fail(self, caller: Caller, request: pb.WaitExecutionRequest) -> pb.ActionResult:
        raise self.error


def test_what_a_call_is_about_is_read_if_it_can_be():
    async def scene() -> None:
        other = Play()
        async with staged(services=[other]) as stage:
            about = pb.RequestMetadata(tool_invocation_id="i", target_id="//a:b", action_mnemonic="Genrule")
            for said in ([(REQUEST_METADATA, about.SerializeToString())], [(REQUEST_METADATA, b"\xff\xff")], []):
                call = stage.channel.unary_stream(EXECUTE)(b"", metadata=said, timeout=DEADLINE_S)
                assert pb.ActionResult.FromString(await call.read()).exit_code == 1
                call.cancel()
            assert other.abouts == [about, pb.RequestMetadata(), pb.RequestMetadata()]

    play(scene)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (Refused("run.unknown", "no"), grpc.StatusCode.FAILED_PRECONDITION),
        (Refused("content.missing", "no"), grpc.StatusCode.NOT_FOUND),
        (ContentLost("gone"), grpc.StatusCode.NOT_FOUND),
        (Unavailable("leader.none", "wait", retry_after_ms=250), grpc.StatusCode.UNAVAILABLE),
        (ValueError("hush"), grpc.StatusCode.INTERNAL),
    ],
)
def test_what_goes_wrong_becomes_a_status(error: Exception, code: grpc.StatusCode):
    async def scene() -> None:
        other = Play()
        other.error = error
        async with staged(services=[other]) as stage:
            with pytest.raises(Told) as told:
                await stage.ask(WAIT_EXECUTION, b"")
            assert told.value.code is code
            assert "hush" not in told.value.text, "errors of ours are for the operator"
            assert [type(each) for each in stage.failures] == ([ValueError] if code is grpc.StatusCode.INTERNAL else [])
            stage.failures.clear()
            if code is grpc.StatusCode.UNAVAILABLE:
                [detail] = told.value.status.details
                assert detail.TypeName() == "google.rpc.RetryInfo"

    play(scene)


def test_a_method_that_nobody_serves_is_said_to_be_unknown():
    async def scene() -> None:
        async with staged() as stage:
            assert await code_of(stage, EXECUTE, b"") is grpc.StatusCode.UNIMPLEMENTED

    play(scene)


def test_a_message_that_is_none_is_refused():
    async def scene() -> None:
        async with staged() as stage:
            assert await code_of(stage, FIND_MISSING_BLOBS, b"\xff\xff") is grpc.StatusCode.INVALID_ARGUMENT

    play(scene)


def test_a_revoked_token_ends_the_stream_that_was_begun_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("rota.api.reapi.server.RECHECK_EVERY_S", 0.01)

    async def scene() -> None:
        tokens, other, now = tmp_path / "tokens", Play(), 0
        tokens.write_text("writer:w1\nwriter:w2\n")
        gate = Gate(Auth(token_file=str(tokens)), lambda: now)
        async with staged(gate, services=[other]) as stage:
            calls = {
                token: stage.channel.unary_stream(EXECUTE)(
                    b"", metadata=[("authorization", f"Bearer {token}")], timeout=DEADLINE_S
                )
                for token in ("w1", "w2")
            }
            for call in calls.values():
                await call.read()
            tokens.write_text("writer:w2\n")
            now = 10_000
            assert await calls["w1"].code() is UNAUTHENTICATED
            assert not calls["w2"].done()
            calls["w2"].cancel()

    play(scene)


def test_who_is_here_when_a_server_stops_is_told():
    async def scene() -> None:
        other = Play()
        async with staged(services=[other]) as stage:
            call = stage.channel.unary_stream(EXECUTE)(b"", timeout=DEADLINE_S)
            await call.read()
            await other.waiting.wait()
            await stage.server.stop()
            assert await call.code() is grpc.StatusCode.UNAVAILABLE
            assert other.ended == ["default"]

    play(scene)


def test_calls_are_counted_by_how_they_ended():
    async def scene() -> None:
        async with staged(gate_of(TOKENS)) as stage:
            await stage.ask(FIND_MISSING_BLOBS, b"", token="r1")
            await code_of(stage, BATCH_UPDATE_BLOBS, b"", token="r1")
            await code_of(stage, FIND_MISSING_BLOBS, b"\xff", token="r1")
            with pytest.raises(Told):
                await stage.read(digest_of(b"gone"), token="r1")
            assert stage.counted == [
                ("FindMissingBlobs", "ok"),
                ("BatchUpdateBlobs", "auth.role"),
                ("FindMissingBlobs", "field.type"),
                ("Read", "content.missing"),
            ]
            assert len(stage.said) == 1, "what is no part of a client's day is told"

    play(scene)


@pytest.mark.slow
def test_hundreds_of_streams_share_a_connection():
    async def scene() -> None:
        other = Play()
        async with staged(services=[other]) as stage:
            calls = [stage.channel.unary_stream(EXECUTE)(b"", timeout=DEADLINE_S) for _ in range(1_200)]
            for call in calls:
                await call.read()
            await stage.write(b"meanwhile")
            assert not any(call.done() for call in calls)

    play(scene)


def test_an_address_that_is_taken_is_refused():
    async def scene() -> None:
        one = ReapiServer([], gate_of(), lambda what, error: Refused("service.failed", ""))
        [port] = await one.start()
        two = ReapiServer(
            [], gate_of(), lambda what, error: Refused("service.failed", ""), addresses=[f"127.0.0.1:{port}"]
        )
        with pytest.raises(Refused, match=r"listen\.failed"):
            await two.start()
        await two.stop()
        await one.stop()

    play(scene)


def test_a_server_listens_on_every_address():
    async def scene() -> None:
        server = ReapiServer(
            [],
            gate_of(),
            lambda what, error: Refused("service.failed", ""),
            addresses=["127.0.0.1:0", "127.0.0.1:0"],
        )
        ports = await server.start()
        assert len({*ports}) == 2
        for port in ports:
            async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
                await channel.channel_ready()
        await server.stop()

    play(scene)


def test_bytes_that_are_not_grpc_disturb_nobody():
    async def scene() -> None:
        async with staged() as stage:
            for nonsense in (b"GET / HTTP/1.1\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(range(256)) * 40):
                reader, writer = await asyncio.open_connection("127.0.0.1", stage.port)
                writer.write(nonsense)
                with suppress(OSError):
                    # It hangs up as soon as it has seen enough.
                    while await reader.read(1 << 16):
                        pass
                writer.close()
                with suppress(OSError):
                    await writer.wait_closed()
            await stage.ask(FIND_MISSING_BLOBS, b"")
            await stage.write(b"and streams too")

    play(scene)
