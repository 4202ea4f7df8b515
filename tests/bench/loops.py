"""Loops within a run, on graphs that nobody made for them: from file to durable, against scratch.

    python -m tests.bench.loops
    python -m tests.bench.loops --graph power-law --nodes 500000 --edges 5000000 --loops components

Half of the edges come at once, then a tenth, then 1,000, 100, 10 and 1, and as many go; at last a
thousandth comes, goes, and half of it each. With `--full`, all but few come at once, then 1,000
come and go, and the last three follow. After each increment, the same process computes the answer
from scratch with NumPy, from a Parquet file of all edges to a synced one of all values, and both
are compared. Ours is from the increment's file to the published tables: the run, its intention, and
the log entries.
Everything is in one process, warm after the first increment; candidates take turns. Memory is the
most that the process held during ours. `--profile FILE` writes where the time of one increment
goes. `--picture FILE` draws all rows (SVG, PDF or PNG); a line after each loop says from how many
links on recomputing wins. PageRank has one more column: power iteration that goes on from the
scores of the increment before, in a file, too; the product of matrix and scores is SciPy's, if it
is installed.
"""

from __future__ import annotations

import argparse
import cProfile
import importlib
import importlib.util
import os
import re
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from cbp import DataflowBuilder
from cbp.engine.direct import LocalEngine
from cbp.model.dataflow.dataflow import Dataflow
from stages.flows.clustering import clustering
from stages.flows.pagerank import pagerank
from stages.nodes import Nodes
from stages.residuals_arrow import ERROR_MIN
from stages.translators.components_arrow import ComponentsArrow
from stages.translators.core_numbers_arrow import CoreNumbersArrow
from stages.translators.label_propagation_arrow import LabelPropagationArrow
from stages.translators.reachable_arrow import ReachableArrow
from stages.translators.strong_components_arrow import StrongComponentsArrow
from tests.bench.reports.picture import require_matplotlib
from tests.driver import Driver
from tests.stages import real_graphs
from tests.stages.real_graphs import Edges

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SCHEMA = "src BIGINT NOT NULL, dst BIGINT NOT NULL, gone BOOLEAN"
FILE = pa.schema([("src", pa.int64()), ("dst", pa.int64()), ("gone", pa.bool_())])
L1_ERROR = 1e-6
"""Largest sum of the differences between scores, whose mean is 1, and the right ones; more in a
graph of so many nodes that the mean would be below `ERROR_MIN`."""

Answer = tuple[npt.NDArray[np.int64], npt.NDArray[Any]]
Increment = tuple[str, Edges, Edges, Edges]
"""Its name, the edges that come, those that go, and all that are there afterwards."""


class Seconds(NamedTuple):
    """Time that was spent: by the wall clock, and by the processor in this process."""

    wall: float
    cpu: float

    @classmethod
    def now(cls) -> Seconds:
        """Return what both clocks show."""
        return cls(time.perf_counter(), time.process_time())

    @classmethod
    def since(cls, started: Seconds) -> Seconds:
        """Return the time from then to now."""
        now = cls.now()
        return cls(now.wall - started.wall, now.cpu - started.cpu)

    def __str__(self) -> str:
        """Return both, as a cell of the table."""
        return f"{self.wall:.3f} ({self.cpu:.3f})"


class Row(NamedTuple):
    """An increment of a loop: how many links come or go, and seconds of the processor.

    Attributes:
        removes: Whether links only go.
        warm: Going on from the last values without us; `None` if that was not measured.
    """

    loop: str
    links: int
    removes: bool
    ours: float
    scratch: float
    warm: float | None = None


class Loop:
    """A dataflow of one loop, and its answer from scratch."""

    def __init__(
        self,
        flow: Dataflow,
        table: str,
        scratch: Callable[[Edges], Answer],
        within: float = 0.0,
        warm: Callable[[Edges, Answer], Answer] | None = None,
    ) -> None:
        self.flow, self.scratch, self.within, self.warm = flow, scratch, within, warm
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
    error = max(L1_ERROR / nodes, ERROR_MIN)
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
            within=2 * error * nodes,
            warm=lambda some, last: warm_scores(some, last, error),
        ),
        "clustering": Loop(clustering(), "coefficients.nodes", coefficients, within=1e-9),
        "strong-components": Loop(
            _flow(StrongComponentsArrow(changes=False)), "loop.nodes", real_graphs.strong_labels
        ),
        "core-numbers": Loop(
            _flow(CoreNumbersArrow(changes=False)), "loop.nodes", real_graphs.core_numbers
        ),
        "label-propagation": Loop(
            _flow(LabelPropagationArrow(changes=False)), "loop.nodes", real_graphs.communities
        ),
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


def increments(edges: Edges, *, full: bool = False) -> Iterator[Increment]:
    """Yield what comes and goes; the edges that go are others than those that came last."""
    few = len(edges) // 1_000
    sizes = [("first half", len(edges) // 2, 0), ("a tenth", len(edges) // 10, 0)]
    sizes += [(f"{size:,}", size, 0) for size in (1_000, 100, 10, 1)]
    sizes += [(f"{size:,} removed", 0, size) for size in (1, 10, 100, 1_000)]
    if full:
        sizes = [("all", len(edges) - 2 * few - 1_000, 0)]
        sizes += [("1,000", 1_000, 0), ("1,000 removed", 0, 1_000)]
    sizes += [("0.1 %", few, 0), ("0.1 % removed", 0, few), ("0.1 % mixed", few // 2, few // 2)]
    there, at, first = edges[:0], 0, 3
    for name, come, go in sizes:
        gone = there[first : first + go]
        there = np.concatenate(
            [np.delete(there, slice(first, first + go), 0), edges[at : at + come]]
        )
        yield name, edges[at : at + come], gone, there
        at, first = at + come, first + 3 * go


def ours(driver: Driver, come: Edges, gone: Edges) -> Seconds:
    """Apply an increment, and return the seconds from its file to the published tables."""
    some, is_gone = np.concatenate([come, gone]), np.arange(len(come) + len(gone)) >= len(come)
    driver.feed_table("edges", pa.table([some[:, 0], some[:, 1], is_gone], schema=FILE))
    Path("/proc/self/clear_refs").write_text("5", "ascii")  # the peak begins anew
    started = Seconds.now()
    driver.run_until_idle()
    return Seconds.since(started)


def peak_mb() -> float:
    """Return the most memory that this process held since `ours` began, in MB."""
    held = re.search(r"VmHWM:\s*(\d+)", Path("/proc/self/status").read_text("ascii"))
    assert held is not None, "the system has no peak"
    return int(held[1]) / 1e3


def warm_scores(edges: Edges, last: Answer, error: float, damping: float = 0.85) -> Answer:
    """Return nodes, and their PageRank by power iteration that begins with the last scores.

    Its best form here: nodes are numbered by a table instead of sorting, and the matrix is SciPy's.
    """
    nodes = Nodes()
    before = nodes.numbers(last[0])
    src, dst = (nodes.numbers(np.ascontiguousarray(edges[:, end])) for end in (0, 1))
    many = len(nodes)
    links = np.bincount(src, minlength=many)
    share = damping / np.maximum(links, 1)
    is_there = (links > 0) | (np.bincount(dst, minlength=many) > 0)
    scores = is_there.astype(np.float64)
    scores[before[is_there[before]]] = last[1][is_there[before]]
    if importlib.util.find_spec("scipy"):
        sparse = importlib.import_module("scipy.sparse")
        matrix = sparse.csr_matrix((share[src], (dst, src)), shape=(many, many))
    moved = 1.0
    while moved * damping / (1 - damping) > error:
        if importlib.util.find_spec("scipy"):
            given = matrix @ scores
        else:
            given = np.bincount(dst, (share * scores)[src], many)
        given += (1 - damping) * is_there
        moved = float(np.abs(given - scores).mean())
        scores = given
    order = nodes.by_rank[is_there[nodes.by_rank]]
    return nodes.ids[order], scores[order]


def from_file(
    there: Edges, folder: Path, solve: Callable[..., Answer], *last: Answer
) -> tuple[Seconds, Answer]:
    """Return the seconds from a file of all edges to a synced file of all values; the values.

    Args:
        last: The values before, if it goes on from them; they are in a file, too.
    """
    edges, before, values = (folder / f"{name}.parquet" for name in ("all", "before", "values"))
    pq.write_table(pa.table([there[:, 0], there[:, 1]], names=["src", "dst"]), edges)
    for one in last:
        pq.write_table(pa.table([*one], names=["node", "value"]), before)
    started = Seconds.now()
    table, held = pq.read_table(edges), [pq.read_table(before) for _ in last]
    some = np.stack([table["src"].to_numpy(), table["dst"].to_numpy()], axis=1)
    answer = solve(some, *((one["node"].to_numpy(), one["value"].to_numpy()) for one in held))
    pq.write_table(pa.table([*answer], names=["node", "value"]), values)
    with values.open("rb") as written:
        os.fsync(written.fileno())
    return Seconds.since(started), answer


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


def crossing(rows: Sequence[Row]) -> str:
    """Return from how many links on recomputing is faster than applying them, in words."""
    slower = [row.links for row in rows if row.ours > row.scratch]
    faster = [row.links for row in rows if row.ours <= row.scratch]
    if not slower:
        return "applying the links is faster for each increment"
    if not faster:
        return "recomputing is faster for each increment"
    return f"recomputing wins from {min(slower):,} links on, applying up to {max(faster):,}"


def figure_of(rows: Sequence[Row]) -> Figure:
    """Return a chart for each loop: seconds over links, both logarithmic; ours, and scratch."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    names = list(dict.fromkeys(row.loop for row in rows))
    figure = Figure(figsize=(3.2 * len(names), 3.6), layout="constrained")
    FigureCanvasAgg(figure)
    charts = figure.subplots(1, len(names), sharey=True, squeeze=False)[0]
    for name, axes in zip(names, charts, strict=True):
        for removes, style in ((False, "o-"), (True, "v--")):
            some = [row for row in rows if row.loop == name and row.removes == removes]
            some.sort(key=lambda row: row.links)
            links, change = [row.links for row in some], "removed" if removes else "added"
            axes.plot(links, [row.ours for row in some], f"C0{style}", label=f"ours, {change}")
            axes.plot(
                links, [row.scratch for row in some], f"C1{style}", label=f"scratch, {change}"
            )
            if warm := [(row.links, row.warm) for row in some if row.warm is not None]:
                axes.plot(*zip(*warm, strict=True), f"C2{style}", label=f"warm, {change}")
        axes.set(xscale="log", yscale="log", title=name, xlabel="links")
        axes.legend(fontsize="x-small")
    charts[0].set_ylabel("seconds of the processor")
    return figure


def main() -> None:
    """Print a row for each increment of each loop."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--graph", default="debian", choices=("debian", "imports", "power-law"))
    parser.add_argument("--nodes", type=int, default=500_000, help="of the power law")
    parser.add_argument("--edges", type=int, default=5_000_000, help="of the power law")
    parser.add_argument("--loops", default=",".join(loops(np.ones((1, 2), np.int64))))
    parser.add_argument("--full", action="store_true", help="all edges but few come at once")
    parser.add_argument("--picture", type=Path, help="draw all rows into this file")
    parser.add_argument("--profile", help="write a profile of the increment of this name here")
    parser.add_argument("--increment", default="first half", help="the increment to profile")
    chosen = parser.parse_args()
    if chosen.picture:
        require_matplotlib()
    graphs: dict[str, Callable[[], Edges]] = {
        "debian": real_graphs.debian,
        "imports": real_graphs.imports,
        "power-law": lambda: real_graphs.power_law(chosen.nodes, chosen.edges),
    }
    edges = graphs[chosen.graph]()
    print(f"{chosen.graph}: {len(np.unique(edges)):,} nodes, {len(edges):,} edges")
    print("Seconds, and in brackets those of the processor; the ratio is that of the latter.")
    warm = "SciPy" if importlib.util.find_spec("scipy") else "NumPy"
    heads = "ours | NumPy from scratch | ratio | state MB | memory MB"
    print(f"| loop | increment | {heads} | {warm} from the last scores | ratio |")
    print("| --- " * 9 + "|")
    drawn = list[Row]()
    for name in chosen.loops.split(","):
        loop, rows = loops(edges)[name], list[Row]()
        with tempfile.TemporaryDirectory() as place:
            folder, none = Path(place), np.empty(0, np.int64)
            last: Answer = (none, none.astype(np.float64))
            driver = Driver(LocalEngine(cache=f"{folder}/cache"), loop.flow, folder / "tables")
            for what, come, gone, there in increments(edges, full=chosen.full):
                profile = cProfile.Profile()
                if chosen.profile and what == chosen.increment:
                    profile.enable()
                spent, peak = ours(driver, come, gone), peak_mb()
                profile.disable()
                if chosen.profile and what == chosen.increment:
                    profile.dump_stats(chosen.profile)
                scratch, right = from_file(there, folder, loop.scratch)
                require_right(loop, loop.answer(driver), right)
                size = sum(
                    one.stat().st_size for one in (folder / "tables" / "state").rglob("*.parquet")
                )
                cells = [f"{spent}", f"{scratch}", f"{spent.cpu / scratch.cpu:.2f}"]
                cells += [f"{size / 1e6:.1f}", f"{peak:.0f}"]
                row = Row(name, len(come) + len(gone), not len(come), spent.cpu, scratch.cpu)
                if loop.warm:
                    again, last = from_file(there, folder, loop.warm, last)
                    require_right(loop, last, right)
                    cells += [f"{again}", f"{spent.cpu / again.cpu:.2f}"]
                    row = row._replace(warm=again.cpu)
                rows.append(row)
                print("|", " | ".join([name, what, *cells]), "|", flush=True)
        drawn += rows
        print(f"{name}: {crossing(rows)}", flush=True)
    if chosen.picture:
        figure_of(drawn).savefig(chosen.picture, dpi=150)


if __name__ == "__main__":
    main()
