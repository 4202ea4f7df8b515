"""The seeded records of the figures: keys, sightings, customers and orders; and digests of tables.

The same seed and number of a round give the same records. A round draws its keys evenly from 1.05
times the keys that are known, so that some URLs are new, and some customers are unknown.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

__all__ = ["CUSTOMERS", "KEY_SQL", "ORDERS", "Digest", "Draws", "customers_of", "digest", "keys_of"]

CUSTOMERS = "customer STRING, name STRING, country STRING"
ORDERS = "order BIGINT, customer STRING, total DOUBLE"
KEY_SQL = "concat('https://example.org/pages/', lpad(id, 12, '0'))"
"""The key of number `id`, as a Spark SQL expression."""

_PREFIX = "https://example.org/pages/"
_COUNTRIES = ("at", "ch", "de", "es", "fr", "it", "pt")
_NEW = 0.05
_LOW = (1 << 32) - 1

Ids = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Digest:
    """The records of a table, in no order: their number, and sums of halves of their hashes."""

    rows: int
    low: int
    high: int


def digest(frame: pl.DataFrame) -> Digest:
    """Return the digest of a frame; the order of its rows and columns does not count."""
    if frame.is_empty():
        return Digest(0, 0, 0)
    hashes = frame.select(sorted(frame.columns)).hash_rows(seed=20).alias("h").to_frame()
    low, high = hashes.select(
        low=(pl.col("h") & _LOW).sum(), high=(pl.col("h") // (_LOW + 1)).sum()
    ).row(0)
    return Digest(frame.height, int(low), int(high))


def keys_of(ids: Ids) -> pl.Series:
    """Return the keys of some numbers: URLs, or names of customers."""
    return pl.select(_key(pl.Series(ids))).to_series()


def _key(ids: pl.Series) -> pl.Expr:
    return pl.format(f"{_PREFIX}{{}}", pl.lit(ids).cast(pl.String).str.zfill(12))


def customers_of(ids: Ids) -> pl.DataFrame:
    """Return `(customer, name, country)` of some numbers."""
    numbers = pl.Series(ids)
    countries = pl.Series(_COUNTRIES)
    return pl.DataFrame(
        {
            "customer": keys_of(ids),
            "name": pl.select(pl.format("name {}", pl.lit(numbers))).to_series(),
            "country": countries.gather(numbers % len(_COUNTRIES)),
        }
    )


COUNTRY_SQL = f"element_at(array({', '.join(map(repr, _COUNTRIES))}), CAST(id % 7 AS INT) + 1)"
"""The country of customer `id`, as a Spark SQL expression."""


@dataclass(frozen=True, slots=True)
class Draws:
    """What each round draws.

    Attributes:
        keys: Number of keys that are known before the first round.
        records: Records of a round.
    """

    keys: int
    records: int
    seed: int = 1

    @property
    def universe(self) -> int:
        """Exclusive upper bound of the numbers that are drawn."""
        return int(self.keys * (1 + _NEW)) + 1

    def numbers(self, round_: int) -> Ids:
        """Return the numbers of the keys of a round, in order."""
        chance = np.random.default_rng([self.seed, round_])
        return chance.integers(0, self.universe, self.records)

    def urls(self, round_: int) -> pl.DataFrame:
        """Return `(url)`: the sightings of a round."""
        return pl.DataFrame({"url": keys_of(self.numbers(round_))})

    def orders(self, round_: int) -> pl.DataFrame:
        """Return `(order, customer, total)`: the orders of a round, whose numbers rise."""
        first = round_ * self.records
        orders = np.arange(first, first + self.records)
        return pl.DataFrame(
            {
                "order": orders,
                "customer": keys_of(self.numbers(round_)),
                "total": 0.25 + (orders % 1000) / 4,
            }
        )

    def enriched(self, round_: int) -> pl.DataFrame:
        """Return the orders of a round with name and country, which unknown customers lack."""
        known = np.unique(self.numbers(round_))
        customers = customers_of(known[known < self.keys])
        return self.orders(round_).join(customers, on="customer", how="left")


class Counts:
    """How often each URL was seen so far; each known one was seen once before.

    Args:
        draws: What the rounds draw.
    """

    def __init__(self, draws: Draws) -> None:
        self._draws = draws
        self._n = np.zeros(draws.universe, np.int64)
        self._n[: draws.keys] = 1

    def add(self, round_: int) -> Ids:
        """Count the sightings of a round; return the numbers of its URLs, each once."""
        numbers = self._draws.numbers(round_)
        np.add.at(self._n, numbers, 1)
        return np.unique(numbers)

    def of(self, ids: Ids) -> pl.DataFrame:
        """Return `(url, n)` of some numbers."""
        return pl.DataFrame({"url": keys_of(ids), "n": self._n[ids]})

    def all(self) -> pl.DataFrame:
        """Return `(url, n)` of all URLs that were seen."""
        return self.of(np.flatnonzero(self._n))
