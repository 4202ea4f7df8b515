"""Graph algorithms in one process, in memory, without Spark: from scratch, or from the last result.

- PageRank, NumPy (`RanksCandidate`): all links as arrays; the formula is repeated until the mean
  error is certainly at most the workload's `error`. `scratch` reads all links and begins at rank
  1; `warm` keeps the links and begins at the ranks of the increment before.
- Clustering (`CoefficientsCandidate`): `scratch` joins edges in Polars; `warm` keeps the neighbours
  of every page as Python sets, and counts again where a new edge changes a result.

Both write the values of all pages as one Parquet file and the changed values as another, both
synced, as `cbp` writes state and output. The increments themselves are already durable.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from tests.bench.candidates.candidate import Figures, Place
from tests.bench.comparison.changed_counts_files import Changes, sync, write_synced
from tests.bench.comparison.result_comparison import Values
from tests.bench.workloads.graph import Edges, edge_table, neighbours_of
from tests.bench.workloads.graph_workloads import DAMPING, Clustering, PageRank
from tests.bench.workloads.workload import Arrival, write_arrival

__all__ = ["CoefficientsCandidate", "RanksCandidate"]

WARM = "warm"
_Reals = npt.NDArray[np.float64]


class _GraphInProcess:
    """Shared code of both candidates: the links that arrived, and the files that are written."""

    form = "python"

    def __init__(self, place: Place, workload: PageRank | Clustering, name: str) -> None:
        self.name, self.state_keys = name, 0
        self._place, self._nodes = place, workload.state_keys
        self._changes = Changes(place.folder)
        self._file = place.folder / "values.parquet"
        self._first = workload.graph.first
        self._inputs: list[Arrival] = []
        self._values: _Reals = np.zeros(self._nodes)

    def load(self, state_keys: int) -> None:
        """Write the first links, and compute their values."""
        self.state_keys = state_keys
        path = self._place.scratch / "initial" / "links.parquet"
        self._inputs = [write_arrival(edge_table(self._first), path)]
        self._values = self._begun()

    def run(self, arrival: Arrival) -> Figures:
        """Compute the values after one increment, and write them durably."""
        self._inputs.append(arrival)
        before = self._values
        self._values = self._after(arrival)
        changed = np.flatnonzero(np.abs(self._values - before) > self._threshold)
        write_synced(_table(changed, self._values[changed]), self._changes.next())
        after = self._file.with_suffix(".next")
        write_synced(_table(np.arange(self._nodes), self._values), after)
        os.replace(after, self._file)
        sync(self._place.folder)
        read = self._inputs if self.name != WARM else [arrival]
        return Figures(bytes_read=sum(one.bytes for one in read), epochs=self._epochs)

    def emitted(self) -> None:
        """Return None: the values are compared instead."""

    def held(self) -> Values:
        """Read the file of values."""
        rows = pq.read_table(self._file)
        nodes, values = (rows.column(name).to_pylist() for name in ("node", "value"))
        return Values(dict(zip(nodes, values, strict=True)))

    def close(self) -> None:
        """Do nothing: there is nothing to release."""

    _threshold = 0.0
    """Values that changed by more than this are emitted."""
    _epochs = 1

    def _begun(self) -> _Reals:
        raise NotImplementedError

    def _after(self, arrival: Arrival) -> _Reals:
        raise NotImplementedError

    def _links(self, arrivals: Iterable[Arrival]) -> Edges:
        return _joined([_read(arrival) for arrival in arrivals])


class RanksCandidate(_GraphInProcess):
    """PageRank in NumPy; see the module header."""

    def __init__(self, place: Place, workload: PageRank, name: str) -> None:
        super().__init__(place, workload, name)
        self._error = workload.error
        self._threshold = workload.threshold
        self._edges = self._first

    def _begun(self) -> _Reals:
        return self._ranks(np.ones(self._nodes), self._edges, error=1e-12)

    def _after(self, arrival: Arrival) -> _Reals:
        if self.name != WARM:
            return self._ranks(np.ones(self._nodes), self._links(self._inputs), error=self._error)
        self._edges = _joined([self._edges, _read(arrival)])
        return self._ranks(self._values, self._edges, error=self._error)

    def _ranks(self, rank: _Reals, edges: Edges, *, error: float) -> _Reals:
        """Iterate until the mean error is certainly below `error`."""
        nodes = self._nodes
        links = np.bincount(edges.src, minlength=nodes)
        dangles = links == 0
        share = 1.0 / np.maximum(links, 1)
        near, moved, self._epochs = error * (1 - DAMPING) / DAMPING, np.inf, 0
        while moved > near:
            given = np.bincount(edges.dst, (rank * share)[edges.src], nodes)
            after = 1 - DAMPING + DAMPING * (given + rank[dangles].sum() / nodes)
            moved = float(np.abs(after - rank).mean())
            rank, self._epochs = after, self._epochs + 1
        return rank


class CoefficientsCandidate(_GraphInProcess):
    """Clustering coefficients; see the module header."""

    def __init__(self, place: Place, workload: Clustering, name: str) -> None:
        super().__init__(place, workload, name)
        self._neighbours: list[set[int]] = []

    def _begun(self) -> _Reals:
        if self.name == WARM:
            self._neighbours = neighbours_of(self._first, self._nodes)
        return self._counted(self._inputs)

    def _after(self, arrival: Arrival) -> _Reals:
        if self.name != WARM:
            return self._counted(self._inputs)
        known, touched = self._neighbours, set[int]()
        edges = _read(arrival)
        for one, other in zip(edges.src.tolist(), edges.dst.tolist(), strict=True):
            known[one].add(other)
            known[other].add(one)
            # A new edge closes triangles with the common neighbours of its ends.
            touched |= {one, other} | (known[one] & known[other])
        values = self._values.copy()
        for page in touched:
            mine = known[page]
            pairs = sum(len(mine & known[other]) for other in mine)
            values[page] = pairs / (len(mine) * (len(mine) - 1)) if len(mine) > 1 else 0.0
        return values

    def _counted(self, arrivals: Iterable[Arrival]) -> _Reals:
        """Count triangles by joins; each edge is directed from its end with fewer neighbours."""
        import polars as pl

        links = pl.scan_parquet([one.path for one in arrivals]).filter(
            pl.col("src") != pl.col("dst")
        )
        ends = {"a": pl.min_horizontal("src", "dst"), "b": pl.max_horizontal("src", "dst")}
        edges: Any = links.select(**ends).unique().collect()
        degrees = pl.concat([edges["a"].alias("node"), edges["b"].alias("node")])
        degree = np.bincount(degrees.to_numpy(), minlength=self._nodes)
        a, b = edges["a"].to_numpy(), edges["b"].to_numpy()
        ordered = (degree[a] < degree[b]) | ((degree[a] == degree[b]) & (a < b))
        led = pl.DataFrame({"s": np.where(ordered, a, b), "t": np.where(ordered, b, a)}).lazy()
        pairs = led.join(led, on="s", suffix="2").filter(pl.col("t") < pl.col("t2"))
        corners: Any = (
            pairs.join(edges.lazy(), left_on=["t", "t2"], right_on=["a", "b"])
            .select("s", "t", "t2")
            .collect()
        )
        nodes = np.concatenate([corners[name].to_numpy() for name in ("s", "t", "t2")])
        closed = np.bincount(nodes, minlength=self._nodes)
        values: _Reals = 2.0 * closed / np.maximum(degree * (degree - 1), 1)
        return values


def _read(arrival: Arrival) -> Edges:
    rows = pq.read_table(arrival.path)
    return Edges(rows.column("src").to_numpy(), rows.column("dst").to_numpy())


def _joined(parts: list[Edges]) -> Edges:
    src, dst = (np.concatenate([getattr(p, name) for p in parts]) for name in ("src", "dst"))
    return Edges(src, dst)


def _table(nodes: npt.NDArray[np.int64], values: _Reals) -> pa.Table:
    return pa.table({"node": nodes, "value": values})
