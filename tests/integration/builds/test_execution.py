"""Actions asked for one by one: who shares what, who is told what, what a client that leaves or cancels changes."""

import secrets
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from google.rpc import code_pb2

from rota.wire.reapi import remote_execution_pb2 as rx
from tests.integration.builds.clients.service import UNWALLED, Service, open_service
from tests.integration.builds.front_end import message_of
from tests.integration.builds.remote import Heard, Remote, missing_of, name_of, open_remote, response_of, stage_of
from tests.integration.deadlines import until, until_there


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """One for all: no two tests ask for the same action."""
    with open_service(tmp_path_factory.mktemp("execution"), UNWALLED) as one:
        one.up()
        yield one


@pytest.fixture
def remote(service: Service) -> Iterator[Remote]:
    with open_remote(service.port) as one:
        yield one


@pytest.fixture
def other(service: Service) -> Iterator[Remote]:
    """Another client of the same front end."""
    with open_remote(service.port) as one:
        yield one


class Door:
    """An action that has begun says so, and goes on when it is told to."""

    def __init__(self, folder: Path) -> None:
        self.begun = folder / f"begun-{secrets.token_hex(8)}"
        self.opened = folder / f"opened-{secrets.token_hex(8)}"
        self.line = f"echo x >> {self.begun}; until [ -e {self.opened} ]; do sleep 0.05; done; echo through"

    def open(self) -> None:
        self.opened.touch()

    @property
    def times(self) -> int:
        """How often it began."""
        return len(self.begun.read_text().splitlines()) if self.begun.exists() else 0

    def begin(self, remote: Remote, action: rx.Digest) -> Heard:
        """An action that is executing: the worker has it, and its process is there."""
        heard = remote.execute(action).until("executing")
        until_there(self.begun)
        return heard


@pytest.fixture
def door(tmp_path: Path) -> Door:
    return Door(tmp_path)


def own(line: str) -> str:
    """A line that no other test runs."""
    return f": {secrets.token_hex(8)}; {line}"


def run_named(service: Service, name: str) -> str:
    """The state of an operation's run."""
    run = name.rpartition("/")[2].partition(".")[0]
    return str(service.client().run(run).status().state)


# One action, several clients.


def test_clients_that_ask_for_the_same_share_one_run_under_names_of_their_own(
    remote: Remote, other: Remote, door: Door
) -> None:
    action = remote.action(door.line)
    first = door.begin(remote, action)
    second = other.execute(action)
    second.next()
    third = other.wait(first.name)
    door.open()
    for heard in (first, second, third):
        response = heard.response()
        assert response.result.stdout_raw == b"through\n"
        assert not response.cached_result
    assert first.name != second.name
    assert third.name == first.name
    assert first.name.partition(".")[0] == second.name.partition(".")[0]
    assert door.times == 1


def test_what_is_not_to_be_cached_is_neither_shared_nor_kept(remote: Remote, other: Remote, door: Door) -> None:
    action = remote.action(door.line, do_not_cache=True)
    both = [each.execute(action) for each in (remote, other)]
    until(lambda: door.times == 2, "both to begin")
    door.open()
    assert [heard.response().result.stdout_raw for heard in both] == [b"through\n"] * 2
    with pytest.raises(grpc.RpcError) as told:
        remote.result(action)
    assert told.value.code() is grpc.StatusCode.NOT_FOUND
    assert not remote.execute(action).response().cached_result


def test_a_result_is_found_unless_the_client_does_not_want_it(remote: Remote, tmp_path: Path) -> None:
    count = tmp_path / "count"
    action = remote.action(f"echo x >> {count}; cat {count}")
    assert remote.execute(action).response().result.stdout_raw == b"x\n"
    found = remote.execute(action)
    response = found.response()
    assert (response.cached_result, response.result.stdout_raw) == (True, b"x\n")
    assert remote.wait(found.name).response().cached_result, "such an operation is found again, too"
    assert response_of(remote.get(found.name)).cached_result
    again = remote.execute(action, skip_cache_lookup=True).response()
    assert (again.cached_result, again.result.stdout_raw) == (False, b"x\nx\n")
    assert remote.result(action).stdout_raw == b"x\nx\n", "the later one is kept"


def test_an_action_that_fails_is_answered_and_not_kept(remote: Remote) -> None:
    action = remote.action(own("echo oh >&2; exit 7"))
    for _ in range(2):
        response = remote.execute(action).response()
        assert response.status.code == code_pb2.OK
        assert (response.result.exit_code, response.result.stderr_raw) == (7, b"oh\n")
        assert not response.cached_result


@pytest.mark.parametrize("how", ["cancels", "leaves"])
def test_one_client_that_gives_up_does_not_end_it_for_another(
    service: Service, remote: Remote, other: Remote, door: Door, how: str
) -> None:
    action = remote.action(door.line)
    first = door.begin(remote, action)
    second = other.execute(action)
    second.next()
    if how == "cancels":
        remote.cancel(first.name)
        assert first.response().status.code == code_pb2.CANCELLED
        assert response_of(remote.get(first.name)).status.code == code_pb2.CANCELLED
    else:
        first.hang_up()
    assert run_named(service, second.name) == "running"
    door.open()
    assert second.response().result.stdout_raw == b"through\n"
    assert door.times == 1


def test_what_its_last_client_cancels_is_killed(service: Service, remote: Remote, other: Remote, door: Door) -> None:
    action = remote.action(door.line)
    first, second = door.begin(remote, action), other.execute(action)
    second.next()
    for client, heard in ((remote, first), (other, second)):
        client.cancel(heard.name)
        assert heard.response().status.code == code_pb2.CANCELLED
    until(lambda: run_named(service, first.name) == "cancelled", "it to be cancelled")
    # Asked for again it is begun anew, by a run of its own.
    third = remote.execute(action)
    until(lambda: door.times == 2, "it to begin again")
    door.open()
    assert third.response().result.stdout_raw == b"through\n"
    assert third.name.partition(".")[0] != first.name.partition(".")[0]


def test_what_a_person_cancels_is_told_to_its_clients(service: Service, remote: Remote, door: Door) -> None:
    heard = door.begin(remote, remote.action(door.line))
    service.client().run(heard.name.rpartition("/")[2].partition(".")[0]).cancel(reason="too-hot")
    response = heard.response()
    assert response.status.code == code_pb2.FAILED_PRECONDITION, "at CANCELLED, clients ask again"
    assert not response.status.details
    assert "too-hot" in response.status.message
    assert door.times == 1, "and is not begun again behind their back"


# Clients that go and come.


def test_a_client_that_comes_back_finds_its_operation(remote: Remote, other: Remote, door: Door) -> None:
    heard = door.begin(remote, remote.action(door.line))
    heard.hang_up()
    assert stage_of(other.get(heard.name)) == "executing"
    again = other.wait(heard.name)
    assert stage_of(again.next()) == "executing"
    door.open()
    assert again.response().result.stdout_raw == b"through\n"
    assert response_of(other.get(heard.name)).result.stdout_raw == b"through\n", "also when it is over"
    assert other.wait(heard.name).response().result.stdout_raw == b"through\n"


def test_asking_about_it_keeps_an_action_alive_and_silence_does_not(
    service: Service, remote: Remote, door: Door
) -> None:
    asked = door.begin(remote, remote.action(door.line))
    left = remote.execute(remote.action(own("sleep 300"))).until("executing")
    asked.hang_up()
    left.hang_up()

    def look() -> bool:
        assert stage_of(remote.get(asked.name)) == "executing"
        return run_named(service, left.name) == "cancelled"

    until(look, "the other one to be given up")
    door.open()
    assert remote.wait(asked.name).response().result.stdout_raw == b"through\n"


def test_what_was_given_up_can_be_asked_for_again(service: Service, remote: Remote, door: Door) -> None:
    action = remote.action(door.line)
    left = door.begin(remote, action)
    left.hang_up()
    until(lambda: run_named(service, left.name) == "cancelled", "it to be given up")
    again = remote.execute(action)
    until(lambda: door.times == 2, "it to begin again")
    door.open()
    assert again.response().result.stdout_raw == b"through\n"


@pytest.mark.parametrize("name", ["operations/build-0123456789ab-0123456789abcdef.1", "operations/none", "none", ""])
def test_an_operation_that_never_was_is_not_found(remote: Remote, name: str) -> None:
    for ask in (lambda: remote.wait(name).next(), lambda: remote.get(name), lambda: remote.cancel(name)):
        with pytest.raises(grpc.RpcError) as told:
            ask()
        assert told.value.code() is grpc.StatusCode.NOT_FOUND


# Actions that cannot be carried out, or not to their end.


def test_all_that_is_missing_is_named(remote: Remote) -> None:
    unknown = [message_of(f"{what} {secrets.token_hex(4)}".encode()) for what in ("action", "command", "root", "file")]
    action, command, root, file = unknown
    response = remote.execute(action).response()
    assert response.status.code == code_pb2.FAILED_PRECONDITION
    assert missing_of(response) == {name_of(action)}
    (no_command,) = remote.put(rx.Action(command_digest=command, input_root_digest=root))
    assert missing_of(remote.execute(no_command).response()) == {name_of(command), name_of(root)}
    folder = rx.Directory(files=[rx.FileNode(name="a", digest=file)])
    good, holed = remote.put(rx.Command(arguments=["/bin/true"]), folder)
    (no_file,) = remote.put(rx.Action(command_digest=good, input_root_digest=holed))
    assert missing_of(remote.execute(no_file).response()) == {name_of(file)}


def test_an_action_that_takes_too_long_is_killed_and_what_it_printed_is_kept(remote: Remote) -> None:
    line = own("echo begun; echo half > out; sleep 300 & sleep 300")
    response = remote.execute(remote.action(line, timeout_s=1, outputs=("out",))).response()
    assert response.status.code == code_pb2.DEADLINE_EXCEEDED
    assert response.result.stdout_raw == b"begun\n"
    assert [file.path for file in response.result.output_files] == ["out"]


def test_a_program_that_is_not_there_is_an_exit_code(remote: Remote) -> None:
    command, root = remote.put(rx.Command(arguments=["/no/such/program"]), rx.Directory())
    (action,) = remote.put(rx.Action(command_digest=command, input_root_digest=root))
    response = remote.execute(action).response()
    assert (response.status.code, response.result.exit_code) == (0, 127)
    assert b"/no/such/program" in response.result.stderr_raw


def test_a_property_that_cannot_be_read_is_refused_at_once(service: Service, remote: Remote) -> None:
    before = len(service.runs())
    with pytest.raises(grpc.RpcError) as told:
        remote.execute(remote.action(own("true"), properties={"cpu_count": "many"})).next()
    assert told.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "cpu_count" in (told.value.details() or "")
    assert len(service.runs()) == before


def test_who_did_it_and_when_is_in_the_result(remote: Remote) -> None:
    times = remote.execute(remote.action(own("true"))).response().result.execution_metadata
    assert times.worker
    stages = (
        "queued",
        "worker_start",
        "input_fetch_start",
        "execution_start",
        "output_upload_start",
        "worker_completed",
    )
    said = [getattr(times, f"{stage}_timestamp").ToNanoseconds() for stage in stages]
    assert said == sorted(said)
    assert all(said)
