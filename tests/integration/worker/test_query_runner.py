"""Fragments of queries in real processes: what they write, what they read, and what each kind of end is called."""

import asyncio
import os
import re

import pyarrow as pa
import pytest
from datafusion import udf
from msgspec.structs import replace

from rota.core.commands import Outcome
from rota.core.model import FailureClass
from rota.kinds.query.schemas import exchange_leaf
from rota.kinds.query.stages import Stage
from rota.wire.plans.checking import ENGINE
from rota.wire.plans.tree import coalesced, write
from rota.wire.queries import (
    FRAGMENT_VERSION,
    Answered,
    Fragment,
    decode_fragment,
    decode_output,
    encode_fragment,
    encode_output,
)
from rota.wire.work import StoredValue, decode_value
from tests.integration.worker.query_stage import (
    ROWS,
    Runners,
    inputs,
    output_of,
    planned,
    querying,
    result_of,
)
from tests.integration.worker.stage import told

pytestmark = pytest.mark.full

GROUPS = "select g, count(*) as n, sum(k) as total from t group by g order by g"


def expected_groups() -> list[dict[str, int]]:
    keys = {group: [key for key in range(ROWS) if key % 7 == group] for group in range(7)}
    return [{"g": group, "n": len(found), "total": sum(found)} for group, found in keys.items()]


@querying()
async def test_a_query_is_run_stage_by_stage_and_its_answer_is_a_table(runners: Runners) -> None:
    stages = planned(GROUPS, t=runners.table())
    assert len(stages) > 1
    assert (await runners.run(stages)).to_pylist() == expected_groups()


@querying()
async def test_an_output_is_files_named_by_their_attempt_and_says_what_is_in_them(runners: Runners) -> None:
    stages = planned(GROUPS, t=runners.table())
    offer = runners.offer(stages[0], 1)
    output = output_of(await runners.first.run(offer))
    assert output.folder.split("/")[0] == "acme"
    assert output.folder.endswith(f"/stage-1/t1-{offer.fence}")
    assert output.rows == sum(part.rows for part in output.parts) == 7
    assert runners.files() == [f"{output.folder}/p{part.part}.arrow" for part in output.parts]
    assert {"elapsed_compute", "bytes_scanned"} <= dict(output.metrics).keys()
    for part in output.parts:
        file = runners.folder / "exchange-0" / output.folder / f"p{part.part}.arrow"
        with pa.ipc.open_file(file) as opened:
            assert opened.schema.names == ["c0", "c1", "c2"]
            assert sum(opened.get_batch(number).num_rows for number in range(opened.num_record_batches)) == part.rows
        assert file.stat().st_size == part.bytes


@querying()
async def test_a_large_answer_is_stored(runners: Runners) -> None:
    stages = planned("select k, s from t order by k", t=runners.table())
    table = await runners.run(stages)
    assert table.num_rows == ROWS
    assert table.column("k").to_pylist() == list(range(ROWS))
    small = planned("select k from t where k < 0", t=str(runners.folder / "t"))
    assert (await runners.run(small)).to_pylist() == []


@querying()
async def test_an_answer_that_is_large_travels_through_the_blobs(runners: Runners) -> None:
    (stage,) = planned("select value as v from generate_series(1, 100000)", 1)
    value = decode_value(result_of(await runners.first.run(runners.offer(stage))))
    assert isinstance(value, StoredValue)
    assert value.encoding == "arrow"


@querying()
async def test_rows_without_columns_are_counted(runners: Runners) -> None:
    stages = planned("select count(*) as n from (select 1 from t limit 1234)", t=runners.table())
    assert (await runners.run(stages)).to_pylist() == [{"n": 1234}]


# What cannot be run.


@querying()
async def test_a_fragment_of_another_engine_or_version_is_refused_for_good(runners: Runners) -> None:
    fragment = Fragment(engine="datafusion 1.0.0", output=Answered(), schema=b"")
    over = await runners.first.run(runners.offer_of(fragment))
    assert over.failure is FailureClass.FATAL
    assert over.error.startswith("query.engine: ")
    assert "datafusion 1.0.0" in over.error
    assert ENGINE in over.error
    newer = Fragment(version=FRAGMENT_VERSION + 1, engine=ENGINE, output=Answered(), schema=b"")
    over = await runners.first.run(runners.offer_of(newer))
    assert over.failure is FailureClass.FATAL
    assert re.search(rf"\b{FRAGMENT_VERSION + 1}\b.*\b{FRAGMENT_VERSION}\b", over.error)
    over = await runners.first.run(replace(runners.offer_of(newer), work=b"\x01"))
    assert over.failure is FailureClass.FATAL
    assert runners.files() == []


@querying()
async def test_a_plan_that_the_engine_cannot_read_is_refused_for_good(runners: Runners) -> None:
    schema = pa.schema([("a", pa.int64())]).serialize().to_pybytes()
    fragment = Fragment(engine=ENGINE, output=Answered(), schema=schema, plan=b"xxxx", is_whole=True)
    over = await runners.first.run(runners.offer_of(fragment))
    assert over.failure is FailureClass.FATAL
    assert re.match(r"query\.failed: .*\bplan\b", over.error)


# Whose fault.


@querying()
async def test_a_source_that_is_gone_broken_or_replaced_is_a_source_that_cannot_be_read(runners: Runners) -> None:
    stages = planned(GROUPS, t=runners.table())
    source = runners.folder / "t" / "0.parquet"
    content, before = source.read_bytes(), source.stat()
    # The last one is a table like any other, and not the one that was planned.
    for other in (None, b"x" * len(content), content[:-1_000], content):
        source.unlink()
        if other is not None:
            source.write_bytes(other)
        over = await runners.first.run(runners.offer(stages[0], 0))
        assert over.failure is FailureClass.FATAL, over.error
        assert over.error.startswith(f"query.source: {source} was changed"), over.error
        source.write_bytes(content)
    assert runners.files() == []
    os.utime(source, ns=(before.st_atime_ns, before.st_mtime_ns))
    output_of(await runners.first.run(runners.offer(stages[0], 0)))


@querying()
async def test_a_fragment_reads_no_files_but_in_the_places_that_it_names(runners: Runners) -> None:
    (stage,) = planned("select sum(k) as n from t", 1, t=runners.table())
    offer = runners.offer(stage)
    fragment = decode_fragment(offer.work)
    assert fragment.places == (str(runners.folder / "t"),)
    for places in ((), (f"{runners.folder}/tt",), (f"{runners.folder}/t/0.parquet",)):
        work = encode_fragment(replace(fragment, places=places))
        over = await runners.first.run(replace(offer, work=work))
        assert over.failure is FailureClass.FATAL
        assert re.match(r"query\.source: .*/t/\d\.parquet\b.*\(at plan\)", over.error)
    # Named twice, a message is one to some readers and two to others: what counts is what the engine reads.
    hidden = planned("select sum(k) as n from t", 1, t=runners.table("hidden"))[0].plan
    mixed = encode_fragment(replace(fragment, plan=hidden + fragment.plan, is_whole=True))
    over = await runners.first.run(replace(offer, work=mixed))
    assert over.failure is FailureClass.FATAL, over.error
    assert re.match(r"query\.source: .*hidden/0\.parquet.*\(at plan\)", over.error)


@querying()
async def test_a_file_is_not_taken_for_an_exchange_by_the_name_of_another(runners: Runners) -> None:
    schema = pa.schema([("a", pa.int64())])
    secret = runners.folder / "secret.arrow"
    with pa.ipc.new_file(str(secret), schema) as writer:
        writer.write_batch(pa.record_batch({"a": [42]}))
    leaf = exchange_leaf(schema, 0, 2)
    groups = leaf.message.arrow_scan.conf.file_groups
    groups[1].files[0].path = str(secret).lstrip("/")
    plan = write(coalesced(leaf))
    made = Fragment(
        engine=ENGINE, output=Answered(), schema=schema.serialize().to_pybytes(), plan=plan, is_whole=True, places=()
    )
    over = await runners.first.run(runners.offer_of(made))
    assert over.failure is FailureClass.FATAL
    assert re.match(r"query\.source: .*/(secret\.arrow|rota-exchange-0)\b.*\(at plan\)", over.error)


@querying(memory_bytes=8 << 20)
async def test_a_join_that_does_not_fit_is_out_of_memory(runners: Runners) -> None:
    sql = (
        "select count(*) from generate_series(1, 2000000) a(v) join generate_series(1, 2000000) b(v) "
        "on a.v = b.v where a.v % 2 = 0"
    )
    stages = planned(sql, 1)
    over = await runners.first.run(runners.offer(stages[0]))
    assert over.failure is FailureClass.OUT_OF_MEMORY, over.error
    assert over.error.startswith("query.memory: Resources exhausted")


@querying(memory_bytes=32 << 20)
async def test_what_does_not_fit_is_spilled_into_the_attempts_folder_and_removed(runners: Runners) -> None:
    stages = planned("select (value * 7919) % 3000017 as v from generate_series(1, 3000000) order by v", 1)
    found = (await runners.run(stages)).column("v").to_pylist()
    assert len(set(found)) == 3_000_000
    assert found == sorted(found)
    assert runners.files() == []


def known_here_only(values: pa.Array) -> pa.Array:
    return values


@querying()
async def test_an_error_in_a_function_is_the_users(runners: Runners) -> None:
    def explode(values: pa.Array) -> pa.Array:
        raise ValueError("Resources exhausted")

    exploding = udf(explode, [pa.int64()], pa.int64(), "immutable", name="explode")
    stages = planned("select explode(k) from t", udfs=[exploding], t=runners.table())
    over = await runners.first.run(runners.offer(stages[0], 0))
    assert over.failure is FailureClass.USER
    first, *lines = over.error.splitlines()
    assert re.fullmatch(r"query\.function_failed: .*ValueError\('Resources exhausted'\)", first)
    assert "in explode" in "\n".join(lines)
    there = udf(known_here_only, [pa.int64()], pa.int64(), "immutable", name="there")
    stages = planned("select there(k) from t", udfs=[there], t=str(runners.folder / "t"))
    over = await runners.first.run(runners.offer(stages[0], 0))
    assert over.failure is FailureClass.FATAL
    assert re.match(r"query\.function_failed: .*: ModuleNotFound", over.error)


@querying()
async def test_what_is_wrong_with_values_is_wrong_for_good(runners: Runners) -> None:
    stages = planned("select 1 / (k - k) as x from t", t=runners.table())
    over = await runners.first.run(runners.offer(stages[0], 0))
    assert over.failure is FailureClass.FATAL
    assert re.match(r"query\.type: .*\bzero\b", over.error)


def hanging(fifo: str) -> object:
    """A function that says when it is called, and does not return."""

    def hang(values: pa.Array) -> pa.Array:
        import subprocess
        import threading

        subprocess.Popen(["sleep", "1000"])
        with open(fifo, "w") as pipe:  # noqa: PTH123 - runs elsewhere
            pipe.write("ready")
        threading.Event().wait()
        return values

    return udf(hang, [pa.int64()], pa.int64(), "immutable", name="hang")


@querying()
async def test_cancelling_kills_the_process_with_everything_it_started(runners: Runners) -> None:
    fifo = runners.worker.fifo()
    stages = planned("select hang(k) from t", 1, udfs=[hanging(fifo)], t=runners.table(files=1))
    attempt = asyncio.ensure_future(runners.first.run(runners.offer(stages[0], 0)))
    await told(fifo)
    assert runners.worker.left() != []
    attempt.cancel()
    await asyncio.wait((attempt,))
    assert attempt.cancelled()
    assert runners.worker.left() == []
    assert runners.files() == []
    assert list((runners.folder / "exchange-0").glob("*/*/*/*")) == []


@querying()
async def test_a_function_that_hangs_is_killed_when_its_time_is_over(runners: Runners) -> None:
    fifo = runners.worker.fifo()
    table = runners.table(files=1)
    # Its time is for the function, and not for a process that has to load the engine on a busy machine.
    output_of(await runners.first.run(runners.offer(planned(GROUPS, t=table)[0], 0)))
    stages = planned("select hang(k) from t", 1, udfs=[hanging(fifo)], t=table)
    attempt = asyncio.ensure_future(runners.first.run(runners.offer(stages[0], 0, timeout_ms=3_000)))
    await told(fifo)
    over = await attempt
    assert over.failure is FailureClass.TIMEOUT
    assert runners.worker.left() == []


@querying()
async def test_a_process_that_failed_is_not_used_again_and_one_that_did_not_is(runners: Runners) -> None:
    stages = planned(GROUPS, t=runners.table())
    output_of(await runners.first.run(runners.offer(stages[0], 0)))
    (warm,) = runners.worker.left()
    output_of(await runners.first.run(runners.offer(stages[0], 1)))
    assert runners.worker.left() == [warm]
    broken = planned("select 1 / (k - k) as x from t", t=str(runners.folder / "t"))
    await runners.first.run(runners.offer(broken[0], 0))
    assert runners.worker.left() == []


# What others wrote.


async def first_stage(runners: Runners, sql: str = GROUPS) -> tuple[tuple[Stage, ...], dict[str, tuple[bytes, ...]]]:
    stages = planned(sql, t=runners.table())
    overs = [await runners.first.run(runners.offer(stages[0], number)) for number in range(stages[0].tasks)]
    return stages, {stages[0].id: tuple(result_of(over) for over in overs)}


@querying()
async def test_files_that_are_gone_short_or_changed_are_lost_inputs_all_at_once(runners: Runners) -> None:
    stages, results = await first_stage(runners)
    folders = [runners.folder / "exchange-0" / decode_output(each).folder for each in results["stage-1"]]
    wanted = [decode_output(each).parts[0].part for each in results["stage-1"]]
    assert len(folders) == 2
    second = stages[1]
    victims = [folder / f"p{part}.arrow" for folder, part in zip(folders, wanted, strict=True)]
    contents = [victim.read_bytes() for victim in victims]
    for victim, content in zip(victims, contents, strict=True):
        victim.unlink()
        over = await runners.first.run(runners.offer(second, wanted[0], inputs(results)))
        assert over.failure is FailureClass.INPUT_LOST
        victim.write_bytes(content[:-100])
        over = await runners.first.run(runners.offer(second, wanted[0], inputs(results)))
        assert over.failure is FailureClass.INPUT_LOST
        victim.unlink()
    over = await runners.first.run(runners.offer(second, wanted[0], inputs(results)))
    assert (over.outcome, over.failure) == (Outcome.FAILED, FailureClass.INPUT_LOST)
    assert over.lost == ("stage-1[0]", "stage-1[1]")
    for victim, content in zip(victims, contents, strict=True):
        changed = bytearray(content)
        changed[-20] ^= 1
        victim.write_bytes(changed)
    over = await runners.first.run(runners.offer(second, wanted[0], inputs(results)))
    assert over.lost == ("stage-1[0]", "stage-1[1]")
    assert any(f"{victim} was changed" in over.error for victim in victims)
    for victim, content in zip(victims, contents, strict=True):
        victim.write_bytes(content)
    result_of(await runners.first.run(runners.offer(second, wanted[0], inputs(results))))


@querying()
async def test_what_was_not_written_by_this_run_is_not_read(runners: Runners) -> None:
    stages, results = await first_stage(runners)
    output = decode_output(results["stage-1"][0])
    for folder in (
        output.folder.replace("acme", "other"),
        f"../{output.folder}",
        output.folder.replace("stage-1", ".."),
        "/etc/passwd",
    ):
        forged = (encode_output(replace(output, folder=folder)), results["stage-1"][1])
        over = await runners.first.run(runners.offer(stages[1], 0, inputs({"stage-1": forged})))
        assert over.failure is FailureClass.FATAL, folder
        assert repr(folder) in over.error
    over = await runners.first.run(runners.offer(stages[1], 0, inputs({"stage-1": (b"\xc1", b"")})))
    assert over.failure is FailureClass.FATAL


@querying()
async def test_a_new_worker_removes_what_the_one_before_has_left(runners: Runners) -> None:
    left = runners.folder / "exchange-0" / "acme" / "gone" / "stage-1" / "t0-1"
    left.mkdir(parents=True)
    (left / "p0.arrow").write_bytes(b"x")
    await first_stage(runners)
    assert not left.exists()
    assert len(runners.files()) > 0
    await runners.first.close()
    assert not (runners.folder / "exchange-0").exists()
