"""The service Execution: actions are carried out by workers, and clients are told how far they are."""

from collections.abc import AsyncIterator, Mapping

import msgspec
from google.longrunning import operations_pb2  # pyright: ignore[reportMissingTypeStubs] - not marked as typed
from google.rpc import status_pb2  # pyright: ignore[reportMissingTypeStubs] - not marked as typed
from msgspec import structs

from rota.api.auth import Role
from rota.api.reapi import answers
from rota.api.reapi.backlog import ended_for_others
from rota.api.reapi.calls import Caller, Last, Method, Sort, parse
from rota.api.reapi.desks import Desks
from rota.api.reapi.driver import BacklogDriver
from rota.api.reapi.ongoing import Conclusion, Ongoing, Operation, Stage
from rota.api.reapi.results import Results
from rota.api.reapi.statuses import MissingContent, as_status
from rota.api.reapi.trees import Trees
from rota.core.errors import Refused
from rota.core.ids import Digest, Millis
from rota.core.model import Pairs
from rota.core.states import RunState
from rota.kinds.build.naming import OperationName, new_name, new_run, read_name
from rota.kinds.build.scheduling import Asked
from rota.ports import Content, ContentLost
from rota.wire.builds import MISSING_INPUTS, BuildResult, BuildWork, decode_result, encode_build
from rota.wire.reapi import remote_execution_pb2 as pb
from rota.wire.reapi.digests import check_function, read_digest
from rota.wire.reapi.methods import EXECUTE, WAIT_EXECUTION

# An Action is small; one that carries more than its digests and properties is not sent along.
INLINE_ACTION_BYTES_MAX = 4_096
# How often a client is told that nothing is new.
REPEAT_S = 30.0
TIMEOUT_S_MAX = 366 * 24 * 3_600
PROPERTY_CHARS_MAX = 1_000

# How an operation stands, again and again, and how it ended.
Told = AsyncIterator[operations_pb2.Operation | Last]


class Execution:
    """Takes actions from clients, and tells them what becomes of each."""

    def __init__(self, desks: Desks, content: Content, results: Results, trees: Trees, *, requires: Pairs = ()) -> None:
        """`requires` is what every action asks of its worker, whatever its client says."""
        self._requires = requires
        self._desks = desks
        self._content = content
        self._results = results
        self._trees = trees

    def methods(self) -> Mapping[str, Method]:
        """See `Service`."""
        return {
            EXECUTE: Method(pb.ExecuteRequest, self._execute, Role.WRITER, Sort.ANSWERS_TO_A_LAST),
            WAIT_EXECUTION: Method(pb.WaitExecutionRequest, self._wait, Role.READER, Sort.ANSWERS_TO_A_LAST),
        }

    async def _execute(self, caller: Caller, request: pb.ExecuteRequest) -> Told:
        instance = self._desks.instances(request.instance_name)
        check_function(request.digest_function)
        digest = read_digest(request.action_digest, "action_digest")
        backlog = await self._desks.backlog(caller)
        same = backlog.same(instance, digest)
        if not request.skip_cache_lookup:
            kept = await self._results.find(caller.tenant, instance, digest)
            if kept is not None:
                response = pb.ExecuteResponse(result=kept, cached_result=True)
                yield Last(answers.done(OperationName(instance, cached=digest), digest, response))
                return
        if same is not None and may_be_shared(same):
            async for answer in self.follow(caller, backlog, same, backlog.join(same)):
                yield answer
            return
        with self._desks.accepting() as since:
            try:
                asked = await self._read(caller, instance, digest, request.execution_policy.priority, since)
            except MissingContent as missing:
                # As an answer, not as the status of the call: that has no room for many.
                name = new_name(instance, new_run(digest))
                yield Last(answers.done(name, digest, pb.ExecuteResponse(status=as_status(missing))))
                return
            ongoing, operation = await backlog.submit(asked)
        async for answer in self.follow(caller, backlog, ongoing, operation):
            yield answer

    async def _wait(self, caller: Caller, request: pb.WaitExecutionRequest) -> Told:
        name = read_name(request.name)
        if name is None:
            raise unknown(request.name)
        if name.cached is not None:
            yield Last(await self.cached(caller, name, name.cached))
            return
        backlog = await self._desks.backlog(caller)
        found = await backlog.find(name)
        if found is None:
            raise unknown(request.name)
        async for answer in self.follow(caller, backlog, *found):
            yield answer

    async def cached(self, caller: Caller, name: OperationName, action: Digest) -> operations_pb2.Operation:
        """An operation that was over when it began."""
        kept = await self._results.find(caller.tenant, name.instance, action)
        if kept is None:
            raise unknown(str(name))
        return answers.done(name, action, pb.ExecuteResponse(result=kept, cached_result=True))

    async def follow(self, caller: Caller, backlog: BacklogDriver, ongoing: Ongoing, operation: Operation) -> Told:
        """How an operation stands, and whenever that changes, until it is done."""
        backlog.attach(operation)
        # The stage that the client knows.
        told: Stage | None = None
        try:
            while True:
                if ongoing.successor is not None:
                    ongoing = ongoing.successor
                elif operation.is_cancelled:
                    yield Last(answers.cancelled(operation.name, ongoing.work.action))
                    return
                elif ongoing.conclusion is not None:
                    following = await self.again(caller, backlog, ongoing, operation)
                    if following is ongoing:
                        yield Last(await self.conclude(caller.tenant, ongoing, ongoing.conclusion, operation.name))
                        return
                    ongoing = following
                # What is over is told in a moment; that it was being carried out is no news by then.
                elif told is None or (told is not ongoing.stage and not ongoing.is_over):
                    told = ongoing.stage
                    yield answers.under_way(operation.name, ongoing)
                elif not await backlog.has_changed(ongoing, REPEAT_S):
                    # Whoever is in between cuts off streams on which nothing is said.
                    told = None
        finally:
            backlog.detach(ongoing, operation)

    async def again(self, caller: Caller, backlog: BacklogDriver, ongoing: Ongoing, operation: Operation) -> Ongoing:
        """What was ended for others is made again for a client that still asks for it. Raises MissingContent."""
        end, work = ongoing.conclusion, ongoing.work
        if operation.is_cancelled or end is None or not ended_for_others(end):
            return ongoing
        kept = await self._results.find(caller.tenant, work.instance, work.action)
        if kept is not None:
            result = encode_build(BuildResult(result=kept.SerializeToString()))
            ongoing.end(Conclusion(RunState.SUCCESS, result))
            return ongoing
        try:
            with self._desks.accepting() as since:
                asked = await self._read(caller, work.instance, work.action, work.priority, since)
                said = {"target": work.target, "mnemonic": work.mnemonic, "invocation": work.invocation}
                asked = structs.replace(asked, work=structs.replace(asked.work, **said))
                return await backlog.replace(ongoing, asked)
        except MissingContent:
            raise
        except Refused:
            # A reader, say, may only see how it ended.
            return ongoing

    async def conclude(
        self, tenant: str, ongoing: Ongoing, end: Conclusion, name: OperationName
    ) -> operations_pb2.Operation:
        """The last word on an operation."""
        return answers.done(name, ongoing.work.action, await self._response(tenant, ongoing, end))

    async def _response(self, tenant: str, ongoing: Ongoing, end: Conclusion) -> pb.ExecuteResponse:
        if end.result is None:
            if end.error.startswith(MISSING_INPUTS):
                return pb.ExecuteResponse(status=as_status(await self._lacking(tenant, ongoing.work)))
            return pb.ExecuteResponse(status=answers.failure(end))
        try:
            result, status = await read_result(self._content, tenant, end.result, ongoing.queued_at)
        except (Refused, ContentLost, msgspec.MsgspecError) as error:
            unread = Conclusion(RunState.FAILED, error=f"the result cannot be read: {error}")
            return pb.ExecuteResponse(status=answers.failure(unread))
        return pb.ExecuteResponse(result=result, status=status, message=status.message)

    async def _lacking(self, tenant: str, work: BuildWork) -> MissingContent:
        """What an action lacks whose worker did not find all that it needs."""
        try:
            _, _, missing = await self._walk(tenant, work.action)
        except MissingContent as lacking:
            return lacking
        # It came back meanwhile; naming the action itself makes the client look at everything, and ask again.
        return MissingContent(f"action {work.action.hash}", missing or [work.action])

    async def _read(self, caller: Caller, instance: str, digest: Digest, priority: int, since: Millis) -> Asked:
        """An action as it is to be scheduled. Refuses one that cannot be carried out as it is."""
        raw, (action, command), missing = await self._walk(caller.tenant, digest)
        if missing:
            raise MissingContent(f"action {digest.hash}", missing)
        if not 0 <= action.timeout.seconds <= TIMEOUT_S_MAX:
            raise Refused("field.value", f"a time limit of {action.timeout.seconds} s is none", path="timeout")
        if not command.arguments:
            raise Refused("field.value", "the command has no arguments, and so no program", path="arguments")
        about = caller.about
        work = BuildWork(
            instance=instance,
            action=digest,
            content=self._desks.where(),
            action_bytes=raw if len(raw) <= INLINE_ACTION_BYTES_MAX else b"",
            target=_clean(about.target_id),
            mnemonic=_clean(about.action_mnemonic),
            invocation=_clean(about.tool_invocation_id),
            priority=priority,
        )
        return Asked(
            tenant=caller.tenant,
            work=work,
            queue=self._desks.queue_of(instance),
            properties=_properties(action.platform if action.platform.properties else command.platform, self._requires),
            priority=priority,
            since=since,
            is_shared=not action.do_not_cache,
        )

    async def _walk(self, tenant: str, digest: Digest) -> tuple[bytes, tuple[pb.Action, pb.Command], list[Digest]]:
        """An action, its command, and what is missing of its inputs. Raises MissingContent if it is itself."""
        raw = await self._get(tenant, digest, "the action")
        action: pb.Action = parse(pb.Action, raw)
        command_digest = read_digest(action.command_digest, "command_digest")
        root = read_digest(action.input_root_digest, "input_root_digest")
        missing = (await self._trees.walk_inputs(tenant, root)).missing
        try:
            command: pb.Command = parse(pb.Command, await self._get(tenant, command_digest, "the command"))
        except MissingContent as lacking:
            raise MissingContent(f"action {digest.hash}", [*lacking.digests, *missing]) from None
        return raw, (action, command), missing

    async def _get(self, tenant: str, digest: Digest, what: str) -> bytes:
        try:
            return await self._content.get(tenant, digest)
        except ContentLost:
            raise MissingContent(f"{what} {digest.hash}", [digest]) from None


async def read_result(
    content: Content, tenant: str, reported: bytes, queued_at: Millis
) -> tuple[pb.ActionResult, status_pb2.Status]:
    """What a worker reported of an action that waited from `queued_at` on.

    Raises Refused, ContentLost or MsgspecError.
    """
    build = decode_result(reported)
    raw = build.result if build.stored is None else await content.get(tenant, build.stored)
    result: pb.ActionResult = parse(pb.ActionResult, raw)
    # The worker was not there then.
    result.execution_metadata.queued_timestamp.FromMilliseconds(queued_at)
    return result, status_pb2.Status(code=build.status, message=build.message)


def may_be_shared(same: Ongoing) -> bool:
    """Whether a run that was under way a moment ago gives what another client asks for: not if it gave nothing."""
    return same.conclusion is None or same.conclusion.result is not None


def _clean(text: str) -> str:
    """What a client says of itself is a courtesy: what cannot be kept of it is left out."""
    return text if text.isprintable() else "".join(letter for letter in text if letter.isprintable())


def unknown(name: str) -> Refused:
    """There is no operation of this name, or not any more."""
    return Refused("action.unknown", f"there is no operation {name[:200]!r}", path="name")


def _properties(platform: pb.Platform, requires: Pairs) -> Pairs:
    """What an action wants of its worker. A name may stand there several times; each of its values is wanted then."""
    found = [*((each.name, each.value) for each in platform.properties), *requires]
    for name, value in requires:
        if any(other != value for wanted, other in found if wanted == name):
            raise Refused("field.value", f"actions here run with {name}={value} and with nothing else", path="platform")
    for name, value in found:
        if not name or len(name) > PROPERTY_CHARS_MAX or len(value) > PROPERTY_CHARS_MAX:
            raise Refused("field.value", f"{name[:80]!r} is no property of a platform", path="platform")
    return tuple(sorted(dict.fromkeys(found)))
