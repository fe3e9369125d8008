"""Stages: what a query is cut into."""

import pyarrow as pa
from msgspec import Struct

from rota.core.model import Pairs
from rota.wire.queries import Exchange, Output


class Stage(Struct, frozen=True, kw_only=True):
    """A part of a plan that tasks run side by side, each on its own partition, or one task as a whole.

    `plan` is a template: `rota.wire.plans.binding` makes the plan of an attempt of it. `schema` is that of the output,
    and `upstream` are the stages whose outputs are read. `is_step`: the plan is a step of a stream's round
    (`rota.kinds.query.streams.steps`). `is_logical`: the plan is a logical one, for a worker to plan; `physical` is how
    it was planned here, if that can be encoded, and tells which files are read. `settings` are the
    engine's, where the session has changed them. `alone` says why one task does what there are several partitions for;
    "" if it does not.
    """

    id: str
    plan: bytes
    output: Output
    schema: pa.Schema
    exchanges: tuple[Exchange, ...] = ()
    tasks: int = 1
    is_whole: bool = False
    alone: str = ""
    upstream: tuple[str, ...] = ()
    is_step: bool = False
    is_logical: bool = False
    physical: bytes = b""
    settings: Pairs = ()
