"""The index over retained inputs: beside each record, the last bits of its group's hash.

    word   n   _key_61c8a0...     one more column in the files of an increment of a source
    apple  1   c3 1f
    pear   2   09 d4

A file of a source is written with it if files of the source can be replaced
(`cbp.model.dataflow.replacement_obstacles`). To find the records of some groups, this column is
read first. The other columns are read only where one of the groups can be, and the keys that pass
are hashed. Without the column (in earlier files) all keys are hashed. Keys of numbers, dates and
times have no index: hashing them is as fast as reading it. A file's least and greatest value serve
instead (`KeyRange`), also for texts.

The column is in the file that it indexes: it is as durable, checksums cover it, and readers leave
it out, since they name the columns that they read. Its name is a digest of how the hash is made, so
a key that has other columns or types has another column.

The index has 12, 16 or 32 bits of each hash: at most a twentieth of the bytes that the records take
in Arrow, or, with small records, 1.7 bytes for each (Parquet stores the difference of two 12-bit
numbers in 13 bits, `index_encodings`). In a file of 20,000 records, five records of other groups
are expected to pass for each group that is looked up by 12 bits.
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

from cbp.engine.columnar.arrow_types import Int64s, Mask, arrow_schema, conform
from cbp.engine.columnar.key_hash import hash_columns
from cbp.engine.storage.file_names import INDEX_PREFIX
from cbp.model.dataflow.dataflow import Dataflow, SourceNode
from cbp.model.dataflow.replacement_obstacles import is_signed, obstacles
from cbp.model.dataflow.stage import InputSpec
from cbp.model.flow.schema import Schema

_TYPES = {12: pa.uint16(), 16: pa.binary(2), 32: pa.binary(4)}
"""The width of an index, in bits of each hash -> the type of its column."""
_PACKED = pa.uint16()
_FROM_BYTES = {32: 80, 16: 40, 12: 0}
"""The width of an index -> the least average size, in bytes, of the records that get it."""

_RANKED = (pa.types.is_integer, pa.types.is_date32, pa.types.is_string)
"""Types of key columns for which the least and greatest value of a file are used (`KeyRange`)."""

_PASS_MAX = 0.75
"""An index that lets a larger share of the records pass is not read: hashing all keys is faster."""

_BITS_MIN, _BITS_MAX = 16, 22
"""Bounds for the number of last bits by which the table of wanted hashes is indexed; the table
takes at most 4 MB. With 64 places for each wanted hash, it lets one in 64 of the other hashes pass.
"""

Positions = npt.NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class GroupKey:
    """How records with some `columns` are assigned to groups, by a `key` with the same types."""

    columns: Schema
    key: Schema

    @classmethod
    def of(cls, spec: InputSpec, key: Schema | None) -> Self:
        """Return how the columns that route an input give the key of a stage's groups."""
        assert isinstance(spec.route_by, tuple), "a recomputation needs inputs routed by columns"
        assert key is not None, "a recomputation needs a stage with a key"
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


@dataclass(frozen=True, slots=True)
class IndexBits:
    """The last `width` bits of the hash of each record's key, as unsigned numbers."""

    last: npt.NDArray[Any]
    width: int

    @classmethod
    def of(cls, hashes: Int64s, width: int) -> Self:
        """Return the last bits of hashes."""
        if width > 16:
            return cls(hashes.astype("<u4"), width)
        last = hashes.astype("<u2")
        return cls(last if width == 16 else last & np.uint16((1 << width) - 1), width)

    def take(self, at: Positions) -> Self:
        """Return the bits of a part of the records."""
        return type(self)(self.last[at], self.width)

    def fits(self, hashes: Int64s) -> bool:
        """Return whether these bits are the last ones of the given hashes."""
        return np.array_equal(self.of(hashes, self.width).last, self.last)


def choose_width(records: pa.Table) -> int:
    """Return how many bits of each hash the index of records like these has."""
    rows = records.num_rows
    return next(width for width, size in _FROM_BYTES.items() if records.nbytes >= size * rows)


def with_index(records: pa.Table, keys: Sequence[GroupKey], width: int) -> pa.Table:
    """Return records with the columns of the index for some keys, of this width."""
    type_ = _TYPES[width]
    for one in keys:
        last = IndexBits.of(one.hashes(one.keys(records)), width).last
        column = pa.Array.from_buffers(type_, len(last), [None, pa.py_buffer(last)])
        records = records.append_column(pa.field(one.index, type_, nullable=False), column)
    return records


def index_encodings(fields: Sequence[pa.Field]) -> dict[str, str]:
    """Return how Parquet encodes those columns of an index that it can make smaller."""
    return {one.name: "DELTA_BINARY_PACKED" for one in fields if one.type == _PACKED}


def index_width(field: pa.Field) -> int | None:
    """Return how many bits of each hash a column has; `None` if no index has its type."""
    return next((width for width, type_ in _TYPES.items() if field.type == type_), None)


def index_bits(column: pa.ChunkedArray, width: int) -> IndexBits | None:
    """Return a column of an index of this width; `None` if it has nulls, or too large numbers."""
    if column.null_count:
        return None
    type_ = "<u4" if width > 16 else "<u2"
    parts = [
        np.frombuffer(chunk.buffers()[1], type_)[chunk.offset : chunk.offset + len(chunk)]
        for chunk in column.chunks
    ]
    last = parts[0] if len(parts) == 1 else np.concatenate([np.empty(0, type_), *parts])
    return None if last.size and int(last.max()) >> width else IndexBits(last, width)


class KeyRange:
    """The least and the greatest value of the first column of some keys: numbers, dates, texts.

    A row group whose values are all outside of this range has none of the keys. Texts are in the
    order of their bytes in UTF-8, in Parquet as in Python.
    """

    def __init__(self) -> None:
        self._least: Any = None
        self._most: Any = None
        self._known = True

    def add(self, keys: pa.Table) -> None:
        """Extend the range by some keys."""
        column = keys.column(0)
        ranked = any(is_(column.type) for is_ in _RANKED)
        self._known = self._known and ranked and not column.null_count
        if not self._known or not len(column):
            return
        least, most = pc.min_max(column).as_py().values()
        self._least = least if self._least is None else min(least, self._least)
        self._most = most if self._most is None else max(most, self._most)

    def inside(self, keys: pa.Table) -> Mask:
        """Return which keys are inside the range."""
        if not self._known or self._least is None:
            return np.ones(keys.num_rows, np.bool_)
        column = keys.column(0)
        least, most = (pa.scalar(one, column.type) for one in (self._least, self._most))
        inside = pc.and_(pc.greater_equal(column, least), pc.less_equal(column, most))
        mask: Mask = inside.fill_null(False).to_numpy()
        return mask

    def excludes(self, statistics: pq.Statistics | None) -> bool:
        """Return whether statistics of a row group show that it has none of the keys."""
        if not self._known or statistics is None or not statistics.has_min_max:
            return False
        if self._least is None:
            return True
        if type(statistics.max) is not type(self._least):
            return False
        return bool(statistics.max < self._least or statistics.min > self._most)


class GroupHashes:
    """Finds the hashes of some groups in arrays of hashes. Threads may share it."""

    def __init__(self, hashes: Int64s) -> None:
        self.hashes = np.unique(hashes)
        enough = (64 * self.hashes.size).bit_length()
        self._bits = (1 << min(max(enough, _BITS_MIN), _BITS_MAX)) - 1
        self._last = np.zeros(self._bits + 1, np.bool_)
        self._last[self.hashes & self._bits] = True
        self._wide = np.unique(IndexBits.of(self.hashes, 32).last)
        self._narrow = {width: self._table(width) for width in (12, 16)}
        self._pass_most = {w for w, table in self._narrow.items() if table.mean() > _PASS_MAX}

    def _table(self, width: int) -> Mask:
        wanted = np.zeros(1 << width, np.bool_)
        wanted[IndexBits.of(self.hashes, width).last] = True
        return wanted

    def narrows(self, width: int) -> bool:
        """Return whether an index of this width excludes enough records to be worth reading."""
        return width not in self._pass_most

    def likely(self, bits: IndexBits) -> Positions:
        """Return the positions that may have a hash of the groups, judged by the last bits."""
        if bits.width in self._narrow:
            return np.flatnonzero(self._narrow[bits.width][bits.last])
        return self._found(bits.last, self._wide)

    def among(self, hashes: Int64s) -> Positions:
        """Return the positions that have a hash of the groups."""
        return self._found(hashes, self.hashes)

    def _found(self, hashes: npt.NDArray[Any], known: npt.NDArray[Any]) -> Positions:
        # Their last bits alone exclude most other hashes.
        likely = np.flatnonzero(self._last[hashes & hashes.dtype.type(self._bits)])
        if not likely.size:
            return likely
        some = hashes[likely]
        at = np.minimum(np.searchsorted(known, some), known.size - 1)
        found: Positions = likely[known[at] == some]
        return found
