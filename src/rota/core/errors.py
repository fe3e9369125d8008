"""The three families of trouble, and the table of codes.

`Refused`: the caller must change something. `Unavailable`: nobody's fault, try again. An assertion: our bug; stop, the
fence makes stopping safe. Codes are stable; the reference page documents each, and a test checks that it does.
"""

from typing import Final

CODES: Final[dict[str, str]] = {
    "action.unknown": "No result of that action is kept.",
    "attempt.unknown": "The task has had no such attempt.",
    "auth.exposed": "A coordinator would be open to other machines without asking who calls.",
    "auth.capability": "The token does not allow a session to offer that.",
    "auth.missing": "The call carries no token.",
    "auth.role": "The token's role does not allow this.",
    "auth.scope": "The token is bound to other workspaces or agents.",
    "auth.session": "The session of the browser has ended.",
    "auth.tenant": "The token is for another tenant.",
    "auth.wrong": "The token is not one that is accepted.",
    "backfill.exists": "A backfill or schedule with that id exists already.",
    "backfill.no_slots": "There is nothing to make up for between those instants.",
    "backfill.unknown": "There is no such backfill, or it is over.",
    "blobs.elsewhere": "The blobs belong to another coordinator.",
    "blob.lost": "A large value that was referred to is gone, or is not what it was.",
    "bundle.bad": "The bundle cannot be unpacked safely.",
    "bundle.digest": "The bundle is not what its digest says.",
    "bundle.file": "A file cannot be put into a bundle.",
    "bundle.size": "The bundle is larger than its limit.",
    "bundle.unknown": "The bundle that a graph names is not there.",
    "command.id_reused": "The command id was used before for another command.",
    "command.stale": "What was to be changed is not as it was when somebody decided to change it.",
    "config.file": "A file of settings cannot be read.",
    "config.secret": "A secret stands where others may read it.",
    "config.unknown": "There is no setting of that name.",
    "config.value": "A setting has a value that it cannot have.",
    "content.digest": "A digest, or the name of content, cannot be read.",
    "content.full": "There is no room for more content.",
    "content.incomplete": "Content that something else needs is not there.",
    "content.missing": "The content is not there.",
    "content.range": "The content does not reach that far.",
    "content.tree": "A directory, or a tree of them, cannot be used as it is.",
    "content.wrong": "The content is not what its digest says.",
    "deploy.broken": "Files cannot be deployed as they are.",
    "field.reserved": "A name is reserved for Rota.",
    "field.size": "A value is larger than its limit.",
    "field.type": "A value has the wrong type or an unknown field was sent.",
    "field.value": "A number or name is outside what is allowed.",
    "graph.cycle": "Tasks depend on each other in a circle.",
    "graph.duplicate_id": "Two tasks of a graph have the same id.",
    "graph.empty": "A graph has no tasks.",
    "graph.unknown": "No graph with that digest is known.",
    "graph.unknown_upstream": "A task names an upstream that does not exist.",
    "graph.width": "A task cannot be expanded, or not to that width.",
    "http.accept": "What is asked for cannot be given in that form.",
    "http.head_size": "The head of the request is too large.",
    "http.header": "A header is repeated or contradicts another one.",
    "http.host": "The request is meant for another host.",
    "http.json": "The body is not JSON.",
    "http.media_type": "The body has a type that is not read here.",
    "http.method": "The path does not take that method.",
    "http.form": "A form is not from a page that was made for its sender, or that page is too old.",
    "http.origin": "A page of another site may not ask here.",
    "http.path": "There is nothing at that path.",
    "http.request": "This is not HTTP as it should be.",
    "http.slow": "The request did not come to its end.",
    "instance.unknown": "There is no instance of that name.",
    "leader.elsewhere": "Another coordinator leads; ask it instead.",
    "leader.none": "Nobody leads at the moment.",
    "lease.ended": "The lease has ended with a different outcome.",
    "lease.expired": "What was claimed is not held any more.",
    "lease.foreign": "Another worker holds the lease.",
    "lease.held": "The worker holds as many leases as it may.",
    "lease.none": "Nobody holds a lease on this.",
    "lease.token": "The token is not that of the lease.",
    "lease.lost": "The attempt belongs to another lease now.",
    "listen.failed": "The address cannot be listened on.",
    "pool.too_small": "A task needs more of a pool than it has in all.",
    "pool.unknown": "A task names a pool that does not exist.",
    "protocol.version": "The two sides do not speak the same version of the protocol.",
    "query.column": "A column that the statement names is not there.",
    "query.engine": "The installed engine is not the one that plans are edited for.",
    "query.failed": "A query failed while it was planned or run.",
    "query.function": "A function that the statement calls is not there.",
    "query.function_failed": "A Python function of the query raised an error.",
    "query.memory": "A query needs more memory than its tasks have.",
    "query.parameter": "A parameter of a statement has no value, or a value has no parameter.",
    "query.source": "A file that a query reads is not there, cannot be read, or was changed.",
    "query.statement": "A prepared statement of that name is not there, or is there already.",
    "query.syntax": "A statement is not SQL that can be read.",
    "query.table": "A table that the statement names is not there.",
    "query.target": "A query cannot write there.",
    "query.type": "Values of these types do not go together.",
    "query.unstaged": "The query cannot be cut into stages, and was asked to be.",
    "query.unsupported": "The engine cannot do what the statement asks.",
    "queue.unknown": "A task or worker names a queue that does not exist.",
    "requirement.value": "A requirement cannot be compared the way its queue says.",
    "result.unreadable": "A result is in a form that cannot be opened here.",
    "result.untrusted": "A result is pickled, and this client does not trust its coordinator.",
    "run.approval": "The run does not wait for a person's approval.",
    "run.at_work": "Tasks of the run are at work, and that cannot be done meanwhile.",
    "run.busy": "The run is in the middle of a long cascade.",
    "run.ended": "The run has ended and cannot do that any more.",
    "run.exists": "A run with that id exists already.",
    "run.faulted": "The scheduler met an error of its own with this run and holds it.",
    "run.no_workflow": "The run is not of a deployed workflow.",
    "run.unknown": "No live run has that id.",
    "schedule.cron": "The cron expression cannot be read or never fires.",
    "schedule.interval": "The interval is too short or too long.",
    "schedule.policy": "The catch-up, misfire or cap settings contradict each other.",
    "schedule.unknown": "No schedule has that id.",
    "schedule.window": "The schedule ends before it starts.",
    "schedule.zone": "The time zone is not an IANA name this system knows.",
    "service.busy": "More is being served than there is room for.",
    "service.failed": "The service met an error of its own.",
    "session.foreign": "The session was registered with another token.",
    "session.workspace": "The session is of another workspace.",
    "session.required": "This is for sessions, and the call names none.",
    "store.corrupt": "What is stored can not be read, or is not what was written.",
    "store.denied": "The store does not let this user in, or not do that.",
    "store.engine": "The engine behind the store is too old, or not made for this.",
    "store.foreign": "What is there is not a store of Rota.",
    "store.full": "The store has no space left.",
    "store.held": "Another process uses the same data folder.",
    "store.lock_taken": "The lock of the store belongs to another program.",
    "store.missing": "There is no data where it was looked for.",
    "store.newer": "The data was written by a newer version of Rota.",
    "store.read_only": "The store can only be read.",
    "store.refused": "The store refused this very change.",
    "store.unavailable": "The store does not answer.",
    "stream.busy": "More is wanted of a stream than it may be asked for at once.",
    "stream.corrupt": "No round of a stream can be read any more.",
    "stream.definition": "A stream is not the one that its folder was made with.",
    "stream.failed": "A stream that has failed is asked to go on.",
    "stream.fenced": "Another incarnation of the stream has taken over.",
    "stream.folder": "The folder of a stream, or a file in it, cannot be read or written.",
    "stream.full": "More rows would wait in a stream for others than may.",
    "stream.row": "A row cannot be used, and the policy for such rows is to fail.",
    "stream.sink": "A sink refused the rows of a round.",
    "stream.source": "A source of a stream is not what it was.",
    "stream.unknown": "There is no stream, round or savepoint of that name.",
    "task.no_result": "The task has not succeeded, so there is nothing that it returned.",
    "task.not_parked": "The task is not waiting for attention.",
    "task.not_started": "The task has not been scheduled yet.",
    "task.not_waiting": "The task does not wait for another try.",
    "task.unknown": "The run has no such task.",
    "template.bad": "A template cannot be read, or reaches for what it must not have.",
    "tls.expired": "A certificate is not valid now.",
    "tls.files": "A certificate or key cannot be used.",
    "tls.handshake": "The two sides do not trust each other's certificates.",
    "worker.cluster": "The worker belongs to another cluster than the coordinator.",
    "worker.draining": "The worker takes no new work.",
    "worker.duplicate": "Another live process has the same worker identity.",
    "worker.held": "Another process uses the same worker folder.",
    "worker.run_as": "User code cannot be run as the user that was named.",
    "worker.unknown": "No such worker is registered.",
    "workflow.unknown": "There is no workflow, or no version, of that name.",
}


def headline(error: str) -> str:
    """The first line of an attempt's error: its exception, or how it died. Lines that follow are details."""
    return next((line.strip() for line in error.splitlines() if line.strip()), "")


class Refused(Exception):
    """The caller must change something before asking again."""

    def __init__(self, code: str, reason: str, hint: str = "", *, path: str = "") -> None:
        assert code in CODES, f"error code {code!r} is not in the table"
        self.code = code
        self.reason = reason
        self.hint = hint
        self.path = path
        super().__init__(code, reason, hint, path)

    def __str__(self) -> str:
        where = f" (at {self.path})" if self.path else ""
        said = f"{self.code}: {self.reason}{where}"
        # The hint is a sentence of its own.
        end = "" if said.endswith((".", "?", "!", ":")) else "."
        return f"{said}{end} {self.hint}" if self.hint else said


class Unavailable(Exception):
    """Nobody's fault: the same call may succeed later, or elsewhere: `grpc` and `http` are where, if that is known."""

    def __init__(
        self, code: str, reason: str = "", *, retry_after_ms: int | None = None, grpc: str = "", http: str = ""
    ) -> None:
        assert code in CODES, f"error code {code!r} is not in the table"
        self.code = code
        self.reason = reason or CODES[code]
        # Another coordinator leads before long, and whoever waits for it should not wait much longer.
        usual_ms = 250 if code.startswith("leader.") else 1_000
        self.retry_after_ms = usual_ms if retry_after_ms is None else retry_after_ms
        self.grpc = grpc
        self.http = http
        super().__init__(code, reason, self.retry_after_ms, grpc, http)

    def __str__(self) -> str:
        return f"{self.code}: {self.reason} Try again in {self.retry_after_ms} ms."
