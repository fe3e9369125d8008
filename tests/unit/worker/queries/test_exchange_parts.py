"""Files of exchanges, and what the engine's errors mean: without any process."""

import os
import re
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.core.errors import Refused
from rota.wire.queries import Part
from rota.wire.values import Packed, pack_or_spill
from rota.worker.runners.queries.exchange import folder_name, size_of
from rota.worker.runners.queries.failures import judge, unreadable
from rota.worker.runners.queries.orders import Broke, Wrote, decode_ended, encode_ended
from rota.worker.runners.queries.parts import NotAPart, Seen, asked_name, check_part, open_part, read_asked
from rota.worker.runners.queries.serving import Tickets, ticket
from rota.worker.runners.queries.writing import PartWriter, fitted, positional


def written(folder: Path, schema: pa.Schema, *batches: pa.RecordBatch, compression: str = "") -> Part:
    writer = PartWriter(str(folder), schema, compression)
    for batch in batches:
        writer.write(3, batch)
    (part,) = writer.close()
    return part


def test_a_part_is_known_again_and_any_change_of_it_is_noticed(tmp_path: Path) -> None:
    batch = pa.record_batch({"a": list(range(1_000))})
    part = written(tmp_path, batch.schema, batch)
    path = tmp_path / "p3.arrow"
    check_part(str(path), part)
    content = path.read_bytes()
    for other in (
        b"",
        content[:-1],
        content + b"x",
        content[:-30] + b"x" + content[-29:],
        content[:2_000] + b"x" + content[2_001:],
        bytes(len(content)),
    ):
        path.write_bytes(other)
        with pytest.raises(NotAPart):
            check_part(str(path), part)
    path.unlink()
    with pytest.raises(NotAPart, match="No such file"):
        check_part(str(path), part)
    path.symlink_to("/etc/hostname")
    with pytest.raises(NotAPart):
        check_part(str(path), part)
    path.unlink()
    path.mkdir()
    with pytest.raises(NotAPart):
        check_part(str(path), part)


def test_a_file_that_was_seen_is_looked_at_again_when_it_is_another(tmp_path: Path) -> None:
    batch = pa.record_batch({"a": list(range(1_000))})
    part = written(tmp_path, batch.schema, batch)
    path, seen = tmp_path / "p3.arrow", Seen()
    for _ in range(2):
        os.close(open_part(str(path), part, seen))
    content = bytearray(path.read_bytes())
    # A byte in the middle, where neither its length nor its end tells of it.
    content[len(content) // 2] ^= 1
    path.write_bytes(bytes(content))
    with pytest.raises(NotAPart, match="was changed"):
        open_part(str(path), part, seen)


def test_columns_are_known_by_their_number_and_names_may_be_there_twice(tmp_path: Path) -> None:
    schema = pa.schema([("a", pa.int64()), ("a", pa.string_view())])
    batch = pa.RecordBatch.from_arrays([pa.array([1, 2]), pa.array(["x", "y" * 50], pa.string_view())], schema=schema)
    for compression in ("", "lz4", "zstd"):
        written(tmp_path, schema, batch, compression=compression)
        with pa.ipc.open_file(tmp_path / "p3.arrow") as file:
            assert file.read_all().to_pydict() == {"c0": [1, 2], "c1": ["x", "y" * 50]}


def test_rows_without_columns_keep_their_number(tmp_path: Path) -> None:
    batch = pa.record_batch({"a": range(5)}).select([])
    assert batch.num_rows == 5
    assert written(tmp_path, batch.schema, batch).rows == 5
    with pa.ipc.open_file(tmp_path / "p3.arrow") as file:
        assert file.read_all().num_rows == 5


def test_every_batch_may_bring_a_dictionary_of_its_own(tmp_path: Path) -> None:
    kind = pa.dictionary(pa.uint16(), pa.string())
    schema = pa.schema([("d", kind)])
    batches = [pa.RecordBatch.from_arrays([pa.array(list(word)).cast(kind)], schema=schema) for word in ("ab", "bc")]
    written(tmp_path, schema, *batches)
    assert [path.name for path in tmp_path.iterdir()] == ["p3.arrow"]
    with pa.ipc.open_file(tmp_path / "p3.arrow") as file:
        table = file.read_all()
    assert table.schema.field("c0").type == kind
    assert table.column("c0").to_pylist() == ["a", "b", "b", "c"]


@pytest.mark.parametrize("kind", [pa.string_view(), pa.binary_view()])
def test_views_of_few_rows_do_not_bring_all_the_others_along(kind: pa.DataType) -> None:
    words = pa.array([f"a long text that is not kept in the view {number}" for number in range(10_000)])
    column = words.cast(pa.binary() if kind == pa.binary_view() else pa.string()).cast(kind)
    few = pa.RecordBatch.from_arrays([column.slice(0, 3)], names=["a"])
    kept = fitted(few, positional(few.schema))
    assert kept.column(0).to_pylist() == column.slice(0, 3).to_pylist()
    assert kept.schema.field("c0").type == kind
    assert sum(buffer.size for buffer in kept.column(0).buffers()[2:]) < 1_000


# Names.


@given(st.text(max_size=50))
def test_a_folder_has_a_name_that_means_nothing_in_an_address(id: str) -> None:
    name = folder_name(id)
    assert name not in ("", ".", "..")
    assert all(char.isascii() and (char.isalnum() or char in "-_.") for char in name)


def test_different_ids_have_different_folders() -> None:
    ids = ["a", "A", "a/b", "a%2Fb", "a b", "..", ".", "", "ä", "a" * 300, "a" * 301]
    assert len({folder_name(id) for id in ids}) == len(ids)


def test_a_name_says_what_the_file_has_to_be() -> None:
    part = Part(7, 1234, 9, "00ff00ff00ff00ff")
    assert asked_name(part) == "p7.1234.00ff00ff00ff00ff.arrow"
    assert read_asked(asked_name(part)) == Part(7, 1234, 0, "00ff00ff00ff00ff")
    for wrong in ("p7.arrow", "p7.1.00ff00f.arrow", "p7.1.00FF00FF.arrow", "p-7.1.00ff00ff00ff00ff.arrow", "x", ""):
        assert read_asked(wrong) is None


def test_the_size_of_a_folder_is_that_of_all_below_it(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "c").write_bytes(bytes(10))
    (tmp_path / "d").write_bytes(bytes(5))
    (tmp_path / "loop").symlink_to(tmp_path)
    assert 15 <= size_of(str(tmp_path)) < 15 + 4_096
    assert size_of(str(tmp_path / "none")) == 0


def test_who_has_packed_a_value_is_believed(tmp_path: Path) -> None:
    assert pack_or_spill(Packed("arrow", b"x"), "it", str(tmp_path / "file")) == ("arrow", b"x")
    assert pack_or_spill(Packed("arrow", None), "it", str(tmp_path / "file")) == ("arrow", None)
    assert list(tmp_path.iterdir()) == []


# Tickets.


def test_a_ticket_is_for_one_query_and_is_good_for_a_while_after_the_token_has_changed() -> None:
    token = "one"
    tickets = Tickets(lambda: token)
    first = tickets.make("acme", "run")
    assert first == ticket("one", "acme", "run")
    assert tickets.is_good(first, "acme", "run")
    assert not tickets.is_good(first, "acme", "other")
    assert not tickets.is_good(first, "other", "run")
    assert not tickets.is_good("", "acme", "run")
    assert ticket("one", "a", "bc") != ticket("one", "ab", "c")
    token = "two"
    assert tickets.is_good(first, "acme", "run")
    assert tickets.is_good(tickets.make("acme", "run"), "acme", "run")
    token = "three"
    assert not tickets.is_good(first, "acme", "run")


def test_a_token_that_cannot_be_read_for_a_moment_is_the_one_from_before() -> None:
    given = ["one"]

    def token() -> str:
        if not given:
            raise Refused("config.file", "gone")
        return given[0]

    tickets = Tickets(token)
    shown = tickets.make("acme", "run")
    given.clear()
    assert tickets.is_good(shown, "acme", "run")
    with pytest.raises(Refused):
        Tickets(token).make("acme", "run")


# Errors.


class PanicException(BaseException):
    """As the engine's own is called."""


@pytest.mark.parametrize(
    ("error", "failure", "begins"),
    [
        (Exception("DataFusion error: Resources exhausted: Failed to"), "out_of_memory", "query.memory: Resources"),
        (MemoryError(), "out_of_memory", "query.memory: "),
        (PanicException("partition not used yet"), "fatal", r"query\.failed: .*\bpanicked: partition"),
        (Exception("DataFusion error: Parquet error: EOF"), "fatal", "query.source: Parquet error: EOF"),
        (Exception("DataFusion error: Object Store error: Generic S3 error: slow"), "user", "query.source: "),
        (Exception("DataFusion error: Arrow error: Divide by zero error"), "fatal", r"query\.type: Divide "),
        (Exception("DataFusion error: IO error: No space left on device (os error 28)"), "no_room", "this worker"),
        (OSError(28, "Error writing bytes to file. Detail: [errno 28] No space left on device"), "no_room", "this"),
        (Exception("DataFusion error: Execution error: odd"), "fatal", "query.failed: odd"),
        (KeyError("ours"), "internal", "query.failed: "),
        (
            Exception("Execution error: PyErr { type: <class 'E'>, value: E('Resources exhausted'), traceback: None }"),
            "user",
            r"query\.function_failed: .* E\('Resources exhausted'\)",
        ),
    ],
)
def test_what_an_error_means(error: BaseException, failure: str, begins: str) -> None:
    broke = judge(error)
    assert broke.failure == failure
    assert re.match(begins, broke.error)


def test_a_plan_that_cannot_be_read_now_cannot_be_read_later() -> None:
    assert unreadable(RuntimeError("Unable to decode")).failure == "fatal"


def test_what_a_process_says_survives_the_wire() -> None:
    for ended in (Wrote((Part(1, 2, 3, "x"),), 3, (("spilled_bytes", 1),)), Broke("input_lost", "gone", ("a[1]",))):
        assert decode_ended(encode_ended(ended)) == ended
