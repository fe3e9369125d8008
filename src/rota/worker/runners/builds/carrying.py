"""One action from its digest to its result: fetch, stage, run, collect, send.

An action that ends, however it ends, has a result: its exit code is what was asked for, and one that is not zero is a
failed attempt that is not tried again. What it did wrong (wrote to its inputs, left outputs that cannot be taken) is
its own failure, too, with a status and what it printed. What the client can mend (content that is gone) or asked for
in vain fails for good. This worker's own trouble is tried again by the core and counts against the worker; a front
end that does not answer is tried again, too, and counts against nobody.
"""

import asyncio
import errno
import os
import signal
from collections.abc import Awaitable, Callable
from functools import partial
from itertools import islice
from typing import Any, TypeVar

from msgspec import Struct, structs

from rota.core.commands import Outcome
from rota.core.decide.leases import Offer
from rota.core.errors import Refused
from rota.core.ids import Digest, Millis
from rota.core.model import FailureClass
from rota.wire.builds import INVALID_ACTION, MISSING_INPUTS, BuildWork
from rota.wire.names import safe_name
from rota.worker.logs.driver import LogShipper
from rota.worker.runners.builds.actions import MESSAGE_BYTES_MAX, Action, Command, read_action, read_command
from rota.worker.runners.builds.cache import ContentCache, Held
from rota.worker.runners.builds.content import (
    Changed,
    Content,
    ContentAway,
    ContentClient,
    ContentDenied,
    ContentMissing,
)
from rota.worker.runners.builds.folder import BuildFolder, Room, remove_tree
from rota.worker.runners.builds.outputs import Collected, collect
from rota.worker.runners.builds.results import Ending, Times, make_result, read_printed
from rota.worker.runners.builds.sandbox import COMPLAINT, FAILED_CODE, Sandbox
from rota.worker.runners.builds.shelf import Key, WrongContent
from rota.worker.runners.builds.staging import stage
from rota.worker.runners.builds.trees import AbsoluteLink, Folders, Invalid, Layout
from rota.worker.runners.command import ended_in_time
from rota.worker.runners.outcomes import failed, no_room
from rota.worker.supervisor.driver import Ended, NotStarted, Supervisor, SupervisorLost
from rota.worker.supervisor.patience import outlast
from rota.worker.sync import AttemptOver

INVALID_ARGUMENT, DEADLINE_EXCEEDED, FAILED_PRECONDITION = 3, 4, 9
# As a shell has it: there is no such program.
NOT_FOUND_CODE = 127
# How often outputs are looked at that change while they are sent.
LOOKS_MAX = 3
NAMED_MAX = 20
# What a machine says that has too little of something just now.
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN)
# So little room on a disk is none: what an action failed for is then not its own fault.
FULL_BYTES = 1 << 20

T = TypeVar("T")


class Means(Struct, frozen=True):
    """What a worker has for its actions."""

    worker: str
    supervisor: Supervisor
    logs: LogShipper
    folder: BuildFolder
    cache: ContentCache
    client: ContentClient
    clock: Callable[[], Millis]
    sandbox: Sandbox | None = None
    memory_bytes_max: int = 0


class Job(Struct, frozen=True):
    """An action that was read and checked."""

    offer: Offer
    content: Content
    action: Action
    command: Command
    layout: Layout

    @property
    def owner(self) -> str:
        """Whose content it uses."""
        return safe_name(self.offer.tenant)


class InputSpoilt(Exception):
    """An input was written to while several actions had it."""


class NotHere(Exception):
    """This worker could not carry out an action; another try may."""


class NoRoom(Exception):
    """This worker has no room for an action; when others have ended it may."""


class Carrier:
    """Carries out actions, many at once."""

    def __init__(self, means: Means) -> None:
        self._means = means
        self._folders = Folders()

    async def carry(self, offer: Offer, work: BuildWork) -> AttemptOver:
        """One action; cancelling kills it, and returns when nothing of it is left, on disk neither."""
        try:
            return await self._carry(offer, work)
        except ContentMissing as error:
            named = ", ".join(f"{digest.hash}/{digest.size}" for digest in error.digests[:NAMED_MAX])
            more = f" and {len(error.digests) - NAMED_MAX} more" if len(error.digests) > NAMED_MAX else ""
            return failed(offer, FailureClass.FATAL, f"{MISSING_INPUTS} {named}{more}")
        except Invalid as error:
            return failed(offer, FailureClass.FATAL, f"{INVALID_ACTION} {error}")
        except Refused as error:
            return failed(offer, FailureClass.FATAL, f"{INVALID_ACTION} {error.reason}")
        except (ContentAway, WrongContent) as error:
            return failed(offer, FailureClass.UNAVAILABLE, str(error))
        except (ContentDenied, Changed, NotHere) as error:
            return failed(offer, FailureClass.INTERNAL, str(error))
        except SupervisorLost:
            return failed(offer, FailureClass.INTERNAL, "the supervisor died, and the action with it")
        except NoRoom as error:
            return no_room(offer, str(error))
        except OSError as error:
            if error.errno in NO_ROOM:
                return no_room(offer, f"this worker has no disk, files or memory left: {error}")
            return failed(offer, FailureClass.INTERNAL, f"this worker or its disk is broken: {error}")

    async def close(self) -> None:
        """Fetch no more, and hang up."""
        await self._means.cache.close()
        await self._means.client.close()

    async def _carry(self, offer: Offer, work: BuildWork) -> AttemptOver:
        times = Times(self._means.clock)
        times.mark("worker_start")
        times.mark("input_fetch_start")
        content = self._at(offer, work)
        job = await self._read(offer, content, work)
        try:
            return await self._try(job, times, is_private=job.layout.is_root)
        except InputSpoilt:
            # Which action wrote to the input is unknown. With private inputs neither can hurt the other.
            return await self._try(job, times, is_private=True)

    async def _try(self, job: Job, times: Times, *, is_private: bool) -> AttemptOver:
        """Once from inputs to result; raises InputSpoilt if the inputs were written to, and not surely by this one."""
        means, content, command = self._means, job.content, job.command
        pairs = dict.fromkeys((digest, mode) for _, digest, mode in job.layout.files if digest.size)
        keys = {pair: Key(job.owner, *pair) for pair in pairs}
        held = await means.cache.hold(content, keys.values())
        room = means.folder.room(job.offer.fence)
        try:
            places = {pair: means.cache.shelf.place(key) for pair, key in keys.items()}
            await _to_end(partial(stage, is_private=is_private), means.folder, room, job.layout, places, command)
            room.open()
            times.mark("input_fetch_completed")
            times.mark("execution_start")
            ending = await self._execute(job, room)
            times.mark("execution_completed")
            times.mark("output_upload_start")
            ending, found = await self._collect(job, room, held, ending)
            printed = await read_printed(content, room.printed)
            self._log(job.offer, printed.text)
            await self._keep(job.owner, found)
            result = await make_result(content, means.worker, ending, command, found, printed, times)
            return _report(job.offer, ending, result)
        finally:
            room.close()
            await _to_end(remove_tree, room.path)
            await outlast(held.give_back())

    # Before.

    def _at(self, offer: Offer, work: BuildWork) -> Content:
        try:
            return self._means.client.at(work.content, offer.tenant, work.instance)
        except Refused as refused:
            if refused.code in ("config.value", "field.value"):
                raise Invalid(f"its content cannot be at {work.content[:200]!r}: {refused}") from None
            raise NotHere(f"its content cannot be asked for: {refused}") from None

    async def _read(self, offer: Offer, content: Content, work: BuildWork) -> Job:
        raw = work.action_bytes
        if not raw:
            raw = (await content.read([_readable(work.action, "the action")]))[work.action]
        action = read_action(raw, work.action)
        commands, layout = await _both(
            content.read([_readable(action.command, "the command")]),
            self._folders.lay_out(offer.tenant, content, action.root),
        )
        if layout.is_root and self._means.sandbox is None:
            raise Invalid("its input tree is a root file system, which a worker without a sandbox cannot enter")
        return Job(offer, content, action, read_command(commands[action.command]), layout)

    # The action itself.

    async def _execute(self, job: Job, room: Room) -> Ending:
        means, command = self._means, job.command
        cwd = f"{room.root}/{command.cwd}" if command.cwd else room.root
        argv = list(command.argv)
        if means.sandbox is not None and job.layout.is_root:
            # Links on the way to its working directory lead elsewhere out here.
            cwd = room.root
            argv = means.sandbox.wrap_root(argv, room.root, command.cwd, command.uid, command.gid)
        elif means.sandbox is not None:
            argv = means.sandbox.wrap(argv, command.env, room.root, command.cwd)
        limits = [limit for limit in (job.action.timeout_ms, job.offer.timeout_ms) if limit]
        limit_ms = min(limits) if limits else 0
        try:
            for file in room.printed:
                means.folder.give(file)
            child = await means.supervisor.start(
                argv,
                command.env,
                cwd=cwd,
                files=list(room.printed),
                memory_bytes_max=means.memory_bytes_max,
                is_exact=True,
            )
        except NotStarted as error:
            text = str(error)
            if text.startswith("could not run"):
                os.write(room.printed[1], f"{text}\n".encode())
                return Ending(NOT_FOUND_CODE, text)
            if text.startswith("could not enter"):
                raise Invalid(text) from None
            raise NotHere(f"no process could be started for it: {text}") from None
        ended = await ended_in_time(child, limit_ms)
        if ended is None:
            text = f"took longer than its time limit of {limit_ms:,} ms; killed with everything it started"
            return Ending(128 + signal.SIGKILL, text, DEADLINE_EXCEEDED)
        ending = _judge(ended)
        if ending.exit_code == FAILED_CODE and means.sandbox is not None:
            await self._check_sandbox(means.sandbox, room)
        if ending.exit_code and _is_full(room.path):
            raise NoRoom(f"the disk of this worker is full, and the action ended with code {ending.exit_code}")
        return ending

    async def _check_sandbox(self, sandbox: Sandbox, room: Room) -> None:
        """An action that bubblewrap could not begin did not fail by itself. What looks like that may be its own."""
        said = os.pread(room.printed[1], 500, 0)
        if said.startswith(COMPLAINT) and not await _to_end(sandbox.works):
            raise NotHere(f"the sandbox does not work: {said.decode(errors='replace').strip()}")

    # After.

    async def _collect(self, job: Job, room: Room, held: Held, ending: Ending) -> tuple[Ending, Collected]:
        """What it left, and how it ended: an action whose outputs or inputs are not as they have to be has failed."""
        status = INVALID_ARGUMENT
        try:
            found = await self._send_outputs(job, room)
            changed = await held.give_back()
            if not changed:
                return ending, found
            if all(changed.values()):
                raise InputSpoilt
            named = ", ".join(digest.hash[:12] for digest in islice(changed, NAMED_MAX))
            trouble = f"it wrote to its inputs ({named}), which are shared and not to be changed"
        except Invalid as error:
            trouble = str(error)
            if isinstance(error, AbsoluteLink):
                # What the API asks for of a front end whose strategy is to disallow them.
                status = FAILED_PRECONDITION
        except Refused as error:
            trouble = error.reason
        message = f"{ending.message}; {trouble}" if ending.message else trouble
        return Ending(ending.exit_code, message, ending.status or status), Collected()

    async def _send_outputs(self, job: Job, room: Room) -> Collected:
        look = partial(collect, room.root, job.command, is_root=job.layout.is_root)
        for looks_left in range(LOOKS_MAX - 1, -1, -1):
            try:
                found = await _to_end(look)
                await job.content.send(list(found.blobs.values()))
                return found
            except Changed as error:
                if not looks_left:
                    raise NotHere(f"its outputs change although nothing of it is left: {error}") from None
        raise AssertionError("the last look returns or raises")

    def _log(self, offer: Offer, text: str) -> None:
        if text:
            self._means.logs.write(self._means.logs.folder.place(offer), text)

    async def _keep(self, owner: str, found: Collected) -> None:
        """Outputs are inputs of what follows, often on this very worker."""
        wanted = ((Key(owner, digest, mode), path) for digest, mode, path in found.kept if digest.size)
        fresh = dict(self._means.cache.adopt(wanted))
        if fresh:
            self._means.cache.adopted(await _to_end(self._adopt, fresh))

    def _adopt(self, fresh: dict[Key, str]) -> list[Key]:
        done: list[Key] = []
        for key, path in fresh.items():
            try:
                self._means.folder.take_back(path)
                self._means.cache.shelf.adopt(key, path)
            except OSError:
                # It is in the content already; here it would only have been at hand.
                return done
            done.append(key)
        return done


def _readable(digest: Digest, what: str) -> Digest:
    if digest.size > MESSAGE_BYTES_MAX:
        raise Invalid(f"{what} would be {digest.size:,} bytes large; the most is {MESSAGE_BYTES_MAX:,}")
    return digest


def _report(offer: Offer, ending: Ending, result: bytes) -> AttemptOver:
    """An action that failed has a result like any other, and is not tried again: it would fail again."""
    if not (ending.exit_code or ending.status):
        return AttemptOver(offer.fence, Outcome.SUCCESS, result)
    failure = FailureClass.TIMEOUT if ending.status == DEADLINE_EXCEEDED else FailureClass.USER
    error = ending.message or f"exited with code {ending.exit_code}"
    return structs.replace(failed(offer, failure, error), result=result)


def _judge(ended: Ended) -> Ending:
    code = os.waitstatus_to_exitcode(ended.status)
    if code >= 0:
        return Ending(code)
    why = ", while the kernel counted a kill for lack of memory" if ended.out_of_memory else ""
    # As a shell would have it.
    return Ending(128 - code, f"killed by {_signal_name(-code)}{why}")


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _is_full(path: str) -> bool:
    about = os.statvfs(path)
    return about.f_bavail * about.f_frsize < FULL_BYTES


async def _to_end(work: Callable[..., T], *args: Any) -> T:
    """Something on disk, in a thread; waited for even if it is cancelled, since what follows removes it."""
    return await outlast(asyncio.to_thread(work, *args))


async def _both(first: Awaitable[T], second: Awaitable[Any]) -> tuple[T, Any]:
    """Both at once, and neither is left behind if the other fails."""
    one, other = asyncio.ensure_future(first), asyncio.ensure_future(second)
    try:
        return await one, await other
    finally:
        one.cancel()
        other.cancel()
        await asyncio.gather(one, other, return_exceptions=True)
