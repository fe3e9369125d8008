"""Exchanges between workers: over HTTP with a ticket, in a folder that they share, and within limits."""

import asyncio
import contextlib
import http.client
import json
import os
import subprocess
from pathlib import Path
from urllib.parse import quote, urlsplit

import pyarrow as pa
import pytest
from datafusion import udf
from msgspec.structs import replace

from rota.config.addresses import Address
from rota.core.commands import Outcome
from rota.core.errors import Refused
from rota.core.model import FailureClass
from rota.wire.queries import StageOutput, decode_output, encode_output
from rota.worker.runners.queries import exchange
from rota.worker.runners.queries.parts import asked_name
from rota.worker.runners.queries.runner import Reach, check_reach
from rota.worker.runners.queries.serving import TICKET, ticket
from tests.integration.worker.query_stage import Runners, inputs, output_of, planned, querying, result_of
from tests.integration.worker.stage import ROOT, told
from tests.integration.worker.test_query_runner import GROUPS, expected_groups

pytestmark = pytest.mark.full

TOKEN = "between workers"
JOIN = "select a.g, count(*) as n, min(b.s) as s from t a join t b on a.k = b.k group by a.g order by a.g"


def asked(output: StageOutput, path: str, shown: str, *, method: str = "GET", **headers: str) -> tuple[int, bytes]:
    """Ask a worker for a file, as a peer does."""
    place = urlsplit(output.url)
    connection = http.client.HTTPConnection(place.hostname or "", place.port, timeout=10)
    try:
        connection.request(method, path, headers={TICKET: shown, **headers})
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


@querying(tokens=(TOKEN, TOKEN))
async def test_workers_with_folders_of_their_own_read_each_others_files(runners: Runners) -> None:
    table = runners.table()
    assert (await runners.run(planned(GROUPS, t=table))).to_pylist() == expected_groups()
    assert runners.files(0)
    assert runners.files(1)
    found = (await runners.run(planned(JOIN, 3, t=table))).to_pylist()
    assert [row["g"] for row in found] == list(range(7))
    assert [row["s"] for row in found] == [min(f"text of row {k}" for k in range(g, 20_000, 7)) for g in range(7)]


@querying(tokens=(TOKEN, TOKEN), shared="all of us")
async def test_workers_that_share_a_folder_ask_nobody(runners: Runners) -> None:
    stages = planned(GROUPS, t=runners.table())
    assert (await runners.run(stages)).to_pylist() == expected_groups()
    output = output_of(await runners.first.run(runners.offer(stages[0], 0)))
    assert output.url == ""
    assert output.folder.startswith("w0/acme/")
    stranger = replace(output, root="another folder")
    over = await runners.each[1].run(runners.offer(stages[1], 0, inputs({"stage-1": (encode_output(stranger),)})))
    assert over.failure is FailureClass.FATAL
    assert over.error.startswith("query.failed: stage-1[0] ")


@querying(tokens=(TOKEN, TOKEN))
async def test_a_file_that_a_peer_has_lost_is_a_lost_input(runners: Runners) -> None:
    stages = planned(GROUPS, t=runners.table())
    results = {"stage-1": tuple([result_of(await runners.first.run(runners.offer(stages[0], n))) for n in range(2)])}
    wanted = decode_output(results["stage-1"][0]).parts[0].part
    reading = runners.offer(stages[1], wanted, inputs(results))
    result_of(await runners.each[1].run(reading))
    for result in results["stage-1"]:
        file = runners.folder / "exchange-0" / decode_output(result).folder / f"p{wanted}.arrow"
        os.truncate(file, file.stat().st_size - 8)
    over = await runners.each[1].run(replace(reading, fence=100))
    assert over.failure is FailureClass.INPUT_LOST
    assert over.lost == ("stage-1[0]", "stage-1[1]"), over.error
    assert TOKEN not in over.error
    await runners.first.close()
    over = await runners.each[1].run(replace(reading, fence=101))
    assert over.failure is FailureClass.INPUT_LOST
    assert over.lost == ("stage-1[0]", "stage-1[1]"), over.error
    assert "does not answer" in over.error


@querying(tokens=(TOKEN, "another"))
async def test_a_peer_with_another_token_is_given_nothing(runners: Runners) -> None:
    stages = planned(GROUPS, t=runners.table())
    result = result_of(await runners.first.run(runners.offer(stages[0], 0)))
    wanted = decode_output(result).parts[0].part
    over = await runners.each[1].run(runners.offer(stages[1], wanted, inputs({"stage-1": (result,)})))
    assert over.failure is FailureClass.INPUT_LOST
    assert over.lost == ("stage-1[0]",)
    assert "403" in over.error


@querying(tokens=(TOKEN,))
async def test_only_files_of_the_query_whose_ticket_is_shown_are_given_out(runners: Runners) -> None:
    stages = planned(GROUPS, t=runners.table())
    output = output_of(await runners.first.run(runners.offer(stages[0], 0)))
    tenant, run, stage, attempt = output.folder.split("/")
    part = output.parts[0]
    good = ticket(TOKEN, tenant, run)
    path = f"/x/{output.folder}/{asked_name(part)}"
    content = (runners.folder / "exchange-0" / output.folder / f"p{part.part}.arrow").read_bytes()

    async def ask(path: str, shown: str = good, **options: str) -> tuple[int, bytes]:
        return await asyncio.to_thread(asked, output, path, shown, **options)

    assert await ask(path) == (200, content)
    assert await ask(path, Range="bytes=4-9") == (206, content[4:10])
    assert await ask(path, Range="bytes=4-") == (206, content[4:])
    assert await ask(path, Range="bytes=-10") == (206, content[-10:])
    assert (await ask(path, Range=f"bytes={len(content)}-"))[0] == 416
    assert (await ask(path, Range="lines=1-2"))[0] == 416
    assert await ask(path, method="HEAD") == (200, b"")
    for shown in ("", "x", good[:-1], ticket(TOKEN, tenant, "other"), ticket(TOKEN, "other", run), TOKEN):
        assert (await ask(path, shown))[0] == 403
    secret = runners.folder / "exchange-0" / "secret.arrow"
    secret.write_bytes(content)
    inside = runners.folder / "exchange-0" / output.folder
    (inside / "p77.arrow").symlink_to(secret)
    for wrong in (
        f"/x/{output.folder}/{asked_name(replace(part, checksum='0' * 16))}",
        f"/x/{output.folder}/{asked_name(replace(part, bytes=part.bytes + 1))}",
        f"/x/{output.folder}/{asked_name(replace(part, part=77))}",
        f"/x/{output.folder}/p{part.part}.arrow",
        f"/x/{output.folder}/",
        f"/x/{output.folder}",
        f"/x/{tenant}/{run}/{stage}/../{attempt}/{asked_name(part)}",
        f"/x/{tenant}/{run}/../../{asked_name(part)}",
        f"/x/{tenant}/{run}/{quote('..', safe='')}/%2e%2e/{asked_name(part)}",
        f"/x/{tenant}/{run}/{stage}/{attempt}%2F{asked_name(part)}",
        f"/x/{tenant}/{run}/{stage}/%00/{asked_name(part)}",
        f"//x/{output.folder}/{asked_name(part)}",
        "/",
        "/x",
    ):
        assert (await ask(wrong))[0] in (403, 404), wrong
    for method in ("PUT", "POST", "DELETE", "LIST"):
        assert (await ask(path, method=method))[0] == 405


@querying(tokens=(TOKEN,))
async def test_nonsense_is_answered_or_hung_up_on(runners: Runners) -> None:
    output = output_of(await runners.first.run(runners.offer(planned(GROUPS, t=runners.table())[0], 0)))
    place = urlsplit(output.url)
    for nonsense in (
        b"\r\n\r\n",
        b"GET /\r\n\r\n",
        b"GET / HTTP/2\r\n\r\n",
        b"\xff\r\n\r\n",
        b"GET / HTTP/1.1\r\nContent-Length: 5\r\n\r\n",
    ):
        reader, writer = await asyncio.open_connection(place.hostname, place.port)
        writer.write(nonsense)
        assert (await reader.read()).startswith(b"HTTP/1.1 400 ")
        writer.close()
    reader, writer = await asyncio.open_connection(place.hostname, place.port)
    writer.write(b"x" * 100_000)
    # Nothing is said to somebody who never comes to an end.
    with contextlib.suppress(ConnectionError):
        assert await reader.read() == b""
    writer.close()


@querying(tokens=("", ""))
async def test_a_worker_elsewhere_that_listens_here_only_is_named_as_the_reason(
    runners: Runners,
) -> None:
    stages = planned(GROUPS, t=runners.table())
    output = output_of(await runners.first.run(runners.offer(stages[0], 0)))
    assert output.root.startswith(exchange.machine())
    elsewhere = encode_output(replace(output, root="othermachine-1"))
    over = await runners.each[1].run(runners.offer(stages[1], 0, inputs({"stage-1": (elsewhere,)})))
    assert over.failure is FailureClass.FATAL
    assert "set worker.exchange_listen" in over.error


def test_without_a_token_nothing_is_given_out_beyond_this_machine() -> None:
    check_reach(Reach(Address("127.0.0.1", 0), str))
    check_reach(Reach(Address("10.0.0.1", 0), lambda: "secret"))
    with pytest.raises(Refused) as refused:
        check_reach(Reach(Address("10.0.0.1", 0), str))
    assert refused.value.path == "worker.exchange_listen"


# Room.


@querying(bytes_max=100_000)
async def test_an_attempt_that_writes_too_much_is_stopped(runners: Runners) -> None:
    fifo = runners.worker.fifo()

    def wait(values: pa.Array) -> pa.Array:
        import threading

        with open(fifo, "w") as pipe:  # noqa: PTH123 - runs elsewhere
            pipe.write("ready")
        threading.Event().wait()
        return values

    waiting = udf(wait, [pa.int64()], pa.int64(), "immutable", name="wait")
    stages = planned("select wait(k) from t", 1, udfs=[waiting], t=runners.table(files=1))
    attempt = asyncio.ensure_future(runners.first.run(runners.offer(stages[0], 0)))
    await told(fifo)
    (room,) = (runners.folder / "exchange-0").glob("*/*/*/*")
    (room / "p0.arrow").write_bytes(bytes(200_000))
    over = await attempt
    assert over.outcome is Outcome.RELEASED
    assert "worker.exchange_mb" in over.error
    assert runners.worker.left() == []
    assert not room.exists()


@querying(bytes_max=100_000)
async def test_one_whose_process_ends_slowly_is_stopped_once_and_the_next_one_too(runners: Runners) -> None:
    fifo = runners.worker.fifo()

    def linger(values: pa.Array) -> pa.Array:
        import signal
        import threading

        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        with open(fifo, "w") as pipe:  # noqa: PTH123 - runs elsewhere
            pipe.write("ready")
        threading.Event().wait()
        return values

    lingering = udf(linger, [pa.int64()], pa.int64(), "immutable", name="linger")
    stages = planned("select linger(k) from t", 1, udfs=[lingering], t=runners.table(files=1))
    for _ in range(2):
        attempt = asyncio.ensure_future(runners.first.run(runners.offer(stages[0], 0)))
        await told(fifo)
        (room,) = (runners.folder / "exchange-0").glob("*/*/*/*")
        (room / "p0.arrow").write_bytes(bytes(200_000))
        assert (await attempt).outcome is Outcome.RELEASED


@querying(bytes_max=10)
async def test_who_has_no_room_takes_nothing_and_what_nobody_uses_makes_room(runners: Runners) -> None:
    stages = planned(GROUPS, t=runners.table())
    output = output_of(await runners.first.run(runners.offer(stages[0], 0)))
    over = await runners.first.run(runners.offer(stages[0], 1))
    assert over.outcome is Outcome.RELEASED
    over = await runners.first.run(runners.offer(stages[0], 1, run="another"))
    assert over.outcome is Outcome.RELEASED
    os.utime((runners.folder / "exchange-0" / output.folder).parent.parent, (1, 1))
    output_of(await runners.first.run(runners.offer(stages[0], 1, run="another")))
    assert not (runners.folder / "exchange-0" / output.folder).exists()


@querying()
async def test_a_run_that_nobody_asked_about_for_long_is_removed(runners: Runners) -> None:
    stages = planned(GROUPS, t=runners.table())
    old, new = [
        runners.folder / "exchange-0" / output_of(await runners.first.run(runners.offer(stages[0], 0, run=run))).folder
        for run in ("old", "new")
    ]
    os.utime(old.parent.parent, (1, 1))
    runners.exchanges[0].tidy()
    assert not old.exists()
    assert new.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can run code as somebody else")
def test_fragments_of_another_user_write_to_their_own_folder_which_is_then_taken_back(
    folder: Path, open_python: str
) -> None:
    home = folder / "worker"
    home.mkdir(mode=0o700)
    command = [open_python, "-P", "-m", "tests.integration.worker.query_as_nobody", str(home)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr.decode()[-4_000:]
    found = json.loads(done.stdout)
    assert found["answer"] == [{"g": group, "n": 10} for group in range(7)]
    assert found["owners"] == [0]
    assert found["modes"] == ["0o444"]
    assert found["home"].startswith("rota-exchange-")
    assert found["left"] is False
