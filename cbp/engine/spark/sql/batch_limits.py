"""Limits of the Arrow batches that carry results from the JVM to Python.

Spark bounds a batch by its bytes, for which it asks every column for its size after every
record: a fifth of all that the JVM does for a million counts. If no Python code of an author takes
part, the plan itself checks that no text of a result is wider than `TEXT_BYTES_MAX`. Then a limit
on the records also bounds the bytes, and bytes need not be counted.

Guaranteed: a batch holds some `BATCH_BYTES_MAX` at most, or one record. A wider text fails the
plan before it is in a batch (`is_wide`); the stage then runs again with bytes counted by Spark.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pyspark.sql import SparkSession

from cbp.model.flow.schema import DataType, Schema

TEXT_BYTES_MAX = 8 << 10
"""Wider texts are rare; if there are some, counting bytes costs little compared to them."""

BATCH_BYTES_MAX = 64 << 20
"""Spark's own default."""

_RECORDS_MAX = 65_536  # as in `cbp.engine.spark.session`
_TEXTS = ("STRING", "BINARY")
_WIDE = "|cbp-wide|"
_RECORDS = "spark.sql.execution.arrow.maxRecordsPerBatch"
_BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"
_UNCOUNTED = (1 << 31) - 1  # only with this value does Spark not ask for sizes


def batch_settings(flows: Iterable[Schema]) -> Mapping[str, str] | None:
    """Return Spark's settings for batches of records of flows whose texts are `checked`.

    `None` if a column is an array, a map or a struct: its width is not known, and Spark must count
    bytes.
    """
    types = [[field.type for field in flow.fields] for flow in flows]
    if any(type_.arguments for row in types for type_ in row):
        return None
    texts = max((sum(type_.kind in _TEXTS for type_ in row) for row in types), default=0)
    most = BATCH_BYTES_MAX // (TEXT_BYTES_MAX * max(1, texts))
    return {_RECORDS: str(max(1, min(_RECORDS_MAX, most))), _BYTES: str(_UNCOUNTED)}


def counted_settings(spark: SparkSession) -> Mapping[str, str]:
    """Return the batch settings of the service's session, with which Spark counts bytes."""
    conf = spark.sparkContext.getConf()
    defaults = {_RECORDS: str(_RECORDS_MAX), _BYTES: str(BATCH_BYTES_MAX)}
    return {name: conf.get(name, default) for name, default in defaults.items()}


def checked(value: str, type_: DataType) -> str:
    """Return an expression that gives the value, or fails if it is a text that is too wide."""
    if type_.kind not in _TEXTS:
        return value
    fails = f"CAST(raise_error('{_WIDE}') AS {type_})"
    return f"IF(octet_length({value}) > {TEXT_BYTES_MAX}, {fails}, {value})"


def is_wide(exc: BaseException) -> bool:
    """Tell whether a plan failed because a text was too wide."""
    return _WIDE in str(exc)
