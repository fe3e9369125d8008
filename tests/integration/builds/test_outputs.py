"""What an action leaves behind, and what of that is refused."""

import re
import sys

from rota.core.model import FailureClass
from rota.wire.reapi import remote_execution_pb2 as rx
from rota.wire.reapi.digests import digest_of
from rota.worker.runners.builds.carrying import FAILED_PRECONDITION, INVALID_ARGUMENT
from tests.integration.builds.stage import Stage, staged


@staged()
async def test_parents_of_outputs_are_made(stage: Stage) -> None:
    paths = ["new/deep/file", "in/there/too", "tree/sub"]
    line = "echo 1 > new/deep/file; echo 2 > in/there/too; test ! -e tree/sub && mkdir tree/sub && echo 3 > tree/sub/f"
    done = await stage.sh(line, {"in": {"x": b""}}, output_files=paths[:2], output_directories=paths[2:])
    assert done.files == {"new/deep/file": b"1\n", "in/there/too": b"2\n"}
    assert done.unpacked("tree/sub") == {"f": b"3\n"}


@staged()
async def test_outputs_are_relative_to_the_working_directory(stage: Stage) -> None:
    done = await stage.sh(
        "echo up > ../up; echo here > here; mkdir -p ../../install; echo i > ../../install/i",
        {"a": {"b": {"src": b"s"}}},
        working_directory="a/b",
        output_paths=[".", "../up", "../../install"],
    )
    assert done.files == {"../up": b"up\n"}
    assert done.unpacked(".") == {"here": b"here\n", "src": b"s"}
    assert done.unpacked("../../install") == {"i": b"i\n"}


@staged()
async def test_a_missing_output_is_left_out(stage: Stage) -> None:
    done = await stage.sh("touch there", output_files=["there", "gone", "no/way"], output_directories=["none"])
    assert done.files == {"there": b""}
    assert not done.result.output_directories


@staged()
async def test_folders_come_back_as_they_were(stage: Stage) -> None:
    line = """
        mkdir -p t/same1 t/same2 t/empty t/deep/er
        echo same > t/same1/f; echo same > t/same2/f
        printf '#!/bin/sh' > t/run; chmod 755 t/run
        ln -s ../run t/deep/link; ln -s nowhere t/dangling
        head -c 3000000 /dev/zero > t/large
        echo ü > 't/deep/er/name ü'
    """
    done = await stage.sh(line, output_paths=["t"])
    assert done.unpacked("t") == {
        "same1": {"f": b"same\n"},
        "same2": {"f": b"same\n"},
        "empty": {},
        "run": ("x", b"#!/bin/sh"),
        "deep": {"link": "../run", "er": {"name ü": "ü\n".encode()}},
        "dangling": "nowhere",
        "large": bytes(3_000_000),
    }
    # Folders that are the same are there once.
    assert len(done.tree("t").children) == 4


@staged()
async def test_folders_are_also_given_one_by_one_if_that_is_asked_for(stage: Stage) -> None:
    line = "mkdir -p t/sub; echo 1 > t/sub/f"
    both = rx.Command.TREE_AND_DIRECTORY
    done = await stage.sh(line, output_paths=["t"], output_directory_format=both)
    [folder] = done.result.output_directories
    root = rx.Directory.FromString(stage.front.get(folder.root_directory_digest))
    assert root == done.tree("t").root
    assert rx.Directory.FromString(stage.front.get(root.directories[0].digest)).files[0].name == "f"
    done = await stage.sh(line, output_paths=["t"], output_directory_format=rx.Command.DIRECTORY_ONLY)
    assert not done.result.output_directories[0].HasField("tree_digest")
    assert done.result.output_directories[0].root_directory_digest == folder.root_directory_digest


@staged()
async def test_links_are_listed_as_each_client_reads_them(stage: Stage) -> None:
    line = "mkdir d; echo 1 > f; ln -s f l; ln -s d k; ln -s nowhere n; ln -s $PWD/d/../f a; mkdir s; ln -s ../f s/l"
    names = ["l", "k", "n", "a", "s/l"]
    new = await stage.sh(line, output_paths=names)
    files = {link.path: link.target for link in new.result.output_file_symlinks}
    folders = {link.path: link.target for link in new.result.output_directory_symlinks}
    # One that was absolute leads to the same place from wherever it is unpacked.
    assert files == {"l": "f", "n": "nowhere", "a": "f", "s/l": "../f"}
    assert folders == {"k": "d"}
    assert {link.path: link.target for link in new.result.output_symlinks} == {**files, **folders}
    old = await stage.sh(line, output_files=["l", "n", "a", "s/l"], output_directories=["k"])
    assert {link.path: link.target for link in old.result.output_file_symlinks} == files
    assert {link.path: link.target for link in old.result.output_directory_symlinks} == folders
    assert not old.result.output_symlinks


@staged()
async def test_what_leads_out_of_the_folder_is_refused(stage: Stage) -> None:
    for line, text in (
        ("ln -s /etc/passwd o", "the link 'o' leads to the absolute path '/etc/passwd'"),
        ("ln -s ../../secret o", "outside of the action's folder"),
        ("mkdir o; ln -s ../../x o/l", "the link 'o/l' leads to '../../x', outside"),
        ("mkdir o; ln -s / o/root", "the absolute path"),
        ("rmdir sub; ln -s /etc sub", "through a symbolic link"),
        ("mkfifo o", "'o' is a pipe"),
        ("mkdir o; mkfifo o/p", "'o/p' is a pipe"),
        ("mkdir o; touch \"$(printf 'o/caf\\351')\"", "b'caf\\xe9', which is not UTF-8"),
        ("mkdir o; ln -s \"$(printf 'caf\\351')\" o/l", "which is not UTF-8"),
    ):
        done = await stage.sh(f"echo said; {line}", output_paths=["o", "sub/passwd"])
        status = FAILED_PRECONDITION if "absolute" in text else INVALID_ARGUMENT
        assert (done.over.failure, done.said.status) == (FailureClass.USER, status)
        assert text in done.said.message, line
        assert (done.out, done.files) == (b"said\n", {})
    assert not any(b"root:" in content for content in stage.front.blobs.values())


@staged()
async def test_a_link_among_the_inputs_must_stay_inside(stage: Stage) -> None:
    for nodes, text in (
        ({"l": "/etc/passwd"}, "the absolute path"),
        ({"l": "../x"}, "outside of the action's folder"),
        ({"d": {"l": "../../x"}}, "outside of the action's folder"),
        ({"d": {"l": "a/../../../x"}}, "outside of the action's folder"),
        ({"l": ""}, "has no usable target"),
    ):
        over = await stage.fails("true", nodes)
        assert re.match(r"invalid action: .*\blink\b", over.error)
        assert text in over.error
    # What is made for outputs does not follow links out of the folder either, however they are put together.
    tricky = {"top": {"back": "../t"}, "t": {}, "out": "top/back/../.."}
    over = await stage.fails("true", tricky, output_files=["out/made/file"])
    assert "'out/made/file'" in over.error
    assert "symbolic link" in over.error
    assert (await stage.sh("cat d/l", {"d": {"l": "../f"}, "f": b"fine"})).out == b"fine"


@staged()
async def test_a_tree_with_impossible_names_is_refused(stage: Stage) -> None:
    command = stage.front.put(rx.Command(arguments=["/bin/true"]))
    content = stage.front.put(b"content")
    empty = stage.front.put(rx.Directory())
    for folder, text in (
        *((rx.Directory(files=[rx.FileNode(name=name, digest=content)]), "no name of a file") for name in _BAD_NAMES),
        (rx.Directory(files=[rx.FileNode(name="x" * 256, digest=content)]), "a name of 256 bytes"),
        (rx.Directory(directories=[rx.DirectoryNode(name="..", digest=empty)]), "no name of a file"),
        (rx.Directory(symlinks=[rx.SymlinkNode(name="a/b", target="x")]), "no name of a file"),
        (
            rx.Directory(
                files=[rx.FileNode(name="twice", digest=content)],
                symlinks=[rx.SymlinkNode(name="twice", target="x")],
            ),
            "twice",
        ),
        (rx.Directory(files=[rx.FileNode(name="f")]), "is not a SHA-256"),
        (
            rx.Directory(files=[rx.FileNode(name="f", digest=rx.Digest(hash="A" * 64, size_bytes=1))]),
            "is not a SHA-256",
        ),
        (
            rx.Directory(files=[rx.FileNode(name="f", digest=rx.Digest(hash="a" * 64, size_bytes=-1))]),
            "cannot have -1 bytes",
        ),
    ):
        over = await stage.carry(rx.Action(command_digest=command, input_root_digest=stage.front.put(folder)))
        assert over.failure is FailureClass.FATAL
        assert text in over.error


_BAD_NAMES = ("", ".", "..", "../x", "a/b", "/abs", "n\0l")


@staged()
async def test_a_tree_that_grows_without_end_is_refused(stage: Stage) -> None:
    # Thirty messages of two entries each stand for a thousand million folders.
    digest = stage.front.put(rx.Directory())
    for _ in range(30):
        nodes = [rx.DirectoryNode(name=name, digest=digest) for name in "ab"]
        digest = stage.front.put(rx.Directory(directories=nodes))
    command = stage.front.put(rx.Command(arguments=["/bin/true"]))
    over = await stage.carry(rx.Action(command_digest=command, input_root_digest=digest))
    assert "more than 1,000,000 entries" in over.error
    for _ in range(300):
        digest = stage.front.put(rx.Directory(directories=[rx.DirectoryNode(name="d", digest=digest)]))
    over = await stage.carry(rx.Action(command_digest=command, input_root_digest=digest))
    assert "deeper than 250 folders" in over.error


@staged()
async def test_permissions_do_not_keep_outputs_from_being_read(stage: Stage) -> None:
    line = "echo 1 > f; chmod 000 f; mkdir -p d/e; echo 2 > d/e/f; chmod 000 d/e/f d/e d"
    done = await stage.sh(line, output_paths=["f", "d"])
    assert done.files == {"f": b"1\n"}
    assert done.unpacked("d") == {"e": {"f": b"2\n"}}


@staged()
async def test_a_result_that_is_too_large_to_report_is_stored(stage: Stage) -> None:
    names = [f"output-with-a-long-name-{number}" for number in range(1_000)]
    done = await stage.sh("for i in $(seq 0 999); do echo $i > output-with-a-long-name-$i; done", output_paths=names)
    assert done.said.stored is not None
    assert done.said.result == b""
    assert len(done.files) == 1_000
    assert done.files["output-with-a-long-name-77"] == b"77\n"


@staged()
async def test_outputs_that_change_on_the_way_are_looked_at_again(stage: Stage) -> None:
    looks: list[str] = []

    async def spoil(method: str, context: object) -> None:
        if method in ("BatchUpdateBlobs", "FindMissingBlobs"):
            looks.append(method)
            if len(looks) == 1:
                for path in stage.place.glob("rooms/*/*/o"):
                    path.write_bytes(b"other bytes" * 10_000)

    stage.front.before = spoil
    done = await stage.sh("head -c 200000 /dev/zero > o", output_paths=["o"])
    assert done.files == {"o": b"other bytes" * 10_000}
    assert len(looks) == 4


@staged()
async def test_an_output_that_vanishes_on_the_way_is_left_out(stage: Stage) -> None:
    async def remove(method: str, context: object) -> None:
        for path in stage.place.glob("rooms/*/*/o"):
            path.unlink()

    stage.front.before = remove
    done = await stage.sh("echo 1 > p; head -c 5000000 /dev/zero > o", output_paths=["o", "p"])
    assert done.files == {"p": b"1\n"}


@staged()
async def test_a_socket_is_refused(stage: Stage) -> None:
    make = "import socket; socket.socket(socket.AF_UNIX).bind('o')"
    over = await stage.carry(stage.action([sys.executable, "-c", make], output_paths=["o"]))
    assert "'o'" in over.error
    assert "socket" in over.error


@staged()
async def test_outputs_are_at_hand_for_the_next_action(stage: Stage) -> None:
    made = await stage.sh("head -c 2000000 /dev/urandom > o; chmod +x o", output_paths=["o"])
    content = made.files["o"]
    stage.front.read.clear()
    done = await stage.sh("cat o", {"o": ("x", content)})
    assert done.out == content
    assert digest_of(content) not in stage.front.read
