"""The records of a window's groups, as they are handed to the author."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from cbp.engine.kernel.group_batch import Source

SIZES = st.one_of(
    st.lists(st.integers(0, 3), max_size=12),
    st.lists(st.sampled_from([1] * 9 + [0, 2]), max_size=40),
)


@given(sizes=SIZES)
def test_every_group_gets_its_own_records(sizes: list[int]) -> None:
    """One record each, none, several, first or last: a group has the rows of its range."""
    stops = np.cumsum(np.array(sizes, np.int64))
    rows = [(at,) for at in range(sum(sizes))]
    source = Source("urls", rows, stops - np.array(sizes, np.int64), stops)
    actual = [list(records) for records in source.groups()]
    assert actual == [source.of(group) for group in range(len(sizes))]
    assert [len(records) for records in actual] == sizes
