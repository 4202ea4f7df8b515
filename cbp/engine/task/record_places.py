"""Where a record lies in the input of a run, from the number that the shuffle gives it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate

import numpy as np
import numpy.typing as npt

from cbp.engine.columnar.file_slices import Share
from cbp.engine.shuffle.layout import SEQUENCE_BITS
from cbp.errors import AuthorCodeError

__all__ = ["arrivals", "first_arrivals", "with_places"]

Int64s = npt.NDArray[np.int64]


def arrivals(sequences: Int64s, files: Sequence[Share], *, packed: bool) -> Int64s:
    """Return the places of records among those of their input, from 0.

    Args:
        sequences: The records' `_seq`.
        files: The files of the input, in order.
        packed: Whether Spark numbered them: if all files are whole, by increment, file and row.
    """
    if not packed or any(file.start or file.stop != file.rows for file in files):
        return sequences
    rows, parts = SEQUENCE_BITS
    names = [file.path.rpartition("/")[2] for file in files]
    first = min(int(name[:12]) for name in names)
    packs = [
        (int(name[:12]) - first) << (rows + parts) | int(name[13:18]) << rows for name in names
    ]
    before = list(accumulate((file.rows for file in files), initial=0))
    start_of = dict(zip(packs, before, strict=False))
    low = np.int64((1 << rows) - 1)
    starts = [start_of[pack] for pack in (sequences & ~low).tolist()]
    return np.array(starts, np.int64) + (sequences & low)


def first_arrivals(
    error: AuthorCodeError, files: Mapping[str, Sequence[Share]], *, packed: bool
) -> dict[str, int]:
    """Return the places of the first records of a call that failed, by input; as `arrivals`."""
    return {
        name: int(arrivals(np.array([place], np.int64), files[name], packed=packed)[0])
        for name, place in error.places.items()
        if name in files
    }


def with_places(error: AuthorCodeError, places: Mapping[str, int]) -> AuthorCodeError:
    """Return an error with the places of the records, as a detail that outlives its process."""
    if places:
        error.details = {**error.details, "records": dict(places)}
    return error
