"""Walking input trees: everything that is needed, what is missing, and trees that nobody should lay out."""

import asyncio

import pytest

from rota.api.reapi import trees as module
from rota.api.reapi.trees import Inputs, Trees
from rota.core.errors import Refused
from rota.core.ids import Digest
from rota.wire.reapi import memory
from rota.wire.reapi import remote_execution_pb2 as pb
from rota.wire.reapi.digests import EMPTY, digest_of
from rota.wire.reapi.limits import DIRECTORY_BYTES_MAX
from tests.unit.api.reapi.stage import Shelf, file_node, folder_node

TENANT = "default"


def walk(shelf: Shelf, root: Digest, trees: Trees | None = None) -> Inputs:
    return asyncio.run((trees or Trees(shelf)).walk_inputs(TENANT, root))


def refusal(shelf: Shelf, root: Digest) -> str:
    with pytest.raises(Refused) as refused:
        walk(shelf, root)
    assert refused.value.code == "content.tree"
    return refused.value.reason


def test_everything_is_found_once_and_touched():
    shelf = Shelf()
    files = [shelf.hold(b"file %d" % number) for number in range(3)]
    leaf = shelf.hold_directory(pb.Directory(files=[file_node("x", files[0]), file_node("y", files[1])]))
    nodes = [folder_node("a", leaf), folder_node("b", leaf), folder_node("e", EMPTY)]
    root = shelf.hold_directory(pb.Directory(files=[file_node("z", files[2])], directories=nodes))
    inputs = walk(shelf, root)
    assert inputs.digests == [root, leaf, EMPTY, files[2], files[0], files[1]]
    assert inputs.missing == []
    assert inputs.paths == 4 + 2 + 2, "a directory that is named twice is there twice"
    assert inputs.size == 6 + 2 * 12
    assert {*inputs.digests} <= {*shelf.touched}


def test_an_empty_root_needs_nothing():
    assert walk(Shelf(), EMPTY) == Inputs([EMPTY], [], 0, 0)


def test_everything_that_is_missing_is_told_as_far_as_it_can_be_known():
    shelf = Shelf()
    gone = [digest_of(b"file"), digest_of(b"directory")]
    leaf = shelf.hold_directory(pb.Directory(files=[file_node("f", gone[0])]))
    root = shelf.hold_directory(pb.Directory(directories=[folder_node("a", leaf), folder_node("b", gone[1])]))
    assert sorted(digest.hash for digest in walk(shelf, root).missing) == sorted(digest.hash for digest in gone)
    assert walk(shelf, digest_of(b"root")).missing == [digest_of(b"root")]


def test_directories_are_read_once_and_looked_for_each_time():
    shelf = Shelf()
    leaf = shelf.hold_directory(pb.Directory(files=[file_node("f", EMPTY)]))
    root = shelf.hold_directory(pb.Directory(directories=[folder_node("a", leaf)]))
    trees = Trees(shelf)
    first = walk(shelf, root, trees)
    reads = shelf.reads
    assert walk(shelf, root, trees) == first
    assert shelf.reads == reads
    del shelf.kept[TENANT, leaf]
    assert walk(shelf, root, trees).missing == [leaf], "one that is gone is missing though we know what was in it"


def test_a_tenant_learns_nothing_of_what_another_has():
    shelf = Shelf()
    leaf = shelf.hold_directory(pb.Directory(files=[file_node("secret", digest_of(b"x"))]), "another")
    trees = Trees(shelf)
    asyncio.run(trees.walk_inputs("another", leaf))
    assert walk(shelf, leaf, trees) == Inputs([leaf], [leaf], 0, 0)


def test_what_is_remembered_has_a_limit(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(memory, "NAMES_MAX", 10)
    shelf = Shelf()
    roots = [shelf.hold_directory(pb.Directory(files=[file_node(f"f{number}", EMPTY)])) for number in range(10)]
    trees = Trees(shelf)
    for _ in range(2):
        for root in roots:
            walk(shelf, root, trees)
    assert shelf.reads == 20, "too many to remember, and all were read again"
    walk(shelf, roots[-1], trees)
    assert shelf.reads == 20


def test_a_small_tree_that_is_enormous_on_disk_is_refused():
    shelf = Shelf()
    below = shelf.hold_directory(pb.Directory(files=[file_node("f", EMPTY)]))
    for _ in range(64):
        below = shelf.hold_directory(pb.Directory(directories=[folder_node("a", below), folder_node("b", below)]))
    assert "larger" in refusal(shelf, below)


def test_a_tree_that_is_too_deep_is_refused_however_near_its_parts_are():
    shelf = Shelf()
    below = [shelf.hold_directory(pb.Directory())]
    for number in range(300):
        below.append(shelf.hold_directory(pb.Directory(directories=[folder_node(f"d{number}", below[-1])])))
    assert "deep" in refusal(shelf, below[-1])
    flat = [folder_node(f"n{number}", digest) for number, digest in enumerate(below)]
    assert "deep" in refusal(shelf, shelf.hold_directory(pb.Directory(directories=flat)))


def test_a_tree_with_too_many_names_is_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "TREE_PATHS_MAX", 9)
    shelf = Shelf()
    files = [file_node(f"f{number}", EMPTY) for number in range(10)]
    assert "larger" in refusal(shelf, shelf.hold_directory(pb.Directory(files=files)))


def test_a_directory_that_is_too_large_is_not_read():
    assert "bytes" in refusal(Shelf(), Digest("a" * 64, DIRECTORY_BYTES_MAX + 1))


def test_a_directory_that_contains_itself_is_refused():
    shelf = Shelf()
    digest = Digest("a" * 64, 100)
    # No store that checks what it keeps can have this.
    shelf.kept[TENANT, digest] = pb.Directory(directories=[folder_node("me", digest)]).SerializeToString()
    assert "contains itself" in refusal(shelf, digest)


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "/a", "a\0b", "x" * 256, "ü" * 128])
def test_a_name_that_leads_elsewhere_is_refused(name: str):
    shelf = Shelf()
    for directory in (
        pb.Directory(files=[file_node(name, EMPTY)]),
        pb.Directory(directories=[folder_node(name, EMPTY)]),
        pb.Directory(symlinks=[pb.SymlinkNode(name=name, target="x")]),
    ):
        refusal(shelf, shelf.hold_directory(directory))


def test_a_name_that_is_there_twice_is_refused():
    shelf = Shelf()
    assert "twice" in refusal(
        shelf,
        shelf.hold_directory(
            pb.Directory(files=[file_node("a", EMPTY)], symlinks=[pb.SymlinkNode(name="a", target="b")])
        ),
    )


@pytest.mark.parametrize("target", ["", "/abs", "..", "../x", "a/../../x", "a\0", "x" * 5_000, "./../x"])
def test_a_link_out_of_the_root_is_refused(target: str):
    shelf = Shelf()
    directory = pb.Directory(symlinks=[pb.SymlinkNode(name="link", target=target)])
    refusal(shelf, shelf.hold_directory(directory))


@pytest.mark.parametrize("target", ["/", "/abs", "//etc/passwd", "..", "../../../x"])
def test_in_a_root_file_system_no_link_leads_out(target: str):
    shelf = Shelf()
    folder = shelf.hold_directory(pb.Directory(symlinks=[pb.SymlinkNode(name="link", target=target)]))
    mounts = [folder_node(name, EMPTY) for name in ("dev", "proc", "tmp")]
    root = shelf.hold_directory(pb.Directory(directories=[*mounts, folder_node("usr", folder)]))
    assert walk(shelf, root).missing == []
    # The top says so, and neither a folder below it nor files of these names.
    for directory in (
        pb.Directory(directories=[folder_node("below", root)]),
        pb.Directory(directories=[*mounts[:2], folder_node("usr", folder)], files=[file_node("tmp", EMPTY)]),
    ):
        if target != "..":
            refusal(shelf, shelf.hold_directory(directory))
    assert refusal(shelf, folder)


@pytest.mark.parametrize("target", ["", "a\0", "x" * 5_000])
def test_a_link_without_a_usable_target_is_refused_in_a_root_file_system_too(target: str):
    shelf = Shelf()
    mounts = [folder_node(name, EMPTY) for name in ("dev", "proc", "tmp")]
    link = pb.SymlinkNode(name="link", target=target)
    refusal(shelf, shelf.hold_directory(pb.Directory(directories=mounts, symlinks=[link])))


def test_a_link_may_lead_up_inside_the_root_wherever_its_directory_is_named():
    shelf = Shelf()
    climber = shelf.hold_directory(pb.Directory(symlinks=[pb.SymlinkNode(name="link", target="../../x")]))
    middle = shelf.hold_directory(pb.Directory(directories=[folder_node("c", climber)]))
    deep = shelf.hold_directory(pb.Directory(directories=[folder_node("m", middle)]))
    assert walk(shelf, deep).missing == []
    both = [folder_node("near", climber), folder_node("m", middle)]
    assert "leads out" in refusal(shelf, shelf.hold_directory(pb.Directory(directories=both)))


@pytest.mark.parametrize("content", [b"\xff\xff", b"\x0a\x7f", b"\x0a\x03\x0a\x01\xff"])
def test_what_is_no_directory_is_refused(content: bytes):
    shelf = Shelf()
    refusal(shelf, shelf.hold(content))


def test_a_file_without_a_digest_is_refused():
    shelf = Shelf()
    assert "SHA-256" in refusal(shelf, shelf.hold_directory(pb.Directory(files=[pb.FileNode(name="f")])))


@pytest.mark.full
def test_a_large_tree_leaves_others_their_turn():
    shelf = Shelf()
    leaves = []
    for number in range(200):
        files = [file_node(f"f{index}", digest_of(b"%d %d" % (number, index))) for index in range(100)]
        leaves.append(folder_node(f"d{number}", shelf.hold_directory(pb.Directory(files=files))))
    root = shelf.hold_directory(pb.Directory(directories=leaves))
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async def scene() -> int:
        task = asyncio.create_task(others())
        trees = Trees(shelf)
        await trees.walk_inputs(TENANT, root)
        before = turns
        inputs = await trees.walk_inputs(TENANT, root)
        task.cancel()
        assert turns - before >= 4, "also when all of it is remembered"
        return len(inputs.missing)

    assert asyncio.run(scene()) == 20_000
