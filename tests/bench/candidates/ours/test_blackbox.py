"""The black-box mode gives what the direct engine gives; only its costs differ.

It routes as the reference engine does, by a copy per group, and refuses translators in SQL.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cbp.engine.direct import DirectEngine, LocalEngine
from cbp.engine.reference.engine import ReferenceEngine
from cbp.engine.shuffle.multicast_bindings import read_bindings
from cbp.engine.task.reports import Counts
from cbp.errors import DataflowInvalidError, InvariantError, TableFeatureError
from cbp.model.dataflow.dataflow import Dataflow
from stages.flows import pagerank as ready_pagerank
from stages.flows.clustering_by_messages import clustering_by_messages as clustering
from stages.flows.pagerank_in_phases import pagerank_in_phases as pagerank
from stages.translators.url_count_sql import UrlCountSql
from tests.bench.candidates.ours import replication
from tests.bench.candidates.ours.blackbox import BlackboxTask, LocalBlackboxExecutor
from tests.cbp.engine.epochs import CASES, NARROW, assert_same, dataflow_of, epochs_of
from tests.driver import Driver
from tests.loops import Components, loop_of
from tests.sampling import examples
from tests.view_dataflows import random_epochs, shelf_dataflow

STATEFUL = [name for name in CASES if CASES[name][0]().spec().key is not None]


def blackbox(folder: Path, **options: Any) -> DirectEngine:
    """Give an engine that rewrites state, without Spark."""
    return DirectEngine(LocalBlackboxExecutor(), cache=str(folder / "cache"), **options)


@pytest.mark.part(every=4)
@pytest.mark.parametrize("case", STATEFUL)
@settings(max_examples=examples(3), deadline=None)
@given(data=st.data())
def test_every_epoch_equals_the_reference(
    tmp_path_factory: pytest.TempPathFactory, case: str, data: st.DataObject
) -> None:
    """Outputs and state of every epoch are the reference engine's, for both groupings."""
    folder = tmp_path_factory.mktemp("blackbox")
    dataflow = dataflow_of(case)
    driver = Driver(blackbox(folder), dataflow, folder / "tables")
    assert_same(dataflow, driver, data.draw(epochs_of(case)))


@pytest.mark.part(every=2)
@pytest.mark.parametrize("hash_mask", [-1, NARROW])
@pytest.mark.parametrize("case", ["probe", "outer_probe"])
@settings(max_examples=examples(3), deadline=None)
@given(data=st.data())
def test_whom_a_record_reaches_is_counted_as_by_the_reference(
    tmp_path_factory: pytest.TempPathFactory, case: str, hash_mask: int, data: st.DataObject
) -> None:
    """Keys, ALL, addresses, messages and remote writes, also where keys share a hash."""
    folder = tmp_path_factory.mktemp("blackbox")
    dataflow = dataflow_of(case)
    driver = Driver(blackbox(folder, hash_mask=hash_mask), dataflow, folder / "tables")
    reference = ReferenceEngine(dataflow)
    epochs = data.draw(epochs_of(case))
    assert_same(dataflow, driver, epochs, ordered=hash_mask == -1)
    for epoch in epochs:
        for name, rows in epoch.items():
            reference.feed(f"s_{name}", rows)
        reference.run_until_idle()
    for mine, theirs in zip(driver.figures, reference.figures("stage"), strict=True):
        for name in ("records_in", "groups", "dead_letters", "state_remote"):
            assert mine.get(name, 0) == theirs[name], name


@pytest.mark.part(every=2)
@pytest.mark.parametrize("groups", [10, 200])
def test_what_groups_share_is_copied_for_each(tmp_path: Path, groups: int) -> None:
    """By ALL or by an address: a copy per group that is reached, which is what it costs."""
    dataflow = dataflow_of("probe")
    driver = Driver(blackbox(tmp_path), dataflow, tmp_path / "tables")
    keys = [f"k{n}" for n in range(groups)]
    driver.feed("s_orders", [_order(key, "write", key) for key in keys])
    driver.run_until_idle()
    driver.feed("s_items", [{"id": n, "to": ["*kept"]} for n in range(5)])
    driver.run_until_idle()
    assert (driver.figures[-1]["groups"], driver.figures[-1]["copies"]) == (groups, 5 * groups)
    binds = [_order(key, "bind", "x") for key in keys]
    driver.feed("s_orders", [*binds, _order("k0", "send", "@x", "k0", "k0")])
    driver.run_until_idle()
    assert (driver.figures[-1]["groups"], driver.figures[-1]["copies"]) == (groups, groups)
    assert driver.figures[-1]["dead_letters"] == 0


def test_bindings_are_read_once_however_many_addresses_are_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cost of a file of bindings does not grow with the addresses of the messages."""
    reads: list[str] = []

    def counted(file: Any, key: Any) -> Any:
        reads.append(file.path)
        return read_bindings(file, key)

    monkeypatch.setattr(replication, "read_bindings", counted)
    by_addresses = {}
    for addresses in (1, 12):
        folder = tmp_path / str(addresses)
        driver = Driver(blackbox(folder), dataflow_of("probe"), folder / "tables")
        named = [f"x{n}" for n in range(addresses)]
        binds = [_order(f"k{n}", "bind", x) for n in range(5) for x in named]
        driver.feed("s_orders", [*binds, *(_order("k0", "send", f"@{x}") for x in named)])
        driver.run_until_idle()
        assert driver.figures[-1]["copies"] == 5 * addresses
        by_addresses[addresses] = len(reads)
        reads.clear()
    assert by_addresses[12] == by_addresses[1] > 0


def _order(k: str, verb: str, *to: str) -> dict[str, Any]:
    return {"k": k, "verb": verb, "id": 7, "to": list(to)}


def pairs(*edges: tuple[int, int]) -> dict[str, list[dict[str, Any]]]:
    return {"edges": [{"src": src, "dst": dst} for src, dst in edges]}


@pytest.mark.part(every=2)
@pytest.mark.parametrize("told", [False, True])
def test_clustering_runs_as_on_the_reference(tmp_path: Path, told: bool) -> None:
    """Several keys and messages, plain and by multicast."""
    dataflow = clustering(multicast=told)
    driver = Driver(blackbox(tmp_path), dataflow, tmp_path / "tables")
    epochs = [pairs((1, 2), (2, 3), (4, 4), (5, 1)), pairs((3, 1), (1, 2)), pairs((2, 5))]
    assert_same(dataflow, driver, epochs, source="")


@pytest.mark.part(every=4)
@pytest.mark.soak
@pytest.mark.parametrize(
    ("told", "replicates"),
    [(False, True), (True, True), (True, False), (False, False)],
)
def test_two_stages_in_a_cycle_run_as_on_the_reference(
    tmp_path: Path, told: bool, replicates: bool
) -> None:
    """PageRank over two increments, by multicast and by broadcast: the very same numbers.

    Whether what groups share is copied for each, or comes once to every task.
    """
    dataflow = pagerank(threshold=0.1, tolerance=1.0, broadcast=told)
    executor = LocalBlackboxExecutor(replicates=replicates)
    engine = DirectEngine(executor, cache=str(tmp_path / "cache"))
    driver = Driver(engine, dataflow, tmp_path / "tables")
    epochs = [pairs((1, 2), (2, 1), (2, 3), (4, 1)), pairs((1, 3), (5, 1))]
    assert_same(dataflow, driver, epochs, source="")
    assert len(driver.outputs("verdict.converged")) > 2


def test_every_record_is_written_again(tmp_path: Path) -> None:
    """A run of one record rewrites all state: that is what makes it the baseline."""
    driver = Driver(blackbox(tmp_path), dataflow_of("url_count"), tmp_path / "tables")
    driver.feed("s_urls", [{"url": f"u{i}"} for i in range(100)])
    driver.feed("s_urls", [{"url": "u7"}])
    driver.run_until_idle()
    assert driver.figures[1]["groups"] == 1
    assert driver.figures[1]["state_written"] == 100


def test_the_direct_engine_goes_on_where_it_stopped(tmp_path: Path) -> None:
    """Both modes share one layout of tables, so a state can change hands."""
    driver = Driver(blackbox(tmp_path), dataflow_of("url_count"), tmp_path / "tables")
    driver.feed("s_urls", [{"url": "a"}, {"url": "b"}])
    driver.run_until_idle()
    driver.engine = LocalEngine(cache=str(tmp_path / "cache"))
    driver.feed("s_urls", [{"url": "a"}])
    driver.run_until_idle()
    state = {row["url"]: row["n"] for row in driver.state("stage", "counts")}
    assert state == {"a": 2, "b": 1}


def test_deletion_vectors_are_refused(tmp_path: Path) -> None:
    """A file with dead rows would bring them back to life when it is read whole."""
    local = LocalEngine(cache=str(tmp_path / "cache"))
    driver = Driver(local, dataflow_of("url_count"), tmp_path / "tables")
    driver.feed("s_urls", [{"url": f"u{i}"} for i in range(100)])
    driver.feed("s_urls", [{"url": "u7"}])
    driver.run_until_idle()
    driver.engine = blackbox(tmp_path)
    driver.feed("s_urls", [{"url": "u8"}])
    with pytest.raises(TableFeatureError):
        driver.run_until_idle()


def test_sql_is_refused(tmp_path: Path) -> None:
    """A plan of Spark would look for state where none is: at registration, and by a run."""
    dataflow = dataflow_of("url_count")
    in_sql = replace(dataflow.stages["stage"], translator=UrlCountSql().spec())
    engine = blackbox(tmp_path)
    engine.control.refuse("d", [dataflow.stages["stage"]])
    driver = Driver(engine, dataflow, tmp_path / "tables")
    driver.dataflow = replace(dataflow, stages=MappingProxyType({"stage": in_sql}))
    driver.feed("s_urls", [{"url": "a"}])
    ways: list[Callable[[], None]] = [
        partial(engine.control.refuse, "d", [in_sql]),
        driver.run_until_idle,
    ]
    for asked in ways:
        with pytest.raises(DataflowInvalidError) as caught:
            asked()
        (mistake,) = caught.value.mistakes
        assert (mistake.code, mistake.where) == ("black_box_in_sql", "stages.stage")
        assert "url_count_sql.py:" in mistake.place


@pytest.mark.parametrize(
    "loop", [loop_of(Components(), links="src BIGINT, dst BIGINT"), ready_pagerank.pagerank()]
)
def test_loops_within_a_run_are_refused(loop: Dataflow, tmp_path: Path) -> None:
    """A black-box task ends after one superstep, and is given the groups that are called."""
    with pytest.raises(DataflowInvalidError) as caught:
        blackbox(tmp_path).control.refuse("d", list(loop.stages.values()))
    assert [one.code for one in caught.value.mistakes] == ["black_box_in_loop"]


def test_lost_state_stops_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """State that does not arrive in a task would be dropped by the rewrite."""
    driver = Driver(blackbox(tmp_path), dataflow_of("url_count"), tmp_path / "tables")
    driver.feed("s_urls", [{"url": f"u{i}"} for i in range(100)])
    driver.run_until_idle()
    driver.feed("s_urls", [{"url": "u7"}])
    monkeypatch.setattr(BlackboxTask, "run_arranged", lambda task: [Counts({})])
    with pytest.raises(InvariantError, match="100 records, but 0"):
        driver.run_until_idle()


@pytest.mark.part(every=4)
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("hash_mask", [-1, NARROW], ids=["hash", "colliding"])
def test_views_are_those_of_the_reference(seed: int, hash_mask: int, tmp_path: Path) -> None:
    """Records that are rewritten in every epoch are no changes."""
    dataflow = shelf_dataflow()
    driver = Driver(blackbox(tmp_path, hash_mask=hash_mask), dataflow, tmp_path / "tables")
    epochs = random_epochs(random.Random(seed))
    assert_same(dataflow, driver, epochs, ordered=hash_mask == -1)
