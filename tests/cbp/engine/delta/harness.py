"""What the Delta tests share: a small table written by hand, and its readers.

The readers are imported late: processes that only race for entries do not pay for them.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyroaring import BitMap64

from cbp.engine.delta.actions import AddFile, DeletionVector
from cbp.engine.delta.deletion_vectors import pack_vectors
from cbp.engine.delta.foreign_writer_fence import NULL_PARTITION
from cbp.engine.delta.managed_table import ManagedTable, create_table
from cbp.engine.storage.files import LocalFiles
from cbp.model.flow.schema import Schema
from tests.cbp.engine.delta.commits import change

STATE = Schema.parse("url STRING, n BIGINT")
STATE_EXTRA = (("_hash", "BIGINT"), ("_bucket", "INT"))
TABLE_ID = str(uuid.UUID(int=7))


def make_state(path: str, *, now_ms: int = 1_000, buckets: int = 2, **more: Any) -> ManagedTable:
    """Create the state table of these tests."""
    wanted: dict[str, Any] = {
        "files": LocalFiles(),
        "table_id": TABLE_ID,
        "now_ms": now_ms,
        "partition_by": ("_bucket",),
        "extra": STATE_EXTRA,
        "configuration": {"cbp.hash": "xxhash64", "cbp.buckets": str(buckets)},
    }
    return create_table(path, more.pop("schema", STATE), **(wanted | more))


def write_vectors(
    path: str, relative_dir: str, name: uuid.UUID, vectors: dict[Any, BitMap64]
) -> dict[Any, DeletionVector]:
    """Write vectors into one file of a table; return their descriptors by the same keys."""
    packed, file = pack_vectors(relative_dir, name, vectors)
    if file is not None:
        file.write(path, LocalFiles())
    return packed


def run_file(path: str, bucket: int | None, name: str, numbers: Iterable[int]) -> AddFile:
    """Write a run file with the rows `(u<i>, i, i)` and return its action."""
    ids = list(numbers)
    value = NULL_PARTITION if bucket is None else str(bucket)
    relative = f"_runs/_bucket={value}/{name}.parquet"
    os.makedirs(os.path.dirname(f"{path}/{relative}"), exist_ok=True)
    columns = {
        "url": pa.array([f"u{i}" for i in ids], pa.string()),
        "n": pa.array(ids, pa.int64()),
        "_hash": pa.array(ids, pa.int64()),
    }
    pq.write_table(pa.table(columns), f"{path}/{relative}", compression="zstd")
    size = os.path.getsize(f"{path}/{relative}")
    partition = {"_bucket": None if bucket is None else str(bucket)}
    return AddFile(relative, partition, size, len(ids), 1)


@dataclass
class StateTable:
    """A state table with a model beside it: which numbers are in it.

    Attributes:
        live: The live set to be published.
        numbers: Rows of each live file, by position.
        epoch: The epoch of the next publication.
    """

    path: str
    start_ms: int
    table: ManagedTable = field(init=False)
    live: dict[str, AddFile] = field(default_factory=dict)
    numbers: dict[str, list[int]] = field(default_factory=dict)
    dead: dict[str, BitMap64] = field(default_factory=dict)
    epoch: int = 0

    def __post_init__(self) -> None:
        self.table = make_state(self.path, now_ms=self.start_ms)

    def add(self, bucket: int | None, numbers: Iterable[int]) -> AddFile:
        """Add a run file."""
        ids = list(numbers)
        add = run_file(self.path, bucket, f"{self.epoch}-{len(self.numbers)}", ids)
        self.live[add.path], self.numbers[add.path] = add, ids
        return add

    def kill(self, wanted: Callable[[int], bool]) -> None:
        """Mark the rows with these numbers as dead in every file; one file of vectors."""
        changed: dict[str, BitMap64] = {}
        for path in self.live:
            old = self.dead.get(path, BitMap64())
            new = old | BitMap64(at for at, n in enumerate(self.numbers[path]) if wanted(n))
            if new != old:
                changed[path] = new
        written = write_vectors(self.path, "_vectors", uuid.uuid4(), changed)
        for path, vector in written.items():
            self.dead[path] = changed[path]
            self.live[path] = replace(self.live[path], deletion_vector=vector)

    def drop(self, path: str) -> None:
        """Take a file out of the live set."""
        del self.live[path]

    def publish(self, *, data_change: bool = True, **more: Any) -> int:
        """Publish the live set as the next epoch, a second after the last one."""
        self.epoch += 1
        at_ms = self.start_ms + self.epoch * 1_000
        return self.table.publish(
            **change(self.table, self.live, now_ms=at_ms, data_change=data_change),
            app_id="cbp/d/s",
            version=self.epoch,
            intention_id=f"d/s/{self.epoch}",
            timestamp_ms=at_ms,
            **more,
        )

    def expected(self) -> list[int]:
        """Return the numbers that every reader has to find, ascending."""
        return sorted(
            n
            for path in self.live
            for at, n in enumerate(self.numbers[path])
            if at not in self.dead.get(path, BitMap64())
        )


def with_polars(path: str) -> list[int]:
    """Read the numbers with Polars."""
    import polars as pl

    return sorted(pl.scan_delta(path).collect()["n"].to_list())


def with_delta_rs(path: str) -> list[int]:
    """Read the numbers with delta-rs' query engine, the one of its readers that knows vectors."""
    from deltalake import DeltaTable, QueryBuilder

    query = QueryBuilder().register("t", DeltaTable(path)).execute("select n from t")
    return sorted(pa.table(query.read_all())["n"].to_pylist())


def with_spark(spark: Any, path: str, clause: str = "") -> list[int]:
    """Read the numbers with Spark."""
    rows = spark.sql(f"select n from delta.`{path}` {clause}").collect()
    return sorted(row.n for row in rows)
