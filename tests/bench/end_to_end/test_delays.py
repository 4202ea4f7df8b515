"""A delay and its parts."""

from __future__ import annotations

import pytest

from tests.bench.end_to_end.delays import split_delay
from tests.bench.end_to_end.figures import PARTS


def test_the_parts_are_between_the_moments() -> None:
    """Each part is named after what goes on in it; all together are the whole delay."""
    delay = split_delay([10.0, 10.1, 10.3, 10.6, 11.0, 11.5, 12.1], [])
    assert list(delay.parts) == list(PARTS)
    assert list(delay.parts.values()) == pytest.approx([0.1, 0.2, 0.3, 0.4, 0.5, 0.6])
    assert delay.seconds == pytest.approx(2.1)


def test_a_result_that_is_readable_before_its_run_has_ended_has_no_negative_part() -> None:
    """The record of a run follows its publication; the parts still add up to the whole."""
    delay = split_delay([10.0, 10.1, 10.2, 10.3, 10.5, 10.9, 10.7], [])
    assert delay.parts["published"] == pytest.approx(0.2)
    assert delay.parts["readable"] == 0.0
    assert sum(delay.parts.values()) == pytest.approx(delay.seconds) == pytest.approx(0.7)


def test_phases_of_one_name_are_added() -> None:
    """A run of several stages has a phase more than once; one that goes on has no time yet."""
    phases = [
        {"name": "job", "begin_seconds": 0.1, "end_seconds": 0.3},
        {"name": "job", "begin_seconds": 0.5, "end_seconds": 0.6},
        {"name": "finish", "begin_seconds": 0.6, "end_seconds": None},
    ]
    assert split_delay([0.0] * 7, phases).phases == {"job": pytest.approx(0.3)}
