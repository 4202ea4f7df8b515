"""What is left of the changes of a view over many supersteps: rows that say what became of records.

changes of all supersteps -> rows_that_count (now and then) -> rows_left (at the end)
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cbp.engine.columnar.arrow_types import Int64s
from cbp.engine.columnar.row_codes import row_codes
from cbp.model.flow.changes import CHANGE_COLUMNS, SIGN


def rows_left(codes: Int64s, signs: Int64s, counts: Int64s) -> Int64s:
    """Return a row for each record that is left, as often as `counts` says.

    Args:
        codes: A number for the record of each row.
        signs: Rows whose sign is below zero stand for the record.
        counts: By code; none for a record that is not positive.
    """
    rows = np.flatnonzero(signs < 0)
    names, firsts = np.unique(codes[rows], return_index=True)
    times = np.maximum(counts[names], 0)
    left: Int64s = np.repeat(rows[firsts], times)
    return left


def rows_that_count(changes: pa.Table) -> Int64s:
    """Return rows, ascending, that lead where all changes of a view lead, with later ones or not.

    A record that came and went is left out. One that went first was there before the loop: if it
    came again, both rows stay, since its first spelling counts (0.0 and -0.0 are equal).
    """
    (codes,) = row_codes(
        [changes.select([n for n in changes.column_names if n not in CHANGE_COLUMNS])]
    )
    signs = changes.column(SIGN).to_numpy().astype(np.int64)
    sums = np.bincount(codes, weights=signs).astype(np.int64)
    went, came = (_first_rows(codes, rows, len(sums)) for rows in (signs < 0, signs > 0))
    both = (went < came) & (came < len(codes))
    rows = [
        np.repeat(went, np.maximum(-sums, 0) + both),
        np.repeat(came, np.maximum(sums, 0) + both),
    ]
    return np.sort(np.concatenate(rows))


def _first_rows(codes: Int64s, chosen: npt.NDArray[np.bool_], many: int) -> Int64s:
    """Return the first chosen row of each code; behind all rows if there is none."""
    first, rows = np.full(many, len(codes)), np.flatnonzero(chosen)[::-1]
    first[codes[rows]] = rows
    return first
