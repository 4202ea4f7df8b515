"""What is wrong: an alert for each dataflow that does not go on, with what to do."""

from __future__ import annotations

import pytest

from controller.alerts.conditions import DataflowHealth, DrainHealth, RebuildHealth, alerts_of


def keys(*healths: DataflowHealth, lag_seconds: float = 900) -> list[str]:
    return [alert.key for alert in alerts_of(healths, lag_seconds=lag_seconds)]


def test_a_healthy_or_paused_dataflow_gives_no_alert():
    """A pause is meant; what waits meanwhile is not late."""
    assert not keys(DataflowHealth("a", "ok"), DataflowHealth("b", "paused", lag_seconds=3600))
    assert not keys(
        DataflowHealth("b", "paused"), DataflowHealth("c", "paused", lag_seconds=1e6), lag_seconds=0
    )


def test_a_pause_that_was_forgotten_gives_an_alert():
    """Four times the limit is long for a pause while input waits; the command ends it."""
    (alert,) = alerts_of([DataflowHealth("a", "paused", lag_seconds=3601)], lag_seconds=900)
    assert (alert.key, alert.severity) == ("late:a", "warning")
    assert alert.summary.startswith("a is paused")
    assert "`cbp resume a`" in alert.action


@pytest.mark.parametrize("status", ["draining", "drained"])
def test_a_drain_that_was_forgotten_gives_an_alert(status):
    """As a pause: once a file has waited four times the limit; it can be beside another alert."""
    late = DataflowHealth("a", "paused", lag_seconds=3601, drain=DrainHealth(status, 3601))
    alert, _ = alerts_of([late], lag_seconds=900)
    assert (alert.key, alert.kind, alert.severity) == ("drain:a", "late", "warning")
    assert alert.summary.startswith(f"a is {status}, and a file has waited")
    assert "`cbp resume a`" in alert.action
    assert not keys(DataflowHealth("a", "ok", drain=DrainHealth(status, 3600)))
    assert not keys(DataflowHealth("a", "ok", drain=DrainHealth(status, 1e6)), lag_seconds=0)


def test_what_waits_at_a_paused_stage_is_not_blamed_on_the_others():
    """The stage is named, and the command resumes it; an error is named before a pause."""
    health = DataflowHealth("a", "ok", lag_seconds=901, paused_stages=("count", "top"))
    (alert,) = alerts_of([health], lag_seconds=900)
    assert "an operator paused count, top" in alert.detail
    assert "`cbp resume a count`" in alert.action
    failing = DataflowHealth("a", "retrying", "boom", lag_seconds=901, paused_stages=("count",))
    assert [one.detail for one in alerts_of([failing], lag_seconds=900)] == ["boom", "boom"]


@pytest.mark.parametrize("state", ["stopped", "broken", "retrying"])
def test_every_bad_state_gives_its_alert_with_the_reason_and_a_command(state):
    """The alert names the dataflow, repeats the reason, and says what to type."""
    (alert,) = alerts_of([DataflowHealth("clicks", state, "count: no such column")], lag_seconds=0)
    assert (alert.key, alert.kind, alert.dataflow) == (f"{state}:clicks", state, "clicks")
    assert alert.detail == "count: no such column"
    assert "`cbp " in alert.action
    assert (alert.severity == "critical") == (state != "retrying")


@pytest.mark.parametrize(("lag", "late"), [(None, False), (900.0, False), (900.1, True)])
def test_a_dataflow_is_late_beyond_the_limit(lag, late):
    """Exactly the limit is in time; with the limit 0 nothing is ever late."""
    assert keys(DataflowHealth("a", "ok", lag_seconds=lag)) == (["late:a"] if late else [])
    assert not keys(DataflowHealth("a", "ok", lag_seconds=lag), lag_seconds=0)


def test_files_in_quarantine_give_an_alert_for_each_source():
    """The number of files is the alert's size, so that more of them are sent again."""
    health = DataflowHealth("a", "ok", quarantined={"urls": 2, "pages": 0})
    (alert,) = alerts_of([health], lag_seconds=900)
    assert (alert.key, alert.size) == ("quarantine:a/urls", 2)


def test_a_dataflow_can_have_several_alerts():
    """A stopped dataflow is late too, since nothing empties its queues."""
    assert keys(DataflowHealth("a", "stopped", lag_seconds=1e4)) == ["late:a", "stopped:a"]


@pytest.mark.parametrize(
    ("status", "seconds", "word"),
    [
        ("failed", 0, "`cbp rebuild a`"),
        ("ready", 3_600, ""),
        ("ready", 3_601, "`cbp rebuild a --swap`"),
    ],
)
def test_a_rebuild_that_failed_or_was_forgotten_gives_an_alert(status, seconds, word):
    """A failure at once; new tables once they have been ready for an hour."""
    health = DataflowHealth("a", "ok", rebuild=RebuildHealth(status, seconds, "boom"))
    alerts = alerts_of([health], lag_seconds=0)
    assert [alert.key for alert in alerts] == (["rebuild:a"] if word else [])
    for alert in alerts:
        assert word in alert.action
        assert (status == "failed") == (alert.detail == "boom")
