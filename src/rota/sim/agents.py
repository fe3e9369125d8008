"""Pull workers of the simulated world: agent sessions, which ask for everything themselves."""

from collections.abc import Callable

from rota.core.commands import BeatWorker, ClaimTask, Outcome, RegisterWorker, RenewLease, Report
from rota.core.decide.leases import Judgement, Offer
from rota.core.errors import Refused
from rota.core.ids import CommandId, Fence, Incarnation, Millis, TaskId, WorkerId
from rota.core.model import Capacity, FailureClass
from rota.sim.babble import babble
from rota.sim.faults import Mix
from rota.sim.network import Network
from rota.sim.nodes import CoordinatorNode, Node
from rota.sim.scripts import conclude, lasting_ms
from rota.sim.world import World
from rota.worker.sync import AttemptOver

# How long a session waits or listens for a wake after a claim that found nothing.
PATIENCE_MS: tuple[Millis, ...] = (5_000, 20_000)


class PullWorker(Node):
    """An agent session: it registers, claims, renews and reports by requests, each retried until answered.

    After a claim that found nothing it asks again soon, or waits in the claim for a wake, or only listens for one.
    """

    def __init__(
        self,
        world: World,
        name: str,
        mix: Mix,
        network: Network,
        coordinators: list[CoordinatorNode],
        capacity: Capacity,
    ) -> None:
        super().__init__(world, name, mix)
        self.capacity = capacity
        self.chance_of_waiting = world.chance(f"waits of {name}")
        # Until when it does nothing but beat, unless it is woken.
        self.quiet_until: Millis = 0
        # Whether it listens and never claims.
        self.is_unwilling = False
        self.network = network
        self.coordinators = coordinators
        self.lease_ms = mix.limits.lease_ms * 2
        self.chance = world.chance(f"pull {name}")
        self.chance_of_words = world.chance(f"words of {name}")
        self.chance_of_lies = world.chance(f"lies of {name}")
        self.babble = mix.babble
        self.lies = mix.lying_agents
        # The others, of whom a liar speaks.
        self.others: list[PullWorker] = []
        self.is_registered = False
        self.offer: Offer | None = None
        self.claim_id = self.held_claim = 0
        # Each time it claims it makes a secret up. What it holds, it holds under the one that was heard of last.
        self.secrets = 0
        self.token = ""
        self.result: AttemptOver | None = None
        self._target = 0
        self._waiting = 0
        self.concluded: dict[Fence, None] = {}
        self.deaths: dict[str, Millis] = {}
        self.vanishes = 0
        self.on_claim: Callable[[str, Offer], None] = _ignore
        self.on_vanish: Callable[[PullWorker, int], None] = _ignore

    @property
    def incarnation(self) -> str:
        """Each process is one."""
        return f"{self.name}.{self.life}"

    def crash(self) -> None:
        """The session and its work are gone."""
        self.deaths[self.incarnation] = self.world.now
        super().crash()
        self.is_registered = False
        self.offer = self.result = None

    def hear_wake(self) -> None:
        """A coordinator says that there is work: it is asked for at once."""
        self.deliver(self.life, self._wake_up)

    def _wake_up(self) -> None:
        if self.is_unwilling:
            self.world.note("unwilling_agents")
        elif self.offer is None:
            self.world.note("woken")
            self.quiet_until = 0
            self.wake_by(self.clock())

    def holds_work(self) -> bool:
        """Whether something is lost if this process stops now."""
        return self.offer is not None

    def restart(self) -> None:
        """A new session under the same name."""
        super().restart()
        self._waiting = self.quiet_until = 0
        self.wake_by(self.clock())

    def woke(self) -> None:
        """Do the next thing; ask again if nobody answered."""
        self.wake_by(self.clock() + 700 + self.chance.randrange(600))
        if self.lies and self.chance_of_lies.randrange(1000) < self.lies:
            self._lie()
        if not self.is_registered:
            self._ask(
                RegisterWorker(
                    tenant="shared",
                    worker=WorkerId(self.name),
                    incarnation=Incarnation(self.incarnation),
                    capacity=self.capacity,
                ),
                self._registered,
            )
        elif self.offer is not None and not self.token:
            self._claim(self.held_claim)
        elif self.result is not None and self.offer is not None:
            self._report(self.offer, self.result)
        elif self.offer is not None:
            self._ask(
                RenewLease(
                    tenant="shared",
                    worker=WorkerId(self.name),
                    incarnation=Incarnation(self.incarnation),
                    fence=self.offer.fence,
                    lease_ms=self.lease_ms,
                    token_hash=self.token,
                ),
                self._renewed,
            )
        elif self.is_unwilling or self.quiet_until > self.clock():
            beat = BeatWorker(tenant="shared", worker=WorkerId(self.name), incarnation=Incarnation(self.incarnation))
            self._ask(beat, self._heard)
        else:
            self._claim(self.claim_id)

    def _claim(self, number: int) -> None:
        """Ask for work; or, under the same id, for another secret to what it has."""
        self.secrets += 1
        token = f"{self.incarnation} {self.secrets}"
        way = self.chance_of_waiting.randrange(4)
        patience_ms = self.chance_of_waiting.choice(PATIENCE_MS)
        self.quiet_until = 0

        def claimed(value: object, detail: object) -> None:
            if value == "" and way > 1:
                self.quiet_until = self.clock() + patience_ms
            self._claimed(number, token, value, detail)

        self._ask(
            ClaimTask(
                tenant="shared",
                command_id=CommandId(f"{self.incarnation}.{number}"),
                worker=WorkerId(self.name),
                incarnation=Incarnation(self.incarnation),
                lease_ms=self.lease_ms,
                wait_ms=patience_ms if way == 2 else 0,
                token_hash=token,
            ),
            claimed,
        )

    def _lie(self) -> None:
        """Say of another's work that it is done, knowing everything about it but its secret."""
        victim = self.chance_of_lies.choice(self.others) if self.others else None
        if victim is None or victim.offer is None or victim is self:
            return
        self.world.note("lying_agents")
        coordinator = self.coordinators[self._target % len(self.coordinators)]
        forged = victim.report_of(victim.offer, AttemptOver(victim.offer.fence, Outcome.SUCCESS), "made up")
        self.network.send(self.name, coordinator.name, coordinator.ask, self.name, forged, _ignore)

    def _ask(self, command: object, then: Callable[[object, object], None]) -> None:
        life = self.life
        self._waiting += 1
        number = self._waiting

        def reply(value: object, detail: object) -> None:
            if number == self._waiting:
                self.deliver(life, then, value, detail)

        coordinator = self.coordinators[self._target % len(self.coordinators)]
        self._target += 1
        self.network.send(self.name, coordinator.name, coordinator.ask, self.name, command, reply)

    def _heard(self, value: object, detail: object) -> None:
        del detail
        if isinstance(value, Refused):
            self.is_registered = False

    def _registered(self, value: object, detail: object) -> None:
        self.is_registered = isinstance(value, str) and detail is None

    def _claimed(self, number: int, token: str, value: object, detail: object) -> None:
        if isinstance(value, Refused) and value.code == "worker.unknown":
            self.is_registered = False
        if isinstance(value, Refused) and value.code == "lease.expired":
            self.offer = self.result = None
        if number == self.claim_id and isinstance(value, str | Refused):
            self.claim_id += 1
        if isinstance(detail, Offer) and self.offer is not None and detail.fence == self.offer.fence:
            self.token = token
        elif isinstance(value, str) and isinstance(detail, Offer):
            self.offer = detail
            self.token = token
            self.held_claim = number
            self.on_claim(self.name, detail)
            takes_ms = lasting_ms(detail)
            self.world.after(takes_ms, self.deliver, self.life, self._done, detail.fence)
            if self.vanishes:
                draw, self.vanishes = self.vanishes, 0
                self.world.after(draw % (min(takes_ms, self.lease_ms) + 500), self.on_vanish, self, draw)

    def _done(self, fence: Fence) -> None:
        if self.offer is not None and self.offer.fence == fence:
            self.concluded[fence] = None
            self.result = conclude(self.offer, self.chance.getrandbits(64), self.clock())
            if self.chance_of_words.randrange(1000) < self.babble:
                self.world.note("babble")
                self.result = babble(self.result, self.chance_of_words, self.world.note)

    def _renewed(self, value: object, detail: object) -> None:
        if isinstance(value, Refused) and value.code in ("lease.lost", "lease.foreign"):
            self.offer = self.result = None
        if isinstance(value, Refused) and value.code == "lease.token":
            self.world.note("token_void")
            self.token = ""

    def _report(self, offer: Offer, over: AttemptOver) -> None:
        self._ask(self.report_of(offer, over, self.token), self._reported)

    def report_of(self, offer: Offer, over: AttemptOver, token: str) -> Report:
        """The word of this session on an attempt."""
        return Report(
            tenant=offer.tenant,
            run=offer.run,
            task=offer.task,
            worker_tenant="shared",
            worker=WorkerId(self.name),
            incarnation=Incarnation(self.incarnation),
            fence=offer.fence,
            outcome=over.outcome,
            salt=over.salt,
            result=over.result,
            failure=over.failure,
            error=over.error,
            resume_at=over.resume_at,
            expands=tuple((TaskId(name), width) for name, width in over.expands),
            lost=tuple(map(TaskId, over.lost)),
            skips=tuple(map(TaskId, over.skips)),
            token_hash=token,
            grows=over.grows,
        )

    def _reported(self, value: object, detail: object) -> None:
        if isinstance(value, Refused) and self.result is not None:
            # Nobody can take this result; that is a failure, and it is for the session to say so.
            self.world.note("agent_told_to_shorten")
            error = self.result.error or str(value)
            self.result = AttemptOver(
                self.result.fence, Outcome.FAILED, failure=FailureClass.FATAL, error=error, salt=self.result.salt
            )
        if value == Judgement.WRONG_TOKEN:
            # Another claim of its own, on its way for long, has made it void.
            self.world.note("token_void")
            self.token = ""
        elif isinstance(value, str):
            self.offer = self.result = None


def _ignore(*seen: object) -> None:
    """Nobody watches."""
