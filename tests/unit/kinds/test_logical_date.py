"""`rota.logical_date()` as a default: which parameters may have it, and that a task gets what its context says."""

import inspect
from datetime import date, datetime
from typing import Annotated, Any, Literal
from zoneinfo import ZoneInfo

import pytest

import rota
from rota.core.errors import Refused
from rota.core.model import ParamType
from rota.testing import run_workflow
from tests.refusals import check_refusal, refused


@rota.task
def look(day: date, at: datetime, text: str) -> tuple[Any, ...]:
    about = rota.context().logical_date
    return (day, at, text), (about.date(), about, about.isoformat()), rota.context().params


def written(annotation: Any) -> rota.workflow:
    def flow(p=rota.logical_date()):
        use(p)

    flow.__annotations__ = {"p": annotation}
    return rota.workflow(flow)


@rota.task
def use(p: object) -> object:
    return p


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "America/New_York", "Pacific/Kiritimati"])
@pytest.mark.parametrize("about", ["2026-11-16", "2026-11-16T23:59", "2026-03-29T03:00", "2026-10-25T02:30", None])
def test_a_task_is_given_what_its_context_says(zone: str, about: str | None):
    @rota.workflow(timezone=zone)
    def flow(
        day: date = rota.logical_date(), at: datetime = rota.logical_date(), text: str = rota.logical_date()
    ) -> None:
        look(day, at, text)

    trial = run_workflow(flow, logical_date=about)
    given, expected, params = trial.results["look"]
    assert given == expected
    assert params == {"day": str(given[0]), "at": given[2], "text": given[2]}
    if about is not None:
        assert str(given[0]) == about[:10]


def test_a_value_that_is_given_counts_more():
    @rota.workflow
    def flow(day: date = rota.logical_date()) -> None:
        use(day)

    assert run_workflow(flow, {"day": date(2020, 2, 29)}).results == {"use": date(2020, 2, 29)}


@pytest.mark.parametrize(
    ("annotation", "kind"),
    [
        (date, ParamType.DATE),
        ("date", ParamType.DATE),
        (date | None, ParamType.DATE),
        (Annotated[date, rota.Param(doc="the day")], ParamType.DATE),
        (datetime, ParamType.DATETIME),
        (str, ParamType.STRING),
    ],
)
def test_days_instants_and_texts_may_be_the_logical_date(annotation: Any, kind: ParamType):
    (param,) = written(annotation).param_specs
    assert (param.type, param.default, param.is_required) == (kind, None, False)
    assert param.defaults_to_logical_date


@pytest.mark.parametrize(
    "annotation",
    [
        int,
        float,
        bool,
        list,
        dict,
        Any,
        inspect.Parameter.empty,
        date | str,
        Literal["2026-11-16"],
        Annotated[str, rota.Param(pattern="[0-9-]+")],
        Annotated[str, rota.Param(most=10)],
    ],
)
def test_anything_else_is_refused_where_it_is_written(annotation: Any):
    with pytest.raises(Refused) as caught:
        written(annotation)
    check_refusal(caught.value, "field.value", "'flow'", f"{__file__}:", path="params[0].default")


def test_a_task_has_no_logical_date_of_its_own():
    with refused("field.value", "'of_a_task'", f"{__file__}:", path="day"):

        @rota.task
        def of_a_task(day: date = rota.logical_date()) -> None: ...


@pytest.mark.parametrize("value", [rota.logical_date(), [rota.logical_date()], {"day": rota.logical_date()}])
def test_it_is_not_an_argument_of_a_task(value: Any):
    @rota.workflow
    def flow() -> None:
        use(value)

    with pytest.raises(TypeError, match=r"rota\.logical_date\(\)"):
        flow.build()


def test_a_workflow_that_is_called_as_a_function_is_about_now():
    found: list[Any] = []

    @rota.workflow(timezone="Asia/Tokyo")
    def flow(first: int, day: date = rota.logical_date(), at: datetime = rota.logical_date()) -> None:
        found.append((first, day, at))

    before = datetime.now(ZoneInfo("Asia/Tokyo"))
    flow(1)
    flow(2, date(2020, 1, 1), at=before)
    after = datetime.now(ZoneInfo("Asia/Tokyo"))
    assert before <= found[0][2] <= after
    assert found[0][1] in (before.date(), after.date())
    assert found[1] == (2, date(2020, 1, 1), before)
