"""Run described workflows with Airflow's own engine. Started with the Python of its environment.

Reads descriptions as lines of JSON, and answers each with a line: how the run ended, and every task by name and number
(-1 for one that is not mapped, or was never expanded). A schedule is answered with its first instants, in UTC.
"""

import json
import os
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

HOME = Path(sys.argv[1])
(HOME / "dags").mkdir(parents=True, exist_ok=True)
os.environ |= {
    "AIRFLOW_HOME": str(HOME),
    "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
    "AIRFLOW__CORE__DAGS_FOLDER": str(HOME / "dags"),
    "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{HOME}/airflow.db",
    "AIRFLOW__LOGGING__LOGGING_LEVEL": "CRITICAL",
    "AIRFLOW__USAGE_DATA_COLLECTION__ENABLED": "False",
}
# What it prints is not an answer.
answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)

import pendulum
from airflow.dag_processing.bundles.manager import DagBundlesManager
from airflow.dag_processing.dagbag import DagBag, sync_bag_to_db
from airflow.exceptions import AirflowFailException, AirflowSkipException
from airflow.sdk import DAG, TaskGroup, get_current_context, task
from airflow.timetables.base import TimeRestriction
from airflow.timetables.trigger import CronTriggerTimetable
from airflow.utils.db import initdb
from descriptions import Description, TaskDescription, outcome, value


def attempt(described: TaskDescription, element: Any = None) -> Any:
    """One attempt of a task."""
    instance = get_current_context()["ti"]
    match outcome(described, instance.try_number, instance.map_index):
        case "fail":
            raise ValueError("as described")
        case "fatal":
            raise AirflowFailException("as described")
        case "skip":
            raise AirflowSkipException("as described")
        case _:
            return value(described, element)


def build(described: Description) -> DAG:
    """The workflow as a DAG."""
    made: dict[str, Any] = {}
    groups: dict[str, TaskGroup] = {}
    with DAG(described["name"], schedule=None, default_args={"retry_delay": timedelta(0)}) as dag:
        for each in described["tasks"]:
            group = each["id"].rpartition(".")[0]
            if group and group not in groups:
                groups[group] = TaskGroup(group)
            if group:
                with groups[group]:
                    made[each["id"]] = build_task(each, made)
            else:
                made[each["id"]] = build_task(each, made)
        for each in described["tasks"]:
            here = operator(made[each["id"]])
            for up in each["up"]:
                here.set_upstream(operator(made[up]))
            if each["is_teardown"]:
                here.as_teardown(
                    setups=[operator(made[up]) for up in each["setups"]], on_failure_fail_dagrun=each["counts"]
                )
            elif each["is_setup"]:
                here.as_setup()
        for each in described["tasks"]:
            for group in each["up_groups"]:
                groups[group] >> operator(made[each["id"]])
    return dag


def operator(made: Any) -> Any:
    return getattr(made, "operator", made)


def build_task(each: TaskDescription, made: dict[str, Any]) -> Any:
    options: dict[str, Any] = {"task_id": each["id"].rpartition(".")[2], "retries": each["retries"]}
    if not each["is_teardown"]:
        options["trigger_rule"] = each["rule"]
    decorate = {
        "plain": task,
        "branch": task.branch,
        "short": task.short_circuit,
        "short_direct": task.short_circuit,
    }[each["kind"]]
    if each["kind"] == "short_direct":
        options["ignore_downstream_trigger_rules"] = False

    @decorate(**options)
    def body(**elements: Any) -> Any:
        return attempt(each, elements.get("x", 0))

    if each["over"] is None:
        return body()
    lists = [each["over"]["items"]] if "items" in each["over"] else [made[name] for name in each["over"]["outputs"]]
    return body.expand(**dict(zip("xy", lists, strict=False)))


def run(described: Description) -> dict[str, Any]:
    """Run it, and say how it went."""
    dag = build(described)
    dag.fileloc, dag.relative_fileloc = str(HOME / "dags/described.py"), "described.py"
    bag = DagBag(dag_folder=os.devnull)
    bag.bag_dag(dag)
    sync_bag_to_db(bag, "dags-folder", None)
    ran = dag.test()
    states: dict[str, dict[str, str]] = {}
    for instance in ran.get_task_instances():
        states.setdefault(instance.task_id, {})[str(instance.map_index)] = str(instance.state)
    return {"state": str(ran.state), "tasks": states}


def fire(schedule: dict[str, Any]) -> list[str]:
    """The first instants of a cron expression in a zone."""
    timetable = CronTriggerTimetable(schedule["cron"], timezone=schedule["zone"])
    restriction = TimeRestriction(earliest=pendulum.parse(schedule["after"]), latest=None, catchup=True)
    found: list[str] = []
    interval = None
    while len(found) < schedule["count"]:
        info = timetable.next_dagrun_info(last_automated_data_interval=interval, restriction=restriction)
        interval = info.data_interval
        found.append(info.run_after.in_timezone("UTC").strftime("%Y-%m-%dT%H:%M"))
    return found


def main() -> None:
    initdb()
    DagBundlesManager().sync_bundles_to_db()
    for line in sys.stdin:
        try:
            asked = json.loads(line)
            answer = fire(asked) if "cron" in asked else run(asked)
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


main()
