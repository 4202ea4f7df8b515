"""Spans of rows (start, length) expanded to row numbers, without a Python loop."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

__all__ = ["span_rows"]

Int64s = npt.NDArray[np.int64]


def span_rows(starts: Int64s, lengths: Int64s) -> Int64s:
    """Return the row numbers of some spans, one span after the other, each ascending."""
    before = np.cumsum(lengths) - lengths
    rows: Int64s = np.repeat(starts - before, lengths) + np.arange(lengths.sum())
    return rows
