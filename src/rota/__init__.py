"""Rota: a durable, fenced scheduler."""

__version__ = "0.1.0"
