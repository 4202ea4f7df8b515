"""When alerts are sent: after a while, again after long, once more when over."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from controller.alerts.conditions import Alert
from controller.alerts.notices import AlertLimits, Notice, NoticeBook, decide

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
LIMITS = AlertLimits(lag_seconds=900, hold_seconds=60, repeat_seconds=3600)
WARNING = Alert("retrying:a", "retrying", "warning", "a", "a fails", "disk full", "nothing")
CRITICAL = Alert("stopped:a", "stopped", "critical", "a", "a has stopped", "a bug", "mend it")


def play(*steps: tuple[float, list[Alert]]) -> list[tuple[float, str, str]]:
    """Return (seconds, status, key) of every notice."""
    book, sent = NoticeBook(), list[tuple[float, str, str]]()
    for seconds, alerts in steps:
        book, notices = decide(book, alerts, NOON + timedelta(seconds=seconds), LIMITS)
        sent += [(seconds, notice.status, notice.alert.key) for notice in notices]
    return sent


def test_a_warning_that_ends_soon_is_never_sent():
    """Neither that it began nor that it is over."""
    assert not play((0, [WARNING]), (30, [WARNING]), (59, []), (200, []))


def test_a_warning_is_sent_once_it_has_held_and_once_more_when_it_is_over():
    """Once, however often it is seen in between."""
    steps = [(float(at), [WARNING]) for at in range(0, 301, 30)]
    assert play(*steps, (330, [])) == [
        (60, "firing", "retrying:a"),
        (330, "resolved", "retrying:a"),
    ]


def test_what_is_critical_is_sent_at_once():
    """A stage that has stopped does not go on by itself."""
    assert play((0, [CRITICAL])) == [(0, "firing", "stopped:a")]


def test_an_alert_that_goes_on_is_repeated():
    """At the first look at which the time since the last notice has passed."""
    steps = [(float(at), [CRITICAL]) for at in range(0, 7201, 600)]
    assert [seconds for seconds, _, _ in play(*steps)] == [0, 3600, 7200]


def test_an_alert_that_gets_worse_is_sent_again_and_one_that_gets_better_is_not():
    """More files in quarantine are news; fewer are not, and nor is another reason."""
    sizes = [1, 1, 3, 2, 2]
    steps = [
        (float(at), [replace(CRITICAL, size=size, detail=str(at))]) for at, size in enumerate(sizes)
    ]
    assert [seconds for seconds, _, _ in play(*steps)] == [0, 2]


def test_the_time_since_is_that_of_the_first_look():
    """Also in a repetition and in the notice that it is over."""
    book, first = decide(NoticeBook(), [CRITICAL], NOON, LIMITS)
    _, over = decide(book, [], NOON + timedelta(seconds=50), LIMITS)
    assert [notice.since for notice in (*first, *over)] == [NOON, NOON]


@given(st.lists(st.tuples(st.integers(1, 2000), st.sets(st.sampled_from("abc"))), max_size=40))
def test_notices_of_a_key_begin_with_firing_and_end_with_one_resolved(steps):
    """For any history: no resolution without a notice, and none twice."""
    book, now, firing = NoticeBook(), NOON, set[str]()
    for seconds, names in steps:
        now += timedelta(seconds=seconds)
        alerts = [replace(WARNING, key=name) for name in sorted(names)]
        book, notices = decide(book, alerts, now, LIMITS)
        for notice in notices:
            assert isinstance(notice, Notice)
            if notice.status == "firing":
                firing.add(notice.alert.key)
            else:
                firing.remove(notice.alert.key)
        assert firing <= names
