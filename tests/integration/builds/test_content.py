"""Where inputs come from: shared, verified, bounded, and safe from the actions that are given them."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import grpc
import pytest

from rota.core.commands import Outcome
from rota.core.model import FailureClass
from rota.wire.reapi.digests import digest_of
from rota.worker.runners.builds import content
from rota.worker.runners.builds.carrying import INVALID_ARGUMENT
from rota.worker.runners.builds.shelf import Shelf
from tests.integration.builds.stage import Done, Stage, staged

LARGE = b"large content " * 200_000
ROOT = Path(__file__).parents[3]


@staged()
async def test_missing_inputs_are_named(stage: Stage) -> None:
    for gone in (b"gone", LARGE):
        action = stage.action(["/bin/true"], {"here": b"here", "gone": gone})
        del stage.front.blobs[digest_of(gone)]
        over = await stage.carry(action)
        assert over.failure is FailureClass.FATAL
        assert over.error == f"missing inputs: {digest_of(gone).hash}/{len(gone)}"
        stage.front.put(gone)
        assert (await stage.carry(action)).error == ""
    for what in ("command_digest", "input_root_digest"):
        # One of its own: what was there when the other was missing may be known by now.
        action = stage.action(["/bin/sh", "-c", f": {what}"], {what: {"f": b"1"}})
        message = getattr(action, what)
        raw = stage.front.get(message)
        del stage.front.blobs[digest_of(raw)]
        assert (await stage.carry(action)).error == f"missing inputs: {message.hash}/{message.size_bytes}"
        stage.front.put(raw)


@staged()
async def test_many_at_once_fetch_each_input_once(stage: Stage) -> None:
    inputs = {"small": b"small", "tool": ("x", b"#!/bin/sh\ncat small; wc -c < large\n"), "large": LARGE}
    done = await asyncio.gather(*(stage.run(["./tool"], inputs, env={"N": str(number)}) for number in range(8)))
    assert {each.out for each in done} == {b"small%d\n" % len(LARGE)}
    for blob in (b"small", LARGE):
        assert stage.front.read.count(digest_of(blob)) == 1


@staged()
async def test_one_that_gives_up_does_not_stop_the_others(stage: Stage) -> None:
    asked, go = asyncio.Event(), asyncio.Event()

    async def wait(method: str, context: object) -> None:
        if method == "Read":
            asked.set()
            await go.wait()

    stage.front.before = wait
    first = asyncio.ensure_future(stage.sh("true", {"large": LARGE}))
    await asked.wait()
    second = asyncio.ensure_future(stage.sh("wc -c < large", {"large": LARGE}))
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    go.set()
    assert (await second).out == b"%d\n" % len(LARGE)
    assert stage.front.read.count(digest_of(LARGE)) == 1


@staged()
async def test_a_blob_with_both_modes_is_fetched_once(stage: Stage) -> None:
    for script in (b"#!/bin/sh\necho ran\n", b"#!/bin/sh\necho ran\nexit\n" + b"#" * 2_000_000):
        done = await stage.sh("./run; test ! -x text && echo plain", {"run": ("x", script), "text": script})
        assert done.out == b"ran\nplain\n"
        assert stage.front.read.count(digest_of(script)) == 1
    # And if only one of them is there yet.
    late = b"#!/bin/sh\necho late\n"
    await stage.sh("cat text", {"text": late})
    assert (await stage.sh("./run", {"run": ("x", late)})).out == b"late\n"
    assert stage.front.read.count(digest_of(late)) == 1


@staged()
async def test_an_action_that_writes_to_its_inputs_is_not_believed_and_spoils_nothing(stage: Stage) -> None:
    inputs = {"shared": b"as it should be"}
    done = await stage.sh("chmod u+w shared; echo changed > shared; cat shared", inputs, output_paths=["shared"])
    assert (done.over.failure, done.said.status) == (FailureClass.USER, INVALID_ARGUMENT)
    assert (done.out, done.result.exit_code, done.files) == (b"changed\n", 0, {})
    assert digest_of(b"as it should be").hash[:12] in done.over.error
    assert (await stage.sh("cat shared", inputs)).out == b"as it should be"


@staged()
async def test_an_action_beside_one_that_writes_to_shared_inputs_is_run_again_by_itself(stage: Stage) -> None:
    inputs = {"shared": b"as it should be"}
    go, gone = stage.folder / "go", stage.folder / "gone"
    os.mkfifo(go)
    innocent = f"test -e {gone} || read x < {go}; touch {gone}; /bin/cat shared"
    beside = asyncio.ensure_future(stage.sh(innocent, inputs))
    guilty = await stage.sh(f"chmod u+w shared; echo changed > shared; test -e {gone} || echo > {go}", inputs)
    assert (await beside).out == b"as it should be"
    assert guilty.over.outcome is Outcome.SUCCESS, "with an input of its own it hurts no other action"


@staged()
async def test_other_modes_and_times_of_inputs_are_put_right(stage: Stage) -> None:
    inputs = {"shared": b"content"}
    assert (await stage.sh("chmod 777 shared; touch shared", inputs)).result.exit_code == 0
    done = await stage.sh("stat -c '%a %Y' shared; cat shared", inputs)
    assert done.out == b"444 1000000000\ncontent"
    assert stage.front.read.count(digest_of(b"content")) == 1


@staged()
async def test_inputs_may_be_replaced_and_removed(stage: Stage) -> None:
    inputs = {"a": b"a", "b": b"b", "d": {"c": b"c"}}
    done = await stage.sh("rm a; echo new > n; mv n b; rm -r d; cat b", inputs, output_paths=["b"])
    assert done.files == {"b": b"new\n"}
    done = await stage.sh("cat a b d/c", inputs)
    assert done.out == b"abc"


@staged()
async def test_what_an_earlier_worker_has_kept_is_used_if_it_is_whole(stage: Stage) -> None:
    inputs = {"whole": b"whole content", "damaged": b"damaged content"}
    await stage.sh("true", inputs)
    [damaged] = [path for path in stage.cached() if path.read_bytes() == b"damaged content"]
    about = damaged.stat()
    damaged.write_bytes(b"DAMAGED content")
    damaged.chmod(about.st_mode)
    os.utime(damaged, ns=(about.st_mtime_ns, about.st_mtime_ns))
    (damaged.parent / "stray").write_bytes(b"not ours")
    await stage.restart()
    stage.front.read.clear()
    assert (await stage.sh("cat whole damaged", inputs)).out == b"whole contentdamaged content"
    assert digest_of(b"whole content") not in stage.front.read
    assert stage.front.read.count(digest_of(b"damaged content")) == 1
    assert not (damaged.parent / "stray").exists()


@staged(cache_bytes=1_000_000)
async def test_content_is_removed_when_others_need_room_but_not_in_use(stage: Stage) -> None:
    first, second = b"1" * 600_000, b"2" * 600_000
    await stage.sh("true", {"f": first})
    await stage.sh("true", {"f": second})
    assert [path.stat().st_size for path in stage.cached()] == [600_000]
    stage.front.read.clear()
    await stage.sh("true", {"f": second})
    assert digest_of(second) not in stage.front.read
    # More than fits is there for as long as it is needed.
    done = await stage.sh("cat a b c | wc -c", {"a": first, "b": second, "c": b"3" * 2_000_000})
    assert done.out == b"3200000\n"
    await stage.restart()
    assert sum(path.stat().st_size for path in stage.cached()) <= 1_000_000


@staged()
async def test_content_that_is_something_else_is_not_used(stage: Stage) -> None:
    for blob in (b"small", LARGE):
        action = stage.action(["/bin/true"], {"f": blob})
        stage.front.blobs[digest_of(blob)] = blob[:-1] + b"?"
        over = await stage.carry(action)
        assert over.failure is FailureClass.UNAVAILABLE
        assert "is something else" in over.error
    assert all(path.read_bytes() != b"smal?" for path in stage.cached())


@staged()
async def test_a_front_end_that_restarts_is_waited_for(stage: Stage) -> None:
    action = stage.action(["/bin/sh", "-c", "echo made > o"], {"f": b"input", "l": LARGE}, output_paths=["o"])
    port = stage.front.port
    await stage.front.stop()
    attempt = asyncio.ensure_future(stage.carry(action))
    await stage.front.start(port)
    assert Done(await attempt, stage.front).files == {"o": b"made\n"}


@staged()
async def test_every_call_is_made_again_if_nobody_answers(stage: Stage) -> None:
    lost: list[str] = []

    async def lose(method: str, context: Any) -> None:
        if method not in lost:
            lost.append(method)
            await context.abort(grpc.StatusCode.UNAVAILABLE, "going away")

    stage.front.before = lose
    line = "head -c 2000000 /dev/zero > o; echo small > p"
    done = await stage.sh(line, {"f": b"input", "l": LARGE}, output_paths=["o", "p"])
    assert done.files == {"o": bytes(2_000_000), "p": b"small\n"}
    assert sorted(lost) == ["BatchReadBlobs", "BatchUpdateBlobs", "FindMissingBlobs", "Read", "Write"]


@staged()
async def test_a_front_end_that_stays_away_is_nobodys_fault(stage: Stage, patience: float = 0.2) -> None:
    action = stage.action(["/bin/true"])
    await stage.front.stop()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(content, "PATIENCE_S", patience)
        over = await stage.carry(action)
    assert over.failure is FailureClass.UNAVAILABLE
    assert "UNAVAILABLE" in over.error
    assert stage.front.url in over.error


@staged()
async def test_a_front_end_that_takes_an_output_and_never_says_so_is_not_waited_for_for_ever(stage: Stage) -> None:
    async def hang(method: str, context: Any) -> None:
        if method == "Write":
            await asyncio.Event().wait()

    stage.front.before = hang
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(content, "ANSWER_S", 1.0)
        patch.setattr(content, "SLOWEST_BYTES_S", 1 << 40)
        over = await stage.fails("head -c 2000000 /dev/zero > o", {}, output_paths=["o"])
    assert over.failure is FailureClass.UNAVAILABLE
    assert "DEADLINE_EXCEEDED" in over.error


@staged()
async def test_a_front_end_in_trouble_is_nobodys_fault(stage: Stage) -> None:
    broken = [""]

    async def abort(method: str, context: Any) -> None:
        if method == broken[0]:
            await context.abort(grpc.StatusCode.INTERNAL, "no disk")

    stage.front.before = abort
    for method, line, inputs in (
        ("BatchReadBlobs", "true", {}),
        ("Read", "true", {"l": LARGE}),
        ("BatchUpdateBlobs", "echo 1 > o", {}),
        ("FindMissingBlobs", "head -c 100000 /dev/zero > o", {}),
        ("Write", "head -c 2000000 /dev/zero > o", {}),
    ):
        broken[0] = method
        over = await stage.fails(line, inputs, output_paths=["o"])
        assert over.failure is FailureClass.UNAVAILABLE
        assert "INTERNAL: no disk" in over.error


@staged()
async def test_a_front_end_that_does_not_let_this_worker_in_is_trouble_of_the_worker(stage: Stage) -> None:
    denied = [grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED]

    async def deny(method: str, context: Any) -> None:
        await context.abort(denied[0], "no such token")

    stage.front.before = deny
    while denied:
        over = await stage.fails("true")
        assert over.failure is FailureClass.INTERNAL
        assert denied.pop(0).name in over.error


@staged()
async def test_who_asks_and_for_whom_is_said_with_every_call(stage: Stage) -> None:
    stage.token = "s3cret"
    await stage.sh("head -c 2000000 /dev/zero > o", {"f": LARGE}, output_paths=["o"])
    assert sorted(dict.fromkeys(stage.front.asked)) == ["BatchReadBlobs", "FindMissingBlobs", "Read", "Write"]
    for said in stage.front.said:
        assert (said["authorization"], said["rota-tenant"]) == ("Bearer s3cret", "acme")


@staged()
async def test_tenants_do_not_see_each_others_content(stage: Stage) -> None:
    action = stage.action(["/bin/cat", "f"], {"f": b"private"})
    assert Done(await stage.carry(action), stage.front).out == b"private"
    del stage.front.blobs[digest_of(b"private")]
    assert Done(await stage.carry(action), stage.front).out == b"private"
    over = await stage.carry(action, tenant="other")
    assert over.error.startswith("missing inputs: ")


@staged()
async def test_44_a_worker_whose_disk_is_full_hands_the_action_back_and_says_why(stage: Stage) -> None:
    def full(self: Shelf, key: object, content: bytes) -> None:
        raise OSError(28, "No space left on device")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Shelf, "put", full)
        over = await stage.carry(stage.action(["/bin/true"], {"f": b"content"}))
    assert over.outcome is Outcome.RELEASED
    assert "No space left" in over.error
    assert (await stage.sh("cat f", {"f": b"content"})).out == b"content"


@staged()
async def test_what_a_killed_worker_has_kept_is_whole(stage: Stage) -> None:
    program = [sys.executable, "-m", "tests.integration.builds.endless", str(stage.place), stage.front.url]
    worker = subprocess.Popen(program, cwd=ROOT, stdout=subprocess.PIPE)
    try:
        assert worker.stdout is not None
        for _ in range(5):
            assert await asyncio.to_thread(worker.stdout.readline)
    finally:
        worker.kill()
        worker.wait()
        worker.stdout.close()
    assert stage.cached()
    for path in stage.cached():
        assert path.name.removesuffix("x") == "{0.hash}-{0.size}".format(digest_of(path.read_bytes()))
    assert (await stage.sh("cat f", {"f": b"fine"})).out == b"fine"
    assert list((stage.place / "parts").iterdir()) == []
