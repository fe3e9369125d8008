"""`python -m tests.integration.worker.snooped`: a worker with a secret, whose tasks look for it wherever they can.

Prints one JSON object: what each task printed or returned.
"""

import asyncio
import json
import os
import sys
from pathlib import Path

from rota.core.errors import Refused
from rota.wire.work import CommandWork, StoredValue, decode_value
from rota.worker.accounts import find_account
from rota.worker.runners.pool import check_reachable
from rota.worker.supervisor.confinement import hide_process
from rota.worker.sync import AttemptOver
from tests.integration.worker.stage import Stage, open_stage, python_work, value_of

# For every process from its own parent up to the worker: what is in /proc about it, and what its open files hold.
LOOK_UP = """
env
ls -l /proc/self/fd
pid=$PPID
while :; do
  echo "looking into $pid"
  for name in environ cmdline maps auxv stack; do cat /proc/$pid/$name | tr '\\0' '\\n'; done
  ls -l /proc/$pid/fd /proc/$pid/map_files
  for file in /proc/$pid/fd/*; do timeout 1 head -c 1000 "$file"; done
  dd if=/proc/$pid/mem bs=1 count=1
  [ "$pid" = "{worker}" ] && break
  pid=$(cut -d ' ' -f 4 /proc/$pid/stat)
done
grep -E '^(Cap|NoNewPrivs|Uid|Gid|Groups)' /proc/self/status
true
"""


def text_of(over: AttemptOver) -> str:
    assert over.result is not None, over.error
    value = decode_value(over.result)
    return "stored" if isinstance(value, StoredValue) else str(value_of(over))


async def look(stage: Stage, *, python: bool) -> dict[str, str]:
    found: dict[str, str] = {}
    over = await stage.sh(LOOK_UP.replace("{worker}", str(os.getpid())))
    assert over.outcome == "success", over.error
    found["command"] = stage.log().decode(errors="replace")
    over = await stage.sh("echo to the device > /dev/stdout; pwd; echo $HOME; id -u")
    found["plain"] = stage.log().decode(errors="replace") + over.error
    work = CommandWork(shell=f"ls {stage.folder}; touch {stage.folder}/mine; true")
    await stage.run(stage.offer(work))
    found["folder"] = stage.log().decode(errors="replace")
    if python:
        found["python"] = text_of(await stage.call("snoop", os.getpid()))
        over = await stage.call("wide", 70_000)
        found["large"] = text_of(over)
        from rota.core.decide.leases import Input
        from rota.wire.work import OutputOf

        offer = stage.offer(python_work("length", OutputOf("up")), inputs=(Input("up", (over.result,)),))
        found["read"] = text_of(await stage.run(offer))
    return found


async def main(folder: str, run_as: str, kinds: str) -> None:
    account = find_account(run_as) if run_as else None
    async with open_stage(Path(folder), run_as=account) as stage:
        found: dict[str, str] = {"reachable": "yes"}
        try:
            await check_reachable(stage.supervisor)
        except Refused as refused:
            found["reachable"] = str(refused)
        sys.stdout.write(json.dumps({**found, **await look(stage, python="python" in kinds)}))


if __name__ == "__main__":
    hide_process()
    asyncio.run(main(*sys.argv[1:]))
