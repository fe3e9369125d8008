"""From a path to what is deployed: files are read, compiled by a throw-away process, and packed.

What is compiled is a copy of what was read, in a folder of its own: what workers get is enough, or it fails here.
"""

import asyncio
import contextlib
import os
import sys
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec
from msgspec import Struct, structs

from rota.core.errors import Refused
from rota.kinds.workflow.bundles import Sources, gather
from rota.kinds.workflow.compiling import LENGTH_BYTES
from rota.kinds.workflow.dependencies import Dependencies
from rota.wire.bundles import check_bundle, pack_bundle
from rota.wire.deployments import LOAD_S, Broken, Compilation, Compiled, Job, decode_compilation, encode
from rota.wire.work import COMMAND

# Of address space, which is more than is used: libraries for numbers reserve a lot of it.
MEMORY_BYTES_MAX = 8 << 30
PASSED_ON = ("PATH", "HOME", "LANG", "TMPDIR")

_PACKAGE_ROOT = str(Path(__file__).parents[3])
_COMPILE = (sys.executable, "-P", "-m", "rota.kinds.workflow.compiling")


class Prepared(Struct, frozen=True):
    """What may be deployed of a path, what may not, and the bundle of it all."""

    workflows: tuple[Compiled, ...]
    broken: tuple[Broken, ...]
    bundle: bytes


async def prepare(path: Path, *, timeout_s: float = LOAD_S, env: Mapping[str, str] | None = None) -> Prepared:
    """Compile what is at a path. `env` is what its files find in their environment beside what everybody has."""
    if timeout_s <= 0:
        raise Refused("field.value", f"{timeout_s:g} s is no time to load a file in", path="timeout")
    sources = await asyncio.to_thread(gather, path)
    if not sources.candidates:
        text = f"no Python file in {path} imports rota"
        raise Refused("graph.empty", text, "Decorate a function with @rota.workflow.", path="PATH")
    bundle = await asyncio.to_thread(pack_bundle, sources.files)
    await asyncio.to_thread(check_bundle, bundle)
    shown = str(path if path.is_dir() else path.parent)
    with tempfile.TemporaryDirectory(prefix="rota-compile-", ignore_cleanup_errors=True) as made:
        root = Path(made).resolve()
        await asyncio.to_thread(_lay_out, sources, root)
        job = Job(
            root=str(root),
            shown="" if shown == "." else shown,
            files=sources.candidates,
            timeout_s=timeout_s,
            memory_bytes_max=MEMORY_BYTES_MAX,
        )
        found = await _compile(job, env or {})
    if not found.workflows and not found.broken:
        raise Refused("graph.empty", f"{path} has no workflow", "Decorate a function with @rota.workflow.", path="PATH")
    workflows, broken = _apart(found)
    return Prepared(await asyncio.to_thread(with_code, workflows, sources), broken, bundle)


def with_code(workflows: Iterable[Compiled], sources: Sources) -> tuple[Compiled, ...]:
    """The same workflows, each with the digest of the files that it uses."""
    dependencies = Dependencies(sources.files)
    names = {file.name for file in sources.files}
    done: list[Compiled] = []
    for workflow in workflows:
        first = [name for name in (workflow.source.rpartition(":")[0], *workflow.loaded) if name in names]
        # A command is run in the folder of the bundle, and may use any file there.
        has_command = any(spec.kind == COMMAND for spec in workflow.graph.tasks)
        used = dependencies.of(first, is_opaque=has_command)
        done.append(structs.replace(workflow, code=dependencies.digest(used)))
    return tuple(done)


def _lay_out(sources: Sources, root: Path) -> None:
    for file in sources.files:
        target = root / file.name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(file.content)
        target.chmod(0o755 if file.is_executable else 0o644)


def _environment(env: Mapping[str, str]) -> dict[str, str]:
    """What is found there was put there on purpose. The same order of sets each time makes the same graph each time."""
    found = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
    if _PACKAGE_ROOT in os.environ.get("PYTHONPATH", "").split(os.pathsep):
        # Then it is how Rota itself is found.
        found["PYTHONPATH"] = _PACKAGE_ROOT
    return {**found, "PYTHONHASHSEED": "0", **env}


async def _compile(job: Job, env: Mapping[str, str]) -> Compilation:
    """Ask a process for it. Whatever ends this ends the process, with everything that was started there."""
    process = await asyncio.create_subprocess_exec(
        *_COMPILE,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env=_environment(env),
        cwd=job.root,
        start_new_session=True,
    )
    assert process.stdin is not None and process.stdout is not None, "both were asked for"
    try:
        asked = encode(job)
        process.stdin.write(len(asked).to_bytes(LENGTH_BYTES, "big") + asked)
        answer = await process.stdout.read()
    finally:
        # It ends when nobody holds this any more.
        process.stdin.close()
        with contextlib.suppress(asyncio.CancelledError):
            await process.wait()
    try:
        return decode_compilation(answer)
    except msgspec.MsgspecError:
        text = f"the process that compiles ended with code {process.returncode} and without an answer"
        raise Refused("deploy.broken", text, "What it said is above.") from None


def _apart(found: Compilation) -> tuple[tuple[Compiled, ...], tuple[Broken, ...]]:
    """Workflows that have a name of their own, and what is broken; those that share one are."""
    by_name: dict[str, list[Compiled]] = {}
    for workflow in found.workflows:
        by_name.setdefault(workflow.graph.name, []).append(workflow)
    broken = list(found.broken)
    for name, same in by_name.items():
        if len(same) > 1:
            places = " and ".join(each.source for each in same)
            file, _, line = same[0].source.rpartition(":")
            text = f"{len(same)} workflows are called {name!r}: {places}. Give each its own name."
            broken.append(Broken(file=file, line=int(line), workflow=name, error=text))
    return tuple(same[0] for same in by_name.values() if len(same) == 1), tuple(broken)
