"""Values that spread along edges which come and go; networkx from scratch is the oracle."""

from __future__ import annotations

import math
import random
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cbp import DataflowBuilder, Schema
from cbp.engine.direct import LocalEngine
from cbp.errors import AuthorCodeError, DefinitionError
from cbp.model.dataflow.dataflow import Dataflow
from cbp.sdk.translate import spec_of
from cbp.testing import run_dataflow
from stages.propagate import Propagate
from stages.propagate_arrow import PropagateArrow
from stages.translators.components import Components
from stages.translators.components_arrow import ComponentsArrow
from stages.translators.latest import Latest
from stages.translators.reachable import Reachable
from stages.translators.reachable_arrow import ReachableArrow
from stages.translators.shortest_paths import ShortestPaths
from stages.translators.shortest_paths_arrow import ShortestPathsArrow
from tests.driver import Driver
from tests.sampling import examples

EDGES = "src BIGINT, dst BIGINT, weight DOUBLE"
Edge = tuple[int, int, float | None]
"""Two nodes, and a weight; without one, the edge goes."""
Values = dict[int, float]

NODES = st.integers(0, 6)
DAYS = st.lists(
    st.lists(
        st.tuples(NODES, NODES, st.sampled_from([0.0, 0.5, 1.0, 3.0, None, None])), max_size=8
    ),
    min_size=1,
    max_size=6,
)

NODES_OF: dict[str, list[Any]] = {
    "BIGINT": [-(1 << 40), 0, 7, 8],
    "TINYINT": [-128, 0, 7, 127],
    "DATE": [date(2020, 1, 1 + day) for day in range(4)],
    "TIMESTAMP": [datetime(2020, 1, 1, hour, tzinfo=UTC) for hour in range(4)],
    "DOUBLE": [-0.5, 0.0, 0.25, 0.5],
    "DECIMAL(9,2)": [Decimal(n) / 4 for n in range(4)],
}
"""Four nodes of each type."""


def spread(stage: Propagate | PropagateArrow) -> Dataflow:
    """Return the values of nodes along the edges that there are."""
    flow = DataflowBuilder("spread")
    latest = Latest(EDGES, "src, dst", gone="weight")
    edges = flow.stage("graph", latest, rows=flow.source("edges", EDGES))
    flow.stage("spread", stage, edges=edges.latest)
    return flow.build()


def graph(days: Sequence[Sequence[Edge]]) -> nx.DiGraph:
    """Return the edges that are there after some days."""
    last = {(src, dst): weight for day in days for src, dst, weight in day}
    made = nx.DiGraph()
    made.add_weighted_edges_from((*edge, w) for edge, w in last.items() if w is not None)
    return made


def least_labels(of: nx.DiGraph) -> Values:
    return {n: min(part) for part in nx.weakly_connected_components(of) for n in part}


def steps(of: nx.DiGraph, cutoff: int | None = None) -> Values:
    begins = 0 in of and of.out_degree(0)
    return dict(nx.single_source_shortest_path_length(of, 0, cutoff)) if begins else {}


def lengths(of: nx.DiGraph) -> Values:
    return (
        dict(nx.single_source_dijkstra_path_length(of, 0)) if 0 in of and of.out_degree(0) else {}
    )


CASES: dict[str, tuple[Any, Any]] = {
    "components": (Components, least_labels),
    "reachable": (lambda: Reachable(0), steps),
    "reachable-within": (lambda: Reachable(0, limit=2), lambda of: steps(of, 2)),
    "shortest": (lambda: ShortestPaths(0), lengths),
    "shortest-undirected": (
        lambda: ShortestPaths(0, directed=False),
        lambda of: lengths(both_ways(of)),
    ),
}
ARRAYS: dict[str, tuple[Any, Any]] = {
    "components": (ComponentsArrow, CASES["components"][1]),
    "reachable": (lambda: ReachableArrow(0), CASES["reachable"][1]),
    "reachable-within": (lambda: ReachableArrow(0, limit=2), CASES["reachable-within"][1]),
    "shortest": (lambda: ShortestPathsArrow(0), CASES["shortest"][1]),
    "shortest-undirected": (
        lambda: ShortestPathsArrow(0, directed=False),
        CASES["shortest-undirected"][1],
    ),
}
EVERY = {**CASES, **{f"{name}-arrow": case for name, case in ARRAYS.items()}}


def both_ways(of: nx.DiGraph) -> nx.DiGraph:
    made = nx.DiGraph()
    for src, dst, weight in of.edges(data="weight"):
        for edge in ((src, dst), (dst, src)):
            known = made.edges[edge]["weight"] if made.has_edge(*edge) else weight
            made.add_edge(*edge, weight=min(known, weight))
    return made


def values(stage: Propagate | PropagateArrow, days: list[list[Edge]]) -> list[Values]:
    """Return the values after each increment, summed up from the changes of the view."""
    result = run_dataflow(spread(stage), {"edges": days})
    assert len(result.outputs["spread.nodes"]) == len(days), "one epoch for each increment"
    held: Counter[tuple[int, float]] = Counter()
    after = []
    for epoch in result.outputs["spread.nodes"]:
        for row in epoch:
            held[row[:2]] += row.sign
        after.append(dict((+held).elements()))
        assert len(after[-1]) == held.total(), "one value for a node"
    return after


@pytest.mark.part(every=3)
@pytest.mark.parametrize("case", EVERY)
@settings(max_examples=examples(12), deadline=None)
@given(days=DAYS)
def test_after_every_increment_they_are_those_of_networkx(
    case: str, days: list[list[Edge]]
) -> None:
    """Edges come, go and change their weight, also on cycles; each increment is one epoch."""
    make, oracle = EVERY[case]
    assert values(make(), days) == [oracle(graph(days[:end])) for end in range(1, len(days) + 1)]


@pytest.mark.parametrize("case", CASES)
@settings(max_examples=examples(4), deadline=None)
@given(days=DAYS)
def test_a_chain_of_epochs_ends_where_one_run_does(case: str, days: list[list[Edge]]) -> None:
    """Also if increments come while messages are under way: nothing depends on their order."""
    make, oracle = CASES[case]
    stage = make()
    stage.news = replace(stage.news, supersteps=1)
    for at_once in (False, True):
        result = run_dataflow(spread(stage), {"edges": days}, at_once=at_once)
        assert dict(result.view("spread.nodes")) == oracle(graph(days))
        assert all(row.phase == 0 for row in result.state["spread.support"])


@pytest.mark.part(every=3)
@pytest.mark.parametrize("case", EVERY)
def test_on_tables_they_are_those_of_networkx(case: str, tmp_path: Path) -> None:
    """Random graphs that lose as many edges as they get: values, and one epoch an increment."""
    dice = random.Random(3)
    make, oracle = EVERY[case]
    driver = Driver(LocalEngine(cache=str(tmp_path / "cache")), spread(make()), tmp_path / "t")
    days: list[list[Edge]] = []
    for number in range(1, 4):
        days.append(some_edges(dice, days, nodes=20, many=12))
        driver.feed(
            "edges", [dict(zip(("src", "dst", "weight"), e, strict=True)) for e in days[-1]]
        )
        driver.run_until_idle()
        assert dict(tuple(row.values()) for row in driver.state("spread", "nodes")) == oracle(
            graph(days)
        )
        assert len(driver.figures) == 2 * number


def some_edges(
    dice: random.Random, days: Sequence[Sequence[Edge]], *, nodes: int, many: int
) -> list[Edge]:
    """Return edges that come, and as many that go."""
    come = [
        (dice.randrange(nodes), dice.randrange(nodes), float(dice.randrange(4)))
        for _ in range(many)
    ]
    there = sorted(graph(days).edges)
    gone = dice.sample(there, min(len(there), many if days else 0))
    return [*come, *((src, dst, None) for src, dst in gone)]


@pytest.mark.soak
@pytest.mark.parametrize("case", EVERY)
@settings(max_examples=examples(75), deadline=None)
@given(seed=st.integers(0, 1 << 30), nodes=st.integers(2, 40), density=st.floats(0.2, 2))
def test_long_histories(case: str, seed: int, nodes: int, density: float) -> None:
    """Twelve increments of edges that come and go, on graphs of all densities."""
    dice, days = random.Random(seed), list[list[Edge]]()
    for _ in range(12):
        days.append(some_edges(dice, days, nodes=nodes, many=max(1, int(nodes * density / 2))))
    make, oracle = EVERY[case]
    assert values(make(), days) == [oracle(graph(days[:end])) for end in range(1, len(days) + 1)]


def test_an_answer_that_is_lost_again_is_asked_for_again() -> None:
    """A node that waits for answers forgets the best one if its edge, or its value, goes."""
    dice, days = random.Random(9), list[list[Edge]]()
    for _ in range(6):
        days.append(some_edges(dice, days, nodes=14, many=7))
    right = [least_labels(graph(days[:end])) for end in range(1, len(days) + 1)]
    assert values(Components(), days) == right


def test_an_author_says_what_is_better() -> None:
    """The widest path: an edge narrows what comes along it, and wider is better."""

    class Widest(Propagate):
        def start(self, node: int) -> float | None:
            return 9.0 if node == 0 else None

        def along(self, value: float, *edge: float) -> float:
            return min(value, *edge)

        def better(self, one: float, other: float) -> bool:
            return one > other

    class WidestArrow(PropagateArrow):
        largest = True

        def starts(self, nodes: Any) -> Any:
            return nodes == 0

        def start(self, nodes: Any) -> Any:
            return np.full(len(nodes), 9.0)

        def along(self, values: Any, *edge: Any) -> Any:
            return np.minimum(values, *edge)

    days: list[list[Edge]] = [
        [(0, 1, 4.0), (0, 2, 7.0), (2, 1, 6.0), (1, 3, 5.0), (3, 1, 8.0)],
        [(2, 1, None)],
        [(0, 1, None)],
    ]
    for class_ in (Widest, WidestArrow):
        stage = class_("width DOUBLE", edge="weight DOUBLE", directed=True)
        assert values(stage, days) == [
            {0: 9, 1: 6, 2: 7, 3: 5},
            {0: 9, 1: 4, 2: 7, 3: 4},
            {0: 9, 2: 7},
        ]


def test_only_what_an_edge_held_up_is_derived_again() -> None:
    """A leaf's edge goes: the nodes around it are called, and no others."""
    days: list[list[Edge]] = [[(n, n + 1, 1.0) for n in range(40)], [(39, 40, None)]]
    result = run_dataflow(spread(Reachable(0)), {"edges": days})
    first, second = result.figures["spread"]
    assert first["supersteps"] > 40
    assert second["groups"] <= 4


def test_a_weight_below_zero_is_refused() -> None:
    """Paths would get shorter around a cycle for ever."""
    for stage in (ShortestPaths(0), ShortestPathsArrow(0)):
        with pytest.raises(AuthorCodeError, match="weights are 0 or more"):
            run_dataflow(spread(stage), {"edges": [[(0, 1, -1.0)]]})


@pytest.mark.parametrize("value", ["BIGINT", "DOUBLE", "TINYINT"])
def test_an_edge_that_makes_values_better_is_refused(value: str) -> None:
    """A run would not end, nor one whose whole numbers have no room and begin at the least."""

    class Nearer(PropagateArrow):
        def start(self, nodes: Any) -> Any:
            return np.full(len(nodes), 100)

        def along(self, values: Any, *edge: Any) -> Any:
            return values + np.array(60, values.dtype) * np.sign(edge[0]).astype(values.dtype)

    weight = 1.0 if value == "TINYINT" else -1.0
    stage = Nearer(f"cost {value}", edge="weight DOUBLE", directed=True)
    with pytest.raises(AuthorCodeError, match=r"along\(\) returned -?\d+(\.0)? for 100"):
        run_dataflow(spread(stage), {"edges": [[(0, 1, weight), (1, 0, weight)]]})


@pytest.mark.parametrize("stage", [Reachable, ReachableArrow, ShortestPaths, ShortestPathsArrow])
@pytest.mark.parametrize(
    ("source", "node"),
    [
        ("0", "BIGINT"),
        (0, "STRING"),
        (None, "STRING"),
        (True, "BIGINT"),
        (1.5, "INT"),
        (128, "TINYINT"),
        ("2020-01-01", "DATE"),
        (datetime(2020, 1, 1, tzinfo=UTC), "DATE"),
        (datetime(2020, 1, 1), "TIMESTAMP"),  # noqa: DTZ001 - without a zone, on purpose
        ("1.5", "DECIMAL(9,2)"),
        (1.1, "DECIMAL(9,2)"),
        (math.nan, "DOUBLE"),
    ],
)
def test_a_source_that_can_be_no_node_is_refused(stage: Any, source: Any, node: str) -> None:
    """The stage would be empty without a word, as no node equals it."""
    with pytest.raises(DefinitionError, match="the type of the nodes, so") as error:
        stage(source, node)
    assert error.value.mistake.where == f"{stage.__name__}.source"


@pytest.mark.parametrize(
    ("source", "node", "advice"),
    [
        (0, "STRING", "give a text, or"),
        (1.1, "DECIMAL(9,2)", "give a number with at most 2 digits after the point, or"),
    ],
)
def test_the_message_about_a_source_stays(source: Any, node: str, advice: str) -> None:
    """It is in the fingerprint of six ready stages, which stop as drifted if it changes."""
    with pytest.raises(DefinitionError, match=advice):
        Reachable(source, node)


@pytest.mark.parametrize("stage", [Reachable, ReachableArrow])
@pytest.mark.parametrize("node", [*NODES_OF, "STRING", "BINARY", "BOOLEAN"])
def test_a_source_of_the_type_of_nodes_is_taken(stage: Any, node: str) -> None:
    """Each type of nodes has sources; a stage with another type of nodes is refused as such."""
    others: dict[str, list[Any]] = {"STRING": ["a"], "BINARY": [b"a"], "BOOLEAN": [True]}
    for source in {**NODES_OF, **others}[node]:
        assert spec_of(stage(source, node)).key == Schema.parse(f"node {node}")
    with pytest.raises(DefinitionError, match="is not a type"):
        spec_of(stage("a", "TEXT"))


def test_edges_with_columns_come_from_a_view() -> None:
    """A record that says that an edge is gone does not say which one of several."""
    with pytest.raises(DefinitionError, match="wire the input of edges to a view"):
        PropagateArrow("width DOUBLE", edge="weight DOUBLE", changes=False)


@pytest.mark.parametrize("form", [Propagate, PropagateArrow])
@pytest.mark.parametrize("node", NODES_OF)
def test_nodes_and_edges_have_columns_of_any_type(form: type, node: str, tmp_path: Path) -> None:
    """Also a type with a comma, and any name; each of two edges of two nodes counts."""
    ids = NODES_OF[node]
    first = ids[0]
    methods: dict[Any, dict[str, Any]] = {
        Propagate: {
            "start": lambda self, node: 0 if node == first else None,
            "along": lambda self, value, weight, gone, length: value + 1,
        },
        PropagateArrow: {
            "starts": lambda self, nodes: nodes == np.array(first, nodes.dtype),
            "start": lambda self, nodes: np.zeros(len(nodes), np.int64),
            "along": lambda self, values, weight, gone, length: values + 1,
        },
    }
    edge = "weight DECIMAL(9,2), gone BOOLEAN, length FLOAT"
    stage = type("Steps", (form,), methods[form])(
        "steps BIGINT", node=node, edge=edge, directed=True
    )
    schema = f"src {node}, dst {node}, {edge}, there BOOLEAN"
    flow = DataflowBuilder("spread")
    latest = Latest(schema, "src, dst, weight, gone, length", gone="there")
    edges = flow.stage("graph", latest, rows=flow.source("edges", schema)).latest
    flow.stage("spread", stage, edges=edges)
    driver = Driver(LocalEngine(cache=str(tmp_path / "cache")), flow.build(), tmp_path / "t")
    one, two = (Decimal("1.25"), True, 0.5), (Decimal("1.25"), False, 0.5)
    days: list[list[tuple[int, int, Any, bool | None]]] = [
        [(0, 1, one, True), (0, 1, two, True), (1, 2, one, True), (2, 3, one, True)],
        [(0, 1, one, None), (0, 2, one, True)],
        [(0, 1, two, None)],
    ]
    right = [{0: 0, 1: 1, 2: 2, 3: 3}, {0: 0, 1: 1, 2: 1, 3: 2}, {0: 0, 2: 1, 3: 2}]
    names = Schema.parse(schema).names
    for day, steps in zip(days, right, strict=True):
        driver.feed(
            "edges",
            [
                dict(zip(names, (ids[src], ids[dst], *more, there), strict=True))
                for src, dst, more, there in day
            ],
        )
        driver.run_until_idle()
        actual = {row["node"]: row["steps"] for row in driver.state("spread", "nodes")}
        assert actual == {ids[at]: many for at, many in steps.items()}


@pytest.mark.parametrize("form", [Components, ComponentsArrow])
def test_an_edge_without_one_of_its_ends_is_none(form: type) -> None:
    """Neither a null nor a NaN is a node, wherever it is; no other node hears of it."""
    nothing: list[Any] = [None, math.nan]
    for node in ("BIGINT", "DOUBLE"):
        schema = f"src {node}, dst {node}, weight DOUBLE"
        flow = DataflowBuilder("spread")
        latest = Latest(schema, "src, dst", gone="weight")
        edges = flow.stage("graph", latest, rows=flow.source("edges", schema)).latest
        flow.stage("spread", form(node=node), edges=edges)
        ends = nothing[:1] if node == "BIGINT" else nothing
        day: list[Any] = [(1, 2, 1.0), *((end, n, 1.0) for end in ends for n in (2, 5))]
        days: list[Any] = [
            [*day, *((dst, src, w) for src, dst, w in day)],
            [(end, 5, None) for end in ends],
        ]
        result = run_dataflow(flow.build(), {"edges": days})
        assert dict(result.view("spread.nodes")) == {1: 1, 2: 1}


def test_a_fraction_is_no_whole_number() -> None:
    """A value that its column does not hold is refused in both forms, not cut."""

    class Halves(Propagate):
        def start(self, node: int) -> Any:
            return 1

        def along(self, value: float, *edge: float) -> Any:
            return value + edge[0]

    class HalvesArrow(PropagateArrow):
        def start(self, nodes: Any) -> Any:
            return np.ones(len(nodes), np.int64)

        def along(self, values: Any, *edge: Any) -> Any:
            return values + edge[0]

    for class_ in (Halves, HalvesArrow):
        stage = class_("width BIGINT", edge="weight DOUBLE", directed=True)
        with pytest.raises(AuthorCodeError, match=r"1\.5"):
            run_dataflow(spread(stage), {"edges": [[(0, 1, 0.5)]]})


def test_a_fraction_is_no_whole_number_where_whole_components_are_computed() -> None:
    """Edges without direction and columns of their own, along which values do not change."""

    class HalvesArrow(PropagateArrow):
        def start(self, nodes: Any) -> Any:
            return nodes / 2

    with pytest.raises(AuthorCodeError, match=r"1\.5"):
        run_dataflow(spread(HalvesArrow("half BIGINT")), {"edges": [[(3, 4, 1.0)]]})


def test_packages_are_reached_along_their_dependencies() -> None:
    """Debian's installed packages by name; some are removed, and come back."""
    every = nx.DiGraph(sorted(dependencies()))
    source = max(sorted(every), key=every.out_degree)
    depends = sorted(every.subgraph([*nx.bfs_tree(every, source)][:60]).edges)
    gone = [edge for edge in depends if edge[1] < "libd" and edge[0] != source]
    flow = DataflowBuilder("packages")
    schema = "src STRING, dst STRING, there BOOLEAN"
    latest = Latest(schema, "src, dst", gone="there")
    edges = flow.stage("depends", latest, rows=flow.source("edges", schema)).latest
    flow.stage("needed", Reachable(source, node="STRING"), edges=edges)
    flow.stage("parts", Components(node="STRING"), edges=edges)
    days = [
        [(*edge, True) for edge in depends],
        [(*edge, None) for edge in gone],
        [(*edge, True) for edge in gone[::2]],
    ]
    result = run_dataflow(flow.build(), {"edges": days})
    seen = [0]
    for there in (depends, sorted({*depends} - {*gone}), sorted({*depends} - {*gone[1::2]})):
        made = nx.DiGraph(there)
        for stage, right in (
            ("needed", nx.single_source_shortest_path_length(made, source)),
            ("parts", least_labels(made)),
        ):
            assert after(result, stage, len(seen)) == right
        seen.append(len(nx.descendants(made, source)))
    assert seen[2] < seen[3] < seen[1]


def after(result: Any, stage: str, days: int) -> dict[Any, Any]:
    """Return a view as it was after some epochs."""
    held: Counter[Any] = Counter()
    for epoch in result.outputs[f"{stage}.nodes"][:days]:
        for row in epoch:
            held[row[:2]] += row.sign
    return dict((+held).elements())


def dependencies() -> set[tuple[str, str]]:
    """Return which installed package needs which one; skip on other systems."""
    status = Path("/var/lib/dpkg/status")
    if not status.is_file():
        pytest.skip("no Debian packages are installed here")
    needs: dict[str, set[str]] = {}
    for block in status.read_text(encoding="utf-8", errors="replace").split("\n\n"):
        fields = dict(re.findall(r"^(Package|Depends): (.*)$", block, re.MULTILINE))
        if "Package" in fields:
            names = re.findall(r"(?:^|[,|])\s*([a-z0-9.+-]+)", fields.get("Depends", ""))
            needs[fields["Package"]] = {*names}
    return {(one, other) for one, others in needs.items() for other in others if other in needs}
