"""The sizes of all figures: small ones for tests, and those of the table."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["FULL", "SMALL", "Sizes"]


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured.

    Attributes:
        keys: URLs, and customers, that are known at first.
        records: Sightings, and orders, of a round.
        rounds, warmup: Measured rounds, and those before them.
        epochs: Epochs behind the table that is read; each has `records` sightings.
        read_rounds: How often each reader is asked.
        kept_rows: Rows of the key that gets one more.
        kept_rounds: How many rows it gets, or replaces.
        pending: Numbers of pending timers that are compared.
        due: Timers that are due in a round.
        timer_rounds: Rounds of due timers.
        crawl_keys: URLs of the crawl queue.
        crawl_records: Pages of an increment of the crawl queue.
        crawl_rounds: Increments of the crawl queue.
    """

    keys: int
    records: int
    rounds: int
    warmup: int
    epochs: int
    read_rounds: int
    kept_rows: int
    kept_rounds: int
    pending: tuple[int, int]
    due: int
    timer_rounds: int
    crawl_keys: int
    crawl_records: int
    crawl_rounds: int


SMALL = Sizes(
    keys=2_000,
    records=200,
    rounds=2,
    warmup=1,
    epochs=12,
    read_rounds=1,
    kept_rows=500,
    kept_rounds=4,
    pending=(50, 500),
    due=20,
    timer_rounds=2,
    crawl_keys=2_000,
    crawl_records=50,
    crawl_rounds=2,
)
FULL = Sizes(
    keys=10_000_000,
    records=10_000,
    rounds=7,
    warmup=2,
    epochs=2_000,
    read_rounds=3,
    kept_rows=100_000,
    kept_rounds=40,
    pending=(1_000, 1_000_000),
    due=1_000,
    timer_rounds=10,
    crawl_keys=1_000_000,
    crawl_records=10_000,
    crawl_rounds=10,
)
