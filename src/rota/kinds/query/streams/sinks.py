"""Folders as sinks: a file for each round."""

import os
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import get_args

import pyarrow as pa

from rota.core.errors import Refused
from rota.kinds.query.streams.given import choice, place
from rota.wire.capabilities import Sink
from rota.wire.folders import Folder, open_folder
from rota.wire.targets import ASIDE, FileWriter, Form, check_columns

_DIGITS = 12
_NONE = -1
# What of a stream's identity is in names of files, so that streams with equal nodes may share a folder.
_IDENTITY_CHARS = 8
_ASIDE = f"{ASIDE}stream"


class FolderSink:
    """A file for each round that gives rows: put aside before the round is published, and given its name after.

    A round is one file, so who reads the folder sees all of it or nothing.
    """

    can = Sink.TWO_PHASE | Sink.IDEMPOTENT | Sink.TRANSACTIONAL
    wants_rows_kept = False
    may_lag = False

    def __init__(self, path: str | os.PathLike[str], form: Form = "parquet") -> None:
        text = place(path, "folder")
        self._path = text if "://" in text else os.path.abspath(text)  # noqa: PTH100 - a path or a URL
        self._form: Form = choice(form, get_args(Form), "form")
        self.called = f"{form} files in {self._path}"
        self._folder: Folder = open_folder(self._path)
        self._stream = ""
        self._is_settled = False

    def sample(self) -> Path | None:
        """A file as it writes them; nothing if that is not on this machine."""
        return None if "://" in self._path else Path(self._path, f"part.{self._form}")

    def open(self, stream: str) -> None:
        """See that it can be written to."""
        with self._writing():
            self._folder.check()
        self._stream = stream[:_IDENTITY_CHARS]

    def prepare(self, node: str, number: int, incarnation: int, rows: pa.Table) -> dict[str, str]:
        """Write the file of a round, where nobody looks."""
        with self._writing():
            return self._prepare(node, number, incarnation, rows)

    @contextmanager
    def _writing(self) -> Generator[None]:
        """Refuse a folder that cannot be written to any more."""
        try:
            yield
        except OSError as error:
            text = f"{self._path} cannot be written to: {error.strerror or error}"
            hint = "See that it is a folder with room in it, which may be written to, and start the stream again."
            raise Refused("stream.sink", text, hint) from error

    def check(self, node: str, schema: pa.Schema) -> None:
        """Refuse columns that cannot be written in this form."""
        check_columns(self._form, schema, path="name")

    def _prepare(self, node: str, number: int, incarnation: int, rows: pa.Table) -> dict[str, str]:
        name = f"{_ASIDE}/{node}-{number:0{_DIGITS}d}-{self._stream}-{incarnation}.{self._form}"
        file = FileWriter(f"{self._path}/{name}", rows.schema, self._form)
        try:
            for batch in rows.to_batches():
                file.write(batch)
            file.close()
        except BaseException:
            file.give_up()
            raise
        self._settle_aside()
        return {"file": name}

    def _settle_aside(self) -> None:
        """Have the name of what was put aside survive a loss of power: the round that counts on it may, too."""
        open_folder(f"{self._path}/{_ASIDE}").settle()
        if not self._is_settled:
            # These may have been made just now.
            self._folder.settle()
            if "://" not in self._path:
                open_folder(os.path.dirname(self._path)).settle()  # noqa: PTH120 - a path or a URL
            self._is_settled = True

    def commit(
        self, node: str, number: int, incarnation: int, prepared: dict[str, str], rows: Callable[[], pa.Table]
    ) -> int:
        """Give it its name, unless it has it already."""
        name = self._name(node, number)
        with self._writing():
            try:
                self._folder.reveal([(prepared["file"], name)])
                self._folder.remove([prepared["file"]])
            except FileNotFoundError:
                # Whoever was at it before, or is at it still, was faster.
                if not self._is_there(name):
                    text = f"what round {number} of {node} has put aside in {self._path} is gone"
                    raise Refused("stream.sink", text, "Restore the stream from an older round.") from None
            self._folder.settle()
        return 0

    def _name(self, node: str, number: int) -> str:
        return f"part-{node}-{number:0{_DIGITS}d}-{self._stream}.{self._form}"

    def _is_there(self, name: str) -> bool:
        try:
            self._folder.size(name)
        except FileNotFoundError:
            return False
        return True

    def take_back(self, node: str, number: int, incarnation: int) -> None:
        """Remove the files of later rounds, and what others have put aside that is not of this one.

        What is put aside goes first: a rival that is still at it has nothing left to give a name to when its files are
        looked for.
        """
        with self._writing():
            self._remove_aside(node, but=number)
            later = [name for name in self._folder.names() if self._round_of(name, f"part-{node}-") > number]
            self._folder.remove(later)
            if later:
                self._folder.settle()

    def _remove_aside(self, node: str, but: int) -> None:
        names = self._folder.names(_ASIDE)
        left = [name for name in names if self._round_of(name, f"{node}-") not in (_NONE, but)]
        self._folder.remove([f"{_ASIDE}/{name}" for name in left])

    def _round_of(self, name: str, prefix: str) -> int:
        """The number in the name of a file; none if it is not one of these, or of another stream."""
        number, _, rest = name.removeprefix(prefix).partition("-") if name.startswith(prefix) else ("", "", "")
        is_ours = number.isdecimal() and rest.startswith((f"{self._stream}.", f"{self._stream}-"))
        return int(number) if is_ours else _NONE

    def close(self) -> None:
        """It holds nothing."""


class SideSink(FolderSink):
    """A folder for rows that were set aside: there are few, and nobody waits for them. Rounds keep them until then."""

    can = Sink.IDEMPOTENT | Sink.TRANSACTIONAL
    wants_rows_kept = True
    may_lag = True

    def prepare(self, node: str, number: int, incarnation: int, rows: pa.Table) -> dict[str, str]:
        """The round keeps the rows."""
        return {}

    def commit(
        self, node: str, number: int, incarnation: int, prepared: dict[str, str], rows: Callable[[], pa.Table]
    ) -> int:
        """Write the file of a round, unless it is there."""
        with self._writing():
            is_there = self._is_there(self._name(node, number))
        if not is_there:
            self.put(node, number, incarnation, rows())
        return 0

    def put(self, node: str, number: int, incarnation: int, rows: pa.Table) -> None:
        """Write the file of a round, in the place of one that is there."""
        written = super().prepare(node, number, incarnation, rows)
        # After that is put aside, and not before: whoever takes over leaves its mark and removes what is aside then.
        self._check_holder(node, incarnation)
        try:
            super().commit(node, number, incarnation, written, lambda: rows)
        except Refused:
            self._check_holder(node, incarnation)
            raise

    def drop(self, node: str, number: int, incarnation: int) -> None:
        """Remove the file of a round, if there is one."""
        with self._writing():
            is_there = self._is_there(self._name(node, number))
        if is_there:
            self._check_holder(node, incarnation)
            with self._writing():
                self._folder.remove([self._name(node, number)])

    def take_back(self, node: str, number: int, incarnation: int) -> None:
        """Keep out whoever was at it: what it puts aside from now on gets no name."""
        mark = f"{_ASIDE}/{self._mark(node)}{incarnation:020d}"
        with self._writing():
            self._folder.open(mark).close()
            older = [each for each in self._marked(node) if each < incarnation]
            self._folder.remove([f"{_ASIDE}/{self._mark(node)}{each:020d}" for each in older])
        super().take_back(node, number, incarnation)

    def _mark(self, node: str) -> str:
        return f"{node}-holder-{self._stream}-"

    def _marked(self, node: str) -> list[int]:
        """The incarnations that have left their mark."""
        mark = self._mark(node)
        found = [name.removeprefix(mark) for name in self._folder.names(_ASIDE) if name.startswith(mark)]
        return [int(each) for each in found if each.isdecimal()]

    def _check_holder(self, node: str, incarnation: int) -> None:
        with self._writing():
            newest = max(self._marked(node), default=0)
        if newest > incarnation:
            text = f"incarnation {newest} writes to {self.called} now, and this is {incarnation}"
            raise Refused("stream.fenced", text, "Stop; another one is at it.")
