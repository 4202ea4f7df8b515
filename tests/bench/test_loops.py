"""What the benchmark of loops says and draws of its rows."""

from __future__ import annotations

import numpy as np
import pytest

from tests.bench.loops import Row, crossing, figure_of

ROWS = [
    Row("components", links, removes, links / 1_000, 0.1, warm=None if removes else 0.05)
    for links in (1_000, 10, 100)
    for removes in (False, True)
]


def test_the_size_from_which_recomputing_wins_is_said() -> None:
    """It is the least one at which ours is slower; a loop may have none, or only such."""
    assert crossing(ROWS) == "recomputing wins from 1,000 links on, applying up to 100"
    assert crossing([row for row in ROWS if row.links < 1_000]) == (
        "applying the links is faster for each increment"
    )
    assert crossing([row._replace(ours=1.0) for row in ROWS]) == (
        "recomputing is faster for each increment"
    )


def test_each_loop_has_a_chart_of_ours_and_from_scratch() -> None:
    """Links that come and that go are lines of their own, in the order of their number."""
    pytest.importorskip("matplotlib")
    figure = figure_of([*ROWS, *(row._replace(loop="pagerank") for row in ROWS)])
    assert [axes.get_title() for axes in figure.axes] == ["components", "pagerank"]
    lines = {line.get_label(): line for line in figure.axes[0].get_lines()}
    names = "ours, added", "scratch, added", "warm, added", "ours, removed", "scratch, removed"
    assert tuple(lines) == names
    drawn = np.array(lines["ours, removed"].get_data())
    assert drawn.tolist() == [[10, 100, 1_000], [0.01, 0.1, 1.0]]
    assert {axes.get_xscale() for axes in figure.axes} == {"log"}
