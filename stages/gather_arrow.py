"""Values of all nodes of a graph in rounds: gathered along edges, combined, applied; on columns.

    values -> gather (what edges bring) -> combine (sum, least, largest) -> apply -> values, again
                                                     rests(before, now), over all nodes: the end

A bulk loop: each run computes all values from the present links, and writes those that differ. It
is for values that depend on the whole graph, such as a sum along all paths that ends once all
values together have come to rest. For values that only get better, `PropagateArrow` reads only what
an edge changes; for sums of shares, `ResidualsArrow` does so, up to a declared error.

A long run stores its values between rounds, and continues from there after an interruption.

Links are sorted by the ids of their nodes. So sums are the same to the last bit, in every engine
and for every order of the input.

Source: gather, apply and scatter as in PowerGraph (OSDI'12).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar, Literal

import numpy as np
import pyarrow as pa

from cbp import TranslateRun, View
from stages.link_arrays import ANEW, LinkTable
from stages.nodes import Array, Int64s, Nodes, array_of, typed


class GatherArrow(TranslateRun):
    """Give each node the value that rounds of gathering along edges lead to.

    A subclass defines the initial values of nodes, the values that edges bring, and the new
    values of nodes, each for whole columns. Edges lead from `src` to `dst`; repeated ones count
    once.

    Shape:
        edges: the changes of a view with the columns `src` and `dst`. With `changes=False`, records
            `(src, dst, gone BOOLEAN)`: the last one of two nodes counts.
        nodes: a view `(node, <value>)` with the key `node`, of the nodes that have an edge.

    A run ends after `rounds` rounds, even if values still change. `value` is the name and type of
    the value, such as `"score DOUBLE"`.

    Attributes:
        combine: How the values that edges bring to a node are combined.
        nothing: The combined value of a node to which no edge leads.
    """

    combine: ClassVar[Literal["sum", "least", "largest"]] = "sum"
    nothing: ClassVar[float] = 0.0
    ways = "anew: all links are read, and all values computed, in each run"

    def __init__(
        self, value: str, *, node: str = "BIGINT", rounds: int = 100, changes: bool = True
    ) -> None:
        self.rounds, self.value = rounds, value.split()[0]
        self.key = f"node {node}"
        self.edges, self.links = LinkTable.declare(node, "", changes=changes)
        self.nodes = View(f"node {node}, {value}", key="node", keep=True)

    def start(self, nodes: Any) -> Any:
        """Return the values before the first round."""
        raise NotImplementedError

    def gather(self, values: Any, edges: Any) -> Any:
        """Return the values that edges bring; by default, those of the nodes where they begin.

        `values` has the value of the node where each edge begins, and `edges` the number of edges
        that begin at that node.
        """
        return values

    def apply(self, before: Any, gathered: Any) -> Any:
        """Return the new values of all nodes."""
        raise NotImplementedError

    def rests(self, before: Any, now: Any) -> bool:
        """Return whether to end, given the values of all nodes; by default, if none changes."""
        return bool(np.array_equal(before, now))

    def translate(self, tables: Any, out: Any) -> str:
        """Apply added and removed edges, and compute all values."""
        nodes = Nodes()
        before = tables.nodes.all()
        held = array_of(before["node"])
        links = LinkTable(tables.links, nodes)
        links.change(tables.edges, out)
        nodes.numbers(held)
        every = nodes.by_rank
        at, places = links.of(every)
        is_linked = np.bincount(at, minlength=len(every)) > 0
        comes = links.theirs[places]
        to, origin = at[comes], nodes.ranks[links.other[places[comes]]]
        order = np.lexsort((origin, to))
        values = self._values(
            nodes.ids[every],
            to[order],
            origin[order],
            noted=tables.noted,
            note=out.note,
            empty=before[self.value].slice(0, 0),
        )
        ids = nodes.ids[every]
        out.nodes(pa.table([ids[is_linked], values[is_linked]], ["node", self.value]))
        out.nodes.delete({"node": np.setdiff1d(held, ids[is_linked])})
        return ANEW

    def _values(
        self,
        ids: Array,
        to: Int64s,
        origin: Int64s,
        *,
        noted: Any,
        note: Callable[..., None],
        empty: pa.ChunkedArray,
    ) -> Array:
        """Return the values of all nodes after the last round.

        Args:
            ids: The nodes, ascending.
            to: Where each edge leads, as a place among them; ascending.
            origin: Where it begins.
            noted: What another attempt of the run stored: the values after a round, and its number.
            empty: An empty column of the type that the values have in the view.
        """
        type_, first = array_of(empty).dtype, 0
        values = typed(np.asarray(self.start(ids)), type_, self.value)
        if noted:
            values, first = array_of(noted["values"]["value"]), noted["round"]["number"][0].as_py()
        edges = np.bincount(origin, minlength=len(ids))[origin]
        starts = np.flatnonzero(np.append(True, to[1:] != to[:-1])[: len(to)])
        unite: dict[str, Callable[[Array, Int64s], Array]] = {
            "sum": _sums,
            "least": np.minimum.reduceat,
            "largest": np.maximum.reduceat,
        }
        for number in range(first, self.rounds):
            brought = np.asarray(self.gather(values[origin], edges)) if len(to) else values[:0]
            if self.combine == "sum" and brought.dtype.kind == "i":
                brought = brought.astype(np.int64, copy=False)  # a sum can need more bits
            gathered = self._nothing(len(ids), np.result_type(brought, values))
            if len(to):
                gathered[to[starts]] = unite[self.combine](brought, starts)
            applied = np.asarray(self.apply(values, gathered))
            before, values = values, typed(applied, type_, self.value)
            if self.rests(before, values):
                break
            note(partial(_noted, values, number + 1))
        return values

    def _nothing(self, many: int, type_: np.dtype[Any]) -> Array:
        if type_.kind == "i":
            least, most = np.iinfo(type_).min, np.iinfo(type_).max
            if not (least <= self.nothing <= most and self.nothing == int(self.nothing)):
                message = (
                    f"the attribute `nothing` is {self.nothing}, but the values are whole numbers: "
                    f"give a whole number from {least} to {most}"
                )
                raise ValueError(message)
        return np.full(many, self.nothing, type_)


def _sums(brought: Array, starts: Int64s) -> Array:
    """Return the sum of each span; refuse whole numbers whose sum has more than 62 bits."""
    sums: Array = np.add.reduceat(brought, starts)
    if brought.dtype.kind == "i":
        bits, most = 62, max(int(brought.max()), -int(brought.min()))
        if most * int(np.diff(starts, append=len(brought)).max()) < 1 << bits:
            return sums
        about = np.abs(np.add.reduceat(brought.astype(np.float64), starts))
        if float(about.max(initial=0)) >= 1 << bits:
            message = (
                f"the sum of the values that edges bring to a node has more than {bits} bits; use "
                "a floating-point type for the value"
            )
            raise OverflowError(message)
    return sums


def _noted(values: Array, rounds: int) -> dict[str, Any]:
    return {"values": {"value": values}, "round": {"number": [rounds]}}
