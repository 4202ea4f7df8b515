"""Timers on the direct engine: who is called, what it costs, and which time is recorded.

The differential tests (`reminders`, `nudges` in tests/cbp/engine/epochs.py) hold the results.
"""

from __future__ import annotations

import tempfile
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cbp import Input, Output, State, Timers, Translate, TranslateSql
from cbp.engine.direct import LocalEngine
from cbp.errors import DefinitionError
from cbp.model.dataflow.run_context import microseconds, time_of
from tests.cbp.engine.epochs import FIRST_MS, NARROW, dataflow_of
from tests.cbp.engine.small_limits import small_limits
from tests.driver import Driver
from tests.forms import arrow_form
from tests.sampling import examples

HOUR_MS = 3_600_000


def driver_of(folder: Path, *, hash_mask: int = -1, form: str = "groupwise") -> Driver:
    engine = LocalEngine(cache=f"{folder}/cache", hash_mask=hash_mask, limits=small_limits())
    dataflow = dataflow_of("reminders")
    if form == "arrow":
        node = dataflow.stages["stage"]
        stages = {"stage": replace(node, translator=arrow_form(node.translator))}
        dataflow = replace(dataflow, stages=stages)
    driver = Driver(engine, dataflow, folder / "t")
    driver.time_ms = FIRST_MS
    return driver


def order(driver: Driver, *waits: tuple[int, int]) -> None:
    driver.feed("s_orders", [{"k": k, "wait": wait} for k, wait in waits])
    driver.run_until_idle()


def pending(driver: Driver) -> list[datetime]:
    return sorted(row["at"] for row in driver.state("stage", "wake"))


@pytest.mark.parametrize("form", ["groupwise", "arrow"])
@pytest.mark.parametrize("hash_mask", [-1, NARROW], ids=["hash", "colliding"])
def test_only_groups_with_a_due_timer_are_called(hash_mask: int, form: str, tmp_path: Path) -> None:
    """The others are not even if they share a hash; no record of theirs is written again."""
    driver = driver_of(tmp_path, hash_mask=hash_mask, form=form)
    order(driver, *((k, 2 if k % 10 == 3 else 200) for k in range(100)))
    live = {path for path in (tmp_path / "t/state/stage.wake").rglob("*.parquet")}
    driver.time_ms += 2 * HOUR_MS
    assert driver.run("stage")
    figures = driver.figures[-1]
    assert (figures["groups"], figures["records_in"], figures["state_removed"]) == (10, 0, 10)
    assert figures["state_written"] == 0
    (_, fired) = driver.outputs("stage.log")
    assert sorted(row["k"] for row in fired) == list(range(3, 100, 10))
    assert live == {path for path in (tmp_path / "t/state/stage.wake").rglob("*.parquet")}
    assert len(pending(driver)) == 90
    assert not driver.run("stage")


@pytest.mark.parametrize("hash_mask", [-1, NARROW], ids=["hash", "colliding"])
@settings(max_examples=examples(10), deadline=None)
@given(data=st.data())
def test_the_recorded_time_is_never_later_than_a_timer(hash_mask: int, data: st.DataObject) -> None:
    """Nor is it in the past after a run, so that a stage does not run for ever for one timer."""
    with tempfile.TemporaryDirectory() as folder:
        driver = driver_of(Path(folder), hash_mask=hash_mask)
        for _ in range(data.draw(st.integers(1, 6))):
            driver.time_ms += data.draw(st.integers(0, 3 * HOUR_MS))
            waits = data.draw(st.lists(st.tuples(st.integers(0, 4), st.integers(1, 4))))
            order(driver, *waits)
            due_ms, left = driver.due_ms.get("stage"), pending(driver)
            assert (due_ms is None) <= (not left)
            if due_ms is not None:
                assert driver.time_ms < due_ms
                assert not left or due_ms <= -(-microseconds(left[0]) // 1000)


def test_the_time_of_a_timer_that_was_dropped_is_recorded_until_it_passes(tmp_path: Path) -> None:
    """The bound costs one run without a group, which finds the next time."""
    driver = driver_of(tmp_path)
    order(driver, (1, 2), (2, 4))
    driver.time_ms += HOUR_MS
    order(driver, (1, 3))  # drops what was pending, and sets a later one
    assert driver.due_ms["stage"] == FIRST_MS + 2 * HOUR_MS
    driver.time_ms += HOUR_MS
    assert driver.run("stage")
    assert driver.figures[-1]["groups"] == 0
    assert driver.due_ms["stage"] == FIRST_MS + 4 * HOUR_MS
    assert [at for at in pending(driver)] == [time_of(FIRST_MS + 4 * HOUR_MS)] * 2


def test_a_run_before_the_due_time_does_not_look_at_timers(tmp_path: Path) -> None:
    """It looks up the timers of its own groups; the state of another bucket is not opened."""
    driver = driver_of(tmp_path)
    order(driver, *((k, 100) for k in range(40)))
    order(driver, (0, 50))
    alone = driver.figures[-1]["lookups_index"] + driver.figures[-1]["lookups_scan"]
    driver.due_ms["stage"] = 0
    order(driver, (0, 50))
    every = driver.figures[-1]["lookups_index"] + driver.figures[-1]["lookups_scan"]
    assert every > alone
    assert driver.due_ms["stage"] == FIRST_MS + 50 * HOUR_MS


class _Base(Translate):
    orders = Input("k BIGINT, at BIGINT", route_by="k")
    lines = Output("k BIGINT")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        pass


class Outer(_Base):
    wake = Timers()
    all = State("k BIGINT", grouping="outer")


class Keyed(_Base):
    orders = Input("k BIGINT, at BIGINT", route_by="k, at")
    wake = Timers()


class Given(_Base):
    wake = Timers("at TIMESTAMP, why STRING")


class Unset(TranslateSql):
    orders = Input("k BIGINT", route_by="k")
    wake = Timers()
    lines = Output("k BIGINT")
    queries = {"lines": "SELECT k FROM orders"}  # noqa: RUF012 - of the class


class Single(_Base):
    orders = Input("k BIGINT, at BIGINT")
    wake = Timers()


@pytest.mark.parametrize(
    ("translator", "code"),
    [
        (Outer, "timers_with_outer"),
        (Keyed, "timers_key"),
        (Given, "timers_invalid"),
        (Unset, "query_missing"),
        (Single, "route_by_missing"),
    ],
)
def test_timers_that_cannot_be_are_refused(translator: Any, code: str) -> None:
    """With a code, before any data comes."""
    with pytest.raises(DefinitionError) as caught:
        translator().spec()
    assert caught.value.mistake.code == code
