"""`python -m bench [NAME]`: run the benchmarks, write bench/results/latest.json, mark what falls short."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from bench import (
    agents,
    bazel,
    builds,
    core,
    embedded,
    etcd,
    machines,
    pages,
    postgres,
    queries,
    runners,
    service,
    sessions,
    simulator,
    sqlite,
    streams,
    workflows,
)
from bench.rig import Row

BENCHES: dict[str, Callable[[], Iterator[Row]]] = {
    "place": core.place_and_launch,
    "lifecycles": core.lifecycles,
    "large_graph": core.large_graph,
    "dispatch": core.dispatch,
    "memory": core.memory,
    "simulator": simulator.speed,
    "runners": runners.round_trips,
    "sqlite": sqlite.lifecycles,
    "sqlite_rebuild": sqlite.rebuild,
    "etcd": etcd.lifecycles,
    "etcd_commits": etcd.commits,
    "etcd_rebuild": etcd.rebuild,
    "postgres": postgres.commits,
    "embedded": embedded.hops,
    "starts": embedded.starts,
    "service": service.throughput,
    "service_latency": service.latency,
    "service_enqueue": service.enqueue,
    "service_idle": service.idle,
    "workflows": workflows.latency,
    "minutely": workflows.minutely,
    "responsive": workflows.responsive,
    "build_content": builds.content,
    "build_actions": builds.actions,
    "build_beside": builds.beside,
    "agents": agents.cycles,
    "agent_wakes": sessions.wakes,
    "agent_claims": sessions.claims,
    "agent_idle": sessions.idle,
    "build_bazel": bazel.against_local,
    "queries": queries.tpch,
    "queries_little": queries.little,
    "pages": pages.large_runs,
    "streams": streams.throughput,
    "streams_latency": streams.latency,
    "machines": machines.throughput,
    "standby": machines.standby,
    "failover": machines.failover,
}
RESULTS = Path(__file__).parent / "results" / "latest.json"


def main() -> int:
    """Run what was asked for, or everything."""
    names = sys.argv[1:] or list(BENCHES)
    rows: list[Row] = []
    for name in names:
        for row in BENCHES[name]():
            rows.append(row)
            mark = "  " if row.is_reached else "✗ "
            sys.stderr.write(
                f"{mark}{row.name}: {row.value:g} {row.unit} (reach {row.reach:g}), {row.cpu_us_per_unit:.1f} µs CPU"
                f"{'; ' + row.note if row.note else ''}\n"
            )
    text = msgspec.json.format(msgspec.json.encode(rows), indent=1).decode() + "\n"
    if not sys.argv[1:]:
        RESULTS.parent.mkdir(exist_ok=True)
        RESULTS.write_text(text, encoding="utf-8")
    sys.stdout.write(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
