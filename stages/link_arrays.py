"""The links of a graph as arrays, for loops that a run does in one call (`TranslateRun`).

    edges that came -> LinkTable.change -> what changed, both ends of each link
    nodes           -> LinkTable.of     -> their links as they are now, read when first needed

A link is a record of each of its ends, so what leads to a node is found like what leads away from
it; an author who needs only the latter keeps one. `Nodes` numbers the nodes that a run meets; all
arrays are indexed by number. Reading follows what a run comes to. Once many look-ups cost as much
as reading all records does, all are read at once (`Reader`), so that half of a graph costs what an
algorithm on a whole graph costs, and a single link what lies around it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cbp import Input, State
from stages.net_edges import NetEdges, row_numbers
from stages.nodes import Nodes, array_of

__all__ = ["LinkChanges", "LinkTable", "Reader", "spans"]

Array = npt.NDArray[Any]
Bools = npt.NDArray[np.bool_]
Int64s = npt.NDArray[np.int64]

_CALL_ROWS = 4_000
"""A look-up costs as much as reading so many records of a state in a row."""

_KEY_ROWS = 8
"""A key of a look-up costs as much as reading so many records."""


def spans(starts: Int64s, sizes: Int64s) -> Int64s:
    """Return the indexes of some spans, one span after the other."""
    firsts = np.repeat(starts - np.cumsum(sizes) + sizes, sizes)
    indexes: Int64s = firsts + np.arange(len(firsts))
    return indexes


class Reader:
    """Reads the records of nodes in a kept state, each once.

    Args:
        table: The state, as the run gives it.
        nodes: The nodes.
    """

    def __init__(self, table: Any, nodes: Nodes) -> None:
        self._table, self._nodes, self._spent = table, nodes, 0
        self._is_read = np.zeros(0, np.bool_)
        self._has_all = table.size == 0

    def read(self, numbers: Int64s) -> tuple[Int64s, pa.Table] | None:
        """Read the records of nodes that were not read before.

        Returns:
            The nodes that are read now, ascending, and their records, in any order; `None` if all
            were read before.
        """
        fresh = np.zeros(len(self._nodes), np.bool_)
        fresh[numbers] = True
        fresh[: len(self._is_read)] &= ~self._is_read
        if not fresh.any():
            return None
        asked = np.flatnonzero(fresh)
        self._spent += _CALL_ROWS + _KEY_ROWS * len(asked)
        if not self._has_all and self._spent > self._table.size:
            records = self._rest()
            fresh = ~self._grown()
            self._has_all = True
        elif self._has_all:
            records = self._table.of({"node": pa.array(self._nodes.ids[asked[:0]])})
        else:
            records = self._table.of({"node": pa.array(self._nodes.ids[asked])})
            self._spent += records.num_rows
        self._is_read = self._grown() | fresh
        return np.flatnonzero(fresh), records

    def _rest(self) -> pa.Table:
        """Return all records but those of nodes that were read before."""
        records = self._table.all()
        numbers = self._nodes.numbers(array_of(records["node"]))
        is_read = self._grown()[numbers]
        return records.filter(pa.array(~is_read)) if is_read.any() else records

    def _grown(self) -> Bools:
        grown = np.zeros(len(self._nodes), np.bool_)
        grown[: len(self._is_read)] = self._is_read
        return grown


@dataclass(frozen=True)
class LinkChanges:
    """Links that came or went, each from both of its ends; parallel arrays.

    Attributes:
        node: Number of one end.
        other: Number of the other end.
        edge: The link's own columns.
        mine: Edges that lead from `node` to `other` now.
        theirs: Edges that lead from `other` to `node` now.
        had_mine, had_theirs: The same, before.
    """

    node: Int64s
    other: Int64s
    edge: tuple[pa.Array, ...]
    mine: Int64s
    theirs: Int64s
    had_mine: Int64s
    had_theirs: Int64s

    def at(self, chosen: Any) -> LinkChanges:
        """Return some of them."""
        edge = tuple(one.filter(pa.array(chosen)) for one in self.edge)
        arrays = (self.mine, self.theirs, self.had_mine, self.had_theirs)
        return LinkChanges(
            self.node[chosen], self.other[chosen], edge, *(one[chosen] for one in arrays)
        )


class LinkTable:
    """The links of a graph in one run, of which the author declares what `declare` returns.

    Args:
        links: The state, as the run gives it.
        nodes: The nodes.
        edge: Names of the links' own columns.
        both: Whether a link is kept at both of its ends.
    """

    def __init__(
        self, links: Any, nodes: Nodes, edge: Sequence[str] = (), *, both: bool = True
    ) -> None:
        self._links, self._nodes, self._names = links, nodes, ("node", "other", *edge)
        self._counts = ("mine", "theirs") if both else ("mine",)
        self._reader = Reader(links, nodes)
        self._changed: LinkChanges | None = None
        self._is_dirty = np.zeros(0, np.bool_)
        self._starts = np.zeros(0, np.int64)
        self._sizes = np.zeros(0, np.int64)
        self.other = np.empty(0, np.int64)
        self.mine: Bools = np.empty(0, np.bool_)
        self.theirs: Bools = np.empty(0, np.bool_)
        self.edge: list[Array] = []

    @staticmethod
    def declare(node: str, edge: str, *, changes: bool, both: bool = True) -> tuple[Input, State]:
        """Return the input of edges and the state of links.

        Args:
            node: Type of a node.
            edge: Further columns of an edge, as DDL; empty if there are none.
            changes: Whether the input reads the changes of a view; else each record says that
                an edge is there, or that it is `gone`.
            both: Whether a link is kept at both of its ends.
        """
        more = f", {edge}" if edge else ""
        names = "".join(f", {one.split()[0]}" for one in edge.split(",") if one.strip())
        last = "sign INT" if changes else "gone BOOLEAN"
        schema = f"src {node}, dst {node}{more}, {last}"
        edges = Input(schema, route_by="src", changes="signed" if changes else "")
        links = State(
            f"node {node}, other {node}{more}, mine INT{', theirs INT' if both else ''}",
            keep=True,
            key=f"node, other{names}",
        )
        return edges, links

    def change(self, came: pa.Table, out: Any) -> LinkChanges:
        """Apply edges that came and went, and keep the links; call once, before `of`.

        Args:
            came: The records of the input.
            out: Takes the records of the state.
        """
        records = "gone" in came.column_names
        told = NetEdges.of(came, self._names[2:], self._nodes)
        if "theirs" in self._counts:
            told = told.at_both_ends(len(self._nodes))
        node, other = (self._nodes.ids[ends] for ends in (told.node, told.other))
        keys = pa.table([node, other, *told.edge], names=list(self._names))
        rows, known = self._links.find(keys)
        had, now = np.zeros((2, len(keys)), np.int64), np.zeros((2, len(keys)), np.int64)
        for at, name in enumerate(self._counts):
            had[at, rows] = known[name].to_numpy()
            after = told.amounts[at] if records else had[at] + told.amounts[at]
            now[at] = np.where(told.is_told[at], after, had[at])
        is_known = np.zeros(len(keys), np.bool_)
        is_known[rows] = True
        is_new, stays = (had != now).any(axis=0), now.any(axis=0)
        puts = pa.table([*keys.columns, *now[: len(self._counts)]], [*self._names, *self._counts])
        out.links(puts.filter(pa.array(is_new & stays)))
        out.links.delete(keys.filter(pa.array(is_known & ~stays)))
        self._changed = LinkChanges(told.node, told.other, told.edge, *now, *had).at(is_new)
        self._is_dirty = np.zeros(len(self._nodes), np.bool_)
        self._is_dirty[self._changed.node] = True
        return self._changed

    def of(self, numbers: Int64s) -> tuple[Int64s, Int64s]:
        """Return the links of some nodes as they are now, node after node.

        Args:
            numbers: The nodes, each once.

        Returns:
            For each link, the index of its node in `numbers`, and its index in `other`, `mine`,
            `theirs` and `edge`.
        """
        self._read(numbers)
        sizes = self._sizes[numbers]
        return np.repeat(np.arange(len(numbers)), sizes), spans(self._starts[numbers], sizes)

    def _read(self, numbers: Int64s) -> None:
        read = self._reader.read(numbers)
        if read is None:
            return
        fresh, records = read
        parts = list(self._parts(fresh, records))
        node = np.concatenate([part[0] for part in parts])
        order = np.argsort(node, kind="stable")
        size = len(self._nodes) - len(self._sizes)
        self._starts, self._sizes = (
            np.concatenate([one, np.zeros(size, np.int64)]) for one in (self._starts, self._sizes)
        )
        many = np.bincount(node, minlength=len(self._nodes))
        self._sizes[fresh] = many[fresh]
        self._starts[fresh] = len(self.other) + np.cumsum(many[fresh]) - many[fresh]
        _, other, mine, theirs, *edge = (
            np.concatenate(many)[order] for many in zip(*parts, strict=True)
        )
        self.other = np.concatenate([self.other, other])
        self.mine = np.concatenate([self.mine, mine])
        self.theirs = np.concatenate([self.theirs, theirs])
        old = self.edge or [np.empty(0, one.dtype) for one in edge]
        self.edge = [np.concatenate(both) for both in zip(old, edge, strict=True)]

    def _parts(self, fresh: Int64s, records: pa.Table) -> Iterator[tuple[Array, ...]]:
        """Yield the links of some nodes: those that did not change, and those that did."""
        node, other = (self._nodes.numbers(array_of(records[name])) for name in ("node", "other"))
        edge = tuple(records[name].combine_chunks() for name in self._names[2:])
        mine, *others = (records[name].to_numpy() > 0 for name in self._counts)
        theirs = others[0] if others else np.zeros(len(mine), np.bool_)
        changed = self._changed
        assert changed is not None, "edges are applied first"
        self._is_dirty = np.concatenate(
            [self._is_dirty, np.zeros(len(self._nodes) - len(self._is_dirty), np.bool_)]
        )
        stays = np.ones(len(node), np.bool_)
        dirty = np.flatnonzero(self._is_dirty[node])
        if len(dirty):
            some = [node[dirty], other[dirty], *(one.take(pa.array(dirty)) for one in edge)]
            stays[dirty] = ~_are_in(some, [changed.node, changed.other, *changed.edge])
        columns = (node, other, mine, theirs, *map(_values, edge))
        yield tuple(column[stays] for column in columns)
        is_fresh = np.zeros(len(self._nodes), np.bool_)
        is_fresh[fresh] = True
        here = is_fresh[changed.node] & ((changed.mine > 0) | (changed.theirs > 0))
        now = changed.at(here)
        yield (now.node, now.other, now.mine > 0, now.theirs > 0, *map(_values, now.edge))


def _values(column: pa.Array) -> Array:
    values: Array = column.to_numpy(zero_copy_only=False)
    return values


def _are_in(some: Sequence[Any], others: Sequence[Any]) -> Bools:
    """Return which rows of some columns are rows of other columns."""
    pairs = zip(some, others, strict=True)
    codes = row_numbers([pa.concat_arrays([pa.array(a), pa.array(b)]) for a, b in pairs])
    return np.isin(codes[: len(some[0])], codes[len(some[0]) :])
