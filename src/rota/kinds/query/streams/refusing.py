"""What becomes of rows that a sink refuses once their round is published.

With `fail` the stream ends, and the round is handed over again at the next start. Otherwise the sink goes on without
them: they are counted, and with `dead_letter` kept in a folder of the stream, with the reason.
"""

from pathlib import Path

import pyarrow as pa

from rota.kinds.query.streams.policies import Policy, Unusable, as_json
from rota.kinds.query.streams.sinks import SideSink


class Refusals:
    """What one sink does with rows that it refuses."""

    def __init__(self, policy: Policy = "fail", folder: Path | None = None) -> None:
        """`folder`: where rows are kept, if they are."""
        self.policy: Policy = policy
        self._folder = folder
        self._kept: SideSink | None = None

    @property
    def is_tolerant(self) -> bool:
        """Whether a sink goes on without rows that it refuses."""
        return self.policy != "fail"

    def open(self, stream: str) -> None:
        """See that rows can be kept. Where some were, under another policy, these are looked after, too."""
        if self._folder is not None and (self.policy == "dead_letter" or self._folder.exists()):
            self._kept = SideSink(self._folder)
            self._kept.open(stream)

    def take_back(self, node: str, number: int, incarnation: int) -> None:
        """Forget what was refused in later rounds."""
        if self._kept is not None:
            self._kept.take_back(node, number, incarnation)

    def keep(self, node: str, number: int, incarnation: int, refused: Unusable) -> int:
        """Keep what was refused of a round, before the sink notes that it has committed it. How many rows that are."""
        if self._kept is not None and refused.dead:
            self._kept.put(node, number, incarnation, refused.table())
        elif self._kept is not None:
            # They may have been refused when the round was handed over before.
            self._kept.drop(node, number, incarnation)
        return len(refused.dead) + refused.skipped

    def refuse(self, refused: Unusable, reason: str, sink: str, rows: pa.Table) -> None:
        """Set rows of a round aside."""
        refused.take(self.policy, reason, sink, as_json(rows))
