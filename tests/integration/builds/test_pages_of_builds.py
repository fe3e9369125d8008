"""The page of a run that is an action of a build, carried out by a real worker."""

from rota.core.commands import SubmitRun
from rota.core.ids import DEFAULT_TENANT
from rota.core.model import Graph, TaskSpec
from rota.wire.builds import BUILD, BuildWork, encode_build
from rota.wire.reapi import remote_execution_pb2 as rx
from rota.wire.reapi.digests import digest_of
from tests.integration.builds.front_end import FrontEnd
from tests.integration.builds.stage import in_sandbox
from tests.integration.http_stage import staged
from tests.integration.page_stage import look


@in_sandbox
def test_an_action_is_shown_with_what_it_came_to_and_how_long_each_part_took():
    with staged(slots=1) as stage:
        front = FrontEnd()
        call = stage.rota._thread.call
        call(front.start())
        try:
            command = rx.Command(arguments=["/bin/sh", "-c", "echo made > o; exit 5"], output_paths=["o"])
            action = rx.Action(command_digest=front.put(command), input_root_digest=front.put(rx.Directory()))
            raw = action.SerializeToString()
            work = BuildWork(
                instance="main",
                action=digest_of(raw),
                action_bytes=raw,
                content=front.url,
                target="//app:<tool>",
                mnemonic="CcCompile",
                invocation="inv-7",
            )
            graph = Graph(name=BUILD, kind=BUILD, tasks=(TaskSpec(id="action", kind=BUILD),))
            asked = SubmitRun(
                tenant=DEFAULT_TENANT,
                command_id="1",
                run="compiled",
                graph=graph,
                params=encode_build(work),
                labels=(("invocation", "inv-7"), ("target", "//app:<tool>")),
            )
            call(stage.line.ask(asked))
            assert stage.ended("compiled") == "failed"
            page = look(stage, "/runs/compiled")
            for words in ("//app:<tool>", "CcCompile", "inv-7", "Exit code5", "Worker", "Fetch", "Run", "Upload"):
                assert words in page.text
            assert any(link.startswith("/workers/") for link in page.links)
            assert "upload for" in look(stage, "/runs/compiled/timeline").text
            assert "/runs/compiled" in look(stage, "/builds/inv-7").links
        finally:
            call(front.stop())
