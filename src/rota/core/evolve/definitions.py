"""What changes about graphs, queues, pools, schedules and receipts do to the state."""

from copy import copy

from rota.core import changes as ch
from rota.core.bounds import RECEIPTS_KEPT_MS
from rota.core.graph import LiveGraph, graph_pool
from rota.core.ids import GraphDigest, Millis
from rota.core.records import GraphRecord, Receipt
from rota.core.state import State


def queue_put(state: State, change: ch.QueuePut) -> None:
    state.put_queue(change.queue)
    state.touched.puts[("Queue", change.queue.tenant, change.queue.name)] = change.queue


def pool_put(state: State, change: ch.PoolPut) -> None:
    state.put_pool(change.pool, change.at)
    state.touched.drops.pop(("Pool", change.pool.tenant, change.pool.name), None)
    state.touched.puts[("Pool", change.pool.tenant, change.pool.name)] = change.pool


def pool_dropped(state: State, change: ch.PoolDropped) -> None:
    state.forget_pool((change.tenant, change.name))
    state.touched.puts.pop(("Pool", change.tenant, change.name), None)
    state.touched.drops[("Pool", change.tenant, change.name)] = None


def tenant_put(state: State, change: ch.TenantPut) -> None:
    state.put_tenant(change.tenant)
    state.touched.puts[("Tenant", change.tenant.tenant)] = change.tenant


def graph_put(state: State, change: ch.GraphPut) -> None:
    prepared = state.prepared_graph(change.tenant, change.graph)
    if prepared is not None and prepared.live.digest == change.digest:
        # As it would be laid out here; a live graph belongs to one state, so it is used once.
        graph, state.prepared = prepared.live, None
        graph.put_at = change.at
    else:
        graph = LiveGraph(change.tenant, change.digest, change.graph, change.at)
    has_versions = (change.tenant, graph_pool(change.graph.name)) in state.pools
    state.put_graph(graph, change.at)
    if has_versions and change.graph.max_active_tasks:
        cap_again(state, graph)
    key = ("GraphRecord", change.tenant, change.digest)
    state.touched.drops.pop(key, None)
    state.touched.puts[key] = GraphRecord(change.tenant, change.digest, change.graph, change.at)


def graph_dropped(state: State, change: ch.GraphDropped) -> None:
    graph = state.graphs.pop((change.tenant, change.digest))
    leave_buckets(state, graph)
    if graph.graph.max_active_tasks:
        cap_again(state, graph)
    state.drop_timer("graph", change.tenant, change.digest)
    key = ("GraphRecord", change.tenant, change.digest)
    state.touched.puts.pop(key, None)
    state.touched.drops[key] = None


def cap_again(state: State, graph: LiveGraph) -> None:
    """A version with a limit came or went: of those that have one the newest counts, as it would after loading."""
    left = [
        other
        for other in state.graphs.values()
        if (other.tenant, other.graph.name) == (graph.tenant, graph.graph.name) and other.graph.max_active_tasks
    ]
    if not left:
        state.forget_pool((graph.tenant, graph_pool(graph.graph.name)))
        return
    newest = max(left, key=lambda other: (other.put_at, other.digest))
    state.cap_tasks(newest, newest.put_at)


def leave_graph(state: State, tenant: str, digest: GraphDigest, at: Millis) -> None:
    graph = state.graphs[(tenant, digest)]
    graph.users -= 1
    if not graph.users:
        state.set_timer(at + state.limits.retain_ended_ms, "graph", tenant, digest)


def leave_buckets(state: State, graph: LiveGraph) -> None:
    for bucket in graph.buckets:
        if bucket is not None:
            bucket.users -= 1
            if not bucket.users and not bucket.live:
                state.forget_bucket(bucket)


def schedule_put(state: State, change: ch.SchedulePut) -> None:
    schedule = copy(change.schedule)
    key = (schedule.tenant, schedule.id)
    old = state.schedules.get(key)
    state.schedules[key] = schedule
    state.graphs[(schedule.tenant, schedule.graph)].users += 1
    if old is not None:
        leave_graph(state, old.tenant, old.graph, change.at)
    state.set_timer(0, "schedule", *key)
    state.touched.drops.pop(("Schedule", *key), None)
    state.touched.puts[("Schedule", *key)] = schedule


def schedule_advanced(state: State, change: ch.ScheduleAdvanced) -> None:
    key = (change.tenant, change.schedule)
    schedule = state.schedules[key]
    schedule.cursor = change.cursor
    schedule.fired += change.fired
    schedule.missed += change.missed
    state.decided["create_run"] += change.fired
    state.decided["missed_slot"] += change.missed
    state.touched.puts[("Schedule", *key)] = schedule


def schedule_dropped(state: State, change: ch.ScheduleDropped) -> None:
    key = (change.tenant, change.schedule)
    schedule = state.schedules.pop(key)
    leave_graph(state, schedule.tenant, schedule.graph, change.at)
    state.drop_timer("schedule", *key)
    state.touched.puts.pop(("Schedule", *key), None)
    state.touched.drops[("Schedule", *key)] = None


def command_recorded(state: State, change: ch.CommandRecorded) -> None:
    if change.receipt is not None:
        keep_receipt(state, change.receipt)
    if change.audit is not None:
        state.touched.audits.append(change.audit)


def keep_receipt(state: State, receipt: Receipt) -> None:
    key = (receipt.tenant, receipt.command_id)
    state.receipts[key] = receipt
    state.receipts.move_to_end(key)
    state.set_timer(receipt.at + RECEIPTS_KEPT_MS, "receipts")
    state.touched.drops.pop(("Receipt", *key), None)
    state.touched.puts[("Receipt", *key)] = receipt


def receipt_dropped(state: State, change: ch.ReceiptDropped) -> None:
    key = (change.tenant, change.command_id)
    state.receipts.pop(key, None)
    state.touched.puts.pop(("Receipt", *key), None)
    state.touched.drops[("Receipt", *key)] = None


def pause_put(state: State, change: ch.PausePut) -> None:
    state.put_pause(change.pause)
    state.touched.puts[("Pause", change.pause.tenant, change.pause.scope)] = change.pause
