"""What the test of runs larger than their memory runs in a process of its own.

    python -m tests.spilled_runs loop 32 FOLDER
    python -m tests.spilled_runs loop 32 FOLDER 3     # with three times as many records

A loop whose messages, state and changes of a view, or a whole run whose reads and puts, are many
times as large as the megabytes that it may hold in memory; `tasks`: that loop in two tasks, threads
of this process, each with as much memory. Prints a line of JSON: seconds of the
processor, records there are and should be, and how far anonymous memory rose: in the runs, and in
their publication, which is the service's and not the task's.
"""

from __future__ import annotations

import json
import os
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cbp import Input, Loopback, State, TranslateArrow, TranslateRun, View
from cbp.engine.direct import LocalEngine
from cbp.engine.storage.engine_limits import DEFAULT_LIMITS
from tests.driver import Driver
from tests.huge import Peak, anonymous_bytes
from tests.loops import loop_of
from tests.loops_in_tasks import ThreadsExecutor

ITEMS, EACH = 20_000, 25
SCHEMA = pa.schema([("k", pa.int64())])


def texts_of(keys: Any) -> Any:
    """Return a text of 80 characters for each key, as no two keys have."""
    return pc.utf8_lpad(pc.cast(keys, pa.large_string()), 80, "-")


class Floods(TranslateArrow):
    """Each item becomes many messages, each of these a record of a view and of a state."""

    items = Input("k BIGINT", route_by="k")
    on = Loopback("k BIGINT, text STRING", route_by="k", supersteps=9)
    texts = View("k BIGINT, text STRING", key="k")
    notes = State("k BIGINT, text STRING")

    def translate(self, groups: Any, out: Any) -> None:
        """Send messages for items; keep what came as messages."""
        items = groups.items.column("k").to_numpy()
        keys = pa.array((items[:, None] * EACH + np.arange(EACH) + 1).ravel() + 1_000_000)
        if len(keys):
            out.on({"k": keys, "text": texts_of(keys)})
        out.texts(groups.on)
        out.notes(groups.on)


class Hoards(TranslateRun):
    """Put a record for each of many keys; for the item 0, read all, and put each otherwise."""

    items = Input("k BIGINT", route_by="k")
    texts = View("k BIGINT, text STRING", key="k", keep=True)

    def translate(self, tables: Any, out: Any) -> None:
        """Put records in pieces, as they are read."""
        if tables.items["k"][0].as_py() == 0:
            for batch in tables.texts.all().to_batches(max_chunksize=100_000):
                out.texts({"k": batch["k"], "text": pc.utf8_reverse(batch["text"])})
            return
        for batch in tables.items.to_batches(max_chunksize=4_000):
            items = batch["k"].to_numpy()
            keys = pa.array((items[:, None] * EACH + np.arange(EACH) + 1).ravel() + 1_000_000)
            out.texts({"k": keys, "text": texts_of(keys)})


def main(what: str, megabytes: int, folder: Path, times: int = 1) -> None:
    """Run what the module header says."""
    many = times * ITEMS
    stage: Any = Hoards() if what == "whole" else Floods()
    limits = replace(
        DEFAULT_LIMITS,
        call_rows=4_000,
        whole_run_bytes=megabytes << 20,
        spool_bytes=8 << 20,
        sort_run_bytes=8 << 20,
        message_sort_bytes=8 << 20,
        file_bytes=8 << 20,
        superstep_log_ms=3_600_000,
        rows_per_loop_task=1,
    )
    executor = ThreadsExecutor(2) if what == "tasks" else None
    engine = LocalEngine(cache=str(folder / "cache"), executor=executor, limits=limits)
    flow = loop_of(stage, items="k BIGINT")
    driver = Driver(engine, flow, folder / "t", publish_every=100)
    driver.feed_table("s_items", pa.table({"k": [1]}, schema=SCHEMA))
    driver.run_until_idle()
    driver.publish()
    before, peak, started = anonymous_bytes(os.getpid()), Peak(), time.process_time()
    driver.feed_table("s_items", pa.table({"k": np.arange(many) + 2}, schema=SCHEMA))
    driver.run_until_idle()
    if what == "whole":
        driver.feed_table("s_items", pa.table({"k": [0]}, schema=SCHEMA))
        driver.run_until_idle()
    step = {
        "expected": (many + 1) * EACH,
        "cpu_seconds": round(time.process_time() - started, 2),
        "anonymous_bytes": peak.bytes - before,
    }
    peak.bytes = 0
    driver.publish()
    step["publication_bytes"] = peak.bytes - before
    records = driver.state("stage", "texts")
    texts = [row["text"][::-1] if what == "whole" else row["text"] for row in records]
    step["records"] = sum(
        text.strip("-") == str(row["k"]) for text, row in zip(texts, records, strict=True)
    )
    print(json.dumps(step), flush=True)
    engine.close()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]), *map(int, sys.argv[4:]))
