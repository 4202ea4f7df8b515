"""The session: what a result rests on is read back from Spark, not only asked of it.

Spark compares what a retried stage gives: read back from every session that runs are given to.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cbp.engine.spark import SparkExecutor, SparkSettings, start_session
from cbp.engine.spark.session import python_of_workers
from cbp.errors import DataflowInvalidError, SparkSettingError
from stages.translators.url_count_sql import UrlCountSql
from tests.bench.candidates.ours.blackbox_on_spark import SparkBlackboxExecutor
from tests.spark.sql_dataflows import dataflow_of

pytestmark = pytest.mark.spark

CHECKSUM = "spark.sql.shuffle.orderIndependentChecksum"
REQUIRED = [f"{CHECKSUM}.enabled", f"{CHECKSUM}.enableFullRetryOnMismatch"]


@pytest.fixture
def restored(spark: Any) -> Iterator[Any]:
    """Give the one session, and take back afterwards what a test set in it."""
    before = dict(spark.conf.getAll)
    yield spark
    now = dict(spark.conf.getAll)
    for setting, value in before.items():
        if now.get(setting) != value and spark.conf.isModifiable(setting):
            spark.conf.set(setting, value)


@pytest.mark.parametrize("setting", REQUIRED)
def test_a_setting_that_makes_retries_unsafe_is_refused(setting: str, restored: Any) -> None:
    """Given by the user, or found in a session that somebody else made."""
    with pytest.raises(SparkSettingError) as caught:
        start_session(SparkSettings(master="local[2]", conf={setting: "false"}))
    assert caught.value.details == {"setting": setting, "found": "false", "expected": "true"}
    other = restored.newSession()
    SparkExecutor(other)
    other.conf.set(setting, "false")
    with pytest.raises(SparkSettingError, match=setting):
        SparkExecutor(other)


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        ("spark.python.unix.domain.socket.enabled", "true"),
        ("spark.python.daemon.module", "cbp.engine.spark.daemon"),
        ("spark.databricks.delta.snapshotPartitions", "2"),
        ("spark.sql.adaptive.enabled", "false"),
        ("spark.sql.files.ignoreCorruptFiles", "false"),
        ("spark.sql.files.ignoreMissingFiles", "false"),
        ("spark.sql.session.timeZone", "UTC"),
        ("spark.scheduler.mode", "FAIR"),
        ("spark.locality.wait", "100ms"),
        ("spark.ui.enabled", "false"),
        ("spark.authenticate", "true"),
        ("spark.ui.liveUpdate.period", "0"),
    ],
)
def test_settings_that_matter_reach_the_session(setting: str, expected: str, spark: Any) -> None:
    """What results and times rest on is what Spark has, not only what it was asked for."""
    assert spark.conf.get(setting) == expected
    assert spark.sparkContext.uiWebUrl is None


def _listening(processes: set[int]) -> set[str]:
    """Return the addresses, as Linux writes them, on which some processes take connections."""
    links = (link for one in processes for link in Path(f"/proc/{one}/fd").iterdir())
    inodes = {actual[8:-1] for link in links if (actual := _target(link)).startswith("socket:[")}
    lines = (line.split() for name in ("tcp", "tcp6") for line in _lines(f"/proc/net/{name}"))
    listens = "0A"
    return {fields[1] for fields in lines if fields[3] == listens and fields[9] in inodes}


def _lines(path: str) -> list[str]:
    return Path(path).read_text().splitlines()[1:]


def _target(link: Path) -> str:
    try:
        return str(link.readlink())
    except FileNotFoundError:
        return ""  # closed meanwhile


def _is_loopback(address: str) -> bool:
    """Tell of 127.0.0.1, ::1, and 127.0.0.1 written as an IPv6 address; with a port behind."""
    host = address.partition(":")[0]
    return host in ("0100007F", f"{0:024X}01000000", f"{0:016X}FFFF00000100007F")


def test_nothing_listens_beyond_the_loopback_interface(spark: Any) -> None:
    """Neither driver, nor block manager, nor workers, nor Spark's UI where it is asked for.

    With nothing said of addresses in the environment: the UI then takes every interface, and the
    others that of the machine's name.
    """
    context = spark.sparkContext
    jvm, scala = context._jvm, context._jsc.sc()
    workers = context.parallelize([0, 1], 2).map(lambda _: os.getpid()).collect()
    processes = {os.getpid(), jvm.java.lang.ProcessHandle.current().pid(), *workers}
    before = _listening(processes)
    settings = scala.conf().clone().set("spark.ui.port", "0")
    driver = jvm.scala.Option.apply(scala)
    security = scala.env().securityManager()
    about = ("test", "", scala.startTime(), "")
    ui = jvm.org.apache.spark.ui.SparkUI.create(
        driver, scala.statusStore(), settings, security, *about
    )
    ui.bind()
    try:
        port = f"{ui.boundPort():04X}"
        actual = _listening(processes)
    finally:
        ui.stop()
    assert len(before) >= 2
    assert [address.partition(":")[2] for address in actual - before] == [port]
    assert {address for address in actual if not _is_loopback(address)} == set()


def test_a_worker_runs_the_python_of_the_driver(spark: Any) -> None:
    """Another one misses packages, or has others."""
    actual = spark.sparkContext.parallelize([0], 1).map(lambda _: (sys.executable, os.getpid()))
    ((executable, process),) = actual.collect()
    assert executable == sys.executable
    assert process != os.getpid()


def test_the_packages_of_the_jvm_are_not_searched_for_modules(spark: Any) -> None:
    """Neither here nor in workers: to look for any other module would open each of them."""

    def jars(_: int) -> list[str]:
        return [Path(entry).name for entry in sys.path if "delta" in Path(entry).name]

    assert jars(0) == []
    assert spark.sparkContext.parallelize([0], 1).map(jars).collect() == [[]]


def test_on_one_machine_the_environment_names_no_other_python() -> None:
    """On a cluster it may, since the path may be another one there."""
    told = {"PYSPARK_PYTHON": "/other/python"}
    assert python_of_workers("local[2]", told) == sys.executable
    assert python_of_workers("spark://there:7077", told) == "/other/python"
    assert python_of_workers("spark://there:7077", {}) == sys.executable


def test_the_black_box_refuses_sql(spark: Any) -> None:
    """A plan of Spark finds its state itself, which the black box has shuffled."""
    dataflow = dataflow_of(UrlCountSql())
    with pytest.raises(DataflowInvalidError) as caught:
        SparkBlackboxExecutor(spark).refuse(dataflow.name, [dataflow.stages["t0"]])
    assert [mistake.code for mistake in caught.value.mistakes] == ["black_box_in_sql"]
