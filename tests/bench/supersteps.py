"""What a superstep of a loop of messages costs, and what a loop gains that calls only what changed.

    python -m tests.bench.supersteps
    python -m tests.bench.supersteps --delta 20000  # nodes of the largest graph; takes half an hour
    python -m tests.bench.supersteps --delta-columns 100000
    python -m tests.bench.supersteps --delta-columns 500000 --bulk-supersteps 20,50 --only path
    python -m tests.bench.supersteps --log 5        # what the log of a long loop costs, and saves
    python -m tests.bench.supersteps --columns 3 --nodes 100000 --edges 1000000
    python -m tests.bench.supersteps --python 3 --nodes 50000 --edges 500000
    python -m tests.bench.supersteps --room 3 --nodes 100000 --edges 1000000
    python -m tests.bench.supersteps --tasks 5        # one task and two
    python -m tests.bench.supersteps --spark 5        # the same on a local Spark
    python -m tests.bench.supersteps --microsteps 5        # two tasks that go on alone, or do not

One message that goes round a thousand times is the cost of an almost empty superstep. Components
are computed twice, in one run each: nodes speak only if their label changed (delta), or all of
them in each superstep until the last label is there (bulk). Both are the groupwise form, in one
process; the labels are compared with those from scratch. The last graphs have a path of 744 links,
so a bulk loop calls all nodes 744 times where a few of them change.

`--delta-columns` compares the same two loops on columns. With `--bulk-supersteps 20,50` no bulk
loop has more than 50 supersteps: from a loop of 20 and one of 50 follows what each further one
costs, and a longer loop is not run, but calculated, which its row says. With `--only path`, only
graphs with that word in their row are used.

`--columns` computes components of a power-law graph on columns, with a message for each link, and
with one for each node that is told anything (`combine`), in turn.

`--python` computes components with Python for each node, in one task and in two, in turn: with a
record of kept state for each link, and a message along each; and with a list of the neighbours, and
the least label alone for each node (`combine`).

`--room` does the same with less and less memory for what the loop holds, so that more and more of
it goes to temporary files.

`--log` runs a bulk loop on a path that long several times in turn: without its log, with it, and
with a death at a random superstep, after which another try goes on.

`--tasks` runs both loops in one process and in two that exchange messages, in turn, by the clock:
messages that go round are the cost of an exchange, and a bulk loop is much Python for each node.
`--spark` does so in tasks of Spark, of which two are in a barrier stage.

`--microsteps` runs components in two tasks, in turn with an exchange after each superstep and with
microsteps: on a path whose nodes follow each other as their hashes do, so that one link leads to
the other task; on one whose nodes are anywhere; and on a graph of small diameter. With `--spark 1`
on a local Spark.
"""

from __future__ import annotations

import argparse
import random
import statistics
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from itertools import repeat
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from cbp import (
    DataflowBuilder,
    Input,
    Loopback,
    State,
    Translate,
    TranslateArrow,
    View,
)
from cbp.engine.columnar.key_hash import hash_columns
from cbp.engine.direct import DirectEngine, LocalEngine
from cbp.engine.storage.engine_limits import DEFAULT_LIMITS
from cbp.engine.storage.failpoints import NO_FAULTS, Faults
from cbp.engine.workers.worker_executor import WorkerExecutor
from cbp.model.flow.schema import Schema
from tests.driver import Driver
from tests.loops import ROUNDS, Bulk, Components, Round
from tests.planned_faults import Crash, PlannedFaults
from tests.stages import real_graphs
from tests.stages.real_graphs import Edges

PATH, LONG, LATTICE = 744, 300, 64
PLACE = tempfile.TemporaryDirectory()
NODE = Schema.parse("node BIGINT").fields[0].type
SHARED_OUT = replace(DEFAULT_LIMITS, rows_per_loop_task=1)


class OnTheirOwn(Components):
    """Components whose tasks go on alone."""

    news = replace(Components.news, microsteps=True)


class Listed(Translate):
    """Components; a node keeps a list of its neighbours, and is told the least label."""

    links = Input("src BIGINT, dst BIGINT", route_by="src")
    news = Loopback(
        "node BIGINT, label BIGINT", route_by="node", supersteps=1000, combine={"label": "min"}
    )
    near = State("src BIGINT, others ARRAY<BIGINT>")
    labels = View("src BIGINT, label BIGINT", key="src")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        """Take the least label; tell it along new links, and along all if it changed."""
        old = next((row.label for row in group.labels), None)
        label = min([key.src if old is None else old, *(one.label for one in group.news)])
        near: list[int] = next((row.others for row in group.near), [])
        new = [link.dst for link in group.links]
        out.news.many(zip(new if label == old else near + new, repeat(label)))
        out.near(key.src, near + new)
        out.labels(key.src, label)


class OnColumns(TranslateArrow):
    """Components on columns; nodes speak only if their label changed."""

    links = Input("src BIGINT, dst BIGINT", route_by="src")
    news = Loopback("node BIGINT, label BIGINT", route_by="node", supersteps=1000)
    near = State("src BIGINT, dst BIGINT")
    labels = View("src BIGINT, label BIGINT", key="src")

    def translate(self, groups: Any, out: Any) -> None:
        """Take the least label; tell it along new links, and along all if it changed."""
        keys = np.sort(groups.keys.column("src").to_numpy())
        label, old = keys.copy(), np.full(len(keys), -1)
        had, told = (
            [column.to_numpy() for column in table.columns]
            for table in (groups.labels, groups.news)
        )
        old[np.searchsorted(keys, had[0])] = had[1]
        for nodes, labels in (had, told):
            np.minimum.at(label, np.searchsorted(keys, nodes), labels)
        links = pa.concat_tables([groups.near, groups.links])
        at = np.searchsorted(keys, links.column("src").to_numpy())
        tells = (label != old)[at]
        tells[groups.near.num_rows :] = True
        out.near(links)
        out.labels({"src": keys, "label": label})
        out.news({"node": links.column("dst").to_numpy()[tells], "label": label[at][tells]})


class Combined(OnColumns):
    """The same; a node is told the least label."""

    news = Loopback(
        "node BIGINT, label BIGINT", route_by="node", supersteps=1000, combine={"label": "min"}
    )


class BulkOnColumns(OnColumns):
    """The same, but each node speaks to all of its neighbours in each superstep.

    Args:
        rounds: Supersteps until the last label is there.
    """

    news = Loopback(
        "node BIGINT, label BIGINT, left INT",
        route_by="node",
        supersteps=1000,
        combine={"label": "min"},
    )

    def __init__(self, rounds: int) -> None:
        self.rounds = rounds

    def translate(self, groups: Any, out: Any) -> None:
        """Take the least label, and tell it to all neighbours while rounds are left."""
        keys = np.sort(groups.keys.column("src").to_numpy())
        label = keys.copy()
        for table in (groups.labels, groups.news):
            nodes, labels = (table.column(at).to_numpy() for at in (0, 1))
            np.minimum.at(label, np.searchsorted(keys, nodes), labels)
        given = groups.news.column("left").to_numpy()
        left = given[0] - 1 if len(given) else self.rounds
        links = pa.concat_tables([groups.near, groups.links])
        out.near(links)
        out.labels({"src": keys, "label": label})
        if left > 0:
            said = label[np.searchsorted(keys, links.column("src").to_numpy())]
            node = links.column("dst")
            out.news({"node": node, "label": said, "left": np.full(len(said), left, np.int32)})


def on_columns(
    stage: TranslateArrow,
    edges: Edges,
    *,
    room: int = DEFAULT_LIMITS.whole_run_bytes,
    is_whole: bool = True,
) -> tuple[Mapping[str, float], float]:
    """Return the figures of a run over all edges, and the seconds of the processor.

    Args:
        stage: The loop.
        edges: The graph.
        room: See `EngineLimits.whole_run_bytes`.
        is_whole: Whether all supersteps are run, so that the labels are right.

    Raises:
        SystemExit: A label is wrong.
    """
    flow = DataflowBuilder("loop")
    schema = "src BIGINT, dst BIGINT"
    flow.stage("loop", stage, buckets=2, links=flow.source("given", schema))
    folder = Path(tempfile.mkdtemp(dir=PLACE.name))
    limits = replace(DEFAULT_LIMITS, whole_run_bytes=room)
    engine = LocalEngine(cache=f"{folder}/cache", limits=limits)
    driver = Driver(engine, flow.build(), folder / "tables")
    both = np.concatenate([edges, edges[:, ::-1]])
    driver.feed_table("given", pa.table([both[:, 0], both[:, 1]], names=["src", "dst"]))
    started = time.process_time()
    driver.run_until_idle()
    seconds = time.process_time() - started
    labels = {row["src"]: row["label"] for row in driver.state("loop", "labels")}
    nodes, right = real_graphs.labels(edges)
    if is_whole and labels != dict(zip(nodes.tolist(), right.tolist(), strict=True)):
        raise SystemExit("wrong labels")
    return driver.figures[-1], seconds


def delta_on_columns(nodes: int, timed_steps: list[int], only: str) -> None:
    """Print what a loop on columns gains that calls only what changed.

    Args:
        nodes: Of the largest graph.
        timed_steps: Two numbers of supersteps; no bulk loop has more. Empty: they have all.
        only: A text that the names of the graphs have.
    """
    print("| graph | supersteps | delta, s | bulk, s | bulk / delta |")
    print("| --- " * 5 + "|", flush=True)
    for name, edges in graphs(nodes).items():
        if only not in name:
            continue
        figures, delta = on_columns(Combined(), edges)
        steps, note = int(figures["supersteps"]), ""
        if timed_steps and steps > max(timed_steps):
            few, many = sorted(timed_steps)
            first, last = (
                on_columns(BulkOnColumns(n - 1), edges, is_whole=False)[1] for n in (few, many)
            )
            bulk = last + (steps - many) * (last - first) / (many - few)
            note = f" (calculated from {first:.1f} for {few} supersteps, {last:.1f} for {many})"
        else:
            _, bulk = on_columns(BulkOnColumns(steps), edges)
        cells = f"{delta:.2f} | {bulk:.2f}{note} | {bulk / delta:.1f}"
        print(f"| {name} | {steps} | {cells} |", flush=True)


def combiner_gains(edges: Edges, rounds: int) -> None:
    """Print what a loop costs with a message for each link, and with one for each node."""
    print("| messages | seconds of the processor | supersteps | messages that arrived |")
    print("| --- " * 4 + "|")
    for _ in range(rounds):
        for stage in (OnColumns(), Combined()):
            figures, seconds = on_columns(stage, edges)
            cells = [type(stage).__name__, f"{seconds:.2f}"]
            cells += [f"{figures[name]:,.0f}" for name in ("supersteps", "messages")]
            print("|", " | ".join(cells), "|", flush=True)


def room_costs(edges: Edges, rounds: int) -> None:
    """Print what a loop costs whose room is large, and where it is smaller than what it holds."""
    print("| bytes in memory | seconds of the processor |")
    print("| --- " * 2 + "|")
    for _ in range(rounds):
        for room in (DEFAULT_LIMITS.whole_run_bytes, 64 << 20, 16 << 20):
            _, seconds = on_columns(OnColumns(), edges, room=room)
            print(f"| {room:,} | {seconds:.2f} |", flush=True)


def graphs(nodes: int) -> dict[str, Edges]:
    """Return edges by what is special about them; `nodes`: of the largest graph."""
    small, large = (real_graphs.power_law(n, 4 * n) for n in (500, nodes))
    return {
        "500 nodes, small diameter": small,
        f"{nodes:,} nodes, small diameter": large,
        f"a lattice of {LATTICE} x {LATTICE}": lattice(LATTICE),
        f"500 nodes and a path of {PATH}": path_of(small, PATH),
        f"{nodes:,} nodes and a path of {PATH}": path_of(large, PATH),
    }


def lattice(side: int) -> Edges:
    """Return a square of nodes, in an order by chance, each linked to the next ones."""
    at = np.random.default_rng(5).permutation(side * side).reshape(side, side)
    across, down = (at[:, :-1], at[:, 1:]), (at[:-1], at[1:])
    return np.concatenate([np.stack([a.ravel(), b.ravel()], axis=1) for a, b in (across, down)])


def path_of(edges: Edges, links: int) -> Edges:
    """Return a graph with a path of so many links that leads away from it."""
    nodes = np.random.default_rng(5).permutation(np.arange(1_000_000, 1_000_000 + links))
    path = np.stack([np.append(edges[:1, 0], nodes[:-1]), nodes], axis=1)
    return np.concatenate([edges, path])


def run(
    stage: Translate,
    source: str,
    schema: str,
    rows: list[dict[str, int]],
    *,
    log_ms: int = DEFAULT_LIMITS.superstep_log_ms,
    dies: Faults = NO_FAULTS,
) -> tuple[Any, float]:
    """Return a driver after one run, and the seconds of the processor that this took.

    Args:
        stage: The loop.
        source: Its input.
        schema: Of the input.
        rows: What the run reads.
        log_ms: See `EngineLimits.superstep_log_ms`.
        dies: Where the first try dies; the seconds are those of both.
    """
    flow = DataflowBuilder("loop")
    flow.stage("loop", stage, buckets=2, **{source: flow.source("given", schema)})
    folder = Path(tempfile.mkdtemp(dir=PLACE.name))
    limits = replace(DEFAULT_LIMITS, superstep_log_ms=log_ms)
    engine = LocalEngine(cache=f"{folder}/cache", limits=limits, faults=dies)
    driver = Driver(engine, flow.build(), folder / "tables")
    driver.feed("given", rows)
    started = time.process_time()
    with suppress(Crash):
        driver.run_until_idle()
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


def log_costs(rounds: int) -> None:
    """Print what the log of a long loop costs, and what a death costs with it."""
    edges = path_of(real_graphs.power_law(300, 1_200), LONG)
    both = np.concatenate([edges, edges[:, ::-1]])
    rows = [{"src": src, "dst": dst} for src, dst in both.tolist()]
    given = "links", "src BIGINT, dst BIGINT", rows
    drawn = random.Random(3)
    plain, logged, died, shares = list[float](), list[float](), list[float](), list[float]()
    for _ in range(rounds):
        driver, seconds = run(Bulk(LONG + 6), *given, log_ms=3_600_000)
        steps = int(driver.figures[-1]["supersteps"])
        plain.append(seconds)
        driver, seconds = run(Bulk(LONG + 6), *given)
        logged.append(seconds)
        shares.append(driver.figures[-1]["seconds_superstep_log"] / seconds)
        passage = drawn.randrange(steps // 4, steps)
        driver, seconds = run(
            Bulk(LONG + 6), *given, dies=PlannedFaults("superstep.after", passage=passage)
        )
        died.append(seconds)
        before = int(driver.figures[-1]["supersteps_before"])
        print(f"of {steps} supersteps: died after {passage}, went on after {before}", flush=True)
    print("| loop | seconds of the processor | of that without a log |")
    print("| --- " * 3 + "|")
    least = statistics.median(plain)
    for name, many in (("without a log", plain), ("logged", logged), ("and killed once", died)):
        median = statistics.median(many)
        print(f"| {name} | {median:.2f} ({min(many):.2f} to {max(many):.2f}) |", end=" ")
        print(f"{median / least:.3f} |")
    print(f"writing the log took {100 * statistics.median(shares):.1f} % of the loop's time")


def timed(
    engine: DirectEngine,
    stage: Translate,
    source: str,
    schema: str,
    rows: Any,
    tasks: int,
    labels: Mapping[int, int] | None = None,
) -> tuple[float, Mapping[str, float]]:
    """Return the seconds of a run by the clock, and its figures.

    Args:
        labels: What the state `labels` must be; `None`: it is not looked at.
    """
    flow = DataflowBuilder("loop")
    flow.stage("loop", stage, buckets=4, **{source: flow.source("given", schema)})
    driver = Driver(engine, flow.build(), Path(tempfile.mkdtemp(dir=PLACE.name)))
    driver.slots_max = tasks
    driver.feed("given", rows)
    started = time.perf_counter()
    driver.run_until_idle()
    seconds = time.perf_counter() - started
    (figures,) = driver.figures
    assert figures["tasks"] == tasks, figures
    if labels is not None:
        found = {row["src"]: row["label"] for row in driver.state("loop", "labels")}
        assert found == labels, "wrong labels"
    return seconds, figures


def microsteps_gain(engine: DirectEngine, rounds: int) -> None:
    """Print what two tasks gain that go on alone until they have no message; closes the engine."""
    order = np.argsort(hash_columns([pa.array(np.arange(PATH))], [NODE]).view(np.uint64))
    anywhere = np.random.default_rng(5).permutation(PATH)
    given = {
        f"a path of {PATH}, neighbours together": np.stack([order[:-1], order[1:]], axis=1),
        f"a path of {PATH}, nodes anywhere": np.stack([anywhere[:-1], anywhere[1:]], axis=1),
        "4,000 nodes, small diameter": real_graphs.power_law(4_000, 16_000),
    }
    print("| graph | exchanged | supersteps | microsteps | groups called | seconds |")
    print("| --- " * 6 + "|", flush=True)
    took: dict[tuple[str, str], list[float]] = {}
    for number in range(rounds + 1):  # in the first, processes start, and import what they need
        for name, edges in given.items():
            both = np.concatenate([edges, edges[:, ::-1]])
            rows = [{"src": src, "dst": dst} for src, dst in both.tolist()]
            for how, stage in (("each superstep", Components()), ("when at rest", OnTheirOwn())):
                seconds, figures = timed(engine, stage, "links", "src BIGINT, dst BIGINT", rows, 2)
                if number:
                    took.setdefault((name, how), []).append(seconds)
                    counts = (figures.get(n, 0) for n in ("supersteps", "microsteps", "groups"))
                    cells = [name, how, *(f"{one:,.0f}" for one in counts), f"{seconds:.2f}"]
                    print("|", " | ".join(cells), "|", flush=True)
    for (name, how), many in took.items():
        print(f"| median: {name} | {how} | {statistics.median(many):.2f} |")
    engine.close()


def in_workers() -> DirectEngine:
    """Return an engine whose loops have two workers."""
    cache, workers = tempfile.mkdtemp(dir=PLACE.name), WorkerExecutor(free_max=2, loop_tasks_max=2)
    return LocalEngine(cache=cache, executor=workers, limits=SHARED_OUT)


def on_spark() -> DirectEngine:
    """Return an engine whose loops have two tasks of a local Spark."""
    from cbp.engine.spark import SparkEngine, SparkSettings

    settings = SparkSettings(master="local[2]", app_name="cbp-bench", loop_tasks_max=2)
    return SparkEngine(settings, cache=tempfile.mkdtemp(dir=PLACE.name), limits=SHARED_OUT)


def in_python(edges: Edges, rounds: int) -> None:
    """Print the seconds of components in Python for each node, by the clock; closes its engine."""
    both = np.concatenate([edges, edges[:, ::-1]])
    links = [{"src": src, "dst": dst} for src, dst in both.tolist()]
    nodes, right = real_graphs.labels(edges)
    labels = dict(zip(nodes.tolist(), right.tolist(), strict=True))
    engine = in_workers()
    print("| neighbours | tasks | seconds | supersteps |")
    print("| --- " * 4 + "|", flush=True)
    for _ in range(rounds):
        for tasks in (1, 2):
            for name, stage in (("records", Components()), ("a list", Listed())):
                given = "links", "src BIGINT, dst BIGINT", links, tasks, labels
                seconds, figures = timed(engine, stage, *given)
                cells = f"{seconds:.2f} | {figures['supersteps']:.0f}"
                print(f"| {name} | {tasks} | {cells} |", flush=True)
    engine.close()


def in_tasks(engine: DirectEngine, rounds: int) -> None:
    """Print what an exchange costs, and what a second task gains; closes the engine."""
    edges = real_graphs.power_law(4_000, 16_000)
    both = np.concatenate([edges, edges[:, ::-1]])
    links = [{"src": src, "dst": dst} for src, dst in both.tolist()]
    empty, heavy = "k BIGINT, n BIGINT", "src BIGINT, dst BIGINT"
    print("| tasks | a run of two supersteps, s | one more, ms | a bulk loop of 20 rounds, s |")
    print("| --- " * 4 + "|", flush=True)
    took: dict[int, list[list[float]]] = {tasks: [[], [], []] for tasks in (1, 2)}
    for tasks in took:  # processes start, and import what they need
        timed(engine, Round(), "starts", empty, [{"k": k, "n": 1} for k in range(2)], tasks)
    for _ in range(rounds):
        for tasks, (runs, supersteps, loops) in took.items():
            given = {n: [{"k": k, "n": n} for k in range(2)] for n in (1, ROUNDS - 1)}
            few, _ = timed(engine, Round(), "starts", empty, given[1], tasks)
            many, _ = timed(engine, Round(), "starts", empty, given[ROUNDS - 1], tasks)
            runs.append(few)
            supersteps.append((many - few) / (ROUNDS - 2) * 1e3)
            loops.append(timed(engine, Bulk(20), "links", heavy, links, tasks)[0])
            print("|", tasks, *(f"| {one[-1]:.2f}" for one in took[tasks]), "|", flush=True)
    for tasks, columns in took.items():
        print("| median,", tasks, *(f"| {statistics.median(one):.2f}" for one in columns), "|")
    engine.close()


def main() -> None:
    """Print the cost of a superstep, and a row for each graph; or what a log costs."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    for way in (
        "--log",
        "--columns",
        "--python",
        "--room",
        "--tasks",
        "--spark",
        "--microsteps",
    ):
        parser.add_argument(way, type=int, default=0, metavar="ROUNDS", help="see above")
    parser.add_argument("--delta-columns", type=int, default=0, metavar="NODES", help="see above")
    parser.add_argument("--bulk-supersteps", default="", metavar="FEW,MANY", help="see above")
    parser.add_argument("--only", default="", metavar="WORD", help="see above")
    parser.add_argument("--delta", type=int, default=4_000, metavar="NODES", help="see above")
    parser.add_argument("--nodes", type=int, default=100_000, help="of the graph on columns")
    parser.add_argument("--edges", type=int, default=1_000_000, help="of the graph on columns")
    chosen = parser.parse_args()
    if chosen.delta_columns:
        steps = chosen.bulk_supersteps
        timed_steps = [int(n) for n in steps.split(",") if n]
        delta_on_columns(chosen.delta_columns, timed_steps, chosen.only)
        return
    if chosen.log:
        log_costs(chosen.log)
        return
    if chosen.microsteps:
        microsteps_gain(on_spark() if chosen.spark else in_workers(), chosen.microsteps)
        return
    if chosen.tasks or chosen.spark:
        in_tasks(on_spark() if chosen.spark else in_workers(), chosen.tasks or chosen.spark)
        return
    if chosen.columns or chosen.python or chosen.room:
        edges = real_graphs.power_law(chosen.nodes, chosen.edges)
        if chosen.python:
            in_python(edges, chosen.python)
        elif chosen.columns:
            combiner_gains(edges, chosen.columns)
        else:
            room_costs(edges, chosen.room)
        return
    _, few = run(Round(), "starts", "k BIGINT, n BIGINT", [{"k": 1, "n": 1}])
    _, many = run(Round(), "starts", "k BIGINT, n BIGINT", [{"k": 1, "n": ROUNDS - 1}])
    print(f"a superstep of one message: {(many - few) / (ROUNDS - 2) * 1e3:.2f} ms")
    print("| graph | supersteps | delta, s | bulk, s | bulk / delta |")
    print("| --- " * 5 + "|")
    for name, edges in graphs(chosen.delta).items():
        delta, steps = components(Components(), edges)
        bulk, _ = components(Bulk(steps), edges)
        print(f"| {name} | {steps} | {delta:.2f} | {bulk:.2f} | {bulk / delta:.1f} |", flush=True)


if __name__ == "__main__":
    main()
