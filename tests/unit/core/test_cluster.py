"""Which worker belongs to which cluster: the rules of both sides, as tables."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.core.cluster import CLUSTER_PATTERN, check_coordinator, check_worker, cluster_id
from tests.refusals import check_refusal

OWN, OTHER = cluster_id("own"), cluster_id("other")
NONE = ""


@given(st.text())
def test_a_cluster_id_has_the_form_that_the_setting_takes(identity: str):
    assert re.fullmatch(CLUSTER_PATTERN, cluster_id(identity))
    assert cluster_id(identity) == cluster_id(identity)


@pytest.mark.parametrize(
    ("named", "has_token", "is_refused"),
    [
        (OWN, True, False),
        (OWN, False, False),
        # A token is good for what it names; a worker that names another cluster was meant for that one.
        (OTHER, True, True),
        (OTHER, False, True),
        (NONE, True, False),
        (NONE, False, True),
    ],
)
def test_what_a_coordinator_makes_of_a_worker(named: str, has_token: bool, is_refused: bool):
    refused = check_worker(named, OWN, has_token=has_token)
    assert (refused is not None) == is_refused
    if refused is not None:
        check_refusal(refused, "worker.cluster", OWN, named, f"--cluster {OWN}")


@pytest.mark.parametrize(
    ("expected", "found", "is_refused"),
    [
        (OWN, OWN, False),
        (OWN, OTHER, True),
        # A coordinator of an older version: nothing proves that it is the right one.
        (OWN, NONE, True),
        (NONE, OTHER, False),
        (NONE, NONE, False),
    ],
)
def test_what_a_worker_makes_of_a_coordinator(expected: str, found: str, is_refused: bool):
    refused = check_coordinator(expected, found, "grpc://there:7433")
    assert (refused is not None) == is_refused
    if refused is not None:
        check_refusal(refused, "worker.cluster", expected, found, "grpc://there:7433")
