"""Bulk loops in rounds: equal to a solution from scratch, whatever came and went before."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cbp import DataflowBuilder
from cbp.engine.direct import LocalEngine
from cbp.engine.storage.engine_limits import DEFAULT_LIMITS
from cbp.errors import AuthorCodeError
from cbp.testing import run_dataflow
from stages.gather_arrow import GatherArrow
from tests.cbp.engine.epochs import assert_same
from tests.cbp.engine.task.test_supersteps import Dying
from tests.driver import Driver
from tests.sampling import examples

NODES = 7
_edge = st.fixed_dictionaries(
    {"src": st.integers(0, NODES - 1), "dst": st.integers(0, NODES - 1), "gone": st.booleans()}
)
EPOCHS = st.lists(st.lists(_edge, max_size=8), min_size=1, max_size=4)
Edges = list[dict[str, Any]]


class Katz(GatherArrow):
    """Katz centrality: one, and a tenth of those whose edges lead here; to a sum of errors."""

    def __init__(self, rounds: int = 100) -> None:
        super().__init__("score DOUBLE", rounds=rounds, changes=False)

    def start(self, nodes: Any) -> Any:
        """See `GatherArrow`."""
        return np.ones(len(nodes))

    def apply(self, before: Any, gathered: Any) -> Any:
        """See `GatherArrow`."""
        return 1 + 0.1 * gathered

    def rests(self, before: Any, now: Any) -> bool:
        """See `GatherArrow`."""
        return bool(np.abs(now - before).sum() < 1e-12)


class Oldest(GatherArrow):
    """The least node that leads here, and how it is shared: whole numbers, at rest by default."""

    combine = "least"
    nothing = 1 << 40

    def __init__(self) -> None:
        super().__init__("oldest BIGINT", changes=False)

    def start(self, nodes: Any) -> Any:
        """See `GatherArrow`."""
        return nodes

    def apply(self, before: Any, gathered: Any) -> Any:
        """See `GatherArrow`."""
        return np.minimum(before, gathered)


def there(epochs: list[Edges]) -> set[tuple[int, int]]:
    last = {(one["src"], one["dst"]): one["gone"] for edges in epochs for one in edges}
    return {edge for edge, gone in last.items() if not gone}


def katz(edges: set[tuple[int, int]]) -> dict[int, float]:
    """Return the solution of the linear equations, of the nodes that have an edge."""
    leads = np.zeros((NODES, NODES))
    for src, dst in edges:
        leads[dst, src] = 1
    scores = np.linalg.solve(np.eye(NODES) - 0.1 * leads, np.ones(NODES))
    return {node: scores[node] for node in sorted({node for edge in edges for node in edge})}


def oldest(edges: set[tuple[int, int]]) -> dict[int, int]:
    least = {node: node for edge in edges for node in edge}
    for _ in range(NODES):
        for src, dst in edges:
            least[dst] = min(least[dst], least[src])
    return dict(sorted(least.items()))


def flow_of(stage: GatherArrow) -> Any:
    flow = DataflowBuilder("loop")
    edges = flow.source("edges", "src BIGINT, dst BIGINT, gone BOOLEAN")
    flow.stage("loop", stage, buckets=2, edges=edges)
    return flow.build()


@settings(max_examples=examples(8), deadline=None)
@given(epochs=EPOCHS)
def test_rounds_lead_to_the_solution(epochs: list[Edges]) -> None:
    """Sums to a declared error, least values exactly; after edges that came, and that went."""
    records = {"edges": epochs}
    edges = there(epochs)
    scores = run_dataflow(flow_of(Katz()), records).view("loop.nodes")
    actual = {row.node: row.score for row in scores}
    assert actual == pytest.approx(katz(edges), abs=1e-9)
    assert actual.keys() == katz(edges).keys()
    olds = run_dataflow(flow_of(Oldest()), records).view("loop.nodes")
    assert {row.node: row.oldest for row in olds} == oldest(edges)


def test_engine_and_reference_agree_to_the_last_bit(tmp_path: Any) -> None:
    """Links are summed in one order, whatever came when; nodes without an edge go."""
    dice = np.random.default_rng(5)
    epochs = []
    for _ in range(5):
        ends = dice.integers(0, NODES, (6, 2)).tolist()
        epochs.append([{"src": s, "dst": d, "gone": bool(dice.integers(3) == 0)} for s, d in ends])
    flow = flow_of(Katz())
    driver = Driver(LocalEngine(cache=str(tmp_path / "cache")), flow, tmp_path / "t")
    assert_same(flow, driver, [{"edges": edges} for edges in epochs], source="")


def test_another_try_goes_on_with_the_values_of_a_round(tmp_path: Any) -> None:
    """To the last bit, wherever the tries before it died."""
    dice = np.random.default_rng(6)
    epochs = [
        [{"src": s, "dst": d, "gone": False} for s, d in dice.integers(0, NODES, (9, 2)).tolist()]
        for _ in range(2)
    ]
    flow, limits = flow_of(Katz(rounds=7)), replace(DEFAULT_LIMITS, superstep_log_ms=0)
    engine = LocalEngine(cache=str(tmp_path / "cache"), limits=limits)
    driver = Dying(engine, flow, tmp_path / "t", passages=[4, 1, 2])
    assert_same(flow, driver, [{"edges": edges} for edges in epochs], source="")
    assert driver.deaths == 3
    assert [figures.get("notes_before") for figures in driver.figures] == [4, None]
    assert [figures["notes"] for figures in driver.figures] == [7, 7], "rounds"
    assert not list(tmp_path.rglob("*.log"))


class Given(GatherArrow):
    """What an author gives to the base."""

    def __init__(self, value: str, start: Any, apply: Any, **more: Any) -> None:
        super().__init__(f"value {value}", rounds=3, changes=False)
        self._start, self._apply = start, apply
        self.__dict__.update(more)

    def start(self, nodes: Any) -> Any:
        """See `GatherArrow`."""
        return self._start(nodes)

    def apply(self, before: Any, gathered: Any) -> Any:
        """See `GatherArrow`."""
        return self._apply(before, gathered)


def test_values_have_the_type_of_their_column() -> None:
    """A start of whole numbers does not cut what follows from it."""
    edges = [{"src": node, "dst": node + 1, "gone": False} for node in range(2)]
    stage = Given("DOUBLE", np.ones_like, lambda before, gathered: 1 + gathered / 4)
    result = run_dataflow(flow_of(stage), {"edges": [edges]}).view("loop.nodes")
    assert {row.node: row.value for row in result} == {0: 1, 1: 1.25, 2: 1.3125}


def test_a_sum_may_need_more_room_than_its_values() -> None:
    """What the author makes of it has to fit their column."""
    edges = [{"src": src, "dst": 3, "gone": False} for src in range(3)]
    stage = Given(
        "TINYINT",
        lambda nodes: np.full(len(nodes), 100, np.int8),
        lambda before, gathered: np.where(gathered > 0, gathered // 3, before),
    )
    result = run_dataflow(flow_of(stage), {"edges": [edges]}).view("loop.nodes")
    assert {row.node: row.value for row in result} == dict.fromkeys(range(4), 100)


@pytest.mark.parametrize(
    ("says", "stage"),
    [
        (
            "`nothing` is inf",
            lambda: Given("BIGINT", np.ones_like, np.minimum, combine="least", nothing=math.inf),
        ),
        (
            "`nothing` is 0.5",
            lambda: Given("BIGINT", np.ones_like, np.minimum, combine="least", nothing=0.5),
        ),
        (
            "got 0.5",
            lambda: Given("BIGINT", np.ones_like, lambda before, gathered: before / 2),
        ),
        (
            "more than 62 bits",
            lambda: Given(
                "BIGINT", lambda nodes: np.full(len(nodes), 3 << 61), lambda b, gathered: gathered
            ),
        ),
    ],
)
def test_whole_numbers_are_exact_or_refused(says: str, stage: Any) -> None:
    """A sum that has no room, a fraction, and a number for no edge that is none."""
    edges = [{"src": src, "dst": 3, "gone": False} for src in range(3)]
    with pytest.raises(AuthorCodeError, match=says):
        run_dataflow(flow_of(stage()), {"edges": [edges]})


def test_a_run_ends_after_its_rounds() -> None:
    """At rest or not: the values are those of the last round."""
    edges = [{"src": node, "dst": node + 1, "gone": False} for node in range(4)]
    two = run_dataflow(flow_of(Katz(rounds=2)), {"edges": [edges]}).view("loop.nodes")
    assert {row.node: round(row.score, 6) for row in two} == {
        0: 1,
        1: 1.1,
        2: 1.11,
        3: 1.11,
        4: 1.11,
    }
