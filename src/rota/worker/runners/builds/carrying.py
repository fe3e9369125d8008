"""One action from its digest to its result: fetch, stage, run, collect, send.

An action that ends, however it ends, is an attempt that succeeded: its exit code is what was asked for. What the
client can mend (content that is gone) or asked for in vain fails for good. What is this worker's or a front end's
trouble is tried again by the core.
"""

import asyncio
import errno
import os
import signal
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from msgspec import Struct

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
from rota.worker.runners.builds.content import Changed, Content, ContentAway, ContentClient, ContentMissing
from rota.worker.runners.builds.folder import BuildFolder, Room, remove_tree
from rota.worker.runners.builds.outputs import Collected, collect
from rota.worker.runners.builds.results import Ending, Times, make_result, read_printed
from rota.worker.runners.builds.sandbox import COMPLAINT, FAILED_CODE, Sandbox, why_not_found
from rota.worker.runners.builds.shelf import Key, WrongContent
from rota.worker.runners.builds.staging import stage
from rota.worker.runners.builds.trees import Folders, Invalid, Layout, check_link
from rota.worker.runners.command import ended_in_time
from rota.worker.runners.outcomes import failed, no_room
from rota.worker.supervisor.driver import Ended, NotStarted, Supervisor, SupervisorLost
from rota.worker.supervisor.patience import outlast
from rota.worker.sync import AttemptOver

DEADLINE_EXCEEDED = 4
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


class InputChanged(Exception):
    """An action wrote to its inputs, which others share."""


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
            result = await self._carry(offer, work)
        except ContentMissing as error:
            named = ", ".join(f"{digest.hash}/{digest.size}" for digest in error.digests[:NAMED_MAX])
            more = f" and {len(error.digests) - NAMED_MAX} more" if len(error.digests) > NAMED_MAX else ""
            return failed(offer, FailureClass.FATAL, f"{MISSING_INPUTS} {named}{more}")
        except Invalid as error:
            return failed(offer, FailureClass.FATAL, f"{INVALID_ACTION} {error}")
        except Refused as error:
            return failed(offer, FailureClass.FATAL, f"{INVALID_ACTION} {error.reason}")
        except (ContentAway, WrongContent, Changed, NotHere, InputChanged) as error:
            return failed(offer, FailureClass.INTERNAL, str(error))
        except SupervisorLost:
            return failed(offer, FailureClass.INTERNAL, "the supervisor died, and the action with it")
        except NoRoom as error:
            return no_room(offer, str(error))
        except OSError as error:
            if error.errno in NO_ROOM:
                return no_room(offer, f"this worker has no disk, files or memory left: {error}")
            return failed(offer, FailureClass.INTERNAL, f"this worker or its disk is broken: {error}")
        return AttemptOver(offer.fence, Outcome.SUCCESS, result)

    async def close(self) -> None:
        """Fetch no more, and hang up."""
        await self._means.cache.close()
        await self._means.client.close()

    async def _carry(self, offer: Offer, work: BuildWork) -> bytes:
        means, times = self._means, Times(self._means.clock)
        times.mark("worker_start")
        times.mark("input_fetch_start")
        content = self._at(offer, work)
        action, command, layout = await self._read(offer, content, work)
        owner = safe_name(offer.tenant)
        pairs = dict.fromkeys((digest, mode) for _, digest, mode in layout.files if digest.size)
        keys = {pair: Key(owner, *pair) for pair in pairs}
        held = await means.cache.hold(content, keys.values())
        try:
            room = means.folder.room(offer.fence)
            try:
                places = {pair: means.cache.shelf.place(key) for pair, key in keys.items()}
                await _to_end(stage, means.folder, room, layout, places, command)
                times.mark("input_fetch_completed")
                times.mark("execution_start")
                ending = await self._execute(offer, action, command, room)
                times.mark("execution_completed")
                times.mark("output_upload_start")
                found = await self._send_outputs(content, command, room)
                printed = await read_printed(content, room)
                self._log(offer, printed.text)
                await self._check_inputs(held)
                await self._keep(owner, found)
                return await make_result(content, means.worker, ending, command, found, printed, times)
            finally:
                await _to_end(remove_tree, room.path)
        finally:
            await outlast(held.give_back())

    # Before.

    def _at(self, offer: Offer, work: BuildWork) -> Content:
        try:
            return self._means.client.at(work.content, offer.tenant, work.instance)
        except Refused as refused:
            if refused.code in ("config.value", "field.value"):
                raise Invalid(f"its content cannot be at {work.content[:200]!r}: {refused}") from None
            raise NotHere(f"its content cannot be asked for: {refused}") from None

    async def _read(self, offer: Offer, content: Content, work: BuildWork) -> tuple[Action, Command, Layout]:
        raw = work.action_bytes
        if not raw:
            raw = (await content.read([_readable(work.action, "the action")]))[work.action]
        action = read_action(raw, work.action)
        commands, layout = await _both(
            content.read([_readable(action.command, "the command")]),
            self._folders.lay_out(offer.tenant, content, action.root),
        )
        for path, target in layout.links:
            check_link(path, target)
        return action, read_command(commands[action.command]), layout

    # The action itself.

    async def _execute(self, offer: Offer, action: Action, command: Command, room: Room) -> Ending:
        means = self._means
        cwd = f"{room.root}/{command.cwd}" if command.cwd else room.root
        argv = list(command.argv)
        if means.sandbox is not None:
            if trouble := why_not_found(argv, command.env, cwd):
                raise Invalid(trouble)
            argv = means.sandbox.wrap(argv, command.env, room.root, cwd)
        limits = [limit for limit in (action.timeout_ms, offer.timeout_ms) if limit]
        limit_ms = min(limits) if limits else 0
        files = [_open_new(path) for path in (room.stdout, room.stderr)]
        try:
            for file in files:
                means.folder.give(file)
            child = await means.supervisor.start(
                argv, command.env, cwd=cwd, files=files, memory_bytes_max=means.memory_bytes_max, is_exact=True
            )
        except NotStarted as error:
            text = str(error)
            if text.startswith(("could not run", "could not enter")):
                raise Invalid(text) from None
            raise NotHere(f"no process could be started for it: {text}") from None
        finally:
            for file in files:
                os.close(file)
        ended = await ended_in_time(child, limit_ms)
        if ended is None:
            text = f"took longer than its time limit of {limit_ms:,} ms; killed with everything it started"
            return Ending(128 + signal.SIGKILL, text, DEADLINE_EXCEEDED)
        ending = _judge(ended)
        if ending.exit_code == FAILED_CODE and means.sandbox is not None:
            _check_sandbox(room)
        if ending.exit_code and _is_full(room.path):
            raise NoRoom(f"the disk of this worker is full, and the action ended with code {ending.exit_code}")
        return ending

    # After.

    async def _send_outputs(self, content: Content, command: Command, room: Room) -> Collected:
        for looks_left in range(LOOKS_MAX - 1, -1, -1):
            try:
                found = await _to_end(collect, room.root, command)
                await content.send(list(found.blobs.values()))
                return found
            except Changed as error:
                if not looks_left:
                    raise NotHere(f"its outputs change although nothing of it is left: {error}") from None
        raise AssertionError("the last look returns or raises")

    def _log(self, offer: Offer, text: str) -> None:
        if text:
            self._means.logs.write(self._means.logs.folder.place(offer), text)

    async def _check_inputs(self, held: Held) -> None:
        changed = await held.give_back()
        if changed:
            named = ", ".join(digest.hash[:12] for digest in changed[:NAMED_MAX])
            raise InputChanged(
                f"an input was written to while it ran ({named}); inputs are shared and not to be changed"
            )

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


def _open_new(path: str) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o600)


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


def _check_sandbox(room: Room) -> None:
    """A program that bubblewrap could not run is told from one that failed."""
    with open(room.stderr, "rb") as file:
        said = file.read(500)
    if said.startswith(COMPLAINT):
        raise Invalid(f"could not run it: {said.decode(errors='replace').strip()}")


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
