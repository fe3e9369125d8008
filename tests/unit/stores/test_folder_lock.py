"""The lock of a data folder, within one process."""

from pathlib import Path

from rota.stores.sqlite.lock import LOCK_NAME, FolderLock, held, holder_of


def test_one_holder_at_a_time_and_none_twice(tmp_path: Path):
    first, second = FolderLock(tmp_path), FolderLock(tmp_path)
    assert first.take("first")
    assert not first.take("first again")
    assert not second.take("second")
    assert first.is_held()
    assert not second.is_held()
    first.free()
    first.free()
    assert second.take("second")
    assert "(second)" in holder_of(tmp_path)
    second.free()
    assert holder_of(tmp_path) == ""


def test_a_folder_that_was_never_locked_has_no_holder(tmp_path: Path):
    assert holder_of(tmp_path) == ""
    assert "just leaving" in held(tmp_path).reason


def test_a_lock_file_that_says_nothing_is_still_a_lock(tmp_path: Path):
    lock = FolderLock(tmp_path)
    assert lock.take()
    (tmp_path / LOCK_NAME).write_bytes(b"\xff not json")
    assert holder_of(tmp_path) == "a process that did not say which"  # wording
    assert not FolderLock(tmp_path).take()
    lock.free()
