"""Expiry of state on the direct engine: what it costs, large groups, and what is refused.

The differential tests (`parting`, `parting_items` in tests/cbp/engine/epochs.py) hold the results.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cbp import Input, Output, State, Timers, Translate, View
from cbp.engine.direct import LocalEngine
from cbp.errors import AuthorCodeError, DefinitionError
from cbp.model.dataflow.expiry import expires_at
from cbp.model.dataflow.run_context import microseconds, time_of
from cbp.testing import run_epochs
from tests.cbp.engine.epochs import FIRST_MS, NARROW, assert_same, dataflow_of
from tests.cbp.engine.small_limits import small_limits
from tests.driver import Driver
from tests.forms import arrow_form
from tests.timed_flows import Parting

HOUR_MS = 3_600_000


def driver_of(
    folder: Path, case: str = "parting", *, hash_mask: int = -1, form: str = "groupwise"
) -> Driver:
    engine = LocalEngine(cache=f"{folder}/cache", hash_mask=hash_mask, limits=small_limits())
    dataflow = dataflow_of(case)
    if form == "arrow":
        node = dataflow.stages["stage"]
        stages = {"stage": replace(node, translator=arrow_form(node.translator))}
        dataflow = replace(dataflow, stages=stages)
    return Driver(engine, dataflow, folder / "t")


@pytest.mark.part(every=2)
@pytest.mark.parametrize("hash_mask", [-1, NARROW], ids=["hash", "colliding"])
@pytest.mark.parametrize(
    ("case", "form"), [("parting", "groupwise"), ("parting", "arrow"), ("parting_items", "")]
)
def test_a_group_that_does_not_fit_in_memory_expires(
    case: str, form: str, hash_mask: int, tmp_path: Path
) -> None:
    """Its records go, those of its other states stay, as in the reference; then it comes again."""
    large: list[dict[str, Any]] = [{"k": 1, "wait": wait} for wait in range(20, 50)]
    small: list[dict[str, Any]] = [{"k": k, "wait": k} for k in (0, 2, 3)]
    if case == "parting_items":
        large = [{"k": 1, "id": wait, "verb": "put"} for wait in range(30)]
        small = [{"k": k, "id": k, "verb": "put"} for k in (0, 2)]
    epochs = [{"orders": rows} for rows in ([*large, *small], small, [], small, large[:1], [], [])]
    driver = driver_of(tmp_path, case, hash_mask=hash_mask, form=form)
    assert_same(dataflow_of(case), driver, epochs, ordered=hash_mask == -1)
    stays, expires = ("first", "items") if case == "parting_items" else ("total", "seen")
    assert driver.state("stage", stays)
    assert driver.state("stage", expires) == []


@pytest.mark.part(every=2)
@pytest.mark.parametrize("form", ["groupwise", "arrow"])
@pytest.mark.parametrize("hash_mask", [-1, NARROW], ids=["hash", "colliding"])
def test_what_does_not_expire_is_not_touched(hash_mask: int, form: str, tmp_path: Path) -> None:
    """A run for ten groups of a hundred calls none, and deletes their records and timers only."""
    driver = driver_of(tmp_path, hash_mask=hash_mask, form=form)
    driver.time_ms = FIRST_MS
    driver.feed("s_orders", [{"k": k, "wait": 1} for k in range(100)])
    driver.run_until_idle()
    driver.time_ms += HOUR_MS // 2
    driver.feed("s_orders", [{"k": k, "wait": 1} for k in range(100) if k % 10])
    driver.run_until_idle()
    driver.time_ms += HOUR_MS // 2
    assert driver.run("stage")
    figures = driver.figures[-1]
    assert (figures["groups"], figures["records_in"]) == (0, 0)
    assert (figures["state_removed"], figures["state_written"]) == (20, 0)
    assert driver.outputs("stage.log")[-1] == []
    left = {row["k"] for row in driver.state("stage", "seen")}
    assert left == {k for k in range(100) if k % 10}
    assert len(driver.state("stage", "total")) == len(driver.state("stage", "top")) == 100
    assert not driver.run("stage")


@given(time=st.integers(0, 4_000_000_000_000), age=st.integers(1000, 315_360_000_000))
def test_a_timer_is_not_before_the_age_and_at_most_a_sixteenth_later(time: int, age: int) -> None:
    """And rises with the time of the run."""
    at_ms = microseconds(expires_at(time_of(time), age)) / 1000
    assert time + age <= at_ms <= time + age + age / 16
    assert expires_at(time_of(time), age) <= expires_at(time_of(time + 1), age)


def test_the_test_kit_takes_the_times_of_its_runs() -> None:
    """Times beyond the input are runs that only drop what expired."""
    begin = time_of(FIRST_MS)
    times = [begin + timedelta(hours=hours) for hours in (0, 0.5, 1, 3)]
    orders = [[{"k": 1, "wait": 1}, {"k": 2, "wait": 1}], [{"k": 2, "wait": 1}]]
    result = run_epochs(Parting(), orders, times=times[:3])
    assert {row.k for row in result.state["seen"]} == {2}
    assert [row.n for row in result.view("top")] == [1, 2]
    result = run_epochs(Parting(), orders, times=times)
    assert (result.state["seen"], result.view("top")) == ([], [])
    assert len(result.state["total"]) == 2
    assert [row.change_type for row in result.outputs["top"][-1]] == ["delete", "delete"]


class _Base(Translate):
    orders = Input("k BIGINT, at BIGINT", route_by="k")
    lines = Output("k BIGINT")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        pass


class Keyed(_Base):
    orders = Input("k BIGINT, at BIGINT", route_by="at")
    seen = State("at BIGINT", expire="1 day")


class Outer(_Base):
    seen = State("k BIGINT", expire="1 day")
    all = State("k BIGINT", grouping="outer")


class Single(_Base):
    singles = Input("k BIGINT")
    seen = State("k BIGINT", expire="1 day")


class Taken(_Base):
    seen = State("k BIGINT", expire="1 day")
    seen_expiry = State("k BIGINT")


class Late(_Base):
    wake = Timers(expire="1 day")


def aged(age: Any) -> type[Translate]:
    return type("Aged", (_Base,), {"seen": State("k BIGINT", expire=age)})


@pytest.mark.parametrize(
    ("translator", "code"),
    [
        *((aged(age), "expire_invalid") for age in ("", "30", "0 days", "-1 days", "1.5 hours")),
        *((aged(age), "expire_invalid") for age in ("1 month", "3661 days", "9 " * 99, 30, 0)),
        (Keyed, "expire_unsupported"),
        (Outer, "expire_unsupported"),
        (Single, "expire_unsupported"),
        (Taken, "name_invalid"),
        (Late, "timers_invalid"),
    ],
)
def test_an_age_that_cannot_be_is_refused(translator: Any, code: str) -> None:
    """With a code, before any data comes."""
    with pytest.raises(DefinitionError) as caught:
        translator().spec()
    assert caught.value.mistake.code == code


@pytest.mark.parametrize("age", ["1 second", "90 minutes", "1 day", "30 days", "2 weeks"])
def test_an_age_is_a_number_and_a_unit(age: str) -> None:
    """The state has hidden timers that the author's code does not see."""
    (seen, hidden) = aged(age)().spec().states
    assert (hidden.name, hidden.expires, seen.expire_ms % 1000) == ("seen_expiry", "seen", 0)


class Remote(_Base):
    seen = State("k BIGINT", expire="1 day")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        out.seen.remote(k=1)


class Peeking(_Base):
    seen = View("k BIGINT", key="k", expire="1 day")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        list(group.seen_expiry)


@pytest.mark.parametrize(
    ("translator", "code"), [(Remote, "state_expires_remote"), (Peeking, "author_code_failed")]
)
def test_only_a_call_writes_a_state_that_expires(
    translator: Any, code: str, tmp_path: Path
) -> None:
    """No other group does, and no author sees its timers."""
    with pytest.raises(AuthorCodeError) as caught:
        run_epochs(translator(), [[{"k": 1, "at": 1}]])
    assert caught.value.code == code


@pytest.mark.parametrize("form", ["groupwise", "arrow"])
def test_a_timer_that_would_be_the_same_stays(form: str, tmp_path: Path) -> None:
    """A group that is called again within a step of its age still has its timer."""
    driver = driver_of(tmp_path, form=form)
    driver.time_ms = FIRST_MS
    timers = []
    for _ in range(2):
        driver.feed("s_orders", [{"k": k, "wait": 1} for k in (1, 2)])
        driver.run_until_idle()
        timers.append(driver.state("stage", "seen_expiry"))
    assert len(timers[0]) == 2
    assert timers[0] == timers[1]
