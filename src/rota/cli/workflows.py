"""`rota workflows [NAME]`: the workflows that are deployed, or everything about one."""

import argparse
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from rota.cli.reaching import reach
from rota.cli.showing import finish, put, put_json, put_table, say, show_time

if TYPE_CHECKING:
    from rota.core.questions import WorkflowView


EXAMPLES = """
  rota workflows
  rota workflows etl     its versions, parameters and next runs
  rota workflows --json
"""


def describe(parser: argparse.ArgumentParser) -> None:
    """Its options."""
    parser.add_argument("name", metavar="NAME", nargs="?", default="", help="one of them, with all there is to know")
    finish(parser, run)


def run(options: argparse.Namespace) -> int:
    """List them, or show one."""
    from rota.wire.schedules import show_schedule, upcoming
    from rota.wire.views import as_plain

    with reach(options) as rota:
        views = (rota.workflow(options.name),) if options.name else rota.workflows()
    if options.json:
        shown = [{**as_plain(view), "next": upcoming(view)} for view in views]
        put_json(shown[0] if options.name else shown)
    elif options.name:
        _show(views[0])
    elif not views:
        say("no workflows: deploy some with `rota deploy PATH`")
    else:
        put_table(
            ("WORKFLOW", "VERSION", "SCHEDULE", "NEXT", "RUNS", "TASKS", "SOURCE"),
            (
                (
                    view.workflow.name,
                    str(view.workflow.version),
                    show_schedule(view.schedule),
                    "paused" if view.workflow.paused else show_time(view.next_at or 0),
                    _show_runs(view),
                    str(view.tasks),
                    view.workflow.source,
                )
                for view in views
            ),
        )
    return 0


def _show_runs(view: "WorkflowView") -> str:
    most = f" of {view.max_active_runs}" if view.max_active_runs else ""
    waiting = f", {view.waiting_runs} waiting" if view.waiting_runs else ""
    return f"{view.active_runs}{most}{waiting}"


def _show(view: "WorkflowView") -> None:
    from zoneinfo import ZoneInfo

    from rota.wire.schedules import show_schedule, upcoming
    from rota.wire.views import show_default

    workflow = view.workflow
    put(f"{workflow.name}{' (paused)' if workflow.paused else ''}, version {workflow.version}, from {workflow.source}")
    for line in workflow.doc.splitlines():
        put(f"  {line}")
    put(f"tasks: {view.tasks}; runs: {_show_runs(view)}")
    spec = view.schedule
    put(f"schedule: {show_schedule(spec)}{', catching up' if spec is not None and spec.catch_up else ''}")
    for at in upcoming(view):
        zone = ZoneInfo(spec.zone if spec is not None else "UTC")
        put(f"  next: {datetime.fromtimestamp(at / 1000, UTC).astimezone(zone).isoformat(timespec='seconds')}")
    put("parameters:" if workflow.params else "parameters: none")
    for param in workflow.params:
        value = "required" if param.is_required else f"default {show_default(param)}"
        put(f"  {param.name}: {param.type}, {value}{'; ' + param.doc if param.doc else ''}")
    put("versions:")
    for version in reversed(workflow.versions):
        by = f" by {version.actor}" if version.actor else ""
        mark = "  *" if version.number == workflow.version else "   "
        put(f"{mark}{version.number}  {show_time(version.at)}{by}  {version.graph[:12]}")
