"""docs/reference/cli.md, made from the parsers: `python -m rota.cli.reference > docs/reference/cli.md`.

A test compares the page with this, so that nobody has to remember to make it anew.
"""

import sys
from collections.abc import Iterator

from rota.cli import EXIT_CODES, THEMES
from rota.cli.choices import COORDINATOR
from rota.cli.outline import Outline, Word, outline
from rota.cli.parsers import without_remark

# Options that many commands have, described once.
_SHARED = ("--data", "--coordinator", "--json", "--config")

_HEAD = f"""# Commands

<!-- Made by `python -m rota.cli.reference`; change the commands, not this page. -->

`rota --help` shows what there is, `rota COMMAND --help` one command with examples. Data goes to stdout, everything else
to stderr. Options are written out: nothing is short for something else.

- **Where.** Commands that ask a coordinator take `--data DIR` (the coordinator of a data folder; by default the nearest
  `.rota` with data, here or in a folder above) or `--coordinator URL` (one elsewhere; default `${COORDINATOR}`). A
  folder that no process holds is only read by commands that change nothing; others hold it until they are done.
- **`--json`** prints data for programs. Fields are added, never renamed; instants are milliseconds since 1970, UTC.
- **Runs and work items** may be named by as much of their id as no other has, among the newest 2,000; if several begin
  like that, they are listed. A name that is not found is answered with the one that was probably meant.
- **Services** (`up`, `server`, `worker`, `frontend`, `flight`) take every [setting](settings.md) from `--config FILE`,
  `$ROTA_CONFIG`, `./rota.toml` or `./rota.json5`, and from the environment.
- **Colours** and bars are for terminals. `NO_COLOR` takes the colours away.
- **Completion**: `rota completion bash`, `zsh` or `fish` prints a script, and its help says where to put it.

## Exit codes

| code | meaning |
|---|---|
"""


def render() -> str:
    """The whole page."""
    found = {each.path[0]: each for each in outline()}
    lines = [_HEAD + "\n".join(f"| {code} | {meaning} |" for code, meaning in EXIT_CODES.items())]
    for theme, commands in THEMES.items():
        lines += ["", f"## {theme}"]
        for name in commands:
            lines += _command(found[name], "###")
    return "\n".join(lines) + "\n"


def _command(each: Outline, level: str) -> Iterator[str]:
    yield from ("", f"{level} rota {each.name}", "", f"{each.summary[:1].upper()}{each.summary[1:]}.", "")
    yield from ("```", each.synopsis, "```")
    own = [word for word in each.words if not set(word.names) & set(_SHARED)]
    shared = [f"`{word.names[0]}`" for word in each.words if set(word.names) & set(_SHARED)]
    if own:
        yield from ("", "| | |", "|---|---|", *map(_row, own))
    if shared:
        yield from ("", f"And {', '.join(shared)}.")
    if each.examples and not each.verbs:
        yield from ("", "```console", *map(_example, each.examples), "```")
    for verb in each.verbs:
        yield from _command(verb, level + "#")


def _example(line: str) -> str:
    typed = without_remark(line)
    remark = line.strip().removeprefix(typed).strip()
    return f"$ {typed}  # {remark}" if remark else f"$ {typed}"


def _row(word: Word) -> str:
    names = ", ".join(f"{name} {word.value}".strip() for name in word.names) if word.is_option else word.names[0]
    text = f"{word.help}{'; required' if word.is_required and word.is_option else ''}"
    if word.choices and word.value.split("|") != list(word.choices):
        text += f": {', '.join(word.choices)}"
    return f"| `{_cell(names)}` | {_cell(text)} |"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    sys.stdout.write(render())
