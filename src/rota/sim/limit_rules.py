"""Limits of workers, pools and graphs, checked when a commit that grants or starts something has become true."""

from rota.core.ids import Epoch, Millis, RunKey
from rota.core.model import Pool
from rota.core.states import RunState
from rota.sim.broken import Broken
from rota.sim.models import LeaseModel, Model, PoolUse


class LimitRules:
    """P-LIMIT and P-RATE."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.capacity: dict[str, int] = {}
        self.pools: dict[tuple[str, str], Pool] = {}
        self.tokens: dict[tuple[str, str], tuple[int, Millis, Epoch]] = {}

    def check_active_runs(self, run: RunKey) -> None:
        """P-LIMIT: a graph has no more active runs than it may. Those of backfills are not among them."""
        graph = self.model.graph(run)
        if graph is not None and graph.max_active_runs and not self.model.rows[run].backfill:
            name = self.model.names[run]
            active = sum(
                state is RunState.RUNNING and self.model.names[other] == name and not self.model.rows[other].backfill
                for other, state in self.model.runs.items()
            )
            if active > graph.max_active_runs:
                raise Broken(f"P-LIMIT: graph {name} has {active} active runs of {graph.max_active_runs}")

    def pools_of(self, run: RunKey, task: int) -> tuple[PoolUse, ...]:
        """What a task takes from which pools while it is leased; the cap of a graph's tasks is one of them."""
        spec, graph = self.model.spec(run, task), self.model.graph(run)
        if spec is None or graph is None:
            return ()
        uses = tuple((need.pool, need.key, need.amount) for need in spec.pools)
        if graph.max_active_tasks:
            name = f"@graph/{graph.name}"
            self.pools[(run[0], name)] = Pool(tenant=run[0], name=name, slots=graph.max_active_tasks)
            uses += ((name, "", 1),)
        return tuple((f"{run[0]}/{pool}", key, amount) for pool, key, amount in uses)

    def spend_tokens(self, tenant: str, pools: tuple[PoolUse, ...], at: Millis) -> None:
        """P-RATE: a pool's rate holds, across coordinators too (clocks permitting)."""
        for name, _, _ in pools:
            pool = self.pools.get((tenant, name.partition("/")[2]))
            if pool is None or not pool.starts_per_minute or self.model.mix.skew_ms or self.model.mix.clock_step:
                continue
            tokens, since, epoch = self.tokens.get((tenant, name), (pool.burst * 60_000, at, self.model.epoch))
            tokens = min(pool.burst * 60_000, tokens + max(0, at - since) * pool.starts_per_minute)
            if tokens < 60_000 and epoch == self.model.epoch:
                raise Broken(f"P-RATE: pool {name} let a start through with {tokens / 60_000:.2f} tokens")
            self.tokens[(tenant, name)] = (tokens - 60_000, at, self.model.epoch)

    def check_lease(self, granted: LeaseModel) -> None:
        """P-LIMIT: what a new lease uses is within its limits; a pool made smaller only lets nothing new in."""
        leases = [*self.model.live.values(), *(lease for lease, _ in self.model.revoked.values())]
        held = sum(lease.worker == granted.worker for lease in leases)
        if held > self.capacity.get(granted.worker, 1 << 30):
            raise Broken(f"P-LIMIT: worker {granted.worker} was given {held} of {self.capacity[granted.worker]} leases")
        for name, key, _ in granted.pools:
            tenant, _, pool_name = name.partition("/")
            pool = self.pools.get((tenant, pool_name))
            if pool is None:
                continue
            uses = [use for lease in leases for use in lease.pools if use[0] == name]
            in_all = sum(amount for _, _, amount in uses)
            for_key = sum(amount for _, used, amount in uses if key and used == key)
            if (pool.slots and in_all > pool.slots) or (pool.slots_per_key and for_key > pool.slots_per_key):
                raise Broken(f"P-LIMIT: pool {name} has {in_all} of {pool.slots} taken, {for_key} for key {key!r}")
