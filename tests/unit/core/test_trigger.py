"""Trigger rules: Airflow 3's verdict for every pair of upstreams, setups and teardowns, and stability."""

from itertools import combinations_with_replacement, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.core.states import TERMINAL, TaskState
from rota.core.trigger import SetupCounts, TriggerRule, Verdict, evaluate_counts, evaluate_trigger_rule

# One letter per upstream: success, failed, sKipped, upstream_failed, Active.
STATE = {
    "S": TaskState.SUCCESS,
    "F": TaskState.FAILED,
    "K": TaskState.SKIPPED,
    "U": TaskState.UPSTREAM_FAILED,
    "A": TaskState.RUNNING,
}
VERDICT = {"R": Verdict.SCHEDULE, "W": Verdict.WAIT, "K": Verdict.SKIP, "U": Verdict.UPSTREAM_FAILED}

TABLE = """
                             SS SF SK SU SA FF FK FU FA KK KU KA UU UA AA
all_success                   R  U  K  U  W  U  U  U  U  K  U  K  U  U  W
all_failed                    K  K  K  K  K  R  K  R  W  K  K  K  R  W  W
all_done                      R  R  R  R  W  R  R  R  W  R  R  W  R  W  W
all_skipped                   K  K  K  K  K  K  K  K  K  R  K  W  K  K  W
one_success                   R  R  R  R  R  U  U  U  W  K  U  W  U  W  W
one_failed                    K  R  K  R  W  R  R  R  R  K  R  W  R  R  W
one_done                      R  R  R  R  R  R  R  R  R  K  K  W  K  W  W
none_failed                   R  U  R  U  W  U  U  U  U  R  U  W  U  U  W
none_failed_min_one_success   R  U  R  U  W  U  U  U  U  K  U  W  U  U  W
none_skipped                  R  R  K  R  W  R  K  R  W  K  K  K  R  W  W
always                        R  R  R  R  R  R  R  R  R  R  R  R  R  R  R
all_done_min_one_success      R  R  K  R  W  U  K  U  W  K  K  K  U  W  W
all_done_setup_success        R  R  R  R  W  R  R  R  W  R  R  W  R  W  W
"""

ROWS = [line.split() for line in TABLE.strip().splitlines()[1:]]
PAIRS = TABLE.strip().splitlines()[0].split()
CELLS = [(rule, pair, mark) for rule, *marks in ROWS for pair, mark in zip(PAIRS, marks, strict=True)]

ACTIVE = [state for state in TaskState if state not in TERMINAL]
ENDS = sorted(TERMINAL)
Moments = tuple[list[TaskState], list[TaskState]]

FINAL_RULES = [rule for rule in TriggerRule if rule is not TriggerRule.ALL_SUCCESS]
ORDINARY_RULES = [rule for rule in TriggerRule if rule is not TriggerRule.ALL_DONE_SETUP_SUCCESS]

states = st.lists(st.sampled_from(TaskState), max_size=6)


def let_end(now: list[TaskState], ends: list[TaskState], which: list[bool]) -> list[TaskState]:
    """Some of the active ones end, each somehow; what has ended stays."""
    return [end if goes and state not in TERMINAL else state for state, end, goes in zip(now, ends, which, strict=True)]


@st.composite
def before_and_after(draw: st.DrawFn, size_min: int = 0) -> Moments:
    before = draw(st.lists(st.sampled_from(TaskState), min_size=size_min, max_size=6))
    ends = draw(st.lists(st.sampled_from(ENDS), min_size=len(before), max_size=len(before)))
    which = draw(st.lists(st.booleans(), min_size=len(before), max_size=len(before)))
    return before, let_end(before, ends, which)


def judge(rule: str, upstreams: str, setups: str = "", sources: str = "") -> Verdict:
    return evaluate_trigger_rule(
        TriggerRule(rule),
        [STATE[letter] for letter in upstreams],
        setup_states=[STATE[letter] for letter in setups],
        source_states=[STATE[letter] for letter in sources],
    )


def test_the_table_has_every_rule_and_every_pair():
    assert [rule for rule, *_ in ROWS] == [rule.value for rule in TriggerRule]
    assert ["".join(pair) for pair in combinations_with_replacement("SFKUA", 2)] == PAIRS
    assert len(CELLS) == 15 * 13


@pytest.mark.parametrize(("rule", "pair", "mark"), CELLS)
def test_two_upstreams_are_judged_as_airflow_judges_them(rule: str, pair: str, mark: str):
    assert judge(rule, pair) is VERDICT[mark]
    assert judge(rule, pair[::-1]) is VERDICT[mark], "the order of upstreams means nothing"


@pytest.mark.parametrize(("rule", "pair", "mark"), [cell for cell in CELLS if cell[1][0] == cell[1][1]])
def test_one_upstream_is_judged_like_two_that_agree(rule: str, pair: str, mark: str):
    assert judge(rule, pair[0]) is VERDICT[mark]
    assert judge(rule, pair[0] * 5) is VERDICT[mark]


@pytest.mark.parametrize("rule", TriggerRule)
def test_a_root_is_scheduled_whatever_its_rule(rule: TriggerRule):
    assert evaluate_trigger_rule(rule, []) is Verdict.SCHEDULE
    assert evaluate_counts(rule, 0, 0, 0, 0, 0, None) is Verdict.SCHEDULE


@pytest.mark.parametrize("rule", TriggerRule)
def test_a_cancelled_upstream_counts_as_failed(rule: TriggerRule):
    for other in STATE.values():
        cancelled = evaluate_trigger_rule(rule, [TaskState.CANCELLED, other])
        assert cancelled is evaluate_trigger_rule(rule, [TaskState.FAILED, other])


@pytest.mark.parametrize("active", ACTIVE)
@pytest.mark.parametrize("rule", TriggerRule)
def test_whatever_has_not_ended_counts_as_active(rule: TriggerRule, active: TaskState):
    for other in STATE.values():
        assert evaluate_trigger_rule(rule, [active, other]) is evaluate_trigger_rule(rule, [TaskState.RUNNING, other])


def test_a_task_that_needs_attention_or_another_try_is_waited_for():
    for held in (TaskState.NEEDS_ATTENTION, TaskState.UP_FOR_RETRY, TaskState.UP_FOR_RESCHEDULE):
        assert evaluate_trigger_rule(TriggerRule.ALL_SUCCESS, [held]) is Verdict.WAIT
        assert evaluate_trigger_rule(TriggerRule.ALL_DONE, [held, TaskState.SUCCESS]) is Verdict.WAIT


def test_an_unknown_rule_is_not_waited_for_for_ever():
    with pytest.raises(ValueError, match="most_success"):
        TriggerRule("most_success")


# Teardowns: the upstreams, the setups among them, the verdict.
TEARDOWNS = """
S   S   R    the setup succeeded
SF  S   R    the setup succeeded and the work failed: clean up
SK  S   R    likewise when the work was skipped
SU  S   R    or never ran
SA  S   W    the work still uses the resource
F   F   U    nothing was set up
FU  F   U    nothing was set up, so nothing ran
U   U   U    the setup's own upstream failed
K   K   K    nothing was to be set up
KK  K   K    and nothing ran
KS  K   K    even if other work did
SF  SF  R    one of two setups succeeded
SK  SK  R    likewise
FK  FK  U    none succeeded, one of them by failing
KK  KK  K    all skipped
KA  KA  W    one setup may still succeed
FA  F   W    the setup failed but work still runs
F   -   R    a teardown without setups runs when all is done
A   -   W    and not before
"""


@pytest.mark.parametrize("row", [line.split(maxsplit=3) for line in TEARDOWNS.strip().splitlines()], ids=" ".join)
def test_a_teardown_runs_if_a_setup_left_something_to_tear_down(row: list[str]):
    upstreams, setups, mark, _ = row
    assert judge("all_done_setup_success", upstreams, setups.strip("-")) is VERDICT[mark]


# Ordinary tasks under indirect setups: rule, upstreams, indirect setups, verdict.
UNDER_SETUPS = """
all_success  S  S   R   the setup succeeded
all_success  S  A   W   the rule is satisfied, the setup is not there yet
all_success  A  S   W   the other way round
all_done     F  S   R   the rule alone decides
all_done     U  F   U   all_done does not outrank a failed setup
all_done     U  U   U   nor one that was never run
all_done     K  K   K   nor a skipped one
all_done     A  F   U   and it is not waited for
all_done     S  FA  U   nor are other setups
all_done     S  KA  K   likewise
all_done     S  FK  U   a failure outweighs a skip
all_done     S  SSA W   every relevant setup is waited for
all_success  F  A   U   the rule may give up before the setups have ended
all_success  K  A   K   likewise
one_success  SA A   W   even an eager rule waits for its resource
one_success  SA S   R   and is eager again once it is there
one_failed   F  F   U   a failed setup is not what one_failed hopes for
all_skipped  S  F   U   a failed setup outweighs the rule's skip
none_failed  F  K   K   a skipped setup outweighs the rule's failure
always       A  F   R   always means always
always       A  A   R   likewise
"""


@pytest.mark.parametrize("row", [line.split(maxsplit=4) for line in UNDER_SETUPS.strip().splitlines()], ids=" ".join)
def test_an_indirect_setup_that_did_not_succeed_outweighs_the_rule(row: list[str]):
    rule, upstreams, setups, mark, _ = row
    assert judge(rule, upstreams, setups) is VERDICT[mark]


# Mapped tasks: rule, upstreams, those of them whose output they are mapped over, verdict.
MAPPED = """
all_success  S   S   R   there is a list
all_done     F   F   U   there is none
all_done     U   U   U   nor will there be
all_done     K   K   K   nor was there to be
all_failed   F   F   U   no rule makes up for it
one_failed   FA  F   U   and nothing else is waited for
all_skipped  K   K   K   likewise
always       A   A   W   even always waits for the list
always       SA  S   R   but for nothing else
one_success  SA  SA  W   the list is all of what several tasks gave
all_done     SF  SF  R   some of them gave something
all_done     SK  SK  R   likewise
all_done     FK  FK  U   none did, and a failure outweighs a skip
none_failed  KK  KK  K   all of them were skipped
none_failed  KF  K   U   the rule's own failure outweighs the skip
all_failed   SF  F   U   a source that failed outweighs the rule's skip
all_success  FA  A   U   the rule may give up before there is a list
"""


@pytest.mark.parametrize("row", [line.split(maxsplit=4) for line in MAPPED.strip().splitlines()], ids=" ".join)
def test_a_mapped_task_shares_the_fate_of_what_it_is_mapped_over(row: list[str]):
    rule, upstreams, sources, mark, _ = row
    assert judge(rule, upstreams, sources=sources) is VERDICT[mark]


@given(rule=st.sampled_from(TriggerRule), ended=st.lists(st.sampled_from(ENDS), min_size=1), share=st.integers(1, 6))
def test_a_mapped_task_runs_only_if_its_rule_lets_it_and_its_source_gave_something(
    rule: TriggerRule, ended: list[TaskState], share: int
):
    plain = evaluate_trigger_rule(rule, ended)
    mapped = evaluate_trigger_rule(rule, ended, source_states=ended[:share])
    if TaskState.SUCCESS in ended[:share]:
        assert mapped is plain
    else:
        is_skipped = set(ended[:share]) == {TaskState.SKIPPED} and plain is not Verdict.UPSTREAM_FAILED
        assert mapped is (Verdict.SKIP if is_skipped else Verdict.UPSTREAM_FAILED)


@given(rule=st.sampled_from(TriggerRule), time=before_and_after(size_min=1), share=st.integers(1, 6))
def test_of_a_mapped_task_running_or_not_running_is_never_contradicted(rule: TriggerRule, time: Moments, share: int):
    before, after = (evaluate_trigger_rule(rule, moment, source_states=moment[:share]) for moment in time)
    if before is Verdict.SCHEDULE:
        assert after is Verdict.SCHEDULE
    elif before is not Verdict.WAIT:
        assert after in (Verdict.SKIP, Verdict.UPSTREAM_FAILED)


def test_a_cancelled_setup_counts_as_failed():
    verdict = evaluate_trigger_rule(
        TriggerRule.ALL_DONE, [TaskState.SUCCESS], setup_states=[TaskState.CANCELLED, TaskState.SUCCESS]
    )
    assert verdict is Verdict.UPSTREAM_FAILED


@given(rule=st.sampled_from(TriggerRule), upstreams=states)
def test_counts_and_states_get_the_same_verdict(rule: TriggerRule, upstreams: list[TaskState]):
    verdict = evaluate_counts(
        rule,
        len(upstreams),
        upstreams.count(TaskState.SUCCESS),
        upstreams.count(TaskState.FAILED) + upstreams.count(TaskState.CANCELLED),
        upstreams.count(TaskState.SKIPPED),
        upstreams.count(TaskState.UPSTREAM_FAILED),
        None,
    )
    assert verdict is evaluate_trigger_rule(rule, upstreams)
    assert verdict is evaluate_trigger_rule(rule, upstreams[::-1])


@pytest.mark.parametrize("rule", TriggerRule)
def test_setups_that_are_none_or_all_successful_leave_the_rule_alone(rule: TriggerRule):
    for counts in product(range(3), repeat=4):
        plain = evaluate_counts(rule, 4, *counts)
        assert evaluate_counts(rule, 4, *counts, SetupCounts(total=0, success=0, failed=0, skipped=0)) is plain
        assert evaluate_counts(rule, 4, *counts, SetupCounts(total=2, success=2, failed=0, skipped=0)) is plain


# How a verdict may change while upstreams end. Waiting may become anything; nothing becomes waiting.


@given(rule=st.sampled_from(FINAL_RULES), time=before_and_after())
def test_a_verdict_of_twelve_rules_is_final(rule: TriggerRule, time: Moments):
    before, after = time
    verdict = evaluate_trigger_rule(rule, before)
    if verdict is not Verdict.WAIT:
        assert evaluate_trigger_rule(rule, after) is verdict


@given(time=before_and_after())
def test_all_success_may_only_correct_a_skip_to_an_upstream_failure(time: Moments):
    before, after = (evaluate_trigger_rule(TriggerRule.ALL_SUCCESS, moment) for moment in time)
    assert before in (Verdict.WAIT, after) or (before, after) == (Verdict.SKIP, Verdict.UPSTREAM_FAILED)


@given(rule=st.sampled_from(ORDINARY_RULES), time=before_and_after(), setup_time=before_and_after())
def test_under_setups_running_or_not_running_is_never_contradicted(
    rule: TriggerRule,
    time: Moments,
    setup_time: Moments,
):
    before = evaluate_trigger_rule(rule, time[0], setup_states=setup_time[0])
    after = evaluate_trigger_rule(rule, time[1], setup_states=setup_time[1])
    if before is Verdict.SCHEDULE:
        assert after is Verdict.SCHEDULE
    elif before is not Verdict.WAIT:
        assert after in (Verdict.SKIP, Verdict.UPSTREAM_FAILED)


@given(time=before_and_after(size_min=1), share=st.integers(0, 6))
def test_a_teardowns_verdict_is_final(time: Moments, share: int):
    before, after = (
        evaluate_trigger_rule(TriggerRule.ALL_DONE_SETUP_SUCCESS, moment, setup_states=moment[:share])
        for moment in time
    )
    assert before in (Verdict.WAIT, after)


@given(rule=st.sampled_from(TriggerRule), ended=st.lists(st.sampled_from(ENDS), max_size=6), share=st.integers(0, 6))
def test_no_rule_waits_once_everything_has_ended(rule: TriggerRule, ended: list[TaskState], share: int):
    assert evaluate_trigger_rule(rule, ended, setup_states=ended[:share]) is not Verdict.WAIT
