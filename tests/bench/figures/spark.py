"""Spark for the peers: a plain session, with nothing of our engine's settings but two slots."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from tests.bench.comparison.digests import frame_digest
from tests.bench.figures.records import Digest

__all__ = ["SLOTS", "begin_spark", "spark_digest"]

SLOTS = 2
_MEMORY = "4g"
_SETTINGS = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    # The default of 50 partitions per snapshot, and of 200 per shuffle, cost seconds on two slots.
    "spark.databricks.delta.snapshotPartitions": "2",
    "spark.sql.shuffle.partitions": str(4 * SLOTS),
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
}


def begin_spark(settings: Mapping[str, str] = MappingProxyType({})) -> Any:
    """Start this process's Spark.

    Args:
        settings: Further settings, which are a peer's best.
    """
    from delta import configure_spark_with_delta_pip
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    folder = tempfile.mkdtemp(prefix="spark-")
    own = {
        "spark.driver.memory": _MEMORY,
        "spark.local.dir": folder,
        "spark.sql.warehouse.dir": f"{folder}/warehouse",
    }
    builder = SparkSession.builder.master(f"local[{SLOTS}]").appName("figures")
    for key, value in {**_SETTINGS, **own, **settings}.items():
        builder = builder.config(key, value)
    return configure_spark_with_delta_pip(builder).getOrCreate()


def spark_digest(rows: Any) -> Digest:
    """Return the digest of `(url, n)`, computed by Spark; see `tests.bench.comparison`."""
    found = frame_digest(rows, ["url", "n"])
    return Digest(found.rows, found.n, found.hashes)
