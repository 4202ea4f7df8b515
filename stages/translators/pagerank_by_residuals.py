"""PageRank to a declared error, while edges come and go: residuals are pushed until they are small.

    edges -> [ page: links, score, residual ] -> ranks
                 '------ amounts ------'         (a loopback, within the run)

A page's residual is what its score lacks: 1-a, and a share of the scores of the pages that link to
it, less its score. A page whose residual is larger than a threshold adds it to its score and passes
the share on. An edge that comes or goes changes what a page gives to each of its links; the page
passes on the difference. So scores continue from the last fixpoint.

Amounts are whole multiples of 2**-40, and what a page gives is a function of its score and its
number of links. So it takes back exactly what it gave, sums do not depend on their order, and
errors do not add up, however long the history is.

Pages without links give nothing. In the usual PageRank, such pages give to all pages. The scores
differ from its ranks by a common factor only: divided by their sum, they are its ranks.

Source: the local push of Andersen, Chung and Lang (FOCS'06), with edges that change as in Zhang,
Lofgren and Goel (KDD'16); whole numbers: ours.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cbp import Input, Loopback, State, TranslateArrow, View
from cbp.errors import DefinitionError, Mistake

__all__ = ["PageRankByResiduals"]

Int64s = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

ONE = 1 << 40
"""Units of a score of 1."""

ERROR_MIN = 1e-8
"""Least `error` that rounding permits."""


class PageRankByResiduals(TranslateArrow):
    """Keep a score of every page, on columns; see the module's header.

    Shape:
        edges: the changes of a view with the columns `src` and `dst`; the same edge twice is one
            link.
        ranks: a view `(node BIGINT, score DOUBLE)` with the key `node`: the pages that have an
            edge. The mean is 1, or less if there are pages without links.

    Args:
        damping: `a` above; in (0, 1).
        error: Largest mean over all pages of the difference between a score and the right one.
    """

    key = "node BIGINT"
    edges = Input("src BIGINT, dst BIGINT, sign INT", route_by="src", changes="signed")
    amounts = Loopback("node BIGINT, amount BIGINT, links BIGINT", route_by="node", supersteps=1000)
    links = State("node BIGINT, dst BIGINT, copies BIGINT", keep=True, key="node, dst")
    pages = State(
        "node BIGINT, units BIGINT, residual BIGINT, enters BIGINT, leaves BIGINT",
        not_compared="units, residual",
    )

    def __init__(self, damping: float = 0.85, error: float = 1e-6) -> None:
        if not 0 < damping < 1:
            _refuse("damping", damping, "a number between 0 and 1")
        if not error >= ERROR_MIN:
            _refuse("error", error, f"a number from {ERROR_MIN} on")
        self._damping, self._base = damping, round((1 - damping) * ONE)
        self._most = round(error * (1 - damping) * ONE)
        self.ranks = View("node BIGINT, score DOUBLE", key="node", not_compared="score")

    def translate(self, groups: Any, out: Any) -> None:
        """Apply the edges and amounts of many pages; pass on amounts above the threshold."""
        names = ("units", "residual", "enters", "leaves")
        units, residual, enters, before = (groups.sums("pages", name) for name in names)
        known = (enters > 0) | (before > 0)
        residual += groups.sums("amounts", "amount")
        enters += groups.sums("amounts", "links")
        page, dst, was, is_ = self._links(groups, out, np.abs(residual) > self._most)
        leaves = before + np.bincount(page, is_, len(groups)).astype(np.int64)
        leaves -= np.bincount(page, was, len(groups)).astype(np.int64)
        there = (enters > 0) | (leaves > 0)
        residual[there & ~known] += self._base
        pushes = there & (np.abs(residual) > self._most)
        after = np.where(pushes, units + residual, units)
        residual[pushes] = 0
        amounts = is_ * self._share(after, leaves)[page] - was * self._share(units, before)[page]
        said = np.flatnonzero((amounts != 0) | (is_ != was))
        told = {"node": dst[said], "amount": amounts[said], "links": is_[said] - was[said]}
        out.amounts(told)
        nodes = groups.keys.column("node").filter(pa.array(there))
        columns = dict(zip(names, (after, residual, enters, leaves), strict=True))
        out.pages({"node": nodes, **{name: many[there] for name, many in columns.items()}})
        out.ranks({"node": nodes, "score": after[there] / ONE})

    def _share(self, units: Int64s, links: Int64s) -> Int64s:
        """Return what pages give to each of their links."""
        shares = np.floor(self._damping * units / np.maximum(links, 1))
        return shares.astype(np.int64)

    @staticmethod
    def _links(groups: Any, out: Any, pushes: Bools) -> tuple[Int64s, ...]:
        """Count the edges that came and went.

        Returns:
            For each link that matters: its page, by number; where it leads; whether it was there (1
            or 0); whether it is there now.
        """
        edges = groups.edges.filter(
            pc.and_(pc.is_valid(groups.edges["src"]), pc.is_valid(groups.edges["dst"]))
        )
        if not edges.num_rows and not pushes.any():
            return (np.empty(0, np.int64),) * 4
        links = groups.links.all()
        links = links.append_column("before", links["copies"])
        if edges.num_rows:
            came = edges.rename_columns(["node", "dst", "copies"]).cast(links.schema.remove(3))
            came = came.append_column("before", pa.array(np.zeros(len(came), np.int64)))
            both = pa.concat_tables([links, came]).group_by(["node", "dst"], use_threads=False)
            links = both.aggregate([("copies", "sum"), ("before", "sum")])
            links = links.rename_columns(["node", "dst", "copies", "before"])
            changed = links.filter(pc.not_equal(links["copies"], links["before"]))
            gone = pc.equal(changed["copies"], 0)
            out.links(changed.filter(pc.invert(gone)).drop_columns("before"))
            out.links.delete(changed.filter(gone).select(["node", "dst"]))
        page = pc.index_in(links["node"], groups.keys["node"].combine_chunks()).to_numpy()
        order = np.argsort(page, kind="stable")
        columns = (page, *(links[name].to_numpy() for name in ("dst", "before", "copies")))
        page, dst, was, is_ = (column[order].astype(np.int64) for column in columns)
        return page, dst, (was > 0).astype(np.int64), (is_ > 0).astype(np.int64)


def _refuse(name: str, value: object, expected: str) -> None:
    where = f"PageRankByResiduals.{name}"
    raise DefinitionError(Mistake("parameter_invalid", where, f"{value!r}; give {expected}"))
