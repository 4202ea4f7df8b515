"""Numbers of nodes, however their ids are spread and however many are asked for at once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from stages.nodes import Nodes

MANY = 12_000
"""More than are found one by one."""


@pytest.mark.parametrize(
    "spread",
    [
        pytest.param(lambda ids: ids - 5_000, id="close"),
        pytest.param(lambda ids: (ids - 5_000).astype(np.int32), id="close, in 32 bits"),
        pytest.param(lambda ids: ((ids - 7_500) * 3).astype(np.int16), id="close, in 16 bits"),
        pytest.param(lambda ids: (ids % 201 - 100).astype(np.int8), id="close, in 8 bits"),
        pytest.param(lambda ids: ids * 1_000_003 - (1 << 40), id="far apart"),
        pytest.param(lambda ids: np.array([f"n{one}" for one in ids], object), id="texts"),
    ],
)
@pytest.mark.parametrize("sizes", [(MANY, MANY, 3, MANY), (5, MANY, 5), (0, 4, 4, 0)])
def test_each_node_has_one_number(spread: Any, sizes: tuple[int, ...]) -> None:
    """It is that of the first call with it, and does not depend on the order within a call."""
    dice, nodes, others = np.random.default_rng(2), Nodes(), Nodes()
    known: dict[Any, int] = {}
    for size in sizes:
        ids = spread(dice.integers(0, 15_000, size))
        numbers, order = nodes.numbers(ids), dice.permutation(size)
        for one in sorted({*ids.tolist()} - {*known}):
            known[one] = len(known)
        assert numbers.tolist() == [known[one] for one in ids.tolist()]
        assert others.numbers(ids[order]).tolist() == numbers[order].tolist()
        assert nodes.ids.tolist() == [*known]
        assert nodes.ids[nodes.by_rank].tolist() == sorted(known)
