"""What tasks of a round on workers tell."""

import pyarrow as pa
import pytest

from rota.app.sql.rounds import told_by
from rota.core.errors import Refused
from rota.kinds.query.stages import Stage
from rota.kinds.query.streams.steps import Told, encode_told
from rota.wire.queries import Hashed, StageOutput, encode_output

STAGE = Stage(id="w", plan=b"", output=Hashed(2), schema=pa.schema([]), tasks=2, is_step=True)


def test_a_round_of_which_a_task_has_told_nothing_is_not_published() -> None:
    told = encode_output(StageOutput("", "", told=encode_told(Told(mark=7))))
    assert [each.mark for each in told_by(STAGE, [told, told])] == [7, 7]
    for results in ([told, None], [told]):
        with pytest.raises(Refused, match=r"stream\.corrupt.*1 of 2"):
            told_by(STAGE, results)
