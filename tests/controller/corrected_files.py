"""A service whose source is corrected: files that are added, replaced, taken back; what counts.

`Shelf` knows by itself which records count: those of the newest file of each name.
"""

from __future__ import annotations

import io
import json
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa

from cbp import Input, Translate, TranslateArrow, View
from cbp.engine.direct import LocalEngine
from controller.ingest.drop_folder import DropFolder
from controller.ingest.folder.source_place import SourcePlace
from controller.ingest.replacement import Compared
from controller.ingest.uploads import Author
from controller.store.base import ClaimRecord
from tests.controller.world import SCHEMA, Inline, World

__all__ = ["DOCUMENT", "TRANSLATORS", "PerSum", "Shelf", "Sums"]

Row = tuple[str, int]


class Sums(Translate):
    """The sum of each word's numbers, and how many there are; none of a word without any."""

    items = Input(SCHEMA, route_by="word")
    totals = View("word STRING, n BIGINT, records BIGINT", key="word")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        """Add them."""
        numbers, known = [row.n for row in group.items], next(iter(group.totals), None)
        n, records = (known.n, known.records) if known else (0, 0)
        out.totals(key.word, n + sum(numbers), records + len(numbers))


class SumsOnColumns(TranslateArrow):
    """The same, on columns."""

    items, totals = Sums.items, Sums.totals

    def translate(self, groups: Any, out: Any) -> None:
        """Add them."""
        n = groups.sums("items", "n") + groups.sums("totals", "n")
        records = groups.sizes("items") + groups.sums("totals", "records")
        columns = [groups.keys.column("word"), pa.array(n), pa.array(records.astype(np.int64))]
        out.totals(pa.table(columns, names=["word", "n", "records"]))


class Numbers(Translate):
    """How often each number of a word is there: a group has many records."""

    items = Input(SCHEMA, route_by="word")
    numbers = View("word STRING, n BIGINT, times BIGINT", key="word, n")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        """Count them."""
        times = Counter({row.n: row.times for row in group.numbers})
        times.update(row.n for row in group.items)
        for n, many in times.items():
            out.numbers(key.word, n, many)


class PerSum(Translate):
    """Counts the words of each sum, from signed changes."""

    moved = Input("n BIGINT, sign INT", route_by="n", changes="signed")
    counts = View("n BIGINT, words BIGINT", key="n")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        """Add the signs."""
        words = sum(row.words for row in group.counts) + sum(row.sign for row in group.moved)
        if words:
            out.counts(key.n, words)


TRANSLATORS = {
    "sums": Sums,
    "on_columns": SumsOnColumns,
    "numbers": Numbers,
    "per_sum": PerSum,
}
DOCUMENT: dict[str, Any] = {
    "name": "shelf",
    "sources": {"a": {"schema": SCHEMA}},
    "stages": {
        "sums": {"translator": "sums", "inputs": {"items": "a"}, "buckets": 2, "any_order": True},
        "columns": {
            "translator": "on_columns",
            "inputs": {"items": "a"},
            "buckets": 4,
            "any_order": True,
        },
        "numbers": {
            "translator": "numbers",
            "inputs": {"items": "a"},
            "buckets": 2,
            "any_order": True,
        },
        "per": {"translator": "per_sum", "inputs": {"moved": "sums.totals"}, "buckets": 2},
    },
}


class Shelf:
    """One service with one source, and what counts of it.

    Attributes:
        counts: Name of a file to its records, of those that count.
    """

    def __init__(
        self,
        root: Path,
        document: dict[str, Any] = DOCUMENT,
        translators: Mapping[str, Any] = MappingProxyType({}),
        engine: Callable[..., Any] = LocalEngine,
        **more: Any,
    ) -> None:
        self.root, self.document = root, document
        self.world = World(root, engine=engine, **{"verifier": Inline(), **more})
        self.world.translators |= {**TRANSLATORS, **translators}
        self.counts: dict[str, list[Row]] = {}
        self.asked = 0
        self.start()
        self.world.controller.register(document)
        self.prepare()

    def start(self) -> None:
        """Begin anew with what is on the disk and in the store."""
        self.world.restart()
        self.drop_folder = DropFolder(
            store=self.world.store,
            files=self.world.files,
            clock=self.world.clock,
            drop_root=self.root / "drop",
            on_accept=self.world.controller.wake,
            require_followed=self.world.controller.retained.check,
            faults=self.world.faults,
        )
        self.world.arrivals = self.drop_folder

    def prepare(self) -> None:
        """Make the folders of the source."""
        self.drop_folder.prepare(*self.named())

    def named(self) -> tuple[Any, Any]:
        """Return the dataflow's record, and the dataflow."""
        name = self.document["name"]
        return self.world.store.dataflow(name), self.world.controller.dataflow(name)

    def place(self, source: str) -> SourcePlace:
        """Return the place of a source."""
        return self.drop_folder.place(*self.named(), source)

    def put(self, name: str, *rows: Row) -> ClaimRecord:
        """Add a file, as a producer does."""
        return self.drop_folder.upload(self.place("a"), name, _lines(rows)).claim

    def replace(self, name: str, *rows: Row, key: str = "", rebuild: bool = False) -> ClaimRecord:
        """Replace a file; `rebuild`: stages that cannot follow wait."""
        return self._ask(name, _lines(rows), key, rebuild=rebuild)

    def retract(self, name: str, key: str = "") -> ClaimRecord:
        """Take a file back."""
        return self._ask(name, None, key)

    def _ask(
        self, name: str, stream: io.BytesIO | None, key: str, *, rebuild: bool = False
    ) -> ClaimRecord:
        self.world.controller.retained.check(self.document["name"], "a", rebuild=rebuild)
        author = Author("me", "a bad clock")
        replacements = self.drop_folder.replacements
        return replacements.ask(self.place("a"), name, stream, author, key).claim

    def compare(self, name: str, *rows: Row) -> Compared:
        """Return what a replacement would change."""
        return self.drop_folder.replacements.compare(self.place("a"), name, _lines(rows))

    def scan(self) -> None:
        """Take in what waits, and run nothing."""
        self.drop_folder.scan(*self.named())

    def take_in(self) -> None:
        """Take in what waits, and run all stages."""
        self.scan()
        self.world.ticks()
        self.world.clock.advance(1)

    def claim(self, identity: str) -> ClaimRecord:
        """Return a claim as it is now."""
        return self.world.store.find_claims([identity])[identity]

    def sums(self, stage: str = "sums") -> dict[str, tuple[int, int]]:
        """Return what a stage has of each word."""
        name, node = self.document["name"], self.named()[1].stages[stage]
        folder = f"{self.world.tables}/{name}"
        rows = self.world.engine.records.read_state(folder, node, "totals")
        return {word: (n, records) for word, n, records in (row.values() for row in rows)}

    def per_sum(self) -> dict[int, int]:
        """Return how many words have each sum."""
        node = self.named()[1].stages["per"]
        folder = f"{self.world.tables}/{self.document['name']}"
        rows = self.world.engine.records.read_state(folder, node, "counts")
        return dict(tuple(row.values()) for row in rows)

    def numbers(self) -> dict[Row, int]:
        """Return how often each number of each word is there."""
        node = self.named()[1].stages["numbers"]
        folder = f"{self.world.tables}/{self.document['name']}"
        rows = self.world.engine.records.read_state(folder, node, "numbers")
        return {(word, n): times for word, n, times in (row.values() for row in rows)}

    def right(self) -> dict[str, tuple[int, int]]:
        """Return what counts, computed from nothing else than the files that count."""
        numbers: defaultdict[str, list[int]] = defaultdict(list)
        for rows in self.counts.values():
            for word, n in rows:
                numbers[word].append(n)
        return {word: (sum(some), len(some)) for word, some in numbers.items()}

    def require_right(self) -> None:
        """Every table is what a computation from what counts gives."""
        right = self.right()
        assert self.sums() == right
        if "columns" in self.document["stages"]:
            assert self.sums("columns") == right
        if "numbers" in self.document["stages"]:
            every = Counter(row for rows in self.counts.values() for row in rows)
            assert self.numbers() == dict(every)
        if "per" in self.document["stages"]:
            assert self.per_sum() == dict(Counter(n for n, _ in right.values()))

    def close(self) -> None:
        """Release the store."""
        self.world.close()


def _lines(rows: Sequence[Row]) -> io.BytesIO:
    return io.BytesIO("".join(json.dumps({"word": w, "n": n}) + "\n" for w, n in rows).encode())
