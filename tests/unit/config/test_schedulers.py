"""Named schedulers in either file: the document's keys, units and defaults; what is wrong, with file and line."""

import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from rota.config import Config, check_backends, load_config
from rota.core.errors import Refused
from rota.core.model import Allocation, PropertyRule, Queue, Unservable

# The document's own examples, as they stand there.
MAIN = """{
  schedulers: [
    {
      name: "MAIN_SCHEDULER",
      simple: {
        supported_platform_properties: {
          cpu_count: "minimum",
          cpu_arch: "exact",
          OSFamily: "priority"
        },
        retain_completed_for_s: 60,
        worker_timeout_s: 5,
        max_job_retries: 3
      }
    }
  ]
}"""
PRODUCTION = """{
  schedulers: [{
    name: "PRODUCTION_SCHEDULER",
    simple: {
      supported_platform_properties: {
        // Resource minimums
        cpu_count: "minimum",
        memory_kb: "minimum",
        disk_read_iops: "minimum",

        // Exact matches
        cpu_arch: "exact",        // "x86_64", "aarch64"
        cpu_vendor: "exact",      // "intel", "amd"
        OSFamily: "exact",        // "Linux", "Windows"

        // Preferences
        "container-image": "priority",

        // Optional
        "build-id": "ignore"
      },
      allocation_strategy: "least_recently_used",
      worker_timeout_s: 10,
      max_job_retries: 5
    }
  }]
}"""
TOML = """
[[schedulers]]
name = "MAIN_SCHEDULER"
[schedulers.simple]
retain_completed_for_s = 60
worker_timeout_s = 5
max_job_retries = 3
[schedulers.simple.supported_platform_properties]
cpu_count = "minimum"
cpu_arch = "exact"
OSFamily = "priority"
"""
DEFAULTS = Queue(
    tenant="default",
    name="S",
    unservable=Unservable.FAIL,
    unservable_ms=60_000,
    retain_completed_for_ms=60_000,
    client_action_timeout_ms=60_000,
    worker_timeout_ms=5_000,
    max_action_executing_timeout_ms=0,
    max_job_retries=3,
    allocation=Allocation.LEAST_RECENTLY_USED,
    worker_match_logging_interval_ms=10_000,
)


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def load(text: str, name: str = "rota.json5", env: Mapping[str, str] | None = None) -> Config:
    Path(name).write_text(text, encoding="utf-8")
    return load_config(env=env)


def simple(text: str = "") -> str:
    return f"{{schedulers: [{{name: 'S', simple: {{{text}}}}}]}}"


def refused(text: str, name: str = "rota.json5") -> Refused:
    with pytest.raises(Refused) as caught:
        check_backends(load(text, name))
    return caught.value


# What is meant.


def test_an_entry_of_which_nothing_is_said_has_the_documents_defaults():
    assert load(simple()).definitions.queues == (DEFAULTS,)


def test_the_documents_example_is_read():
    (queue,) = load(MAIN).definitions.queues
    rules = (
        ("cpu_count", PropertyRule.MINIMUM),
        ("cpu_arch", PropertyRule.EXACT),
        ("OSFamily", PropertyRule.PRIORITY),
    )
    assert (queue.name, queue.properties) == ("MAIN_SCHEDULER", rules)


def test_the_documents_other_example_is_read():
    (queue,) = load(PRODUCTION).definitions.queues
    assert (queue.worker_timeout_ms, queue.max_job_retries, len(queue.properties)) == (10_000, 5, 8)
    assert dict(queue.properties)["build-id"] is PropertyRule.IGNORE


def test_toml_says_the_same():
    assert load(TOML, "rota.toml").definitions == load_config(file=_named("other.json5", MAIN)).definitions


def _named(name: str, text: str) -> str:
    Path(name).write_text(text, encoding="utf-8")
    return name


def test_the_guides_two_examples_are_one():
    guide = Path(__file__).parents[3] / "docs" / "guides" / "queues.md"
    text = guide.read_text(encoding="utf-8")
    found = dict(re.findall(r"```(json5|toml)\n(.*?)```", text, re.DOTALL))
    one = load_config(file=_named("a.json5", found["json5"])).definitions
    assert one == load_config(file=_named("a.toml", found["toml"])).definitions
    assert dict(one.queues[0].properties)["container-image"] is PropertyRule.PRIORITY


def test_every_key_has_its_effect():
    text = simple(
        """
        retain_completed_for_s: 120, client_action_timeout_s: 30, worker_timeout_s: 7,
        max_action_executing_timeout_s: 600, max_job_retries: 0, allocation_strategy: 'most_recently_used',
        worker_match_logging_interval_s: -1, unservable_s: 15, experimental_backend: 'sqlite',
        """
    )
    (queue,) = load(text).definitions.queues
    assert queue == Queue(
        tenant="default",
        name="S",
        unservable=Unservable.FAIL,
        unservable_ms=15_000,
        retain_completed_for_ms=120_000,
        client_action_timeout_ms=30_000,
        worker_timeout_ms=7_000,
        max_action_executing_timeout_ms=600_000,
        max_job_retries=0,
        allocation=Allocation.MOST_RECENTLY_USED,
        worker_match_logging_interval_ms=-1,
    )


def test_a_file_in_json5_may_hold_every_other_setting_too():
    config = load("{server: {listen: '127.0.0.1:1', keep_days: 3}, pools: {db: {slots: 2}}, worker: {queues: ['S']}}")
    assert (config.server.listen, config.server.keep_days, config.worker.queues) == ("127.0.0.1:1", 3, ("S",))
    assert config.sources["server.keep_days"] == "rota.json5:1"
    assert config.definitions.pools[0].slots == 2


def test_a_queue_knows_what_a_scheduler_knows():
    text = "[queues.q]\nmax_job_retries = 0\nunservable = 'fail'\nunservable_ms = 5000\nretain_completed_for_ms = 1\n"
    (queue,) = load(text, "rota.toml").definitions.queues
    assert (queue.max_job_retries, queue.unservable_ms, queue.retain_completed_for_ms) == (0, 5_000, 1)


# What is wrong.


@pytest.mark.parametrize(
    ("text", "path", "reason"),
    [
        ("{schedulers: {}}", "schedulers", "list"),
        ("{schedulers: [1]}", "schedulers[0]", "table"),
        ("{schedulers: [{simple: {}}]}", "schedulers[0]", "no name"),
        ("{schedulers: [{name: '', simple: {}}]}", "schedulers[0]", "no name"),
        ("{schedulers: [{name: ' x', simple: {}}]}", "schedulers[0].name", "' x'"),
        ("{schedulers: [{name: 'S'}]}", "schedulers[0]", "one type, and 'S' has none"),
        ("{schedulers: [{name: 'S', simple: {}, grpc: {}}]}", "schedulers[0].grpc", "simple and grpc"),
        ("{schedulers: [{name: 'S', grpc: {}}]}", "schedulers[0].grpc", "not there yet"),
        ("{schedulers: [{name: 'S', simpel: {}}]}", "schedulers[0].simpel", "no setting"),
        ("{schedulers: [{name: 'S', simple: []}]}", "schedulers[0].simple", "table"),
        (simple("worker_timeout: 5"), "schedulers[0].simple.worker_timeout", "no setting"),
        (simple("worker_timeout_s: '5'"), "schedulers[0].simple.worker_timeout_s", "expected `int`"),
        (simple("worker_timeout_s: -1"), "schedulers[0].simple.worker_timeout_s", ">= 0"),
        (simple("max_job_retries: 101"), "schedulers[0].simple.max_job_retries", "<= 100"),
        (
            simple("worker_match_logging_interval_s: 0"),
            "schedulers[0].simple.worker_match_logging_interval_s",
            "no interval",
        ),
        (simple("worker_match_logging_interval_s: -2"), "schedulers[0].simple.worker_match_logging_interval_s", "-1"),
        (simple("allocation_strategy: 'random'"), "schedulers[0].simple.allocation_strategy", "random"),
        (
            simple("supported_platform_properties: {a: 'minimum', b: 'some'}"),
            "schedulers[0].simple.supported_platform_properties.b",
            "some",
        ),
    ],
)
def test_what_cannot_be_meant_is_refused_with_its_place(text: str, path: str, reason: str):
    found = refused(text)
    assert (found.path, reason in found.reason) == (path, True), found
    assert "rota.json5:1" in found.hint


def test_a_name_that_is_nearly_right_is_named():
    assert "'worker_timeout_s'" in refused(simple("worker_timeout: 5")).hint


def test_a_name_that_is_taken_is_refused_with_both_places():
    two = "{schedulers: [\n{name: 'S', simple: {}},\n{name: 'S', simple: {}}]}"
    found = refused(two)
    assert "defined twice" in found.reason and "rota.json5:2 and at rota.json5:3" in found.hint


def test_a_queue_and_a_scheduler_share_their_names():
    text = "[queues.S]\n\n[[schedulers]]\nname = 'S'\nsimple = {}\n"
    found = refused(text, "rota.toml")
    assert "defined twice" in found.reason and "rota.toml:1 and at rota.toml:3" in found.hint
    assert len(load(text.replace("simple", "tenant = 'other'\nsimple"), "rota.toml").definitions.queues) == 2


def test_the_line_of_a_second_entry_in_toml_is_found():
    text = TOML + "\n[[schedulers]]\nname = 'T'\n[schedulers.simple]\nmax_job_retry = 1\n"
    found = refused(text, "rota.toml")
    assert found.path == "schedulers[1].simple.max_job_retry"
    assert f"rota.toml:{len(text.splitlines())}" in found.hint


def test_two_files_of_settings_are_one_too_many():
    Path("rota.toml").write_text("", encoding="utf-8")
    assert refused(simple()).code == "config.file"
    assert load_config(file="rota.json5").definitions.queues == (DEFAULTS,)


@pytest.mark.parametrize("text", ["{", "[]", "{schedulers: [}"])
def test_a_file_that_is_no_table_in_json5_is_refused(text: str):
    found = refused(text)
    assert found.code == "config.file" and "not JSON5" in found.reason


# Where its state is kept.


@pytest.mark.parametrize(
    ("backend", "store", "is_right"),
    [
        ("'sqlite'", "", True),
        ("{sqlite: {}}", "", True),
        ("'postgres'", "postgresql://u@h/d", True),
        ("'etcd'", "etcd://h:2379/p", True),
        ("'memory'", "", True),
        ("{memory: {}}", "etcd://h:2379/p", True),
        ("{redis: {redis_store: 'R'}}", "", False),
        ("'postgres'", "", False),
        ("'sqlite'", "etcd://h:2379/p", False),
    ],
)
def test_a_backend_is_the_coordinators_own_store_or_refused(backend: str, store: str, is_right: bool):
    config = load(simple(f"experimental_backend: {backend}"), env={"ROTA_SERVER_STORE": store} if store else {})
    if is_right:
        check_backends(config)
        return
    with pytest.raises(Refused) as caught:
        check_backends(config)
    assert "is kept in" in caught.value.reason and "rota.json5:1" in caught.value.hint
    assert caught.value.path == "schedulers[0].simple.experimental_backend"


@pytest.mark.parametrize("backend", ["{}", "{sqlite: {}, etcd: {}}", "{sqlite: {path: 'x'}}"])
def test_a_backend_that_says_too_much_or_nothing_is_refused(backend: str):
    assert refused(simple(f"experimental_backend: {backend}")).path.endswith("experimental_backend")
