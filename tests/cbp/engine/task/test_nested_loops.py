"""Loops inside each other within one run: the order of nested loops, at any depth, in any task."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cbp import Aggregate, Input, Loopback, Output, Translate, View, by
from cbp.engine.direct import DirectEngine
from cbp.engine.reference.engine import ReferenceEngine
from cbp.engine.storage.engine_limits import DEFAULT_LIMITS
from cbp.errors import AuthorCodeError, RunTooLargeError
from cbp.testing import check_split
from tests.cbp.engine.epochs import assert_same
from tests.cbp.engine.task.test_loops_in_tasks import DyingTasks, driver_of
from tests.driver import Driver
from tests.executed_documents import blocks
from tests.loops import loop_of
from tests.loops_in_tasks import ThreadsExecutor
from tests.nested_loops import (
    Calendar,
    ShortCalendar,
    ShortLettersArrow,
    StrongComponents,
    StrongComponentsArrow,
    calendar,
)
from tests.sampling import examples

STARTS = "k BIGINT, years INT, months INT, days INT"
MANUAL = Path(__file__).resolve().parents[4] / "stages" / "README.md"
LINKS = "src BIGINT, dst BIGINT"


def log_of(driver: Any, k: int) -> list[dict[str, Any]]:
    """Return what a `Calendar` logged for a key, over all epochs."""
    return [row for rows in driver.outputs("stage.log") for row in rows if row["k"] == k]


def starts(*keys: int) -> list[dict[str, int]]:
    """Return a year of three months for some keys, and another one of five days each."""
    return [{"k": k, "years": 2, "months": 3, "days": 5} for k in keys]


@pytest.mark.parametrize("translator", [Calendar, ShortCalendar])
def test_the_reference_iterates_as_nested_loops_do(translator: type[Calendar]) -> None:
    """An outer message is read when the inner loop is at rest, also over the ends of runs."""
    engine = ReferenceEngine(loop_of(translator(), starts=STARTS))
    engine.feed("s_starts", starts(0, 1))
    engine.run_until_idle()
    for k in (0, 1):
        assert log_of(engine, k) == [*calendar(k, 2, 3, 5)]
    runs = engine.figures("stage")
    assert sum(one["supersteps"] for one in runs[1:]) == (36 if translator is ShortCalendar else 0)


@pytest.mark.parametrize("tasks", [1, 2, 3])
@pytest.mark.parametrize("translator", [Calendar, ShortCalendar])
def test_tasks_iterate_as_nested_loops_do(
    translator: type[Calendar], tasks: int, tmp_path: Path
) -> None:
    """All wait for the inner loops of all: what one task is at rest with, another may not be."""
    dataflow = loop_of(translator(), starts=STARTS)
    driver = driver_of(tmp_path, tasks, dataflow)
    epoch = [{**one, "days": 1 + one["k"]} for one in starts(*range(8))]
    assert_same(dataflow, driver, [{"starts": epoch}, {"starts": starts(3)}])
    assert driver.figures[0]["tasks"] == tasks
    for k in range(8):
        assert log_of(driver, k)[: 2 * 3 * (k + 2) + 2] == [*calendar(k, 2, 3, 1 + k)]


@pytest.mark.parametrize("tasks", [1, 2, 3])
def test_texts_on_columns_wait_over_the_end_of_a_run(tasks: int, tmp_path: Path) -> None:
    """Those of the files and those of this run are held together, and in snapshots."""
    dataflow = loop_of(ShortLettersArrow(), starts=STARTS)
    driver = driver_of(tmp_path, tasks, dataflow)
    assert_same(dataflow, driver, [{"starts": starts(*range(6))}, {"starts": starts(3, 7)}])


@pytest.mark.parametrize("tasks", [1, 2])
def test_a_try_goes_on_inside_the_inner_loop(tasks: int, tmp_path: Path) -> None:
    """Killed there, it has what waits in the loops around it; no superstep is done twice."""
    dataflow, ends = loop_of(Calendar(), starts=STARTS), []
    for passages in ([], [tasks * 11, tasks * 4]):
        folder = tmp_path / str(len(passages))
        driver = driver_of(folder, tasks, dataflow, DyingTasks, passages=passages)
        driver.feed("s_starts", starts(*range(6)))
        driver.run_until_idle()
        (figures,) = driver.figures
        ends.append([driver.outputs("stage.log"), figures["supersteps"], figures["groups"]])
        if passages:
            assert isinstance(driver, DyingTasks)
            assert driver.deaths == 2
            assert figures["supersteps_before"] in ([13] if tasks == 1 else [12, 13])
    assert ends[0] == ends[1]
    assert ends[0][1] == 1 + 2 * (1 + 3 * (1 + 5))


class Hurried(Calendar):
    """A calendar whose months are over after their second day, and whose last year is not."""

    late = Aggregate("max", ends_below=-1, ends="day")

    def note(self, day: Any, out: Any) -> None:
        """See the class."""
        if day.y == 1:
            out.late(-day.d)


@pytest.mark.parametrize("tasks", [1, 2, 3])
def test_an_aggregate_ends_an_inner_loop_alone(tasks: int, tmp_path: Path) -> None:
    """What waits in the loops around it goes on; the loop begins again in their next iteration."""
    dataflow = loop_of(Hurried(), starts=STARTS)
    driver = driver_of(tmp_path, tasks, dataflow)
    assert_same(dataflow, driver, [{"starts": starts(*range(6))}])
    days = [row["d"] for row in log_of(driver, 4) if row["d"]]
    assert days == [1, 2, 1, 2, 1, 2, *([1, 2, 3, 4, 5] * 3)]
    assert driver.figures[0]["messages_dropped"] == 6 * 3


class Over(Calendar):
    """A calendar that ends as a whole with a third day."""

    late = Aggregate("max", ends_below=-2)

    def note(self, day: Any, out: Any) -> None:
        """See the class."""
        out.late(-day.d)


def test_an_aggregate_that_names_no_loop_ends_all(tmp_path: Path) -> None:
    """Nothing waits any more, in no loop."""
    dataflow = loop_of(Over(), starts=STARTS)
    driver = driver_of(tmp_path, 1, dataflow)
    assert_same(dataflow, driver, [{"starts": starts(0)}])
    assert [row["d"] for row in log_of(driver, 0)] == [None, None, 1, 2, 3]
    assert driver.figures[0]["messages_dropped"] == 3, "a year, a month and a day"


def components_of(edges: list[tuple[int, int]]) -> dict[int, int]:
    """Return the largest node of each node's strong component, as networkx finds it."""
    found = nx.strongly_connected_components(nx.DiGraph(edges))
    return {node: max(nodes) for nodes in found for node in nodes}


_edges = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=14)


@pytest.mark.parametrize("tasks", [1, 2, 3])
@pytest.mark.parametrize("form", [StrongComponents, StrongComponentsArrow])
@settings(max_examples=examples(6), deadline=None)
@given(epochs=st.lists(_edges, min_size=1, max_size=3))
def test_strong_components_are_those_of_networkx(
    form: Callable[[], Any], tasks: int, epochs: list[list[tuple[int, int]]]
) -> None:
    """After each increment of edges, in one run: colours forward, then backward, round by round."""
    dataflow = loop_of(form(), edges=LINKS)
    with tempfile.TemporaryDirectory() as folder:
        limits = replace(DEFAULT_LIMITS, rows_per_loop_task=2)
        engine = DirectEngine(ThreadsExecutor(tasks), cache=f"{folder}/cache", limits=limits)
        driver = Driver(engine, dataflow, Path(folder) / "t")
        known: list[tuple[int, int]] = []
        for number, edges in enumerate(epochs):
            known += edges
            driver.feed("s_edges", [{"src": src, "dst": dst} for src, dst in edges])
            driver.run_until_idle()
            labels = {r["src"]: r["component"] for r in driver.state("stage", "components")}
            assert labels == components_of(known)
            assert len(driver.figures) == number + 1
            assert not driver.state("stage", "colours"), "at rest"


@pytest.mark.parametrize("form", [StrongComponents, StrongComponentsArrow])
@settings(max_examples=examples(6), deadline=None)
@given(epochs=st.lists(_edges, min_size=1, max_size=3))
def test_components_do_not_depend_on_the_split(
    form: Any, epochs: list[list[tuple[int, int]]]
) -> None:
    """Any split of the edges into increments gives the components of one batch."""
    check_split(form, [{"edges": edges} for edges in epochs])


@settings(max_examples=examples(6), deadline=None)
@given(edges=_edges)
def test_the_manual_shows_what_runs(edges: list[tuple[int, int]]) -> None:
    """The class in stages/README.md finds these components, too."""
    (shown,) = (
        block.content
        for block in blocks(MANUAL.read_text(encoding="utf-8"))
        if "class StrongComponents(Translate)" in block.content
    )
    module: dict[str, Any] = {"__name__": "shown"}
    exec(shown, module)
    engine = ReferenceEngine(loop_of(module["StrongComponents"](), edges=LINKS))
    engine.feed("s_edges", edges)
    engine.run_until_idle()
    labels = {row["src"]: row["component"] for row in engine.state("stage", "components")}
    assert labels == components_of(edges)


class Hoards(Translate):
    """An inner loop whose every step leaves texts for the outer one, which wait."""

    items = Input("k BIGINT, n BIGINT", route_by="k")
    later = Loopback("k BIGINT, text STRING", route_by="k", supersteps=99)
    on = Loopback("k BIGINT, n BIGINT", route_by="k", supersteps=99, inside="later")
    got = View("k BIGINT, texts BIGINT, letters BIGINT", key="k")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        """Hand on what came, and count the texts."""
        texts, letters = next(((row.texts, row.letters) for row in group.got), (0, 0))
        for one in (*group.items, *group.on):
            for at in range(20):
                out.later((key.k + at) % 7, f"{one.n:03d}{at:02d}" * 20)
            if one.n:
                out.on((key.k + 1) % 7, one.n - 1)
        for one in group.later:
            texts, letters = texts + 1, letters + len(one.text)
        out.got(key.k, texts, letters)


@pytest.mark.parametrize("tasks", [1, 2, 3])
def test_what_waits_takes_its_place(tasks: int, tmp_path: Path) -> None:
    """It counts in the room of the loop: refused without files; with them, it goes there."""
    dataflow = loop_of(Hoards(), items="k BIGINT, n BIGINT")
    items = [{"k": k, "n": 30} for k in range(7)]
    small = {"whole_run_bytes": 60_000, "message_sort_bytes": 20_000}
    refused = driver_of(tmp_path / "r", tasks, dataflow, limits={**small, "whole_run_spill": 0})
    refused.feed("s_items", items)
    with pytest.raises(RunTooLargeError):
        refused.run_until_idle()
    driver = driver_of(tmp_path, tasks, dataflow, limits={**small, "whole_run_spill": 1 << 10})
    assert_same(dataflow, driver, [{"items": items}])
    assert sum(row["texts"] for row in driver.state("stage", "got")) == 7 * 31 * 20


class Astray(Translate):
    """Leaves a message for an outer loop that has no key, then goes on inside."""

    items = Input("k BIGINT, n BIGINT", route_by="k")
    outer = Loopback(
        "k BIGINT, n BIGINT",
        route_by=by(lambda one: one.k // one.n, "BIGINT"),
        supersteps=4,
    )
    on = Loopback("k BIGINT, n BIGINT", route_by="k", supersteps=4, inside="outer")
    log = Output("k BIGINT, n BIGINT")
    over = Aggregate("min", ends_below=0)

    def translate(self, key: Any, group: Any, out: Any) -> None:
        """Send both in the first superstep; count down inside."""
        for one in group.items:
            out.outer(key.k, 0)
            out.on(key.k, one.n)
        for one in group.on:
            out.log(key.k, one.n)
            if one.n != 1:
                out.on(key.k, one.n - 1)
            out.over(one.n)


@pytest.mark.parametrize("tasks", [1, 2])
@pytest.mark.parametrize(("n", "fails"), [(1, True), (9, False), (0, False)])
def test_a_message_without_a_key_fails_when_it_is_read(
    n: int, fails: bool, tasks: int, tmp_path: Path
) -> None:
    """Not while it waits: the run may end, or an aggregate all loops, before."""
    driver = driver_of(tmp_path, tasks, loop_of(Astray(), items="k BIGINT, n BIGINT"))
    driver.feed("s_items", [{"k": k, "n": n} for k in range(6)])
    if fails:
        with pytest.raises(AuthorCodeError, match="outer"):
            driver.run("stage")
        return
    driver.run("stage")
    assert len(driver.outputs("stage.outer")[0]) == (6 if n == 9 else 0)
