"""The Spark session of the service: settings that matter, each with its reason.

One session per process; runs of several stages share it, each in its own thread and
under its own job tag. On one machine Spark may run twice as many tasks as there are processors,
and plans for as many as there are: a run whose tasks hang leaves as many to others, and
the operating system shares the processors among them. Nothing here listens beyond the
loopback interface by default.

Guaranteed: what a retried stage gives is compared with what it gave, whoever started the
session and whatever it was told (`require_safe`).
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from delta import configure_spark_with_delta_pip
from pyspark.sql import SparkSession

from cbp.errors import SparkSettingError

__all__ = ["SparkSettings", "python_of_workers", "require_safe", "start_session", "with_room"]

_ORDER_CHECKED = "spark.sql.shuffle.orderIndependentChecksum"
_REQUIRED = {
    f"{_ORDER_CHECKED}.enabled": "true",
    f"{_ORDER_CHECKED}.enableFullRetryOnMismatch": "true",
}
"""A retried stage must give the same records, or start over as a whole."""

_SETTINGS = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    # A socket file instead of TCP takes some 40 ms off every Python task.
    "spark.python.unix.domain.socket.enabled": "true",
    # A new Python worker is a fork that has everything imported.
    "spark.python.daemon.module": "cbp.engine.spark.daemon",
    # The default of 50 partitions per snapshot costs seconds on small machines.
    "spark.databricks.delta.snapshotPartitions": "2",
    # The engine chooses the number of tasks; re-planning costs more than it saves.
    "spark.sql.adaptive.enabled": "false",
    # Arrow gives freed memory back after 10 ms, and tasks take it anew page by page: of reading
    # a million texts that is half. A worker that is idle for a minute is ended anyway.
    "spark.executorEnv.MIMALLOC_PURGE_DELAY": "60000",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
    "spark.sql.session.timeZone": "UTC",
    # It would take a coalesce before a shuffle for useless: what a run may take of the slots.
    "spark.sql.optimizer.excludedRules": (
        "org.apache.spark.sql.catalyst.optimizer.CollapseRepartition"
    ),
    "spark.scheduler.mode": "FAIR",
    # A copy of an index is worth a short wait for its executor, not the default of 3 s.
    "spark.locality.wait": "100ms",
    # Wrong records would be worse than a failed run: never skip a file.
    "spark.sql.files.ignoreCorruptFiles": "false",
    "spark.sql.files.ignoreMissingFiles": "false",
    **_REQUIRED,
    "spark.ui.enabled": "false",
    # Else a task that begins within 100 ms of its job is not known until the next heartbeat, some
    # 10 s later, and its run looks like one that has no slot (`jobs.starved`).
    "spark.ui.liveUpdate.period": "0",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
}


@dataclass(frozen=True, slots=True)
class SparkSettings:
    """How to reach Spark.

    Attributes:
        master: `local[*]`, `spark://host:7077`, ...
        driver_memory: Of this process's JVM, such as `1g`.
        conf: More Spark settings; they win over the built-in ones, but for those that
            `require_safe` asks for.
        room: Whether a local master gets room for a second run; see the module header.
        resident_workers: Processes beside a local Spark that do small runs without a job, at most;
            0: every run is a job. See `cbp.engine.spark.resident`.
    """

    master: str = "local[*]"
    driver_memory: str = "1g"
    app_name: str = "cbp"
    room: bool = True
    resident_workers: int = 0
    conf: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))


def start_session(settings: SparkSettings) -> SparkSession:
    """Start, or return, this process's session.

    Raises:
        SparkSettingError: If it runs with settings under which results are not safe.
    """
    python = python_of_workers(settings.master, os.environ)
    os.environ["PYSPARK_PYTHON"] = python
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    if settings.master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    master, own = with_room(settings.master) if settings.room else (settings.master, {})
    builder = SparkSession.builder.master(master).appName(settings.app_name)
    builder = builder.config("spark.driver.memory", settings.driver_memory)
    for key, value in {**_SETTINGS, **own, **settings.conf}.items():
        builder = builder.config(key, value)
    session = configure_spark_with_delta_pip(builder).getOrCreate()
    require_safe(session)
    return session


def python_of_workers(master: str, environment: Mapping[str, str]) -> str:
    """Return the Python of the workers: on this machine that of the driver, whatever is set.

    Another one misses packages, or has others. On a cluster, where a path may be another one,
    `PYSPARK_PYTHON` of the environment wins.
    """
    if master.startswith("local"):
        return sys.executable
    return environment.get("PYSPARK_PYTHON", sys.executable)


def require_safe(session: SparkSession) -> None:
    """Refuse a session that does not compare what a retried stage gives.

    It is read back, since a session that was there before, or the user, may say otherwise.

    Raises:
        SparkSettingError: For the first setting that differs.
    """
    for setting, expected in _REQUIRED.items():
        found = str(session.conf.get(setting, "nothing"))
        if found.lower() != expected:
            raise SparkSettingError(setting, found=found, expected=expected)


def with_room(master: str) -> tuple[str, dict[str, str]]:
    """Return a local master with room for a second run beside one whose tasks hang.

    Args:
        master: As in `SparkSettings`; of what is not `local[n]` or `local[*]`, nothing changes.

    Returns:
        The master, and the settings by which Spark plans for the processors that there are.
    """
    found = re.fullmatch(r"local\[(\d+|\*)(,\d+)?\]", master)
    if found is None:
        return master, {}
    slots = _processors() if found[1] == "*" else int(found[1])
    room = f"local[{2 * slots}{found[2] or ''}]"
    return room, {"spark.default.parallelism": str(slots)}


def _processors() -> int:
    """Return the processors that this process may use, as the JVM counts them."""
    count = len(os.sched_getaffinity(0))
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text(encoding="ascii").split()
    except (OSError, ValueError):
        return count
    return count if quota == "max" else max(1, min(count, -(-int(quota) // int(period))))
