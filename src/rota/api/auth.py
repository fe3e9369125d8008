"""Who asks, and what they may."""

from enum import StrEnum

from msgspec import Struct

from rota.core.errors import Refused


class Role(StrEnum):
    """What a caller may do."""

    READER = "reader"
    WRITER = "writer"
    ADMIN = "admin"
    WORKER = "worker"


class Principal(Struct, frozen=True):
    """Whoever asks: under what name, in which role, for which tenant (`*` for any)."""

    name: str
    role: Role
    tenant: str

    def check(self, request: object) -> None:
        """Refuse what this caller may not ask."""
        tenant = getattr(request, "tenant", self.tenant)
        if self.tenant not in ("*", tenant):
            raise Refused("auth.tenant", f"you may not speak for tenant {tenant!r}", path="tenant")
