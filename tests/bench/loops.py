"""Loops within a run, on graphs that nobody made for them: from file to durable, against scratch.

    python -m tests.bench.loops
    python -m tests.bench.loops --graph power-law --nodes 500000 --edges 5000000 --loops components

Half of the edges come at once, then a tenth, then 1,000, 100, 10 and 1, and as many go. After each
increment, the same process computes the answer from scratch with NumPy, from a Parquet file of all
edges to a synced one of all values, and both are compared. Ours is from the increment's file to the
published tables: the run, its intention, and the log entries. Everything is in one process, warm
after the first increment; candidates take turns. `--profile FILE` writes where the time of one
increment goes.
"""

from __future__ import annotations

import argparse
import cProfile
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from cbp import DataflowBuilder
from cbp.engine.direct import LocalEngine
from cbp.model.dataflow.dataflow import Dataflow
from stages.flows.clustering import clustering
from stages.flows.pagerank import pagerank
from stages.translators.components_arrow import ComponentsArrow
from stages.translators.reachable_arrow import ReachableArrow
from tests.driver import Driver
from tests.stages import real_graphs
from tests.stages.real_graphs import Edges

SCHEMA = "src BIGINT NOT NULL, dst BIGINT NOT NULL, gone BOOLEAN"
FILE = pa.schema([("src", pa.int64()), ("dst", pa.int64()), ("gone", pa.bool_())])
L1_ERROR = 1e-6
"""Largest sum of the differences between scores, whose mean is 1, and the right ones."""

Answer = tuple[npt.NDArray[np.int64], npt.NDArray[Any]]
Increment = tuple[str, Edges, bool, Edges]
"""Its name, its edges, whether they are gone, and all edges that are there afterwards."""


class Loop:
    """A dataflow of one loop, and its answer from scratch."""

    def __init__(
        self, flow: Dataflow, table: str, scratch: Callable[[Edges], Answer], within: float = 0.0
    ) -> None:
        self.flow, self.scratch, self.within = flow, scratch, within
        self.stage, _, self.view = table.partition(".")

    def answer(self, driver: Driver) -> Answer:
        """Return nodes, ascending, and their values, as the view has them."""
        rows = [tuple(row.values())[:2] for row in driver.state(self.stage, self.view)]
        nodes, many = (np.array(column) for column in zip(*rows, strict=True))
        order = np.argsort(nodes)
        return nodes[order], many[order]


def loops(edges: Edges) -> dict[str, Loop]:
    """Return the loops by name; PageRank's error is for as many nodes as these edges have."""
    source, nodes = int(np.argmax(np.bincount(edges[:, 0]))), len(np.unique(edges))
    error = L1_ERROR / nodes
    return {
        "components": Loop(_flow(ComponentsArrow(changes=False)), "loop.nodes", real_graphs.labels),
        "reachable": Loop(
            _flow(ReachableArrow(source, changes=False)),
            "loop.nodes",
            lambda some: real_graphs.steps(some, source),
        ),
        "pagerank": Loop(
            pagerank(error=error),
            "rank.ranks",
            lambda some: real_graphs.scores(some, error),
            within=2 * L1_ERROR,
        ),
        "clustering": Loop(clustering(), "coefficients.nodes", coefficients, within=1e-9),
    }


def _flow(stage: Any) -> Dataflow:
    flow = DataflowBuilder("loop")
    flow.stage("loop", stage, buckets=2, edges=flow.source("edges", SCHEMA))
    return flow.build()


def coefficients(edges: Edges) -> Answer:
    """Return the clustering coefficient of each node, by a look at each path of two links."""
    nodes, corners = real_graphs.triangles(edges)
    links = np.unique(np.sort(edges, axis=1), axis=0)
    degree = np.bincount(np.searchsorted(nodes, links.ravel()), minlength=len(nodes))
    return nodes, 2 * corners / np.maximum(degree * (degree - 1), 1)


def increments(edges: Edges) -> Iterator[Increment]:
    """Yield what comes and goes; the edges that go are others than those that came last."""
    sizes = [("first half", len(edges) // 2), ("a tenth", len(edges) // 10)]
    sizes += [(f"{size:,}", size) for size in (1_000, 100, 10, 1)]
    at = 0
    for name, size in sizes:
        yield name, edges[at : at + size], False, edges[: at + size]
        at += size
    there = edges[:at]
    for size in (1, 10, 100, 1_000):
        first = size * 3
        gone = there[first : first + size]
        there = np.delete(there, slice(first, first + size), 0)
        yield f"{size:,} removed", gone, True, there


def ours(driver: Driver, some: Edges, *, gone: bool) -> float:
    """Apply an increment, and return the seconds from its file to the published tables."""
    rows = pa.table([some[:, 0], some[:, 1], pa.repeat(gone, len(some))], schema=FILE)
    driver.feed_table("edges", rows)
    started = time.perf_counter()
    driver.run_until_idle()
    return time.perf_counter() - started


def from_scratch(loop: Loop, there: Edges, folder: Path) -> tuple[float, Answer]:
    """Return the seconds from a file of all edges to a synced file of all values; the values."""
    edges, values = folder / "all.parquet", folder / "values.parquet"
    pq.write_table(pa.table([there[:, 0], there[:, 1]], names=["src", "dst"]), edges)
    started = time.perf_counter()
    table = pq.read_table(edges)
    answer = loop.scratch(np.stack([table["src"].to_numpy(), table["dst"].to_numpy()], axis=1))
    pq.write_table(pa.table([*answer], names=["node", "value"]), values)
    with values.open("rb") as written:
        os.fsync(written.fileno())
    return time.perf_counter() - started, answer


def require_right(loop: Loop, actual: Answer, right: Answer) -> float:
    """Return the sum of all differences.

    Raises:
        SystemExit: The answer is wrong.
    """
    if not np.array_equal(actual[0], right[0]):
        raise SystemExit("wrong: other nodes")
    wrong = float(np.abs(actual[1] - right[1]).sum())
    if wrong > loop.within:
        raise SystemExit(f"wrong: the values differ by {wrong} in all, at most {loop.within}")
    return wrong


def main() -> None:
    """Print a row for each increment of each loop."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--graph", default="debian", choices=("debian", "imports", "power-law"))
    parser.add_argument("--nodes", type=int, default=500_000, help="of the power law")
    parser.add_argument("--edges", type=int, default=5_000_000, help="of the power law")
    parser.add_argument("--loops", default="components,reachable,pagerank,clustering")
    parser.add_argument("--profile", help="write a profile of the increment of this name here")
    parser.add_argument("--increment", default="first half", help="the increment to profile")
    chosen = parser.parse_args()
    graphs: dict[str, Callable[[], Edges]] = {
        "debian": real_graphs.debian,
        "imports": real_graphs.imports,
        "power-law": lambda: real_graphs.power_law(chosen.nodes, chosen.edges),
    }
    edges = graphs[chosen.graph]()
    print(f"{chosen.graph}: {len(np.unique(edges)):,} nodes, {len(edges):,} edges")
    print("| loop | increment | ours s | NumPy from scratch s | ratio | state MB |")
    print("| --- " * 6 + "|")
    for name in chosen.loops.split(","):
        loop = loops(edges)[name]
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place)
            driver = Driver(LocalEngine(cache=f"{folder}/cache"), loop.flow, folder / "tables")
            for what, some, gone, there in increments(edges):
                profile = cProfile.Profile()
                if chosen.profile and what == chosen.increment:
                    profile.enable()
                spent = ours(driver, some, gone=gone)
                profile.disable()
                if chosen.profile and what == chosen.increment:
                    profile.dump_stats(chosen.profile)
                scratch, right = from_scratch(loop, there, folder)
                require_right(loop, loop.answer(driver), right)
                size = sum(
                    one.stat().st_size for one in (folder / "tables" / "state").rglob("*.parquet")
                )
                cells = [f"{spent:.3f}", f"{scratch:.3f}", f"{spent / scratch:.2f}"]
                print("|", " | ".join([name, what, *cells, f"{size / 1e6:.1f}"]), "|", flush=True)


if __name__ == "__main__":
    main()
