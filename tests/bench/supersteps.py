"""What a superstep of a loop of messages costs, and what a loop gains that calls only what changed.

    python -m tests.bench.supersteps

One message that goes round a thousand times is the cost of an almost empty superstep. Components
are computed twice, in one run each: nodes speak only if their label changed (delta), or all of
them in each superstep until the last label is there (bulk). Both are the groupwise form, in one
process; the labels are compared with those from scratch. The third graph has a path of 744 links,
so a bulk loop calls all nodes 744 times where a few of them change.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from cbp import DataflowBuilder, Input, Loopback, Output, Translate
from cbp.engine.direct import LocalEngine
from tests.driver import Driver
from tests.loops import Components
from tests.stages import real_graphs
from tests.stages.real_graphs import Edges

ROUNDS = 1_000
PATH = 744
PLACE = tempfile.TemporaryDirectory()


class Round(Translate):
    """Pass a number on until it is zero."""

    starts = Input("k BIGINT, n BIGINT", route_by="k")
    again = Loopback("k BIGINT, n BIGINT", route_by="k", supersteps=ROUNDS + 1)
    ends = Output("k BIGINT")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        """Pass it on."""
        for one in [*group.starts, *group.again]:
            if one.n:
                out.again(key.k, one.n - 1)
            else:
                out.ends(key.k)


class Bulk(Components):
    """The same, but each node speaks to all of its neighbours in each superstep.

    Args:
        rounds: Supersteps until the last label is there.
    """

    news = Loopback(
        "node BIGINT, label BIGINT, linked BIGINT, left INT", route_by="node", supersteps=1000
    )

    def __init__(self, rounds: int) -> None:
        self.rounds = rounds

    def translate(self, key: Any, group: Any, out: Any) -> None:
        """Take the least label, and tell it to all neighbours while rounds are left."""
        links, news = [*group.links], [*group.news]
        old = next((row.label for row in group.labels), None)
        label = min([key.src if old is None else old, *(one.label for one in news)])
        left = min([self.rounds + 1, *(one.left for one in news)]) - 1
        new = {one.linked for one in news if one.linked is not None}
        new |= {link.dst for link in links}
        for other in new:
            out.near(key.src, other)
        if left > 0:
            for other in sorted(new | {row.other for row in group.near}):
                out.news(other, label, key.src, left)
        out.labels(key.src, label)


def graphs() -> dict[str, Edges]:
    """Return edges by what is special about them."""
    small, large = real_graphs.power_law(500, 2_000), real_graphs.power_law(4_000, 16_000)
    nodes = np.random.default_rng(5).permutation(np.arange(1_000_000, 1_000_000 + PATH))
    path = np.stack([np.append(small[:1, 0], nodes[:-1]), nodes], axis=1)
    return {
        "500 nodes, small diameter": small,
        "4,000 nodes, small diameter": large,
        f"500 nodes and a path of {PATH}": np.concatenate([small, path]),
    }


def run(
    stage: Translate, source: str, schema: str, rows: list[dict[str, int]]
) -> tuple[Any, float]:
    """Return a driver after one run, and the seconds of the processor that this took."""
    flow = DataflowBuilder("loop")
    flow.stage("loop", stage, buckets=2, **{source: flow.source("given", schema)})
    folder = Path(tempfile.mkdtemp(dir=PLACE.name))
    driver = Driver(LocalEngine(cache=f"{folder}/cache"), flow.build(), folder / "tables")
    driver.feed("given", rows)
    started = time.process_time()
    driver.run_until_idle()
    return driver, time.process_time() - started


def components(stage: Translate, edges: Edges) -> tuple[float, int]:
    """Return the seconds of the processor, and the number of supersteps.

    Raises:
        SystemExit: A label is wrong.
    """
    both = np.concatenate([edges, edges[:, ::-1]])
    rows = [{"src": src, "dst": dst} for src, dst in both.tolist()]
    driver, seconds = run(stage, "links", "src BIGINT, dst BIGINT", rows)
    labels = {row["src"]: row["label"] for row in driver.state("loop", "labels")}
    nodes, right = real_graphs.labels(edges)
    if labels != dict(zip(nodes.tolist(), right.tolist(), strict=True)):
        raise SystemExit("wrong labels")
    return seconds, int(sum(figures["supersteps"] for figures in driver.figures))


def main() -> None:
    """Print the cost of a superstep, and a row for each graph."""
    _, few = run(Round(), "starts", "k BIGINT, n BIGINT", [{"k": 1, "n": 1}])
    _, many = run(Round(), "starts", "k BIGINT, n BIGINT", [{"k": 1, "n": ROUNDS - 1}])
    print(f"a superstep of one message: {(many - few) / (ROUNDS - 2) * 1e3:.2f} ms")
    print("| graph | supersteps | delta, s | bulk, s | bulk / delta |")
    print("| --- " * 5 + "|")
    for name, edges in graphs().items():
        delta, steps = components(Components(), edges)
        bulk, _ = components(Bulk(steps), edges)
        print(f"| {name} | {steps} | {delta:.2f} | {bulk:.2f} | {bulk / delta:.1f} |", flush=True)


if __name__ == "__main__":
    main()
