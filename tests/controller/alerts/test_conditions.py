"""What is wrong: an alert for each dataflow that does not go on, with what to do."""

from __future__ import annotations

import pytest

from controller.alerts.conditions import DataflowHealth, alerts_of


def keys(*healths: DataflowHealth, lag_seconds: float = 900) -> list[str]:
    return [alert.key for alert in alerts_of(healths, lag_seconds=lag_seconds)]


def test_a_healthy_or_paused_dataflow_gives_no_alert():
    """A pause is meant; what waits meanwhile is not late."""
    assert not keys(DataflowHealth("a", "ok"), DataflowHealth("b", "paused", lag_seconds=1e6))


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
