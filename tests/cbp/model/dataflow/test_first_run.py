"""Which stages can never have a first run: judged by what the rules themselves decide."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cbp.errors import DataflowInvalidError
from cbp.model.dataflow.dataflow import Dataflow, SourceNode, StageNode
from cbp.model.dataflow.runnable import Align, CountWindow, RunAll, RunAny, StaticTable
from cbp.model.dataflow.stage import RunnableSpec
from cbp.model.flow.connector import Connector, Queued
from cbp.model.flow.increment import Increment
from cbp.model.flow.schema import Schema
from tests.cbp.model.dataflow.test_dataflow import KEYS, dataflow, spec, stage

SOURCE = {"s": SourceNode("s", Schema.parse("k STRING"))}
TWO = {"a": "k STRING", "b": "k STRING"}
RULES = [RunAll(), RunAny(), Align(), CountWindow(1), StaticTable(("b",), RunAny())]


def node(name: str, a: str, b: str, rule: object = RunAll()) -> StageNode:
    made = stage(name=name, translator=spec(TWO, KEYS), wiring={"a": a, "b": b})
    return replace(made, rule=RunnableSpec(rule))  # type: ignore[arg-type]


def ever_run(graph: Dataflow) -> set[str]:
    """Return the stages that run, if each source has increments and each run emits one a flow."""
    there, ran = set(graph.sources), set[str]()
    while True:
        more = {
            name
            for name, one in graph.stages.items()
            if name not in ran
            and one.runnable.function(
                {
                    input_: Connector(
                        input_, (Queued(Increment(flow, 0, 0)),) if flow in there else ()
                    )
                    for input_, flow in one.wiring.items()
                },
                None,
            ).runnable
        }
        if not more:
            return ran
        ran |= more
        there |= {f"{name}.out" for name in more}


@st.composite
def graphs(draw: st.DrawFn) -> Dataflow:
    names = [f"n{number}" for number in range(draw(st.integers(1, 5)))]
    flows = st.sampled_from(["s", *(f"{name}.out" for name in names)])
    nodes = {
        name: node(name, draw(flows), draw(flows), draw(st.sampled_from(RULES))) for name in names
    }
    return Dataflow("flow", SOURCE, nodes)


@given(graphs())
def test_a_graph_is_accepted_if_each_stage_can_run(graph: Dataflow) -> None:
    """Whatever cycles lie inside of others; what is named is stuck, and on the cycle it names."""
    stuck = graph.stages.keys() - ever_run(graph)
    named = graph.never_run()
    assert bool(named) == bool(stuck)
    assert named.keys() <= stuck
    for name, mistake in named.items():
        assert (mistake.code, mistake.where) == ("cycle_never_runs", f"stages.{name}.runnable")
        _, _, rest = mistake.message.partition("(the cycle ")
        path = rest.partition(")")[0].split(" -> ")
        assert path[0] == path[-1] == name
        assert set(path) <= stuck
        for before, after in pairwise(path):
            assert f"{before}.out" in graph.stages[after].wiring.values()


@pytest.mark.parametrize("behind", ["two.out", "three.out"])
def test_a_cycle_inside_of_one_that_runs_is_refused(behind: str) -> None:
    """The first stage runs, and those behind it never do; only the larger cycle has a way in."""
    graph = dataflow(
        sources=SOURCE,
        one=node("one", "s", "two.out", RunAny()),
        two=node("two", "one.out", behind),
        three=node("three", "two.out", "two.out"),
    )
    with pytest.raises(DataflowInvalidError) as caught:
        graph.check()
    (mistake,) = caught.value.mistakes
    path = "two -> two" if behind == "two.out" else "two -> three -> two"
    assert (mistake.code, mistake.where) == ("cycle_never_runs", "stages.two.runnable")
    assert f"(the cycle {path})" in mistake.message
    assert "runnable: run_any" in mistake.message
