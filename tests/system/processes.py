"""Service instances and a Spark cluster as real processes that can be killed and stopped."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pyspark

from controller.server.service_process import free_port
from controller.settings import Settings, load_settings
from tests.gate.service_logs import ended, watch

__all__ = ["Instance", "SparkCluster", "until"]

REPOSITORY = Path(__file__).resolve().parents[2]
WAIT_SECONDS = float(os.environ.get("CBP_WAIT_SECONDS", "300"))
TOKEN = "token-of-the-system-tests"


def until(what: Callable[[], Any], why: str, seconds: float = WAIT_SECONDS) -> float:
    """Return how many seconds it took until something held.

    Raises:
        AssertionError: If it did not come in time.
    """
    started = time.monotonic()
    while not what():
        assert time.monotonic() - started < seconds, why
        time.sleep(0.05)
    return time.monotonic() - started


class Instance:
    """One controller; several may share a folder and a database.

    Args:
        root: The folder of all of them.
        name: The name of this one.
        logs: Where it writes what it says, and looks for its clock.
        environment: What its processes find in theirs beside it.
        settings: More settings than those that make it fast.
    """

    def __init__(
        self,
        root: Path,
        name: str,
        *,
        logs: Path | None = None,
        environment: Mapping[str, str] | None = None,
        **settings: Any,
    ) -> None:
        self._more = dict(environment or {})
        self.name, self._logs = name, logs or root
        self.clock = self._logs / f"{name}.clock"
        settings.setdefault("cache", root / f"cache-{name}")
        self.settings: Settings = load_settings(
            root=root,
            port=free_port(),
            token=TOKEN,
            settle_seconds=0,
            scan_seconds=0.2,
            tick_seconds=0.5,
            **settings,
        )
        self._process: subprocess.Popen[bytes] | None = None
        self.started = 0

    @property
    def pid(self) -> int:
        """The id of the controller, which is also its process group."""
        assert self._process is not None
        return self._process.pid

    def start(self, *, umask: int = -1) -> None:
        """Start it; returns at once.

        Args:
            umask: That of the shell that starts it; -1: that of this process.
        """
        self.started += 1
        watch(self._log)
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.system.serve", "serve"],
                env={**os.environ, **self._environment()},
                cwd=REPOSITORY,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                umask=umask,
            )

    def answers(self) -> str:
        """Return its role, or `""` when it is not ready."""
        return str(self._ready().get("role", ""))

    def leads(self) -> int:
        """Return the epoch of the lease under which it leads, or 0."""
        ready = self._ready()
        return int(ready["epoch"]) if ready.get("role") == "leads" else 0

    def answers_at_all(self) -> bool:
        """Tell whether it lives."""
        with suppress(httpx.TransportError):
            url = f"{self.settings.url}/api/v1/health/live"
            return httpx.get(url, trust_env=False, timeout=5.0).is_success
        return False

    def wait(self) -> None:
        """Return once it is ready."""
        until(lambda: self._alive() and self.answers(), f"{self.name} was not ready")

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the controller and all that it started, but forked workers."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, number)

    def kill(self) -> None:
        """Kill service, JVM and Python workers at once; nobody gets to say goodbye."""
        if self._process is not None:
            tree = list(descendants(self.pid))
            self.send(signal.SIGKILL)
            for pid in tree:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self._process.wait()
            ended(self._log)

    def stop(self) -> int:
        """Ask it to stop; return its exit status."""
        assert self._process is not None
        self._process.terminate()
        status = self._process.wait(WAIT_SECONDS)
        ended(self._log)
        return status

    def run(self, *arguments: str) -> str:
        """Run a command with its settings, and return what it printed; it has ended."""
        done = subprocess.run(
            [sys.executable, "-m", "controller.cli", *arguments],
            env={**os.environ, **self._environment()},
            cwd=REPOSITORY,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def python_workers(self) -> list[int]:
        """Return the Python workers of this driver: those of its own JVM, and resident ones."""
        return [pid for pid in descendants(self.pid) if " cbp.engine.spark." in command_of(pid)]

    @property
    def _log(self) -> Path:
        return self._logs / f"{self.name}-{self.started}.log"

    def _ready(self) -> dict[str, Any]:
        with suppress(httpx.TransportError):
            url = f"{self.settings.url}/api/v1/health/ready"
            answer = httpx.get(url, trust_env=False, timeout=2.0)
            if answer.is_success:
                return dict(answer.json())
        return {}

    def _alive(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, f"{self.name} ended by itself"
        return True

    def _environment(self) -> dict[str, str]:
        given = self.settings
        chosen: Mapping[str, Any] = {
            "root": given.root,
            "cache": given.cache,
            "drop_root": given.drop_root,
            "database_url": given.database_url,
            "port": given.port,
            "engine": given.engine,
            "spark_master": given.spark_master,
            "spark_driver_memory": given.spark_driver_memory,
            "token": TOKEN,
            "settle_seconds": given.settle_seconds,
            "scan_seconds": given.scan_seconds,
            "tick_seconds": given.tick_seconds,
            "lease_seconds": given.lease_seconds,
            "drain_seconds": given.drain_seconds,
            "tables": given.tables,
            "allowed_packages": ",".join(given.allowed_packages),
        }
        conf = {"CBP_SPARK_CONF": json.dumps(given.spark_conf)} if given.spark_conf else {}
        return {
            **{f"CBP_{name.upper()}": str(value) for name, value in chosen.items()},
            **conf,
            "CBP_TEST_CLOCK": str(self.clock),
            "PYTHONPATH": str(REPOSITORY),
            "SPARK_LOCAL_IP": "127.0.0.1",
            **self._more,
        }


class SparkCluster:
    """A standalone master and a worker per host, from the pip package.

    Args:
        folder: Gets the logs.
        cores: Cores of each worker.
        hosts: Names or addresses of this machine; Spark takes each for a machine of its own.

    Attributes:
        environment: What a driver needs in its own, to know the cluster's secret.
    """

    def __init__(self, folder: Path, *, cores: int, hosts: Sequence[str] = ("127.0.0.1",)) -> None:
        self._home = str(Path(pyspark.__file__).parent)
        conf = folder / "spark-conf"
        conf.mkdir()
        (conf / "spark-defaults.conf").write_text(
            "spark.authenticate true\nspark.authenticate.secret of-the-tests\n", encoding="utf-8"
        )
        self.environment = {"SPARK_CONF_DIR": str(conf)}
        self._environment = {
            **os.environ,
            **self.environment,
            "SPARK_HOME": self._home,
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONPATH": str(REPOSITORY),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_WORKER_DIR": str(folder / "spark-work"),
            "SPARK_DAEMON_MEMORY": "256m",
            # Executors are killed here without end; Spark would give the application up.
            "SPARK_MASTER_OPTS": "-Dspark.master.rest.enabled=false "
            "-Dspark.deploy.maxExecutorRetries=-1",
        }
        port = free_port()
        self.url = f"spark://127.0.0.1:{port}"
        web = ["--webui-port", "0"]
        at = ["--host", "127.0.0.1", "--port", str(port)]
        size = ["--cores", str(cores), "--memory", "4g"]
        self._processes = [self._start(folder / "master.log", "master.Master", *at, *web)]
        for host in hosts:
            log = folder / f"worker-{host}.log"
            arguments = ["--host", host, *web, *size, self.url]
            self._processes.append(self._start(log, "worker.Worker", *arguments))

    def executors(self) -> list[int]:
        """Return the processes of all executors."""
        return self._below("CoarseGrainedExecutorBackend")

    def python_workers(self) -> list[int]:
        """Return the forked Python workers of all executors."""
        return self._below("engine.spark.daemon")

    def close(self) -> None:
        """Kill everything."""
        for process in self._processes:
            for pid in [*descendants(process.pid), process.pid]:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            process.wait()

    def _below(self, command: str) -> list[int]:
        pids = [pid for worker in self._processes[1:] for pid in descendants(worker.pid)]
        return [pid for pid in pids if command in command_of(pid)]

    def _start(self, log: Path, name: str, *arguments: str) -> subprocess.Popen[bytes]:
        command = [f"{self._home}/bin/spark-class", f"org.apache.spark.deploy.{name}", *arguments]
        with log.open("wb") as output:
            return subprocess.Popen(
                command,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )


def descendants(pid: int) -> Iterator[int]:
    """Yield the processes below one, parents first."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError, IndexError):
                # The name before may hold blanks and brackets.
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                children.setdefault(parent, []).append(int(entry.name))
    waiting = [pid]
    for one in waiting:
        yield from children.get(one, ())
        waiting += children.get(one, ())


def command_of(pid: int) -> str:
    """Return a process's command line; `""` when it is gone."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    return ""
