"""What edges that come and go say of the links of a graph: each link once, at one or both ends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from stages.nodes import Nodes, array_of

__all__ = ["NetEdges", "row_numbers"]

Bools = npt.NDArray[np.bool_]
Int64s = npt.NDArray[np.int64]


@dataclass(frozen=True)
class NetEdges:
    """What edges that came say of links, each once; parallel arrays.

    Attributes:
        node, other: Numbers of the ends.
        edge: The link's own columns, and a number for the values of each in `edge_number`.
        amounts: What is added to `mine` and to `theirs`; 1 or 0 if a record says what there is.
        is_told: Whether anything is said of `mine`, and of `theirs`.
    """

    node: Int64s
    other: Int64s
    edge: tuple[pa.Array, ...]
    edge_number: Int64s
    amounts: Int64s
    is_told: Bools

    @classmethod
    def of(cls, came: pa.Table, names: Sequence[str], nodes: Nodes) -> NetEdges:
        """Return each edge that came once: the sum of its signs, or what its last record says.

        Args:
            came: Records `(src, dst, <names>, sign)`, or with `gone` in place of `sign`.
            names: The links' own columns.
            nodes: Numbers the ends.
        """
        is_edge = np.ones(len(came), np.bool_)
        for name in ("src", "dst", *names):
            is_edge &= came[name].is_valid().to_numpy()
            if pa.types.is_floating(came[name].type):
                is_edge &= ~np.isnan(came[name].to_numpy())
        edges = came if is_edge.all() else came.filter(pa.array(is_edge))
        ends = np.concatenate([array_of(edges[name]) for name in ("src", "dst")])
        src, dst = np.split(nodes.numbers(ends), 2)
        edge = tuple(edges[name].combine_chunks() for name in names)
        # Both zeros are one key.
        edge = tuple(pc.add(e, 0.0) if pa.types.is_floating(e.type) else e for e in edge)
        number = row_numbers(edge) if edge else np.zeros(len(src), np.int64)
        order, starts = _runs(src * len(nodes) + dst, number)
        first = np.flatnonzero(starts)
        if "gone" in came.column_names:
            last = order[np.append(first[1:], len(order))[: len(first)] - 1]
            amount = 1 - edges["gone"].fill_null(False).cast(pa.int64()).to_numpy()[last]
        else:
            signs = edges["sign"].to_numpy().astype(np.int64)
            amount = np.add.reduceat(signs[order], first) if len(first) else np.empty(0, np.int64)
        some = order[first]
        amounts = np.stack([amount, np.zeros(len(amount), np.int64)])
        is_told = np.stack([np.ones(len(amount), np.bool_), np.zeros(len(amount), np.bool_)])
        edge = tuple(one.take(pa.array(some)) for one in edge)
        return cls(src[some], dst[some], edge, number[some], amounts, is_told)

    def at_both_ends(self, many: int) -> NetEdges:
        """Return the same, told to both ends: what is `mine` at one of them is `theirs` there."""
        node = np.concatenate([self.node, self.other])
        other = np.concatenate([self.other, self.node])
        number = np.concatenate([self.edge_number, self.edge_number])
        order, starts = _runs(node * many + other, number)
        link = np.empty(len(order), np.int64)
        link[order] = np.cumsum(starts) - 1
        amounts = np.zeros((2, int(starts.sum())), np.int64)
        is_told = np.zeros(amounts.shape, np.bool_)
        for side, mine in enumerate(np.split(link, 2)):
            amounts[side, mine], is_told[side, mine] = self.amounts[0], True
        firsts = order[starts]
        edge = tuple(one.take(pa.array(firsts % max(1, len(self.node)))) for one in self.edge)
        return NetEdges(node[firsts], other[firsts], edge, number[firsts], amounts, is_told)


def _runs(codes: Int64s, numbers: Int64s) -> tuple[Int64s, Bools]:
    """Return the order of some pairs of numbers, stable, and where a run of equal ones begins."""
    order = np.lexsort((numbers, codes)) if numbers.any() else np.argsort(codes, kind="stable")
    starts = np.ones(len(order), np.bool_)
    codes, numbers = codes[order], numbers[order]
    starts[1:] = (codes[1:] != codes[:-1]) | (numbers[1:] != numbers[:-1])
    return order, starts


def row_numbers(columns: Sequence[pa.Array]) -> Int64s:
    """Return a number for each row of some columns; equal rows have equal numbers."""
    codes = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        new = column.dictionary_encode().indices.to_numpy().astype(np.int64)
        codes = codes * (int(new.max(initial=0)) + 1) + new
        codes = pa.array(codes).dictionary_encode().indices.to_numpy().astype(np.int64)
    return codes
