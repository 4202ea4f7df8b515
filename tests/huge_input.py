"""What the test of a huge input runs in a process of its own: one key gets all records, twice.

    python -m tests.huge_input inner 20000000 FOLDER

prints a line of JSON per epoch. The records come as a shuffle brings them: sorted batches,
made one after the other, so that nothing but the task can hold them.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cbp import DataflowBuilder, Input, Output, State, Translate
from cbp.clock import MACHINE
from cbp.engine.columnar.arrow_types import arrow_type
from cbp.engine.columnar.key_hash import bucket_of, key_hash
from cbp.engine.direct import DirectEngine
from cbp.engine.interface.runs import RunPlan
from cbp.engine.run.executor import LocalExecutor
from cbp.engine.task.reports import TaskReport
from cbp.engine.task.stage_task import StageTask
from cbp.engine.task.task_plan import TaskPlan
from cbp.model.flow.increment import DataFile, Increment
from tests.driver import Driver
from tests.huge import Peak

SCHEMA = "site STRING, url STRING, n BIGINT"
EVERY = 10
"""One of so many records is emitted."""

_BATCH_ROWS = 10_000
_SMALL = ("example.com", "example.net")


class Visits(Translate):
    """Adds up a site's visits and passes some of them on, in their order."""

    visits = Input(SCHEMA, route_by="site", order_by="n")
    totals = State("site STRING, many BIGINT, total BIGINT", grouping="inner")
    some = Output("site STRING, url STRING, n BIGINT")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        many = total = 0
        before = -1
        for visit in group.visits:
            many, total = many + 1, total + visit.n
            if visit.n < before:
                message = f"{visit.n} came behind {before}"
                raise ValueError(message)
            before = visit.n
            if visit.n % EVERY == 0:
                out.some(*visit)
        for row in group.totals:
            many, total = many + row.many, total + row.total
        out.totals(key.site, many, total)


class OuterVisits(Visits):
    """The same, where groups are called because they have state, too."""

    visits = Input(SCHEMA, route_by="site", order_by="n")
    totals = State("site STRING, many BIGINT, total BIGINT", grouping="outer")
    some = Output("site STRING, url STRING, n BIGINT")


class Fed(LocalExecutor):
    """One task, to which the records of an increment come as from a shuffle."""

    slots = 1

    def execute(self, plan: RunPlan, task: TaskPlan) -> list[TaskReport]:
        """Run it on batches made up here instead of the increment's file."""
        (increment,) = plan.inputs["visits"]
        return StageTask(task, 0, "0").run(batches(task, increment.records))


def batches(task: TaskPlan, records: int) -> Iterator[pa.RecordBatch]:
    """Yield one record of each small site, all others of the large one, as they are sorted."""
    assert task.layout is not None
    assert task.spec.key is not None
    types = [field.type for field in task.spec.key.fields]
    sites = {site: 1 for site in _SMALL} | {"example.org": records - len(_SMALL)}
    hashes = {site: key_hash([site], types) for site in sites}
    slots = {name: arrow_type(type_) for name, type_ in task.layout.slots}
    (flow,) = task.layout.flows
    for site in sorted(sites, key=lambda site: hashes[site] % 2**64):
        for start in range(0, sites[site], _BATCH_ROWS):
            n = np.arange(start, min(start + _BATCH_ROWS, sites[site]))
            url = pc.binary_join_element_wise(f"http://{site}/", pa.array(n).cast(pa.string()), "")
            columns = {"site": pa.array([site] * len(n)), "url": url, "n": pa.array(n)}
            sources = flow.sources()
            yield pa.RecordBatch.from_pydict(
                {
                    "_flow": pa.array(np.zeros(len(n), np.int8)),
                    "_bucket": pa.array(
                        np.full(len(n), bucket_of(hashes[site], task.buckets), np.int32)
                    ),
                    "_hash": pa.array(np.full(len(n), hashes[site], np.int64)),
                    **{
                        slot: columns[str(sources[slot])].cast(type_)
                        for slot, type_ in slots.items()
                    },
                    "_seq": pa.array(n),
                }
            )


def main(grouping: str, rows: int, folder: Path) -> None:
    """Run the epochs of the module header."""
    builder = DataflowBuilder("huge")
    visits = builder.source("visits", SCHEMA)
    translator = {"inner": Visits, "outer": OuterVisits}[grouping]()
    builder.stage("sites", translator, buckets=2, visits=visits)
    engine = DirectEngine(Fed(), cache=str(folder / "cache"))
    driver = Driver(engine, builder.build(), folder / "t")
    peak, large = Peak(), rows - len(_SMALL)
    for epoch in range(2):
        peak.bytes, started = 0, MACHINE.seconds()
        driver._enqueue(Increment("visits", epoch, epoch, (DataFile("unread", rows, 1),)))
        driver.run_until_idle()
        state = {
            row["site"]: (row["many"], row["total"]) for row in driver.state("sites", "totals")
        }
        increment = driver.increments["sites.some"][epoch]
        step = {
            "epoch": epoch,
            "grouping": grouping,
            "seconds": round(MACHINE.seconds() - started, 1),
            "groups": driver.figures[-1]["groups"],
            "state": [*state["example.org"], len(state)],
            "state_expected": [
                (epoch + 1) * large,
                (epoch + 1) * large * (large - 1) // 2,
                1 + len(_SMALL),
            ],
            "records": sum(file.records for file in increment.files),
            "expected": len(_SMALL) + -(-large // EVERY),
            "anonymous_bytes_peak": peak.bytes,
        }
        assert step["state"] == step["state_expected"], step
        print(json.dumps(step), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))
