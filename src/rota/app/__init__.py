"""The composition root: the one place that names concrete stores, runners and ways in."""

from rota.app.embedded import DEFAULT_FOLDER, AsyncRota, Rota

__all__ = ["DEFAULT_FOLDER", "AsyncRota", "Rota", "connect"]

connect = Rota.connect
