"""The net effect of added and removed edges on the links of a graph: each link once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from stages.nodes import Bools, Int32s, Int64s, Nodes, array_of, in_order

_BITS = 63
"""Bits of a number that is not below zero."""


@dataclass(frozen=True)
class NetEdges:
    """The net effect of new records of edges on links, each once; parallel arrays.

    Attributes:
        edge: The link's own columns; `edge_number` has a number for the values of each link.
        amounts: Amounts to add to `mine` and to `theirs`; 1 or 0 if a record states the number
            itself.
        is_told: Whether there is such an amount for `mine`, and for `theirs`.
    """

    node: Int64s
    other: Int64s
    edge: tuple[pa.Array, ...]
    edge_number: Int64s
    amounts: Int32s
    is_told: Bools

    @classmethod
    def of(
        cls, came: pa.Table, names: Sequence[str], nodes: Nodes, *, both: bool = False
    ) -> NetEdges:
        """Return each edge once: with the sum of its signs, or with its last record.

        `came` are records `(src, dst, <names>, sign)`, or with `gone` instead of `sign`; with
        `both`, both ends are told (`at_both_ends`).
        """
        edges = _whole_edges(came, names)
        ends = np.concatenate([array_of(edges[name]) for name in ("src", "dst")])
        src, dst = np.split(nodes.numbers(ends), 2)
        if both and not names and _all_come(edges) and 2 * len(nodes).bit_length() < _BITS:
            return cls._that_come(src, dst, len(nodes), once=not has_signs(came))
        told = cls._of(edges, names, src, dst, nodes)
        return told.at_both_ends(len(nodes)) if both else told

    @classmethod
    def _that_come(cls, src: Int64s, dst: Int64s, many: int, *, once: bool) -> NetEdges:
        """Return added edges, told to both ends; no edge is removed, so one sort is enough.

        With `once`, records of one edge count once.
        """
        shift = many.bit_length()
        codes = np.empty(2 * len(src), np.int64)
        for side, (node, other) in enumerate(((src, dst), (dst, src))):
            half = codes[side * len(src) :][: len(src)]  # allocating large arrays costs the most
            np.left_shift(node, shift, out=half)
            half |= other
            half <<= 1
            half += side
        codes.sort()
        starts = _are_new(codes)
        amount = np.ones(1, np.int32)
        if not starts.all():
            firsts = np.flatnonzero(starts)
            if not once:
                amount = np.diff(firsts, append=len(codes)).astype(np.int32)
            codes = codes[firsts]
        return cls._paired(codes, amount, shift)

    @classmethod
    def _paired(cls, codes: Int64s, amount: Int32s, shift: int) -> NetEdges:
        """Return links without columns of their own, told to one end or to both.

        `codes` are ascending and distinct: both nodes of a link, as for `_ends`, and a last bit
        that says whether `theirs` is told, not `mine`. The array is overwritten. `amount` is what
        is told: one for all, or one for each.
        """
        side = (codes.astype("<i8", copy=False).view(np.uint8)[::8] & 1).view(np.bool_)
        codes >>= 1
        starts = _are_new(codes)
        seconds = np.flatnonzero(~starts)
        amounts = np.broadcast_to(amount, len(codes))
        own, more = amounts, amounts[seconds]
        links = seconds - np.arange(1, 1 + len(seconds))  # each follows the first one of its link
        if len(seconds):
            codes, side, own = codes[starts], side[starts], amounts[starts]
        is_told = np.stack([~side, side])
        told = np.where(is_told, own, np.int32(0))
        is_told[1, links], told[1, links] = True, more
        node, other = _ends(codes, shift)
        return cls(node, other, (), np.zeros(len(node), np.int64), told, is_told)

    @classmethod
    def _of(
        cls, edges: pa.Table, names: Sequence[str], src: Int64s, dst: Int64s, nodes: Nodes
    ) -> NetEdges:
        edge = tuple(edges[name].combine_chunks() for name in names)
        # Both zeros are one key.
        edge = tuple(_one_zero(column) for column in edge)
        number = row_numbers(edge) if edge else np.zeros(len(src), np.int64)
        shift = len(nodes).bit_length()
        codes, order, starts = _runs(src << shift | dst, number)
        first = np.flatnonzero(starts)
        if has_signs(edges):
            signs = edges["sign"].to_numpy().astype(np.int32)
            amount = np.add.reduceat(signs[order], first) if len(first) else np.empty(0, np.int32)
        elif pc.any(edges["gone"]).as_py():
            last = order[np.append(first[1:], len(order))[: len(first)] - 1]
            amount = 1 - edges["gone"].fill_null(False).cast(pa.int32()).to_numpy()[last]
        else:
            amount = np.ones(len(first), np.int32)
        some, codes = order[first], codes[first]
        node, other = _ends(codes, shift)
        amounts = np.stack([amount, np.zeros(len(amount), np.int32)])
        is_told = np.stack([np.ones(len(amount), np.bool_), np.zeros(len(amount), np.bool_)])
        edge = tuple(one.take(pa.array(some)) for one in edge)
        return cls(
            node, other, edge, number[some] if names else number[: len(node)], amounts, is_told
        )

    def at_both_ends(self, many: int) -> NetEdges:
        """Return the same for both ends: what is `mine` at one end is `theirs` at the other."""
        shift, amount = many.bit_length(), self.amounts[0]
        least = int(amount.min(initial=0))
        more = (int(amount.max(initial=0)) - least).bit_length()
        codes = np.concatenate([self.node << shift | self.other, self.other << shift | self.node])
        if self.edge or 2 * shift + 1 + more > _BITS:
            codes, order, starts = _runs(codes, np.concatenate([self.edge_number] * 2))
            side, row = np.divmod(order, max(1, len(self.node)))
            amount = amount[row]
        else:  # an edge and its amount fit into one number
            codes <<= 1
            codes[len(self.node) :] += 1
            codes <<= more
            codes += np.concatenate([amount - least] * 2)
            codes.sort()
            amount = ((codes & ((1 << more) - 1)) + least).astype(np.int32)
            codes >>= more
            return NetEdges._paired(codes, amount, shift)
        firsts, seconds = np.flatnonzero(starts), np.flatnonzero(~starts)
        links = np.cumsum(starts)[seconds] - 1
        is_told = np.stack([side[firsts] == 0, side[firsts] == 1])
        amounts = np.where(is_told, amount[firsts], 0).astype(np.int32)
        is_told[1, links], amounts[1, links] = True, amount[seconds]
        node, other = _ends(codes[firsts], shift)
        if not self.edge:
            return NetEdges(node, other, (), np.zeros(len(node), np.int64), amounts, is_told)
        edge = tuple(one.take(pa.array(row[firsts])) for one in self.edge)
        return NetEdges(node, other, edge, self.edge_number[row[firsts]], amounts, is_told)


def _all_come(edges: pa.Table) -> bool:
    if not has_signs(edges):
        return not pc.any(edges["gone"]).as_py()
    return bool((edges["sign"].to_numpy() == 1).all())


def has_signs(edges: pa.Table) -> bool:
    """Return whether edges are the changes of a view, and not records with `gone`."""
    return "sign" in edges.column_names


def _one_zero(column: pa.Array) -> pa.Array:
    """Return a column of edges in which zeros of both signs are the same."""
    if not pa.types.is_floating(column.type):
        return column
    return pc.add(column, pa.scalar(0.0, column.type))


def _whole_edges(came: pa.Table, names: Sequence[str]) -> pa.Table:
    is_edge = np.ones(len(came), np.bool_)
    for name in ("src", "dst", *names):
        if came[name].null_count:
            is_edge &= came[name].is_valid().to_numpy()
        if pa.types.is_floating(came[name].type):
            is_edge &= ~np.isnan(came[name].to_numpy())
    return came if is_edge.all() else came.filter(pa.array(is_edge))


def _ends(codes: Int64s, shift: int) -> tuple[Int64s, Int64s]:
    """Return both ends of links from their codes, `node << shift | other`; overwrites the codes."""
    other = codes & ((1 << shift) - 1)
    codes >>= shift
    return codes, other


def _runs(codes: Int64s, numbers: Int64s) -> tuple[Int64s, Int64s, Bools]:
    """Sort pairs of numbers stably; return codes, order, and where a new pair begins."""
    if not numbers.any():
        codes, order = in_order(codes)
        return codes, order, _are_new(codes)
    order = np.lexsort((numbers, codes))
    codes, numbers = codes[order], numbers[order]
    return codes, order, _are_new(codes) | _are_new(numbers)


def _are_new(codes: Int64s) -> Bools:
    """Return which of some numbers differ from the one before."""
    starts = np.ones(len(codes), np.bool_)
    np.not_equal(codes[1:], codes[:-1], out=starts[1:])
    return starts


def row_numbers(columns: Sequence[pa.Array]) -> Int64s:
    """Return a number for each row of some columns; equal rows have equal numbers."""
    codes = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        new = column.dictionary_encode().indices.to_numpy().astype(np.int64)
        codes = codes * (int(new.max(initial=0)) + 1) + new
        codes = pa.array(codes).dictionary_encode().indices.to_numpy().astype(np.int64)
    return codes
