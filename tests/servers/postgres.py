"""A PostgreSQL of the tests' own: a cluster in a temporary folder, on a socket and a loopback port.

    with postgres_server() as server:
        url = server.new_database()

`shared_server()` is one for everything that a test process does with databases of its own; who stops, restarts or
fills a server starts one for itself. A process that ends in whatever way takes its servers and their folders with it:
a keeper waits on a pipe that only the test process holds open.
"""

import atexit
import os
import pwd
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from itertools import count
from pathlib import Path
from urllib.parse import quote, urlencode

import psycopg

from tests.integration.deadlines import until
from tests.servers.keeper import DEADLINE_S, kept
from tests.servers.ports import free_port
from tests.servers.programs import find_program

# When the pipe closes: wake what was stopped, end the server at once, remove everything.
_KEEPER = """
main=$(head -1 "$1/data/postmaster.pid" 2>/dev/null)
if [ -n "$main" ]; then
    for pid in "$main" $(cat "/proc/$main/task/$main/children" 2>/dev/null); do kill -CONT "$pid"; done
    kill -QUIT "$main"
    for _ in $(seq 100); do kill -0 "$main" && sleep 0.1 || break; done
    kill -KILL "$main"
fi 2>/dev/null
rm -rf "$1"
"""
_SETTINGS = {
    "fsync": "on",
    "listen_addresses": "127.0.0.1",
    "max_connections": "200",
    "shared_buffers": "32MB",
    "log_statement_stats": "off",
    "logging_collector": "off",
    "timezone": "UTC",
}
# Whoever comes as `secret` must know a password; all others are believed.
_HBA = (
    "host all secret all scram-sha-256\nlocal all all trust\nhost all all all trust\nhost replication all all trust\n"
)


def program(name: str) -> str:
    """A program of PostgreSQL, of the newest that is installed."""
    paths = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"), key=lambda path: int(path.parts[-3]))
    return find_program(name, reversed(paths), "install PostgreSQL 14 or newer (`apt-get install postgresql`)")


class PostgresServer:
    """A cluster that runs, or can be made to."""

    def __init__(self, folder: Path, settings: Mapping[str, str]) -> None:
        self.folder = folder
        self.data = folder / "data"
        self.port = free_port()
        self._settings = {**_SETTINGS, **settings}
        self._process: subprocess.Popen[bytes] | None = None
        self._databases = count(1)

    # Life.

    def make(self) -> None:
        """Make an empty cluster."""
        options = ["--pgdata", str(self.data), "--username", "rota", "--encoding", "UTF8", "--locale", "C", "--no-sync"]
        self.run("initdb", *options, "--auth", "trust", "--no-instructions")
        (self.data / "pg_hba.conf").write_text(_HBA)

    def run(self, name: str, *args: str) -> str:
        """Run a program of PostgreSQL as whoever may, and return what it said."""
        line = [*as_whom(), program(name), *args]
        done = subprocess.run(line, cwd="/", capture_output=True, text=True, check=False, timeout=DEADLINE_S)
        assert done.returncode == 0, f"{name} failed: {done.stderr}"
        return done.stdout

    def start(self) -> None:
        """Start it, and wait until it takes connections."""
        assert self._process is None, "it runs"
        settings = {**self._settings, "port": str(self.port), "unix_socket_directories": str(self.folder)}
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        line = [*as_whom(), program("postgres"), "-D", str(self.data), *options]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(line, cwd="/", stdout=log, stderr=log, start_new_session=True)
        until(self._answers, "PostgreSQL takes connections", DEADLINE_S)

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, f"PostgreSQL ended: {(self.folder / 'log').read_text()[-2_000:]}"
        try:
            psycopg.connect(self.url(), connect_timeout=2).close()
        except psycopg.OperationalError:
            return False
        return True

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """Stop it: by default end all sessions and write everything; SIGQUIT is as a crash is."""
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(how)
            process.wait(DEADLINE_S)

    def restart(self, how: signal.Signals = signal.SIGINT) -> None:
        """Stop it and start it again on the same port."""
        self.stop(how)
        self.start()

    def pause(self) -> None:
        """Stop every process of it where it stands; connections stay open, and nobody answers."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on."""
        self._signal(signal.SIGCONT)

    def _signal(self, what: signal.Signals) -> None:
        """The first process before its children: it starts no more of them then."""
        assert self._process is not None, "it does not run"
        main = int((self.data / "postmaster.pid").read_text().split()[0])
        os.kill(main, what)
        for pid in Path(f"/proc/{main}/task/{main}/children").read_text().split():
            with suppress(ProcessLookupError):
                os.kill(int(pid), what)

    def own(self, *files: Path) -> None:
        """Give files to whoever runs the server, for its eyes only."""
        for path in files:
            _give(path)
            path.chmod(0o600)

    # What tests use.

    def url(self, database: str = "postgres", user: str = "rota", password: str = "", **options: str) -> str:
        """Where a database is, over TCP; options are those of libpq."""
        who = f"{quote(user)}:{quote(password)}" if password else quote(user)
        asked = f"?{urlencode(options, quote_via=quote)}" if options else ""
        return f"postgresql://{who}@127.0.0.1:{self.port}/{quote(database)}{asked}"

    def new_database(self) -> str:
        """A new and empty database."""
        name = f"db{next(self._databases)}"
        self.execute(f"CREATE DATABASE {name} TEMPLATE template0")
        return self.url(name)

    def execute(self, statement: str, url: str = "", **values: object) -> list[tuple[object, ...]]:
        """Carry out a statement from outside; its rows."""
        with psycopg.connect(url or self.url(), autocommit=True) as connection:
            cursor = connection.execute(statement, values or None)  # pyright: ignore[reportArgumentType] - a test's own text
            return cursor.fetchall() if cursor.description else []


def as_whom() -> list[str]:
    """What to put before a command: PostgreSQL refuses to be run by root."""
    return ["setpriv", "--reuid", "nobody", "--regid", "nogroup", "--clear-groups"] if os.geteuid() == 0 else []


def _give(path: Path) -> None:
    if os.geteuid() == 0:
        nobody = pwd.getpwnam("nobody")
        os.chown(path, nobody.pw_uid, nobody.pw_gid)


@contextmanager
def server_folder() -> Iterator[Path]:
    """A folder for a cluster, removed with what runs in it even if this process is killed."""
    folder = Path(tempfile.mkdtemp(prefix="rota-pg-", dir="/tmp"))
    folder.chmod(0o755)
    _give(folder)
    with kept(folder, _KEEPER):
        yield folder


@contextmanager
def postgres_server(settings: Mapping[str, str] | None = None) -> Iterator[PostgresServer]:
    """A server of one's own, stopped and removed in the end."""
    program("postgres")
    with server_folder() as folder:
        server = PostgresServer(folder, settings or {})
        server.make()
        server.start()
        try:
            yield server
        finally:
            server.stop(signal.SIGQUIT)


@contextmanager
def replica_of(server: PostgresServer) -> Iterator[PostgresServer]:
    """A hot standby: it follows the server, and can only be read."""
    with server_folder() as folder:
        replica = PostgresServer(folder, {})
        source = ["--host", "127.0.0.1", "--port", str(server.port), "--username", "rota"]
        replica.run(
            "pg_basebackup",
            "--pgdata",
            str(replica.data),
            *source,
            "--write-recovery-conf",
            "--no-sync",
            "--checkpoint",
            "fast",
        )
        replica.start()
        try:
            yield replica
        finally:
            replica.stop(signal.SIGQUIT)


@cache
def shared_server() -> PostgresServer:
    """The server that all tests of this process share. Nobody stops it, so it need not wait for the disk."""
    stack = ExitStack()
    server = stack.enter_context(postgres_server({"fsync": "off"}))
    atexit.register(stack.close)
    return server
