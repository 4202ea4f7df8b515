"""A throw-away PostgreSQL server for tests marked `service`.

It lives in a folder of its own, listens on a socket in that folder only, and is
made with the `initdb` of the system's packages. PostgreSQL refuses to run as root:
there the account `postgres` of the package runs it.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

__all__ = ["PostgresMissingError", "PostgresServer", "postgres_program", "postgres_server"]

PACKAGES = Path("/usr/lib/postgresql")
ICU_SINCE = 15
# The kernel's limit of a socket's path, less the name that PostgreSQL adds.
SOCKET_FOLDER_CHARACTERS_MAX = 107 - len("/.s.PGSQL.5432.lock")


class PostgresMissingError(Exception):
    """Says in words why there is no server."""


@contextmanager
def postgres_server() -> Iterator[str]:
    """Run a server; give a URL with `{}` in the place of the database's name.

    Raises:
        PostgresMissingError: If the machine cannot run one.
    """
    server = PostgresServer()
    try:
        server.start()
        yield server.url
    finally:
        server.close()


def postgres_program(name: str) -> str:
    """Return the path of a program that comes with the server, as `psql`.

    Raises:
        PostgresMissingError: If there is no server.
    """
    return f"{_programs()}/{name}"


class PostgresServer:
    """One server in a folder of its own; made stopped.

    Args:
        durable: Whether it syncs what it commits: it must where it is killed.

    Attributes:
        url: With `{}` in the place of the database's name.
        socket: Path of its socket.

    Raises:
        PostgresMissingError: If the machine cannot run one.
    """

    def __init__(self, *, durable: bool = False) -> None:
        self._programs, self._account = _programs(), _account()
        self._durable, self._stack = durable, ExitStack()
        self._folder = tempfile.mkdtemp(prefix="cbp-pg-")
        self.url = f"postgresql://cbp@/{{}}?host={self._folder}"
        self.socket = f"{self._folder}/.s.PGSQL.5432"
        try:
            self._initialise()
        except BaseException:
            self.close()
            raise

    def start(self) -> None:
        """Return once it accepts connections."""
        settings = {
            "listen_addresses": "",
            "unix_socket_directories": self._folder,
            "fsync": "on" if self._durable else "off",
        }
        options = [f"--{name}={value}" for name, value in settings.items()]
        command = ["postgres", "-D", f"{self._folder}/data", *options]
        self._stack.enter_context(_running(self._programs, command, self._account, self._folder))

    def stop(self) -> None:
        """Stop it at once, as in a crash: the next start recovers."""
        self._stack.close()

    def close(self) -> None:
        """Stop it and remove everything."""
        self.stop()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _initialise(self) -> None:
        folder, data = self._folder, f"{self._folder}/data"
        if len(folder) > SOCKET_FOLDER_CHARACTERS_MAX:
            message = f"{folder} is too long for a socket; set TMPDIR to a shorter folder"
            raise PostgresMissingError(message)
        if self._account is not None:
            os.chown(folder, self._account.pw_uid, self._account.pw_gid)
        initdb = ["initdb", "-D", data, "-U", "cbp", "-A", "trust", "-E", "UTF8", "--no-sync"]
        initdb.append("--locale=C.UTF-8")
        name = self._programs.parent.name
        if name.isdigit() and int(name) >= ICU_SINCE:
            # Sorts unlike bytes, so that a comparison by locale shows.
            initdb += ["--locale-provider=icu", "--icu-locale=en-US"]
        _run(self._programs, initdb, self._account, folder)


def _programs() -> Path:
    """Return the folder of the newest `initdb`."""
    actual = sorted(PACKAGES.glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    if actual:
        return actual[-1].parent
    if on_path := shutil.which("initdb"):
        return Path(on_path).parent
    raise PostgresMissingError("no initdb here; install the package postgresql")


def _account() -> pwd.struct_passwd | None:
    if os.geteuid() != 0:
        return None
    try:
        return pwd.getpwnam("postgres")
    except KeyError:
        message = "PostgreSQL does not run as root, and there is no account postgres"
        raise PostgresMissingError(message) from None


def _run(
    programs: Path, command: list[str], account: pwd.struct_passwd | None, folder: str
) -> None:
    with _start(programs, command, account, folder) as process:
        said = process.stdout.read() if process.stdout else ""
    if process.returncode != 0:
        raise PostgresMissingError(f"{command[0]} failed: {said[-500:]}")


@contextmanager
def _running(
    programs: Path, command: list[str], account: pwd.struct_passwd | None, folder: str
) -> Iterator[None]:
    with _start(programs, command, account, folder) as process:
        assert process.stdout is not None
        said = []
        for line in process.stdout:
            said.append(line)
            if "ready to accept connections" in line:
                break
        else:
            raise PostgresMissingError(f"postgres did not start: {''.join(said)[-500:]}")
        # A log that nobody reads would stop the server once the pipe is full.
        reader = threading.Thread(target=process.stdout.read, daemon=True)
        reader.start()
        try:
            yield
        finally:
            process.send_signal(signal.SIGQUIT)
            process.wait(60)
            reader.join(60)


def _start(
    programs: Path, command: list[str], account: pwd.struct_passwd | None, folder: str
) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [str(programs / command[0]), *command[1:]],
        user=None if account is None else account.pw_uid,
        group=None if account is None else account.pw_gid,
        extra_groups=None if account is None else [],
        cwd=folder,
        env={**os.environ, "LC_ALL": "C.UTF-8"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
