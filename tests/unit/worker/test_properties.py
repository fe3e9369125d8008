"""What a worker says of itself: found, configured, asked; within bounds, or refused."""

import os
import sys
from pathlib import Path

import pytest

from rota.core.demand import parse_quantity
from rota.core.errors import Refused
from rota.worker import properties
from rota.worker.properties import cpu_count, describe, detect, gpus, memory_kb, query
from tests.refusals import refused


def machine(root: Path, files: dict[str, str]) -> Path:
    """A machine made of files."""
    for name, text in {"proc/meminfo": "MemTotal:       8000000 kB\nMemFree: 1 kB\n", **files}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_this_machine_is_described() -> None:
    found = dict(describe())
    assert {"cpu_count", "memory_kb", "cpu_arch", "OSFamily", "hostname"} <= found.keys()
    assert found["OSFamily"] == "linux"
    assert 1 <= int(found["cpu_count"]) <= (os.cpu_count() or 1)
    for name in ("cpu_count", "memory_kb"):
        assert parse_quantity(found[name]), "queues count it"


@pytest.mark.parametrize(
    ("files", "count"),
    [
        ({}, 8),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "max 100000\n"}, 8),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "200000 100000\n"}, 2),
        ({"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/cpu.max": "150000 100000\n"}, 2),
        ({"proc/self/cgroup": "0::/a\n", "sys/fs/cgroup/a/cpu.max": "10000 100000\n"}, 1),
        (
            {
                "proc/self/cgroup": "4:cpu,cpuacct:/box\n",
                "sys/fs/cgroup/cpu,cpuacct/box/cpu.cfs_quota_us": "300000\n",
                "sys/fs/cgroup/cpu,cpuacct/box/cpu.cfs_period_us": "100000\n",
            },
            3,
        ),
        (
            {
                "proc/self/cgroup": "4:cpu:/\n",
                "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n",
                "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
            },
            8,
        ),
    ],
    ids=["none", "no limit", "two", "a group above", "a tenth", "the old kind", "the old kind without limit"],
)
def test_processors_are_those_that_may_be_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: dict[str, str], count: int
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    assert cpu_count(machine(tmp_path, files)) == count


@pytest.mark.parametrize(
    ("files", "expected_kb"),
    [
        ({}, 8_000_000),
        ({"proc/self/cgroup": "0::/x\n", "sys/fs/cgroup/x/memory.max": "max\n"}, 8_000_000),
        ({"proc/self/cgroup": "0::/x\n", "sys/fs/cgroup/x/memory.max": "1048576\n"}, 1_024),
        (
            {"proc/self/cgroup": "9:memory:/\n", "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n"},
            8_000_000,
        ),
        ({"proc/self/cgroup": "9:memory:/\n", "sys/fs/cgroup/memory/memory.limit_in_bytes": "2097152\n"}, 2_048),
    ],
)
def test_memory_is_what_may_be_used(tmp_path: Path, files: dict[str, str], expected_kb: int) -> None:
    assert memory_kb(machine(tmp_path, files)) == expected_kb


def test_graphics_processors_that_compute_are_counted(tmp_path: Path) -> None:
    assert gpus(machine(tmp_path, {"dev/dri/card0": "", "dev/nvidiactl": ""})) == (0, "")
    assert "gpu_count" not in detect(tmp_path)
    assert gpus(machine(tmp_path, {"dev/nvidia0": "", "dev/nvidia1": "", "dev/nvidia-uvm": ""})) == (2, "nvidia")
    machine(tmp_path, {"proc/driver/nvidia/gpus/0000:01/information": "Model: \t\t NVIDIA T4\nIRQ: 5\n"})
    assert gpus(tmp_path) == (1, "NVIDIA T4")
    assert detect(tmp_path)["gpu"] == "NVIDIA T4"


def test_what_is_configured_beats_what_was_found_and_may_have_many_values() -> None:
    found = describe({"cpu_count": 3, "isa": ["sse", "avx"], "zone": "eu"})
    assert [value for name, value in found if name == "cpu_count"] == ["3"]
    assert [value for name, value in found if name == "isa"] == ["sse", "avx"]
    assert ("zone", "eu") in found


def test_a_command_is_asked_once_and_each_line_is_a_value() -> None:
    found = describe(commands={"disk": [sys.executable, "-c", "print('ssd\\n\\n  nvme ')"]})
    assert [value for name, value in found if name == "disk"] == ["ssd", "nvme"]
    assert query("nothing", ["true"]) == []


@pytest.mark.parametrize(
    ("argv", "reason"),
    [
        ([], "has no words"),
        (["no-such-program"], "No such file"),
        ([sys.executable, "-c", "import sys; sys.exit('no licence')"], "ended with code 1: no licence"),
    ],
)
def test_a_command_that_fails_is_refused(argv: list[str], reason: str) -> None:
    with pytest.raises(Refused, match=reason) as refused:
        query("licence", argv)
    assert refused.value.path == "property_commands.licence"


def test_a_command_that_does_not_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(properties, "QUERY_S_MAX", 0.05)
    with pytest.raises(Refused, match="takes longer"):
        query("slow", ["sleep", "1000"])


@pytest.mark.parametrize(
    "configured",
    [{"": "x"}, {"x" * 300: "y"}, {"x": "y" * 2_000}, {"many": [str(number) for number in range(300)]}],
    ids=["no name", "a long name", "a long value", "too many"],
)
def test_what_is_out_of_bounds_is_refused(configured: dict[str, str | list[str]]) -> None:
    with pytest.raises(Refused):
        describe(configured)


def test_a_property_is_set_or_asked_and_not_both() -> None:
    with refused("field.value", "'x'", path="properties.x"):
        describe({"x": "1"}, {"x": ["true"]})
