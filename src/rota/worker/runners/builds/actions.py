"""Actions and their commands, read from messages and checked: what is left can be carried out."""

import os
from typing import TypeVar

from google.protobuf.message import DecodeError, Message
from msgspec import Struct

from rota.core.ids import Digest
from rota.wire.reapi import remote_execution_pb2 as rx
from rota.wire.reapi.digests import digest_of, read_digest
from rota.worker.runners.builds.trees import Invalid

MESSAGE_BYTES_MAX = 32 << 20
OUTPUTS_MAX = 100_000
# The kernel's own: one word of a program or its environment (MAX_ARG_STRLEN), and all of them together.
WORD_BYTES_MAX = 128 * 1024 - 1
WORDS_BYTES_MAX = os.sysconf("SC_ARG_MAX") - 64 * 1024
ID_DIGITS_MAX = 9
TIMEOUT_MS_MAX = 366 * 24 * 3_600_000

M = TypeVar("M", bound=Message)


class Output(Struct, frozen=True):
    """An output by the name it was asked for, and where it is below the action's folder; empty: that folder itself."""

    name: str
    path: str


class Action(Struct, frozen=True):
    """What an action is made of."""

    command: Digest
    root: Digest
    # 0 if it may take as long as it likes.
    timeout_ms: int


class Command(Struct, frozen=True):
    """What to run, and what it gives."""

    argv: tuple[str, ...]
    env: dict[str, str]
    # Below the action's folder; empty is that folder itself.
    cwd: str
    outputs: tuple[Output, ...]
    # Whether outputs were asked for as `output_paths`, which decides where symbolic links are listed.
    uses_paths: bool
    has_trees: bool
    has_folders: bool
    # The user and group of a command in a root file system.
    uid: int = 0
    gid: int = 0


def read_action(raw: bytes, digest: Digest) -> Action:
    """An action from its message. Raises Invalid."""
    if digest_of(raw) != digest:
        raise Invalid("the message of the action is not what its digest says")
    message = _decode(rx.Action(), raw, "the action")
    timeout = message.timeout
    timeout_ms = timeout.seconds * 1_000 + -(-timeout.nanos // 1_000_000)
    if not 0 <= timeout_ms <= TIMEOUT_MS_MAX:
        raise Invalid(f"a time limit of {timeout.seconds} s is none")
    command, root = read_digest(message.command_digest, "command"), read_digest(message.input_root_digest, "input_root")
    return Action(command, root, timeout_ms)


def read_command(raw: bytes) -> Command:
    """A command from its message. Raises Invalid."""
    message = _decode(rx.Command(), raw, "the command")
    if not message.arguments or not message.arguments[0]:
        raise Invalid("its command names no program")
    env = {variable.name: variable.value for variable in message.environment_variables}
    for name in env:
        if not name or "=" in name:
            raise Invalid(f"{name[:80]!r} is no name of a variable")
    _check_words([*message.arguments, *(f"{name}={value}" for name, value in env.items())])
    cwd = inside("", message.working_directory, "its working directory")
    names = dict.fromkeys(message.output_paths)
    uses_paths = bool(names)
    if not uses_paths:
        names = dict.fromkeys([*message.output_files, *message.output_directories])
    if len(names) > OUTPUTS_MAX:
        raise Invalid(f"it has more than {OUTPUTS_MAX:,} outputs")
    form = message.output_directory_format
    return Command(
        argv=tuple(message.arguments),
        env=env,
        cwd=cwd,
        outputs=tuple(Output(name, inside(cwd, name, "its output")) for name in names),
        uses_paths=uses_paths,
        has_trees=form != rx.Command.DIRECTORY_ONLY,
        has_folders=form != rx.Command.TREE_ONLY,
        uid=_read_id(message.platform, "unixUID"),
        gid=_read_id(message.platform, "unixGID"),
    )


def _read_id(platform: rx.Platform, name: str) -> int:
    """A number of a user or group among the properties; 0 if it is not there."""
    for each in platform.properties:
        if each.name == name:
            if not (each.value.isascii() and each.value.isdigit() and len(each.value) <= ID_DIGITS_MAX):
                raise Invalid(f"{name}={each.value[:40]!r} is not a number of a user or group")
            return int(each.value)
    return 0


def inside(cwd: str, path: str, what: str) -> str:
    """A path that is given relative to a folder, relative to the action's folder. Raises Invalid if it leaves that."""
    if path.startswith("/") or "\0" in path:
        raise Invalid(f"{what} {path[:200]!r} is no relative path")
    parts = cwd.split("/") if cwd else []
    for part in path.split("/"):
        if part == "..":
            if not parts:
                raise Invalid(f"{what} {path[:200]!r} is outside of the action's folder")
            parts.pop()
        elif part not in ("", "."):
            parts.append(part)
    return "/".join(parts)


def _decode(message: M, raw: bytes, what: str) -> M:
    try:
        message.ParseFromString(raw)
    except DecodeError:
        raise Invalid(f"{what} cannot be read") from None
    return message


def _check_words(words: list[str]) -> None:
    sizes = [len(word.encode()) for word in words]
    if max(sizes) > WORD_BYTES_MAX:
        raise Invalid(f"an argument or variable has {max(sizes):,} bytes; the most is {WORD_BYTES_MAX:,}")
    # A pointer for each, and the byte that ends it.
    if sum(sizes) + 9 * len(sizes) > WORDS_BYTES_MAX:
        raise Invalid(f"its arguments and variables have {sum(sizes):,} bytes; the most is {WORDS_BYTES_MAX:,}")
    if any("\0" in word for word in words):
        raise Invalid("an argument or variable has a NUL in it")
