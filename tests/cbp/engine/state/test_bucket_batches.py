"""Which buckets are worked on together, and what belongs to which of them.

Neighboring buckets come together, each once; every hash goes to its own bucket, on both sides of
the sign.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from cbp.engine.columnar.key_hash import bucket_of
from cbp.engine.state.bucket_state import neighbors, parted, state_weight
from cbp.engine.storage.engine_limits import DEFAULT_LIMITS

SIZES = st.dictionaries(st.integers(0, 15), st.integers(0, 9), max_size=16)
HASHES = st.lists(st.integers(-(2**63), 2**63 - 1) | st.sampled_from([0, -1, 1 << 60, -(1 << 60)]))


@given(SIZES, st.integers(0, 20))
def test_every_bucket_comes_once_with_those_that_fit(sizes: dict[int, int], most: int) -> None:
    """In order; together only as much as may be, and only on one side of the sign."""
    actual = neighbors(sizes, buckets=16, most=most)
    assert [bucket for some in actual for bucket in some] == sorted(sizes)
    for some in actual:
        assert len(some) == 1 or sum(sizes[bucket] for bucket in some) <= most
        assert len({bucket < 8 for bucket in some}) == 1


@given(SIZES, st.integers(0, 20))
def test_no_two_stay_apart_that_may_be_together(sizes: dict[int, int], most: int) -> None:
    """What a bucket costs before its first record is paid as seldom as possible."""
    actual = neighbors(sizes, buckets=16, most=most)
    for left, right in pairwise(actual):
        total = sum(sizes[bucket] for bucket in (*left, right[0]))
        assert total > most or left[-1] < 8 <= right[0]


def test_large_states_stay_apart() -> None:
    """The places of what is found must fit in memory; a whole read is refused much sooner."""
    for whole, together in ((False, 4_000_000), (True, 8_000)):
        for records, apart in ((together, 1), (3 * together, 2)):
            sizes = dict.fromkeys((0, 1), 10 + state_weight(records, whole=whole))
            assert len(neighbors(sizes, buckets=16, most=DEFAULT_LIMITS.window_rows)) == apart


@given(HASHES, st.sampled_from([2, 8, 256]))
def test_ascending_hashes_are_cut_by_bucket(values: list[int], buckets: int) -> None:
    """On both sides of the sign every hash comes to its own bucket, and none is lost."""
    for negative in (False, True):
        hashes = np.array(sorted(v for v in values if (v < 0) == negative), np.int64)
        half = buckets // 2
        chosen = range(half * negative, half * (1 + negative))
        parts = list(parted(hashes, chosen, buckets=buckets))
        assert sum(stop - start for _, start, stop in parts) == len(hashes)
        for bucket, start, stop in parts:
            assert {bucket_of(int(hash_), buckets) for hash_ in hashes[start:stop]} == {bucket}
