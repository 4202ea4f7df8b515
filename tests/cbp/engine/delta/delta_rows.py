"""Rows of a Delta table, as its readers show them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from tests.cbp.engine.delta.harness import (
    StateTable,
)


def grow_and_shrink(state: StateTable) -> None:
    """Do in one epoch what most epochs do: new rows, and others that die."""
    state.kill(lambda n: 1100 <= n < 1900)
    state.add(0, range(6000, 6100))


def live(state: StateTable) -> list[list[int]]:
    """Publish six epochs; return what has to be read after each."""
    seen = []
    state.add(0, range(1000))
    state.add(1, range(1000, 2000))
    state.add(None, [5000, 5001])
    steps: list[Callable[[], Any]] = [
        lambda: None,
        lambda: state.kill(lambda n: n % 3 == 0 and n < 1000),
        lambda: grow_and_shrink(state),
        lambda: state.kill(lambda n: n % 5 == 0),
        lambda: state.kill(lambda n: n < 1000),
    ]
    for step in steps:
        step()
        state.publish()
        seen.append(state.expected())
    for path, bucket in [(path, "0") for path in list(state.live) if "_bucket=0" in path]:
        alive = [n for n in state.expected() if n in state.numbers[path]]
        state.drop(path)
        if alive:
            state.add(int(bucket), alive)
    state.publish(data_change=False, operation="CBP COMPACT")
    seen.append(state.expected())
    return seen


def table_row() -> pa.Table:
    """One row of the state table."""
    return pa.table(
        {
            "url": pa.array(["u77"]),
            "n": pa.array([77], pa.int64()),
            "_hash": pa.array([77], pa.int64()),
            "_bucket": pa.array([0], pa.int32()),
        }
    )
