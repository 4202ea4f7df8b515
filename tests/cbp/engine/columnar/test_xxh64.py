"""XXH64 of many strings at once gives what the library gives for each."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from xxhash import xxh64_intdigest

from cbp.engine.columnar import xxh64 as module
from cbp.engine.columnar.xxh64 import xxh64


def digests(values: list[bytes], seeds: list[int], *, before: bytes = b"") -> list[int]:
    ends = np.cumsum([len(before), *map(len, values)])
    data = memoryview(before + b"".join(values))
    return [int(v) for v in xxh64(data, ends, np.array(seeds, np.uint64))]


def expected(values: list[bytes], seeds: list[int]) -> list[int]:
    return [xxh64_intdigest(value, seed) for value, seed in zip(values, seeds, strict=True)]


@pytest.mark.parametrize("length", [*range(0, 101), 127, 128, 1000])
def test_every_length_is_hashed_as_the_library_does(
    length: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stripes, words, half words and single bytes all take part, at odd places too."""
    monkeypatch.setattr(module, "_TOGETHER_MIN", 1)
    chance = np.random.default_rng(length)
    values = [chance.bytes(length) for _ in range(5)]
    seeds = [int(v) for v in chance.integers(0, 1 << 63, 5)]
    assert digests(values, seeds, before=b"xyz") == expected(values, seeds)


@given(st.lists(st.tuples(st.binary(max_size=80), st.integers(0, 2**64 - 1)), max_size=40))
def test_mixed_lengths_keep_their_places(pairs: list[tuple[bytes, int]]) -> None:
    """A digest belongs to the string at its place, whatever lengths are hashed together."""
    values, seeds = [v for v, _ in pairs], [s for _, s in pairs]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_TOGETHER_MIN", 2)
        patch.setattr(module, "_ROWS_AT_ONCE", 3)
        assert digests(values, seeds) == expected(values, seeds)


def test_common_and_rare_lengths_together() -> None:
    """Rare and very long strings go through the library, next to the others."""
    values = [b"%d" % i for i in itertools.chain(range(1000), [10**50])] + [b"x" * 5000]
    seeds = [42] * len(values)
    assert digests(values, seeds) == expected(values, seeds)
