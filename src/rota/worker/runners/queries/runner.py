"""The query runner: fragments of queries in warm processes, between the exchanges that they read and make."""

import asyncio
import contextlib
import errno
import functools
import socket
import ssl
import sys
import time
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any, TypeVar

import msgspec
from msgspec import Struct, structs

from rota.config.addresses import Address
from rota.core.bounds import RESULT_BYTES_MAX
from rota.core.commands import Outcome
from rota.core.decide.leases import Offer
from rota.core.errors import Refused
from rota.core.model import FailureClass
from rota.wire.queries import (
    FRAGMENT_VERSION,
    KEPT,
    Answered,
    Fragment,
    KeptAnswer,
    Published,
    StageOutput,
    Written,
    decode_fragment,
    decode_output,
    encode_kept,
    encode_output,
)
from rota.wire.targets import aside
from rota.wire.work import PYTHON, ParamOf, PythonWork, StoredValue, Value, decode_value, encode_value, encode_work
from rota.worker.runners.outcomes import failed, no_room, timed_out
from rota.worker.runners.process import ProcessRunner
from rota.worker.runners.queries.exchange import Exchanges, Foreign, NoRoom, NotWritten, Room, machine
from rota.worker.runners.queries.keys import Keyring, is_keyed
from rota.worker.runners.queries.orders import (
    ENDED,
    ORDER,
    Broke,
    Order,
    Wrote,
    decode_ended,
    encode_order,
)
from rota.worker.runners.queries.serving import ExchangeServer, Tickets
from rota.worker.runners.queries.sources import Lost, Sources, Unfit
from rota.worker.supervisor.patience import outlast
from rota.worker.sync import AttemptOver

ENGINE = "datafusion"
LISTEN = Address("127.0.0.1", 0)
# How often the room that exchanges take is looked at while something is written, and what is old while nothing is.
WATCH_S = 0.5
TIDY_S = 300
# How long a process may wait for the next fragment; it holds on to the memory that it has used.
IDLE_S = 300
# What a machine says that has too little of something just now.
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN)
# What the engine says before it ends its process, when it may not have more memory.
_NO_MEMORY = "memory allocation of"

T = TypeVar("T")


def _call(function: str) -> bytes:
    return encode_work(PythonWork(function=function, args=(ParamOf(ORDER),)))


_CALL = _call("rota.worker.runners.queries.fragment:run")


class _Head(Struct):
    """What has to be understood of a fragment before the rest of it is."""

    version: int = FRAGMENT_VERSION
    engine: str = ""


class Reach(Struct, frozen=True):
    """How peers reach this worker, and what they have to show."""

    listen: Address = LISTEN
    # The worker's own token, as it is now.
    token: Callable[[], str] = str
    # What it shows to peers, and who vouches for theirs (PEM).
    tls: ssl.SSLContext | None = None
    authority: bytes = b""


def why_no_queries() -> str:
    """What this installation lacks for queries; empty if it lacks nothing."""
    if all(find_spec(name) is not None for name in ("datafusion", "pyarrow", "xxhash", "google", "google.protobuf")):
        return ""
    return "what queries need is not installed: pip install 'rota[query]'"


@functools.cache
def engine_version() -> str:
    """The version of the engine that is installed; empty if it is not."""
    from importlib.metadata import PackageNotFoundError, version  # most workers never run a query

    try:
        return version(ENGINE)
    except PackageNotFoundError:
        return ""


def query_properties() -> dict[str, str]:
    """What a worker is that tasks of queries ask for: rows are spread by hash values that all compute alike."""
    return {ENGINE: engine_version(), "python": f"{sys.version_info.major}.{sys.version_info.minor}"}


def check_reach(reach: Reach) -> None:
    """Refuse to give out files to everybody."""
    if not reach.listen.is_loopback and not reach.token():
        raise Refused(
            "config.value",
            f"without a token for workers, exchanges are given out on this machine only, and not on {reach.listen}",
            "Set ROTA_EXECUTOR_TASK_BEARER_TOKEN to the same secret on all workers, or listen on 127.0.0.1:0.",
            path="worker.exchange_listen",
        )


class QueryRunner:
    """Runs `query` work."""

    def __init__(
        self,
        python: ProcessRunner,
        exchanges: Exchanges,
        *,
        reach: Reach | None = None,
        memory_bytes: int = 0,
        keyring: Keyring | None = None,
        keyed: ProcessRunner | None = None,
        steps: str = "",
    ) -> None:
        """`python` has the processes, `keyed` those in which only the engine runs, with the keys of `keyring`.

        `memory_bytes` is how much the engine may use in each; 0 for all there is. `steps` is the function that carries
        out steps of streams, of which this package knows nothing but how they are ordered and what they wrote.
        """
        self._steps = _call(steps) if steps else b""
        self._python = python
        self._keyed = keyed or python
        self._keyring = keyring or Keyring({})
        self._exchanges = exchanges
        self._reach = reach or Reach()
        self._memory_bytes = memory_bytes
        self._tickets = Tickets(self._reach.token)
        self._server: ExchangeServer | None = None
        self._opening: asyncio.Task[None] | None = None
        self._watching: asyncio.Task[None] | None = None
        self._running: dict[Room, asyncio.Timeout] = {}
        self._discarding: list[asyncio.Future[None]] = []
        self._url = ""

    async def run(self, offer: Offer) -> AttemptOver:
        """Run one fragment to its end; cancelling kills its process with everything it started."""
        began = time.monotonic()
        try:
            fragment = self._read(offer)
            await self._open()
            room = await self._make_room(offer)
        except Unfit as error:
            return failed(offer, FailureClass.FATAL, str(error))
        except NoRoom as error:
            return no_room(offer, str(error))
        except OSError as error:
            return _broken_disk(offer, error)
        has_succeeded = False
        try:
            over = await self._run(offer, fragment, room, began)
            has_succeeded = over.outcome is Outcome.SUCCESS
            return over
        except (Unfit, Foreign) as error:
            return failed(offer, FailureClass.FATAL, str(error))
        except Lost as lost:
            return failed(offer, FailureClass.INPUT_LOST, str(lost), lost.producers)
        except (NotWritten, Refused) as error:
            return failed(offer, FailureClass.INTERNAL, str(error))
        except OSError as error:
            return _broken_disk(offer, error)
        finally:
            if has_succeeded and not room.is_kept:
                # Its answer has travelled, and nobody has to wait until what is left of it is gone.
                self._discard(room)
            elif not room.is_kept:
                await _in_thread(self._exchanges.discard, room)

    async def close(self) -> None:
        """Hang up, and remove the exchanges. The processes are those of somebody else."""
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.gather(self._watching, return_exceptions=True)
        if self._opening is not None:
            await asyncio.gather(self._opening, *self._discarding, return_exceptions=True)
            if self._server is not None:
                await asyncio.to_thread(self._server.stop)
            await asyncio.to_thread(self._exchanges.close)

    # Before.

    def _read(self, offer: Offer) -> Fragment:
        try:
            head = msgspec.msgpack.decode(offer.work, type=_Head)
            if head.version > FRAGMENT_VERSION:
                raise Unfit(
                    f"its fragment is of version {head.version}, and this worker knows {FRAGMENT_VERSION}: "
                    "run the same version of Rota everywhere"
                )
            if head.engine != (ours := f"{ENGINE} {engine_version()}"):
                raise Unfit(f"query.engine: it was planned for {head.engine}, and this worker has {ours}")
            fragment = decode_fragment(offer.work)
        except msgspec.MsgspecError as error:
            raise Unfit(f"its work is not a fragment of a query that can be read: {error}") from None
        if fragment.is_step and (not self._steps or fragment.places is not None):
            # What a step reads is nowhere to be seen, and whoever may read some places only may not have one.
            raise Unfit("query.unsupported: it is a step of a stream, which this worker does not take")
        return fragment

    async def _open(self) -> None:
        """Have the folder and the server, which the first fragment needs."""
        if self._opening is None:
            self._opening = asyncio.ensure_future(asyncio.to_thread(self._opened))
        try:
            await asyncio.shield(self._opening)
        except OSError:
            # The next attempt tries again.
            self._opening = None
            raise
        if self._watching is None:
            self._watching = asyncio.ensure_future(self._watch())

    def _opened(self) -> None:
        self._exchanges.open()
        if self._exchanges.is_shared:
            return
        address = self._reach.listen
        server = ExchangeServer(address, self._exchanges.served, self._tickets, self._reach.tls)
        server.start()
        self._server = server
        host = socket.gethostname() if address.is_everywhere else address.host
        self._url = f"{'http' if self._reach.tls is None else 'https'}://{Address(host, server.port)}"

    async def _make_room(self, offer: Offer) -> Room:
        making = asyncio.ensure_future(asyncio.to_thread(self._exchanges.make, offer))
        try:
            return await outlast(making)
        except asyncio.CancelledError:
            if making.done() and making.exception() is None:
                self._discard(making.result())
            raise

    def _discard(self, room: Room) -> None:
        """Remove what is left of an attempt; nobody waits for that."""
        discarding = asyncio.ensure_future(asyncio.to_thread(self._exchanges.discard, room))
        self._discarding.append(discarding)
        discarding.add_done_callback(self._discarding.remove)

    # One attempt.

    async def _run(self, offer: Offer, fragment: Fragment, room: Room, began: float) -> AttemptOver:
        # Of a kind of process for itself: none of them ever has Python functions in it.
        python = self._keyed if is_keyed(fragment) else self._python
        result_file = python.result_file(offer)
        if fragment.exchanges:
            order = await asyncio.to_thread(self._order, offer, fragment, room, result_file)
        else:
            order = self._order(offer, fragment, room, result_file)
        left_ms = offer.timeout_ms
        if left_ms:
            left_ms -= round((time.monotonic() - began) * 1_000)
            if left_ms <= 0:
                return timed_out(offer, " before it was run")
        call = structs.replace(
            offer,
            kind=PYTHON,
            work=self._steps if fragment.is_step else _CALL,
            params=encode_order(order),
            inputs=(),
            map_index=-1,
            timeout_ms=left_ms,
            # The code of the workflow that it is a part of is nothing to it.
            bundle=offer.bundle if fragment.bundled else None,
        )
        try:
            async with asyncio.timeout(None) as limit:
                self._running[room] = limit
                over = await python.run(call)
        except TimeoutError:
            return no_room(offer, "it was writing more than this worker may keep of exchanges (worker.exchange_mb)")
        finally:
            self._running.pop(room, None)
        return await self._judged(offer, fragment, room, over)

    def _order(self, offer: Offer, fragment: Fragment, room: Room, result_file: str) -> Order:
        sources, peers = Sources(offer, self._exchanges, self._tickets).resolve(fragment.exchanges)
        return Order(
            plan=fragment.plan,
            bundled=fragment.bundled,
            exchanges=fragment.exchanges,
            sources=sources,
            peers=peers,
            authority=self._reach.authority if peers else b"",
            task=None if fragment.is_whole else max(0, offer.map_index),
            output=fragment.output,
            schema=fragment.schema,
            compression=fragment.compression,
            has_code=fragment.has_code,
            is_logical=fragment.is_logical,
            settings=fragment.settings,
            folder=room.path,
            result_file=result_file,
            memory_bytes=self._memory_bytes,
            keeps_answer=self._keeps_answer(fragment),
            run=offer.run,
            stores=fragment.stores,
            variables=self._keyring.variables_of(fragment),
            is_keyed=is_keyed(fragment),
            places=fragment.places,
            **_files_of(offer, fragment),
        )

    def _keeps_answer(self, fragment: Fragment) -> bool:
        """Whether who asked can fetch an answer from here."""
        near = fragment.output.near if isinstance(fragment.output, Answered) else ""
        return bool(near and self._url) and (not self._reach.listen.is_loopback or near == machine())

    # After.

    async def _judged(self, offer: Offer, fragment: Fragment, room: Room, over: AttemptOver) -> AttemptOver:
        if over.outcome is not Outcome.SUCCESS or over.result is None:
            return _explained(over)
        value = decode_value(over.result)
        if value.encoding != ENDED:
            if isinstance(fragment.output, Answered | Published):
                return over
            return failed(offer, FailureClass.INTERNAL, "its process gave something else than what was asked for")
        if isinstance(value, StoredValue):
            return failed(offer, FailureClass.FATAL, "query.failed: its output has more parts than can be reported")
        try:
            ended = decode_ended(value.content)
        except msgspec.MsgspecError as error:
            return failed(offer, FailureClass.INTERNAL, f"what its process said cannot be read: {error}")
        if isinstance(ended, Broke):
            if ended.failure == "no_room":
                return no_room(offer, ended.error)
            return failed(offer, FailureClass(ended.failure), ended.error, ended.lost)
        if isinstance(fragment.output, Written):
            where = aside(fragment.output.target, offer.run, max(0, offer.map_index), offer.fence)
            output = StageOutput(root="", folder=where, parts=ended.parts, rows=ended.rows)
            return AttemptOver(offer.fence, Outcome.SUCCESS, encode_output(output))
        if isinstance(fragment.output, Answered):
            return await self._kept_answer(offer, room, ended)
        return await self._kept(offer, room, ended)

    async def _kept(self, offer: Offer, room: Room, wrote: Wrote) -> AttemptOver:
        output = StageOutput(
            root=self._exchanges.name,
            folder=room.folder,
            parts=wrote.parts,
            url=self._url,
            rows=wrote.rows,
            metrics=wrote.metrics,
            told=wrote.told,
        )
        result = encode_output(output)
        if len(result) > RESULT_BYTES_MAX:
            return failed(offer, FailureClass.FATAL, "query.failed: its output has more parts than can be reported")
        await _in_thread(self._exchanges.keep, room, wrote.parts)
        return AttemptOver(offer.fence, Outcome.SUCCESS, result)

    async def _kept_answer(self, offer: Offer, room: Room, wrote: Wrote) -> AttemptOver:
        if len(wrote.parts) != 1:
            return failed(offer, FailureClass.INTERNAL, "its process gave an answer that is not one file")
        ticket = self._tickets.make(*room.run)
        await _in_thread(self._exchanges.keep, room, wrote.parts)
        kept = encode_kept(KeptAnswer(self._url, room.folder, wrote.parts[0], ticket))
        return AttemptOver(offer.fence, Outcome.SUCCESS, encode_value(Value(KEPT, kept)))

    async def _watch(self) -> None:
        """Stop who writes too much, and remove what nobody reads any more."""
        tidied_at = time.monotonic()
        while True:
            await asyncio.sleep(WATCH_S)
            for each in (self._python, self._keyed):
                each.end_idle(IDLE_S)
            # A disk that cannot be looked at shows in the attempts.
            with contextlib.suppress(OSError):
                if self._running and (room := await asyncio.to_thread(self._exchanges.too_large)) in self._running:
                    # Once: its process may take a while to end.
                    self._running.pop(room).reschedule(asyncio.get_running_loop().time())
                if time.monotonic() - tidied_at > TIDY_S:
                    tidied_at = time.monotonic()
                    await asyncio.to_thread(self._exchanges.tidy)


def _files_of(offer: Offer, fragment: Fragment) -> dict[str, Any]:
    """Where a fragment writes that writes for good, or what it is to publish."""
    output = fragment.output
    if isinstance(output, Written):
        return {"aside": aside(output.target, offer.run, max(0, offer.map_index), offer.fence)}
    if not isinstance(output, Published):
        return {}
    results = next((given.results for given in offer.inputs if given.task == output.stage), ())
    try:
        written = [decode_output(result) for result in results if result is not None]
    except msgspec.MsgspecError as error:
        raise Unfit(f"what stage {output.stage} has written cannot be read: {error}") from None
    if len(written) != len(results) or not results:
        raise Unfit(f"not all of stage {output.stage} has said what it has written")
    for task, each in enumerate(written):
        # Only what a task of this run may have put there is made seen, whoever made up the rest.
        if each.folder.rpartition("-")[0] != aside(output.target, offer.run, task, 0).rpartition("-")[0]:
            raise Unfit(f"{each.folder!r} is not where stage {output.stage} writes")
    files = tuple((task, each.folder) for task, each in enumerate(written))
    return {"files": files, "rows": sum(each.rows for each in written)}


def _explained(over: AttemptOver) -> AttemptOver:
    """How a process ended, in words that the session of a query knows."""
    is_out = over.failure is FailureClass.OUT_OF_MEMORY or (_NO_MEMORY in over.error and "SIGABRT" in over.error)
    if over.outcome is not Outcome.FAILED or not is_out:
        return over
    return structs.replace(over, failure=FailureClass.OUT_OF_MEMORY, error=f"query.memory: {over.error}")


def _broken_disk(offer: Offer, error: OSError) -> AttemptOver:
    if error.errno in _FULL:
        return no_room(offer, f"this worker has no disk, files or memory left: {error}")
    return failed(offer, FailureClass.INTERNAL, f"this worker or its disk is broken: {error}")


async def _in_thread(work: Callable[..., T], *args: object) -> T:
    """Do something on the disk to its end, also if whoever waits for it is cancelled meanwhile."""
    return await outlast(asyncio.to_thread(work, *args))
