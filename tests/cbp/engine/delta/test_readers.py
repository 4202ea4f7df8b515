"""Golden tests: every reader finds exactly the published rows, every writer is refused.

Each table goes through the same life: run files in two buckets and in none, vectors,
a replaced vector, a file that dies, compaction, a checkpoint, a cleaned log.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, QueryBuilder, write_deltalake
from deltalake.exceptions import DeltaError

from cbp.engine.delta.actions import AddFile
from cbp.engine.delta.managed_table import ManagedTable, create_table, open_table, release
from cbp.engine.delta.repair import repair
from cbp.engine.storage.files import LocalFiles
from cbp.errors import ForeignWriterError
from cbp.model.flow.schema import Schema
from tests.cbp.engine.delta.delta_rows import live, table_row
from tests.cbp.engine.delta.harness import (
    StateTable,
    run_file,
    with_delta_rs,
    with_polars,
    with_spark,
)
from tests.kernel import with_kernel

NOW_MS = int(time.time() * 1000)
Read = Callable[[str], list[int]]


def check_everywhere(state: StateTable, read: Read, *, often: bool = True) -> None:
    """Compare after the epochs, after a checkpoint and after the log's clean-up.

    Args:
        state: The table.
        read: Reads it.
        often: Or only in the end, when the log begins with a checkpoint and goes on behind it.
    """
    expected = live(state)[-1]
    assert not often or read(state.path) == expected
    state.table.checkpoint()
    assert not often or read(state.path) == expected
    state.table.clean_before(state.table.snapshot.version)
    assert not os.path.exists(state.table.log.entry_path(0))
    assert not often or read(state.path) == expected
    state.add(1, range(7000, 7010))
    state.kill(lambda n: n == 7003 or 1900 <= n < 1950)
    state.publish()
    assert read(state.path) == state.expected()


@pytest.mark.parametrize("read", [with_polars, with_delta_rs])
def test_readers_without_a_jvm_read_exactly_the_published_rows(tmp_path: Path, read: Read) -> None:
    """Vectors, replaced vectors, dead files and checkpoints mean the same to all readers."""
    check_everywhere(StateTable(str(tmp_path / "t"), 1_000), read)


def test_our_own_log_reader_shows_the_published_live_set(tmp_path: Path) -> None:
    """A fresh reader gets what was published, from entries and from a checkpoint alike."""
    state = StateTable(str(tmp_path / "t"), 1_000)
    live(state)
    before = open_table(state.path, LocalFiles()).snapshot
    assert before == state.table.snapshot
    state.table.checkpoint()
    state.table.clean_before(state.table.snapshot.version)
    assert open_table(state.path, LocalFiles()).snapshot.live == before.live
    dead = {p for p, add in before.live.items() if add.dead == add.rows}
    assert not dead


@pytest.mark.parametrize("read", [with_polars, with_delta_rs])
def test_polars_and_delta_rs_see_partition_values(tmp_path: Path, read: Read) -> None:
    """The bucket is read from every file, and as null where a file has several."""
    state = StateTable(str(tmp_path / "t"), 1_000)
    live(state)
    if read is with_polars:
        counts = dict(pl.scan_delta(state.path).group_by("_bucket").len().collect().iter_rows())
    else:
        sql = "select _bucket, count(*) c from t group by 1"
        query = QueryBuilder().register("t", DeltaTable(state.path)).execute(sql)
        counts = {r["_bucket"]: r["c"] for r in pa.table(query.read_all()).to_pylist()}
    assert counts == {0: 80, 1: 160, None: 1}


def test_delta_rs_cannot_write_into_a_managed_table(tmp_path: Path) -> None:
    """Append, delete and optimize are refused; vacuum and checkpoints do no harm."""
    state = StateTable(str(tmp_path / "t"), 1_000)
    live(state)
    stray = run_file(state.path, 0, "unpublished", [1])
    table = DeltaTable(state.path)
    row = table_row()
    for attempt in (
        lambda: write_deltalake(state.path, row, mode="append"),
        lambda: write_deltalake(state.path, row, mode="overwrite"),
        lambda: DeltaTable(state.path).delete("n = 1"),
        lambda: DeltaTable(state.path).optimize.compact(),
    ):
        with pytest.raises(DeltaError, match=r"cbp\.managed"):
            attempt()
    table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    table.create_checkpoint()
    table.cleanup_metadata()
    assert os.path.exists(f"{state.path}/{stray.path}")
    assert open_table(state.path, LocalFiles()).snapshot == state.table.snapshot
    assert with_polars(state.path) == state.expected()


def test_delta_rs_writes_into_a_released_table(tmp_path: Path) -> None:
    """After the release anybody may write, and the engine does not."""
    state = StateTable(str(tmp_path / "t"), 1_000)
    live(state)
    version = release(state.path)
    assert release(state.path) == version
    write_deltalake(state.path, table_row(), mode="append")
    assert with_delta_rs(state.path) == sorted([*state.expected(), 77])
    for attempt in (state.publish, lambda: open_table(state.path, LocalFiles())):
        with pytest.raises(ForeignWriterError):
            attempt()


def output_table(path: str) -> ManagedTable:
    """Create a table of an output flow with three epochs, the second one empty."""
    table = create_table(
        path,
        Schema.parse("url STRING, n BIGINT NOT NULL, tags ARRAY<STRING>"),
        files=LocalFiles(),
        table_id="00000000-0000-0000-0000-000000000008",
        now_ms=1_000,
        extra=(("_epoch", "BIGINT"),),
    )
    os.makedirs(f"{path}/_runs")
    for epoch, rows in enumerate([3, 0, 2]):
        adds = []
        if rows:
            name = f"_runs/{epoch:012d}-00000-a.parquet"
            columns = {
                "url": pa.array([f"u{i}" for i in range(rows)], pa.string()),
                "n": pa.array(range(rows), pa.int64()),
                "tags": pa.array([["x"]] * rows, pa.list_(pa.string())),
                "_epoch": pa.array([epoch] * rows, pa.int64()),
            }
            pq.write_table(pa.table(columns), f"{path}/{name}")
            size = os.path.getsize(f"{path}/{name}")
            bounds = {"_epoch": epoch}
            adds.append(AddFile(name, {}, size, rows, 1, min_values=bounds, max_values=bounds))
        table.publish(
            adds=adds,
            app_id="cbp/d/s.out",
            version=epoch,
            intention_id=f"d/s/{epoch}",
            timestamp_ms=2_000 + epoch,
        )
    return table


def test_an_output_table_reads_the_same_without_a_jvm(tmp_path: Path) -> None:
    """An unpartitioned table with `_epoch` inside the files, and only adds."""
    path = str(tmp_path / "out")
    table = output_table(path)
    for _ in range(2):
        assert with_polars(path) == with_delta_rs(path) == [0, 0, 1, 1, 2]
        last = pl.scan_delta(path).filter(pl.col("_epoch") == 2).collect()
        assert sorted(last["n"].to_list()) == [0, 1]
        table.checkpoint()
        table.clean_before(table.snapshot.version)


@pytest.mark.soak
@pytest.mark.spark
def test_spark_reads_history_and_every_version(tmp_path: Path, spark: Any) -> None:
    """Rows, history and time travel by version and, in turns, by in-commit timestamp."""
    start = NOW_MS - 3_600_000
    state = StateTable(str(tmp_path / "t"), start)
    seen = live(state)
    history = spark.sql(f"describe history delta.`{state.path}`").collect()
    assert [row.version for row in history] == [6, 5, 4, 3, 2, 1, 0]
    assert history[1].userMetadata == "d/s/5"
    assert history[0].operation == "CBP COMPACT"
    assert history[-1].operation == "CBP CREATE"
    stamps = [start + epoch * 1_000 for epoch in range(7)]
    assert [int(r.timestamp.timestamp() * 1000) for r in reversed(history)] == stamps
    for version, expected in enumerate(seen, 1):
        if version % 2:
            assert with_spark(spark, state.path, f"version as of {version}") == expected
            continue
        at = datetime.fromtimestamp((stamps[version] + (version < 6) * 500) / 1000, UTC)
        clause = f"timestamp as of '{at.replace(tzinfo=None).isoformat(sep=' ')}'"
        assert with_spark(spark, state.path, clause) == expected


@pytest.mark.spark
@pytest.mark.parametrize("often", [False, pytest.param(True, marks=pytest.mark.soak)])
def test_spark_reads_exactly_the_published_rows(tmp_path: Path, spark: Any, often: bool) -> None:
    """The same life of a table as for the other readers; buckets and output tables too."""
    state = StateTable(str(tmp_path / "t"), NOW_MS - 3_600_000)
    check_everywhere(state, lambda path: with_spark(spark, path), often=often)
    sql = f"select _bucket, count(*) c from delta.`{state.path}` group by 1"
    assert {r["_bucket"] for r in spark.sql(sql).collect()} == {0, 1, None}
    out = str(tmp_path / "out")
    table = output_table(out)
    for _ in range(1 + often):
        assert with_spark(spark, out, "where _epoch < 2") == [0, 1, 2]
        assert with_spark(spark, out, "where _epoch = 2") == [0, 1]
        table.checkpoint()
        table.clean_before(table.snapshot.version)


@pytest.mark.spark
def test_kernel_reads_exactly_the_published_rows(tmp_path: Path, spark: Any) -> None:
    """The same life of a table for Delta Kernel in Java, which reads the log by itself.

    Its keys belong to their numbers, and buckets come from the log; an output table too.
    """
    state = StateTable(str(tmp_path / "t"), NOW_MS - 3_600_000)

    def read(path: str) -> list[int]:
        rows = with_kernel(spark, path, "url", "n")
        assert all(row["url"] == f"u{row['n']}" for row in rows)
        return sorted(row["n"] for row in rows)

    check_everywhere(state, read)
    assert {row["_bucket"] for row in with_kernel(spark, state.path, "_bucket")} == {0, 1, None}
    out = str(tmp_path / "out")
    table = output_table(out)
    for _ in range(2):
        rows = with_kernel(spark, out, "n", "_epoch")
        assert sorted(row["n"] for row in rows) == [0, 0, 1, 1, 2]
        assert sorted(row["n"] for row in rows if row["_epoch"] == 2) == [0, 1]
        table.checkpoint()
        table.clean_before(table.snapshot.version)


REFUSED = (
    "insert into {} values ('u77', 77, 77, 0)",
    "vacuum {}",
    "delete from {} where n = 77",
    "optimize {}",
    "update {} set n = 78 where n = 77",
    "restore table {} to version as of 2",
    "alter table {} set tblproperties ('a' = 'b')",
)


@pytest.mark.part(every=2)
@pytest.mark.spark
@pytest.mark.parametrize(
    "texts", [REFUSED[:2], pytest.param(REFUSED, marks=pytest.mark.soak)], ids=["some", "all"]
)
def test_spark_cannot_write_into_a_managed_table_until_it_is_released(
    texts: Sequence[str], tmp_path: Path, spark: Any
) -> None:
    """INSERT, DELETE, UPDATE, OPTIMIZE, VACUUM, RESTORE and ALTER are refused, and no longer."""
    state = StateTable(str(tmp_path / "t"), NOW_MS - 3_600_000)
    live(state)
    # A second file in a bucket, or OPTIMIZE has nothing to do and says so without writing.
    state.add(1, range(8000, 8010))
    state.publish()
    statements = [text.format(f"delta.`{state.path}`") for text in texts]
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    for statement in statements:
        with pytest.raises((Py4JJavaError, PySparkException)) as caught:
            spark.sql(statement).collect()
        assert "cbp.managed" in str(caught.value), statement
    assert state.table.refresh().version == 7
    release(state.path, now_ms=NOW_MS)
    # All of them delete again what the first one has inserted.
    for statement in (statements[0], *statements[2:4]):
        spark.sql(statement).collect()
    left = [] if len(statements) > 2 else [77]
    assert with_delta_rs(state.path) == sorted([*state.expected(), *left])


@pytest.mark.soak
@pytest.mark.spark
def test_what_spark_did_to_a_released_table_is_named_and_repaired(
    tmp_path: Path, spark: Any
) -> None:
    """INSERT, OPTIMIZE, RESTORE: version, operation and writer are named, then undone."""
    state = StateTable(str(tmp_path / "t"), NOW_MS - 3_600_000)
    live(state)
    state.add(1, range(8000, 8010))
    state.publish()
    table = f"delta.`{state.path}`"
    release(state.path, now_ms=NOW_MS)
    for statement, operation in (
        (f"insert into {table} values ('u77', 77, 77, 0)", "WRITE"),
        (f"optimize {table}", "OPTIMIZE"),
        (f"restore table {table} to version as of 2", "RESTORE"),
    ):
        spark.sql(statement).collect()
        with pytest.raises(ForeignWriterError) as caught:
            open_table(state.path, LocalFiles())
        assert caught.value.details["operation"] == operation
        assert "Spark" in caught.value.details["engine"]
        repaired = repair(state.path, files=LocalFiles(), now_ms=NOW_MS)
        assert caught.value.details["version"] in [u.version for u in repaired.undone]
        assert with_spark(spark, state.path) == state.expected()
        assert with_polars(state.path) == state.expected()
        release(state.path, now_ms=NOW_MS)


@pytest.mark.soak
@pytest.mark.spark
def test_a_foreign_vacuum_takes_nothing_away(tmp_path: Path, spark: Any) -> None:
    """It leaves all run files and vectors of a released table, without any retention.

    Those that are not published yet, too: they lie where VACUUM does not look. So does what
    compaction replaced, which older versions name. The next epochs run, once the entries that
    VACUUM left in the log are repaired and the fence is there again, and four readers agree.
    """
    state = StateTable(str(tmp_path / "t"), NOW_MS - 3_600_000)
    older = live(state)[-2]
    unpublished = run_file(state.path, 0, "unpublished", [1])
    before = sorted((tmp_path / "t").rglob("_[rv]*/**/*.*"))
    release(state.path, now_ms=NOW_MS)
    settings = {
        "spark.databricks.delta.retentionDurationCheck.enabled": "false",
        # Or VACUUM lists the table in as many tasks as would do for a million files.
        "spark.sql.sources.parallelPartitionDiscovery.parallelism": "2",
    }
    for name, value in settings.items():
        spark.conf.set(name, value)
    spark.sql(f"vacuum delta.`{state.path}` retain 0 hours").collect()
    for name in settings:
        spark.conf.unset(name)
    assert f"{state.path}/{unpublished.path}" in map(str, before)
    assert sorted((tmp_path / "t").rglob("_[rv]*/**/*.*")) == before
    repair(state.path, files=LocalFiles(), now_ms=NOW_MS)
    state.table = open_table(state.path, LocalFiles())
    before_compaction = pl.scan_delta(state.path, version=5).collect()["n"]
    assert sorted(before_compaction.to_list()) == older
    state.kill(lambda n: n % 7 == 0)
    state.add(1, range(9000, 9010))
    state.publish()
    assert with_spark(spark, state.path) == state.expected()
    assert with_polars(state.path) == with_delta_rs(state.path) == state.expected()
    assert sorted(row["n"] for row in with_kernel(spark, state.path, "n")) == state.expected()


def test_entries_hold_no_float_and_flat_texts(tmp_path: Path) -> None:
    """What breaks readers or the history is in no entry that a table's life produces."""
    state = StateTable(str(tmp_path / "t"), 1_000)
    live(state)
    for version in state.table.log.versions():
        lines = Path(state.table.log.entry_path(version)).read_text().splitlines()
        first = json.loads(lines[0])["commitInfo"]
        assert all(isinstance(v, str) for v in first["operationParameters"].values())
        assert isinstance(first.get("userMetadata", ""), str)
        assert isinstance(first["inCommitTimestamp"], int)
        assert not [line for line in lines if ".0," in line]
