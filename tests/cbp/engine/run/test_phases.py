"""Stages that run together give what they give one by one, epoch by epoch.

Random graphs of record-wise, groupwise and vectorised stages; the same files, tables and tasks as
in the product, without Spark (tests/spark runs the crawl queue fused).
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cbp import DataflowBuilder
from cbp.engine.direct import DirectEngine, LocalEngine
from cbp.engine.interface.runs import RunPlan
from cbp.engine.reference.engine import ReferenceEngine
from cbp.engine.run.executor import LocalExecutor
from cbp.engine.storage.engine_limits import EngineLimits
from cbp.engine.task.reports import TaskReport
from cbp.engine.task.task_plan import TaskPlan
from cbp.errors import AuthorCodeError
from cbp.model.dataflow.dataflow import Dataflow
from tests import chains
from tests.bench.candidates.ours.blackbox import LocalBlackboxExecutor
from tests.cbp.engine.vectorised.arrow_forms import in_arrow
from tests.chains import SCHEMA, Broken, Mixed, Pair, Spread, Tally, Zipped, chain
from tests.driver import Driver
from tests.sampling import examples


@st.composite
def graphs(draw: st.DrawFn) -> Dataflow:
    """Draw a graph without cycles: each stage reads only earlier ones."""
    builder = DataflowBuilder("graph")
    flows = [builder.source("src", SCHEMA).name]
    for number in range(draw(st.integers(2, 5))):
        kind: Any = draw(st.sampled_from([Spread, Spread, Spread, Tally, Pair, Zipped, Mixed]))
        name = f"{kind.__name__.lower()}{number}"
        # Mostly the newest flows, so that chains are long.
        feeds = st.sampled_from(flows[-2:])
        inputs = ("items",) if kind in (Spread, Tally) else ("left", "right")
        wiring: dict[str, Any] = {input_: draw(feeds) for input_ in inputs}
        builder.stage(
            name, kind(), buckets=4, fuse=draw(st.sampled_from([True] * 9 + [False])), **wiring
        )
        flows += [f"{name}.o", f"{name}.p"]
    return builder.build()


_rows = st.fixed_dictionaries(
    {"k": st.one_of(st.integers(0, 5), st.none()), "v": st.sampled_from(["", "a", "b", "ä"])}
)


@pytest.mark.parametrize("engine", ["direct", "blackbox"])
@settings(max_examples=examples(5), deadline=None)
@given(data=st.data())
def test_fused_and_apart_are_the_reference(engine: str, data: st.DataObject) -> None:
    """Every flow has the same increments with the same records in the same order; so has state.

    Any of the groupwise stages may be vectorised, in any place.
    """
    dataflow = data.draw(graphs())
    grouped = [
        name
        for name, stage in dataflow.stages.items()
        if all(input_.route_by for input_ in stage.translator.inputs)
    ]
    vectorised = {name for name in grouped if data.draw(st.sampled_from([True, True, False]))}
    arrivals = st.one_of(st.just([]), *[st.lists(_rows, min_size=8, max_size=16)] * 3)
    epochs = data.draw(st.lists(arrivals, min_size=1, max_size=2))
    limits = EngineLimits(
        window_rows=data.draw(st.sampled_from([2, 7])),
        rows_per_record_task=data.draw(st.sampled_from([5, 100])),
        rows_per_task=4,
        then_rows=data.draw(st.sampled_from([3, 1000])),
    )
    with tempfile.TemporaryDirectory() as folder:
        drivers = [
            Driver(
                _engine(engine, f"{folder}/{fused}", limits),
                in_arrow(dataflow, vectorised),
                Path(folder, f"t{fused}"),
                fused=fused,
            )
            for fused in (False, True)
        ]
        reference = ReferenceEngine(dataflow)
        for rows in epochs:
            runners: list[Any] = [*drivers, reference]
            for one in runners:
                one.feed("src", rows)
                one.run_until_idle()
            for driver in drivers:
                _assert_same(driver, reference)


def _engine(name: str, cache: str, limits: EngineLimits) -> DirectEngine:
    return (
        LocalEngine(cache=cache, limits=limits)
        if name == "direct"
        else DirectEngine(LocalBlackboxExecutor(), cache=cache, limits=limits)
    )


def _assert_same(driver: Driver, reference: ReferenceEngine) -> None:
    for stage in driver.dataflow.stages.values():
        for output in stage.translator.outputs:
            flow = f"{stage.name}.{output.name}"
            assert driver.outputs(flow) == reference.outputs(flow), flow
            assert [i.index for i in driver.increments.get(flow, [])] == list(
                range(len(reference.outputs(flow)))
            )
        for state in stage.translator.states:
            kept = sorted(map(repr, driver.state(stage.name, state.name)))
            assert kept == sorted(map(repr, reference.state(stage.name, state.name)))


@pytest.mark.parametrize("limit", [0, 1000], ids=["two jobs", "one job"])
def test_a_vectorised_stage_has_its_place_in_a_chain(tmp_path: Path, limit: int) -> None:
    """Behind a record-wise stage and before one, in one job or in two: the reference's epochs."""
    engine = LocalEngine(cache=str(tmp_path / "c"), limits=EngineLimits(then_rows=limit))
    driver = Driver(engine, in_arrow(chain(), {"count"}), tmp_path / "t", fused=True)
    reference = ReferenceEngine(chain())
    for epoch in range(2):
        for one in (driver, reference):
            one.feed("src", [{"k": n % 6, "v": f"v{n + epoch}"} for n in range(14)])
            one.run_until_idle()
    assert [figures["stage"] for figures in driver.figures] == ["first", "first"]
    _assert_same(driver, reference)


@pytest.mark.parametrize("limit", [0, 1000], ids=["two jobs", "one job"])
def test_every_member_shows_its_work(tmp_path: Path, limit: int) -> None:
    """The figures of a run are those of its members, and their sum; in one job or in two."""
    engine = LocalEngine(cache=str(tmp_path / "c1"), limits=EngineLimits(then_rows=limit))
    fused = Driver(engine, chain(), tmp_path / "t1", fused=True)
    apart = Driver(LocalEngine(cache=str(tmp_path / "c2")), chain(), tmp_path / "t2")
    for driver in (fused, apart):
        driver.feed("src", [{"k": n, "v": "x"} for n in range(8)])
        driver.run_until_idle()
    (mine,) = fused.figures
    assert len(apart.figures) == 3
    for theirs in apart.figures:
        for name in ("records_in", "groups", "records_out"):
            assert mine[f"{theirs['stage']}/{name}"] == theirs[name], (theirs["stage"], name)
    assert mine["count/state_written"] == mine["state_written"] > 0
    assert mine["records_in"] == 8
    assert mine["records_out"] == sum(theirs["records_out"] for theirs in apart.figures)


class NoJobs(LocalExecutor):
    """Carries out nothing."""

    def execute(self, plan: RunPlan, task: TaskPlan) -> list[TaskReport]:
        raise AssertionError(f"{plan.run} of {plan.node.name} asks for a job")


@pytest.mark.parametrize("fused", [False, True], ids=["apart", "fused"])
def test_an_empty_arrival_leaves_empty_increments_everywhere(tmp_path: Path, fused: bool) -> None:
    """An epoch without records costs no job, and every member's flows get their increment."""
    engine = DirectEngine(NoJobs(), cache=str(tmp_path / "c"))
    driver = Driver(engine, chain(), tmp_path / "t", fused=fused)
    driver.feed("src", [])
    driver.run_until_idle()
    flows = [f"{stage}.{output}" for stage in ("first", "count", "last") for output in "op"]
    assert [driver.outputs(flow) for flow in flows] == [[[]]] * 6
    driver.feed("src", [{"k": 1, "v": "a"}])
    with pytest.raises(AssertionError, match="asks for a job"):
        driver.run_until_idle()


@pytest.mark.parametrize(("value", "stage"), [("fail", "first"), ("x", "last")])
def test_an_error_names_the_member(tmp_path: Path, value: str, stage: str) -> None:
    """What fails is the stage whose code failed, with its place, wherever it runs."""
    driver = Driver(
        LocalEngine(cache=str(tmp_path / "c")), chain(Broken()), tmp_path / "t", fused=True
    )
    driver.feed("src", [{"k": 1, "v": value}])
    with pytest.raises(AuthorCodeError) as caught:
        driver.run_until_idle()
    assert caught.value.details["stage"] == stage
    assert caught.value.details["place"].startswith(chains.__file__)
    assert not driver.outputs("first.o")
