"""Components and cycles of a wiring, and where empties are not enqueued."""

from __future__ import annotations

import networkx
from hypothesis import given
from hypothesis import strategies as st

from cbp.model.dataflow.dataflow import Dataflow
from cbp.model.flow.increment import DataFile, Increment
from cbp.model.graph.cycles import components, cycles, inner_inputs, predecessors
from tests.cbp.engine.epochs import dataflow_of

STAGES = "abcdef"
WIRINGS = st.dictionaries(
    st.sampled_from(STAGES),
    st.dictionaries(
        st.sampled_from("ijk"), st.sampled_from([*(f"{s}.o" for s in STAGES), "source"])
    ),
)


@given(WIRINGS)
def test_components_are_those_of_networkx_upstream_first(wiring: dict[str, dict[str, str]]) -> None:
    """Another algorithm finds the same sets, and no stage comes before what feeds it."""
    graph = networkx.DiGraph()
    graph.add_nodes_from(wiring)
    graph.add_edges_from((b, s) for s, before in predecessors(wiring).items() for b in before)
    actual = components(predecessors(wiring))
    expected = {frozenset(c) for c in networkx.strongly_connected_components(graph)}
    assert {frozenset(component) for component in actual} == expected
    place = {stage: i for i, component in enumerate(actual) for stage in component}
    assert all(place[before] <= place[stage] for before, stage in graph.edges)
    on_cycle = {s for c in networkx.simple_cycles(graph) for s in c}
    assert cycles(predecessors(wiring)).keys() == on_cycle
    assert {stage for stage, _ in inner_inputs(wiring)} == on_cycle


@given(WIRINGS)
def test_the_order_depends_on_the_wiring_alone(wiring: dict[str, dict[str, str]]) -> None:
    """However a document orders its stages, phases go the same way."""
    turned = dict(reversed(wiring.items()))
    assert components(predecessors(turned)) == components(predecessors(wiring))


def test_empties_are_not_enqueued_inside_a_cycle() -> None:
    """They keep readers outside aligned, and do not keep a cycle turning."""
    (node,) = dataflow_of("url_count").stages.values()
    stages = {
        name: type(node)(name, node.translator, {"urls": flow})
        for name, flow in (("a", "b.totals"), ("b", "a.totals"), ("c", "b.totals"))
    }
    dataflow = Dataflow("loop", {}, stages)
    filled = Increment("b.totals", 0, 0, (DataFile("x", 1, 1),))
    assert list(dataflow.receivers(filled)) == [("a", "urls"), ("c", "urls")]
    assert list(dataflow.receivers(Increment("b.totals", 0, 0))) == [("c", "urls")]
    assert dataflow.cycles() == {"a": ("a", "b"), "b": ("a", "b")}
