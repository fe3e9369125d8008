"""Dashboards and alerts in deploy/ are about metrics that there are, all of them, and their queries can be read.

Where `promtool` is installed (Debian's package `prometheus`) it judges every query; where it is not, only their
brackets, metrics and labels are looked at.
"""

import json
import re
import runpy
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.servers.programs import find_program

ROOT = Path(__file__).parents[2]
DASHBOARD = ROOT / "deploy" / "grafana" / "rota.json"
RULES = ROOT / "deploy" / "prometheus" / "rota.rules.yaml"
_ROW = re.compile(r"^\| `(rota_\w+)` \| (\w+) \| (.+?) \| ", re.MULTILINE)
_METRIC = re.compile(r"\brota_\w+")
_OF_HISTOGRAMS = ("_bucket", "_sum", "_count")
_BY = re.compile(r"\bby \(([^)]*)\)")
_WHERE = re.compile(r"(rota_\w+)\{([^}]*)\}")


def documented() -> dict[str, tuple[str, list[str]]]:
    """The metrics that there are: the sort of each, and its labels."""
    page = (ROOT / "docs" / "reference" / "metrics.md").read_text(encoding="utf-8")
    return {name: (sort, re.findall(r"`(\w+)`", labels)) for name, sort, labels in _ROW.findall(page)}


def metrics_in(query: str) -> list[str]:
    """The metrics of a query, those of a histogram by its own name."""
    known = documented()
    found: list[str] = []
    for name in _METRIC.findall(query):
        whole = [name.removesuffix(end) for end in _OF_HISTOGRAMS if name.endswith(end)]
        found.append(next((each for each in whole if known.get(each, ("", []))[0] == "histogram"), name))
    return found


def panels() -> Iterator[tuple[str, str]]:
    for panel in json.loads(DASHBOARD.read_text(encoding="utf-8"))["panels"]:
        for target in panel.get("targets", []):
            yield panel["title"], target["expr"].replace("$__rate_interval", "5m")


def alerts() -> Iterator[tuple[str, str]]:
    for group in yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]:
        for rule in group["rules"]:
            yield rule["alert"], rule["expr"]


QUERIES = [*panels(), *alerts()]


@pytest.mark.parametrize(("name", "query"), QUERIES, ids=[name for name, _ in QUERIES])
def test_a_query_is_about_metrics_and_labels_that_there_are(name: str, query: str):
    known = documented()
    named = metrics_in(query)
    assert named and [each for each in named if each not in known] == []
    labels = {label for each in named for label in known[each][1]} | {"le"}
    grouped = [label.strip() for group in _BY.findall(query) for label in group.split(",")]
    assert [label for label in grouped if label not in labels] == []
    for metric, where in _WHERE.findall(query):
        assert {part.split("=")[0].strip("! ~") for part in re.findall(r"\w+[!=~]", where)} <= {
            each.strip() for each in [*known[metric_of(metric)][1]]
        }, where
    for opening, closing in ("()", "[]", "{}"):
        assert query.count(opening) == query.count(closing)


def metric_of(name: str) -> str:
    return metrics_in(name)[0]


def test_every_metric_is_on_the_dashboard():
    shown = {metric for _, query in panels() for metric in metrics_in(query)}
    assert shown == set(documented())


def test_counters_are_never_shown_as_they_are():
    for name, query in QUERIES:
        for metric in metrics_in(query):
            if documented()[metric][0] == "counter":
                assert re.search(rf"(rate|increase)\({metric}\b", query), name


def test_the_dashboard_is_as_it_would_be_made_now():
    made = runpy.run_path(str(ROOT / "scripts" / "dashboard"))["dashboard"]()
    assert made == json.loads(DASHBOARD.read_text(encoding="utf-8")), "make it anew: scripts/dashboard"


def test_panels_do_not_lie_on_each_other():
    taken: dict[tuple[int, int], str] = {}
    for panel in json.loads(DASHBOARD.read_text(encoding="utf-8"))["panels"]:
        at = panel["gridPos"]
        assert at["x"] + at["w"] <= 24
        for x in range(at["x"], at["x"] + at["w"]):
            for y in range(at["y"], at["y"] + at["h"]):
                assert (x, y) not in taken, f"{panel['title']} lies on {taken[x, y]}"
                taken[x, y] = panel["title"]


def test_every_alert_leads_to_a_page_that_is_there():
    for group in yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]:
        for rule in group["rules"]:
            page, _, anchor = rule["annotations"]["runbook"].partition("#")
            text = (ROOT / page).read_text(encoding="utf-8")
            headings = [
                re.sub(r"[^\w\- ]", "", line.lstrip("# ").lower()).replace(" ", "-") for line in text.splitlines()
            ]
            assert not anchor or anchor in headings, rule["alert"]
            assert rule["labels"]["severity"] in ("page", "warn")


def test_promtool_reads_every_query(tmp_path: Path):
    promtool = find_program("promtool", (), "apt-get install prometheus")
    recorded = [{"record": f"test:panel_{number}", "expr": query} for number, (_, query) in enumerate(panels())]
    file = tmp_path / "panels.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": recorded}]}), encoding="utf-8")
    for rules in (RULES, file):
        done = subprocess.run([promtool, "check", "rules", str(rules)], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
