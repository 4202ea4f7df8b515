"""Which stages run together: the rules, on small graphs whose stages are named by their kind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cbp.errors import InvariantError
from cbp.model.dataflow.dataflow import Dataflow, SourceNode, StageNode
from cbp.model.dataflow.runnable import RunAny
from cbp.model.dataflow.stage import InputSpec, OutputSpec, RunnableSpec, TranslatorSpec
from cbp.model.flow.schema import Schema
from cbp.model.plan.fusion import choose_leaders, physical_stages, split_phases

ONE = Schema.parse("k BIGINT")


def stage(name: str, *reads: str, fuse: bool = True) -> StageNode:
    """Give a stage with the outputs `o` and `p`: groupwise if its name begins with `g`."""
    grouped = name.startswith("g")
    inputs = tuple(InputSpec(f"i{n}", ONE, ("k",) if grouped else None) for n in range(len(reads)))
    outputs = (OutputSpec("o", ONE), OutputSpec("p", ONE))
    spec = TranslatorSpec(name, ONE if grouped else None, inputs, outputs, (), lambda *_: None)
    flows = [flow if flow == "src" or "." in flow else f"{flow}.o" for flow in reads]
    wiring = {input_.name: flow for input_, flow in zip(inputs, flows, strict=True)}
    return StageNode(name, spec, wiring, fuse=fuse)


def graph(*stages: StageNode) -> Dataflow:
    """Give a checked dataflow with one source, `src`."""
    dataflow = unchecked(*stages)
    dataflow.check()
    return dataflow


def unchecked(*stages: StageNode) -> Dataflow:
    """Give a dataflow whose cycles may never run."""
    return Dataflow("d", {"src": SourceNode("src", ONE)}, {node.name: node for node in stages})


def ready(node: StageNode) -> StageNode:
    """Give a stage that begins a cycle."""
    return replace(node, rule=RunnableSpec(RunAny()))


def units(dataflow: Dataflow) -> list[str]:
    """Return the physical stages, their members' names joined."""
    actual = physical_stages(dataflow, choose_leaders(dataflow))
    return [" ".join(unit.names) for unit in actual.values()]


def test_record_wise_stages_run_behind_what_they_read() -> None:
    """A tree of record-wise stages runs with the stage that feeds it, whatever that is."""
    tree = (stage("g1", "src"), stage("r2", "g1"), stage("r3", "r2.p"), stage("r4", "g1.p"))
    assert units(graph(*tree)) == ["g1 r2 r4 r3"]
    assert units(graph(stage("r1", "src"), stage("r2", "r1"))) == ["r1 r2"]


def test_the_order_of_the_document_does_not_matter() -> None:
    """Members stand behind the one that writes their input, wherever the document has them."""
    assert units(graph(stage("r3", "r2"), stage("r2", "g1"), stage("g1", "src"))) == ["g1 r2 r3"]


def test_a_groupwise_stage_runs_behind_its_only_input() -> None:
    """A record-wise chain and the groupwise stage that alone reads it are one."""
    assert units(graph(stage("r1", "src"), stage("r2", "r1"), stage("g3", "r2"))) == ["r1 r2 g3"]
    assert units(graph(stage("r1", "src"), stage("g2", "r1"), stage("r3", "g2"))) == ["r1 g2 r3"]


def test_two_groupwise_stages_never_run_together() -> None:
    """Between two groupwise stages, a record-wise one runs with the first."""
    chain = (stage("g1", "src"), stage("r2", "g1"), stage("g3", "r2"))
    assert units(graph(*chain)) == ["g1 r2", "g3"]


def test_a_stage_of_records_leads_whatever_it_reads() -> None:
    """Behind a record-wise stage with several inputs run those that would run behind any."""
    both = stage("r1", "src", "src")
    assert units(graph(both, stage("r2", "r1"), stage("g3", "r2"))) == ["r1 r2 g3"]


def test_other_readers_must_have_to_wait_anyway() -> None:
    """A reader that waits for the groupwise stage allows the fusion; any other forbids it."""
    start = (stage("r1", "src"), stage("g2", "r1"))
    assert units(graph(*start, stage("g3", "g2", "r1.p"))) == ["r1 g2", "g3"]
    assert units(graph(*start, stage("g3", "r1.p"))) == ["r1", "g2", "g3"]
    assert units(graph(*start, stage("g3", "src", "r1.p"))) == ["r1", "g2", "g3"]


def test_a_stage_of_several_inputs_leads() -> None:
    """What reads two flows waits for both, and what it reads must not wait with it."""
    assert units(graph(stage("r1", "src"), stage("g2", "r1", "src"))) == ["r1", "g2"]
    # Even of one epoch: by itself it reads all of one flow before any of the other.
    assert units(graph(stage("r1", "src"), stage("r2", "r1.o", "r1.p"))) == ["r1", "r2"]


def test_cycles_stay_apart() -> None:
    """No stage of a cycle runs with another, on the cycle or off it."""
    cycle = (ready(stage("g1", "src", "r2")), stage("r2", "g1"), stage("r3", "r2"))
    assert units(graph(*cycle)) == ["g1", "r2", "r3"]
    assert units(graph(ready(stage("g1", "src", "g1.p")), stage("r2", "g1"))) == ["g1", "r2"]


def test_a_stage_stays_apart_when_its_author_says_so() -> None:
    """`fuse=False` keeps a stage from its producer and from its followers."""
    chain = [stage("r1", "src"), stage("r2", "r1"), stage("r3", "r2")]
    chain[1] = replace(chain[1], fuse=False)
    assert units(graph(*chain)) == ["r1", "r2", "r3"]


def test_a_stage_in_sql_stays_apart() -> None:
    """What Spark writes by itself passes no task in which another stage could follow."""
    first = stage("g1", "src")
    first = replace(first, translator=replace(first.translator, form="sql"))
    assert units(graph(first, stage("r2", "g1"))) == ["g1", "r2"]


def test_the_crawl_queue_runs_as_three() -> None:
    """The main job's five stages make three jobs an arrival."""
    flow = graph(
        stage("r_extract", "src"),
        stage("g_count", "r_extract"),
        stage("g_merge", "g_count", "g_count.p", "r_extract.p"),
        stage("r_score", "g_merge"),
        stage("g_threshold", "r_score", "g_merge.p"),
    )
    assert units(flow) == ["r_extract g_count", "g_merge r_score", "g_threshold"]


def test_phases_begin_at_the_groupwise_member() -> None:
    """What follows a groupwise member belongs to the second phase, the rest to the first."""
    flow = graph(
        stage("r1", "src"),
        stage("g2", "r1"),
        stage("r3", "r1.p"),
        stage("r4", "g2"),
        stage("r5", "r4"),
    )
    (unit,) = physical_stages(flow, choose_leaders(flow)).values()
    phases = [[member.name for member in phase] for phase in split_phases(unit.members)]
    assert phases == [["r1", "r3"], ["g2", "r4", "r5"]]
    assert split_phases([flow.stages["g2"], flow.stages["r4"]]) == [
        (flow.stages["g2"], flow.stages["r4"])
    ]


def test_leaders_that_cannot_lead_are_refused() -> None:
    """A stored choice that leaves a stage without a neighbour is no choice of this dataflow."""
    flow = graph(stage("r1", "src"), stage("g2", "r1", "src"))
    with pytest.raises(InvariantError):
        physical_stages(flow, ["r1"])


@st.composite
def graphs(draw: st.DrawFn) -> Dataflow:
    """Draw a graph of up to seven stages, cycles included."""
    names = [f"{draw(st.sampled_from('gr'))}{n}" for n in range(draw(st.integers(1, 7)))]
    flows = ["src", *(f"{name}.{output}" for name in names for output in "op")]
    reads: Mapping[str, Sequence[str]] = {
        name: draw(
            st.lists(st.sampled_from(flows), min_size=1, max_size=2 if name[0] == "g" else 1)
        )
        for name in names
    }
    return unchecked(*(stage(name, *reads[name], fuse=draw(st.booleans())) for name in names))


@given(graphs())
def test_every_stage_runs_once_and_behind_its_input(dataflow: Dataflow) -> None:
    """Physical stages share no member, miss none, and are fed by their leader alone."""
    actual = physical_stages(dataflow, choose_leaders(dataflow))
    members = [name for unit in actual.values() for name in unit.names]
    assert sorted(members) == sorted(dataflow.stages)
    for unit in actual.values():
        assert sum(not m.translator.record_wise for m in unit.members) <= 1
        for at, member in enumerate(unit.members[1:], start=1):
            (flow,) = member.wiring.values()
            assert flow.partition(".")[0] in unit.names[:at]
            assert member.fuse
