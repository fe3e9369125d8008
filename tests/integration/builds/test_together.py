"""The build runner with what it works with: a coordinator that grants actions, and the services that keep content."""

import asyncio
import time
from pathlib import Path

from rota.app.embedded import AsyncRota
from rota.client.runs import Run
from rota.core.commands import SubmitRun
from rota.core.ids import DEFAULT_TENANT
from rota.core.model import Graph, TaskSpec
from rota.core.questions import ListTasks
from rota.stores.blobs import open_blobs
from rota.stores.cas import ContentBounds, open_content
from rota.wire.builds import BUILD, BuildWork, decode_result, encode_build
from rota.wire.reapi import remote_execution_pb2 as rx
from rota.wire.reapi.digests import as_message, digest_of, read_digest
from tests.integration.builds.front_end import FrontEnd
from tests.integration.builds.stage import PATIENCE_S, TENANT, Done, in_sandbox, open_stage
from tests.unit.api.reapi.stage import gate_of
from tests.unit.api.reapi.stage import staged as serving


@in_sandbox
def test_a_run_of_one_action_goes_through_a_coordinator(tmp_path: Path) -> None:
    async def play() -> None:
        front = FrontEnd()
        await front.start()
        command = rx.Command(arguments=["/bin/sh", "-c", "echo made > o; echo said; exit 5"], output_paths=["o"])
        action = rx.Action(command_digest=front.put(command), input_root_digest=front.put(rx.Directory()))
        raw = action.SerializeToString()
        work = BuildWork(instance="", action=digest_of(raw), action_bytes=raw, content=front.url)
        graph = Graph(name="actions", kind=BUILD, tasks=(TaskSpec(id="action", kind=BUILD),))
        async with asyncio.timeout(PATIENCE_S), await AsyncRota.embedded(tmp_path, slots=1) as rota:
            asked = SubmitRun(tenant=DEFAULT_TENANT, command_id="1", run="r1", graph=graph, params=encode_build(work))
            await rota.line.ask(asked)
            run = Run(rota, "r1")
            # A failed action has a result, too.
            assert (await run.wait()).state == "failed"
            page = await rota.line.ask(ListTasks(tenant=DEFAULT_TENANT, run="r1"))
            said = decode_result(page.tasks[0].result)
            assert said.exit_code == 5
            result = rx.ActionResult.FromString(said.result)
            assert front.get(result.output_files[0].digest) == b"made\n"
            assert result.execution_metadata.worker.startswith("local-")
        await front.stop()

    asyncio.run(play())


def test_content_is_read_from_and_given_to_the_services_that_keep_it(tmp_path: Path) -> None:
    async def play() -> None:
        bounds = ContentBounds(bytes_max=1 << 30)
        blobs = open_blobs(tmp_path / "blobs")
        content = await open_content(
            tmp_path / "content", blobs, clock=lambda: time.time_ns() // 1_000_000, bounds=bounds
        )

        async def keep(raw: bytes) -> rx.Digest:
            await content.put(TENANT, digest_of(raw), raw)
            return as_message(digest_of(raw))

        async with (
            asyncio.timeout(PATIENCE_S),
            serving(gate_of("worker:k1"), content=content) as services,
            open_stage(tmp_path / "worker") as stage,
        ):
            stage.front.port = services.port
            stage.token = "k1"
            line = "cat a > o; head -c 9000000 /dev/zero > large; mkdir t; for i in 1 2 3; do echo $i > t/$i; done"
            command = rx.Command(arguments=["/bin/sh", "-c", line], output_paths=["o", "large", "t"])
            command.environment_variables.add(name="PATH", value="/usr/bin:/bin")
            root = rx.Directory(files=[rx.FileNode(name="a", digest=await keep(b"input"))])
            action = rx.Action(
                command_digest=await keep(command.SerializeToString()),
                input_root_digest=await keep(root.SerializeToString()),
            )
            over = await stage.carry(action)
            for digest in (digest_of(b"input"), digest_of(bytes(9_000_000)), digest_of(b"2\n")):
                assert content.missing(TENANT, [digest]) == []
            done = Done(over, stage.front)
            tree = await content.get(TENANT, read_digest(done.result.output_directories[0].tree_digest))
            assert [file.name for file in rx.Tree.FromString(tree).root.files] == ["1", "2", "3"]
            lost = rx.Action(
                command_digest=action.command_digest, input_root_digest=as_message(digest_of(b"not there"))
            )
            assert (await stage.carry(lost)).error.startswith("missing inputs: ")
            stage.token = "wrong"
            refused = await stage.carry(lost)
            assert "UNAUTHENTICATED" in refused.error
        await content.close()

    asyncio.run(play())
