"""The timeline: what was done when, on one scale, from what is known of each task."""

from hypothesis import given
from hypothesis import strategies as st

from rota.core.states import RunState
from rota.core.sums import TaskSum
from rota.ui.phases import Phase
from rota.ui.timeline import Lane, Scale, lane_of
from tests.unit.ui.views import run_view

BEGIN = 1_000_000


def scale(now: int = BEGIN + 10_000, state: RunState = RunState.RUNNING, ended_at: int = 0) -> Scale:
    return Scale(run_view(state=state, created_at=BEGIN, ended_at=ended_at), now, [])


def sorts(lane: Lane) -> list[tuple[str, float, float]]:
    return [(part.sort, part.x, part.x + part.width) for part in lane.parts]


def test_waiting_starting_and_running_are_parts_of_one_row():
    told = TaskSum({"success": 1}, BEGIN + 1_000, BEGIN + 2_000, BEGIN + 3_000, BEGIN + 5_000, 1)
    lane = lane_of("a", told, scale())
    assert sorts(lane) == [("queue", 10, 20), ("start", 20, 30), ("run", 30, 50)]
    assert (lane.took, lane.state, lane.parts[-1].state) == ("2.0 s", "success", "success")


def test_what_goes_on_reaches_to_now():
    running = lane_of("a", TaskSum({"running": 1}, BEGIN, BEGIN, BEGIN + 4_000), scale())
    assert sorts(running)[-1] == ("run", 40, 100)
    assert running.parts[-1].title.endswith("and goes on")
    waiting = lane_of("a", TaskSum({"queued": 1}, BEGIN + 5_000), scale())
    assert sorts(waiting) == [("queue", 50, 100)]


def test_what_never_began_has_no_parts():
    assert lane_of("a", TaskSum({"upstream_failed": 1}, ended_at=BEGIN + 5), scale()).parts == []
    assert lane_of("a", TaskSum({"none": 1}), scale()).parts == []


def test_an_ended_run_ends_the_scale():
    over = scale(now=BEGIN + 99_999_999, state=RunState.SUCCESS, ended_at=BEGIN + 2_000)
    assert over.long_ms == 2_000


def test_an_action_tells_of_fetching_and_uploading_by_its_own_clock():
    ahead = 3_600_000
    phases = (
        Phase("fetch", BEGIN + ahead + 3_000, BEGIN + ahead + 4_000),
        Phase("run", BEGIN + ahead + 4_000, BEGIN + ahead + 8_000),
        Phase("upload", BEGIN + ahead + 8_000, BEGIN + ahead + 9_000),
    )
    told = TaskSum({"success": 1}, BEGIN + 1_000, BEGIN + 2_000, BEGIN + 3_000, BEGIN + 9_000, 1)
    assert sorts(lane_of("a", told, scale(), phases)) == [
        ("queue", 10, 20),
        ("start", 20, 30),
        ("fetch", 30, 40),
        ("run", 40, 80),
        ("upload", 80, 90),
    ]


@given(st.integers(1, 10**11))
def test_a_scale_has_a_few_ticks_and_all_are_on_it(long_ms: int):
    ticks = scale(now=BEGIN + long_ms).ticks()
    assert 1 <= len(ticks) <= 13
    assert all(0 <= tick.x <= 100 for tick in ticks)


@given(
    st.lists(st.integers(0, 20_000), min_size=4, max_size=4),
    st.sampled_from(["success", "running", "queued", "failed"]),
)
def test_parts_never_leave_the_scale_whatever_the_instants(at: list[int], state: str):
    told = TaskSum({state: 1}, *(BEGIN - 2_000 + each if each else 0 for each in at))
    for _, start, end in sorts(lane_of("a", told, scale())):
        assert 0 <= start <= end <= 100 + 1e-9
