"""Which links a run reads, and how it numbers nodes and puts numbers into order."""

from __future__ import annotations

import numpy as np
import pytest

from stages.link_arrays import reads_whole
from stages.nodes import Nodes, in_order


@pytest.mark.parametrize(
    ("records", "came", "whole"),
    [(0, 1, True), (160, 10, True), (161, 10, False), (10_000_000, 5_000, False)],
)
def test_sizes_decide_whether_all_links_are_read(records: int, came: int, whole: bool) -> None:
    """A first load and a sixteenth of the links read all; a thousandth reads what is around it."""
    assert reads_whole(records, came) is whole


@pytest.mark.parametrize("most", [1 << 20, 1 << 62], ids=["packed", "too wide to pack"])
def test_equal_numbers_keep_their_order(most: int) -> None:
    """In one number with their places, or sorted by places where both have no room."""
    codes = np.random.default_rng(2).choice([0, most // 3, most - 1], 5_000)
    values, order = in_order(codes)
    assert order.tolist() == np.argsort(codes, kind="stable").tolist()
    assert values.tolist() == sorted(codes.tolist())
    assert not len(in_order(codes[:0])[1])


@pytest.mark.parametrize(
    "ids",
    [
        np.arange(20_000) % 7_000 - 3_000,
        (np.arange(20_000) % 7_000 - 3_000).astype(np.int32),
        np.random.default_rng(1).integers(-(1 << 60), 1 << 60, 20_000),
        np.array([f"n{number % 900}" for number in range(2_000)], object),
    ],
    ids=["close", "close and narrow", "far apart", "texts"],
)
def test_a_node_keeps_its_number(ids: np.ndarray) -> None:
    """Nodes of the first call ascend; later calls find these, and number others behind them."""
    nodes, half = Nodes(), ids[: len(ids) // 3]
    first = nodes.numbers(half)
    assert nodes.ids.tolist() == sorted({*half.tolist()})
    again = nodes.numbers(ids)
    assert again[: len(half)].tolist() == first.tolist()
    assert nodes.ids[again].tolist() == ids.tolist()
    assert len(nodes) == len({*ids.tolist()})
    assert nodes.ids.dtype == ids.dtype
