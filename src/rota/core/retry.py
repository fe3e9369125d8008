"""Trying again: which failures deserve it, how often, and how soon."""

from rota.core.bounds import SERVICE_RETRIES, TASK_RETRIES
from rota.core.ids import Millis
from rota.core.model import FailureClass, Queue, RetryPolicy

JOB_RETRIES = Queue(tenant="", name="").max_job_retries
# Failures that are not the task's fault.
_FAULTLESS = (FailureClass.INTERNAL, FailureClass.UNAVAILABLE)
# How soon what is not the task's fault is tried again: an outage should be over before its tries are.
INTERNAL_DELAY_MS = 1_000
INTERNAL_DELAY_MS_MAX = 60_000


def retries_allowed(
    policy: RetryPolicy, failure: FailureClass, service: int = TASK_RETRIES, of_queue: int = JOB_RETRIES
) -> int:
    """How many retries a class of failure has. What the user did not set apart counts as the user's own errors.

    `service` is for tasks that leave the number to whoever runs the service; `of_queue` is how many the task's queue
    gives to what is nobody's fault.
    """
    if failure is FailureClass.FATAL:
        return 0
    if failure in _FAULTLESS:
        return of_queue if policy.internal_retries is None else policy.internal_retries
    if failure is FailureClass.TIMEOUT and policy.timeout_retries is not None:
        return policy.timeout_retries
    if failure is FailureClass.OUT_OF_MEMORY and policy.memory_retries is not None:
        return policy.memory_retries
    return service if policy.retries == SERVICE_RETRIES else policy.retries


def may_retry(
    policy: RetryPolicy,
    failure: FailureClass,
    tries: int,
    service: int = TASK_RETRIES,
    of_queue: int = JOB_RETRIES,
) -> bool:
    """Whether an attempt that was try number `tries` (from 1) may be followed by another."""
    return tries <= retries_allowed(policy, failure, service, of_queue)


def retry_delay_ms(policy: RetryPolicy, failure: FailureClass, tries: int, draw: int) -> Millis:
    """How long to wait after try number `tries`: doubled, tripled … up to the cap, plus up to a tenth by chance.

    What is not the task's fault waits at least a second, doubling, whatever its author chose: without that a short
    outage, such as of the place for results, would use up every try. `draw` is the chance, derived from the command's
    salt, so that a thousand tasks that failed together do not come back together.
    """
    delay = _grown(policy.delay_ms, policy.multiplier, policy.delay_ms_max, tries)
    delay_ms_max = policy.delay_ms_max
    if failure in _FAULTLESS:
        delay = max(delay, _grown(INTERNAL_DELAY_MS, 2, INTERNAL_DELAY_MS_MAX, tries))
        delay_ms_max = max(delay_ms_max, INTERNAL_DELAY_MS_MAX)
    if policy.jitter and delay:
        delay = min(delay + draw % (delay // 10 + 1), max(delay_ms_max, delay))
    return delay


def _grown(delay: Millis, multiplier: int, delay_ms_max: Millis, tries: int) -> Millis:
    for _ in range(tries - 1):
        if delay >= delay_ms_max or multiplier == 1:
            break
        delay *= multiplier
    return min(delay, delay_ms_max)
