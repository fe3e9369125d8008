"""Tests of a group share a process: what they share is slow to make."""

import os

import pytest


@pytest.mark.xdist_group("shared")
def test_whoever_deals_tests_to_processes_knows_which_belong_together(request: pytest.FixtureRequest) -> None:
    if "PYTEST_XDIST_WORKER" in os.environ:
        assert request.node.nodeid.endswith("@shared"), "pytest and xdist do not understand each other"
