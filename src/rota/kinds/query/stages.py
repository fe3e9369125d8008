"""Stages: what a query is cut into."""

import pyarrow as pa
from msgspec import Struct

from rota.wire.queries import Exchange, Output


class Stage(Struct, frozen=True, kw_only=True):
    """A part of a plan that tasks run side by side, each on its own partition, or one task as a whole.

    `plan` is a template: `rota.wire.plans.binding` makes the plan of an attempt of it. `schema` is that of the output,
    and `upstream` are the stages whose outputs are read. `is_step`: the plan is a step of a stream's round
    (`rota.kinds.query.streams.steps`).
    """

    id: str
    plan: bytes
    output: Output
    schema: pa.Schema
    exchanges: tuple[Exchange, ...] = ()
    tasks: int = 1
    is_whole: bool = False
    upstream: tuple[str, ...] = ()
    is_step: bool = False
