"""XXH64 of many byte strings together, with NumPy: the hot part of routing by a text key.

Strings of the same length are hashed together, word by word. Rare lengths go through the xxhash
library, string by string; the digests are the same (tests/cbp/engine/columnar/test_xxh64.py). Words
are read through an overlapping view of the buffer that holds all strings, so only the words in use
are copied.

Source: the XXH64 specification.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
from xxhash import xxh64_intdigest

from cbp.engine.columnar.arrow_types import Int64s

P1 = np.uint64(0x9E3779B185EBCA87)
P2 = np.uint64(0xC2B2AE3D27D4EB4F)
P3 = np.uint64(0x165667B19E3779F9)
P4 = np.uint64(0x85EBCA77C2B2AE63)
P5 = np.uint64(0x27D4EB2F165667C5)

_STRIPE, _WORD, _HALF = 32, 8, 4
_TOGETHER_MIN = 128  # fewer strings of one length are cheaper one by one
_ROWS_AT_ONCE = 16_384  # so that the columns of a step stay in the processor's cache
_LENGTH_MAX = 4096  # beyond it, the library's loop over one string is as fast

Hashes = npt.NDArray[np.uint64]


def xxh64(data: bytes | memoryview, ends: Int64s, seeds: Hashes) -> Hashes:
    """Return the digest of every string `data[ends[i]:ends[i + 1]]`, each with its own seed."""
    starts = ends[:-1]
    lengths = np.diff(ends)
    digests = np.empty(len(seeds), np.uint64)
    order, edges = _by_length(lengths)
    words = _Words(data)
    for start, stop in pairwise(edges):
        rows = order[start:stop]
        length = int(lengths[rows[0]])
        if len(rows) < _TOGETHER_MIN or length > _LENGTH_MAX:
            digests[rows] = _one_by_one(data, starts[rows], length, seeds[rows])
            continue
        for at in range(0, len(rows), _ROWS_AT_ONCE):
            part = rows[at : at + _ROWS_AT_ONCE]
            digests[part] = _same_length(words, starts[part], length, seeds[part])
    return digests


def _by_length(lengths: Int64s) -> tuple[Int64s, list[int]]:
    """Return the rows sorted by length, and where each length begins; the last entry is the end."""
    if not len(lengths):
        return lengths, [0]
    longest = int(lengths.max())
    if longest == int(lengths.min()):
        return np.arange(len(lengths)), [0, len(lengths)]
    # NumPy sorts 16-bit numbers by counting, which is eight times as fast.
    narrow = longest <= np.iinfo(np.uint16).max
    order = np.argsort(lengths.astype(np.uint16) if narrow else lengths, kind="stable")
    edges = np.flatnonzero(np.diff(lengths[order])) + 1
    return order, [0, *edges.tolist(), len(order)]


def rotate(values: Hashes, bits: int) -> Hashes:
    """Rotate every value to the left."""
    return (values << np.uint64(bits)) | (values >> np.uint64(64 - bits))


def avalanche(values: Hashes) -> Hashes:
    """Apply the last step of XXH64."""
    values = (values ^ (values >> np.uint64(33))) * P2
    values = (values ^ (values >> np.uint64(29))) * P3
    return values ^ (values >> np.uint64(32))


class _Words:
    """Little-endian numbers that begin at any byte of a buffer."""

    def __init__(self, data: bytes | memoryview) -> None:
        self._views: dict[int, npt.NDArray[Any]] = {}
        for size in (_WORD, _HALF, 1):
            shape, kind = (max(0, len(data) - size + 1),), np.dtype(f"<u{size}")
            self._views[size] = np.ndarray(shape, kind, data, strides=(1,))

    def at(self, size: int, places: Int64s) -> Hashes:
        """Return the numbers of 8, 4 or 1 bytes at these places."""
        return self._views[size][places].astype(np.uint64)


def _one_by_one(data: bytes | memoryview, starts: Int64s, length: int, seeds: Hashes) -> Hashes:
    view = memoryview(data)
    values = (view[start : start + length] for start in starts.tolist())
    return np.fromiter(map(xxh64_intdigest, values, seeds.tolist()), np.uint64, len(seeds))


def _same_length(words: _Words, starts: Int64s, length: int, seeds: Hashes) -> Hashes:
    with np.errstate(over="ignore"):
        at = length // _STRIPE * _STRIPE
        digest = _stripes(words, starts, at, seeds) if at else seeds + P5
        digest = digest + np.uint64(length)
        while at + _WORD <= length:
            digest = digest ^ _round(np.uint64(0), words.at(_WORD, starts + at))
            digest = rotate(digest, 27) * P1 + P4
            at += _WORD
        if at + _HALF <= length:
            digest = rotate(digest ^ (words.at(_HALF, starts + at) * P1), 23) * P2 + P3
            at += _HALF
        for byte in range(at, length):
            digest = rotate(digest ^ (words.at(1, starts + byte) * P5), 11) * P1
        return avalanche(digest)


def _stripes(words: _Words, starts: Int64s, end: int, seeds: Hashes) -> Hashes:
    """Return the digest of the complete stripes of 32 bytes."""
    lanes = [seeds + P1 + P2, seeds + P2, seeds, seeds - P1]
    for at in range(0, end, _STRIPE):
        for lane in range(4):
            lanes[lane] = _round(lanes[lane], words.at(_WORD, starts + (at + lane * _WORD)))
    turned = [rotate(value, bits) for value, bits in zip(lanes, (1, 7, 12, 18), strict=True)]
    digest = turned[0] + turned[1] + turned[2] + turned[3]
    for value in lanes:
        digest = (digest ^ _round(np.uint64(0), value)) * P1 + P4
    return digest


def _round(lane: Any, word: Hashes) -> Hashes:
    result: Hashes = rotate(lane + word * P2, 31) * P1
    return result
