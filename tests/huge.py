"""What the test of huge groups runs in a process of its own: grow, echo, shuffle.

    python -m tests.huge inner 20000000 FOLDER [spark]

prints a line of JSON per epoch: seconds, records there are and should be, a checksum of them,
what was written, and the peak of anonymous memory: of this process, or of Spark's Python
workers, which then may not have more (`tests.bounded_daemon`).
"""

from __future__ import annotations

import itertools
import json
import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from cbp import DataflowBuilder, Input, Output, State, Translate
from cbp.clock import MACHINE
from cbp.engine.columnar.key_hash import hash_columns
from cbp.engine.direct import DirectEngine, LocalEngine
from cbp.engine.state.bucket_compaction import live_records
from cbp.engine.state.bucket_state import BucketState
from cbp.engine.state.index_cache import index_cache
from cbp.model.flow.schema import Schema
from tests.driver import Driver
from tests.fresh import REPOSITORY
from tests.waiting import pause

PAGES = "site STRING, url STRING, n BIGINT"
SITE = "example.org"

_EVERY = 1_000_003
_PARTS = 70_000
_DAEMON = "tests.bounded_daemon"


def url_of(page: int) -> str:
    """Return the address of a page; they are emitted in another order than they are kept."""
    return f"http://{SITE}/{page * 7_919 % 10**9:09d}/{page}"


class Heap(Translate):
    """One site with very many pages; an order says what to do with them."""

    orders = Input("site STRING, how STRING, first BIGINT, many BIGINT", route_by="site")
    pages = State(PAGES, grouping="inner")
    sizes = Output("site STRING, n BIGINT, total BIGINT", key="site")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        n = total = 0
        how = ""
        for order in group.orders:
            how = order.how
            for i in range(order.first, order.first + order.many):
                out.pages(key.site, url_of(i), i)
        for page in group.pages:
            n, total = n + 1, total + page.n
            if how == "echo" and page.n % _EVERY == 1:
                out.pages(page.site, page.url, -page.n)
            elif how != "thin" or page.n % 2:
                out.pages(*page)
        out.sizes(key.site, n, total)


class OuterHeap(Heap):
    """The same, where the group is called because it has state."""

    orders = Input("site STRING, how STRING, first BIGINT, many BIGINT", route_by="site")
    pages = State(PAGES, grouping="outer")
    sizes = Output("site STRING, n BIGINT, total BIGINT", key="site")


class Peak:
    """Samples the anonymous memory of processes: of this one, or of a given one.

    Attributes:
        bytes: The most that one of them had.
    """

    def __init__(self, processes: Callable[[], Iterable[int]] | None = None) -> None:
        self.bytes = 0
        self._processes = processes or (lambda: [os.getpid()])
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        actual: list[int] = []
        for turn in itertools.count():
            actual = list(self._processes()) if turn % 20 == 0 else actual
            for process in actual:
                self.bytes = max(self.bytes, anonymous_bytes(process))
            pause(0.05)


def anonymous_bytes(process: int) -> int:
    """Return what a process has in memory that is in no file; 0: it is gone."""
    try:
        status = Path(f"/proc/{process}/status").read_text(encoding="ascii")
        return int(status.split("RssAnon:")[1].split()[0]) * 1024
    except (OSError, IndexError):
        return 0


def workers() -> Iterator[int]:
    """Yield the Python workers of this process's Spark, and what they were forked from."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            told = (folder / "cmdline").read_bytes().split(b"\0")
            process = int(folder.name)
            while process not in (0, os.getpid()):
                stat = Path(f"/proc/{process}/stat").read_text(encoding="utf-8")
                process = int(stat.rpartition(")")[2].split()[1])
        except OSError:
            continue
        if process and _DAEMON.encode() in told:
            yield int(folder.name)


def checksum(batches: Iterable[pa.Table]) -> int:
    """Return the sum of the hashes of records, whatever their order, and of their number."""
    types = [field.type for field in Schema.parse(PAGES).fields]
    total = 0
    for batch in batches:
        hashes = hash_columns([batch.column(n) for n in ("site", "url", "n")], types)
        total += int(hashes.view(np.uint64).sum(dtype=np.uint64)) + len(hashes)
    return total % 2**64


def expected_pages(how: str, rows: int) -> Iterator[pa.Table]:
    """Yield what the state has to hold behind an epoch, some records at a time."""
    for start in range(0, rows, 100_000):
        page = np.arange(start, min(start + 100_000, rows))
        page = page[page % 2 == 1] if how == "thin" else page
        n = page if how == "grow" else np.where(page % _EVERY == 1, -page, page)
        urls = [url_of(i) for i in page.tolist()]
        yield pa.table({"site": [SITE] * len(page), "url": urls, "n": pa.array(n, pa.int64())})


def engine_of(where: str, cache: str) -> DirectEngine:
    """Return an engine in this process, or on a Spark with one bounded worker."""
    if where == "local":
        return LocalEngine(cache=cache)
    from cbp.engine.spark import SparkEngine, SparkSettings

    conf = {
        "spark.python.daemon.module": _DAEMON,
        "spark.executorEnv.PYTHONPATH": str(REPOSITORY),
        # The default pool reserves a gigabyte ahead.
        "spark.executorEnv.ARROW_DEFAULT_MEMORY_POOL": "system",
    }
    return SparkEngine(SparkSettings(master="local[1]", room=False, conf=conf), cache=cache)


def main(grouping: str, rows: int, folder: Path, where: str = "local") -> None:
    """Run the epochs of the module header."""
    builder = DataflowBuilder("huge")
    orders = builder.source("orders", "site STRING, how STRING, first BIGINT, many BIGINT")
    translator = {"inner": Heap, "outer": OuterHeap}[grouping]()
    builder.stage("heap", translator, buckets=2, orders=orders)
    engine = engine_of(where, str(folder / "cache"))
    driver = Driver(engine, builder.build(), folder / "t")
    peak = Peak(workers if where == "spark" else None)
    for how, expected in (("grow", rows), ("echo", rows), ("thin", rows // 2)):
        peak.bytes, started = 0, MACHINE.seconds()
        # An input that is large too, so that what is emitted for it does not pile up.
        parts = _PARTS if how == "grow" else 1
        cuts = [rows * part // parts for part in range(parts + 1)] if how == "grow" else [0, 0]
        records = [
            {"site": SITE, "how": how, "first": first, "many": last - first}
            for first, last in itertools.pairwise(cuts)
        ]
        driver.feed("orders", records)
        driver.run_until_idle()
        seconds, anonymous = round(MACHINE.seconds() - started, 1), peak.bytes
        figures = driver.figures[-1]
        table = engine.records.tables.state(driver.folder, driver.dataflow.stages["heap"], "pages")
        files = [file for live in table.live.values() for file in live]
        states = (
            BucketState(table, index_cache(engine.records.cache, engine.records.limits), (at,))
            for at in table.live
        )
        step = {
            "epoch": how,
            "grouping": grouping,
            "where": where,
            "seconds": seconds,
            "records": sum(file.rows - file.dead for file in files),
            "expected": expected,
            "checksum": checksum(part for state in states for part in live_records(state)),
            "checksum_expected": checksum(expected_pages(how, rows)),
            "state_written": figures["state_written"],
            "state_removed": figures["state_removed"],
            "files": len(files),
            "anonymous_bytes_peak": anonymous,
        }
        print(json.dumps(step), flush=True)
    engine.close()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]), *sys.argv[4:])
