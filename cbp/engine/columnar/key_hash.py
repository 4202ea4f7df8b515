"""The hash of a key in Python, bit for bit as Spark's `xxhash64(column, ...)`.

A group's hash decides its bucket and the order in which groups are called, so every
engine must compute the same hash. Spark chains XXH64 over the columns, beginning with seed 42;
a null leaves the seed unchanged. Fixed-width values are hashed as 4 or 8 little-endian
bytes, with plain XXH64.

Guarantees: equal to Spark for every type that may be a key; 0.0 and -0.0 hash alike,
and so do all NaNs (tests/cbp/engine/columnar/test_key_hash.py). Not for cryptography.

    >>> key_hash(["a"], [DataType("STRING")])
    -8582455328737087284

Source: Spark, catalyst `XxHash64Function` and `XXH64`; the XXH64 specification.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from xxhash import xxh64_intdigest

from cbp.engine.columnar.arrow_types import Int64s
from cbp.engine.columnar.xxh64 import P1, P2, P3, P4, P5, Hashes, avalanche, rotate, xxh64
from cbp.model.flow.schema import DataType

SEED = 42
_MASK = (1 << 64) - 1
_SIGN = np.int64(-(1 << 63))
_LONG_DIGITS = 18
_FEW = 4
"""Up to this many keys are hashed one by one; for more, hashing whole columns is faster."""
_ROWS_AT_ONCE = 16_384
"""Numbers that are hashed at a time, so that the columns of each step stay in the cache."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_EPOCH_DAY = date(1970, 1, 1)
_INT_KINDS = frozenset({"INT", "SMALLINT", "TINYINT"})
_EXACT = _INT_KINDS | {"BIGINT", "BINARY", "BOOLEAN", "STRING"}
"""Types whose every value has a counterpart in Python; some dates and times have none."""


def key_hash(values: Sequence[Any], types: Sequence[DataType]) -> int:
    """Return the signed 64-bit hash of one key, whose types are atoms or decimals.

    A naive `datetime` is taken as UTC. A value that is not of its type raises `TypeError`,
    `ValueError`, `OverflowError` or `struct.error`.
    """
    digest = SEED
    for value, type_ in zip(values, types, strict=True):
        if value is not None:
            digest = xxh64_intdigest(_bytes_of(value, type_), digest)
    return digest - (1 << 64) if digest >> 63 else digest


def bucket_of(hash_: int, buckets: int) -> int:
    """Return the bucket of a signed hash: its high bits; doubling `buckets` splits each in two."""
    return (hash_ & _MASK) >> bucket_shift(buckets)


def bucket_shift(buckets: int) -> int:
    """Return the number of bits by which an unsigned hash is shifted to give its bucket."""
    return 64 - (buckets.bit_length() - 1)


def flipped(hashes: Int64s) -> Int64s:
    """Return hashes with flipped signs, which ascend like unsigned ones; twice undoes it."""
    return hashes ^ _SIGN


def first_bucket(part: int, *, tasks: int, buckets: int) -> int:
    """Return the first bucket of task `part`."""
    return -(-part * buckets // tasks)


def hash_columns(
    columns: Sequence[pa.Array | pa.ChunkedArray], types: Sequence[DataType]
) -> Int64s:
    """Return the signed hash of each row; the vectorised `key_hash`.

    There is at least one column; columns have the Arrow types of `types` (`large_string` and
    `large_binary` too).
    """
    if 0 < len(columns[0]) <= _FEW and all(type_.kind in _EXACT for type_ in types):
        rows = zip(*(column.to_pylist() for column in columns), strict=True)
        return np.array([key_hash(row, types) for row in rows], np.int64)
    digests = np.full(len(columns[0]), SEED, np.uint64)
    for column, type_ in zip(columns, types, strict=True):
        if type_.kind in ("STRING", "BINARY"):
            column = column.cast(pa.large_binary())  # so that any size fits one array
        array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
        with np.errstate(over="ignore"):
            hashed = _hash_array(array, type_, digests)
        if array.null_count:
            digests = np.where(array.is_valid().to_numpy(zero_copy_only=False), hashed, digests)
        else:
            digests = hashed
    return digests.view(np.int64)


def _bytes_of(value: Any, type_: DataType) -> bytes:
    """Return the bytes that Spark feeds to XXH64 for a value that is not null."""
    kind = type_.kind
    if kind == "STRING":
        return bytes(value.encode())
    if kind == "BINARY":
        return bytes(value)
    if kind == "BOOLEAN":
        return struct.pack("<i", 1 if value else 0)
    if kind in _INT_KINDS:
        return struct.pack("<i", value)
    if kind == "DATE":
        return struct.pack("<i", (value - _EPOCH_DAY).days)
    if kind == "BIGINT":
        return struct.pack("<q", value)
    if kind == "TIMESTAMP":
        aware = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
        return struct.pack("<q", (aware - _EPOCH) // timedelta(microseconds=1))
    if kind in ("DOUBLE", "FLOAT"):
        # As Java's floatToIntBits, which Spark uses: `x != x` finds NaN, `+ 0.0` makes -0.0 0.0.
        number = float("nan") if value != value else value + 0.0
        return struct.pack("<d" if kind == "DOUBLE" else "<f", number)
    if kind == "DECIMAL":
        return _unscaled_bytes(_unscaled(value, type_.scale), type_.precision)
    msg = f"{type_} cannot be a key"
    raise TypeError(msg)


def _unscaled(value: Decimal | int, scale: int) -> int:
    """Return the unscaled integer of a decimal: the value times `10**scale`, without rounding."""
    sign, digits, exponent = Decimal(value).as_tuple()
    if not isinstance(exponent, int):
        msg = f"{value} is not a finite number"
        raise ValueError(msg)
    number, rest = int("".join(map(str, digits))), 0
    if exponent + scale >= 0:
        number *= 10 ** (exponent + scale)
    else:
        number, rest = divmod(number, 10 ** -(exponent + scale))
    if rest:
        msg = f"{value} has more than {scale} decimal places"
        raise ValueError(msg)
    unscaled: int = -number if sign else number
    return unscaled


def _unscaled_bytes(unscaled: int, precision: int) -> bytes:
    """Return a decimal's bytes: a long when it fits, else Java's `BigInteger.toByteArray`."""
    if precision <= _LONG_DIGITS:
        return struct.pack("<q", unscaled)
    magnitude = unscaled if unscaled >= 0 else ~unscaled
    return unscaled.to_bytes(magnitude.bit_length() // 8 + 1, "big", signed=True)


def _hash_array(array: pa.Array, type_: DataType, seeds: Hashes) -> Hashes:
    """Hash every row with its own seed; results of null rows are meaningless."""
    kind = type_.kind
    if kind in ("STRING", "BINARY"):
        _, offsets, content = array.buffers()
        ends = np.frombuffer(offsets, np.int64)[array.offset : array.offset + len(array) + 1]
        return xxh64(memoryview(content if content is not None else b""), ends, seeds)
    if kind == "DECIMAL":
        return _hash_decimal(array, type_.precision, seeds)
    if kind in ("DOUBLE", "FLOAT"):
        return _hash_floats(array, kind, seeds)
    if kind == "BIGINT":
        return _hash_longs(_numbers(array, pa.int64()).view(np.uint64), seeds)
    if kind == "TIMESTAMP":
        micros = array.cast(pa.timestamp("us", tz="UTC")).view(pa.int64())
        return _hash_longs(_numbers(micros, pa.int64()).view(np.uint64), seeds)
    if kind == "DATE":
        array = array.view(pa.int32())
    elif kind not in _INT_KINDS and kind != "BOOLEAN":
        msg = f"{type_} cannot be a key"
        raise TypeError(msg)
    return _hash_ints(_numbers(array, pa.int32()).view(np.uint32), seeds)


def _numbers(array: pa.Array, type_: pa.DataType) -> npt.NDArray[Any]:
    """Return numbers as a NumPy array; null rows hold 0."""
    cast = array.cast(type_)
    numbers: npt.NDArray[Any] = (cast.fill_null(0) if cast.null_count else cast).to_numpy()
    return numbers


def _hash_floats(array: pa.Array, kind: str, seeds: Hashes) -> Hashes:
    if kind == "DOUBLE":
        doubles = _numbers(array, pa.float64()) + 0.0
        doubles[np.isnan(doubles)] = np.nan
        return _hash_longs(doubles.view(np.uint64), seeds)
    floats = _numbers(array, pa.float32()) + np.float32(0.0)
    floats[np.isnan(floats)] = np.float32(np.nan)
    return _hash_ints(floats.view(np.uint32), seeds)


def _hash_decimal(array: pa.Array, precision: int, seeds: Hashes) -> Hashes:
    # A decimal128 is 16 little-endian bytes: its lower half is the long that Spark hashes.
    halves = np.frombuffer(array.buffers()[1], np.uint64)
    rows = halves[2 * array.offset : 2 * (array.offset + len(array))].reshape(-1, 2)
    if precision <= _LONG_DIGITS:
        return _hash_longs(rows[:, 0], seeds)
    whole = (int.from_bytes(row.tobytes(), "little", signed=True) for row in rows)
    values = (_unscaled_bytes(number, precision) for number in whole)
    return np.fromiter(map(xxh64_intdigest, values, seeds.tolist()), np.uint64, len(seeds))


def _hash_ints(values: npt.NDArray[np.uint32], seeds: Hashes) -> Hashes:
    mixed = (seeds + P5 + np.uint64(4)) ^ (values.astype(np.uint64) * P1)
    return avalanche(rotate(mixed, 23) * P2 + P3)


def _hash_longs(values: Hashes, seeds: Hashes) -> Hashes:
    digests = np.empty(len(values), np.uint64)
    for at in range(0, len(values), _ROWS_AT_ONCE):
        some = slice(at, at + _ROWS_AT_ONCE)
        mixed = (seeds[some] + P5 + np.uint64(8)) ^ (rotate(values[some] * P2, 31) * P1)
        digests[some] = avalanche(rotate(mixed, 27) * P1 + P4)
    return digests
