"""What the test of huge groups runs in a process of its own: grow, echo, shuffle.

    python -m tests.huge inner 20000000 FOLDER

prints a line of JSON per epoch: seconds, records there are and should be, what was written,
and the peak of anonymous memory.
"""

from __future__ import annotations

import itertools
import json
import sys
import threading
import time
from pathlib import Path
from typing import Any

from cbp import DataflowBuilder, Input, Output, State, Translate
from cbp.engine.direct import LocalEngine
from tests.driver import Driver

_EVERY = 1_000_003
_PARTS = 70_000


class Heap(Translate):
    """One site with very many pages; an order says what to do with them."""

    orders = Input("site STRING, how STRING, first BIGINT, many BIGINT", route_by="site")
    pages = State("site STRING, url STRING, n BIGINT", grouping="inner")
    sizes = Output("site STRING, n BIGINT, total BIGINT", key="site")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        n = total = 0
        how = ""
        for order in group.orders:
            how = order.how
            for i in range(order.first, order.first + order.many):
                out.pages(key.site, f"http://example.org/{i * 7_919 % 10**9:09d}/{i}", i)
        for page in group.pages:
            n, total = n + 1, total + page.n
            if how == "echo" and n % _EVERY == 0:
                out.pages(page.site, page.url, -page.n)
            elif how != "thin" or n % 2:
                out.pages(*page)
        out.sizes(key.site, n, total)


class OuterHeap(Heap):
    """The same, where the group is called because it has state."""

    orders = Input("site STRING, how STRING, first BIGINT, many BIGINT", route_by="site")
    pages = State("site STRING, url STRING, n BIGINT", grouping="outer")
    sizes = Output("site STRING, n BIGINT, total BIGINT", key="site")


class Peak:
    """Samples this process's anonymous memory."""

    def __init__(self) -> None:
        self.bytes = 0
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        while True:
            status = Path("/proc/self/status").read_text(encoding="ascii")
            found = int(status.split("RssAnon:")[1].split()[0]) * 1024
            self.bytes = max(self.bytes, found)
            time.sleep(0.05)


def main(grouping: str, rows: int, folder: Path) -> None:
    """Run the epochs of the module header."""
    builder = DataflowBuilder("huge")
    orders = builder.source("orders", "site STRING, how STRING, first BIGINT, many BIGINT")
    translator = {"inner": Heap, "outer": OuterHeap}[grouping]()
    builder.stage("heap", translator, buckets=2, orders=orders)
    driver = Driver(LocalEngine(cache=str(folder / "cache")), builder.build(), folder / "t")
    peak = Peak()
    for how, expected in (("grow", rows), ("echo", rows), ("thin", rows - rows // 2)):
        peak.bytes, started = 0, time.perf_counter()
        # An input that is large too, so that what is emitted for it does not pile up.
        parts = _PARTS if how == "grow" else 1
        cuts = [rows * part // parts for part in range(parts + 1)] if how == "grow" else [0, 0]
        records = [
            {"site": "example.org", "how": how, "first": first, "many": last - first}
            for first, last in itertools.pairwise(cuts)
        ]
        driver.feed("orders", records)
        driver.run_until_idle()
        figures = driver.figures[-1]
        table = driver.engine._tables.table(f"{driver.folder}/state/heap.pages")  # type: ignore[attr-defined]
        live = table.snapshot.live.values()
        dead = sum(f.deletion_vector.cardinality for f in live if f.deletion_vector)
        step = {
            "epoch": how,
            "grouping": grouping,
            "seconds": round(time.perf_counter() - started, 1),
            "records": sum(f.rows for f in live) - dead,
            "expected": expected,
            "state_written": figures["state_written"],
            "state_removed": figures["state_removed"],
            "files": len(live),
            "anonymous_bytes_peak": peak.bytes,
        }
        print(json.dumps(step), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))
