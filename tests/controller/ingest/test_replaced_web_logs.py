"""Five days of web logs; the third comes again, corrected: every result is that of Polars."""

from __future__ import annotations

import io
import random
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import polars
import pytest

from cbp import Input, Translate, View
from stages.translators.top_k import TopK
from tests.controller.corrected_files import Shelf
from tests.controller.verified import verified

pytestmark = pytest.mark.usefixtures("without_syncs")

COLUMNS = "host STRING, time TIMESTAMP, path STRING, status INT, bytes BIGINT"

SUGGESTED = COLUMNS.replace("host STRING,", "host STRING NOT NULL,")
"""What `cbp infer` says of such a file."""


class Hits(Translate):
    """Hits and bytes of each path, and when it was first asked for."""

    lines = Input(COLUMNS, route_by="path")
    hits = View("path STRING, n BIGINT, bytes BIGINT, first TIMESTAMP", key="path")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        """Add the new lines."""
        lines, known = list(group.lines), next(iter(group.hits), None)
        n, bytes_ = (known.n, known.bytes) if known else (0, 0)
        first = min([row.time for row in lines] + ([known.first] if known else []))
        out.hits(key.path, n + len(lines), bytes_ + sum(row.bytes or 0 for row in lines), first)


class Visitors(Translate):
    """The different paths of each host, with how often it asked for each."""

    lines = Input(COLUMNS, route_by="host")
    asked = View("host STRING, path STRING, n BIGINT", key="host, path")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        """Count them."""
        counts = {row.path: row.n for row in group.asked}
        for row in group.lines:
            counts[row.path] = counts.get(row.path, 0) + 1
        for path, n in counts.items():
            out.asked(key.host, path, n)


TOP = {
    "schema": "host STRING, path STRING, n BIGINT",
    "group": "host",
    "key": "host, path",
    "by": "n",
}
"""The paths of each host that it asked for most."""

DOCUMENT: dict[str, Any] = {
    "name": "logs",
    "sources": {"a": {"schema": SUGGESTED, "format": "access_log", "same_name": "replace"}},
    "stages": {
        "hits": {"translator": "hits", "inputs": {"lines": "a"}, "any_order": True},
        "visitors": {"translator": "visitors", "inputs": {"lines": "a"}, "any_order": True},
        "top": {
            "translator": "top_k",
            "parameters": {**TOP, "k": 3},
            "inputs": {"rows": "visitors.asked"},
        },
    },
}


def day(number: int, lines: int, wrong: float = 0.0) -> list[tuple[Any, ...]]:
    """Return the lines of a day; of a wrong one some are missing, doubled, or have other bytes."""
    dice, noise, made = random.Random(number), random.Random(99), []
    for _ in range(lines):
        time = datetime(2026, 3, 1, tzinfo=UTC) + timedelta(
            days=number, seconds=dice.randrange(86400)
        )
        row = (f"10.0.0.{dice.randrange(40)}", time, f"/p{int(dice.paretovariate(0.8)) % 200}", 200)
        bytes_ = dice.randrange(9000)
        if noise.random() < wrong:
            made += [(*row, bytes_ + 1)] * noise.choice((0, 1, 2))
        else:
            made.append((*row, bytes_))
    return made


def text(rows: list[tuple[Any, ...]]) -> io.BytesIO:
    """Return lines of an access log."""
    lines = (
        f"{host} - - [{time:%d/%b/%Y:%H:%M:%S} +0000] "
        f'"GET {path} HTTP/1.1" {status} {size} "-" "-"\n'
        for host, time, path, status, size in rows
    )
    return io.BytesIO("".join(lines).encode())


def test_a_corrected_day_is_exact(tmp_path: Path) -> None:
    """Nothing is purged, no other day is sent again, and a verification finds all equal."""
    own = {"hits": Hits, "visitors": Visitors, "top_k": TopK}
    shelf = Shelf(tmp_path, DOCUMENT, own)
    sent: dict[int, list[tuple[Any, ...]]] = {}

    def send(number: int, wrong: float = 0.0) -> None:
        sent[number] = day(number, 400, wrong)
        shelf.drop_folder.upload(shelf.place("a"), f"day{number}.log", text(sent[number]))
        shelf.take_in()
        require_right(shelf, [row for rows in sent.values() for row in rows])

    for number in range(5):
        send(number, wrong=0.05 if number == 2 else 0.0)
    send(2)
    assert shelf.world.store.next_index("logs", "a") == 6
    corrected = shelf.world.store.increment("logs", "a", 5).increment
    assert corrected.gone
    assert corrected.records < 60
    assert verified(shelf.world, "logs").status == "equal"
    shelf.close()


def require_right(shelf: Shelf, rows: list[tuple[Any, ...]]) -> None:
    """All views are what Polars computes from all lines that count."""
    lines = polars.DataFrame(rows, schema=["host", "time", "path", "status", "bytes"], orient="row")
    hits = lines.group_by("path").agg(
        polars.len().alias("n"), polars.col("bytes").sum(), polars.col("time").min().alias("first")
    )
    assert sorted(table(shelf, "hits", "hits")) == sorted(hits.iter_rows())
    asked = lines.group_by("host", "path").agg(polars.len().alias("n"))
    assert sorted(table(shelf, "visitors", "asked")) == sorted(asked.iter_rows())
    most = asked.group_by("host").agg(polars.col("n").top_k(3).sort(descending=True))
    actual: dict[str, list[int]] = {}
    for _, host, _, n in table(shelf, "top", "top"):
        actual.setdefault(host, []).append(n)
    assert {h: sorted(n, reverse=True) for h, n in actual.items()} == dict(most.iter_rows())


def table(shelf: Shelf, stage: str, state: str) -> list[tuple[Any, ...]]:
    """Return the records of a view."""
    node = shelf.named()[1].stages[stage]
    folder = f"{shelf.world.tables}/logs"
    rows = shelf.world.engine.records.read_state(folder, node, state)
    return [tuple(row.values()) for row in rows]
