"""Values that spread along the edges of a graph while edges come and go, on columns.

    class Components(PropagateArrow):
        def start(self, nodes):                  # what nodes are worth by themselves
            return nodes

        def along(self, values):                 # what edges make of the values where they begin
            return values

The counterpart of `stages.propagate`, for the same values. A run is one call that loops over
arrays; no Python code runs per record.

    edges -> what lost its support -> trimmed, with all that it supports -> derived again
          '-> what is better now --------------------------------------'-> relaxed -> nodes

A node's value is the best of its own start and of what edges bring. It remembers the node that
brought it, its *support*. When an edge goes, the nodes that it supported lose their values, and so
do all that these supported, before any is derived again: from its start, and from those neighbours
that still have a value. So no cycle supports itself. Better values are passed on along the edges
until no value gets better. A run reads and writes only what its changes reach.

Source: the idea of trimming by support is KickStarter's (ASPLOS'17).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from cbp import State, TranslateRun, View
from cbp.errors import DefinitionError, Mistake
from stages.link_arrays import ANEW, CHANGED, WAYS, LinkChanges, LinkTable, Reader, edge_names
from stages.nodes import Array, Bools, Int64s, Nodes, array_of, typed
from stages.source_node import SourceNode
from stages.spanning_forest import ForestSearch, best_of, once, united


class PropagateArrow(TranslateRun):
    """Give each node the best value that its own start, or any path to it, leads to.

    A subclass defines the initial values of nodes, how edges change values, and which value is
    best, each for whole columns; the rules for these, and the parameters, are those of
    `stages.propagate.Propagate`. With `changes=False`, edges are not the changes of a view, but
    records `(src, dst, gone BOOLEAN)`: the last one of two nodes counts.

    Attributes:
        largest: Whether the largest value is the best one, not the least.
    """

    largest = False
    _source: Any = SourceNode()
    ways = f"{WAYS}; then, if all linked nodes have the same value, anew by components"

    def __init__(
        self,
        value: str,
        *,
        node: str = "BIGINT",
        edge: str = "",
        directed: bool = False,
        changes: bool = True,
    ) -> None:
        if edge and not changes:
            message = (
                f"got {edge!r}, but edges can have further columns only with changes=True; then "
                "wire the input of edges to a view"
            )
            where = f"{type(self).__name__}.edge"
            raise DefinitionError(Mistake("parameter_invalid", where, message))
        name, _, type_ = value.strip().partition(" ")
        self.directed, self.value = directed, name
        self.edge_columns = edge_names(edge)
        self.key = f"node {node}"
        self.edges, self.links = LinkTable.declare(node, edge, changes=changes)
        self.held = State(
            f"node {node}, value {type_}, support {node}",
            keep=True,
            key="node",
            not_compared="support",
        )
        self.nodes = View(f"node {node}, {value}", key="node", keep=True)

    def start(self, nodes: Any) -> Any:
        """Return the initial values of nodes."""
        raise NotImplementedError

    def along(self, values: Any, *edge: Any) -> Any:
        """Return the values at the ends of edges from those at their beginnings; default: equal."""
        return values

    def starts(self, nodes: Any) -> Any:
        """Return which nodes have an initial value; by default, all have one."""
        return np.ones(len(nodes), np.bool_)

    def reaches(self, values: Any) -> Any:
        """Return which values of edges are passed on; by default, all are."""
        return np.ones(len(values), np.bool_)

    def translate(self, tables: Any, out: Any) -> str:
        """Apply added and removed edges, and propagate their effects."""
        run = _Spread(self, tables)
        changed = run.links.change(tables.edges, out)
        run.trim(changed)
        is_anew = run.links.is_whole and self._unites()
        if is_anew:
            run.unite()
        else:
            run.derive(changed)
        run.write(out)
        return ANEW if is_anew else CHANGED

    def _unites(self) -> bool:
        """Return whether linked nodes always have the same value: the best of their starts."""
        mine, base = type(self), PropagateArrow
        return not self.directed and mine.along is base.along and mine.reaches is base.reaches


class _Spread:
    """The values of the nodes that a run meets; arrays are indexed by the number of a node."""

    def __init__(self, author: PropagateArrow, tables: Any) -> None:
        self._author = author
        self.nodes = Nodes()
        self.links = LinkTable(tables.links, self.nodes, author.edge_columns)
        self._reader = Reader(tables.held, self.nodes)
        empty = tables.held.of({"node": []})
        self._value = array_of(empty["value"])
        self._old_value = self._value
        self._support = self._old_support = np.empty(0, np.int64)
        self._has: Bools = np.empty(0, np.bool_)
        self._had: Bools = np.empty(0, np.bool_)
        self._is_trimmed: Bools = np.empty(0, np.bool_)
        self._least = np.empty(0, np.int64)
        self._candidates: list[tuple[Int64s, Array, Int64s]] = []

    def trim(self, changed: LinkChanges) -> None:
        """Remove the values that depended on removed edges."""
        before = self._leads(changed.had_mine > 0, changed.had_theirs > 0)
        now = self._leads(changed.mine > 0, changed.theirs > 0)
        node, other = changed.node[before & ~now], changed.other[before & ~now]
        self._know(np.concatenate([node, other]))
        self._is_trimmed = np.zeros(len(self.nodes), np.bool_)
        lost = [other[self._has[other] & (self._support[other] == node) & (node != other)]]
        own = np.unique(node[self._has[node] & (self._support[node] == node)])
        lost.append(own[~self._begins(own)])
        front = np.unique(np.concatenate(lost))
        while len(front):
            self._is_trimmed[front] = True
            _, links = self._leading(front)
            at, to = links
            self._know(to)
            below = self._has[to] & (self._support[to] == front[at]) & ~self._is_trimmed[to]
            front = np.unique(to[below])
        self._has = self._has & ~self._is_trimmed

    def derive(self, changed: LinkChanges) -> None:
        """Give nodes the values of starts and edges, and pass on better values."""
        trimmed = np.flatnonzero(self._is_trimmed)
        self._from_neighbours(trimmed)
        leads = self._leads(changed.mine > 0, changed.theirs > 0)
        leads &= ~self._leads(changed.had_mine > 0, changed.had_theirs > 0)
        new = changed.at(leads)
        self._know(np.concatenate([new.node, new.other]))
        begin = np.unique(np.concatenate([new.node, trimmed[self._begins(trimmed)]]))
        self._start(begin)
        edge = [one.to_numpy(zero_copy_only=False) for one in new.edge]
        self._tell(new.node, new.other, edge)
        front = self._improve()
        while len(front):
            at, links = self.links.of(front)
            leads = self._leads(self.links.mine[links], self.links.theirs[links])
            at, links = at[leads], links[leads]
            self._know(self.links.other[links])
            self._tell(front[at], self.links.other[links], [one[links] for one in self.links.edge])
            front = self._improve()

    def unite(self) -> None:
        """Do what `derive` does, by the components of the whole graph.

        A node that already has its component's value keeps its support. Other nodes are attached to
        such nodes by a spanning forest; if a component has none, the first node that starts with
        the value is its root.
        """
        self._know(np.arange(len(self.nodes)))
        starts, sizes, node = self.links.every()
        other, many = self.links.other, len(self.nodes)
        apart = np.flatnonzero(node < other)
        label = united(many, node[apart], other[apart])
        some = np.flatnonzero(sizes)
        some = some[np.asarray(self._author.starts(self.nodes.ids[some]), np.bool_)]
        own = np.asarray(self._author.start(self.nodes.ids[some]))
        own = typed(own, self._value.dtype, self._author.value)
        best, has_best = best_of(label[some], many, own, largest=self._author.largest)
        value, has = best[label], has_best[label]
        is_right = self._has & has & (self._value == value)
        self._value, self._has = value, has
        is_held = np.zeros(many, np.bool_)
        is_held[label[is_right]] = True
        roots = some[(own == value[some]) & ~is_held[label[some]]][::-1]
        first = np.full(many, -1)
        first[label[roots]] = roots  # of several, the first node stays
        roots = first[first >= 0]
        self._support[roots] = roots
        is_right[roots] = True
        found, under = ForestSearch(starts, sizes, other).grow(is_right, has & ~is_right)
        self._support[found] = under

    def write(self, out: Any) -> None:
        self._grow()
        has, had = self._has, self._had
        is_other = self._value != self._old_value
        moved = has & (~had | is_other)
        held = moved | (has & (self._support != self._old_support))
        ids = self.nodes.ids
        gone = {"node": ids[had & ~has]}
        value, support = self._value[held], ids[self._support[held]]
        out.held({"node": ids[held], "value": value, "support": support})
        out.held.delete(gone)
        out.nodes({"node": ids[moved], self._author.value: self._value[moved]})
        out.nodes.delete(gone)

    def _leads(self, mine: Bools, theirs: Bools) -> Bools:
        return mine.copy() if self._author.directed else mine | theirs

    def _begins(self, numbers: Int64s) -> Bools:
        at, links = self.links.of(numbers)
        leads = self._leads(self.links.mine[links], self.links.theirs[links])
        begins: Bools = np.bincount(at[leads], minlength=len(numbers)) > 0
        return begins

    def _leading(self, front: Int64s) -> tuple[Int64s, tuple[Int64s, Int64s]]:
        """Return the links that lead away from nodes: their indexes; index of node, other node."""
        at, links = self.links.of(front)
        leads = self._leads(self.links.mine[links], self.links.theirs[links])
        return links[leads], (at[leads], self.links.other[links[leads]])

    def _know(self, numbers: Int64s) -> None:
        read = self._reader.read(numbers, whole=self.links.is_whole)
        if read is not None:
            _, records = read
            mine, support = (
                self.nodes.numbers(array_of(records[name])) for name in ("node", "support")
            )
        self._grow()
        if read is not None and len(mine):
            values = array_of(records["value"])
            self._value[mine], self._old_value[mine] = values, values
            self._support[mine], self._old_support[mine] = support, support
            self._has[mine], self._had[mine] = True, True

    def _grow(self) -> None:
        more = len(self.nodes) - len(self._has)
        if not more:
            return
        blank = np.zeros(more, self._value.dtype)
        self._value, self._old_value = (
            np.concatenate([one, blank]) for one in (self._value, self._old_value)
        )
        none = np.full(more, -1)
        self._support, self._old_support = (
            np.concatenate([one, none]) for one in (self._support, self._old_support)
        )
        off = np.zeros(more, np.bool_)
        self._has, self._had = (np.concatenate([one, off]) for one in (self._has, self._had))
        if len(self._is_trimmed):
            self._is_trimmed = np.concatenate([self._is_trimmed, off])

    def _from_neighbours(self, trimmed: Int64s) -> None:
        """Offer trimmed nodes the values that links bring from their neighbours."""
        at, links = self.links.of(trimmed)
        mine, theirs = self.links.mine[links], self.links.theirs[links]
        comes = theirs if self._author.directed else mine | theirs
        at, links = at[comes], links[comes]
        self._know(self.links.other[links])
        edge = [one[links] for one in self.links.edge]
        self._tell(self.links.other[links], trimmed[at], edge)

    def _start(self, numbers: Int64s) -> None:
        ids = self.nodes.ids[numbers]
        some = np.flatnonzero(np.asarray(self._author.starts(ids), np.bool_))
        if len(some):
            values = np.asarray(self._author.start(ids[some]))
            self._candidates.append((numbers[some], values, numbers[some]))

    def _tell(self, origin: Int64s, to: Int64s, edge: list[Array]) -> None:
        """Offer nodes the values that edges bring from the nodes where they begin."""
        has = np.flatnonzero(self._has[origin])
        if not len(has):
            return
        origin, to = origin[has], to[has]
        before = self._value[origin]
        values = np.asarray(self._author.along(before, *(one[has] for one in edge)))
        reaches = np.flatnonzero(np.asarray(self._author.reaches(values), np.bool_))
        values = values[reaches]
        self._require_no_better(values, before[reaches])
        self._candidates.append((to[reaches], values, origin[reaches]))

    def _require_no_better(self, values: Array, before: Array) -> None:
        """Refuse values that edges made better: around a cycle, they would get better forever."""
        if type(self._author).along is PropagateArrow.along:
            return
        better = np.flatnonzero(values > before if self._author.largest else values < before)
        if len(better):
            at = better[0]
            message = (
                f"along() returned {values[at]} for {before[at]}, which is a better value; around "
                "a cycle, values would then get better forever"
            )
            raise ValueError(message)

    def _improve(self) -> Int64s:
        """Take the best of the offered values; return the nodes that improved, ascending.

        Of several nodes that bring the best value, the least is the support, so that the result
        does not depend on any order.
        """
        if not self._candidates:
            return np.empty(0, np.int64)
        to, values, origin = (np.concatenate(many) for many in zip(*self._candidates, strict=True))
        self._candidates = []
        better = np.flatnonzero(self._is_better(values, to))
        if not len(better):
            return np.empty(0, np.int64)
        to, origin = to[better], origin[better]
        values = typed(values[better], self._value.dtype, self._author.value)
        self._value[to], self._has[to] = values, True  # any of them, to begin with
        best = np.maximum if self._author.largest else np.minimum
        best.at(self._value, to, values)
        wins = np.flatnonzero(values == self._value[to])
        self._least_support(to[wins], origin[wins])
        return once(to, len(self._has))

    def _least_support(self, to: Int64s, origin: Int64s) -> None:
        """Keep the least of the nodes that bring a node its value as the support."""
        ids = self.nodes.ids[origin]
        if ids.dtype.kind != "i":
            _, ids = np.unique(ids, return_inverse=True)
        if len(self._least) < len(self._support):
            self._least = np.empty(len(self._support), np.int64)
        least = self._least
        least[to] = np.iinfo(np.int64).max
        np.minimum.at(least, to, ids)
        firsts = np.flatnonzero(least[to] == ids)
        self._support[to[firsts]] = origin[firsts]

    def _is_better(self, values: Array, to: Int64s) -> Bools:
        better = ~self._has[to]
        some = np.flatnonzero(~better)
        held = self._value[to[some]]
        better[some] = values[some] > held if self._author.largest else values[some] < held
        return better
