"""What a look-up costs beside URL count: orders with their customers, both in turn in one process.

    python -m tests.bench.orders_with_customers --keys 1000000 --records 10000 --rounds 11

URL count looks up, changes and writes a count of each URL. Orders look up a record of each
customer in another stage's view of as many keys, and write the order with it. A figure is the
median over the rounds of the processor's seconds in a run's tasks, and in brackets of a whole run
with its publication.
"""

from __future__ import annotations

import argparse
import random
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

from cbp import DataflowBuilder
from cbp.engine.direct import LocalEngine
from cbp.engine.task.stage_task import StageTask
from cbp.model.dataflow.dataflow import Dataflow
from stages.translators.latest import Latest
from stages.translators.orders_with_customers import OrdersWithCustomers
from stages.translators.url_count import UrlCount
from tests.driver import Driver

CUSTOMERS = "customer STRING, name STRING, country STRING"
AT_A_TIME = 250_000

Row = dict[str, Any]


def count() -> Dataflow:
    """Return URL count."""
    flow = DataflowBuilder("count")
    flow.stage("count", UrlCount(), urls=flow.source("known", "url STRING"))
    return flow.build()


def shop() -> Dataflow:
    """Return orders that look up customers."""
    flow = DataflowBuilder("shop")
    rows = flow.source("known", CUSTOMERS)
    customers = flow.stage("keep", Latest(CUSTOMERS, "customer"), rows=rows)
    orders = flow.source("orders", "order BIGINT, customer STRING, total DOUBLE")
    flow.stage("with", OrdersWithCustomers(), orders=orders, customers=customers.latest)
    return flow.build()


def key(number: int) -> str:
    """Return the key of a URL, or of a customer."""
    return f"https://example.org/pages/{number:012d}"


def url(number: int) -> Row:
    """Return one sighting of a URL."""
    return {"url": key(number)}


def customer(number: int) -> Row:
    """Return a customer."""
    return {"customer": key(number), "name": f"name {number}", "country": "de"}


def order(number: int) -> Row:
    """Return an order of a customer."""
    return {"order": number, "customer": key(number), "total": 9.5}


class Candidate:
    """One dataflow on its own tables, which know all keys.

    Args:
        known: Makes a record of a key for the table that is looked up.
        source: The source of each round, and what makes its records.
    """

    def __init__(
        self,
        dataflow: Dataflow,
        folder: Path,
        keys: int,
        known: Callable[[int], Row],
        source: tuple[str, Callable[[int], Row]],
    ) -> None:
        self.source, self.make = source
        self.driver = Driver(LocalEngine(cache=f"{folder}/cache"), dataflow, folder / "tables")
        for first in range(0, keys, AT_A_TIME):
            self.driver.feed(
                "known", [known(n) for n in range(first, min(first + AT_A_TIME, keys))]
            )
            self.driver.run_until_idle()

    def round(self, numbers: list[int]) -> float:
        """Run an increment; return seconds of the processor in the run."""
        self.driver.feed(self.source, [self.make(number) for number in numbers])
        started = time.process_time()
        self.driver.run_until_idle()
        return time.process_time() - started


def measure(keys: int, records: int, rounds: int) -> None:
    """Print both candidates' seconds, and their ratio."""
    spent: list[float] = []
    run = StageTask.run_arranged

    def watched(task: StageTask) -> Any:
        started = time.process_time()
        try:
            return run(task)
        finally:
            spent.append(time.process_time() - started)

    dice = random.Random(1)
    times: tuple[list[tuple[float, float]], list[tuple[float, float]]] = ([], [])
    with tempfile.TemporaryDirectory() as folder, patch.object(StageTask, "run_arranged", watched):
        candidates = (
            Candidate(count(), Path(folder) / "count", keys, url, ("known", url)),
            Candidate(shop(), Path(folder) / "shop", keys, customer, ("orders", order)),
        )
        for number in range(rounds + 2):
            numbers = [dice.randrange(keys) for _ in range(records)]
            for each, mine in zip(candidates, times, strict=True):
                spent.clear()
                whole = each.round(numbers)
                if number > 1:
                    mine.append((sum(spent), whole))
    (counted, counted_whole), (joined, joined_whole) = (
        (statistics.median(task for task, _ in mine), statistics.median(all_ for _, all_ in mine))
        for mine in times
    )
    print(
        f"| {keys:,} | {counted:.3f} ({counted_whole:.3f}) | {joined:.3f} ({joined_whole:.3f}) | "
        f"{joined / counted:.2f} ({joined_whole / counted_whole:.2f}) |",
        flush=True,
    )


def main() -> None:
    """Print one line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--records", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=11)
    options = parser.parse_args()
    print("| keys | URL count, s | orders with customers, s | ratio |")
    print("| --- | --- | --- | --- |")
    measure(options.keys, options.records, options.rounds)


if __name__ == "__main__":
    main()
