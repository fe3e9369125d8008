"""The `rota` command: one module per noun. Data on stdout, everything else on stderr.

A command's module is imported when it is used: `rota --help` must not wait for what it does not need.
"""

import argparse
import os
import sys
from collections.abc import Collection, Sequence
from contextlib import suppress
from importlib import import_module

from rota import __version__
from rota.cli.parsers import Parser, give_examples
from rota.core.errors import Refused, Unavailable

EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_REFUSED = 3
EXIT_UNAVAILABLE = 4
EXIT_INTERRUPTED = 130
EXIT_TERMINATED = 143

# What there is, by theme: the order in which somebody new comes to need it.
THEMES: dict[str, dict[str, tuple[str, str]]] = {
    "Begin": {
        "up": ("rota.cli.up", "run everything on this machine: a coordinator, a worker, HTTP and pages"),
        "demo": ("rota.cli.demo", "see a simulated cluster at work"),
        "doctor": ("rota.cli.doctor", "look for what could be wrong on this machine"),
        "top": ("rota.cli.top", "watch what runs, what waits and why, and who works"),
    },
    "Workflows": {
        "run": ("rota.cli.run", "run a workflow, deployed or of a Python file, and watch it"),
        "test": ("rota.cli.test", "run a workflow of a Python file with virtual time"),
        "deploy": ("rota.cli.deploy", "make workflows of a file or folder the present versions"),
        "workflows": ("rota.cli.workflows", "list the workflows that are deployed, or show one"),
        "pause": ("rota.cli.pause", "hold a workflow, or one run"),
        "resume": ("rota.cli.pause", "let a workflow, or one run, go on"),
        "backfill": ("rota.cli.backfill", "make runs for slots of the past"),
        "backfills": ("rota.cli.backfills", "list backfills, end one"),
        "undeploy": ("rota.cli.undeploy", "take a workflow away with its schedule"),
    },
    "See runs of all kinds": {
        "runs": ("rota.cli.runs", "list runs, the newest first"),
        "tasks": ("rota.cli.tasks", "list the tasks of a run"),
        "why": ("rota.cli.why", "say why a task is not running"),
        "logs": ("rota.cli.logs", "show what a run printed, or one of its tasks"),
        "story": ("rota.cli.story", "tell what happened to a run"),
    },
    "Deal with runs": {
        "cancel": ("rota.cli.cancel", "end a run and everything in it"),
        "retry": ("rota.cli.retry", "let tasks that wait be tried now, and run those again that failed for good"),
        "clear": ("rota.cli.clear", "run tasks again that have ended"),
        "mark": ("rota.cli.mark", "say what tasks came to"),
        "resolve": ("rota.cli.resolve", "let a task out of needs_attention: requeue, fail or cancel it"),
        "note": ("rota.cli.note", "say something about a run or a task"),
        "move": ("rota.cli.move", "give a run another version of its workflow"),
    },
    "Queries and builds": {
        "sql": ("rota.cli.sql", "ask a question of files or tables, here or on workers"),
        "stream": ("rota.cli.stream", "see streams by their folders, pause, save and restore them"),
        "builds": ("rota.cli.builds", "see builds: invocations, their actions, what each waits for"),
    },
    "Work for agents": {
        "work": ("rota.cli.work", "work items for agents: make, list, approve, claim them"),
        "sessions": ("rota.cli.sessions", "list agents' sessions, end one"),
        "scheduler": ("rota.cli.scheduler", "pause, drain and see work that agents claim"),
        "mcp": ("rota.cli.mcp", "give an agent tools to claim work, over MCP"),
    },
    "Serve": {
        "server": ("rota.cli.server", "run a coordinator for clients and workers elsewhere"),
        "worker": ("rota.cli.worker", "run work of a coordinator elsewhere"),
        "frontend": ("rota.cli.frontend", "serve builds by the Remote Execution API"),
        "flight": ("rota.cli.flight", "serve queries by Arrow Flight SQL"),
    },
    "Operate": {
        "workers": ("rota.cli.workers", "list workers, drain one, strike one off"),
        "queues": ("rota.cli.queues", "list queues, define one"),
        "pools": ("rota.cli.pools", "list limits on what runs at once, define one, remove one"),
        "tenants": ("rota.cli.tenants", "list tenants, give one its share"),
        "token": ("rota.cli.token", "make tokens that a coordinator accepts"),
        "audit": ("rota.cli.audit", "see who asked for what"),
        "db": ("rota.cli.db", "back up, check or shrink the data"),
        "debug": ("rota.cli.debug", "gather what somebody needs to find out what is wrong, without secrets"),
    },
    "Rota itself": {
        "completion": ("rota.cli.completion", "print what completes commands in a shell"),
        "sim": ("rota.cli.sim", "run the simulator"),
    },
}
COMMANDS: dict[str, tuple[str, str]] = {name: each for theme in THEMES.values() for name, each in theme.items()}
# What each exit code means, for help and for the page.
EXIT_CODES: dict[int, str] = {
    0: "done",
    EXIT_FAILED: "it failed: the run did, or something that was looked for is wrong",
    EXIT_USAGE: "wrong usage: no such command or option, or a word that cannot be read",
    EXIT_REFUSED: "refused: the caller has to change something; the message says what",
    EXIT_UNAVAILABLE: "nobody can answer now; the same command may work later",
    EXIT_INTERRUPTED: "interrupted by Ctrl-C",
    EXIT_TERMINATED: "ended by SIGTERM",
}


class Terminated(KeyboardInterrupt):
    """The process was asked to end by SIGTERM; a command that can end in order does so like at Ctrl-C."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; `EXIT_CODES` says what is answered."""
    words = list(sys.argv[1:] if argv is None else argv)
    wanted = next((word for word in words if not word.startswith("-")), "")
    try:
        parser = make_parser([wanted])
        options = parser.parse_args(words)
        if options.command is None:
            parser.print_help(sys.stderr)
            return EXIT_USAGE
        return _carry_out(options)
    except ModuleNotFoundError as missing:
        return _name_extra(missing)


def _name_extra(missing: ModuleNotFoundError) -> int:
    """Say which extra brings a module that a command needs; any other module is our bug, or the user's."""
    from importlib.metadata import PackageNotFoundError

    from rota.cli.installation import extras_with, install_command

    # That one is of a package, and is a ModuleNotFoundError, too.
    extras = [] if isinstance(missing, PackageNotFoundError) else extras_with(missing.name or "")
    if not extras:
        raise missing
    text = f"the module {missing.name} is not installed; an extra brings it: {install_command(*extras)}"
    sys.stderr.write(f"rota: {text}\n")
    return EXIT_REFUSED


def make_parser(wanted: Collection[str]) -> Parser:
    """The parser of everything. Only commands that are wanted are described whole, for which they are imported."""
    parser = Parser(prog="rota", usage="rota [-h] [--version] COMMAND …", description=_overview(), epilog=_ends())
    parser.add_argument("--version", action="version", version=f"rota {__version__}")
    commands = parser.add_subparsers(prog="rota", dest="command", metavar="COMMAND", help=argparse.SUPPRESS)
    for name, (module, summary) in COMMANDS.items():
        described = commands.add_parser(name, description=summary, add_help=name in wanted)
        if name in wanted:
            home = import_module(module)
            home.describe(described)
            give_examples(described, home.EXAMPLES)
    return parser


def _overview() -> str:
    """What there is, by theme."""
    lines = ["A durable, fenced scheduler for workflows, queries, builds and agents."]
    for theme, commands in THEMES.items():
        lines += ["", f"{theme}:", *(f"  {name:<12}{summary}" for name, (_, summary) in commands.items())]
    return "\n".join([*lines, "", "`rota COMMAND --help` shows options and examples."])


def _ends() -> str:
    return "\n".join(["exit codes:", *(f"  {code:<6}{meaning}" for code, meaning in EXIT_CODES.items())])


def _carry_out(options: argparse.Namespace) -> int:
    try:
        try:
            code = options.run(options)
        except Refused as refused:
            from rota.cli.naming import mend  # few commands need it

            code = mend(options, refused)
        # Here, where it can be judged: at exit it could only complain.
        sys.stdout.flush()
        return code
    except Refused as refused:
        sys.stderr.write(f"rota: {refused}\n")
        return EXIT_REFUSED
    except Unavailable as unavailable:
        sys.stderr.write(f"rota: {unavailable}\n")
        return EXIT_UNAVAILABLE
    except Terminated:
        return EXIT_TERMINATED
    except KeyboardInterrupt:
        sys.stderr.write("rota: interrupted\n")
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        # Whoever read our output has seen enough. What is still unwritten must not be tried again at exit.
        with suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_FAILED
    except OSError as error:
        sys.stderr.write(f"rota: {error}\n")
        return EXIT_FAILED
