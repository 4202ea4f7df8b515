"""Aggregates of supersteps: the reference's numbers, in all forms; a loop that they end."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from networkx.algorithms.link_analysis.pagerank_alg import _pagerank_python

from cbp import Aggregate, Input, Loopback, Translate, View
from cbp.engine.direct import LocalEngine
from cbp.engine.storage.engine_limits import DEFAULT_LIMITS
from cbp.errors import AuthorCodeError, RunTooLargeError
from cbp.model.dataflow.stage import AggregateSpec
from cbp.testing import check_split
from tests.cbp.engine.epochs import assert_same
from tests.cbp.engine.small_limits import small_limits
from tests.cbp.engine.task.test_supersteps import Dying
from tests.driver import Driver
from tests.loops import Halves, HalvesArrow, Ranks, loop_of
from tests.sampling import examples

INF, NAN = float("inf"), float("nan")
NUMBERS = [0.0, -0.0, 0.1, 3.0, 1e300, -2e3, 1e-300, INF, NAN]
_items = st.lists(
    st.fixed_dictionaries({"k": st.integers(0, 4), "n": st.sampled_from(NUMBERS)}), max_size=6
)


@pytest.mark.parametrize("form", [Halves, HalvesArrow])
@settings(max_examples=examples(3), deadline=None)
@given(data=st.data())
def test_every_epoch_equals_the_reference(form: Any, data: st.DataObject) -> None:
    """Also in tiny windows, and where tries of a run die between its supersteps."""
    epochs = data.draw(st.lists(_items, min_size=1, max_size=3))
    limits = small_limits() if data.draw(st.booleans()) else DEFAULT_LIMITS
    passages = data.draw(st.lists(st.integers(1, 4), max_size=4))
    dataflow = loop_of(form(), items="k BIGINT, n DOUBLE")
    with tempfile.TemporaryDirectory() as folder:
        engine = LocalEngine(cache=f"{folder}/cache", limits=replace(limits, superstep_log_ms=0))
        driver = Dying(engine, dataflow, Path(folder) / "t", passages=passages)
        assert_same(dataflow, driver, [{"items": rows} for rows in epochs])


def test_a_loop_ends_when_its_aggregate_is_small(tmp_path: Path) -> None:
    """Each superstep sees the sum of the one before; what was still under way is dropped."""
    dataflow = loop_of(Halves(), items="k BIGINT, n DOUBLE")
    driver = Driver(LocalEngine(cache=str(tmp_path / "cache")), dataflow, tmp_path / "t")
    driver.feed("s_items", [{"k": 0, "n": 4.0}, {"k": 1, "n": 4.0}])
    driver.run_until_idle()
    (figures,) = driver.figures
    assert figures["supersteps"] == 6, "8, 4, 2, 1, a half, a quarter"
    assert figures["messages_dropped"] == 2
    rows = {row["k"]: row for row in driver.state("stage", "totals")}
    assert (rows[0]["n"], rows[0]["together"], rows[0]["most"]) == (0.125, 0.5, 0.25)
    assert rows[2]["together"] == 4.0, "called last in the third superstep"


class Ring(Translate):
    """Hand on for so many supersteps, though there is always a message left."""

    items = Input("k BIGINT, n DOUBLE", route_by="k")
    on = Loopback("k BIGINT", route_by="k", supersteps=100)
    calls = View("k BIGINT, n BIGINT", key="k")
    left = Aggregate("max", ends_below=1)

    def translate(self, key: Any, group: Any, out: Any) -> None:
        """See the class."""
        out.left(19 if group.left is None else group.left - 1)
        out.calls(key.k, 1 + sum(row.n for row in group.calls))
        out.on((key.k + 1) % 7)


def test_a_loop_of_so_many_supersteps_counts_down(tmp_path: Path) -> None:
    """Nothing is left of it that another epoch would read."""
    dataflow = loop_of(Ring(), items="k BIGINT, n DOUBLE")
    driver = Driver(LocalEngine(cache=str(tmp_path / "cache")), dataflow, tmp_path / "t")
    assert_same(dataflow, driver, [{"items": [{"k": 0, "n": 0.0}]}])
    assert [figures["supersteps"] for figures in driver.figures] == [20]
    assert sum(row["n"] for row in driver.state("stage", "calls")) == 20


def test_the_first_superstep_ends_nothing(tmp_path: Path) -> None:
    """It has nothing to compare with, so the next one always comes."""
    dataflow = loop_of(Halves(), items="k BIGINT, n DOUBLE")
    driver = Driver(LocalEngine(cache=str(tmp_path / "cache")), dataflow, tmp_path / "t")
    driver.feed("s_items", [{"k": 0, "n": 0.25}])
    driver.run_until_idle()
    assert [figures["supersteps"] for figures in driver.figures] == [2]


def test_ranks_are_those_of_networkx(tmp_path: Path) -> None:
    """After each increment, in one epoch, long before the last superstep."""
    dataflow = loop_of(Ranks(), links="src BIGINT, dst BIGINT")
    driver = Driver(LocalEngine(cache=str(tmp_path / "cache")), dataflow, tmp_path / "t")
    graph = nx.DiGraph()
    nodes = 12
    for more in (
        [(n, (n * n + 1) % nodes) for n in range(nodes)],
        [(3, 7), (7, 0), (5, 0)],
        [(0, 11)],
    ):
        graph.add_edges_from(more)
        driver.feed("s_links", [{"src": src, "dst": dst} for src, dst in more])
        driver.run_until_idle()
        expected = _pagerank_python(graph, tol=1e-12, max_iter=1000)
        ranks = {row["src"]: row["rank"] / nodes for row in driver.state("stage", "ranks")}
        assert ranks == pytest.approx(expected, abs=1e-8)
    assert len(driver.figures) == 3
    supersteps = [figures["supersteps"] for figures in driver.figures]
    assert 2 < min(supersteps) <= max(supersteps) < 200


def test_another_try_goes_on_with_the_aggregates_of_the_one_before(tmp_path: Path) -> None:
    """What died after a superstep is known to the next one."""
    dataflow = loop_of(Halves(), items="k BIGINT, n DOUBLE")
    engine = LocalEngine(
        cache=str(tmp_path / "cache"), limits=replace(DEFAULT_LIMITS, superstep_log_ms=0)
    )
    driver = Dying(engine, dataflow, tmp_path / "t", passages=[4])
    driver.feed("s_items", [{"k": 0, "n": 4.0}, {"k": 1, "n": 4.0}])
    driver.run_until_idle()
    assert [figures["supersteps_before"] for figures in driver.figures] == [3]
    rows = {row["k"]: row for row in driver.state("stage", "totals")}
    assert (rows[3]["together"], rows[3]["most"]) == (2.0, 1.0), "called last in the fourth"


class Zeros(Translate):
    """Records that go and come again in later supersteps; zeros of both signs are equal."""

    items = Input("k BIGINT, step BIGINT", route_by="k")
    on = Loopback("k BIGINT, step BIGINT", route_by="k", supersteps=9)
    seen = View("k BIGINT, at BIGINT, n DOUBLE", key="k, at")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        (step,) = (one.step for one in (*group.items, *group.on))
        many = [5.0, 2.0, 3.0] if step == 2 else []
        for at, n in enumerate([(0.0, 4.0, -0.0, 7.0)[step], *many]):
            out.seen(key.k, at, n)
        if step in (1, 2):
            out.on(key.k, step + 1)


def test_a_record_that_went_first_keeps_its_spelling(tmp_path: Path) -> None:
    """The change of a loop says what was there before it, whatever came between."""
    dataflow = loop_of(Zeros(), items="k BIGINT, step BIGINT")
    limits = replace(DEFAULT_LIMITS, spool_bytes=0)
    driver = Driver(LocalEngine(cache=f"{tmp_path}/c", limits=limits), dataflow, tmp_path / "t")
    assert_same(dataflow, driver, [{"items": [{"k": 0, "step": step}]} for step in (0, 1)])


def test_changes_of_a_view_do_not_add_up_over_supersteps(tmp_path: Path) -> None:
    """A loop that changes all records in each superstep holds what is left of that."""
    dataflow = loop_of(Ranks(), links="src BIGINT, dst BIGINT")
    links = [{"src": n, "dst": dst % 12} for n in range(12) for dst in (n + 1, n * n + 2)]
    for spool, fits in ((500, True), (DEFAULT_LIMITS.spool_bytes, False)):
        limits = replace(
            DEFAULT_LIMITS, spool_bytes=spool, whole_run_bytes=15_000, whole_run_spill=0
        )
        folder = tmp_path / str(spool)
        driver = Driver(LocalEngine(cache=str(folder / "c"), limits=limits), dataflow, folder / "t")
        driver.feed("s_links", links)
        if fits:
            driver.run_until_idle()
            assert len(driver.outputs("stage.ranks")[0]) == 12, "inserted, whatever came between"
        else:
            with pytest.raises(RunTooLargeError):
                driver.run_until_idle()


class Counts(Translate):
    """Count items, and look at how many groups were called before."""

    items = Input("k BIGINT, n DOUBLE", route_by="k")
    on = Loopback("k BIGINT", route_by="k", supersteps=5)
    counts = View("k BIGINT, n BIGINT", key="k")
    called = Aggregate("sum")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        items = sum(1 for _ in group.items)
        assert group.called is None or group.called >= 1
        out.called(1)
        out.counts(key.k, items + sum(row.n for row in group.counts))
        if items:
            out.on(key.k)


def test_the_test_kit_runs_them() -> None:
    """A number that is no float is one, and any split gives the counts of one batch."""
    items = [{"k": n % 3, "n": 1.0} for n in range(6)]
    result = check_split(Counts, [{"items": items[:3]}, {"items": items[3:]}])
    assert {row.k: row.n for row in result.view("counts")} == {0: 2, 1: 2, 2: 2}


@pytest.mark.parametrize("given", [None, "much"])
def test_what_is_no_number_names_the_line(given: Any, tmp_path: Path) -> None:
    """As any wrong record does."""

    class Wrong(Counts):
        def translate(self, key: Any, group: Any, out: Any) -> None:
            out.called(given)

    dataflow = loop_of(Wrong(), items="k BIGINT, n DOUBLE")
    driver = Driver(LocalEngine(cache=str(tmp_path / "cache")), dataflow, tmp_path / "t")
    driver.feed("s_items", [{"k": 0, "n": 4.0}])
    with pytest.raises(AuthorCodeError, match=r"out\.called"):
        driver.run_until_idle()


@pytest.mark.parametrize(
    ("how", "numbers", "expected"),
    [
        ("sum", [], 0.0),
        ("sum", [1e16, 1.0, -1e16], 1.0),
        ("sum", [INF, -INF], NAN),
        ("sum", [NAN, 1.0], NAN),
        ("sum", [1e308, 1e308], INF),
        ("sum", [-1e308, -1e308], -INF),
        ("min", [2.0, -1.0], -1.0),
        ("min", [], None),
        ("max", [2.0, -1.0], 2.0),
        ("max", [NAN, 2.0], NAN),
        ("max", [], None),
    ],
)
def test_numbers_become_one(how: Any, numbers: list[float], expected: float | None) -> None:
    """Whatever numbers they are; what is no number ends no loop."""
    aggregate = AggregateSpec("a", how, 0.5)
    value = aggregate.value(numbers)
    assert repr(value) == repr(expected)
    assert aggregate.ends(value) == (value is not None and value < 0.5)
