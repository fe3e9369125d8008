"""Clients: errands that are repeated until they are answered."""

from collections.abc import Callable

from msgspec import Struct

from rota.core.commands import ClientCommand, DropSchedule, PutSchedule, SubmitRun
from rota.core.errors import Refused, Unavailable
from rota.core.ids import CommandId, Millis
from rota.core.tags import tag_of
from rota.sim.authors import Authors
from rota.sim.broken import Broken
from rota.sim.builds import draw_burst
from rota.sim.caretaker import Caretaker
from rota.sim.items import draw_items
from rota.sim.stage import Stage
from rota.sim.trials import Trial, draw_growing, draw_mapped, draw_sensor, draw_trial
from rota.sim.workload import TENANTS, definitions, draw_lure, draw_meddling, draw_schedule, draw_submission

RETRY_MS: Millis = 1_500
DROP_SCHEDULE_MS: Millis = 3_000


class Errand(Struct):
    """A command that a client repeats until it is answered, perhaps not content with "that id is in use"."""

    command: ClientCommand
    answered: bool = False
    waits_for_id: bool = False
    # When it was first sent, and what it was first answered.
    asked_at: Millis = 0
    answer: object = None


class Clients:
    """Everybody who sends commands. `on_answer` sees the first answer to each, and when it was first asked for."""

    def __init__(self, stage: Stage, on_answer: Callable[[ClientCommand, object, Millis], None]) -> None:
        self.stage = stage
        self.world = stage.world
        self.mix = stage.mix
        self.on_answer = on_answer
        self.errands: list[Errand] = []
        self.submitted: list[SubmitRun] = []
        self.authors = Authors(stage, self._send)
        self.caretaker = Caretaker(stage, self._send)
        self._target = 0

    def plan(self) -> None:
        """Draw what is asked for during the storm."""
        chance = self.world.chance("work")
        for tenant in TENANTS:
            for command in definitions(tenant):
                self._send(command, 0)
        for number in range(self.mix.runs):
            poison = bool(self.mix.commit_refused) and chance.random() < 0.2
            submission = draw_submission(chance, number, poison=poison, agents=bool(self.mix.pull_workers))
            self.world.after(2_000 + chance.randrange(self.mix.storm_ms), self.submit, submission)
        for number in range(self.mix.vanish if self.mix.pull_workers else 0):
            lure = draw_lure(self.world.chance("lures"), number)
            self.world.after(1_500 + self.world.chance("lures").randrange(self.mix.storm_ms), self.submit, lure)
        for number in range(self.mix.trials):
            self._plan_trial(draw_trial(self.world.chance("trials"), number, self.mix))
        for number in range(self.mix.builds):
            begin_ms = 2_000 + self.world.chance("builds").randrange(self.mix.storm_ms)
            for delay_ms, command in draw_burst(self.world.chance("builds"), number):
                send = self.submit if isinstance(command, SubmitRun) else self._ask
                self.world.after(begin_ms + delay_ms, send, command)
        for number in range(self.mix.items if self.mix.pull_workers else 0):
            begin_ms = 2_000 + self.world.chance("items").randrange(self.mix.storm_ms)
            for delay_ms, command in draw_items(self.world.chance("items"), number, self.world.now + begin_ms):
                send = self.submit if isinstance(command, SubmitRun) else self._ask
                self.world.after(begin_ms + delay_ms, send, command)
        for number in range(chance.choice((0, 0, 1, 2))):
            self._send(draw_schedule(chance, number), 2_500 + chance.randrange(3_000))
        for number in range(chance.randrange(self.mix.runs)):
            self.world.after(5_000 + chance.randrange(self.mix.storm_ms), self._meddle, number)
        self.authors.plan()
        for number in range(self.mix.trials):
            growing = self.world.chance("growing")
            submission, clearing = draw_growing(growing, number)
            begin_ms = 2_000 + growing.randrange(self.mix.storm_ms)
            self.world.after(begin_ms, self.submit, submission)
            self.world.after(begin_ms + growing.choice((1_000, 3_000, 8_000)), self._ask, clearing)
            mapping = self.world.chance("mapping")
            mapped = draw_mapped(mapping, number)
            self.world.after(2_000 + mapping.randrange(self.mix.storm_ms), self.submit, mapped)
            sensing = self.world.chance("sensing")
            sensor = draw_sensor(sensing, number)
            self.world.after(2_000 + sensing.randrange(self.mix.storm_ms), self.submit, sensor)

    def _plan_trial(self, trial: Trial) -> None:
        begin_ms = 2_000 + self.world.chance("trials").randrange(self.mix.storm_ms)
        for delay_ms, submission in trial.submissions:
            self.world.after(begin_ms + delay_ms, self.submit, submission)
        if trial.again is not None:
            errand = Errand(trial.again, waits_for_id=True)
            self.errands.append(errand)
            self.world.after(begin_ms + RETRY_MS, self._use_again, trial.submissions[0][1], errand)

    def _use_again(self, first: SubmitRun, errand: Errand) -> None:
        """Ask for an id that was used before; not before its first use was answered, or the two would be exchanged."""
        if any(other.command is first and other.answered for other in self.errands):
            self._run_errand(errand)
        else:
            self.world.after(RETRY_MS, self._use_again, first, errand)

    def submit(self, submission: SubmitRun) -> None:
        """Submit a run and ask until it is answered."""
        self.submitted.append(submission)
        self._send(submission, 0)

    def _ask(self, command: ClientCommand) -> None:
        self._send(command, 0)

    def unanswered(self) -> list[ClientCommand]:
        """What nobody has answered yet."""
        return [errand.command for errand in self.errands if not errand.answered]

    def wind_down(self) -> None:
        """The storm is over: no schedule fires any more, and an operator looks after what is stuck."""
        for errand in list(self.errands):
            command = errand.command
            if isinstance(command, PutSchedule):
                name = f"drop {command.command_id}"
                drop = DropSchedule(tenant=command.tenant, command_id=CommandId(name), schedule=command.schedule)
                self._send(drop, DROP_SCHEDULE_MS)
        self.caretaker.tidy_up()

    def _meddle(self, number: int) -> None:
        command = draw_meddling(self.world.chance("meddling"), number, self.submitted, self.mix.push_workers)
        if command is not None:
            self._send(command, 0)

    # Errands.

    def _send(self, command: ClientCommand, delay_ms: Millis) -> None:
        errand = Errand(command)
        self.errands.append(errand)
        self.world.note(tag_of(command))
        self.world.after(delay_ms, self._run_errand, errand)

    def _run_errand(self, errand: Errand) -> None:
        if errand.answered:
            return
        errand.asked_at = errand.asked_at or self.world.now
        self._target += 1
        coordinator = self.stage.coordinators[self._target % len(self.stage.coordinators)]

        def reply(value: object, detail: object) -> None:
            del detail
            if errand.waits_for_id and isinstance(value, Refused) and value.code == "run.exists":
                self.world.note("id_in_use")
                return
            if not errand.answered and not isinstance(value, Unavailable):
                errand.answered = True
                errand.answer = value
                self.on_answer(errand.command, value, errand.asked_at)
            elif isinstance(errand.command, SubmitRun) and _is_another(errand.answer, value):
                raise Broken(f"P-REPEAT: {errand.command.run} was answered {errand.answer}, and then {value}")

        self.stage.network.send("client", coordinator.name, coordinator.ask, "client", errand.command, reply)
        self.world.after(RETRY_MS, self._run_errand, errand)


def _is_another(first: object, value: object) -> bool:
    """What was refused may be accepted later, but one run does not become another."""
    return isinstance(first, str) and isinstance(value, str) and first != value
