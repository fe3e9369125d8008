"""The `rota` command: one module per noun. Data on stdout, everything else on stderr.

A command's module is imported when it is used: `rota --help` must not wait for what it does not need.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module

from rota import __version__

EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_REFUSED = 3
EXIT_UNAVAILABLE = 4
EXIT_INTERRUPTED = 130
EXIT_TERMINATED = 143

COMMANDS: dict[str, tuple[str, str]] = {
    "up": ("rota.cli.up", "run everything on this machine: a coordinator, a worker, HTTP"),
    "server": ("rota.cli.server", "run a coordinator for clients and workers elsewhere"),
    "worker": ("rota.cli.worker", "run work of a coordinator elsewhere"),
    "deploy": ("rota.cli.deploy", "make workflows of a file or folder the present versions"),
    "workflows": ("rota.cli.workflows", "list the workflows that are deployed, or show one"),
    "undeploy": ("rota.cli.undeploy", "take a workflow away with its schedule"),
    "run": ("rota.cli.run", "run a workflow, deployed or of a Python file, and watch it"),
    "sql": ("rota.cli.sql", "ask a question of files or tables, here or on workers"),
    "test": ("rota.cli.test", "run a workflow of a Python file with virtual time"),
    "pause": ("rota.cli.pause", "hold a workflow, or one run"),
    "resume": ("rota.cli.pause", "let a workflow, or one run, go on"),
    "backfill": ("rota.cli.backfill", "make runs for slots of the past"),
    "backfills": ("rota.cli.backfills", "list backfills, end one"),
    "runs": ("rota.cli.runs", "list runs, the newest first"),
    "tasks": ("rota.cli.tasks", "list the tasks of a run"),
    "why": ("rota.cli.why", "say why a task is not running"),
    "story": ("rota.cli.story", "tell what happened to a run"),
    "logs": ("rota.cli.logs", "show what a task printed"),
    "builds": ("rota.cli.builds", "see builds: invocations, their actions, what each waits for"),
    "work": ("rota.cli.work", "work items for agents: make, list, approve, claim them"),
    "session": ("rota.cli.session", "list agents' sessions, end one"),
    "scheduler": ("rota.cli.scheduler", "pause, drain and see work that agents claim"),
    "mcp": ("rota.cli.mcp", "give an agent tools to claim work, over MCP"),
    "frontend": ("rota.cli.frontend", "serve builds by the Remote Execution API"),
    "flight": ("rota.cli.flight", "serve queries by Arrow Flight SQL"),
    "cancel": ("rota.cli.cancel", "end a run and everything in it"),
    "clear": ("rota.cli.clear", "run tasks again that have ended"),
    "mark": ("rota.cli.mark", "say what tasks came to"),
    "retry": ("rota.cli.retry", "let tasks that wait be tried now, and run those again that failed for good"),
    "note": ("rota.cli.note", "say something about a task"),
    "move": ("rota.cli.move", "give a run another version of its workflow"),
    "workers": ("rota.cli.workers", "list workers, drain one, strike one off"),
    "queues": ("rota.cli.queues", "list queues, define one"),
    "pools": ("rota.cli.pools", "list limits on what runs at once, define one, remove one"),
    "tenants": ("rota.cli.tenants", "list tenants, give one its share"),
    "audit": ("rota.cli.audit", "see who asked for what"),
    "db": ("rota.cli.db", "back up, check or shrink the data"),
    "doctor": ("rota.cli.doctor", "look for what could be wrong on this machine"),
    "demo": ("rota.cli.demo", "see a simulated cluster at work"),
    "sim": ("rota.cli.sim", "run the simulator"),
}


class Terminated(KeyboardInterrupt):
    """The process was asked to end by SIGTERM; a command that can end in order does so like at Ctrl-C."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command. 0: done; 1: it failed; 2: wrong usage; 3: refused; 4: nobody can answer now."""
    words = list(sys.argv[1:] if argv is None else argv)
    parser = argparse.ArgumentParser(prog="rota", description="A durable, fenced scheduler.")
    parser.add_argument("--version", action="version", version=f"rota {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    wanted = next((word for word in words if not word.startswith("-")), "")
    for name, (module, summary) in COMMANDS.items():
        described = commands.add_parser(name, help=summary, description=summary, add_help=name == wanted)
        if name == wanted:
            import_module(module).describe(described)
    options = parser.parse_args(words)
    if options.command is None:
        parser.print_help(sys.stderr)
        return EXIT_USAGE
    return _carry_out(options)


def _carry_out(options: argparse.Namespace) -> int:
    from rota.core.errors import Refused, Unavailable  # not needed to show help

    try:
        code = options.run(options)
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
