"""Loops whose order does not matter: several tasks end where one does, with fewer exchanges."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cbp import Input, Loopback, Translate, View, by
from cbp.engine.columnar.key_hash import hash_columns
from cbp.engine.direct import DirectEngine
from cbp.engine.reference.engine import ReferenceEngine
from cbp.engine.storage.engine_limits import DEFAULT_LIMITS
from cbp.errors import AuthorCodeError
from cbp.model.flow.schema import Schema
from cbp.model.run.account import ways
from tests.cbp.engine.epochs import NARROW, assert_same, order_free
from tests.cbp.engine.small_limits import small_limits
from tests.cbp.engine.task.test_loops_in_tasks import DyingTasks, split
from tests.cbp.engine.task.test_supersteps import CASES as LOOPS
from tests.driver import Driver
from tests.loops import Components, Fails, Waves, WavesMerged, least_labels, loop_of
from tests.loops_in_tasks import ThreadsExecutor
from tests.sampling import examples
from tests.stages.test_propagate import CASES as SPREADS
from tests.stages.test_propagate import DAYS, Edge, graph, spread

LINKS = "src BIGINT, dst BIGINT"
ITEMS = "k BIGINT, n BIGINT"


class Labels(Components):
    """Components; the order of messages does not matter."""

    news = replace(Components.news, microsteps=True)


class Nearest(Waves):
    """Steps from the nearest source, on columns."""

    news = replace(Waves.news, microsteps=True)


class NearestMerged(WavesMerged):
    """The same; of the messages for a node, the one with the fewest steps arrives."""

    news = replace(WavesMerged.news, microsteps=True)


CASES: dict[str, tuple[type, str, str, st.SearchStrategy[Any]]] = {
    "components": (Labels, *LOOPS["components"][1:]),
    "waves": (Nearest, *LOOPS["waves"][1:]),
    "merged": (NearestMerged, *LOOPS["merged"][1:]),
}
"""Each with its input, the schema of that, and a strategy of epochs."""


def engine_of(folder: str, tasks: int, *, hash_mask: int = -1, **limits: Any) -> DirectEngine:
    """Return an engine whose loops have so many tasks."""
    base = limits.pop("base", DEFAULT_LIMITS)
    return DirectEngine(
        ThreadsExecutor(tasks),
        cache=f"{folder}/cache",
        hash_mask=hash_mask,
        limits=replace(split(base), **limits),
    )


_bounds = st.fixed_dictionaries(
    {
        "microsteps": st.sampled_from([1, 2, 256]),
        "microstep_rows": st.sampled_from([3, 100_000]),
        "base": st.sampled_from([DEFAULT_LIMITS, small_limits()]),
    }
)


@pytest.mark.parametrize("tasks", [1, 2, 3])
@pytest.mark.parametrize(
    ("case", "hash_mask"),
    [*((case, -1) for case in CASES), ("components", NARROW)],
    ids=[*CASES, "components-colliding"],
)
@settings(max_examples=examples(3), deadline=None)
@given(data=st.data())
def test_every_epoch_equals_the_reference(
    case: str, hash_mask: int, tasks: int, data: st.DataObject
) -> None:
    """States and net changes of views, though the reference engine has supersteps of all groups.

    Whatever the bounds of microsteps, and how little memory there is.
    """
    translator, name, schema, epoch = CASES[case]
    epochs = data.draw(st.lists(epoch, min_size=1, max_size=4))
    dataflow = loop_of(translator(), **{name: schema})
    with tempfile.TemporaryDirectory() as folder:
        engine = engine_of(folder, tasks, hash_mask=hash_mask, **data.draw(_bounds))
        driver = Driver(engine, dataflow, Path(folder) / "t")
        assert_same(dataflow, driver, [{name: rows} for rows in epochs], ordered=hash_mask == -1)


@pytest.mark.parametrize("point", ["superstep.before", "superstep.after"])
@pytest.mark.parametrize("tasks", [2, 3])
@pytest.mark.parametrize("case", CASES)
@settings(max_examples=examples(3), deadline=None)
@given(data=st.data())
def test_another_try_goes_on_where_a_task_died(
    case: str, tasks: int, point: str, data: st.DataObject
) -> None:
    """In a microstep, or after an exchange: a try goes on from the last exchange of all tasks."""
    translator, name, schema, epoch = CASES[case]
    epochs = data.draw(st.lists(epoch, min_size=1, max_size=3))
    passages = data.draw(st.lists(st.integers(1, 20), min_size=1, max_size=6))

    class Dying(DyingTasks):
        def run_or_die(self, stage: str, passage: int, *, point: str = point) -> bool:
            return super().run_or_die(stage, passage, point=point)

    dataflow = loop_of(translator(), **{name: schema})
    with tempfile.TemporaryDirectory() as folder:
        engine = engine_of(folder, tasks, superstep_log_ms=0, microsteps=2)
        driver = Dying(engine, dataflow, Path(folder) / "t", passages=passages)
        assert_same(dataflow, driver, [{name: rows} for rows in epochs])
        assert not [path for path in Path(folder).rglob("*.log") if path.is_file()]


def spread_by_microsteps(make: Callable[[], Any]) -> Any:
    """Return a dataflow of a ready stage whose messages may come in any order."""
    stage = make()
    stage.news = replace(stage.news, microsteps=True)
    return spread(stage)


@pytest.mark.parametrize("tasks", [2, 3])
@pytest.mark.parametrize("case", SPREADS)
@settings(max_examples=examples(4), deadline=None)
@given(days=DAYS)
def test_values_that_spread_are_those_of_networkx(
    case: str, tasks: int, days: list[list[Edge]]
) -> None:
    """Components, BFS and shortest paths need no order, also while edges go.

    What they hold at rest is what the reference engine holds, except of several supports the one.
    """
    make, oracle = SPREADS[case]
    dataflow = spread_by_microsteps(make)
    reference = ReferenceEngine(dataflow)
    with tempfile.TemporaryDirectory() as folder:
        limits = {"rows_per_loop_task": 1, "loop_reach": 1 << 20}
        driver = Driver(engine_of(folder, tasks, **limits), dataflow, Path(folder) / "t")
        for number, day in enumerate(days):
            rows = [dict(zip(("src", "dst", "weight"), edge, strict=True)) for edge in day]
            for one in (driver, reference):
                one.feed("edges", rows)
                one.run_until_idle()
            values = {row["node"]: row[list(row)[1]] for row in driver.state("spread", "nodes")}
            assert values == oracle(graph(days[: number + 1]))
            for state in dataflow.stages["spread"].translator.states:
                mine, theirs = (
                    order_free(
                        [
                            {n: v for n, v in row.items() if n not in state.not_compared}
                            for row in one.state("spread", state.name)
                        ]
                    )
                    for one in (driver, reference)
                )
                assert mine == theirs, state.name


def placed_path(links: int) -> list[dict[str, int]]:
    """Return a path whose nodes follow each other as their hashes do: neighbours share a task."""
    nodes = np.arange(links + 1)
    types = [one.type for one in Schema.parse("k BIGINT").fields]
    order = np.argsort(hash_columns([pa.array(nodes)], types).view(np.uint64), kind="stable")
    path = nodes[order].tolist()
    return [{"src": src, "dst": dst} for src, dst in pairwise(path)]


def labels_of(driver: Driver) -> dict[int, int]:
    return {row["src"]: row["label"] for row in driver.state("stage", "labels")}


def run_path(folder: Path, stage: Translate, links: list[dict[str, int]], **limits: Any) -> Driver:
    """Return a driver after a run over links in two tasks; the labels are right."""
    engine = engine_of(str(folder), 2, **limits)
    driver = Driver(engine, loop_of(stage, links=LINKS), folder / "t")
    driver.feed("s_links", links)
    driver.run_until_idle()
    assert driver.figures[0]["tasks"] == 2
    assert labels_of(driver) == least_labels((link["src"], link["dst"]) for link in links)
    return driver


def test_a_path_whose_neighbours_are_together_has_few_exchanges(tmp_path: Path) -> None:
    """One exchange for each time that a label crosses to the other task, not one for each link."""
    links = placed_path(60)
    plain = run_path(tmp_path / "plain", Components(), links)
    driver = run_path(tmp_path / "micro", Labels(), links)
    before, figures = plain.figures[0], driver.figures[0]
    assert before["supersteps"] > 40
    assert "microsteps" not in before
    assert figures["supersteps"] <= 6
    assert figures["microsteps"] > 40
    assert driver.outputs("stage.labels") == plain.outputs("stage.labels")
    said = ways(figures)
    assert f"{figures['supersteps']:.0f} supersteps, in which tasks did" in "; ".join(said)


def test_a_long_way_alone_has_exchanges(tmp_path: Path) -> None:
    """After so many microsteps, or messages, all tasks exchange, and can put snapshots."""
    links = placed_path(60)
    free = run_path(tmp_path / "free", Labels(), links).figures[0]["supersteps"]
    for name, most in (("microsteps", 5), ("microstep_rows", 8)):
        driver = run_path(tmp_path / name, Labels(), links, **{name: most})
        assert driver.figures[0]["supersteps"] > 2 * free, name


class Hasty(Labels):
    """Three supersteps a run."""

    news = replace(Labels.news, supersteps=3)


def test_supersteps_are_counted_by_exchanges(tmp_path: Path) -> None:
    """The messages that are left then are an increment; the next runs end where one would."""
    links = [{"src": node, "dst": node + 1} for node in range(60)]
    whole = run_path(tmp_path / "whole", Labels(), links)
    driver = run_path(tmp_path / "cut", Hasty(), links)
    assert whole.figures[0]["supersteps"] > 6
    assert [one["supersteps"] for one in driver.figures[:2]] == [3, 3]
    assert order_free(driver.state("stage", "near")) == order_free(whole.state("stage", "near"))


class CountsDown(Translate):
    """A group counts down by messages to itself, and tells another group each number."""

    starts = Input("k BIGINT, n BIGINT, to BIGINT", route_by="k")
    counts = Loopback("k BIGINT, n BIGINT, to BIGINT", route_by="k", supersteps=50, microsteps=True)
    told = Loopback(
        "to BIGINT, who BIGINT, n BIGINT", route_by="to", supersteps=50, microsteps=True
    )
    heard = View("k BIGINT, who BIGINT, n BIGINT, falls BOOLEAN", key="k, who")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        """Tell the number; keep whether those of each group came from the largest to the least."""
        for one in (*group.starts, *group.counts):
            out.told(one.to, key.k, one.n)
            if one.n:
                out.counts(key.k, one.n - 1, one.to)
        heard = {row.who: (row.n, row.falls) for row in group.heard}
        for one in group.told:
            last, falls = heard.get(one.who, (one.n + 1, True))
            heard[one.who] = one.n, falls and last == one.n + 1
        for who, (n, falls) in heard.items():
            out.heard(key.k, who, n, falls)


@pytest.mark.parametrize("microsteps", [3, 256])
def test_messages_of_one_group_to_another_keep_their_order(microsteps: int, tmp_path: Path) -> None:
    """Also those that wait for an exchange, behind which others follow."""
    dataflow = loop_of(CountsDown(), starts="k BIGINT, n BIGINT, to BIGINT")
    engine = engine_of(str(tmp_path), 3, microsteps=microsteps)
    driver = Driver(engine, dataflow, tmp_path / "t")
    starts = [{"k": k, "n": 20, "to": (k * 7 + 3) % 10} for k in range(10)]
    assert_same(dataflow, driver, [{"starts": starts}])
    assert all(row["falls"] and row["n"] == 0 for row in driver.state("stage", "heard"))


class Stumbles(Fails):
    """Hands a number on, from key to key, and fails when it is 2."""

    on = replace(Fails.on, microsteps=True)


def test_an_authors_error_in_a_microstep_is_that_of_the_run(tmp_path: Path) -> None:
    """Not that a peer is gone; nothing changes."""
    driver = Driver(engine_of(str(tmp_path), 2), loop_of(Stumbles(), items=ITEMS), tmp_path / "t")
    driver.feed("s_items", [{"k": k, "n": 9} for k in range(0, 60, 5)])
    with pytest.raises(AuthorCodeError, match="two"):
        driver.run_until_idle()
    assert driver.state("stage", "calls") == []


class Odd(Translate):
    """Passes numbers on by a function that fails for a key."""

    items = Input(ITEMS, route_by="k")
    on = Loopback(
        ITEMS,
        route_by=by(lambda one: one.k if one.k != 7 else 1 // 0, "BIGINT"),
        supersteps=40,
        microsteps=True,
    )
    calls = View("k BIGINT, n BIGINT", key="k")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        """Pass each number on to the next key."""
        for one in (*group.items, *group.on):
            if one.n:
                out.on(key.k + 1, one.n - 1)
        out.calls(key.k, 1)


@pytest.mark.parametrize("tasks", [1, 2])
def test_a_message_without_a_key_is_an_authors_error(tasks: int, tmp_path: Path) -> None:
    """It cannot be told whose it is."""
    driver = Driver(engine_of(str(tmp_path), tasks), loop_of(Odd(), items=ITEMS), tmp_path / "t")
    driver.feed("s_items", [{"k": 4, "n": 9}, *({"k": 100 + k, "n": 3} for k in range(9))])
    with pytest.raises(AuthorCodeError, match="on"):
        driver.run("stage")
