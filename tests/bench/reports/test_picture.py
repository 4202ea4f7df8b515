"""The picture shows every candidate as a line of its own, on two logarithmic axes.

There is a line per candidate, form and state.
"""

from __future__ import annotations

import pytest

from tests.bench.measurements.result import Measured, Sample
from tests.bench.reports.picture import figure_of, floors_of, lines_of

pytest.importorskip("matplotlib")


def measured(candidate: str, form: str, records: int, seconds: float, keys: int = 9) -> Measured:
    """Give one result."""
    return Measured.of(
        [Sample(seconds, None, None, None, {})],
        workload="crawl-queue",
        candidate=candidate,
        form=form,
        state_keys=keys,
        increment_records=records,
        floor_seconds=seconds / 10,
    )


RESULTS = [
    measured(candidate, form, records, records * factor, keys)
    for keys in (9, 90)
    for records in (100, 10)
    for candidate, form, factor in (
        ("cbp", "arrow", 1.0),
        ("blackbox", "arrow", 3.0),
        ("blackbox", "groupwise", 9.0),
    )
]


def test_each_candidate_form_and_state_is_a_line_of_its_own() -> None:
    """No size of increment comes twice in a line, even if a candidate has several forms."""
    lines = lines_of(RESULTS)
    assert {name for name, _ in lines} == {"cbp", "blackbox (arrow)", "blackbox (groupwise)"}
    assert {keys for _, keys in lines} == {9, 90}
    assert len(lines) == 6
    for points in lines.values():
        assert [one.increment_records for one in points] == [10, 100]
        assert len({(one.form, one.seconds_median / one.increment_records) for one in points}) == 1


def test_both_axes_are_logarithmic_and_every_line_is_named() -> None:
    """Ratios are what is compared; the floor is a line too."""
    (axes,) = figure_of(RESULTS).axes
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")
    legend = axes.get_legend()
    assert legend is not None
    labels = [text.get_text() for text in legend.get_texts()]
    assert len(labels) == len(set(labels)) == 7
    assert {"cbp, 9 keys", "blackbox (arrow), 90 keys", "floor"} <= {*labels}
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("records of an increment", "seconds")
    assert axes.get_title() == "crawl-queue"


def test_the_floor_is_one_line_whatever_the_state() -> None:
    """It was measured beside every state size; a size of increment has one point."""
    uneven = [*RESULTS, measured("cbp", "arrow", 10, 1000.0)]
    assert [records for records, _ in floors_of(uneven)] == [10, 100]
    assert dict(floors_of(RESULTS))[10] == 3.0
