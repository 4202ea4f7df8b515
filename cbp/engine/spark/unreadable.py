"""Recognizes Spark's errors for a file of an increment that cannot be read."""

from __future__ import annotations

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

__all__ = ["is_unreadable"]

_MARKS = ("FAILED_READ_FILE", "FILE_NOT_EXIST", "PATH_NOT_FOUND", "is not a Parquet file")


def is_unreadable(exc: Exception) -> bool:
    """Tell whether Spark could not read a file of an increment."""
    spark = isinstance(exc, (PySparkException, Py4JJavaError))  # not every error is converted
    return spark and any(mark in str(exc) for mark in _MARKS)
