"""Loops that end within their run: seconds of the processor in the tasks, full and after changes.

    python -m tests.bench.loops --nodes 5000 --edges 50000 --rounds 3

Each row is a ready stage on a random graph: all edges at once, then a thousandth of the edges that
come, go, or both, each as an epoch. The stages run in turn, each on tables of its own, and after
the last round the values are compared with those from scratch: labels by a forest, scores by power
iteration with NumPy, whose own seconds stand in the last column.
"""

from __future__ import annotations

import argparse
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from cbp import DataflowBuilder
from cbp.engine.direct import LocalEngine
from cbp.engine.task.stage_task import StageTask
from stages.translators.components import Components
from stages.translators.latest_arrow import LatestArrow
from stages.translators.pagerank_by_residuals import PageRankByResiduals
from tests.driver import Driver
from tests.loops import least_labels

SCHEMA = "src BIGINT, dst BIGINT, there BOOLEAN"
ERROR = 1e-6
Edge = tuple[int, int]
Values = Mapping[int, float]


class Candidate:
    """One stage behind a table of edges, in tables of its own."""

    def __init__(self, name: str, stage: Any, folder: Path) -> None:
        flow = DataflowBuilder("loops")
        latest = LatestArrow(SCHEMA, "src, dst", gone="there")
        edges = flow.stage("graph", latest, rows=flow.source("edges", SCHEMA))
        flow.stage("loop", stage, edges=edges.latest)
        self.name, self.seconds = name, dict[str, list[float]]()
        self.driver = Driver(LocalEngine(cache=f"{folder}/cache"), flow.build(), folder / "tables")

    def apply(self, what: str, come: list[Edge], go: list[Edge]) -> None:
        """Apply an increment; note the seconds of the processor in the loop's task."""
        spent: list[float] = []
        run = StageTask.run_arranged

        def watched(task: StageTask) -> Any:
            started = time.process_time()
            try:
                return run(task)
            finally:
                spent.append(time.process_time() - started)

        rows = [(*edge, True) for edge in come] + [(*edge, None) for edge in go]
        records = [dict(zip(("src", "dst", "there"), row, strict=True)) for row in rows]
        self.driver.feed("edges", records)
        with patch.object(StageTask, "run_arranged", watched):
            self.driver.run_until_idle()
        self.seconds.setdefault(what, []).append(spent[-1])

    def values(self) -> Values:
        """Return the value of each node."""
        view = "nodes" if self.name == "components" else "ranks"
        return dict(tuple(row.values()) for row in self.driver.state("loop", view))


def scores(edges: set[Edge], damping: float = 0.85) -> Values:
    """Return PageRank's scores by power iteration, as exact as the stage is told to be."""
    ends = np.array(sorted(edges), np.int64)
    nodes, places = np.unique(ends, return_inverse=True)
    src, dst = places.reshape(ends.shape).T
    links = np.bincount(src, minlength=len(nodes))
    actual: Any = np.ones(len(nodes))
    moved = 1.0
    while moved > ERROR * (1 - damping):
        before = actual
        given = np.bincount(dst, (actual / np.maximum(links, 1))[src], len(nodes))
        actual = 1 - damping + damping * given
        moved = float(np.abs(actual - before).mean())
    return dict(zip(nodes.tolist(), actual.tolist(), strict=True))


def is_right(actual: Values, right: Values) -> bool:
    """Return whether all values are there, with at most the declared error on the mean."""
    wrong = sum(abs(actual[node] - right[node]) for node in right)
    return actual.keys() == right.keys() and wrong <= 2 * ERROR * len(right)


def main() -> None:
    """Print a row for each stage."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name, default in (("nodes", 5_000), ("edges", 50_000), ("rounds", 3)):
        parser.add_argument(f"--{name}", type=int, default=default)
    chosen, dice = parser.parse_args(), random.Random(1)

    def drawn(many: int) -> list[Edge]:
        return [(dice.randrange(chosen.nodes), dice.randrange(chosen.nodes)) for _ in range(many)]

    edges = set(drawn(chosen.edges))
    few = max(1, chosen.edges // 1_000)
    oracles: dict[str, Callable[[set[Edge]], Values]] = {
        "components": least_labels,
        "pagerank": scores,
    }
    with tempfile.TemporaryDirectory() as folder:
        candidates = [
            Candidate("components", Components(), Path(folder) / "components"),
            Candidate("pagerank", PageRankByResiduals(error=ERROR), Path(folder) / "pagerank"),
        ]
        for each in candidates:
            each.apply("full", sorted(edges), [])
        for _ in range(chosen.rounds):
            for what, came, gone in (("added", few, 0), ("removed", 0, few), ("mixed", few, few)):
                go = dice.sample(sorted(edges), gone)
                come = sorted({*drawn(came)} - edges)
                edges = (edges | {*come}) - {*go}
                for each in candidates:
                    each.apply(what, come, go)
        whats = ("full", "added", "removed", "mixed")
        print("| stage |", " | ".join(whats), "| from scratch |")
        print("| --- " * 6 + "|")
        for each in candidates:
            started = time.process_time()
            right = oracles[each.name](edges)
            scratch = time.process_time() - started
            assert is_right(each.values(), right), f"{each.name} is wrong"
            cells = [f"{statistics.median(each.seconds[what]):.3f}" for what in whats]
            print("|", " | ".join([each.name, *cells, f"{scratch:.3f}"]), "|")


if __name__ == "__main__":
    main()
