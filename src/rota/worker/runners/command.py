"""The command runner: programs and shell lines, each in a process of its own."""

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path

import msgspec

from rota.core.commands import Outcome
from rota.core.decide.leases import Offer
from rota.core.model import FailureClass
from rota.wire.work import CommandWork, Unprepared, decode_command, encode_value, plain, prepared_command
from rota.worker.bundles.driver import BundleCache, NoBundle
from rota.worker.environment import of_attempt, of_command, passed_on
from rota.worker.runners import Runner
from rota.worker.runners.outcomes import died, failed, last_lines, timed_out
from rota.worker.runners.preparing import NothingToDo, prepare
from rota.worker.supervisor.driver import Child, Ended, Log, NotStarted, Supervisor, SupervisorLost
from rota.worker.supervisor.patience import outlast
from rota.worker.sync import AttemptOver

SHELL = "/bin/sh"


class CommandRunner:
    """Runs `command` work."""

    def __init__(
        self,
        supervisor: Supervisor,
        calls: Runner,
        bundles: BundleCache,
        *,
        env: Mapping[str, str] | None = None,
        memory_bytes_max: int = 0,
    ) -> None:
        """`calls` makes the calls that prepare commands, and `bundles` has the files of workflows.

        `env` is given to each command on top of what it always has.
        """
        self._supervisor = supervisor
        self._calls = calls
        self._bundles = bundles
        self._env = dict(env or {})
        self._memory_bytes_max = memory_bytes_max

    async def run(self, offer: Offer) -> AttemptOver:
        """Run one command to its end; cancelling kills it with everything it started."""
        try:
            work = decode_command(offer.work)
        except msgspec.MsgspecError as error:
            return failed(offer, FailureClass.FATAL, f"its work is not a command that can be read: {error}")
        if work.call is None:
            return await self._command(offer, work)
        with self._supervisor.held_log(offer):
            try:
                given, left = await prepare(self._calls, offer, work.call)
                return await self._command(left, prepared_command(work, given))
            except Unprepared as error:
                return failed(offer, FailureClass.FATAL, f"its function gave no command: {error}")
            except NothingToDo as early:
                return early.over

    async def close(self) -> None:
        """Nothing is kept between commands."""

    async def _command(self, offer: Offer, work: CommandWork) -> AttemptOver:
        if not work.argv and not work.shell:
            return failed(offer, FailureClass.FATAL, "its work names neither a program nor a shell line")
        try:
            folder = await self._bundles.take(offer)
        except NoBundle as error:
            return failed(offer, FailureClass.INTERNAL, str(error))
        try:
            return await self._begin(offer, work, folder)
        finally:
            if folder:
                self._bundles.give_back(offer)

    async def _begin(self, offer: Offer, work: CommandWork, folder: str) -> AttemptOver:
        try:
            log = self._supervisor.open_log(offer, streams=2)
        except (OSError, SupervisorLost) as error:
            return failed(offer, FailureClass.INTERNAL, f"no process could be started for it: {error}")
        try:
            return await self._run(offer, work, folder, log)
        except NotStarted as error:
            return failed(offer, FailureClass.FATAL, str(error))
        except OSError as error:
            return failed(offer, FailureClass.INTERNAL, f"this worker is out of files or memory: {error}")
        except SupervisorLost:
            return failed(offer, FailureClass.INTERNAL, "the supervisor died, and the attempt with it")
        finally:
            await log.complete()

    async def _run(self, offer: Offer, work: CommandWork, folder: str, log: Log) -> AttemptOver:
        env, dropped = of_command(dict(work.env), of_attempt(offer, folder))
        if dropped:
            _write_dropped(log, dropped)
        child = await self._supervisor.start(
            (SHELL, "-c", work.shell) if work.shell else work.argv,
            {**passed_on(self._env), **env},
            # A path that is not absolute is one in the bundle.
            cwd=str(Path(folder, work.cwd)) if folder else work.cwd,
            files=log.ends,
            memory_bytes_max=self._memory_bytes_max,
        )
        log.let_go()
        ended = await ended_in_time(child, offer.timeout_ms)
        tails = (await log.complete()).tails
        if ended is None:
            return timed_out(offer, "; killed with everything it started" + last_lines(tails))
        return _judge(offer, work, ended, tails)


def _write_dropped(log: Log, names: list[str]) -> None:
    """Writes the variables that a task may not set to its log. The pipe is empty, and the text fits into it."""
    text = f"rota: field.reserved: not set, because these names are Rota's own: {', '.join(names)[:1_000]}\n"
    os.write(log.ends[-1], text.encode(errors="backslashreplace"))


async def ended_in_time(child: Child, timeout_ms: int) -> Ended | None:
    """How a program ended; None if it did not in time. Either way nothing of it is left, nor if this is cancelled."""
    try:
        async with asyncio.timeout(timeout_ms / 1_000 if timeout_ms else None):
            return await child.ended()
    except TimeoutError:
        await child.kill()
        return None
    except asyncio.CancelledError:
        await outlast(child.kill())
        raise


def _judge(offer: Offer, work: CommandWork, ended: Ended, tails: tuple[str, ...]) -> AttemptOver:
    code = os.waitstatus_to_exitcode(ended.status)
    if code == 0:
        printed = tails[0].rstrip().splitlines() if tails else []
        return AttemptOver(offer.fence, Outcome.SUCCESS, encode_value(plain(printed[-1] if printed else "")))
    if code in work.skip_codes:
        return AttemptOver(offer.fence, Outcome.SKIPPED, error=f"exited with code {code}")
    if code > 0:
        return failed(offer, FailureClass.USER, f"exited with code {code}{last_lines(tails)}")
    return died(offer, ended, tails)
