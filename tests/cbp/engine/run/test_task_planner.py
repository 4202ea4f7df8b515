"""How many tasks a run has: one for few records, as many as there are slots for many.

State that is grouped outer has as many tasks as there are slots.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cbp import All, DataflowBuilder, Input, RunAny, State, Translate, route
from cbp.engine.direct import DirectEngine
from cbp.engine.interface.runs import RunPlan
from cbp.engine.run.executor import LocalExecutor
from cbp.engine.run.task_planner import KINDS_MAX, FanoutEstimate
from cbp.engine.storage.engine_limits import DEFAULT_LIMITS, EngineLimits
from cbp.model.dataflow.dataflow import Dataflow
from cbp.model.flow.increment import DataFile, Increment
from cbp.model.plan.spark_or_worker import Lane, lanes_of
from tests.cbp.engine.epochs import dataflow_of
from tests.driver import Driver
from tests.loops import Components, Ranks, loop_of
from tests.loops_in_tasks import ThreadsExecutor

MANY = 4 * DEFAULT_LIMITS.rows_per_task + 1


class FourSlots(LocalExecutor):
    """Four tasks at a time, as far as planning knows."""

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
    assert lanes_of(driver.figures[-1]) == (Lane.LOCAL,)


def test_there_are_never_more_tasks_than_buckets(tmp_path: Path) -> None:
    """A bucket has one task, however many slots are free."""
    engine = DirectEngine(FourSlots(), cache=str(tmp_path / "c"))
    driver = Driver(engine, dataflow_of("url_count", buckets=2), tmp_path / "t")
    driver.feed("s_urls", [{"url": str(at)} for at in range(MANY)])
    driver.run_until_idle()
    assert driver.figures[-1]["tasks"] == 2


@pytest.mark.parametrize("case", ["url_count", "clock", "split"])
def test_a_run_takes_no_more_slots_than_it_may(case: str, tmp_path: Path) -> None:
    """However many its records or its buckets are worth, with groups or without."""
    limits = EngineLimits(rows_per_record_task=2_000)
    for slots_max, tasks in ((None, 4), (3, 3)):
        engine = DirectEngine(FourSlots(), cache=str(tmp_path / "c"), limits=limits)
        driver = Driver(engine, dataflow_of(case, buckets=8), tmp_path / f"{tasks}")
        driver.slots_max = slots_max
        (source,) = driver.dataflow.sources
        columns = driver.dataflow.sources[source].schema.names
        driver.feed(source, [dict.fromkeys(columns) for _ in range(MANY)])
        driver.run_until_idle()
        assert driver.figures[0]["tasks"] == tasks


class Told(Translate):
    """Sums by word; a tick reaches every word, and counts as one."""

    items = Input("k STRING, n BIGINT", route_by="k")
    ticks = Input("n BIGINT", route_by=route(lambda tick: All("sums"), "STRING"))
    sums = State("k STRING, n BIGINT")
    runnable = RunAny()

    def translate(self, key: Any, group: Any, out: Any) -> None:
        """Keep the sum of what came."""
        came = [row.n for rows in (group.items, group.sums, group.ticks) for row in rows]
        out.sums(k=key.k, n=sum(came))


def told() -> Dataflow:
    """Return a dataflow of one stage with eight buckets."""
    flow = DataflowBuilder("told")
    items, ticks = flow.source("items", "k STRING, n BIGINT"), flow.source("ticks", "n BIGINT")
    flow.stage("sum", Told(), items=items, ticks=ticks, buckets=8)
    return flow.build()


TOLD = told().stages["sum"]


def plan_of(folder: str = "tables", **records: int) -> RunPlan:
    """Return a run over one increment of so many records of each input that is named."""
    inputs = {
        name: (Increment(name, 0, 0, (DataFile("x.parquet", number, 1),)),)
        for name, number in records.items()
    }
    return RunPlan(folder, "told", TOLD, 0, "r", inputs)


def test_a_record_to_all_is_shared_out_once_it_is_known(tmp_path: Path) -> None:
    """One record that reached 5,000 groups has three tasks the next time; others keep theirs."""
    engine = DirectEngine(FourSlots(), cache=str(tmp_path / "c"))
    driver = Driver(engine, told(), tmp_path / "t")
    groups = 5_000
    driver.feed("items", [{"k": str(at), "n": at} for at in range(groups)])
    driver.run_until_idle()
    for wanted in (1, 3, 3):
        driver.feed("ticks", [{"n": 1}])
        driver.run_until_idle()
        assert driver.figures[-1]["groups"] == groups
        assert driver.figures[-1]["tasks"] == wanted
    driver.feed("items", [{"k": "1", "n": 1}])
    driver.run_until_idle()
    assert driver.figures[-1]["groups"] == 1
    expected = {str(at): at + 3 for at in range(groups)} | {"1": 5}
    assert {row["k"]: row["n"] for row in driver.state("sum", "sums")} == expected


def test_a_kind_that_reaches_less_again_has_fewer_tasks() -> None:
    """The last run counts, by inputs at which records came; kinds are forgotten in their order."""
    reach = FanoutEstimate()
    reach.note(plan_of(ticks=1), 9)
    assert reach.expected(plan_of(ticks=3)) == 9
    assert reach.expected(plan_of(ticks=1, items=0)) == 9
    assert reach.expected(plan_of(ticks=1, items=1)) == 0
    assert reach.expected(plan_of("other", ticks=1)) == 0
    reach.note(plan_of(ticks=1), 2)
    assert reach.expected(plan_of(ticks=1)) == 2
    for at in range(KINDS_MAX):
        reach.note(plan_of(str(at), ticks=1), 1)
    assert reach.expected(plan_of(ticks=1)) == 0
    assert reach.expected(plan_of("1", ticks=1)) == 1


@pytest.mark.parametrize(
    ("translator", "links", "more"),
    [
        (Components, 90, [(1, 1), (3, 2), (6, 3), (90, 4)]),
        (Ranks, 41, [(1, 3)]),
    ],
    ids=["inner", "outer"],
)
def test_a_loop_has_tasks_for_what_it_can_reach(
    translator: type[Translate], links: int, more: list[tuple[int, int]], tmp_path: Path
) -> None:
    """The records that come, so many of its states for each, and all of a state grouped outer."""
    limits = EngineLimits(rows_per_loop_task=20, loop_reach=9)
    engine = DirectEngine(ThreadsExecutor(4), cache=str(tmp_path / "c"), limits=limits)
    dataflow = loop_of(translator(), links="src BIGINT, dst BIGINT")
    driver = Driver(engine, dataflow, tmp_path / "t")
    first = min(4, -(-links // 20))
    for number, tasks in [(links, first), *more]:
        driver.feed("s_links", [{"src": at, "dst": at % 7} for at in range(number)])
        driver.run_until_idle()
        assert driver.figures[-1]["tasks"] == tasks
    driver.slots_max = 2
    driver.feed("s_links", [{"src": at, "dst": at % 7} for at in range(90)])
    driver.run_until_idle()
    assert driver.figures[-1]["tasks"] == 2
