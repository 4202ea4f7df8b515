"""The links of a graph as arrays, for loops within one call (`TranslateRun`).

    edges that came -> LinkTable.change -> what changed, both ends of each link
    nodes           -> LinkTable.of     -> their links as they are now, read when first needed

A link has a record at each of its ends, so links that lead to a node are found like those that
lead away from it. An author who needs only the latter keeps one record. `Nodes` numbers the nodes
that a run meets; all arrays are indexed by number.

A run reads only the links that its changes reach. Once its look-ups cost as much as reading all
records, it reads all of them (`Reader`). So a run that reaches half of a graph costs as much as an
algorithm on the whole graph, and a run that changes one link costs as much as its surroundings. If
a large part of a graph arrives in one run (`reads_whole`), all links are read first, and merged
with the new ones by sorting both, without a look-up.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from cbp import Input, Schema, State
from stages.net_edges import NetEdges, has_signs, row_numbers
from stages.nodes import Array, Bools, Int32s, Int64s, Nodes, array_of, order_of
from stages.spanning_forest import spans

__all__ = [
    "ANEW",
    "CHANGED",
    "WAYS",
    "LinkChanges",
    "LinkTable",
    "Reader",
    "edge_names",
    "reads_whole",
    "spans",
]


_CALL_ROWS = 4_000
"""A look-up costs as much as reading this many records of a state in a row."""

_KEY_ROWS = 8
"""A key of a look-up costs as much as reading this many records."""

_WHOLE_SHARE = 16
"""From one new edge per this many records of links on, reading all costs less than looking up."""

WAYS = (
    "by what changed: looks up by key only the links that the changes reach, or reads all links at "
    f"once if at least a {_WHOLE_SHARE}th as many edges arrived as there are records of links"
)
"""What decides how a run reads links; see `TranslateRun.ways`."""

ANEW, CHANGED = "anew", "by what changed"
"""How a run computed its results; `translate` returns one of them."""


def reads_whole(records: int, came: int) -> bool:
    """Return whether a run reads all links at once, not only those that it reaches.

    Only sizes decide, so a repeated run decides the same: `records` is the number of records of
    links before the run, and `came` that of the new edges.
    """
    return _WHOLE_SHARE * came >= records


def edge_names(edge: str) -> tuple[str, ...]:
    """Return the names of an edge's further columns, which are given as DDL."""
    return Schema.parse(edge, where="edge").names if edge else ()


class Reader:
    """Reads the records of nodes in a kept state, each once."""

    def __init__(self, table: Any, nodes: Nodes) -> None:
        self._table, self._nodes, self._spent = table, nodes, 0
        self._is_read = np.zeros(0, np.bool_)
        self._has_all = table.size == 0

    def read(self, numbers: Int64s, *, whole: bool = False) -> tuple[Int64s, pa.Table] | None:
        """Read the records of nodes that were not read before; with `whole`, of all nodes.

        Returns:
            The nodes that are read now, ascending, and their records, in any order; `None` if all
            were read before.
        """
        if not len(numbers) or (
            int(numbers.max()) < len(self._is_read) and bool(self._is_read[numbers].all())
        ):
            return None
        fresh = np.zeros(len(self._nodes), np.bool_)
        fresh[numbers] = True
        fresh[: len(self._is_read)] &= ~self._is_read
        asked = np.flatnonzero(fresh)
        self._spent += _CALL_ROWS + _KEY_ROWS * len(asked)
        if not self._has_all and (whole or self._spent > self._table.size):
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
    """Added and removed links, each from both of its ends; parallel arrays.

    Attributes:
        edge: The link's own columns.
        mine, theirs: Numbers of edges from `node` to `other`, and back, after the change.
        had_mine, had_theirs: These numbers before the change.
    """

    node: Int64s
    other: Int64s
    edge: tuple[pa.Array, ...]
    mine: Int32s
    theirs: Int32s
    had_mine: Int32s
    had_theirs: Int32s

    def at(self, chosen: Any) -> LinkChanges:
        """Return the changes that a mask chooses."""
        if chosen.all():
            return self
        edge = tuple(one.filter(pa.array(chosen)) for one in self.edge)
        arrays = (self.mine, self.theirs, self.had_mine, self.had_theirs)
        return LinkChanges(
            self.node[chosen], self.other[chosen], edge, *(one[chosen] for one in arrays)
        )


@dataclass(frozen=True)
class _Links:
    """Links with the numbers of edges in both directions; parallel arrays."""

    node: Int64s
    other: Int64s
    edge: tuple[pa.Array, ...]
    counts: Int32s

    def at(self, chosen: Any) -> _Links:
        """Return the links at some places, or those that a mask chooses."""
        if chosen.dtype == np.bool_ and chosen.all():
            return self
        places = np.flatnonzero(chosen) if chosen.dtype == np.bool_ else chosen
        edge = tuple(one.take(pa.array(places)) for one in self.edge)
        return _Links(self.node[places], self.other[places], edge, self.counts[:, places])

    def but(self, places: Int64s) -> _Links:
        stays = np.ones(len(self.node), np.bool_)
        stays[places] = False
        return self.at(stays)

    def with_more(self, more: _Links) -> _Links:
        edge = tuple(pa.concat_arrays(both) for both in zip(self.edge, more.edge, strict=True))
        return _Links(
            np.concatenate([self.node, more.node]),
            np.concatenate([self.other, more.other]),
            edge,
            np.concatenate([self.counts, more.counts], axis=1),
        )


def _places(told: NetEdges, known: _Links, many: int) -> tuple[Int64s, Int64s]:
    """Return which of the told links are known, and the place of each among the known ones."""
    if not len(known.node):
        return np.empty(0, np.int64), np.empty(0, np.int64)
    codes = np.concatenate([one.node * many + one.other for one in (told, known)])
    if told.edge:
        both = [pa.concat_arrays(pair) for pair in zip(told.edge, known.edge, strict=True)]
        codes = row_numbers([pa.array(codes), *both])
    wanted, held = codes[: len(told.node)], codes[len(told.node) :]
    order = order_of(held)
    held = held[order]
    places = np.minimum(np.searchsorted(held, wanted), len(held) - 1)
    rows = np.flatnonzero(held[places] == wanted)
    return rows, order[places[rows]]


class LinkTable:
    """The links of a graph in one run; the author declares the results of `declare`.

    `edge` names the links' own columns; with `both`, a link is kept at both of its ends. `is_whole`
    is whether all links were read at once.
    """

    def __init__(
        self, links: Any, nodes: Nodes, edge: Sequence[str] = (), *, both: bool = True
    ) -> None:
        self._links, self._nodes, self._names = links, nodes, ("node", "other", *edge)
        self._counts = ("mine", "theirs") if both else ("mine",)
        self._reader = Reader(links, nodes)
        self.is_whole = False
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
            edge: Further columns of an edge, as DDL; empty if there are none.
            changes: Whether the input reads the changes of a view; otherwise each record says
                that an edge exists, or that it is `gone`.
        """
        more = f", {edge}" if edge else ""
        names = "".join(f", {name}" for name in edge_names(edge))
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
        """Apply added and removed edges, and keep the links; call once, before `of`."""
        links, counts = self._links, self._counts
        self.is_whole = reads_whole(links.size, len(came))
        known = self._all() if self.is_whole else None
        both = "theirs" in counts
        told = NetEdges.of(came, self._names[2:], self._nodes, both=both)
        places = np.empty(0, np.int64)
        if known is None:
            rows, before = self._looked_up(told)
        else:
            rows, places = _places(told, known, len(self._nodes))
            before = known.counts[:, places]
        had, now = np.zeros((2, len(told.node)), np.int32), told.amounts
        if len(rows):
            had[:, rows] = before
            now = np.zeros_like(had)
            for side in range(len(counts)):
                after = told.amounts[side]
                after = had[side] + after if has_signs(came) else after
                now[side] = np.where(told.is_told[side], after, had[side])
        is_known = np.zeros(len(told.node), np.bool_)
        is_known[rows] = True
        is_new, stays = (had != now).any(axis=0), now.any(axis=0)
        is_put = is_new & stays
        keys = self._keys(told, is_put)
        more = now[: len(counts)] if is_put.all() else now[: len(counts), is_put]
        out.links(pa.table([*keys.columns, *more], [*self._names, *counts]))
        out.links.delete(self._keys(told, is_known & ~stays))
        self._changed = LinkChanges(told.node, told.other, told.edge, *now, *had).at(is_new)
        if known is None:
            self._is_dirty = np.zeros(len(self._nodes), np.bool_)
            self._is_dirty[self._changed.node] = True
        else:
            self._merge(known.but(places), _Links(told.node, told.other, told.edge, now).at(stays))
        return self._changed

    def _keys(self, told: NetEdges, chosen: Bools) -> pa.Table:
        ids = self._nodes.ids
        if chosen.all():
            return pa.table([ids[told.node], ids[told.other], *told.edge], names=list(self._names))
        ends = [ids[told.node[chosen]], ids[told.other[chosen]]]
        edge = [one.filter(pa.array(chosen)) for one in told.edge]
        return pa.table([*ends, *edge], names=list(self._names))

    def _looked_up(self, told: NetEdges) -> tuple[Int64s, Int32s]:
        """Look links up; return which of them have records, and the numbers of edges in these."""
        rows, records = self._links.find(self._keys(told, np.ones(len(told.node), np.bool_)))
        return rows, self._counted(records)

    def _all(self) -> _Links:
        records = self._links.all()
        node, other = (self._nodes.numbers(array_of(records[name])) for name in ("node", "other"))
        edge = tuple(records[name].combine_chunks() for name in self._names[2:])
        return _Links(node, other, edge, self._counted(records))

    def _counted(self, records: pa.Table) -> Int32s:
        counts = np.zeros((2, len(records)), np.int32)
        for side, name in enumerate(self._counts):
            counts[side] = records[name].to_numpy()
        return counts

    def _merge(self, old: _Links, new: _Links) -> None:
        """Set all links as they are now: the unchanged ones (`old`), and the others (`new`)."""
        links = new
        if len(old.node):
            links = old.with_more(new)
            links = links.at(order_of(links.node))
        self._sizes = np.bincount(links.node, minlength=len(self._nodes))
        self._starts = np.cumsum(self._sizes) - self._sizes
        self.other, self.edge = links.other, [_values(one) for one in links.edge]
        self.mine, self.theirs = links.counts > 0

    def of(self, numbers: Int64s) -> tuple[Int64s, Int64s]:
        """Return the present links of some nodes, node after node; each node is given once.

        Returns:
            For each link, the index of its node in `numbers`, and its index in `other`, `mine`,
            `theirs` and `edge`.
        """
        self._read(numbers)
        sizes = self._sizes[numbers]
        return np.repeat(np.arange(len(numbers)), sizes), spans(self._starts[numbers], sizes)

    def every(self) -> tuple[Int64s, Int64s, Int64s]:
        """Return where each node's links begin, how many it has, and the node of each link.

        Call it only if `is_whole`.
        """
        self._grow()
        return self._starts, self._sizes, np.repeat(np.arange(len(self._sizes)), self._sizes)

    def _read(self, numbers: Int64s) -> None:
        read = None if self.is_whole else self._reader.read(numbers)
        if read is None:
            self._grow()
            return
        fresh, records = read
        parts = list(self._parts(fresh, records))
        node = np.concatenate([part[0] for part in parts])
        order = np.argsort(node, kind="stable")
        self._grow()
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

    def _grow(self) -> None:
        size = len(self._nodes) - len(self._sizes)
        if size:
            self._starts, self._sizes = (
                np.concatenate([one, np.zeros(size, np.int64)])
                for one in (self._starts, self._sizes)
            )

    def _parts(self, fresh: Int64s, records: pa.Table) -> Iterator[tuple[Array, ...]]:
        """Yield the links of some nodes: those that did not change, and those that did."""
        node, other = (self._nodes.numbers(array_of(records[name])) for name in ("node", "other"))
        edge = tuple(records[name].combine_chunks() for name in self._names[2:])
        mine, *others = (records[name].to_numpy() > 0 for name in self._counts)
        theirs = others[0] if others else np.zeros(len(mine), np.bool_)
        changed = self._changed
        assert changed is not None, "changed edges were applied before"
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
