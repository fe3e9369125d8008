"""Logs are found where they were put, and are read whole, from the end, or as they grow."""

from pathlib import Path

from rota.worker.logs import LogFolder, read_on


def written(folder: LogFolder, run: str, attempt: int, fence: int, content: bytes) -> Path:
    path = Path(folder.place("acme", run, "a/b", attempt, fence))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def test_a_log_lies_inside_its_folder_whatever_the_ids(tmp_path: Path) -> None:
    folder = LogFolder(tmp_path)
    place = Path(folder.place("../..", "/etc", "..", 1, 2))
    assert place.resolve().is_relative_to(tmp_path / "logs")
    assert place == tmp_path / "logs" / "%2E.%2F.." / "%2Fetc" / "%2E." / "1-2.log"


def test_the_logs_of_a_task_are_found_in_order(tmp_path: Path) -> None:
    folder = LogFolder(tmp_path)
    paths = [written(folder, "run", attempt, fence, b"") for attempt, fence in ((1, 9), (2, 10), (2, 11), (10, 12))]
    assert folder.find("acme", "run", "a/b") == paths
    assert folder.find("acme", "other", "a/b") == []


def test_a_log_is_read_from_an_offset_and_as_it_grows(tmp_path: Path) -> None:
    path = written(LogFolder(tmp_path), "run", 1, 1, b"first\nsecond\nthird\n")
    assert read_on(path, 0) == (b"first\nsecond\nthird\n", 19)
    piece, offset = read_on(path, 0, 6)
    assert (piece, offset) == (b"first\n", 6)
    piece, offset = read_on(path, offset)
    assert (piece, offset) == (b"second\nthird\n", 19)
    assert read_on(path, offset) == (b"", 19)
    with path.open("ab") as file:
        file.write(b"fourth\n")
    assert read_on(path, offset) == (b"fourth\n", 26)


def test_a_log_that_was_never_written_is_empty(tmp_path: Path) -> None:
    path = tmp_path / "none.log"
    assert read_on(path, 3) == (b"", 3)
