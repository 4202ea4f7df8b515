"""Converts values of records and errors to JSON values.

Dates and times become ISO 8601, decimals become text, binary becomes base64. A float that JSON
lacks becomes the string `NaN`, `Infinity` or `-Infinity`. Half of a surrogate pair, which occurs in
file names that are not UTF-8, becomes U+FFFD.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any


def json_value(value: Any) -> Any:
    """Return a record's value as a JSON value."""
    if isinstance(value, float):
        return value if math.isfinite(value) else _special_float(value)
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, bytes | bytearray | memoryview):
        return base64.b64encode(bytes(value)).decode("ascii")
    if isinstance(value, Mapping):
        return {_name(key): json_value(item) for key, item in value.items()}
    if isinstance(value, date):  # a datetime is a date too
        return value.isoformat()
    if isinstance(value, Sequence):
        return [json_value(item) for item in value]
    return str(value)


def _special_float(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"


def _name(key: Any) -> str:
    plain = json_value(key)
    if isinstance(plain, bool):
        return "true" if plain else "false"
    return "null" if plain is None else str(plain)
