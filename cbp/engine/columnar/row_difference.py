"""Difference of two tables as multisets: equal rows take each other out, one by one."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cbp.engine.columnar.row_codes import row_codes


def rows_left(rows: pa.Table, gone: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Take rows out of a table; return what is left of it, and what it did not have.

    Args:
        rows: The table.
        gone: What is taken out; its columns have the same types, and are matched by position.
    """
    if not rows.num_rows or not gone.num_rows:
        return rows, gone
    own, other = row_codes([rows, gone])
    size = 1 + max(int(own.max()), int(other.max()))
    both = np.minimum(np.bincount(own, minlength=size), np.bincount(other, minlength=size))
    return rows.filter(_stay(own, both)), gone.filter(_stay(other, both))


def _stay(codes: npt.NDArray[np.int64], out: npt.NDArray[np.int64]) -> pa.Array:
    """Return a mask without the first `out[c]` rows of each code `c`."""
    order = np.argsort(codes, kind="stable")
    ascending = codes[order]
    rank = np.arange(len(codes)) - np.searchsorted(ascending, ascending)
    stay = np.empty(len(codes), np.bool_)
    stay[order] = rank >= out[ascending]
    return pa.array(stay)
