"""How many tasks a run has: one for few records, as many as there are slots for many."""

from __future__ import annotations

from pathlib import Path

import pytest

from cbp.engine.direct import DirectEngine
from cbp.engine.executor import LocalExecutor
from cbp.engine.planning import ROWS_PER_TASK
from tests.cbp.engine.test_direct import dataflow_of
from tests.driver import Driver

MANY = 4 * ROWS_PER_TASK["groupwise"] + 1


class FourSlots(LocalExecutor):
    """Four tasks at a time, as far as planning is told."""

    slots = 4


@pytest.mark.parametrize(
    ("case", "records", "tasks"),
    [
        ("url_count", 1, 1),
        ("url_count", 2_000, 1),
        ("url_count", 2_001, 2),
        ("url_count", 4_001, 3),
        ("url_count", MANY, 4),
        ("clock", 1, 4),
        ("clock", 2_001, 4),
        ("clock", MANY, 4),
    ],
)
def test_small_increments_have_few_tasks(
    case: str, records: int, tasks: int, tmp_path: Path
) -> None:
    """A task for each 2,000 records up to the slots; state that is grouped outer has them all."""
    dataflow = dataflow_of(case, buckets=8)
    driver = Driver(DirectEngine(FourSlots(), cache=str(tmp_path / "c")), dataflow, tmp_path / "t")
    (source,) = dataflow.sources
    columns = dataflow.sources[source].schema.names
    driver.feed(source, [dict.fromkeys(columns) for _ in range(records)])
    driver.run_until_idle()
    assert driver.figures[-1]["tasks"] == tasks


def test_there_are_never_more_tasks_than_buckets(tmp_path: Path) -> None:
    """A bucket has one task, however many slots are free."""
    engine = DirectEngine(FourSlots(), cache=str(tmp_path / "c"))
    driver = Driver(engine, dataflow_of("url_count", buckets=2), tmp_path / "t")
    driver.feed("s_urls", [{"url": str(at)} for at in range(MANY)])
    driver.run_until_idle()
    assert driver.figures[-1]["tasks"] == 2
