"""The index over retained inputs: beside each record, the last bits of the hash of its group.

    word   n   _key_61c8a0...     one more column in the files of an increment of a source
    apple  1   c3 1f
    pear   2   09 d4

A file of a source is written with it if files of the source can be replaced
(`cbp.model.dataflow.replacement`). To find the records of some groups, this column is read first,
the others only where one of the groups can be, and only keys that can be one of them are hashed.
What the bits let pass is hashed. Without the column (in files of earlier versions, or from before
the stage was there) the keys of all records are hashed.

A key of numbers, dates and times has no index: such keys are hashed as fast as the index is read.
What a file says of their least and greatest value serves instead (`KeyRange`).

The column is in the file that it indexes. So it is durable with it and goes with it, checksums
of the file cover it, and readers leave it out, since they name the columns that they read.

The name of the column is a digest of how the hash is made, so a key that has other columns or types
has another column.

Its size is at most a twentieth of the records', as Arrow has them, and at least 2 bytes a record.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import xxhash

from cbp.engine.columnar.arrow_types import arrow_schema, conform
from cbp.engine.columnar.key_hash import hash_columns
from cbp.engine.storage.file_names import INDEX_PREFIX
from cbp.model.dataflow.dataflow import Dataflow, SourceNode
from cbp.model.dataflow.replacement import is_signed, obstacles
from cbp.model.dataflow.stage import InputSpec
from cbp.model.flow.schema import Schema

_WIDE, _NARROW = 4, 2
_WIDE_FROM = 20 * _WIDE
"""Records of this many bytes have the wide index."""

_BITS_MIN, _BITS_MAX = 16, 22
"""How many of the last bits a table has that says which hashes can be wanted: at least enough for
the narrow index, at most 4 MB. A table of 64 places for each hash lets one of 64 others pass."""

Int64s = npt.NDArray[np.int64]
Positions = npt.NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class GroupKey:
    """How the records of an input are assigned to groups.

    Attributes:
        columns: Columns of the records that make the key, as the input declares them.
        key: The key of the stage, whose columns have the same types.
    """

    columns: Schema
    key: Schema

    @classmethod
    def of(cls, spec: InputSpec, key: Schema | None) -> Self:
        """Return the key of an input that is routed by columns, of a stage with this key."""
        assert isinstance(spec.route_by, tuple), "an input that is recomputed has key columns"
        assert key is not None, "only groups are recomputed"
        return cls(spec.schema.select(spec.route_by), key)

    @property
    def has_index(self) -> bool:
        """Whether files have an index of this key, which is faster than hashing all keys."""
        return not all(pa.types.is_primitive(type_) for type_ in arrow_schema(self.columns).types)

    @property
    def index(self) -> str:
        """The name of the column with bits of the hashes."""
        text = ", ".join(f"{column.name} {column.type}" for column in self.columns.fields)
        return f"{INDEX_PREFIX}{xxhash.xxh3_64_hexdigest(text.encode())}"

    def keys(self, records: pa.Table) -> pa.Table:
        """Return the keys of records, with the names of the stage's key."""
        keys = conform(records, arrow_schema(self.columns))
        return keys.rename_columns(list(self.key.names)).cast(arrow_schema(self.key))

    def hashes(self, keys: pa.Table) -> Int64s:
        """Return the hashes of keys."""
        if not keys.num_rows:
            return np.empty(0, np.int64)
        return hash_columns(keys.columns, [column.type for column in self.key.fields])


def indexed_keys(source: SourceNode, dataflow: Dataflow) -> tuple[GroupKey, ...]:
    """Return the keys of the groups that are recomputed when a file of a source is replaced."""
    every = dataflow.sources, dataflow.stages, dataflow.sinks
    if is_signed(source, dataflow.stages) or any(obstacles(source, *every)):
        return ()
    found: dict[str, GroupKey] = {}
    for stage, name in dataflow.consumers(source.name):
        spec = dataflow.stages[stage].translator
        key = GroupKey.of(spec.input(name), spec.key)
        if key.has_index:
            found[key.index] = key
    return tuple(found.values())


def index_bytes(records: pa.Table) -> int:
    """Return how many bytes of each hash an index for such records has."""
    return _WIDE if records.nbytes >= _WIDE_FROM * records.num_rows else _NARROW


def with_index(records: pa.Table, keys: Sequence[GroupKey], size: int) -> pa.Table:
    """Return records with one index column per key; each value has `size` bytes."""
    for one in keys:
        bits = one.hashes(one.keys(records)).astype(f"<u{size}")
        type_ = pa.binary(size)
        buffers = [None, pa.py_buffer(bits)]
        column = pa.FixedSizeBinaryArray.from_buffers(type_, len(bits), buffers)
        records = records.append_column(pa.field(one.index, type_, nullable=False), column)
    return records


def is_index(field: pa.Field) -> bool:
    """Return whether a column of a file has the type of an index; no other type is read."""
    return any(field.type == pa.binary(size) for size in (_NARROW, _WIDE))


def index_bits(column: pa.ChunkedArray) -> npt.NDArray[Any] | None:
    """Return a column of the index as numbers; `None` if it has nulls."""
    if column.null_count:
        return None
    size = column.type.byte_width
    parts = [
        np.frombuffer(chunk.buffers()[1], f"<u{size}")[chunk.offset : chunk.offset + len(chunk)]
        for chunk in column.chunks
    ]
    return parts[0] if len(parts) == 1 else np.concatenate([np.empty(0, f"<u{size}"), *parts])


class KeyRange:
    """The least and the greatest value of the first key column, if it has numbers or dates.

    A row group whose values are all outside this range has none of the keys.
    """

    def __init__(self) -> None:
        self._least: Any = None
        self._most: Any = None
        self._known = True

    def add(self, keys: pa.Table) -> None:
        """Extend the range by some keys."""
        column = keys.column(0)
        ranked = pa.types.is_integer(column.type) or pa.types.is_date32(column.type)
        self._known = self._known and ranked and not column.null_count
        if not self._known or not len(column):
            return
        least, most = pc.min_max(column).as_py().values()
        self._least = least if self._least is None else min(least, self._least)
        self._most = most if self._most is None else max(most, self._most)

    def inside(self, keys: pa.Table) -> npt.NDArray[np.bool_]:
        """Return which keys are inside the range."""
        if not self._known or self._least is None:
            return np.ones(keys.num_rows, np.bool_)
        column = keys.column(0)
        least, most = (pa.scalar(one, column.type) for one in (self._least, self._most))
        inside = pc.and_(pc.greater_equal(column, least), pc.less_equal(column, most))
        mask: npt.NDArray[np.bool_] = inside.fill_null(False).to_numpy()
        return mask

    def excludes(self, statistics: pq.Statistics | None) -> bool:
        """Return whether statistics of a row group show that it has none of the keys."""
        if not self._known or statistics is None or not statistics.has_min_max:
            return False
        if self._least is None:
            return True
        return bool(statistics.max < self._least or statistics.min > self._most)


class GroupHashes:
    """Finds the hashes of some groups in arrays of hashes. Threads may share it."""

    def __init__(self, hashes: Int64s) -> None:
        self.hashes = np.unique(hashes)
        enough = (64 * self.hashes.size).bit_length()
        self._bits = (1 << min(max(enough, _BITS_MIN), _BITS_MAX)) - 1
        self._last = np.zeros(self._bits + 1, np.bool_)
        self._last[self.hashes & self._bits] = True
        self._known = {
            8: self.hashes,
            _WIDE: np.unique(self.hashes.astype(f"<u{_WIDE}")),
            _NARROW: np.unique(self.hashes.astype(f"<u{_NARROW}")),
        }

    def among(self, hashes: npt.NDArray[Any]) -> Positions:
        """Return the positions at which an array has a hash of these groups.

        Args:
            hashes: Signed hashes, as returned by `hash_columns`; or unsigned: their last 4 or 2
                bytes.
        """
        known = self._known[hashes.dtype.itemsize]
        if hashes.dtype.itemsize == _NARROW:
            wanted = np.zeros(1 << 8 * _NARROW, np.bool_)
            wanted[known] = True
            return np.flatnonzero(wanted[hashes])
        # Most of the others are seen by a few bits alone.
        likely = np.flatnonzero(self._last[hashes & hashes.dtype.type(self._bits)])
        if not likely.size:
            return likely
        some = hashes[likely]
        at = np.minimum(np.searchsorted(known, some), known.size - 1)
        found: Positions = likely[known[at] == some]
        return found
