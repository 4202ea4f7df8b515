"""Whole numbers that a kept state has for nodes, as arrays, for loops within one call.

nodes -> NodeValues.know -> values, read when first needed -> NodeValues.write -> what changed
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from stages.link_arrays import Reader
from stages.nodes import Int64s, Nodes, array_of

NONE = -1
"""A node without a record has this in each column."""


class NodeValues:
    """Some columns of a state with one record a node; arrays are indexed by column and number.

    The values, `now` and before the run (`old`), are not below zero. With `are_nodes`, they are
    nodes, and the arrays have the numbers of these.
    """

    def __init__(
        self, table: Any, nodes: Nodes, names: Sequence[str], *, are_nodes: bool = False
    ) -> None:
        self._nodes, self._names, self._are_nodes = nodes, names, are_nodes
        self._reader = Reader(table, nodes)
        self.now = self.old = np.empty((len(names), 0), np.int64)

    def know(self, numbers: Int64s) -> None:
        """Read the values of nodes that are not read yet."""
        read = self._reader.read(numbers)
        if read is None:
            self._grow()
            return
        records = read[1]
        mine = self._nodes.numbers(array_of(records["node"]))
        columns = [array_of(records[name]) for name in self._names]
        if self._are_nodes:
            columns = [self._nodes.numbers(column) for column in columns]
        self._grow()
        for at, column in enumerate(columns):
            self.old[at, mine] = self.now[at, mine] = column

    def write(self, put: Any, **columns: str) -> None:
        """Put the records with changed values, and delete those of nodes without values.

        `columns` maps columns of the state to columns of this object; by default, equal names.
        """
        self._grow()
        chosen = columns or dict(zip(self._names, self._names, strict=True))
        rows = [self._names.index(name) for name in chosen.values()]
        now, old, ids = self.now[rows], self.old[rows], self._nodes.ids
        is_there, was_there = now[0] != NONE, old[0] != NONE
        moved = is_there & (now != old).any(axis=0)
        values = [ids[row] if self._are_nodes else row for row in now[:, moved]]
        put({"node": ids[moved], **dict(zip(chosen, values, strict=True))})
        put.delete({"node": ids[was_there & ~is_there]})

    def _grow(self) -> None:
        more = len(self._nodes) - self.now.shape[1]
        if more or self.now is self.old:
            blank = np.full((len(self._names), more), NONE)
            self.old, self.now = (
                np.concatenate([one, blank], axis=1) for one in (self.old, self.now)
            )
