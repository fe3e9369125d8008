"""Results of actions over a real channel: kept when they can be believed, given out when they are complete."""

from collections.abc import Callable

import grpc
import pytest

from rota.core.ids import Digest
from rota.wire.reapi import limits
from rota.wire.reapi import remote_execution_pb2 as pb
from rota.wire.reapi.digests import EMPTY, as_message, digest_of
from rota.wire.reapi.methods import GET_ACTION_RESULT, UPDATE_ACTION_RESULT
from tests.unit.api.reapi.stage import Stage, Told, file_node, folder_node, play, staged

INVALID = grpc.StatusCode.INVALID_ARGUMENT
ACTION = digest_of(b"an action")


async def get(stage: Stage, action: Digest = ACTION, **hints: object) -> pb.ActionResult:
    request = pb.GetActionResultRequest(action_digest=as_message(action), **hints)
    return await stage.ask(GET_ACTION_RESULT, request, pb.ActionResult)


async def update(stage: Stage, result: pb.ActionResult, action: Digest = ACTION, instance: str = "") -> None:
    request = pb.UpdateActionResultRequest(
        instance_name=instance, action_digest=as_message(action), action_result=result
    )
    assert await stage.ask(UPDATE_ACTION_RESULT, request, pb.ActionResult) == result


async def is_hit(stage: Stage) -> bool:
    try:
        await get(stage)
    except Told as told:
        assert told.code is grpc.StatusCode.NOT_FOUND
        return False
    return True


async def refusal(stage: Stage, result: pb.ActionResult, action: Digest = ACTION) -> Told:
    with pytest.raises(Told) as told:
        await update(stage, result, action)
    assert stage.cabinet.kept == {}, "nothing is stored"
    return told.value


def tree_of(*directories: pb.Directory) -> bytes:
    return pb.Tree(root=directories[0], children=directories[1:]).SerializeToString(deterministic=True)


def full_result(stage: Stage) -> tuple[pb.ActionResult, list[Digest]]:
    """A result with everything in it, and all content that it takes."""
    files = [stage.shelf.hold(b"file %d" % number) for number in range(4)]
    leaf = pb.Directory(files=[file_node("deep", files[1])])
    leaf_digest = digest_of(leaf.SerializeToString(deterministic=True))
    root = pb.Directory(files=[file_node("shallow", files[2])], directories=[folder_node("leaf", leaf_digest)])
    tree = stage.shelf.hold(tree_of(root, leaf))
    stdout, stderr = stage.shelf.hold(b"said"), stage.shelf.hold(b"complained")
    result = pb.ActionResult(
        exit_code=3,
        output_files=[
            pb.OutputFile(path="out/a", digest=as_message(files[0]), is_executable=True),
            pb.OutputFile(path="out/empty", digest=as_message(EMPTY)),
        ],
        output_directories=[pb.OutputDirectory(path="tree", tree_digest=as_message(tree))],
        output_symlinks=[pb.OutputSymlink(path="out/link", target="../tree/leaf")],
        stdout_digest=as_message(stdout),
        stderr_digest=as_message(stderr),
    )
    return result, [files[0], files[1], files[2], tree, stdout, stderr]


def test_a_result_is_kept_and_found_again():
    async def scene() -> None:
        async with staged() as stage:
            assert not await is_hit(stage)
            result, named = full_result(stage)
            await update(stage, result)
            stage.shelf.touched.clear()
            assert await get(stage) == result
            assert {*named} <= {*stage.shelf.touched}, "everything in it counts as used"

    play(scene)


@pytest.mark.parametrize("number", range(6))
def test_a_result_is_no_hit_when_anything_in_it_is_gone(number: int):
    async def scene() -> None:
        async with staged() as stage:
            result, named = full_result(stage)
            await update(stage, result)
            content = stage.shelf.kept.pop(("default", named[number]))
            assert not await is_hit(stage)
            stage.shelf.hold(content)
            assert await is_hit(stage), "until it is there again"

    play(scene)


@pytest.mark.parametrize("number", range(6))
def test_a_result_that_is_not_complete_is_not_kept_and_what_is_missing_is_named(number: int):
    async def scene() -> None:
        async with staged() as stage:
            result, named = full_result(stage)
            del stage.shelf.kept["default", named[number]]
            told = await refusal(stage, result)
            assert told.code is grpc.StatusCode.FAILED_PRECONDITION
            assert told.missing() == [f"blobs/{named[number].hash}/{named[number].size}"]

    play(scene)


def test_what_is_missing_fits_a_header():
    async def scene() -> None:
        async with staged() as stage:
            result = pb.ActionResult()
            for number in range(5_000):
                result.output_files.add(path=f"f{number}", digest=as_message(digest_of(b"%d" % number)))
            told = await refusal(stage, result)
            assert told.code is grpc.StatusCode.FAILED_PRECONDITION
            assert 0 < len(told.missing()) < 100
            assert "4,997 more" in told.text

    play(scene)


def test_instances_and_tenants_have_results_of_their_own():
    async def scene() -> None:
        async with staged() as stage:
            await update(stage, pb.ActionResult(exit_code=1), instance="a/b")
            assert not await is_hit(stage)
            request = pb.GetActionResultRequest(instance_name="a/b/", action_digest=as_message(ACTION))
            assert (await stage.ask(GET_ACTION_RESULT, request, pb.ActionResult)).exit_code == 1
            with pytest.raises(Told) as told:
                await stage.ask(GET_ACTION_RESULT, request, tenant="another")
            assert told.value.code is grpc.StatusCode.NOT_FOUND

    play(scene)


def test_what_is_asked_for_is_inlined():
    async def scene() -> None:
        async with staged() as stage:
            result, _ = full_result(stage)
            await update(stage, result)
            found = await get(stage, inline_stdout=True, inline_stderr=True, inline_output_files=["out/a", "none"])
            assert (found.stdout_raw, found.stderr_raw) == (b"said", b"complained")
            assert [file.contents for file in found.output_files] == [b"file 0", b""]
            assert found.stdout_digest == result.stdout_digest

    play(scene)


def test_what_does_not_fit_a_message_is_not_inlined():
    async def scene() -> None:
        async with staged() as stage:
            half = bytes(limits.BATCH_BYTES_MAX // 2)
            result = pb.ActionResult(
                stdout_digest=as_message(stage.shelf.hold(half)),
                stderr_digest=as_message(stage.shelf.hold(half + b"x")),
            )
            await update(stage, result)
            found = await get(stage, inline_stdout=True, inline_stderr=True)
            assert (found.stdout_raw, found.stderr_raw) == (half, b"")

    play(scene)


Change = Callable[[pb.ActionResult], object]


def symlink(path: str, target: str) -> Change:
    return lambda result: result.output_symlinks.add(path=path, target=target)


@pytest.mark.parametrize(
    "change",
    [
        lambda result: result.output_files.add(path="/etc/passwd", digest=as_message(EMPTY)),
        lambda result: result.output_files.add(path="../up", digest=as_message(EMPTY)),
        lambda result: result.output_files.add(path="a/../../up", digest=as_message(EMPTY)),
        lambda result: result.output_files.add(path="nul\0", digest=as_message(EMPTY)),
        lambda result: result.output_files.add(path="x" * 5_000, digest=as_message(EMPTY)),
        lambda result: result.output_files.add(path="no digest"),
        lambda result: result.output_files.add(path="lie", digest=as_message(digest_of(b"a")), contents=b"b"),
        lambda result: result.output_directories.add(path="no digest"),
        lambda result: result.output_directories.add(path="../up", tree_digest=as_message(EMPTY)),
        lambda result: result.stdout_digest.CopyFrom(pb.Digest(hash="short", size_bytes=1)),
        lambda result: result.MergeFrom(pb.ActionResult(stdout_raw=b"b", stdout_digest=as_message(digest_of(b"a")))),
        symlink("link", ""),
        symlink("link", "/etc/passwd"),
        symlink("link", "../up"),
        symlink("a/link", "../../up"),
        symlink("a/link", "b/../../../up"),
        lambda result: result.output_file_symlinks.add(path="link", target="/abs"),
        lambda result: result.output_directory_symlinks.add(path="../link", target="x"),
    ],
)
def test_a_result_that_leads_elsewhere_or_lies_is_refused(change: Change):
    async def scene() -> None:
        async with staged() as stage:
            stage.shelf.hold(b"a")
            result = pb.ActionResult()
            change(result)
            assert (await refusal(stage, result)).code is INVALID

    play(scene)


def test_outputs_may_be_above_the_working_directory_but_not_above_the_root():
    async def scene() -> None:
        async with staged() as stage:
            command = stage.shelf.hold(pb.Command(working_directory="work/dir").SerializeToString())
            action = stage.shelf.hold(pb.Action(command_digest=as_message(command)).SerializeToString())
            climber = pb.Directory(symlinks=[pb.SymlinkNode(name="up", target="../../other")])
            tree = stage.shelf.hold(tree_of(climber))
            inside = pb.ActionResult(
                output_files=[pb.OutputFile(path="../../out", digest=as_message(EMPTY))],
                output_directories=[pb.OutputDirectory(path="../tree", tree_digest=as_message(tree))],
                output_symlinks=[pb.OutputSymlink(path="link", target="../../x")],
            )
            assert (await refusal(stage, inside)).code is INVALID, "nobody knows what is above"
            for outside in (
                pb.ActionResult(output_files=[pb.OutputFile(path="../../../out", digest=as_message(EMPTY))]),
                pb.ActionResult(output_symlinks=[pb.OutputSymlink(path="../link", target="../../x")]),
                pb.ActionResult(output_directories=[pb.OutputDirectory(path="../..", tree_digest=as_message(tree))]),
            ):
                assert (await refusal(stage, outside, action)).code is INVALID
            await update(stage, inside, action)
            assert await get(stage, action) == inside

    play(scene)


def test_absolute_links_are_kept_if_the_action_ran_in_a_root_file_system():
    async def scene() -> None:
        async with staged() as stage:
            mounts = [folder_node(name, EMPTY) for name in ("dev", "proc", "tmp")]
            roots = {
                False: stage.shelf.hold_directory(pb.Directory(directories=mounts[1:])),
                True: stage.shelf.hold_directory(pb.Directory(directories=mounts)),
            }
            links = [pb.SymlinkNode(name="abs", target="/usr"), pb.SymlinkNode(name="up", target="../../../../x")]
            folder = pb.Directory(symlinks=links)
            kept = [
                pb.ActionResult(output_symlinks=[pb.OutputSymlink(path="l", target="/bin/sh")]),
                pb.ActionResult(output_symlinks=[pb.OutputSymlink(path="l", target="../../../x")]),
                pb.ActionResult(
                    output_directories=[
                        pb.OutputDirectory(path="d", tree_digest=as_message(stage.shelf.hold(tree_of(folder))))
                    ]
                ),
                pb.ActionResult(
                    output_directories=[
                        pb.OutputDirectory(
                            path="d", root_directory_digest=as_message(stage.shelf.hold_directory(folder))
                        )
                    ]
                ),
            ]
            command = stage.shelf.hold(pb.Command(working_directory="work").SerializeToString())
            for is_root, root in roots.items():
                action = stage.shelf.hold(
                    pb.Action(
                        command_digest=as_message(command), input_root_digest=as_message(root)
                    ).SerializeToString()
                )
                above = pb.ActionResult(output_files=[pb.OutputFile(path="../../x", digest=as_message(EMPTY))])
                assert (await refusal(stage, above, action)).code is INVALID, "outputs are inside all the same"
                for result in kept:
                    if is_root:
                        await update(stage, result, action)
                        assert await get(stage, action) == result
                    else:
                        assert (await refusal(stage, result, action)).code is INVALID

    play(scene)


def hole() -> bytes:
    return tree_of(pb.Directory(directories=[folder_node("a", digest_of(b"hole"))]))


def cycle() -> bytes:
    """Two directories that name each other, as far as that can be written down."""
    one = pb.Directory(directories=[folder_node("two", digest_of(b"two"))])
    one_digest = digest_of(one.SerializeToString(deterministic=True))
    two = pb.Directory(directories=[folder_node("one", one_digest)])
    return tree_of(one, two, one)


@pytest.mark.parametrize(
    "tree",
    [
        hole(),
        cycle(),
        b"\xff",
        b"\x0a\x7f",
        b"\x0a\x00\x0a\x00",
        b"\x1a\x00",
        b"\x0a" + b"\xff" * 11,
        b"\x0a\x02\xff\xff",
        tree_of(pb.Directory(files=[file_node("../x", EMPTY)])),
        tree_of(pb.Directory(files=[file_node("x", EMPTY)], symlinks=[pb.SymlinkNode(name="x", target="y")])),
        tree_of(pb.Directory(symlinks=[pb.SymlinkNode(name="x", target="/abs")])),
        tree_of(pb.Directory(symlinks=[pb.SymlinkNode(name="x", target="../../out")])),
    ],
)
def test_a_tree_that_cannot_be_is_refused(tree: bytes):
    async def scene() -> None:
        async with staged() as stage:
            digest = as_message(stage.shelf.hold(tree))
            result = pb.ActionResult(output_directories=[pb.OutputDirectory(path="d", tree_digest=digest)])
            told = await refusal(stage, result)
            assert told.code is INVALID
            assert "content.tree" in told.text
            kept = result.SerializeToString()
            await stage.cabinet.put("default", "", ACTION, kept)
            # Where links may lead depends on the action, and is judged when a result is kept.
            if not tree.endswith((b"../../out", b"/abs")):
                assert not await is_hit(stage), "and one that is there already is no hit"

    play(scene)


def test_a_root_directory_is_walked_too():
    async def scene() -> None:
        async with staged() as stage:
            file = stage.shelf.hold(b"file")
            root = stage.shelf.hold_directory(pb.Directory(files=[file_node("f", file)]))
            result = pb.ActionResult(
                output_directories=[pb.OutputDirectory(path="d", root_directory_digest=as_message(root))]
            )
            await update(stage, result)
            assert await is_hit(stage)
            del stage.shelf.kept["default", file]
            assert not await is_hit(stage)

    play(scene)


def test_a_result_has_a_limit():
    async def scene() -> None:
        async with staged() as stage:
            told = await refusal(stage, pb.ActionResult(stdout_raw=bytes(limits.BATCH_BYTES_MAX)))
            assert told.code is grpc.StatusCode.RESOURCE_EXHAUSTED

    play(scene)


def test_a_request_without_a_result_or_with_another_function_is_refused():
    async def scene() -> None:
        async with staged() as stage:
            for request in (
                pb.UpdateActionResultRequest(action_digest=as_message(ACTION)),
                pb.UpdateActionResultRequest(action_result=pb.ActionResult()),
                pb.UpdateActionResultRequest(
                    action_digest=as_message(ACTION), action_result=pb.ActionResult(), digest_function=2
                ),
            ):
                with pytest.raises(Told) as told:
                    await stage.ask(UPDATE_ACTION_RESULT, request)
                assert told.value.code is INVALID
            for request in (
                pb.GetActionResultRequest(),
                pb.GetActionResultRequest(action_digest=as_message(ACTION), digest_function=9),
            ):
                with pytest.raises(Told) as told:
                    await stage.ask(GET_ACTION_RESULT, request)
                assert told.value.code is INVALID

    play(scene)


def test_a_kept_result_that_cannot_be_read_is_no_hit():
    async def scene() -> None:
        async with staged() as stage:
            await stage.cabinet.put("default", "", ACTION, b"\xff\xff")
            assert not await is_hit(stage)

    play(scene)


def test_the_later_fence_stays():
    async def scene() -> None:
        async with staged() as stage:
            assert await stage.results.keep("default", "", ACTION, pb.ActionResult(exit_code=1), fence=7)
            assert not await stage.results.keep("default", "", ACTION, pb.ActionResult(exit_code=2), fence=6)
            assert (await get(stage)).exit_code == 1

    play(scene)
