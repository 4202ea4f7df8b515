"""Runs the service as a child process of another command: the demo, or a benchmark.

The child has its own session and process group, and writes to a log file. To stop it, the command
sends SIGTERM and waits, then kills the rest of its group. On Linux the child also gets a SIGTERM
when this process is killed without notice, unless the child was meant to be kept.

Guaranteed: after `stop` no process of the group is left
(tests/controller/server/test_service_process.py).
"""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

import httpx

from cbp.clock import MACHINE, Clock
from cbp.errors import OperatingError
from controller.server.port import PortTakenError, check_port
from controller.settings import Settings, load_settings

READY_SECONDS_MAX = 300.0
"""Long, since Spark's first start may download the Delta jars."""
POLL_SECONDS = 0.1
STOP_SECONDS = 20.0
LOG_LINES = 15
_PR_SET_PDEATHSIG = 1

# The child has its own folder and address; only Spark's variables are taken from the environment.
_INHERITED = "CBP_SPARK_"

Wait = Callable[[float], None]


def choose_port(preferred: int) -> int:
    """Return the preferred port if it is free, or one that the system chooses."""
    with suppress(PortTakenError):
        check_port("127.0.0.1", preferred)
        return preferred
    return free_port()


def free_port() -> int:
    """Return a port that the system chooses."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    assert isinstance(port, int)
    return port


def settings_of(
    root: Path, *, port: int, engine: str, settle_seconds: float = 0, readers: int | None = None
) -> Settings:
    """Return the settings of a service that keeps all its files below `root`.

    By default files count as complete when they appear, since the command that starts the service
    only links complete files into the folder.
    """
    return load_settings(
        root=root,
        host="127.0.0.1",
        port=port,
        engine=engine,
        tables="",
        drop_root=Path(),
        cache=Path(),
        database_url="",
        token=None,
        token_file=Path(),
        allow_remote=False,
        tls_cert=None,
        tls_key=None,
        ca=None,
        settle_seconds=settle_seconds,
        readers=readers,
    )


class ServiceProcess:
    """One service process: starts, waits until it is ready, and stops; it may outlive this one."""

    def __init__(
        self,
        settings: Settings,
        *,
        log: Path,
        outlives: bool = False,
        command: tuple[str, ...] = (sys.executable, "-m", "controller.cli", "serve"),
    ) -> None:
        self.settings, self.log = settings, log
        with log.open("ab") as output:
            self._child = subprocess.Popen(
                command,
                env=_environment(settings),
                cwd=settings.root,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=None if outlives else _stop_with_parent,
            )

    @property
    def pid(self) -> int:
        """Process id, which is also the id of the group."""
        return self._child.pid

    def wait_until_ready(
        self, seconds_max: float = READY_SECONDS_MAX, *, clock: Clock = MACHINE
    ) -> None:
        """Return once the service answers that it is ready. Raises `ServiceFailedError`."""
        until = clock.seconds() + seconds_max
        while clock.seconds() < until:
            self.check_alive()
            if self.is_ready():
                return
            clock.wait(POLL_SECONDS)
        self._fail(f"did not answer at {self.settings.url} within {seconds_max:.0f} s")

    def is_ready(self) -> bool:
        """Return whether the service answers that it is ready; does not wait for the port."""
        with suppress(httpx.TransportError):
            url = f"{self.settings.url}/api/v1/health/ready"
            return httpx.get(url, trust_env=False, timeout=5.0).is_success
        return False

    def check_alive(self) -> None:
        """Raise `ServiceFailedError` if the process ended."""
        status = self._child.poll()
        if status is not None:
            self._fail(f"ended with status {status}")

    def stop(self, seconds_max: float = STOP_SECONDS) -> None:
        """Send SIGTERM, wait, kill the rest; idempotent. Ctrl-C cuts the wait short."""
        try:
            if self._child.poll() is None:
                self._child.terminate()
                self._child.wait(seconds_max)
        except (subprocess.TimeoutExpired, KeyboardInterrupt):
            pass
        finally:
            self.kill()

    def kill(self) -> None:
        """Kill the process group (SIGKILL), as suddenly as a power failure would; idempotent."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._child.pid, signal.SIGKILL)
        self._child.wait()

    def last_lines(self) -> list[str]:
        """Return the end of the log."""
        with suppress(OSError), self.log.open(encoding="utf-8", errors="replace") as lines:
            return [line.rstrip()[:2000] for line in deque(lines, LOG_LINES)]
        return []

    def _fail(self, what: str) -> NoReturn:
        raise ServiceFailedError(what, log=str(self.log), last_lines=self.last_lines())


def _environment(settings: Settings) -> dict[str, str]:
    inherited = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("CBP_") or name.startswith(_INHERITED)
    }
    chosen = {
        "CBP_ROOT": str(settings.root),
        "CBP_HOST": settings.host,
        "CBP_PORT": str(settings.port),
        "CBP_ENGINE": settings.engine,
        "CBP_SETTLE_SECONDS": str(settings.settle_seconds),
        "PYTHONUNBUFFERED": "1",
    }
    readers = {} if settings.readers is None else {"CBP_READERS": str(settings.readers)}
    return {**inherited, **chosen, **readers}


def _stop_with_parent() -> None:
    """Make Linux send a SIGTERM when the parent dies; does nothing elsewhere."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


class ServiceFailedError(OperatingError):
    """A service that a command started did not become ready, or ended."""

    code = "demo_service_failed"

    def __init__(self, what: str, *, log: str, last_lines: Sequence[str]) -> None:
        shown = "\n".join(last_lines) or "(the log is empty)"
        super().__init__(
            f"the service {what}; the end of {log}:\n{shown}", log=log, last_lines=list(last_lines)
        )
