"""What an editor should know; a test has a type checker look at it. Lines with `# wrong` must be complained about."""

from datetime import timedelta
from typing import assert_type

from rota import Context, Request, context, task, task_group, workflow
from rota.kinds.workflow.authoring import WorkflowFunction
from rota.kinds.workflow.tasks import Task


@task
def fetch(day: str, limit: int = 10) -> list[int]:
    return [len(day), limit]


@task(retries=3, retry_delay=timedelta(seconds=5), pool="db", requires={"memory_kb": 1_000})
def total(numbers: list[int]) -> int:
    return sum(numbers)


@task.branch
def choose(value: int) -> str:
    return "small" if value < 5 else "large"


@task.sensor(poke_interval=30, timeout=timedelta(hours=1), soft_fail=True)
def arrived(name: str) -> bool:
    return bool(name)


@task.short_circuit(ignore_downstream_trigger_rules=False)
def is_open(day: str) -> bool:
    return day != "sunday"


@task.command(env={"LANG": "C"})
def listing(folder: str) -> list[str]:
    return ["ls", folder]


@task.http(retries=2)
def ask(url: str) -> Request:
    return Request("GET", url)


@task_group
def load(day: str) -> int:
    return total(fetch(day))


@workflow(schedule="@daily", default_args={"retries": 1})
def etl(day: str = "monday") -> None:
    assert_type(fetch(day), list[int])
    assert_type(total(fetch(day, limit=5)), int)
    assert_type(load(day), int)
    choose(load(day))
    fetch.override(retries=1)(day)
    arrived(day)
    is_open(day)
    listing("/tmp")
    ask("https://example.org")
    assert_type(context(), Context)

    fetch(5)  # wrong
    fetch(day, nothing=1)  # wrong
    total(load(day))  # wrong
    load(5)  # wrong
    fetch.override(retrys=1)  # wrong


assert_type(etl, WorkflowFunction)
assert_type(total.function([1]), int)
misspelt = task(retrys=1)  # wrong
late: Task[[str], str] = task(fetch)  # wrong
soon = workflow(shedule="@daily")  # wrong
