"""Numbers for the nodes of a graph that a run meets, so that arrays have a place for each."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

__all__ = ["Nodes", "array_of"]

Array = npt.NDArray[Any]
Int64s = npt.NDArray[np.int64]


def array_of(column: pa.ChunkedArray) -> Array:
    """Return a column as an array; texts are objects."""
    array: Array = column.combine_chunks().to_numpy(zero_copy_only=False)
    return array


class Nodes:
    """Numbers for the nodes that a run meets, in the order in which it meets them."""

    def __init__(self) -> None:
        self.ids: Array = np.empty(0, np.int64)
        self._sorted: Array = self.ids
        self._numbers = np.empty(0, np.int64)

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def by_rank(self) -> Int64s:
        """The numbers of all nodes, which ascend by their ids."""
        return self._numbers

    @property
    def ranks(self) -> Int64s:
        """The place of each node among all, by their ids."""
        ranks = np.empty(len(self.ids), np.int64)
        ranks[self._numbers] = np.arange(len(self.ids))
        return ranks

    def numbers(self, ids: Array) -> Int64s:
        """Return the number of each node; nodes that are met for the first time get one."""
        if not len(ids):
            return np.empty(0, np.int64)
        if not len(self.ids):
            self.ids, places = np.unique(ids, return_inverse=True)
            self._sorted, self._numbers = self.ids, np.arange(len(self.ids))
            return places.astype(np.int64)
        places = np.minimum(np.searchsorted(self._sorted, ids), len(self.ids) - 1)
        unknown = np.flatnonzero(self._sorted[places] != ids)
        if len(unknown):
            self._meet(np.unique(ids[unknown]))
            places = np.searchsorted(self._sorted, ids)
        numbers: Int64s = self._numbers[places]
        return numbers

    def _meet(self, new: Array) -> None:
        at = np.searchsorted(self._sorted, new)
        numbers = np.arange(len(self.ids), len(self.ids) + len(new))
        self.ids = np.concatenate([self.ids, new])
        self._sorted = np.insert(self._sorted, at, new)
        self._numbers = np.insert(self._numbers, at, numbers)
