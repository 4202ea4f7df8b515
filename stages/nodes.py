"""Numbers for the nodes of a graph that a run meets, so that arrays have a place for each.

Also the types of arrays that all modules of graphs use.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Array = npt.NDArray[Any]
Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]
Int32s = npt.NDArray[np.int32]
Int64s = npt.NDArray[np.int64]

_CLOSE = 4
"""Whole numbers are close to each other if their range is less than this many times their count."""

_MANY = 10_000
"""From this many on, hashing finds numbers faster than binary searches do."""


def array_of(column: pa.ChunkedArray) -> Array:
    """Return a column as an array; texts, and times, which have a zone, are objects."""
    whole = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    if pa.types.is_timestamp(whole.type):
        return np.array(whole.to_pylist(), object)
    array: Array = whole.to_numpy(zero_copy_only=False)
    return array


def typed(values: Array, type_: np.dtype[Any], name: str) -> Array:
    """Return an author's values in the type of their column, which errors call `name`.

    Raises:
        ValueError: The column has whole numbers, and a value is not one, or is too large.
    """
    if values.dtype == type_:
        return values
    with np.errstate(invalid="ignore"):
        same: Array = values.astype(type_)
    if type_.kind == "i":
        wrong = np.flatnonzero(same != values)
        if len(wrong):
            message = (
                f"{name} has whole numbers of {8 * type_.itemsize} bits, got {values[wrong[0]]}"
            )
            raise ValueError(message)
    return same


def order_of(codes: Int64s) -> Int64s:
    """Return the order that sorts non-negative numbers stably."""
    return in_order(codes)[1]


def in_order(codes: Int64s) -> tuple[Int64s, Int64s]:
    """Return non-negative numbers, ascending, and the stable order that sorts them.

    Each number is packed with its place into one number, if both fit: sorting numbers is several
    times as fast as sorting their places.
    """
    bits = max(1, len(codes) - 1).bit_length()
    if int(codes.max(initial=0)) >> (63 - bits):
        order = np.argsort(codes, kind="stable")
        return codes[order], order
    packed: Int64s = codes << bits
    packed |= np.arange(len(codes))
    packed.sort()
    return packed >> bits, packed & ((1 << bits) - 1)


def _offsets(ids: Array) -> tuple[Int64s, Array, int] | None:
    """Return the offset of each id from the least, the distinct ids, and the least.

    `None` if the ids are not whole numbers, or not close to each other.
    """
    if ids.dtype.kind != "i":
        return None
    least, most = int(ids.min()), int(ids.max())
    if most - least >= _CLOSE * len(ids):
        return None
    is_there = np.zeros(most - least + 1, np.bool_)
    offsets = _above(ids, least)
    is_there[offsets] = True
    return offsets, (np.flatnonzero(is_there) + least).astype(ids.dtype), least


def _above(ids: Array, least: int) -> Int64s:
    """Return the offsets of ids from the least; the type of the ids can be too small for them."""
    wide: Int64s = ids.astype(np.int64, copy=False)
    return wide - least if least else wide


def _each_once(ids: Array) -> tuple[Array, Int64s]:
    """Return the distinct ids, ascending, and the place of each id, as `np.unique` does."""
    if ids.dtype.kind == "i" and len(ids) > _MANY:
        encoded = pa.array(ids).dictionary_encode()
        once, places = np.unique(encoded.dictionary.to_numpy(), return_inverse=True)
        return once, places[encoded.indices.to_numpy()]
    return np.unique(ids, return_inverse=True)


class Nodes:
    """Numbers for the nodes of a run, in the order in which they first occur.

    The nodes of the first call ascend by their ids.
    """

    def __init__(self) -> None:
        self.ids: Array = np.empty(0, np.int64)
        self._sorted: Array = self.ids
        self._numbers = np.empty(0, np.int64)

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def by_rank(self) -> Int64s:
        """The numbers of all nodes, in ascending order of their ids."""
        return self._numbers

    @property
    def ranks(self) -> Int64s:
        """The place of each node among all, by their ids."""
        ranks = np.empty(len(self.ids), np.int64)
        ranks[self._numbers] = np.arange(len(self.ids))
        return ranks

    def numbers(self, ids: Array) -> Int64s:
        """Return the number of each node; new nodes get one."""
        if not len(ids):
            return np.empty(0, np.int64)
        if len(self.ids) and len(ids) <= _MANY:
            return self._found(ids)
        close = _offsets(ids)
        if close is None:
            once, places = _each_once(ids)
            return self._numbers_of(once)[places]
        offsets, once, least = close
        table = np.empty(int(once[-1]) - least + 1, np.int64)
        table[_above(once, least)] = self._numbers_of(once)
        numbers: Int64s = table[offsets]
        return numbers

    def _numbers_of(self, once: Array) -> Int64s:
        """Return the numbers of distinct nodes, which ascend."""
        if len(self.ids):
            return self._found(once)
        self.ids = self._sorted = once
        self._numbers = np.arange(len(once))
        return self._numbers

    def _found(self, ids: Array) -> Int64s:
        places = np.minimum(np.searchsorted(self._sorted, ids), len(self.ids) - 1)
        unknown = np.flatnonzero(self._sorted[places] != ids)
        if len(unknown):
            new = ids[unknown]
            self._meet(new if np.all(new[1:] > new[:-1]) else np.unique(new))
            places = np.searchsorted(self._sorted, ids)
        numbers: Int64s = self._numbers[places]
        return numbers

    def _meet(self, new: Array) -> None:
        at = np.searchsorted(self._sorted, new)
        numbers = np.arange(len(self.ids), len(self.ids) + len(new))
        self.ids = np.concatenate([self.ids, new])
        self._sorted = np.insert(self._sorted, at, new)
        self._numbers = np.insert(self._numbers, at, numbers)
