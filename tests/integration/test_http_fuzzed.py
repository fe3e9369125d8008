"""The HTTP interface under fire: schemathesis makes up requests from the OpenAPI document, for a service that is there.

Whatever is sent, no answer is an error of ours (5xx), each is as the document says, and what the document forbids is
refused. What the service was given beforehand has the names of the document's examples, so that many calls meet
something. Nobody works there: what is submitted is made up, too, and is not carried out.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.http_stage import Stage, gate_of, shell, staged

pytestmark = pytest.mark.full

ROOT = Path(__file__).parents[2]
SCHEMATHESIS = str(Path(sys.executable).with_name("schemathesis"))
TOKEN = "made-up-for-the-test"
CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
    "negative_data_rejection",
    "unsupported_method",
    "ignored_auth",
)
# Streams that do not end by themselves, and a body that is not text: tests of their own look at these.
NOT_HERE = r"/events$|/wakes$|/scheduler/drain$|/bundles/"


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with staged(tmp_path_factory.mktemp("fuzzed"), slots=0, gate=gate_of(f"admin@*:{TOKEN}")) as one:
        one.http.headers["Authorization"] = f"Bearer {TOKEN}"
        one.submit(shell("extract"), shell("load", upstream=["extract"]), run="etl-3f9a1c", name="etl")
        one.post("workflows", {"graph": {"name": "etl", "tasks": [shell("load")]}, "schedule": {"cron": "0 3 * * *"}})
        one.ask("PUT", "pools/warehouse", json={"slots": 4})
        one.ask("PUT", "queues/gpu", json={"properties": {"gpu": "minimum"}})
        yield one


def fuzz(stage: Stage, tmp_path: Path, *options: str) -> str:
    """What schemathesis says, which must have found nothing."""
    words = [
        *(SCHEMATHESIS, "run", f"http://127.0.0.1:{stage.port}/api/v1/openapi.json"),
        *("--header", f"Authorization: Bearer {TOKEN}", "--checks", ",".join(CHECKS), "--no-color"),
        *("--request-timeout", "20", "--exclude-path-regex", NOT_HERE, "--generation-database", "none", *options),
    ]
    env = {**os.environ, "SCHEMATHESIS_HOOKS": "tests.integration.fuzzing", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(words, capture_output=True, text=True, cwd=tmp_path, timeout=1_500, check=False, env=env)
    assert done.returncode == 0, done.stdout[-8_000:] + done.stderr[-2_000:]
    assert [told for told in stage.told if "request.failed" in str(told)] == [], "the journal has no error of ours"
    return done.stdout


def test_some_seconds_of_made_up_requests_meet_no_error(stage: Stage, tmp_path: Path):
    said = fuzz(stage, tmp_path, "--phases", "examples,fuzzing", "--max-examples", "3", "--seed", "20261117")
    assert "Tested: 80" in said, "every endpoint but those that are left out"


@pytest.mark.long
def test_minutes_of_them_meet_none_either(stage: Stage, tmp_path: Path):
    fuzz(stage, tmp_path, "--phases", "examples,coverage,fuzzing", "--max-examples", "30")
