"""Physical plans of DataFusion, read, edited and written again. Needs the extra `query`.

Nothing here runs a plan, and only `checking` imports the engine (docs/decisions/0016-queries.md).
"""

from rota.wire.plans.code import has_code, has_sink, has_sink_of_files

__all__ = ["has_code", "has_sink", "has_sink_of_files"]
