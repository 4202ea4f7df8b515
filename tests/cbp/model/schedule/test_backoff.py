"""Pauses grow, are bounded, and end when the clock says so, or when it was set back."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from cbp.model.schedule.backoff import Backoff, Rest

NOW = datetime(2026, 1, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)


def test_pauses_grow_from_those_listed_to_the_most() -> None:
    """The last listed one doubles; a part is drawn."""
    backoff = Backoff((0.0, 0.0, 1.0), 30.0)
    assert [backoff.seconds(n) for n in range(1, 10)] == [0, 0, 1, 2, 4, 8, 16, 30, 30]
    assert backoff.seconds(5, 0.0) == 2


def test_a_rest_lasts_for_its_pause_alone() -> None:
    """Neither behind it nor before it began, as when the clock is set back."""
    rest = Backoff((5.0,)).rest(1, NOW)
    assert rest == Rest(NOW, NOW + timedelta(seconds=5))
    moments = [NOW - HOUR, NOW, NOW + timedelta(seconds=4.9), NOW + timedelta(seconds=5)]
    assert [rest.lasts(moment) for moment in moments] == [False, True, True, False]


@pytest.mark.parametrize("failures", [1, 2, 3, 20])
def test_of_a_kept_end_the_begin_is_the_earliest(failures: int) -> None:
    """No pause that was drawn is cut; one that seems longer than any ends at once."""
    backoff = Backoff((5.0, 1.0), 60.0)
    rest = backoff.rest(failures, NOW, 0.3)
    for more in (0, 1, 4):
        kept = backoff.rest_until(failures + more, rest.end)
        assert kept.begin <= NOW
        assert kept.end - kept.begin <= timedelta(seconds=60)
        assert not kept.lasts(NOW - HOUR)
