"""Builds on a worker: what is read and checked before anything is done, and what is on the shelf."""

import contextlib
import ctypes
import errno
import os
import struct
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.app.working import Working, token_for
from rota.core.errors import Refused
from rota.core.ids import Digest
from rota.wire.builds import INLINE_RESULT_BYTES_MAX, BuildResult, BuildWork, decode_result, decode_work, encode_build
from rota.wire.reapi import remote_execution_pb2 as rx
from rota.wire.reapi.digests import digest_of
from rota.worker.runners.builds import runner
from rota.worker.runners.builds.actions import Output, inside, read_action, read_command
from rota.worker.runners.builds.folder import BuildFolder, remove_tree
from rota.worker.runners.builds.shelf import Key, Shelf, WrongContent
from rota.worker.runners.builds.staging import is_within, resolve
from rota.worker.runners.builds.trees import Invalid, check_link, read_folder

SOME = Digest("a" * 64, 3)


def test_work_and_results_survive_the_wire() -> None:
    work = BuildWork(instance="a/b", action=SOME, content="grpc://host:1", action_bytes=b"\x01", target="//a:b")
    assert decode_work(encode_build(work)) == work
    result = BuildResult(stored=SOME, status=4, message="late", exit_code=137)
    assert decode_result(encode_build(result)) == result
    largest = BuildResult(result=bytes(INLINE_RESULT_BYTES_MAX), message="ü" * 1_000, exit_code=1)
    assert len(encode_build(largest)) <= 64 * 1024


def test_paths_are_resolved_and_stay_inside() -> None:
    for cwd, path, found in (
        ("", "a", "a"),
        ("", "a//b/./c/", "a/b/c"),
        ("x/y", ".", "x/y"),
        ("x/y", "", "x/y"),
        ("x/y", "../..", ""),
        ("x", "../a/../b", "b"),
    ):
        assert inside(cwd, path, "it") == found
    for cwd, path in (("", ".."), ("x", "../../x"), ("", "/a"), ("", "a/../../b"), ("", "n\0l")):
        with pytest.raises(Invalid):
            inside(cwd, path, "it")


@given(st.lists(st.sampled_from(["..", ".", "a", "bb", ""]), max_size=8).map("/".join))
def test_a_path_that_is_let_through_names_something_inside(path: str) -> None:
    try:
        found = inside("c/d", path, "it")
    except Invalid:
        return
    assert os.path.normpath(f"/r/{found}") == os.path.normpath(f"/r/c/d/{path}")


@given(
    st.lists(st.sampled_from(["a", "b"]), min_size=1, max_size=4).map("/".join),
    st.lists(st.sampled_from(["..", ".", "a", "b", ""]), min_size=1, max_size=6).map("/".join),
)
def test_a_link_that_is_let_through_stays_inside_at_every_step(path: str, target: str) -> None:
    where = f"/top/root/{path}"
    try:
        check_link(path, target)
    except (Invalid, Refused):
        return
    place = os.path.dirname(where)  # noqa: PTH120 - as the kernel walks it
    for part in target.split("/"):
        place = os.path.normpath(f"{place}/{part}")
        assert f"{place}/".startswith("/top/root/")


_OPENAT2, _RESOLVE_IN_ROOT = 437, 0x10


def _open_in_root(root: int, path: str) -> str | None:
    """Where the kernel finds a path for a program whose root is that folder; None if it finds nothing."""
    how = struct.pack("=QQQ", os.O_PATH | os.O_CLOEXEC, 0, _RESOLVE_IN_ROOT)
    libc = ctypes.CDLL(None, use_errno=True)
    file = libc.syscall(_OPENAT2, root, os.fsencode(path), how, len(how))
    if file < 0:
        if ctypes.get_errno() in (errno.ENOSYS, errno.EPERM):
            pytest.skip("this kernel does not resolve paths inside a root")
        return None
    try:
        return str(Path(f"/proc/self/fd/{file}").readlink())
    finally:
        os.close(file)


@given(
    st.lists(st.lists(st.sampled_from(["a", "b", "c"]), min_size=1, max_size=3).map("/".join), max_size=4),
    st.dictionaries(
        st.lists(st.sampled_from(["a", "b", "c"]), min_size=1, max_size=3).map("/".join),
        st.lists(st.sampled_from(["..", ".", "a", "b", "c", "", "etc"]), min_size=2, max_size=5).map("/".join),
        max_size=6,
    ),
    st.lists(st.sampled_from(["..", ".", "a", "b", "c", ""]), min_size=1, max_size=6).map("/".join),
)
def test_links_of_a_root_file_system_are_followed_as_the_kernel_follows_them_in_it(
    folders: list[str], links: dict[str, str], path: str
) -> None:
    with tempfile.TemporaryDirectory() as place:
        root = os.path.realpath(place)
        for name in folders:
            Path(root, name).mkdir(parents=True, exist_ok=True)
        for name, target in links.items():
            # Where it can be made: not below another link, and not in place of a folder.
            with contextlib.suppress(OSError):
                if os.path.realpath(f"{root}/{name}") == f"{root}/{name}":
                    Path(root, name).symlink_to(target)
        file = os.open(root, os.O_PATH)
        try:
            expected = _open_in_root(file, path or ".")
        finally:
            os.close(file)
        try:
            found = resolve(root, path, is_root=True)
        except Invalid:
            assert expected is None
            return
        assert is_within(root, found)
        assert os.path.realpath(found) == found, "nothing is left to follow"
        assert expected in (None, found)


def test_a_command_asks_for_outputs_in_either_way() -> None:
    old = rx.Command(arguments=["x"], output_files=["b", "a"], output_directories=["d", "a"])
    assert [each.name for each in read_command(old.SerializeToString()).outputs] == ["b", "a", "d"]
    new = rx.Command(arguments=["x"], output_paths=["p"], output_files=["f"], working_directory="w")
    command = read_command(new.SerializeToString())
    assert (command.outputs, command.uses_paths) == ((Output("p", "w/p"),), True)


def test_a_time_limit_is_at_least_a_millisecond_and_never_negative() -> None:
    for seconds, nanos, limit in ((0, 0, 0), (0, 1, 1), (2, 500_000_000, 2_500)):
        raw = _action(seconds, nanos)
        assert read_action(raw, digest_of(raw)).timeout_ms == limit
    for seconds in (-1, 1 << 40):
        raw = _action(seconds, 0)
        with pytest.raises(Invalid, match=f" {seconds} s"):
            read_action(raw, digest_of(raw))


def _action(seconds: int, nanos: int) -> bytes:
    digest = rx.Digest(hash="a" * 64, size_bytes=3)
    action = rx.Action(command_digest=digest, input_root_digest=digest)
    action.timeout.seconds, action.timeout.nanos = seconds, nanos
    return action.SerializeToString()


@given(st.binary(max_size=200))
def test_bytes_that_are_no_message_are_refused_and_nothing_else(raw: bytes) -> None:
    for read in (lambda: read_folder(raw, SOME), lambda: read_command(raw), lambda: read_action(raw, SOME)):
        with contextlib.suppress(Invalid, Refused):
            read()


def test_the_shelf_keeps_what_it_is_given_and_nothing_else(tmp_path: Path) -> None:
    folder = BuildFolder(tmp_path / "builds")
    folder.open()
    shelf = Shelf(folder.cache, folder.parts)
    key = Key("acme", digest_of(b"content"), is_executable=False)
    for wrong in (b"c0ntent", b"content!", b""):
        with pytest.raises(WrongContent):
            shelf.put(key, wrong)
    assert shelf.scan() == []
    shelf.put(key, b"content")
    shelf.copy_twin(key.twin)
    assert sorted(shelf.scan(), key=lambda each: each.is_executable) == [key, key.twin]
    assert shelf.is_untouched(key)
    Path(shelf.place(key)).chmod(0o600)
    assert not shelf.is_untouched(key)
    assert shelf.restore(key)
    assert shelf.is_untouched(key)
    Path(shelf.place(key)).chmod(0o600)
    Path(shelf.place(key)).write_bytes(b"c0ntent")
    assert not shelf.restore(key)
    assert shelf.scan() == [key.twin]
    assert list(folder.parts.iterdir()) == []


def test_a_tree_is_removed_whatever_it_is_like(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    (tree / "a" / "b").mkdir(parents=True)
    (tree / "a" / "b" / "f").write_text("x")
    (tree / "link").symlink_to(tmp_path / "kept")
    (tmp_path / "kept").mkdir()
    for locked in (tree / "a" / "b", tree / "a", tree):
        locked.chmod(0o000)
    remove_tree(str(tree))
    assert not tree.exists()
    remove_tree(str(tree))
    plain = tmp_path / "plain"
    plain.write_text("x")
    remove_tree(str(plain))
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]


def test_a_token_is_only_for_front_ends_that_the_operator_named(tmp_path: Path) -> None:
    working = Working(folder=tmp_path, build_content=("grpc://front:8980",), token=lambda: "secret")
    assert token_for(working, "grpc://front:8980") == "secret"
    for other in ("grpc://front:8981", "grpc://evil:8980", "grpc://front:8980/x", "grpcs://front:8980"):
        assert token_for(working, other) == ""


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    assert runner.why_no_builds() == ""
    monkeypatch.setattr(runner, "find_spec", lambda name: None)
    assert "pip install 'rota[build]'" in runner.why_no_builds()
