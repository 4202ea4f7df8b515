"""A dataflow whose sources are corrected, and each of its tables as Polars computes it.

Behind the corrected sources are views, kept state, timers, the newest versions of a change feed,
sessions, windows and the best of each group.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl

from tests.authored import install, write

__all__ = [
    "BEGIN",
    "COLUMNS",
    "NAME",
    "PACKAGE",
    "WORDS",
    "Files",
    "Rows",
    "document",
    "install_flows",
    "right",
]

NAME = "corrected"
PACKAGE = "correctedflows"
FLOWS = '''
from datetime import timedelta

from cbp import Input, State, Timers, Translate, View


class Sums(Translate):
    """The sum and the number of the numbers of each word."""

    items = Input("word STRING, n BIGINT", route_by="word")
    totals = View("word STRING, n BIGINT, records BIGINT", key="word")

    def translate(self, key, group, out):
        numbers, known = [row.n for row in group.items], next(iter(group.totals), None)
        n, records = (known.n, known.records) if known else (0, 0)
        out.totals(key.word, n + sum(numbers), records + len(numbers))


class PerCount(Translate):
    """The words that have a number of records, in kept state; the first and how many there are."""

    moved = Input("word STRING, n BIGINT, records BIGINT, sign INT", route_by="records",
                  changes="signed")
    words = State("records BIGINT, word STRING, n BIGINT", keep=True, key="records, word")
    first = View("records BIGINT, word STRING, n BIGINT, words BIGINT", key="records")

    def translate(self, key, group, out):
        there = {row.word: row.n for row in group.words}
        rows = list(group.moved)
        for row in rows:
            if row.sign < 0:
                there.pop(row.word, None)
                out.words.delete(word=row.word)
        for row in rows:
            if row.sign > 0:
                there[row.word] = row.n
                out.words(key.records, row.word, row.n)
        if there:
            word = min(there)
            out.first(key.records, word, there[word], len(there))


class Later(Translate):
    """The sum of each word, and that it did not change for a moment: a timer says so."""

    moved = Input("word STRING, n BIGINT, records BIGINT, sign INT", route_by="word",
                  changes="signed")
    wake = Timers()
    settled = View("word STRING, n BIGINT, records BIGINT, late BOOLEAN", key="word")

    def translate(self, key, group, out):
        known = next(iter(group.settled), None)
        n, records, late = (known.n, known.records, known.late) if known else (0, 0, False)
        rows = list(group.moved)
        for row in rows:
            n, records = n + row.n * row.sign, records + row.records * row.sign
        timers = list(group.wake)
        if rows:
            timers, late = [], False
        elif any(timer.at <= group.run.time for timer in timers):
            timers, late = [], True
        if not records:
            return
        out.settled(key.word, n, records, late)
        for timer in timers:
            out.wake(*timer)
        if rows:
            out.wake(word=key.word, at=group.run.time + timedelta(milliseconds=200))
'''
WORDS = "abcdefgh"
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
GAP_SECONDS, WINDOW_SECONDS = 20, 60
MESSAGE = "op STRING, ts BIGINT, id BIGINT, who STRING, at TIMESTAMP, cents BIGINT"
LATEST = "ts BIGINT, id BIGINT, who STRING, at TIMESTAMP, cents BIGINT"


def document() -> dict[str, Any]:
    """Return the dataflow."""
    of_latest = {"schema": LATEST}
    return {
        "name": NAME,
        "sources": {
            "items": {"schema": "word STRING, n BIGINT", "format": "jsonl"},
            "feed": {"schema": MESSAGE, "format": "jsonl"},
        },
        "stages": {
            "sums": {
                "translator": "corrected_sums",
                "inputs": {"items": "items"},
                "any_order": True,
                "buckets": 2,
            },
            "per": {
                "translator": "corrected_per_count",
                "inputs": {"moved": "sums.totals"},
                "buckets": 2,
            },
            "later": {
                "translator": "corrected_later",
                "inputs": {"moved": "sums.totals"},
                "buckets": 2,
            },
            "now": {
                "translator": "latest_change",
                "parameters": {"schema": MESSAGE, "key": "id", "sequence": "ts"},
                "inputs": {"changes": "feed"},
                "any_order": True,
                "buckets": 2,
            },
            "visits": {
                "translator": "sessions",
                "parameters": {**of_latest, "by": "who", "at": "at", "gap_seconds": GAP_SECONDS},
                "inputs": {"rows": "now.latest"},
                "buckets": 2,
            },
            "minutes": {
                "translator": "windows_arrow",
                "parameters": {
                    **of_latest,
                    "by": "who",
                    "at": "at",
                    "seconds": WINDOW_SECONDS,
                    "add": "cents",
                },
                "inputs": {"rows": "now.latest"},
                "buckets": 2,
            },
            "best": {
                "translator": "top_k_arrow",
                "parameters": {**of_latest, "group": "who", "key": "id", "by": "cents", "k": 2},
                "inputs": {"rows": "now.latest"},
                "buckets": 2,
            },
        },
    }


def install_flows(folder: Path) -> None:
    """Write the author's package, with its translators by name."""
    write(folder, {f"{PACKAGE}.py": FLOWS})
    points = {"sums": "Sums", "per_count": "PerCount", "later": "Later"}
    install(folder, PACKAGE, {f"corrected_{n}": f"{PACKAGE}:{c}" for n, c in points.items()})


Rows = list[dict[str, Any]]
Files = dict[tuple[str, str], Rows]
"""Source and name to the records of a file that counts."""


def right(files: Mapping[tuple[str, str], Rows]) -> dict[str, list[tuple[Any, ...]]]:
    """Return what each view must have, by its table, as Polars computes it."""

    def frame(source: str, schema: dict[str, Any]) -> pl.DataFrame:
        rows = [row for (of, _), some in files.items() if of == source for row in some]
        return pl.DataFrame(rows, schema=schema, orient="row")

    words = frame("items", {"word": pl.String, "n": pl.Int64})
    sums = words.group_by("word").agg(pl.col("n").sum(), pl.len().cast(pl.Int64).alias("records"))
    first = (
        sums.sort("word")
        .group_by("records", maintain_order=True)
        .agg(pl.col("word").first(), pl.col("n").first(), pl.len().cast(pl.Int64).alias("words"))
    )
    feed = frame(
        "feed",
        {
            "op": pl.String,
            "ts": pl.Int64,
            "id": pl.Int64,
            "who": pl.String,
            "at": pl.String,
            "cents": pl.Int64,
        },
    ).with_columns(pl.col("at").str.to_datetime(time_zone="UTC"))
    now = (
        feed.sort("ts")
        .group_by("id")
        .last()
        .filter(pl.col("op") != "d")
        .select("ts", "id", "who", "at", "cents")
    )
    apart = pl.col("at").diff().over("who") >= timedelta(seconds=GAP_SECONDS)
    visits = (
        now.sort("who", "at")
        .with_columns(apart.fill_null(value=True).cum_sum().over("who").alias("visit"))
        .group_by("who", "visit")
        .agg(
            pl.col("at").min().alias("begin"),
            pl.col("at").max().alias("finish"),
            pl.len().cast(pl.Int64).alias("records"),
        )
    )
    minutes = now.group_by(
        "who", pl.col("at").dt.truncate(f"{WINDOW_SECONDS}s").alias("begin")
    ).agg(pl.len().cast(pl.Int64).alias("records"), pl.col("cents").sum().alias("total"))
    best = (
        now.sort("cents", "id", descending=[True, False])
        .with_columns(pl.int_range(1, pl.len() + 1, dtype=pl.Int32).over("who").alias("rank"))
        .filter(pl.col("rank") <= 2)
    )
    return {
        "sums.totals": sums.select("word", "n", "records").rows(),
        "per.first": first.select("records", "word", "n", "words").rows(),
        "per.words": sums.select("records", "word", "n").rows(),
        "later.settled": [(*row, True) for row in sums.select("word", "n", "records").rows()],
        "now.latest": now.rows(),
        "visits.sessions": visits.select("who", "begin", "finish", "records").rows(),
        "minutes.windows": minutes.select("who", "begin", "records", "total").rows(),
        "best.top": best.select("rank", "who", "id", "cents").rows(),
    }


COLUMNS = {
    "sums.totals": ("word", "n", "records"),
    "per.first": ("records", "word", "n", "words"),
    "per.words": ("records", "word", "n"),
    "later.settled": ("word", "n", "records", "late"),
    "now.latest": ("ts", "id", "who", "at", "cents"),
    "visits.sessions": ("who", "begin", "finish", "records"),
    "minutes.windows": ("who", "begin", "records", "total"),
    "best.top": ("rank", "who", "id", "cents"),
}
"""The columns of each table that are compared."""
