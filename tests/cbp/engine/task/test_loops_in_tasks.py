"""Loops in several tasks: the reference's results, whatever their number, and wherever one dies."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cbp import Dataflow, Input, Loopback, Output, Translate, View, by
from cbp.engine.direct import DirectEngine
from cbp.engine.storage.engine_limits import DEFAULT_LIMITS, EngineLimits
from cbp.engine.storage.failpoints import NO_FAULTS
from cbp.errors import AuthorCodeError, RunTooLargeError
from tests.cbp.engine.epochs import NARROW, assert_same
from tests.cbp.engine.small_limits import small_limits
from tests.cbp.engine.task.test_aggregates import NUMBERS as SUMMANDS
from tests.cbp.engine.task.test_supersteps import CASES as LOOPS
from tests.cbp.engine.task.test_supersteps import Dying
from tests.driver import Driver
from tests.loops import (
    Components,
    Fails,
    Halves,
    HalvesArrow,
    Ranks,
    Ripples,
    Swells,
    loop_of,
)
from tests.loops_in_tasks import OneByOne, ThreadsExecutor
from tests.planned_faults import Crash, PlannedFaults
from tests.sampling import examples

_numbers = st.lists(
    st.fixed_dictionaries({"k": st.integers(0, 4), "n": st.sampled_from(SUMMANDS)}), max_size=6
)
CASES: dict[str, tuple[type, str, str, st.SearchStrategy[Any]]] = {
    **LOOPS,
    "halves": (Halves, "items", "k BIGINT, n DOUBLE", _numbers),
    "halves-arrow": (HalvesArrow, "items", "k BIGINT, n DOUBLE", _numbers),
}
LINKS = "src BIGINT, dst BIGINT"
PATH = [{"src": node, "dst": node + 1} for node in range(40)]


def split(limits: EngineLimits = DEFAULT_LIMITS, **changed: int) -> EngineLimits:
    """Return limits by which a task is worth two records."""
    return replace(limits, rows_per_loop_task=2, **changed)


@pytest.mark.part(every=3)
@pytest.mark.parametrize("tasks", [2, 3])
@pytest.mark.parametrize(
    ("case", "hash_mask"),
    [*((case, -1) for case in CASES), ("ripples", NARROW), ("tides", NARROW)],
    ids=[*CASES, "ripples-colliding", "tides-colliding"],
)
@settings(max_examples=examples(3), deadline=None)
@given(data=st.data())
def test_every_epoch_equals_the_reference(
    case: str, hash_mask: int, tasks: int, data: st.DataObject
) -> None:
    """States, outputs and their order, messages that are left, aggregates to the last bit."""
    translator, name, schema, epoch = CASES[case]
    epochs = data.draw(st.lists(epoch, min_size=1, max_size=4))
    limits = split(small_limits() if data.draw(st.booleans()) else DEFAULT_LIMITS)
    dataflow = loop_of(translator(), **{name: schema})
    with tempfile.TemporaryDirectory() as folder:
        executor = ThreadsExecutor(tasks)
        cache = f"{folder}/cache"
        engine = DirectEngine(executor, cache=cache, hash_mask=hash_mask, limits=limits)
        driver = Driver(engine, dataflow, Path(folder) / "t")
        assert_same(dataflow, driver, [{name: rows} for rows in epochs], ordered=hash_mask == -1)
        first: list[Any] = next((rows for rows in epochs if rows), [])
        if first:
            assert executor.ran[0] == min(tasks, -(-len(first) // 2))


class DyingTasks(Dying):
    """A driver of whose tasks, which are threads, one dies after some supersteps of them all."""

    def run_or_die(self, stage: str, passage: int, *, point: str = "superstep.after") -> bool:
        """See `Dying`."""
        engine: Any = self.engine
        engine.preparer.faults = OneByOne(PlannedFaults(point, passage=passage))
        try:
            return Driver.run(self, stage)
        finally:
            engine.preparer.faults = NO_FAULTS


@pytest.mark.part(every=3)
@pytest.mark.parametrize("tasks", [2, 3])
@pytest.mark.parametrize("case", CASES)
@settings(max_examples=examples(3), deadline=None)
@given(data=st.data())
def test_another_try_goes_on_where_a_task_died(case: str, tasks: int, data: st.DataObject) -> None:
    """Whichever task dies, in whatever superstep: all is as in the reference, which never dies."""
    translator, name, schema, epoch = CASES[case]
    epochs = data.draw(st.lists(epoch, min_size=1, max_size=3))
    passages = data.draw(st.lists(st.integers(1, 9), min_size=1, max_size=6))
    spool = data.draw(st.sampled_from([100, 1 << 20]))
    limits = split(superstep_log_ms=0, spool_bytes=spool)
    dataflow = loop_of(translator(), **{name: schema})
    with tempfile.TemporaryDirectory() as folder:
        engine = DirectEngine(ThreadsExecutor(tasks), cache=f"{folder}/cache", limits=limits)
        driver = DyingTasks(engine, dataflow, Path(folder) / "t", passages=passages)
        assert_same(dataflow, driver, [{name: rows} for rows in epochs])
        left = [path for path in Path(folder).rglob("*.log") if path.is_file()]
        assert not left, "published, so nothing is needed"


def driver_of(
    folder: Path, tasks: int, dataflow: Dataflow, kind: Callable[..., Driver] = Driver, **more: Any
) -> Driver:
    """Return a driver whose loops have so many tasks, and log each superstep."""
    limits = split(superstep_log_ms=0, **more.pop("limits", {}))
    engine = DirectEngine(ThreadsExecutor(tasks), cache=str(folder / "cache"), limits=limits)
    return kind(engine, dataflow, folder / "t", **more)


def test_a_try_goes_on_from_the_last_snapshot_of_all_tasks(tmp_path: Path) -> None:
    """A task that was killed before its snapshot has the one before, and so have all others."""
    dataflow = loop_of(Components(), links=LINKS)
    driver = driver_of(tmp_path, 2, dataflow, DyingTasks, passages=[30])
    whole = driver_of(tmp_path / "whole", 1, dataflow)
    for one in (whole, driver):
        one.feed("s_links", PATH)
        one.run_until_idle()
    figures, expected = driver.figures[-1], whole.figures[-1]
    assert figures["supersteps_before"] == 14, "passage 30 is in superstep 15 of one of two tasks"
    assert figures["tasks"] == 2
    for name in ("supersteps", "groups", "messages", "records_in", "state_written"):
        assert figures[name] == expected[name], name
    assert driver.outputs("stage.labels") == whole.outputs("stage.labels")


def test_a_snapshot_has_the_outputs_of_all_tasks(tmp_path: Path) -> None:
    """Also those that make them too many for the next snapshot."""
    dataflow = loop_of(Ripples(), orders="k STRING, to STRING, verb STRING, n INT")
    names, small = ("k", "to", "verb", "n"), {"spool_bytes": 100}
    orders = [("a", "a", "take", 0), ("b", "a", "zero", 3), ("c", "c", "take", 5)]
    driver = driver_of(tmp_path, 3, dataflow, DyingTasks, passages=[7], limits=small)
    epoch = [dict(zip(names, one, strict=True)) for one in orders]
    assert_same(dataflow, driver, [{"orders": epoch}])


def test_a_damaged_snapshot_of_one_task_begins_all_anew(tmp_path: Path) -> None:
    """They agree on it, so none goes on alone."""
    driver = driver_of(tmp_path, 2, loop_of(Components(), links=LINKS), DyingTasks, passages=[])
    assert isinstance(driver, DyingTasks)
    driver.feed("s_links", PATH)
    with pytest.raises(Crash):
        driver.run_or_die("stage", 30)
    logs = sorted(tmp_path.rglob("*-2.1.*.log"))
    assert 1 <= len(logs) <= 2, "the one before is kept until all have the next"
    for log in logs:
        log.write_bytes(log.read_bytes()[:-1])
    driver.run_until_idle()
    assert "supersteps_before" not in driver.figures[0]
    whole = driver_of(tmp_path / "whole", 1, driver.dataflow)
    whole.feed("s_links", PATH)
    whole.run_until_idle()
    assert driver.outputs("stage.labels") == whole.outputs("stage.labels")


def test_a_try_goes_on_from_snapshots_of_one_try(tmp_path: Path) -> None:
    """One that only some tasks had put is removed before any task puts another."""
    driver = driver_of(tmp_path, 2, loop_of(Components(), links=LINKS), DyingTasks, passages=[])
    assert isinstance(driver, DyingTasks)

    def supersteps() -> list[int]:
        return sorted(int(log.stem.rpartition(".")[2]) for log in tmp_path.rglob("*-2.?.*.log"))

    driver.feed("s_links", PATH)
    with pytest.raises(Crash):
        driver.run_or_die("stage", 30)
    assert supersteps() == [14, 14, 15]
    with pytest.raises(Crash):
        driver.run_or_die("stage", 1, point="superstep.before")
    assert supersteps() == [14, 14]


@pytest.mark.parametrize("tasks", [1, 2, 3])
def test_the_error_is_that_of_a_single_task(tasks: int, tmp_path: Path) -> None:
    """The error is of the first failing group in order, and nothing changes."""
    dataflow = loop_of(Fails(), items="k BIGINT, n BIGINT")
    driver = driver_of(tmp_path, tasks, dataflow)
    driver.feed("s_items", [{"k": k, "n": 9} for k in range(0, 60, 5)])
    with pytest.raises(AuthorCodeError) as caught:
        driver.run_until_idle()
    alone = driver_of(tmp_path / "alone", 1, dataflow)
    alone.feed("s_items", [{"k": k, "n": 9} for k in range(0, 60, 5)])
    with pytest.raises(AuthorCodeError) as expected:
        alone.run_until_idle()
    assert caught.value.message == expected.value.message
    assert driver.state("stage", "calls") == []


@pytest.mark.parametrize("tasks", [2, 3])
def test_a_loop_larger_than_memory_is_that_of_a_single_task(tasks: int, tmp_path: Path) -> None:
    """Messages go in pieces, and what arrives goes to temporary files."""
    dataflow = loop_of(Swells(), items="k BIGINT, n BIGINT")
    small = {"whole_run_bytes": 100_000, "whole_run_spill": 1 << 10, "message_sort_bytes": 20_000}
    ends = []
    for many in (1, tasks):
        driver = driver_of(tmp_path / str(many), many, dataflow, limits=small)
        driver.feed("s_items", [{"k": k, "n": 9} for k in range(1, 7)])
        driver.run_until_idle()
        figures = driver.figures[0]
        assert figures["tasks"] == many
        counted = ("supersteps", "groups", "messages")
        ends.append([driver.outputs("stage.calls"), *(figures[name] for name in counted)])
    assert ends[0] == ends[1]


def test_a_task_without_room_ends_the_loop(tmp_path: Path) -> None:
    """With its own bytes; the others say nothing of it."""
    dataflow = loop_of(Swells(), items="k BIGINT, n BIGINT")
    small = {"whole_run_bytes": 100_000, "whole_run_spill": 0}
    driver = driver_of(tmp_path, 2, dataflow, limits=small)
    driver.feed("s_items", [{"k": k, "n": 12} for k in range(1, 5)])
    with pytest.raises(RunTooLargeError):
        driver.run_until_idle()


class Odd(Translate):
    """Passes numbers on by a function that fails for a key; a superstep of all ends before that."""

    items = Input("k BIGINT, n BIGINT", route_by="k")
    on = Loopback(
        "k BIGINT, n BIGINT",
        route_by=by(lambda one: one.k if one.k != 7 else 1 // 0, "BIGINT"),
        supersteps=3,
    )
    calls = View("k BIGINT, calls BIGINT", key="k")
    log = Output("k BIGINT, n BIGINT")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        """Pass each number on to the next key."""
        for one in (*group.items, *group.on):
            out.log(key.k, one.n)
            out.on(key.k + 1, one.n - 1)
        out.calls(key.k, 1 + sum(row.calls for row in group.calls))


@pytest.mark.parametrize("tasks", [1, 2])
@pytest.mark.parametrize(("first", "fails"), [(6, True), (5, True), (4, False)])
def test_a_message_without_a_key_fails_only_if_it_is_read(
    first: int, fails: bool, tasks: int, tmp_path: Path
) -> None:
    """A message that no superstep reads is an increment, whose key another run computes."""
    driver = driver_of(tmp_path, tasks, loop_of(Odd(), items="k BIGINT, n BIGINT"))
    driver.feed("s_items", [{"k": first, "n": 3}, *({"k": 100 + k, "n": 3} for k in range(9))])
    if fails:
        with pytest.raises(AuthorCodeError, match="on"):
            driver.run("stage")
        return
    driver.run("stage")
    assert driver.figures[0]["supersteps"] == 3


def test_sums_are_exact_whatever_the_tasks(tmp_path: Path) -> None:
    """Ranks that end by a sum below a bound are the same bits, and end in the same superstep."""
    dataflow, ends = loop_of(Ranks(), links=LINKS), []
    links = [{"src": n, "dst": dst % 12} for n in range(12) for dst in (n + 1, n * n + 2)]
    for tasks in (1, 2, 3):
        driver = driver_of(tmp_path / str(tasks), tasks, dataflow)
        driver.feed("s_links", links)
        driver.run_until_idle()
        assert driver.figures[0]["tasks"] == tasks
        ends.append((driver.figures[0]["supersteps"], driver.outputs("stage.ranks")))
    assert ends[0] == ends[1] == ends[2]
