"""What a worker is: found out about the machine, said in the configuration, or asked of a command.

What is configured beats what was found. Numbers are those that this process may use, not those of the machine: a
container with two processors of sixty-four has two.
"""

import os
import platform
import socket
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from rota.core.bounds import PROPERTY_VALUES_MAX
from rota.core.errors import Refused
from rota.core.graph import check_id, check_number, check_text
from rota.core.model import Pairs

QUERY_S_MAX = 10
Values = str | int | Sequence[str | int]

_FAMILIES = {"Linux": "linux", "Darwin": "macos", "Windows": "windows"}
_UNLIMITED = 1 << 60


def describe(
    configured: Mapping[str, Values] | None = None,
    commands: Mapping[str, Sequence[str]] | None = None,
    root: Path = Path("/"),
) -> Pairs:
    """Everything that a worker advertises. A command is run once, and each line it prints is a value."""
    found = {name: [value] for name, value in detect(root).items()}
    for name, values in (configured or {}).items():
        found[name] = _listed(values)
    for name, argv in (commands or {}).items():
        if name in (configured or {}):
            raise Refused("field.value", f"{name!r} is set, and asked of a command too", path=f"properties.{name}")
        found[name] = query(name, argv)
    pairs = tuple((name, value) for name, values in found.items() for value in values)
    check_number(len(pairs), 0, PROPERTY_VALUES_MAX, "properties")
    for name, value in pairs:
        check_id(name, "properties")
        check_text(value, f"properties.{name}")
    return pairs


def _listed(values: Values) -> list[str]:
    return [str(values)] if isinstance(values, str | int) else [str(value) for value in values]


def query(name: str, argv: Sequence[str]) -> list[str]:
    """The values that a command gives for a property. Refused if it fails: a worker must not claim less than it is."""
    path = f"property_commands.{name}"
    if not argv:
        raise Refused("field.value", f"the command for the property {name!r} has no words", path=path)
    try:
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=QUERY_S_MAX, check=False)  # noqa: S603 - the operator's own command
    except subprocess.TimeoutExpired:
        why = f"takes longer than {QUERY_S_MAX} s"
    except OSError as error:
        why = f"cannot be run: {error.strerror}"
    else:
        if done.returncode == 0:
            return [line.strip() for line in done.stdout.decode(errors="replace").splitlines() if line.strip()]
        said = done.stderr.decode(errors="replace").strip().splitlines()
        why = f"ended with code {done.returncode}" + (f": {said[-1][:200]}" if said else "")
    raise Refused("field.value", f"the command for the property {name!r} ({argv[0]}) {why}", path=path)


def detect(root: Path = Path("/")) -> dict[str, str]:
    """What can be found out about this machine; below another `root` for tests."""
    found = {
        "cpu_count": str(cpu_count(root)),
        "memory_kb": str(memory_kb(root)),
        "cpu_arch": platform.machine(),
        "OSFamily": _FAMILIES.get(platform.system(), platform.system().lower()),
        "hostname": socket.gethostname(),
    }
    count, kind = gpus(root)
    if count:
        found["gpu_count"] = str(count)
        found["gpu"] = kind
    return {name: value for name, value in found.items() if value}


def cpu_count(root: Path = Path("/")) -> int:
    """How many processors this process may use: of those it is bound to, as many as its control group pays for."""
    bound = len(os.sched_getaffinity(0))
    quotas = [max(1, -(-quota // period)) for quota, period in _quotas(root) if quota > 0 and period > 0]
    return min([bound, *quotas])


def memory_kb(root: Path = Path("/")) -> int:
    """How much memory there is for this process: the machine's, or what its control group may have."""
    limits = list(_numbers(root, "memory", "memory.max", "memory.limit_in_bytes"))
    lines = _read(root / "proc/meminfo").splitlines()
    limits += [int(line.split()[1]) * 1_024 for line in lines if line.startswith("MemTotal:")]
    return min(limits, default=0) // 1_024


def gpus(root: Path = Path("/")) -> tuple[int, str]:
    """How many graphics processors that can compute are visible, and what they are called."""
    names = [
        line.partition(":")[2].strip()
        for place in sorted((root / "proc/driver/nvidia/gpus").glob("*/information"))
        for line in _read(place).splitlines()
        if line.startswith("Model:")
    ]
    if not names:
        # In a container the driver's own folder may be missing. A display alone (/dev/dri) does not compute.
        names = ["nvidia" for device in (root / "dev").glob("nvidia[0-9]*") if device.name[6:].isdigit()]
    return len(names), names[0] if names else ""


# Control groups. A limit of any group above ours holds for us too.


def _quotas(root: Path) -> Iterator[tuple[int, int]]:
    for folder in _groups(root, "cpu"):
        match _read(folder / "cpu.max").split():
            case [quota, period] if quota.isdigit() and period.isdigit():
                yield int(quota), int(period)
            case _:
                pass
        quota, period = _read(folder / "cpu.cfs_quota_us").strip(), _read(folder / "cpu.cfs_period_us").strip()
        if quota.isdigit() and period.isdigit():
            yield int(quota), int(period)


def _numbers(root: Path, controller: str, *names: str) -> Iterator[int]:
    for folder in _groups(root, controller):
        for name in names:
            text = _read(folder / name).strip()
            # The old kind says "no limit" with a number that no machine has.
            if text.isdigit() and int(text) < _UNLIMITED:
                yield int(text)


def _groups(root: Path, controller: str) -> Iterator[Path]:
    """The folders of our control group and of those above it, of either version."""
    for line in _read(root / "proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if not controllers:
            mounts = [root / "sys/fs/cgroup", root / "sys/fs/cgroup/unified"]
        elif controller in controllers.split(","):
            mounts = [root / "sys/fs/cgroup" / controller, root / "sys/fs/cgroup" / controllers]
        else:
            continue
        for mount in mounts:
            place = mount / path.strip("/")
            while place != mount.parent:
                yield place
                place = place.parent


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
