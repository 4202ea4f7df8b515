"""The figures, one function each: they make the candidates, let them run, and give the lines."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import polars as pl
from rich.console import Console

from cbp.model.flow.schema import Schema
from tests.bench import BenchOptions, kept_groups, pending_timers, run_bench
from tests.bench.comparison.digests import digest_of
from tests.bench.figures import reading
from tests.bench.figures.contest import Samples, contest, loaded
from tests.bench.figures.entrant import Candidate, Entrant
from tests.bench.figures.lines import Line, line_of
from tests.bench.figures.ours import (
    BLOCK,
    CountCandidate,
    History,
    OrdersCandidate,
    Place,
    plain,
    plain_file_of_history,
    tables_of_history,
)
from tests.bench.figures.peers import DuckdbOrders, PolarsOrders, SparkMerge, StreamingOrders
from tests.bench.figures.records import Counts, Digest, Draws, digest
from tests.bench.figures.sizes import Sizes
from tests.bench.options import CRAWL_QUEUE, NO_SPARK

__all__ = ["FIGURES", "Call"]


@dataclass(frozen=True)
class Call:
    """What all figures of a call share.

    Attributes:
        folder: For all files; what a figure wrote is removed after it.
        spark: Whether peers on Spark take part.
        own_process: Whether each candidate has a process of its own.
        more: Whether forms that were tried, and are slower, take part too.
        tell: Is called with each step.
    """

    sizes: Sizes
    folder: Path
    spark: bool
    own_process: bool
    more: bool
    tell: Callable[[str], None]

    def place(self, name: str) -> Place:
        """Return the place of a candidate."""
        draws = Draws(self.sizes.keys, self.sizes.records)
        folder = self.folder / name
        return Place(folder, self.folder / "shared", self.folder / "arrivals", draws)

    def entrant(
        self, label: str, kind: str, make: Callable[[], Candidate], *, fresh: bool = False
    ) -> Entrant:
        """Return an entrant."""
        return Entrant(label, kind, make, own_process=self.own_process, fresh=fresh)


_CRAWLERS = {"blackbox": "our translator, state shuffled and rewritten"}
_COUNT, _ORDERS, _HISTORY = "urls", "orders", "history"
_PEERS: dict[str, Callable[[Place], Candidate]] = {
    "polars-append": PolarsOrders,
    "polars-memory": partial(PolarsOrders, memory=True),
    "duckdb": DuckdbOrders,
}
_ON_SPARK: dict[str, Callable[[Place], Candidate]] = {
    "spark-merge": SparkMerge,
    "streaming": StreamingOrders,
}
_MORE: dict[str, Callable[[Place], Candidate]] = {
    "polars-merge": partial(PolarsOrders, write="merge"),
}
_MORE_ON_SPARK: dict[str, Callable[[Place], Candidate]] = {
    "streaming-bucketed": partial(StreamingOrders, form="bucketed"),
    "streaming-available-now": partial(StreamingOrders, form="available-now"),
}


def views_and_orders(call: Call) -> Iterator[Line]:
    """Measure URL count with and without a view, and orders with customers, all in turn."""
    sizes, draws = call.sizes, call.place("").draws
    call.place("").write_arrivals(sizes.warmup + sizes.rounds)
    entrants = [*_ours(call), *_peers(call)]
    truth = Counts(draws)

    def expected(round_: int) -> Mapping[str, Digest]:
        changed = truth.of(truth.add(round_))
        return {_COUNT: digest(changed), _ORDERS: digest(draws.enriched(round_))}

    with loaded(entrants, call.tell):
        samples = contest(
            entrants, expected, rounds=sizes.rounds, warmup=sizes.warmup, tell=call.tell
        )
    yield from _lines_of_counts(samples)
    yield from _lines_of_orders(samples, [e.label for e in entrants if e.kind == _ORDERS])


def _ours(call: Call) -> Iterator[Entrant]:
    for form in ("groupwise", "arrow"):
        for view in (False, True):
            label = f"{form}-{'view' if view else 'output'}"
            make = partial(CountCandidate, call.place(label), form, view=view)
            yield call.entrant(label, _COUNT, make)
    yield call.entrant("orders", _ORDERS, partial(OrdersCandidate, call.place("orders")))


def _peers(call: Call) -> Iterator[Entrant]:
    peers = {**_PEERS, **(_MORE if call.more else {})}
    if call.spark:
        peers |= {**_ON_SPARK, **(_MORE_ON_SPARK if call.more else {})}
    for label, make in peers.items():
        yield call.entrant(label, _ORDERS, partial(make, call.place(label)))


def _lines_of_counts(samples: Mapping[str, Samples]) -> Iterator[Line]:
    for form in ("groupwise", "arrow"):
        figure = f"URL count, {form}"
        output, view = samples[f"{form}-output"], samples[f"{form}-view"]
        yield line_of(figure, "state and output", output)
        yield line_of(figure, "view", view, to=output, of="x output", goal="at most 1.3")


def _lines_of_orders(samples: Mapping[str, Samples], labels: list[str]) -> Iterator[Line]:
    figure, count, ours = "orders with customers", samples["groupwise-output"], samples["orders"]
    for label in labels:
        mine = samples[label]
        if label == "orders":
            goal = "at most 1.5"
            yield line_of(figure, "ours, look-up", mine, to=count, of="x URL count", goal=goal)
        else:
            yield line_of(figure, label, mine, to=ours, of="x ours")


def current_results(call: Call) -> Iterator[Line]:
    """Measure reading a view's table, and the last record per key of a log of the same."""
    place, truth = call.place("history"), Counts(call.place("").draws)
    place.arrivals.mkdir(parents=True, exist_ok=True)
    epochs = call.sizes.epochs - 1
    history = call.entrant("history", _HISTORY, partial(History, place, epochs))
    with loaded([history], call.tell):
        for block in range(-(-epochs // BLOCK)):
            spent = history.run(block)[0].seconds
            call.tell(f"block {block} of {BLOCK} epochs: {spent:.1f} s")
    for epoch in range(epochs):
        truth.add(epoch)
    everything = truth.all()
    shuffled = everything.select("url", "n").sample(fraction=1.0, shuffle=True, seed=0)
    shuffled.write_parquet(plain_file_of_history(place))
    for question in reading.QUESTIONS:
        yield from _read(call, place, question, _right(everything, question))


def _right(everything: pl.DataFrame, question: str) -> Mapping[str, Digest]:
    """Return the right answers of readers, and of Spark."""
    if question == "top":
        top = digest(everything.sort("n", "url", descending=[True, False]).head(10))
        return {_HISTORY: top, "spark": top}
    fields = Schema.parse("url STRING, n BIGINT").fields
    of_spark = digest_of(plain(everything).to_batches(max_chunksize=1 << 20), fields)
    by_spark = Digest(of_spark.rows, of_spark.n, of_spark.hashes)
    return {_HISTORY: digest(everything), "spark": by_spark}


def _read(call: Call, place: Place, question: str, right: Mapping[str, Digest]) -> Iterator[Line]:
    files = (*tables_of_history(place), plain_file_of_history(place))
    paths = dict(zip(reading.KINDS, files, strict=True))
    # The top ten of Spark would take a minute a round, and show the same.
    with_spark = call.spark and (question == "all" or call.more)
    readers = (*reading.READERS, *(reading.WITH_SPARK if with_spark else ()))
    entrants = []
    for reader in readers:
        for table, path in paths.items():
            label = f"{reader}, {table}"
            make = partial(reading.reader_of, reader, path, kind=table, question=question)
            in_spark = reader in reading.WITH_SPARK
            kind = "spark" if in_spark else _HISTORY
            entrants.append(call.entrant(label, kind, make, fresh=not in_spark))
    with loaded(entrants, call.tell):
        samples = contest(
            entrants, lambda round_: right, rounds=call.sizes.read_rounds, warmup=0, tell=call.tell
        )
    figure = {"all": "current result, all of it", "top": "current result, top ten"}[question]
    for reader in readers:
        of_view, of_log, of_plain = (samples[f"{reader}, {kind}"] for kind in reading.KINDS)
        yield line_of(figure, f"{reader}, plain Parquet of the same records", of_plain)
        yield line_of(figure, f"{reader}, view", of_view, to=of_plain, of="x plain")
        last = f"{reader}, last per key of the log"
        yield line_of(figure, last, of_log, to=of_view, of="x view", goal="20")


def one_more_row(call: Call) -> Iterator[Line]:
    """Measure one more row of a key with many: emitted again, kept, and a key of one row."""
    sizes = call.sizes
    figure = f"one more row of a key with {sizes.kept_rows:,}, task"
    call.tell(figure)
    times = kept_groups.measure(sizes.kept_rows, 1, sizes.kept_rounds, warmup=3)
    for name, mine in zip(("emitted again", "kept", "a key of one row"), times, strict=True):
        goal = "0.002 s" if name == "kept" else ""
        yield _line_of_tasks(figure, name, mine, goal=goal)


def due_timers(call: Call) -> Iterator[Line]:
    """Measure a run for due timers, with few and with many pending."""
    sizes = call.sizes
    figure = f"{sizes.due:,} due timers, run"
    call.tell(figure)
    few, many = pending_timers.measured(
        list(sizes.pending), sizes.due, sizes.timer_rounds, warmup=2
    )
    yield _line_of_tasks(figure, f"{sizes.pending[0]:,} pending", few.due)
    ratio = _median(many.due) / _median(few.due)
    yield _line_of_tasks(
        figure, f"{sizes.pending[1]:,} pending", many.due, ratio=ratio, of="x few", goal="1"
    )


def crawl_queue(call: Call) -> Iterator[Line]:
    """Measure the crawl queue from empty, over all increments, against the black box.

    Groups are inner in all: the black box reads and writes all state, and calls what is named.
    """
    sizes = call.sizes
    results = run_bench(
        BenchOptions(
            workload=CRAWL_QUEUE,
            against=("blackbox",),
            forms=("kept", "groupwise") if call.more else ("kept",),
            state_keys=(sizes.crawl_keys,),
            increment=(sizes.crawl_records,),
            from_empty=True,
            rounds=(sizes.crawl_rounds,),
            warmup=(0,),
            candidate_seconds=0.0,
            driver_memory="3g",
            isolated=call.own_process,
            master="local[2]" if call.spark else NO_SPARK,
            root=call.folder,
        ),
        console=Console(stderr=True, highlight=False, width=260),
    )
    box = next(one for one in results if one.candidate == "blackbox")
    whole, work = sum(box.seconds_all), sum(box.cpu_seconds_all or ())
    figure = f"crawl queue, sum of {sizes.crawl_rounds} increments"
    for one in results:
        mine, busy = sum(one.seconds_all), sum(one.cpu_seconds_all or ())
        yield Line(
            figure,
            _CRAWLERS.get(one.candidate, f"ours, {one.form}"),
            mine,
            min(one.seconds_all),
            max(one.seconds_all),
            len(one.seconds_all),
            busy or None,
            ratio=None if one is box else 100 * (1 - mine / whole),
            cpu_ratio=None if one is box or not work else 100 * (1 - busy / work),
            of="% less",
            goal="80 % less" if one.form == "kept" else "",
        )


def _median(times: Sequence[tuple[float, float]]) -> float:
    return statistics.median(elapsed for _, elapsed in times)


def _line_of_tasks(
    figure: str,
    name: str,
    times: Sequence[tuple[float, float]],
    *,
    ratio: float | None = None,
    of: str = "",
    goal: str = "",
) -> Line:
    """Return the line of tasks, from pairs of milliseconds: of the processor, and elapsed."""
    busy, elapsed = ([one / 1000 for one in each] for each in zip(*times, strict=True))
    median = statistics.median
    return Line(
        figure,
        name,
        median(elapsed),
        min(elapsed),
        max(elapsed),
        len(elapsed),
        median(busy),
        ratio=ratio,
        of=of,
        goal=goal,
    )


FIGURES: Mapping[str, Callable[[Call], Iterator[Line]]] = {
    "increments": views_and_orders,
    "reading": current_results,
    "kept": one_more_row,
    "timers": due_timers,
    "crawl": crawl_queue,
}
"""Name of a part of the table to what measures it."""
