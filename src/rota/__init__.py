"""Rota: a durable, fenced scheduler."""

from rota.running import Context, Fail, Reschedule, Skip, context

__version__ = "0.1.0"
__all__ = ["Context", "Fail", "Reschedule", "Skip", "__version__", "context"]
