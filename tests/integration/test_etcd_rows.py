"""What the etcd store writes stays readable: the order of fields on disk, rows of before, stubs as they were made."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import msgspec
import pytest

from rota.core.records import RECORD_TYPES, Audit, Run, Story, Task, key_of
from rota.stores.etcd.rows import AUDIT, ROWS, Form, key_of_row, read_row, write_row
from tests.contract.records import bare, filled, image
from tests.integration.worker.stage import ROOT

pytestmark = pytest.mark.full

# The order on disk. A new field goes to the end of its line, and has a default; anything else is another FORMAT.
ORDER = {
    "Run": "tenant id graph name kind state priority created_at started_at ended_at deadline_at params schedule slot_at"
    " parent command_id paused stopping pending grown reason fault story solo"
    " version backfill merge labels share after approval idle_ms",
    "Task": "tenant run idx state attempt budget_from interruptions losses fence done_fence worker_tenant worker"
    " incarnation lease_ms eligible_at assigned_at started_at ended_at due_at failure error result avoid_tenant avoid"
    " requires cycles tier first_started_at skips note token_hash revoked",
    "Growth": "tenant run number specs expands width feeds",
    "GraphRecord": "tenant digest graph put_at",
    "Worker": "tenant id incarnation capacity registered_at draining quarantined_until gone_at owner quarantine_cause",
    "Queue": "tenant name properties allocation worker_timeout_ms unservable pull retain_completed_for_ms"
    " client_action_timeout_ms max_action_executing_timeout_ms max_job_retries worker_match_logging_interval_ms"
    " unservable_ms",
    "Pool": "tenant name slots slots_per_key starts_per_minute burst",
    "Tenant": "tenant weight",
    "Schedule": "tenant id graph spec priority cursor fired missed paused params version backfill",
    "Receipt": "tenant command_id digest answer at",
    "Workflow": "tenant name version graph versions paused source doc latest is_dropped spec cursor",
    "Pause": "tenant scope paused at actor reason",
    "Audit": "tenant at actor command about command_id",
    "Story": "tenant run created_at number at changes",
}


def test_the_order_of_fields_on_disk_has_not_changed() -> None:
    types = [*[cls for cls, _ in ROWS], Audit, Story]
    assert {cls.__name__: " ".join(cls.__struct_fields__) for cls in types} == ORDER
    assert list(ORDER)[: len(ROWS)] == [cls.__name__ for cls, _ in ROWS], "what a row is of is its place in the list"


def test_every_type_of_record_has_a_row_and_its_key_is_at_the_beginning() -> None:
    assert {cls for cls, _ in ROWS} == set(RECORD_TYPES)
    for cls in RECORD_TYPES:
        for record in (filled(cls), bare(cls)):
            row = write_row(record)
            assert image(read_row(row)) == image(record)
            assert key_of_row(row) == key_of(record)
    assert AUDIT.read(AUDIT.write(filled(Audit))) == filled(Audit)


def test_a_row_of_before_is_read_without_the_fields_it_does_not_have() -> None:
    class Grown(Task):
        later: int = 7

    old, form = Task("t", "r", 1, error="before"), Form(Grown)
    read = form.read(Form(Task).write(old))
    assert (read.tenant, read.idx, read.error, read.later) == ("t", 1, "before", 7)
    newer = form.write(Grown("t", "r", 1, error="after", later=8))
    assert Form(Task).read(newer) == Task("t", "r", 1, error="after"), "and what is new is left out by who knows it not"


def test_a_damaged_row_is_noticed() -> None:
    kind, content = write_row(filled(Run))
    for wrong in (content[:-1], b"\x90", b"", msgspec.msgpack.encode([1, 2])):
        with pytest.raises(msgspec.MsgspecError):
            read_row((kind, wrong))


def test_the_stubs_are_what_the_tool_makes_of_our_proto_files(tmp_path: Path) -> None:
    if find_spec("grpc_tools") is None:
        text = "grpcio-tools is not installed: the stubs are not compared with their .proto files"
        pytest.fail(text) if os.environ.get("CI") else pytest.skip(text)
    environment = {**os.environ, "PYTHON": sys.executable}
    subprocess.run([ROOT / "scripts" / "stubs", tmp_path], env=environment, check=True, timeout=60)
    made = sorted(path.relative_to(tmp_path) for path in tmp_path.rglob("*_pb2.py*"))
    assert made, "there are stubs"
    assert made == sorted(
        path.relative_to(ROOT / "src") for path in (ROOT / "src").rglob("*_pb2.py*") if "__pycache__" not in path.parts
    )
    assert [name for name in made if (tmp_path / name).read_bytes() != (ROOT / "src" / name).read_bytes()] == []
