"""What an author of whole runs keeps in memory: given only where the states are still the same.

The author of these tests compares what is recalled with all records of the state, in every run, so
a value of another state fails the run.
"""

from __future__ import annotations

import tempfile
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cbp import Input, State, TranslateRun, View
from cbp.engine.direct import LocalEngine
from cbp.engine.interface.runs import RunPlan
from cbp.engine.interface.tables import Target
from cbp.engine.kernel.arrow.remembered import NOTHING, Remembered
from cbp.engine.run.executor import LocalExecutor
from cbp.engine.storage.engine_limits import DEFAULT_LIMITS, EngineLimits
from cbp.engine.task.reports import TaskReport
from cbp.engine.task.task_plan import TaskPlan
from cbp.engine.workers.worker_executor import WorkerExecutor
from cbp.errors import AuthorCodeError
from cbp.model.flow.generation import Generation
from cbp.model.flow.position import Position, StagePosition
from cbp.model.run.account import ways
from tests.cbp.engine.epochs import assert_same
from tests.cbp.engine.kept_runs import merging_limits
from tests.cbp.engine.task.test_run_work import dataflow_of
from tests.driver import Driver
from tests.sampling import examples

ORDERS = {"orders": "k STRING, n INT"}


class Ledger(TranslateRun):
    """Keep the last number of each name, without null; remember all of them."""

    orders = Input("k STRING, n INT", route_by="k")
    held = State("k STRING, n INT", keep=True, key="k")
    board = View("k STRING, n INT", key="k", keep=True)

    def translate(self, tables: Any, out: Any) -> str:
        """Change what is recalled, and compare it with the state first."""
        found = tables.held.all().to_pydict()
        there = dict(zip(found["k"], found["n"], strict=True))
        recalled = tables.recall()
        if recalled not in (None, there):
            message = f"recalled {recalled}, but there is {there}"
            raise AssertionError(message)
        now = there if recalled is None else recalled
        last = dict(zip(*tables.orders.to_pydict().values(), strict=True))
        now |= last
        for k in [k for k, n in last.items() if n is None]:
            now.pop(k)
        if "fail" in last:
            message = "as ordered"
            raise ValueError(message)
        puts = [k for k in last if k in now]
        gone = {"k": [k for k in last if k not in now]}
        for state in (out.held, out.board):
            state({"k": puts, "n": [now[k] for k in puts]})
            state.delete(gone)
        out.remember(now, 1_000)
        return "anew" if recalled is None else "recalled"


class Workers(LocalExecutor):
    """Carries out tasks as one of several processes does, each of which has its own memory."""

    worker = 0

    def execute(self, plan: RunPlan, task: TaskPlan) -> list[TaskReport]:
        """Let the worker whose turn it is do it."""
        return super().execute(plan, replace(task, cache=f"{task.cache}/{self.worker}"))


def ledger(folder: Path, limits: EngineLimits = DEFAULT_LIMITS) -> tuple[Driver, Workers]:
    """Return a driver of a ledger, and its workers."""
    workers = Workers()
    engine = LocalEngine(cache=f"{folder}/cache", executor=workers, limits=limits)
    return Driver(engine, dataflow_of(Ledger(), ORDERS), folder / "t"), workers


def run(driver: Driver, orders: dict[str, int | None]) -> str:
    """Feed orders, run, and return which way the run went."""
    driver.feed("s_orders", [{"k": k, "n": n} for k, n in orders.items()])
    driver.run_until_idle()
    return ways(driver.figures[-1])[0]


def held(driver: Driver, state: str = "held") -> dict[str, int]:
    """Return all records."""
    return {row["k"]: row["n"] for row in driver.state("stage", state)}


def roll_back(driver: Driver, epoch: int) -> None:
    """Roll the stage's tables back to an epoch, and let the driver go on from there."""
    node, generation = driver.dataflow.stages["stage"], driver.generation + 1
    target = Target(driver.dataflow.name, epoch, generation, next(driver.clock))
    driver.engine.publisher.rewind(driver.folder, node, target, records=lambda after: [])
    position = Position(driver.dataflow.name, {"stage": StagePosition(epoch + 1, None, {})}, ())
    undone = {"stage": driver.epochs["stage"]}
    driver.log.put_generation(Generation(generation, position, undone, next(driver.clock)))
    driver.epochs["stage"], driver.generation = epoch + 1, generation


def test_what_the_run_before_remembered_is_recalled(tmp_path: Path) -> None:
    """By the next run of the same process; a process that starts has nothing."""
    driver, workers = ledger(tmp_path)
    went = [run(driver, {"a": 1, "b": 2}), run(driver, {"a": 3}), run(driver, {"b": None})]
    assert went == ["anew", "recalled", "recalled"]
    assert held(driver) == held(driver, "board") == {"a": 3}
    workers.worker = 1
    assert run(driver, {"c": 1}) == "anew"


def test_workers_in_turn_recall_nothing_that_the_other_changed(tmp_path: Path) -> None:
    """Each finds its own value stale, until the state is again as it left it."""
    driver, workers = ledger(tmp_path)
    went = list[str]()
    for number, workers.worker in enumerate([0, 1, 0, 1, 1]):
        went.append(run(driver, {"a": number, f"b{number}": 1}))
    assert went == ["anew", "anew", "anew", "anew", "recalled"]
    assert held(driver) == {"a": 4, **{f"b{number}": 1 for number in range(5)}}


def test_a_run_that_fails_leaves_nothing_half_changed(tmp_path: Path) -> None:
    """It had changed the value; the next one reads the state."""
    driver, _ = ledger(tmp_path)
    run(driver, {"a": 1})
    driver.feed("s_orders", [{"k": "a", "n": 7}, {"k": "fail", "n": 1}])
    with pytest.raises(AuthorCodeError, match="as ordered"):
        driver.run_until_idle()
    assert held(driver) == {"a": 1}
    with pytest.raises(AuthorCodeError, match="as ordered"):
        driver.run_until_idle()


def test_a_worker_process_recalls_until_it_ends(tmp_path: Path) -> None:
    """As in a service: the same idle worker has the next run; a restarted service reads."""
    driver, _ = ledger(tmp_path)
    went = list[str]()
    lives: list[list[dict[str, int | None]]] = [
        [{"a": 1, "b": 1}, {"a": 2}, {"b": None}],
        [{"c": 3}, {"c": 4}],
    ]
    for orders in lives:
        with closing(WorkerExecutor()) as workers:
            driver.engine = LocalEngine(cache=f"{tmp_path}/cache", executor=workers)
            went += [run(driver, one) for one in orders]
    assert went == ["anew", "recalled", "recalled", "anew", "recalled"]
    assert held(driver) == {"a": 2, "c": 4}


def test_memory_is_bounded_and_what_was_kept_first_goes() -> None:
    """One name has one value, and the bytes of all are at most the bound."""
    memory = Remembered()
    for name, size in (("a", 40), ("b", 40), ("a", 30), ("c", 40)):
        memory.put(name, name, size, {}, most=100)
    assert memory.bytes == 70
    assert [memory.take(name, dict) for name in "abca"] == [("a", 30), NOTHING, ("c", 40), NOTHING]
    memory.put("d", "d", 101, {}, most=100)
    assert (memory.take("d", dict), memory.bytes) == (NOTHING, 0)


def test_what_is_larger_than_the_bound_is_not_kept(tmp_path: Path) -> None:
    """A quarter of what a whole run may hold."""
    driver, _ = ledger(tmp_path, EngineLimits(whole_run_bytes=3_999))
    assert [run(driver, {"a": 1}), run(driver, {"a": 2})] == ["anew", "anew"]


_orders = st.dictionaries(st.sampled_from("abcde"), st.none() | st.integers(0, 3), min_size=1)


@settings(max_examples=examples(25), deadline=None)
@given(
    steps=st.lists(
        st.tuples(st.sampled_from(["run", "run", "run", "back"]), st.integers(0, 1), _orders),
        min_size=2,
        max_size=9,
    ),
    merging=st.booleans(),
    publish_every=st.integers(1, 3),
)
def test_any_history_gives_the_records_of_the_orders(
    steps: list[tuple[str, int, dict[str, int | None]]], merging: bool, publish_every: int
) -> None:
    """Two workers, deletions that are published or not, files that are merged, and roll-backs."""
    limits = merging_limits() if merging else DEFAULT_LIMITS
    with tempfile.TemporaryDirectory() as place:
        driver, workers = ledger(Path(place), limits)
        driver.publish_every = publish_every
        past: list[dict[str, int]] = []
        for what, workers.worker, orders in steps:
            if what == "back" and len(past) > 1:
                driver.publish()
                del past[1 + len(orders) % len(past) :]
                roll_back(driver, len(past) - 1)
            run(driver, orders)
            last = past[-1] if past else {}
            past.append({k: n for k, n in {**last, **orders}.items() if n is not None})
        driver.publish()
        assert held(driver) == held(driver, "board") == past[-1]


@settings(max_examples=examples(8), deadline=None)
@given(epochs=st.lists(_orders, min_size=1, max_size=5), merging=st.booleans())
def test_every_epoch_equals_the_reference(
    epochs: list[dict[str, int | None]], merging: bool
) -> None:
    """The reference remembers nothing."""
    limits = merging_limits() if merging else DEFAULT_LIMITS
    with tempfile.TemporaryDirectory() as place:
        driver, _ = ledger(Path(place), limits)
        days = [{"orders": [{"k": k, "n": n} for k, n in one.items()]} for one in epochs]
        assert_same(driver.dataflow, driver, days)
