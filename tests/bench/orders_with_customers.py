"""What a look-up costs beside URL count: orders with their customers, both in turn in one process.

    python -m tests.bench.orders_with_customers --keys 1000000 --records 10000 --rounds 11

URL count looks up, changes and writes a count of each URL. Orders look up a record of each
customer in another stage's view of as many keys, and write the order with it. A figure is the
median over the rounds of the processor's seconds in a run's tasks, and in brackets of a whole run
with its publication.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cbp import DataflowBuilder
from cbp.model.dataflow.dataflow import Dataflow
from stages.translators.latest import Latest
from stages.translators.orders_with_customers import OrdersWithCustomers
from stages.translators.url_count import UrlCount
from tests.bench.in_turn import Loaded, medians, rounds_in_turn, task_seconds, url

CUSTOMERS = "customer STRING, name STRING, country STRING"

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


def customer(number: int) -> Row:
    """Return a customer."""
    return {"customer": url(number)["url"], "name": f"name {number}", "country": "de"}


def order(number: int) -> Row:
    """Return an order of a customer."""
    return {"order": number, "customer": url(number)["url"], "total": 9.5}


class Candidate(Loaded):
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
        super().__init__(dataflow, folder, "known", keys, known)
        self.source, self.make = source

    def round(self, numbers: list[int]) -> float:
        """Run an increment; return seconds of the processor in the run."""
        return self.timed(self.source, [self.make(number) for number in numbers])


def measure(keys: int, records: int, rounds: int) -> None:
    """Print both candidates' seconds, and their ratio."""
    with tempfile.TemporaryDirectory() as folder, task_seconds() as spent:
        candidates = (
            Candidate(count(), Path(folder) / "count", keys, url, ("known", url)),
            Candidate(shop(), Path(folder) / "shop", keys, customer, ("orders", order)),
        )
        times = rounds_in_turn(candidates, spent, keys=keys, records=records, rounds=rounds)
    (counted, counted_whole), (joined, joined_whole) = map(medians, times)
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
