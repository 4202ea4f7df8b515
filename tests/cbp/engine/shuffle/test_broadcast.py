"""What groups share: one copy per task, found by all tasks together, kept while it is needed.

A record comes to a task once, in memory and on the wire, whatever the number of groups that get it,
or of buckets; to the black box's once per group. Dead letters are found by all tasks together.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cbp.engine.direct import DirectEngine, LocalEngine
from cbp.engine.interface.garbage_collector import Retention
from cbp.engine.reference.engine import ReferenceEngine
from cbp.engine.run.executor import LocalExecutor
from cbp.engine.storage.engine_limits import EngineLimits
from cbp.errors import IncrementDamagedError
from tests.cbp.engine.broadcasts import order, sent_to_all
from tests.cbp.engine.epochs import NARROW, assert_same, dataflow_of, epochs_of
from tests.driver import Driver
from tests.sampling import examples


def driver_of(folder: Path, case: str = "probe", **options: Any) -> Driver:
    """Drive a case on an engine without Spark."""
    engine = LocalEngine(cache=str(folder / "cache"), **options)
    return Driver(engine, dataflow_of(case), folder / "t")


@pytest.mark.part(every=2)
@pytest.mark.parametrize("hash_mask", [-1, NARROW], ids=["hash", "colliding"])
@pytest.mark.parametrize("case", ["probe", "outer_probe"])
@settings(max_examples=examples(7))
@given(data=st.data())
def test_two_tasks_find_what_one_finds(
    tmp_path_factory: pytest.TempPathFactory, case: str, hash_mask: int, data: st.DataObject
) -> None:
    """Outputs, order, state, dead letters and remote writes are the reference's."""
    folder = tmp_path_factory.mktemp("shared")
    limits = EngineLimits(rows_per_task=2)
    driver = driver_of(folder, case, hash_mask=hash_mask, limits=limits)
    epochs = data.draw(epochs_of(case))
    assert_same(dataflow_of(case), driver, epochs, ordered=hash_mask == -1)
    reference = ReferenceEngine(dataflow_of(case))
    for epoch in epochs:
        for name, rows in epoch.items():
            reference.feed(f"s_{name}", rows)
        reference.run_until_idle()
    for mine, theirs in zip(driver.figures, reference.figures("stage"), strict=True):
        for name in ("records_in", "groups", "dead_letters", "state_remote"):
            assert mine.get(name, 0) == theirs[name], name


def test_bytes_do_not_grow_with_the_groups_that_get_a_record(tmp_path: Path) -> None:
    """Broadcast to 10 keys of state or to 1,000, by ALL or by an address: the same bytes."""
    few, many = (
        sent_to_all(driver_of(tmp_path / str(groups), "outer_probe"), groups)
        for groups in (10, 1000)
    )
    for with_few, with_many in zip(few, many, strict=True):
        assert 0 < with_few["bytes_broadcast"] == with_many["bytes_broadcast"] < 10_000
    assert many[1]["bytes_bindings"] > 8 * 1000


@pytest.mark.part(every=2)
@pytest.mark.parametrize(("slots", "buckets"), [(1, 64), (2, 4), (2, 64), (4, 4)])
def test_a_record_is_in_a_task_once(slots: int, buckets: int, tmp_path: Path) -> None:
    """Bytes that groups share grow with the tasks, and with nothing else: not with buckets."""
    alone, together = (
        sent_to_all(driver_on(tmp_path / f"{tasks}-{many}", tasks, many), groups=20)
        for tasks, many in ((1, 4), (slots, buckets))
    )
    for one, all_ in zip(alone, together, strict=True):
        assert all_["tasks"] == slots
        assert all_["bytes_broadcast"] == slots * one["bytes_broadcast"] > 0


def driver_on(folder: Path, slots: int, buckets: int) -> Driver:
    """Drive groups that are all called in each epoch, by so many tasks."""
    executor = LocalExecutor()
    executor.slots = slots
    engine = DirectEngine(executor, cache=str(folder / "cache"))
    return Driver(engine, dataflow_of("outer_probe", buckets=buckets), folder / "t")


def test_a_binding_of_another_epoch_reaches_nobody(tmp_path: Path) -> None:
    """What was bound before the message was sent is forgotten with the messages of that epoch."""
    driver = driver_of(tmp_path)
    driver.feed("s_orders", [order("a", "bind", "x")])
    driver.feed("s_orders", [order("a", "send", "@x")])
    driver.run_until_idle()
    assert not any(row["mail"] for epoch in driver.outputs("stage.calls") for row in epoch)
    assert driver.figures[-1]["dead_letters"] == 1


def test_messages_find_their_bindings_after_a_restart(tmp_path: Path) -> None:
    """For any reader: bindings are files that the increment names, and nothing else."""
    driver = driver_of(tmp_path)
    driver.feed("s_orders", [order("a", "bind", "x"), order("b", "send", "@x", id_=7)])
    assert driver.run("stage")
    driver.engine = LocalEngine(cache=str(tmp_path / "another"))
    assert driver.run("stage")
    (row,) = driver.outputs("stage.calls")[-1]
    assert (row["k"], row["mail"]) == ("a", [7])


def collect(driver: Driver) -> None:
    """Remove what no connector needs, as if nothing had to stay readable."""
    queued = [
        file.path
        for connectors in driver.connectors.values()
        for connector in connectors.values()
        for increment in connector.held
        for file in increment.kept
    ]
    retention = Retention(versions_min=0, versions_max=0, seconds=0, attempt_seconds=0)
    node = driver.dataflow.stages["stage"]
    driver.engine.garbage.collect(driver.folder, node, queued=lambda: queued, retention=retention)


def test_bindings_stay_as_long_as_their_messages(tmp_path: Path) -> None:
    """A collection between the epochs takes none; afterwards they go as other files do."""
    driver = driver_of(tmp_path, limits=EngineLimits(checkpoint_entries=5))
    driver.feed("s_orders", [order("a", "bind", "x"), order("b", "send", "@x", id_=7)])
    assert driver.run("stage")
    collect(driver)
    bound = list(tmp_path.rglob("*-bindings.parquet"))
    assert bound
    assert driver.run("stage")
    assert driver.outputs("stage.calls")[-1][0]["mail"] == [7]
    for _ in range(10):  # what the log still shows stays, and it shows a checkpoint and more
        driver.feed("s_orders", [order("a", "send", "a")])
        driver.run_until_idle()
    collect(driver)
    assert not any(path.exists() for path in bound)


def test_bindings_without_messages_are_not_kept(tmp_path: Path) -> None:
    """An increment without messages is read by nobody, and names no files."""
    driver = driver_of(tmp_path)
    driver.feed("s_orders", [order("a", "bind", "x")])
    driver.run_until_idle()
    (increment,) = driver.increments["stage.mail"]
    assert increment.kept == ()


def test_lost_bindings_fail_the_run(tmp_path: Path) -> None:
    """A file that is gone or cut never looks like an address that nobody bound."""
    driver = driver_of(tmp_path)
    driver.feed("s_orders", [order("a", "bind", "x"), order("b", "send", "@x")])
    assert driver.run("stage")
    (path,) = tmp_path.rglob("*-bindings.parquet")
    path.unlink()
    with pytest.raises(IncrementDamagedError) as damaged:
        driver.run("stage")
    assert str(damaged.value.details["path"]).endswith(path.name)
