"""Agents that are started by a command: any program that joins as a session, claims, and ends when it is done.

Who it is to be is said in the words of the command and in its environment. Its token is in the environment only:
everybody on a machine can read the words of a command.
"""

import secrets
import shlex
from collections.abc import Callable
from pathlib import Path

from rota.config.spawners import ANY, SpawnerSettings, render
from rota.core.model import Capacity
from rota.ports import Wanted
from rota.worker.spawners.processes import Process, Surroundings, drop_old_logs, start_process

SHELL = "/bin/sh"

# What a session of that workspace and channel would offer.
Offering = Callable[[str, str], Capacity]


class AgentSpawner:
    """Starts agents as one table of the settings says."""

    def __init__(
        self,
        settings: SpawnerSettings,
        around: Surroundings,
        offering: Offering,
        token: Callable[[], str],
        nowhere: str = "-",
    ) -> None:
        """`token` is asked for at each start, `nowhere` is how work is marked that is of no workspace."""
        self.settings = settings
        self._around = around
        self._offering = offering
        self._token = token
        self._nowhere = nowhere

    @property
    def name(self) -> str:
        """See the port."""
        return self.settings.name

    def offer(self, wanted: Wanted) -> Capacity:
        """See the port. A workspace or channel that may be any is that of the work."""
        return self._offering(*self._place(wanted))

    async def start(self, wanted: Wanted) -> Process:
        """See the port."""
        settings = self.settings
        session = f"{settings.name}-{secrets.token_hex(4)}"
        values = self.values(wanted, session)
        drop_old_logs(self._around.folder, settings.name)
        return await start_process(
            self.words(values),
            env=self.environment(values),
            folder=Path(settings.folder) if settings.folder else None,
            log=self._around.folder / f"{session}.log",
            about=(("session", session),),
        )

    def values(self, wanted: Wanted, session: str) -> dict[str, str]:
        """What stands for each placeholder."""
        workspace, channel = self._place(wanted)
        return {
            "agent": self.settings.agent,
            "capabilities": ",".join(self.settings.capabilities),
            "channel": channel,
            "coordinator": self._around.coordinator,
            "item": wanted.run,
            "session": session,
            "tenant": self.settings.tenant,
            "workspace": workspace,
        }

    def words(self, values: dict[str, str]) -> list[str]:
        """The command. For a shell every value is quoted: none of them is a piece of a program."""
        if self.settings.shell:
            quoted = {name: shlex.quote(value) for name, value in values.items()}
            return [SHELL, "-c", render(self.settings.command[0], quoted)]
        return [render(word, values) for word in self.settings.command]

    def environment(self, values: dict[str, str]) -> dict[str, str]:
        """What the agent finds in its environment; `rota mcp` reads all of it."""
        told = {f"ROTA_{name.upper()}": values[name] for name in values if name not in ("coordinator", "tenant")}
        told["ROTA_CLIENT_TENANT"] = values["tenant"]
        token = self._token()
        if token:
            told["ROTA_COORDINATOR_BEARER_TOKEN"] = token
        return self._around.env_of(self.settings.env, told)

    def _place(self, wanted: Wanted) -> tuple[str, str]:
        asked = dict(wanted.demand.signature.requires)
        workspace = asked.get("workspace", "")
        workspace = "" if workspace == self._nowhere else workspace
        return _chosen(self.settings.workspaces, workspace), _chosen(self.settings.channels, asked.get("channel", ""))


def _chosen(named: tuple[str, ...], asked: str) -> str:
    """What was asked for, if it is offered; else the first that is. Whether that will do is judged elsewhere."""
    if ANY in named or asked in named:
        return asked
    return next(iter(named), "")


def read_token(path: str) -> str:
    """The token of those who are started, read anew at each start; none without a file. Raises OSError."""
    return Path(path).read_text(encoding="utf-8").strip() if path else ""
