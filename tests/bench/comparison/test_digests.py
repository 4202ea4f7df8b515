"""A digest is that of the records alone: which ones there are, not how they lie.

Candidates that hold another count for any key, or emitted another last one, are found. Each table
is a sum of hashes of its records, made by the candidate's own reader once all is measured
(streaming's by Spark's reader of state stores).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pytest

from cbp.model.flow.schema import Schema
from tests.bench.comparison.digests import digest_of, frame_digest, last_digest, last_frame
from tests.bench.comparison.result_comparison import Digest

SCHEMA = Schema.parse("url STRING, n BIGINT, score DOUBLE, done BOOLEAN")
KEY = SCHEMA.fields[:1]

Records = Sequence[tuple[Any, ...]]

RECORDS: Records = [
    ("a", 3, 0.5, True),
    ("b", -1, -0.0, False),
    ("ä" * 40, 1 << 62, float("nan"), None),
    ("", None, None, None),
    (None, 7, 1e300, True),
]


def batches(records: Records, size: int = 2) -> Iterator[pa.RecordBatch]:
    """Cut records `(epoch, *columns)` or `(*columns)` into batches."""
    names = ["_epoch", *SCHEMA.names][-len(records[0]) :]
    types = [pa.int64(), pa.string(), pa.int64(), pa.float64(), pa.bool_()][-len(names) :]
    arrow = pa.schema(list(zip(names, types, strict=True)))
    for start in range(0, len(records), size):
        rows = [dict(zip(names, one, strict=True)) for one in records[start : start + size]]
        yield pa.RecordBatch.from_pylist(rows, arrow)


def digest(records: Records, size: int = 2) -> Digest:
    """Digest records in this process."""
    return digest_of(batches(records, size), SCHEMA.fields)


def test_order_and_batches_do_not_matter() -> None:
    """Equal records have equal digests, however they are split into files."""
    assert digest(RECORDS) == digest(RECORDS[::-1], size=3)
    assert digest(RECORDS).rows == len(RECORDS)
    assert digest(RECORDS).n == 3 - 1 + (1 << 62) + 7


@pytest.mark.parametrize(
    "other",
    [
        [("a", 1, 0.5, True), ("b", 3, 0.5, True)],
        [("b", 3, 0.5, True), ("a", 1, 0.5, True), ("a", 1, 0.5, True)],
        [("a", 3, 0.5, True), ("a", 3, 0.5, True)],
        [("a", 3, 0.5, True), ("c", 1, 0.5, True)],
        [("a", 3, 0.5, None), ("b", 1, 0.5, True)],
    ],
    ids=["swapped", "twice", "instead", "renamed", "unknown"],
)
def test_equal_sums_of_other_records_differ(other: Records) -> None:
    """Counts at the wrong keys are found, though keys and sum are the same."""
    assert digest([("a", 3, 0.5, True), ("b", 1, 0.5, True)]).hashes != digest(other).hashes


def test_a_null_is_another_one_in_another_column() -> None:
    """The hash of a null is nothing, so the place of its column is hashed too."""
    schema = Schema.parse("n BIGINT, site_n BIGINT")
    one, other = (
        digest_of(pa.table({"n": n, "site_n": m}).to_batches(), schema.fields)
        for n, m in [
            (pa.array([5]), pa.array([None], pa.int64())),
            (pa.array([None], pa.int64()), pa.array([5])),
        ]
    )
    assert one.hashes != other.hashes


def test_the_last_record_of_each_key_counts() -> None:
    """It covers what came last per key of a history, whichever batch it came in."""
    history = [
        (e, *one) for e in (2, 0, 1) for one in (("a", e, 0.5, True), ("b", 9 - e, 0.5, True))
    ]
    last = [("a", 2, 0.5, True), ("b", 7, 0.5, True)]
    actual = last_digest(batches(history, 4), KEY, SCHEMA.fields, "_epoch")
    assert actual == digest(last)
    assert last_digest(iter(()), KEY, SCHEMA.fields, "_epoch") == Digest(0, 0, 0)


def test_without_a_key_every_record_counts() -> None:
    """Nothing replaces a record that has no key."""
    history = [(e, *one) for e in (0, 1) for one in RECORDS]
    actual = last_digest(batches(history), (), SCHEMA.fields, "_epoch")
    assert actual == digest([*RECORDS, *RECORDS])


@pytest.mark.spark
@pytest.mark.soak
def test_spark_digests_alike(spark: Any) -> None:
    """Candidates on Spark and those without it are compared by the same hashes."""
    frame = spark.createDataFrame(pa.Table.from_batches(list(batches(RECORDS))))
    assert frame_digest(frame, SCHEMA.names) == digest(RECORDS)
    history = [(e, url, n and n - e, *rest) for e in (0, 1) for url, n, *rest in RECORDS]
    frame = spark.createDataFrame(pa.Table.from_batches(list(batches(history))))
    actual = frame_digest(last_frame(frame, ["url"], SCHEMA.names, "_epoch"), SCHEMA.names)
    assert actual == last_digest(batches(history), KEY, SCHEMA.fields, "_epoch")
