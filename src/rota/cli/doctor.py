"""`rota doctor`: what could be wrong on this machine and what to do about it; every setting and where it came from."""

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING

from rota.cli import EXIT_FAILED
from rota.cli.reaching import FOLDER_HELP, configured_folder
from rota.cli.showing import add_json, put, put_json, put_table
from rota.core.errors import Refused

if TYPE_CHECKING:
    from rota.cli.examining import Value
    from rota.cli.installation import Finding

EXAMPLES = """
  rota doctor
  rota doctor --config /etc/rota/server.toml --json
"""


def describe(parser: argparse.ArgumentParser) -> None:
    """Its options."""
    parser.add_argument("--config", metavar="FILE", help="the settings (default ROTA_CONFIG, ./rota.toml or .json5)")
    parser.add_argument("--data", metavar="DIR", help=FOLDER_HELP)
    add_json(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Look, and say what was found; fails if something would keep Rota from working."""
    from rota.cli.installation import Finding, check_install

    installed = list(check_install())
    if any(finding.grade == "fail" for finding in installed):
        # The other checks cannot be imported.
        _show(installed, [], as_json=options.json)
        return EXIT_FAILED

    from rota.cli.examining import examine, judge_settings, show_values
    from rota.config import Config, load_config

    config = Config()
    try:
        config = load_config({"server.data": options.data}, os.environ, options.config)
        judged = list(judge_settings(config, os.environ))
    except Refused as refused:
        judged = [Finding("fail", "settings", str(refused), "Until then only the defaults are shown.")]
    findings = [*installed, *examine(Path(options.data or configured_folder(config))), *judged]
    values = list(show_values(config))
    _show(findings, values, as_json=options.json)
    return EXIT_FAILED if any(finding.grade == "fail" for finding in findings) else 0


def _show(findings: "list[Finding]", values: "list[Value]", *, as_json: bool) -> None:
    if as_json:
        put_json({"findings": findings, "settings": values})
        return
    for finding in findings:
        put(f"{finding.grade:<4}  {finding.what:<12}  {finding.text}")
        if finding.hint:
            put(f"{'':<20}→ {finding.hint}")
    if values:
        put("")
        put_table(("setting", "value", "source"), ((each.setting, str(each.value), each.source) for each in values))
