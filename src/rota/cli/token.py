"""`rota token new`: a random token, with the entry that makes a coordinator accept it."""

import argparse
import os
from pathlib import Path

from rota.cli.choices import TOKEN_ROLES
from rota.cli.showing import add_json, put, put_json, say
from rota.core.errors import Refused

SECRET_BYTES = 32
FILE_MODE = 0o600
# What ends a name, an entry or a line in a list of tokens.
SEPARATORS = ",#;+\n\r"

EXAMPLES = """
  rota token new --role writer --file /etc/rota/tokens     adds its entry to the file, and prints the token
  rota token new --role reader --tenant '*'     prints the entry; the token is what stands behind the colon
  rota token new --role agent --capability review --workspace docs --note "the reviewers"
"""


def describe(parser: argparse.ArgumentParser) -> None:
    """Its verbs, each with its options."""
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    summary = "make a token for one role and one tenant"
    new = verbs.add_parser("new", help=summary, description=summary)
    new.add_argument("--role", choices=TOKEN_ROLES, required=True, help="what its holder may do")
    new.add_argument(
        "--tenant", default="", metavar="NAME", help="whose it is; * for any (default: as the role has it)"
    )
    for option, text in (
        ("--capability", "what sessions of an agent may offer; * for everything"),
        ("--workspace", "a workspace that an agent is bound to"),
        ("--agent", "a name of an agent that it is bound to"),
    ):
        new.add_argument(option, action="append", default=[], metavar="NAME", help=f"{text}; may be given again")
    new.add_argument("--note", default="", metavar="TEXT", help="a remark beside its entry, such as who has it")
    new.add_argument("--file", metavar="FILE", help="add the entry to this file of tokens, and print the token alone")
    add_json(new)
    new.set_defaults(run=make)


def make(options: argparse.Namespace) -> int:
    """Make one."""
    import secrets

    if not options.note.isprintable():
        raise Refused("field.value", "a note is one line of text", path="--note")
    token = secrets.token_hex(SECRET_BYTES)
    entry = f"{_holder(options)}:{token}"
    name = _check(entry, options)
    line = f"{entry}  # {options.note}" if options.note else entry
    if options.file:
        _append(Path(options.file), line)
        say(f"rota: {name} is accepted by a coordinator that reads {options.file}")
    if options.json:
        put_json({"token": token, "entry": entry, "name": name})
    else:
        put(token if options.file else line)
    return 0


def _check(entry: str, options: argparse.Namespace) -> str:
    """Refuse an entry that a coordinator would not read as it is meant; how its holder is called in logs."""
    from rota.api.tokens import read_tokens

    given: tuple[list[str], ...] = (options.capability, options.workspace, options.agent)
    named = [options.tenant, *(name for names in given for name in names)]
    is_plain = not any(sign in name for name in named for sign in SEPARATORS)
    for each in read_tokens(entry, "these options") if is_plain else ():
        who = each.principal
        if (who.capabilities, who.workspaces, who.agents) == tuple(tuple(names) for names in given):
            return who.name
    text = "a name has a sign that separates names in an entry, or is given twice"
    raise Refused("config.value", text, f"Names have none of {' '.join(SEPARATORS[:-2])}, and no line break.")


def _holder(options: argparse.Namespace) -> str:
    """What stands in front of the colon."""
    capabilities = "".join(f"+{name}" for name in options.capability)
    workspaces = f";workspaces={'+'.join(options.workspace)}" if options.workspace else ""
    agents = f";agents={'+'.join(options.agent)}" if options.agent else ""
    return f"{options.role}{options.tenant and f'@{options.tenant}'}{capabilities}{workspaces}{agents}"


def _append(path: Path, line: str) -> None:
    """Add a line in one write: a coordinator may read the file at any moment. A new file is for its owner alone."""
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, FILE_MODE)
    try:
        size = os.fstat(file).st_size
        is_ended = not size or os.pread(file, 1, size - 1) == b"\n"
        os.write(file, f"{'' if is_ended else chr(10)}{line}\n".encode())
    finally:
        os.close(file)
