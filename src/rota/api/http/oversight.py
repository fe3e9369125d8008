"""Shares of tenants, and who asked for what, over HTTP."""

from msgspec import Struct
from starlette.responses import Response

from rota.api.auth import Role
from rota.api.http.endpoints import Call, Endpoint, reply
from rota.api.http.paging import check_page, next_link, read_number
from rota.core.commands import PutTenant
from rota.core.history import AuditsPage, ListAudits
from rota.core.model import Tenant
from rota.core.records import Audit
from rota.wire.views import as_plain, shape_of

AUDIT = "/api/v1/audit"
TENANTS = "/api/v1/tenants"

AuditShape = shape_of(Audit)
TenantShape = shape_of(Tenant)


class AuditQuery(Struct, frozen=True, kw_only=True):
    """`after` is what `next` of the page before said."""

    limit: int = 100
    after: str = ""


class AuditAnswer(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Who asked for what, the newest first; and from where to go on, empty at the end."""

    audits: list[AuditShape]  # pyright: ignore[reportInvalidTypeForm] - made from the record's own fields
    next: str


class TenantsAnswer(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Tenants that were given a weight, or that have runs."""

    tenants: list[TenantShape]  # pyright: ignore[reportInvalidTypeForm] - made from the tenant's own fields


class TenantBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How large a share the tenant has."""

    weight: int


async def list_audits(call: Call) -> Response:
    """A page of them."""
    query: AuditQuery = call.query
    check_page(query.limit)
    question = ListAudits(tenant=call.tenant, before=read_number(query.after), limit=query.limit)
    page: AuditsPage = await call.client.ask(question)
    place = str(page.next) if page.next else ""
    headers = next_link(AUDIT, [("limit", query.limit), ("after", place)])
    return reply({"audits": [as_plain(each) for each in page.audits], "next": place}, headers=headers)


async def list_tenants(call: Call) -> Response:
    """All of them."""
    return reply({"tenants": [as_plain(each) for each in await call.client.tenants()]})


async def put_tenant(call: Call) -> Response:
    """Give it its share."""
    made = Tenant(tenant=call.path["tenant"], weight=call.body.weight)
    await call.do(PutTenant, tenant=made.tenant, weight=made.weight)
    return reply(made)


ENDPOINTS: tuple[Endpoint, ...] = (
    Endpoint(
        method="GET",
        path=AUDIT,
        role=Role.ADMIN,
        serve=list_audits,
        summary="List who asked for what, the newest first",
        query=AuditQuery,
        answer=AuditAnswer,
    ),
    Endpoint(
        method="GET",
        path=TENANTS,
        role=Role.ADMIN,
        of_all_tenants=True,
        serve=list_tenants,
        summary="List tenants and their shares",
        answer=TenantsAnswer,
    ),
    Endpoint(
        method="PUT",
        path=f"{TENANTS}/{{tenant}}",
        role=Role.ADMIN,
        of_all_tenants=True,
        serve=put_tenant,
        summary="Give a tenant its share",
        body=TenantBody,
        answer=TenantShape,
    ),
)
