"""The Spark session of the service: settings that matter, each with its reason.

One session per process; runs of several stages share it, each in its own thread and
under its own job tag. Nothing here listens beyond the loopback interface by default.

Guaranteed: what a retried stage gives is compared with what it gave, whoever started the
session and whatever it was told (`require_safe`).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from delta import configure_spark_with_delta_pip
from pyspark.sql import SparkSession

from cbp.errors import SparkSettingError

__all__ = ["SparkSettings", "require_safe", "start_session"]

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
    "spark.scheduler.mode": "FAIR",
    # A copy of an index is worth a short wait for its executor, not the default of 3 s.
    "spark.locality.wait": "100ms",
    # Wrong records would be worse than a failed run: never skip a file.
    "spark.sql.files.ignoreCorruptFiles": "false",
    "spark.sql.files.ignoreMissingFiles": "false",
    **_REQUIRED,
    "spark.ui.enabled": "false",
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
    """

    master: str = "local[*]"
    driver_memory: str = "1g"
    app_name: str = "cbp"
    conf: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))


def start_session(settings: SparkSettings) -> SparkSession:
    """Start, or return, this process's session.

    Raises:
        SparkSettingError: If it runs with settings under which results are not safe.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    if settings.master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = SparkSession.builder.master(settings.master).appName(settings.app_name)
    builder = builder.config("spark.driver.memory", settings.driver_memory)
    for key, value in {**_SETTINGS, **settings.conf}.items():
        builder = builder.config(key, value)
    session = configure_spark_with_delta_pip(builder).getOrCreate()
    require_safe(session)
    return session


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
