"""A query whose fragments run as another user: what is found of it, as JSON."""

import asyncio
import json
import sys
from pathlib import Path

from rota.worker.accounts import find_account
from tests.integration.worker.query_stage import open_runners, output_of, planned

SQL = "select value % 7 as g, count(*) as n from generate_series(1, 70) group by 1 order by 1"


async def main(folder: str) -> None:
    async with open_runners(Path(folder), ("secret", "secret"), run_as=find_account("nobody")) as runners:
        stages = planned(SQL, 2)
        answer = (await runners.run(stages)).to_pylist()
        output = output_of(await runners.first.run(runners.offer(stages[0], 0)))
        home = runners.exchanges[0]._home  # pyright: ignore[reportPrivateUsage]  # it is what is looked at
        written = home / output.folder
        files = list(written.iterdir())
        found = {
            "answer": answer,
            "owners": sorted({path.stat().st_uid for path in (written, *files)}),
            "modes": sorted({oct(path.stat().st_mode & 0o777) for path in files}),
            "home": home.name,
        }
        await runners.first.close()
        sys.stdout.write(json.dumps({**found, "left": home.exists()}))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
