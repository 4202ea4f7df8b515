"""What a replaced file and a rebuild beside cost, next to adding records.

    python -m tests.bench.corrections --keys 1000000 --files 100 --records 20000
    python -m tests.bench.corrections --keys 4000000 --files 200 --records 100000 --no-rebuild
    python -m tests.bench.corrections --signed --no-rebuild
    python -m tests.bench.corrections --ingestion --files 20 --rounds 20

One service in one thread, with real files and syncs: a stage that adds up numbers per key, on
columns, without signed records (its groups are recomputed), or with them (`--signed`). Each figure
is from the file that was received to the published tables: reading it, comparing it, the run. The
medians of some rounds are compared; after the last one the table is compared with what counts.
The rebuild runs in a thread beside the updates; none of these is lost. Updates are compared with as
many before it began and after it was built: what was read since makes all of them slower.

`--ingestion` takes files in with and without the index over retained inputs, in turn.
"""

from __future__ import annotations

import argparse
import io
import logging
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import structlog

from cbp import Input, TranslateArrow, View
from cbp.engine.storage.table_names import source_folder
from controller.ingest.uploads import Author
from controller.loop.rebuild.build_in_progress import RebuildJob
from tests.controller.corrected_files import DOCUMENT, Shelf

STAGE = {**DOCUMENT, "stages": {"sums": {**DOCUMENT["stages"]["columns"], "buckets": 8}}}
SIGNED: dict[str, Any] = {
    "name": "shelf",
    "sources": {"a": {"schema": "word STRING, n BIGINT, sign INT"}},
    "stages": {"sums": {"translator": "signed", "inputs": {"items": "a"}, "buckets": 8}},
}

ALONE = 25
"""Updates before a rebuild, and after it, with which those beside it are compared."""

Rows = tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]
"""Keys and numbers of records."""


class Times(NamedTuple):
    """Seconds from the received file to the tables, and of which those of the run.

    Attributes:
        processor: Seconds of the processor.
        intake: Of which reading the file and writing its increment.
    """

    whole: float
    run: float
    processor: float
    intake: float


class SignedSums(TranslateArrow):
    """The sum of each word's numbers, and how many there are, by their signs."""

    items = Input("word STRING, n BIGINT, sign INT", route_by="word", changes="signed")
    totals = View("word STRING, n BIGINT, records BIGINT", key="word")

    def translate(self, groups: Any, out: Any) -> None:
        """Add them."""
        sign, of = groups.items.column("sign").to_numpy().astype(np.int64), groups.ids("items")
        n, records = groups.sums("totals", "n"), groups.sums("totals", "records")
        np.add.at(n, of, sign * groups.items.column("n").to_numpy())
        np.add.at(records, of, sign)
        columns = [groups.keys.column("word"), pa.array(n), pa.array(records)]
        made = pa.table(columns, names=["word", "n", "records"])
        out.totals(made.filter(pa.array(records > 0)))


class Corrected:
    """A service that has read many files, and how long it takes over more.

    Args:
        indexed: Whether its files can be replaced, and so have an index.

    Attributes:
        counts: The records that count, by file.
    """

    def __init__(self, root: Path, options: argparse.Namespace, *, indexed: bool = True) -> None:
        self.threads = ThreadPoolExecutor(1)
        self.sign = ', "sign": 1' if options.signed else ""
        document, more = (SIGNED, {"signed": SignedSums}) if options.signed else (STAGE, {})
        if not indexed:
            sums = {**STAGE["stages"]["sums"], "any_order": False}
            document = {**STAGE, "stages": {"sums": sums}}
        self.shelf = Shelf(root, document, more, verifier=self.threads, rebuild_share=options.share)
        self.keys, self.records, self.share = options.keys, options.records, options.share
        self.urls = options.urls
        self.random, self.counts = np.random.default_rng(7), dict[str, Rows]()
        self.loading = [self.add(self.records) for _ in range(options.files)]

    def rows(self, number: int) -> Rows:
        """Return records of random keys."""
        return self.random.integers(self.keys, size=number), self.random.integers(1000, size=number)

    def word(self, key: int) -> str:
        """Return the text of a key: of 12 characters, or a URL of some 40."""
        site = f"http://site{key % 50_000}.example.com/page/" if self.urls else "key-"
        return f"{site}{key:08d}"

    def lines(self, rows: Rows) -> io.BytesIO:
        """Return records as a file."""
        pairs = zip(*(column.tolist() for column in rows), strict=True)
        lines = (f'{{"word": "{self.word(key)}", "n": {n}{self.sign}}}\n' for key, n in pairs)
        return io.BytesIO("".join(lines).encode())

    def timed(self, ask: Callable[[], object]) -> Times:
        """Ask for something; return how long it takes until it is published."""
        ask()
        began, received = time.perf_counter(), time.process_time()
        self.shelf.scan()
        scanned, taken_in = time.perf_counter(), time.process_time()
        self.shelf.world.ticks()
        ended = time.perf_counter()
        self.shelf.world.clock.advance(1)
        processor = time.process_time() - received
        return Times(ended - began, ended - scanned, processor, taken_in - received)

    def add(self, records: int) -> Times:
        """Add a file."""
        name, rows = f"file-{len(self.counts):05d}", self.rows(records)
        self.counts[name] = rows
        place, lines = self.shelf.place("a"), self.lines(rows)
        return self.timed(lambda: self.shelf.drop_folder.upload(place, name, lines))

    def replace(self, share: float) -> Times:
        """Replace one of the first files by one in which a share of the records differs."""
        name = f"file-{self.random.integers(10):05d}"
        differ = int(len(self.counts[name][0]) * share)
        pairs = zip(self.rows(differ), self.counts[name], strict=True)
        keys, numbers = (np.concatenate([new, old[differ:]]) for new, old in pairs)
        self.counts[name] = keys, numbers
        place, lines = self.shelf.place("a"), self.lines(self.counts[name])
        ask, author = self.shelf.drop_folder.replacements.ask, Author("me", "corrected")
        return self.timed(lambda: ask(place, name, lines, author))

    def require_right(self) -> None:
        """The table is what a computation from what counts gives."""
        keys, numbers = (np.concatenate(part) for part in zip(*self.counts.values(), strict=True))
        n, records = (np.zeros(self.keys, np.int64) for _ in range(2))
        np.add.at(n, keys, numbers)
        np.add.at(records, keys, 1)
        found = self.shelf.sums()
        assert len(found) == np.count_nonzero(records)
        for word, both in found.items():
            at = int(word[-8:])
            assert both == (n[at], records[at]), word

    def sizes(self) -> tuple[int, int]:
        """Return the bytes of the files as they were received, and of the increments."""
        named = self.shelf.named()[0]
        folder = Path(named.folder) / source_folder("a")
        kept = sum(path.stat().st_size for path in folder.glob("*.parquet"))
        return sum(len(self.lines(rows).getvalue()) for rows in self.counts.values()), kept

    def build(self) -> RebuildJob:
        """Begin to build the tables anew beside the present ones."""
        controller, document = self.shelf.world.controller, self.shelf.document
        return controller.rebuild_jobs.start(document, controller.validate(document))

    def during(self, job: RebuildJob, records: int) -> Iterator[Times]:
        """Yield the seconds of adding files while a rebuild is under way."""
        jobs = self.shelf.world.controller.rebuild_jobs
        while (shown := jobs.show("shelf", job.id)).status == "building":
            yield self.add(records)
        assert shown.status == "ready", shown.error

    def close(self) -> None:
        """End its threads, and release the store."""
        self.threads.shutdown()
        self.shelf.close()


def rebuild(made: Corrected, few: int, all_: float) -> None:
    """Print what a rebuild costs, and what it costs updates meanwhile."""
    alone_before = [made.add(few) for _ in range(ALONE)]
    began = time.perf_counter()
    job = made.build()
    during = list(made.during(job, few))
    beside = time.perf_counter() - began
    calm = [*alone_before, *(made.add(few) for _ in range(ALONE))]
    made.shelf.world.controller.rebuild_jobs.swap("shelf", job.id)
    made.threads.submit(lambda: None).result()
    made.shelf.world.ticks()
    made.require_right()
    began = time.perf_counter()
    made.build()
    made.threads.submit(lambda: None).result()
    alone = time.perf_counter() - began
    slow, small = (statistics.median(one.whole for one in some) for some in (during, calm))
    mean, usual = (statistics.fmean(one.whole for one in some) for some in (during, calm))
    print(f"rebuild: {1000 * alone:.0f} ms; with updates meanwhile {1000 * beside:.0f} ms")
    print(
        f"add {few:,} during a rebuild: {1000 * slow:.0f} ms (median of {len(during)}); "
        f"before and after it {1000 * small:.0f} ms (median of {len(calm)})"
    )
    print(f"rebuild: {alone / all_:.1f} x of a replace of all")
    times = f"{slow / small:.2f} x, on average {mean / usual:.2f} x"
    print(f"updates during a rebuild, {made.share:.0%} of the time: {times}")


def ingestion(folder: Path, options: argparse.Namespace) -> None:
    """Print what the index costs while files are taken in: of the processor, and of bytes."""
    both = [Corrected(folder / str(indexed), options, indexed=indexed) for indexed in (True, False)]
    times: list[list[Times]] = [[], []]
    for number in range(options.rounds):
        for at in (number % 2, 1 - number % 2):
            times[at].append(both[at].add(options.records))
    for name in ("intake", "processor"):
        medians = [statistics.median(getattr(one, name) for one in some) for some in times]
        pairs = zip(*times, strict=True)
        ratios = sorted(getattr(one, name) / getattr(other, name) for one, other in pairs)
        with_, without = (1000 * one for one in medians)
        quarters = f"{ratios[len(ratios) // 4]:.3f} to {ratios[-1 - len(ratios) // 4]:.3f}"
        print(
            f"{name}: {with_:.2f} ms of the processor with the index, {without:.2f} without; "
            f"{statistics.median(ratios):.3f} x (half of the rounds {quarters})"
        )
    (dropped, kept), (_, bare) = (one.sizes() for one in both)
    print(f"{dropped:,} bytes received, {kept:,} kept, {bare:,} without the index")
    share, of_kept = (kept - bare) / dropped, (kept - bare) / bare
    print(f"index: {share:.2%} of what was received, {of_kept:.1%} of what is kept without it")
    for one in both:
        one.close()


def main() -> None:
    """Print each figure, and the ratios of the goals."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--files", type=int, default=100)
    parser.add_argument("--records", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--signed", action="store_true")
    parser.add_argument("--no-rebuild", action="store_true")
    parser.add_argument("--ingestion", action="store_true")
    parser.add_argument("--urls", action="store_true", help="keys of some 40 characters, not 12")
    parser.add_argument("--share", type=float, default=0.5, help="CBP_REBUILD_SHARE")
    options = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    few, rounds = options.records // 100, range(options.rounds)
    with tempfile.TemporaryDirectory() as folder:
        if options.ingestion:
            ingestion(Path(folder), options)
            return
        made = Corrected(Path(folder) / "world", options)
        figures = {
            f"add {few:,}": [made.add(few) for _ in rounds],
            f"add {2 * options.records:,}": [made.add(2 * options.records) for _ in rounds],
            "replace, 1 % differs": [made.replace(0.01) for _ in rounds],
            "replace, all differs": [made.replace(1.0) for _ in rounds],
        }
        print(f"{options.keys:,} keys, {options.files} files of {options.records:,} records")
        for name, times in figures.items():
            parts = (statistics.median(part) for part in zip(*times, strict=True))
            whole, run, computed, _, first = (1000 * one for one in (*parts, times[0].whole))
            print(
                f"{name:22} {whole:7.0f} ms, of which the run {run:.0f}; first {first:.0f}; "
                f"processor {computed:.0f}"
            )
        median = [statistics.median(whole for whole, *_ in times) for times in figures.values()]
        small, large, one, all_ = median
        print(f"replace of 1 %: {one / small:.1f} x of adding as many records as differ")
        print(f"replace of all: {all_ / large:.1f} x of adding twice its records")
        dropped, kept = made.sizes()
        print(f"files as received {dropped:,} bytes; increments {kept:,} bytes")
        made.require_right()
        if not options.no_rebuild:
            rebuild(made, few, all_)
        made.close()


if __name__ == "__main__":
    main()
