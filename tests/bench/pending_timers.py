"""What a run for due timers costs, by the timers that are pending.

    python -m tests.bench.pending_timers --pending 1000,1000000 --due 1000 --rounds 10

The candidates are run in turn in one process, on tables of their own. In each round some timers
come due, the same number for all, and no input waits; their groups are called and emit a record.
A figure is the median of the milliseconds that the processor works in the task, and in brackets in
the whole run with its publication. The last line is a run of one record before any timer is due.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cbp import DataflowBuilder, Input, Output, Timers, Translate
from cbp.engine.direct import LocalEngine
from cbp.model.dataflow.run_context import time_of
from tests.bench.in_turn import task_seconds
from tests.driver import Driver

BEGIN_MS = 1_800_000_000_000
ROUND_MS = 60_000
FAR_MS = BEGIN_MS + 10_000 * ROUND_MS
LOADED_AT_ONCE = 200_000


class Expire(Translate):
    """Sets a timer for each order, and emits a record when it has passed."""

    orders = Input("id BIGINT, at_ms BIGINT", route_by="id")
    wake = Timers()
    gone = Output("id BIGINT")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        """Set the timer of an order that came; tell of one that is due."""
        came = False
        for order in group.orders:
            came = True
            out.wake(id=key.id, at=time_of(order.at_ms))
        if not came:
            out.gone(id=key.id)


class Candidate:
    """One number of pending timers, on its own tables."""

    def __init__(self, folder: Path, pending: int, due: int, rounds: int) -> None:
        builder = DataflowBuilder("timers")
        orders = builder.source("orders", "id BIGINT, at_ms BIGINT")
        builder.stage("stage", Expire(), orders=orders, buckets=8)
        engine = LocalEngine(cache=f"{folder}/cache")
        self.driver = Driver(engine, builder.build(), folder / "tables")
        self.driver.time_ms, self.due = BEGIN_MS, due
        times = [BEGIN_MS + (1 + n // due) * ROUND_MS for n in range(due * rounds)]
        times += [FAR_MS] * pending
        for first in range(0, len(times), LOADED_AT_ONCE):
            part = enumerate(times[first : first + LOADED_AT_ONCE], first)
            self._order({"id": number, "at_ms": at_ms} for number, at_ms in part)
        self._orders = len(times)

    def _order(self, orders: Iterator[dict[str, Any]]) -> None:
        self.driver.feed("orders", list(orders))
        self.driver.run_until_idle()

    def wake(self) -> float:
        """Let the timers of the next round come due; return milliseconds of the run."""
        self.driver.time_ms += ROUND_MS
        started = time.process_time()
        assert self.driver.run("stage")
        spent = 1000 * (time.process_time() - started)
        assert self.driver.figures[-1]["groups"] == self.due
        return spent

    def check(self, round_: int) -> None:
        """Require that the latest run emitted all orders that were due, and no others."""
        gone = self.driver.outputs("stage.gone")[-1]
        due = range(round_ * self.due, (round_ + 1) * self.due)
        assert sorted(record["id"] for record in gone) == list(due)

    def order(self) -> float:
        """Let one record come; return milliseconds of the run."""
        self._orders += 1
        started = time.process_time()
        self._order(iter([{"id": self._orders, "at_ms": FAR_MS}]))
        assert self.driver.figures[-1]["groups"] == 1
        return 1000 * (time.process_time() - started)


@dataclass
class Times:
    """Milliseconds of the rounds with one number of pending timers.

    Attributes:
        due: Of runs for due timers: in the task, and in the whole run.
        record: Of the tasks of runs of one record.
    """

    due: list[tuple[float, float]] = field(default_factory=list)
    record: list[float] = field(default_factory=list)


def measured(every: list[int], due: int, rounds: int, warmup: int) -> list[Times]:
    """Return the times for each number of pending timers.

    Each run must call the groups whose timers are due, and those alone.
    """
    with tempfile.TemporaryDirectory() as folder, task_seconds() as spent:
        candidates = [
            Candidate(Path(folder) / f"{pending}", pending, due, rounds + warmup)
            for pending in every
        ]
        times = [Times() for _ in candidates]
        for number in range(rounds + warmup):
            for mine, candidate in zip(times, candidates, strict=True):
                spent.clear()
                whole = candidate.wake()
                woken = 1000 * sum(spent.values())
                candidate.check(number)
                spent.clear()
                candidate.order()
                if number >= warmup:
                    mine.due.append((woken, whole))
                    mine.record.append(1000 * sum(spent.values()))
    return times


def measure(every: list[int], due: int, rounds: int, warmup: int) -> Iterator[str]:
    """Yield a row for each number of pending timers."""
    for pending, mine in zip(every, measured(every, due, rounds, warmup), strict=True):
        task, whole = (statistics.median(one) for one in zip(*mine.due, strict=True))
        yield f"| {pending:,} | {task:.1f} ({whole:.1f}) | {statistics.median(mine.record):.1f} |"


def main() -> None:
    """Print a row for each number of pending timers."""
    parser = argparse.ArgumentParser(description="What a run for due timers costs.")
    parser.add_argument("--pending", default="1000,1000000")
    parser.add_argument("--due", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--warmup", type=int, default=2)
    asked = parser.parse_args()
    print("| pending | due, ms of the task (of the run) | one record, ms |")
    print("| --- | --- | --- |")
    every = [int(one) for one in asked.pending.split(",")]
    for row in measure(every, asked.due, asked.rounds, asked.warmup):
        print(row)


if __name__ == "__main__":
    main()
