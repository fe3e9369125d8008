"""What is chosen for a worker that was told nothing."""

import os
from pathlib import Path

import pytest

from rota.app.working import Working


def test_a_worker_has_a_slot_for_each_processor_that_it_may_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0})
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    assert Working(folder=tmp_path).slots_in_all == 1
    assert Working(folder=tmp_path, slots=5).slots_in_all == 5
