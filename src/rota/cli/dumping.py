"""What `rota debug dump` gathers, and how secrets are kept out of it.

By three nets: what is known to be a secret is never taken (parameters, values of variables); what looks like one is
masked; and whatever this process knows to be one, from settings and environment, is cut out of the finished text.
"""

import gzip
import io
import os
import platform
import tarfile
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import msgspec

from rota import __version__
from rota.app import Rota
from rota.cli.examining import examine, show_values
from rota.cli.reaching import configured_folder
from rota.config import Config, Secret, load_config
from rota.config.masking import GONE, is_named_secret, mask, mask_text
from rota.core.errors import Refused, Unavailable
from rota.core.ids import Millis
from rota.core.states import FAILED, RunState
from rota.wire.views import as_plain

RUNS_LISTED = 200
FAILURES_LISTED = 30
TASKS_OF_FAILURE = 5
AUDITS_LISTED = 300
ERROR_CHARS_MAX = 2_000
# A secret that is shorter would be found in every other word.
SECRET_CHARS_MIN = 5
# What of a run its owner gave it, and may be a secret whatever it looks like.
_GIVEN = ("params", "result")
# What only the coordinator's own process knows.
INSIDE = "process.json, journal.jsonl, metrics.txt, threads.txt, tasks.txt"


def file_name(now: Millis) -> str:
    """What a dump is called."""
    return f"rota-debug-{datetime.fromtimestamp(now / 1000, UTC):%Y%m%dT%H%M%SZ}.tar.gz"


class Dump:
    """What was gathered so far: texts by the name of their file, and what could not be had, and why."""

    def __init__(self, config: str | None, now: Millis) -> None:
        self.parts: dict[str, str] = {}
        self.missing: dict[str, str] = {}
        self._now = now
        self._config = Config()
        try:
            self._config = load_config({}, os.environ, config)
        except Refused as refused:
            self.missing["settings.json"] = mask_text(str(refused))
        self._secrets = known_secrets(self._config, os.environ)

    def take_own(self, folder: str) -> None:
        """What this machine knows by itself."""
        packages = {each.name: each.version for each in metadata.distributions()}
        about = {
            "rota": __version__,
            "python": platform.python_version(),
            "platform": platform.platform(),
            "made_at": self._now,
            "packages": dict(sorted(packages.items())),
        }
        self._put("about.json", about)
        if "settings.json" not in self.missing:
            self._put("settings.json", [msgspec.to_builtins(each) for each in show_values(self._config)])
        found = examine(Path(folder or configured_folder(self._config)))
        self._put("doctor.json", [msgspec.to_builtins(each) for each in found])

    def take_from(self, rota: Rota, tell: Callable[[int, int], None]) -> None:
        """What the coordinator knows. What it refuses is left out, and said."""
        takes: dict[str, Callable[[], Any]] = {
            "overview.json": lambda: as_plain(rota.overview()),
            "workers.json": lambda: [as_plain(each) for each in rota.workers()],
            "queues.json": lambda: [as_plain(each) for each in rota.queues()],
            "pools.json": lambda: [as_plain(each) for each in rota.pools()],
            "tenants.json": lambda: [as_plain(each) for each in rota.tenants()],
            "workflows.json": lambda: [_workflow(as_plain(each)) for each in rota.workflows()],
            "backfills.json": lambda: [as_plain(each) for each in rota.backfills()],
            "scheduler.json": lambda: as_plain(rota.scheduler()),
            "runs.json": lambda: [_run(each) for each in rota.runs(limit=RUNS_LISTED)],
            "failures.json": lambda: list(_failures(rota)),
            "audit.json": lambda: [as_plain(each) for each in rota.audits(AUDITS_LISTED)],
            INSIDE: lambda: self._inside(rota),
        }
        for number, (name, take) in enumerate(takes.items(), 1):
            try:
                found = take()
                if found is not None:
                    self._put(name, found)
            except (Refused, Unavailable) as trouble:
                self.missing[name] = mask_text(str(trouble))
            tell(number, len(takes))

    def _inside(self, rota: Rota) -> None:
        """What goes on in the coordinator's process, as files that can be read as they are."""
        found = rota.inspect()
        plain = {name: getattr(found, name) for name in found.__struct_fields__ if name not in _TEXTS}
        self._put("process.json", plain)
        for name, text in (
            ("journal.jsonl", "\n".join(found.journal)),
            ("metrics.txt", found.metrics),
            ("threads.txt", "\n".join(f"{name}\n{stack}" for name, stack in found.threads.items())),
            ("tasks.txt", "\n\n".join(found.tasks)),
        ):
            if text:
                self.parts[name] = self._clean(mask_text(text))
            else:
                self.missing[name] = "this coordinator keeps none"

    def _put(self, name: str, value: Any) -> None:
        text = msgspec.json.format(msgspec.json.encode(mask(msgspec.to_builtins(value))), indent=1).decode()
        self.parts[name] = self._clean(text)

    def _clean(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, GONE)
        return text

    def write(self, file: Path) -> int:
        """Write it, for nobody else to read; its size."""
        self._put("missing.json", self.missing)
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w") as tar:
            for name, text in sorted(self.parts.items()):
                content = text.encode()
                entry = tarfile.TarInfo(f"rota-debug/{name}")
                entry.size, entry.mtime, entry.mode = len(content), self._now // 1000, 0o600
                tar.addfile(entry, io.BytesIO(content))
        content = gzip.compress(buffer.getvalue(), mtime=self._now // 1000)
        # Made anew: whoever could read what was there before does not read this.
        file.unlink(missing_ok=True)
        with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as target:
            target.write(content)
        return len(content)


_TEXTS = ("journal", "metrics", "threads", "tasks")


def _run(view: Any) -> dict[str, Any]:
    return {name: value for name, value in as_plain(view).items() if name not in _GIVEN}


def _workflow(shown: dict[str, Any]) -> dict[str, Any]:
    """A workflow without the defaults of its parameters."""
    inner = shown.get("workflow", {})
    return {**shown, "workflow": {name: value for name, value in inner.items() if name != "params"}}


def _failures(rota: Rota) -> Iterable[dict[str, Any]]:
    """Runs that failed lately, with the errors of some of their tasks."""
    for view in rota.runs(states=(RunState.FAILED,), limit=FAILURES_LISTED):
        try:
            tasks = rota.run(view.id).tasks(states=(FAILED,))
        except Refused:
            # Retention took it meanwhile.
            continue
        yield {
            **_run(view),
            "failed": [
                {"id": task.id, "attempt": task.attempt, "worker": task.worker, "error": task.error[:ERROR_CHARS_MAX]}
                for task in tasks[:TASKS_OF_FAILURE]
            ],
        }


def known_secrets(config: Config, env: Mapping[str, str]) -> list[str]:
    """What this process knows to be a secret, the longest first; of tokens also the parts after roles and names."""
    found = [value.reveal() for _, value, _ in config.values() if isinstance(value, Secret)]
    found += [value for name, value in env.items() if is_named_secret(name)]
    found += [part for text in found for part in text.replace(",", "\n").splitlines()]
    found += [part.rpartition(":")[2] for part in found]
    return sorted({each.strip() for each in found if len(each.strip()) >= SECRET_CHARS_MIN}, key=len, reverse=True)
