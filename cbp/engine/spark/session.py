"""The Spark session of the service, with the settings that matter and their reasons.

There is one session per process, for the runs of all stages. A local Spark has twice as many slots
as processors, but each run is planned for as many tasks as processors: a run whose tasks hang
leaves half of the slots to other runs.

A local driver listens on the loopback interface by default, and connections must know its secret;
the driver of a cluster must have a secret (`authentication`): without one, anyone who can reach
the ports can run code as the service (CVE-2020-9480).

Guaranteed: Spark compares the output of a retried stage with its first output (`require_safe`).
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
import threading
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

import pyspark
from delta import configure_spark_with_delta_pip
from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from cbp.engine.spark.worker_pool import safe_path
from cbp.engine.storage.scratch_folders import take_scratch
from cbp.errors import (
    OperatingError,
    SparkSettingError,
    SparkUnauthenticatedError,
    SparkUnstartedError,
)
from cbp.errors.masks import SECRET_NAME, mask_credentials
from cbp.model.plan.spark_or_worker import JOB_START_SECONDS

_ORDER_CHECKED = "spark.sql.shuffle.orderIndependentChecksum"
_REQUIRED = {
    f"{_ORDER_CHECKED}.enabled": "true",
    f"{_ORDER_CHECKED}.enableFullRetryOnMismatch": "true",
}
"""A retried stage must produce the same records, or all of it is run again."""

_UNIX_SOCKETS = "spark.python.unix.domain.socket.enabled"

_SOCKET_FOLDER_MAX = 103 - len("/.12345678-1234-1234-1234-123456789012.sock")
"""Maximum length in bytes of a folder's path such that Spark's Unix sockets fit on any system."""

_SETTINGS = {
    # The names of settings that Spark's pages and logs mask.
    "spark.redaction.regex": SECRET_NAME.pattern,
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    # A Unix socket instead of TCP saves some 40 ms per Python task.
    _UNIX_SOCKETS: "true",
    # A new Python worker is a fork that has everything imported.
    "spark.python.daemon.module": "cbp.engine.spark.daemon",
    # The default of 50 partitions per snapshot costs seconds on small machines.
    "spark.databricks.delta.snapshotPartitions": "2",
    # The engine chooses the number of tasks; re-planning costs more than it saves.
    "spark.sql.adaptive.enabled": "false",
    # By default Arrow returns freed memory after 10 ms, and tasks fault it in again page by page:
    # half of the time for reading a million texts. A worker idle for a minute is ended anyway.
    "spark.executorEnv.MIMALLOC_PURGE_DELAY": "60000",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
    "spark.sql.session.timeZone": "UTC",
    # The rule would remove the coalesce before a shuffle, which limits the slots of a run.
    "spark.sql.optimizer.excludedRules": (
        "org.apache.spark.sql.catalyst.optimizer.CollapseRepartition"
    ),
    "spark.scheduler.mode": "FAIR",
    # Index copies are worth a short wait for the executor that has them, not the default of 3 s.
    "spark.locality.wait": "100ms",
    # Wrong records would be worse than a failed run: never skip a file.
    "spark.sql.files.ignoreCorruptFiles": "false",
    "spark.sql.files.ignoreMissingFiles": "false",
    "spark.hadoop.parquet.page.verify-checksum.enabled": "true",
    # A disk that fails under a memory map kills a worker by a signal: this prints where.
    "spark.python.worker.faulthandler.enabled": "true",
    **_REQUIRED,
    "spark.ui.enabled": "false",
    # Otherwise a task that begins within 100 ms of its job is not known until the next heartbeat,
    # some 10 s later, and its run looks as if it had no slot (`jobs.starved`).
    "spark.ui.liveUpdate.period": "0",
    # A loop whose tasks find too few slots gets fewer tasks, immediately, not after ten minutes.
    "spark.scheduler.barrier.maxConcurrentTasksCheck.interval": "1s",
    "spark.scheduler.barrier.maxConcurrentTasksCheck.maxFailures": "1",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
}

_MODULES = "spark.submit.pyFiles"
"""Lists files of Python modules. It is set because Spark adds the jars of all packages to it.

These have 80 MB and no modules. Each would be copied, and be on the path of modules here and in all
workers: every search for a module or an entry point would read their tables of contents first.
"""

_LOCAL = re.compile(r"local\[(\d+|\*)(,\d+)?\]")

_JAVA_OPTIONS = "spark.driver.extraJavaOptions"

_LAST_LINES_SECONDS = 5.0
"""How long a failed start waits for the last lines of its JVM."""

_LOCKS: list[int] = []
"""Locks of scratch folders; open while this process lives, so no other process removes them."""


@dataclass(frozen=True, slots=True)
class SparkSettings:
    """How to reach Spark, and how the engine uses it.

    Attributes:
        driver_memory: Memory of this process's JVM, such as `1g`.
        conf: More Spark settings; they override the built-in ones, except those that
            `require_safe` checks.
        room: Whether a local master gets slots for a second run; see the module header.
        resident_workers, job_start_seconds, plan_optimisations, loop_tasks_max: See
            `SparkExecutor`.
        scratch: Whether a local Spark keeps its temporary files in a separate folder, which is
            removed after its process ends; see `cbp.engine.storage.scratch_folders`.
    """

    master: str = "local[*]"
    driver_memory: str = "1g"
    app_name: str = "cbp"
    room: bool = True
    resident_workers: int = 0
    job_start_seconds: float = JOB_START_SECONDS
    plan_optimisations: bool = True
    loop_tasks_max: int = 1
    scratch: bool = False
    conf: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))


def start_session(settings: SparkSettings) -> SparkSession:
    """Start this process's session, or return the existing one.

    The output of the JVM is shown only if the start fails. Raises `SparkSettingError` if results
    are not safe with its settings, `SparkUnstartedError`, with the JVM's error lines, or
    `SparkUnauthenticatedError` if the master is a cluster and has no secret.
    """
    defaults = spark_defaults(os.environ, home=str(Path(pyspark.__file__).parent))
    secured = authentication(settings.master, {**defaults, **settings.conf}, os.environ)
    python = python_of_workers(settings.master, os.environ)
    os.environ["PYSPARK_PYTHON"] = python
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    if settings.master.startswith("local"):
        os.environ["SPARK_LOCAL_IP"] = os.environ.get("SPARK_LOCAL_IP") or "127.0.0.1"
    master, own = with_room(settings.master) if settings.room else (settings.master, {})
    builder = SparkSession.builder.master(master).appName(settings.app_name)
    builder = builder.config("spark.driver.memory", settings.driver_memory)
    safe = {f"spark.executorEnv.{name}": value for name, value in safe_path().items()}
    modules = {_MODULES: defaults.get(_MODULES, "")}
    scratch = _scratch(settings)
    given = {**_SETTINGS, **modules, **safe, **own, **settings.conf, **scratch, **secured}
    for key, value in given.items():
        builder = builder.config(key, value)
    builder = configure_spark_with_delta_pip(builder)
    output = JvmOutput() if SparkContext._gateway is None else None
    try:
        _start_jvm({**builder._options}, output)
        session = builder.getOrCreate()
    except (PySparkRuntimeError, Py4JError) as error:
        if output is None:
            raise
        raise SparkUnstartedError(output.reason() or str(error)) from error
    finally:
        if output is not None:
            output.pass_on()
    require_safe(session)
    return session


def _start_jvm(options: Mapping[str, str], output: JvmOutput | None) -> None:
    """Start the JVM without secrets; the session passes them to it later.

    PySpark would write every setting on the JVM's command line, which all users of the machine see.
    Does nothing if there is a JVM already.
    """
    spark_conf = SparkConf(loadDefaults=False)
    for name, value in options.items():
        if not SECRET_NAME.search(name) and mask_credentials(value) == value:
            spark_conf.set(name, value)
    if output is None:
        SparkContext._ensure_initialized(conf=spark_conf)
        return
    try:
        gateway = launch_gateway(  # type: ignore[no-untyped-call]
            spark_conf, {"stderr": output.descriptor}
        )
    except PySparkRuntimeError:
        output.detach()
        output.wait(_LAST_LINES_SECONDS)
        raise
    output.detach()
    SparkContext._ensure_initialized(gateway=gateway, conf=spark_conf)


def _scratch(settings: SparkSettings) -> dict[str, str]:
    """Return the settings by which a local Spark has a separate folder for temporary files."""
    if not settings.scratch or not settings.master.startswith("local"):
        return {}  # a cluster's workers have folders of their own, and remove them
    folder, lock = take_scratch(_scratch_root(), "spark-")
    _LOCKS.append(lock)
    os.environ["TMPDIR"] = str(folder)  # for Python workers of the JVM, and resident ones
    os.environ["SPARK_LOCAL_DIRS"] = str(folder)  # it overrides the setting
    options = settings.conf.get(_JAVA_OPTIONS, "")
    return {
        **sockets_in(folder),
        "spark.local.dir": str(folder),
        _JAVA_OPTIONS: f"{options} -Djava.io.tmpdir={folder}".strip(),
    }


def sockets_in(folder: Path) -> dict[str, str]:
    """Return the setting by which Spark uses TCP if its sockets do not fit in a folder; pure.

    A long path, such as that of `TMPDIR` on macOS, has no room for the names of Unix sockets. For a
    shorter one, nothing is returned: the operator's setting applies, or else the built-in one.
    """
    fits = len(os.fsencode(folder)) <= _SOCKET_FOLDER_MAX
    return {} if fits else {_UNIX_SOCKETS: "false"}


def _scratch_root() -> Path:
    """Return the root of this user's scratch folders; a link, or another user's, is refused."""
    root = Path(tempfile.gettempdir()) / f"cbp-scratch-{os.geteuid()}"
    root.mkdir(parents=True, exist_ok=True, mode=0o700)
    if root.is_symlink() or root.stat().st_uid != os.geteuid():
        error = SparkSettingError.__new__(SparkSettingError)
        message = (
            f"{root}, the folder for Spark's temporary files, is a link or belongs to another "
            "user. Remove it, or set TMPDIR to a folder of this user, and restart the service"
        )
        OperatingError.__init__(error, message, setting="TMPDIR", found=str(root))
        raise error
    return root


def python_of_workers(master: str, environment: Mapping[str, str]) -> str:
    """Return the Python of the workers: for a local master always that of the driver.

    Another Python lacks packages or has other versions. On a cluster, where paths may differ, it is
    `PYSPARK_PYTHON` of the environment if that is set.
    """
    if master.startswith("local"):
        return sys.executable
    return environment.get("PYSPARK_PYTHON", sys.executable)


def require_safe(session: SparkSession) -> None:
    """Refuse a session that does not compare the output of retried stages.

    The settings are read back, since an existing session or the user may have other values.
    """
    for setting, expected in _REQUIRED.items():
        value = str(session.conf.get(setting, "nothing"))
        if value.lower() != expected:
            raise SparkSettingError(setting, found=value, expected=expected)


def with_room(master: str) -> tuple[str, dict[str, str]]:
    """Return a local master with extra slots, so that a run can start while another one hangs.

    Also returns the settings by which Spark plans for the actual processors. Masters other than
    `local[n]` and `local[*]` stay as they are.
    """
    match, slots = _LOCAL.fullmatch(master), local_slots(master)
    if match is None or slots is None:
        return master, {}
    room = f"local[{2 * slots}{match[2] or ''}]"
    return room, {"spark.default.parallelism": str(slots)}


def local_slots(master: str) -> int | None:
    """Return the planned number of tasks of a local Spark; `None` for any other master."""
    match = _LOCAL.fullmatch(master)
    if match is None:
        return None
    return _processors() if match[1] == "*" else int(match[1])


def _processors() -> int:
    """Return the number of processors that this process may use, as the JVM counts them."""
    count = len(os.sched_getaffinity(0))
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text(encoding="ascii").split()
    except (OSError, ValueError):
        return count
    return count if quota == "max" else max(1, min(count, -(-int(quota) // int(period))))


_ON = "spark.authenticate"
_SECRET = "spark.authenticate.secret"
_GIVEN_BY_SPARK = "_SPARK_AUTH_SECRET"
_LOCAL_MASTER = re.compile(r"local(\[.*\])?")
_LINE = re.compile(r"\s*([^\s=:#!][^\s=:]*)(?:\s*[=:]\s*|\s+)(.*?)\s*")


def authentication(
    master: str, settings: Mapping[str, str], environment: Mapping[str, str]
) -> dict[str, str]:
    """Return the settings by which a driver authenticates connections; pure.

        local, yarn, k8s://   Spark makes a secret for each driver and passes it to its executors
        spark://, others      master, workers and driver share one; else the master is refused

    `settings` are the operator's, of `CBP_SPARK_CONF` or Spark's own defaults. Absent on purpose:
    `local-cluster`, which is for tests. Raises `SparkUnauthenticatedError` for a cluster if
    authentication is switched off, or if the secret is missing (YARN and Kubernetes need none).
    """
    if master.startswith("local-cluster"):
        return {}
    asked = settings.get(_ON, "true").strip().lower()
    if _LOCAL_MASTER.fullmatch(master):
        return {_ON: asked}
    if asked != "true":
        raise SparkUnauthenticatedError(master, f"{_ON} is {asked}")
    if not (master == "yarn" or master.startswith("k8s://")):
        secret = settings.get(_SECRET, "") or environment.get(_GIVEN_BY_SPARK, "")
        if not secret.strip():
            raise SparkUnauthenticatedError(master, f"{_SECRET} is not set")
    return {_ON: "true"}


def spark_defaults(environment: Mapping[str, str], *, home: str) -> dict[str, str]:
    """Return the settings of `spark-defaults.conf`, if there is one; `home` is Spark's folder."""
    folder = environment.get("SPARK_CONF_DIR") or f"{environment.get('SPARK_HOME') or home}/conf"
    try:
        text = Path(folder, "spark-defaults.conf").read_text(encoding="utf-8")
    except OSError:
        return {}
    matches = (_LINE.fullmatch(line) for line in text.splitlines())
    return {line[1]: line[2] for line in matches if line is not None}


_HELD_MAX = 2_000
_SHOWN_MAX = 8
_ERRORS = ("unresolved dependency", "UNRESOLVED DEPENDENCIES", "SERVER ERROR", "Exception", "rror")


class JvmOutput:
    """The standard error of a JVM while it starts; its process inherits `descriptor`.

    Spark prints a hundred lines about the jars that it found; none helps, unless a jar was not
    found. So they are shown only if the start fails. Later lines are passed on to stderr.
    """

    def __init__(self) -> None:
        self._read, self.descriptor = os.pipe()
        self._held: deque[bytes] = deque(maxlen=_HELD_MAX)
        self._lock, self._is_passed_on = threading.Lock(), False
        self._thread = threading.Thread(target=self._pump, name="spark-output", daemon=True)
        self._thread.start()

    def pass_on(self) -> None:
        """Drop the lines so far, and pass on every later line."""
        with self._lock:
            self._held.clear()
            self._is_passed_on = True

    def detach(self) -> None:
        """Close this process's writing end of the pipe, once another process has its own."""
        with suppress(OSError):
            os.close(self.descriptor)

    def reason(self) -> str:
        """Return the lines that explain a failed start: errors, or otherwise the last lines."""
        with self._lock:
            lines = [line.decode(errors="replace").strip(" \t:") for line in self._held]
        texts = [text for text in dict.fromkeys(line.strip() for line in lines) if text]
        errors = [text for text in texts if any(sign in text for sign in _ERRORS)]
        return "; ".join((errors or texts[-_SHOWN_MAX:])[:_SHOWN_MAX])

    def wait(self, seconds: float) -> None:
        """Wait until the last line of an ended process is read."""
        self._thread.join(seconds)

    def _pump(self) -> None:
        with os.fdopen(self._read, "rb") as stream:
            for line in stream:
                with self._lock:
                    if not self._is_passed_on:
                        self._held.append(line)
                        continue
                with suppress(OSError, ValueError):  # the reader is gone
                    sys.stderr.write(line.decode(errors="replace"))
                    sys.stderr.flush()
