"""How large a batch of results may be on its way from the JVM to Python.

Spark bounds a batch by its bytes, for which it asks every column for its size after every
record: a fifth of all that the JVM does for a million counts. Where no Python of an author
takes part, the plan itself sees to it that no text of a result is wider than
`TEXT_BYTES_MAX`; then a number of records bounds the bytes, and nobody has to count.

Guaranteed: a batch holds some `BATCH_BYTES_MAX` at most, or one record. A text that is wider
fails the plan before it is in a batch (`is_wide`), and the stage goes on with Spark's count.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pyspark.sql import SparkSession

from cbp.model.schema import DataType, Schema

__all__ = [
    "BATCH_BYTES_MAX",
    "TEXT_BYTES_MAX",
    "batch_settings",
    "checked",
    "counted_settings",
    "is_wide",
]

TEXT_BYTES_MAX = 8 << 10
"""Wider texts are rare, and where there are some, counting bytes costs little beside them."""

BATCH_BYTES_MAX = 64 << 20
"""Spark's own default."""

_RECORDS_MAX = 65_536  # as the session says (`cbp.engine.spark.session`)
_TEXTS = ("STRING", "BINARY")
_WIDE = "|cbp-wide|"
_RECORDS = "spark.sql.execution.arrow.maxRecordsPerBatch"
_BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"
_UNCOUNTED = (1 << 31) - 1  # at this value, and no other, Spark does not ask for sizes


def batch_settings(flows: Iterable[Schema]) -> Mapping[str, str] | None:
    """Return Spark's settings for batches of records of some flows whose texts are `checked`.

    `None`: something else than texts has no known width, so Spark has to count.
    """
    types = [[field.type for field in flow.fields] for flow in flows]
    if any(type_.arguments for row in types for type_ in row):
        return None
    texts = max((sum(type_.kind in _TEXTS for type_ in row) for row in types), default=0)
    most = BATCH_BYTES_MAX // (TEXT_BYTES_MAX * max(1, texts))
    return {_RECORDS: str(max(1, min(_RECORDS_MAX, most))), _BYTES: str(_UNCOUNTED)}


def counted_settings(spark: SparkSession) -> Mapping[str, str]:
    """Return what the service's session says of batches: Spark counts their bytes."""
    conf = spark.sparkContext.getConf()
    defaults = {_RECORDS: str(_RECORDS_MAX), _BYTES: str(BATCH_BYTES_MAX)}
    return {name: conf.get(name, default) for name, default in defaults.items()}


def checked(value: str, type_: DataType) -> str:
    """Return an expression that is a value of some type, or fails if it is too wide a text."""
    if type_.kind not in _TEXTS:
        return value
    fails = f"CAST(raise_error('{_WIDE}') AS {type_})"
    return f"IF(octet_length({value}) > {TEXT_BYTES_MAX}, {fails}, {value})"


def is_wide(exc: BaseException) -> bool:
    """Tell whether a plan failed since a text was too wide."""
    return _WIDE in str(exc)
