"""Memos: the JSON values that a Runnable or a FrameBy function keeps between its calls."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from cbp.errors import MemoInvalidError

_BITS_MAX = 14_284
"""Largest number: Python writes no number of more than 4,300 digits as text."""


def json_memo(value: Any, path: str = "memo") -> Any:
    """Return a memo as JSON would restore it; `MemoInvalidError` if JSON cannot hold it."""
    if isinstance(value, list | tuple):
        return [json_memo(item, f"{path}[{i}]") for i, item in enumerate(value)]
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                part = f"the key {key!r} of {path}"
                raise MemoInvalidError(part, type(key).__name__)
        return {key: json_memo(item, f"{path}.{key}") for key, item in value.items()}
    if isinstance(value, float) and not math.isfinite(value):
        raise MemoInvalidError(path, repr(value))
    if type(value) is int and value.bit_length() > _BITS_MAX:
        raise MemoInvalidError(path, f"a number of {value.bit_length()} bits")
    if value is None or type(value) in (bool, int, float, str):
        return value
    raise MemoInvalidError(path, type(value).__name__)
