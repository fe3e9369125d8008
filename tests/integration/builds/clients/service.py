"""A service with a front end for builds, as its clients see it."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import rota
from rota.core.questions import RunView
from tests.integration.deadlines import is_running, until
from tests.integration.service.stage import Process, Stage
from tests.servers.ports import free_port

# Long enough for whatever else this machine is busy with: a worker that is killed comes back under the same name.
LEASE_S = 20
SLOTS = 4
_BUILDS = "rota: builds: "
# What nobody asks for is given up while a test waits for that.
QUEUE = """
[queues.builds]
unservable = "fail"
client_action_timeout_ms = 3000
worker_timeout_ms = 5000
properties = {cpu_count = "minimum", qubits = "exact"}
"""
# Actions that tell a test what they do have to see its folder.
UNWALLED = '[worker]\nbuild_sandbox = "none"\n'
# And what no worker could ever do fails; only where a worker is there from the beginning.
IMPATIENT = "unservable_ms = 500\n"


class Service:
    """One coordinator, a worker and a front end, together or apart."""

    def __init__(self, stage: Stage, settings: str = "") -> None:
        self.stage = stage
        self.port = free_port()
        (stage.folder / "rota.toml").write_text(f"{QUEUE}{settings}")
        self._numbers = count(1)
        self._client: rota.Rota | None = None

    @property
    def executor(self) -> str:
        return f"--remote_executor=grpc://127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def new_instance(self) -> str:
        """A name under which nothing is cached. What is under a slash belongs to it."""
        return f"--remote_instance_name=team/number/{next(self._numbers)}"

    # Processes.

    def up(self, env: Mapping[str, str] | None = None) -> Process:
        """Everything, as `rota up` does it."""
        process = self.stage.start_up(f"--builds=127.0.0.1:{self.port}", f"--slots={SLOTS}", env=env)
        process.until_said(_BUILDS)
        return process

    def front_end(self, env: Mapping[str, str] | None = None) -> Process:
        """A front end by itself."""
        data = self.stage.folder / "builds"
        words = [f"--coordinator={self.stage.url}", f"--listen=127.0.0.1:{self.port}", f"--data={data}"]
        return self.stage.start("frontend", data, ["frontend", *words], env)

    def front_end_of(self, up: Process) -> int:
        """The process id of the front end beside a coordinator."""

        def look() -> int:
            return next((pid for pid in up.descendants() if _is_front_end(pid)), 0)

        return until(look, "a front end beside it")

    def kill_all(self, up: Process) -> None:
        """As if the machine had lost power: nothing of it runs any more when this returns."""
        family = up.descendants()
        up.kill()
        until(lambda: not any(map(is_running, family)), "everything that it had started to end")

    # What became of the actions.

    def client(self) -> rota.Rota:
        if self._client is None:
            self._client = self.stage.client()
        return self._client

    def runs(self, state: str = "") -> list[RunView]:
        """What is known of actions, the newest first."""
        return [view for view in self.client().runs(name="build", limit=10_000) if state in ("", str(view.state))]

    def until_some_are_done(self, how_many: int) -> None:
        """Wait for the middle of a build."""
        client = self.client()

        def look() -> bool:
            done = [view for view in client.runs(name="build", limit=10_000) if str(view.state) == "success"]
            return len(done) >= how_many

        until(look, f"{how_many} actions to be done", patience_s=90)


def _is_front_end(pid: int) -> bool:
    try:
        return re.search(rb"\0frontend\0", Path(f"/proc/{pid}/cmdline").read_bytes()) is not None
    except (FileNotFoundError, ProcessLookupError):
        return False


@contextmanager
def open_service(folder: Path, settings: str = "", env: Mapping[str, str] | None = None) -> Iterator[Service]:
    """One that leaves nothing behind."""
    stage = Stage(folder, env, lease_s=LEASE_S)
    try:
        yield Service(stage, settings)
    finally:
        stage.close()
