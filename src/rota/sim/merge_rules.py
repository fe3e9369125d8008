"""Keys by which runs are joined, checked from commits and from what clients are told."""

from rota.core.commands import SubmitRun
from rota.core.ids import Millis, RunId, RunKey
from rota.core.records import Batch, Run
from rota.core.states import RUN_TERMINAL
from rota.sim.broken import Broken
from rota.sim.models import Model


class MergeRules:
    """P-MERGE."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.holders: dict[tuple[str, str], RunKey] = {}
        self._keys: dict[RunKey, tuple[str, str]] = {}
        self._last: dict[tuple[str, str], RunKey] = {}
        # When the end of a run became durable.
        self._ended_at: dict[RunKey, Millis] = {}

    def commit_ends(self, batch: Batch, now: Millis) -> None:
        """P-MERGE: of the runs with one key at most one has not ended. One that is opened again may give it up."""
        rows = [record for record in batch.puts if isinstance(record, Run)]
        for row in rows:
            run = (row.tenant, row.id)
            before = self._keys.pop(run, None)
            if before is not None and self.holders.get(before) == run:
                del self.holders[before]
            if row.state in RUN_TERMINAL:
                self._ended_at.setdefault(run, now)
            else:
                self._ended_at.pop(run, None)
        for row in rows:
            if row.merge and row.state not in RUN_TERMINAL:
                self._hold((row.tenant, row.id), (row.tenant, row.merge))
            elif not row.merge and self.model.rows[(row.tenant, row.id)].merge:
                self.model.facts.note("key_given_up")

    def _hold(self, run: RunKey, key: tuple[str, str]) -> None:
        other = self.holders.setdefault(key, run)
        if other != run:
            raise Broken(f"P-MERGE: {other} and {run} have not ended, and both have key {key[1]!r}")
        self._keys[run] = key
        if self._last.get(key, run) != run:
            self.model.facts.note("key_used_again")
        self._last[key] = run

    def answered(self, command: SubmitRun, answer: str, asked_at: Millis) -> None:
        """P-MERGE: who joins is told of a run with its key, and of one that had not ended when it asked."""
        run = (command.tenant, RunId(answer))
        if answer == command.run:
            return
        self.model.facts.note("joined")
        row = self.model.rows.get(run)
        if row is None or not command.merge or row.merge != command.merge:
            raise Broken(f"P-MERGE: {command.run} was answered with {answer}, which has not its key")
        ended_at = self._ended_at.get(run)
        if ended_at is not None and ended_at < asked_at:
            raise Broken(f"P-MERGE: {command.run} joined {answer}, which had ended before that was asked for")
