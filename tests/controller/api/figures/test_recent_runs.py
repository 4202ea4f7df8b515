"""What the list of dataflows says of their last runs, and of what fails."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from cbp.model.run.intention import RunStatus
from controller.api.figures.recent_runs import first_of_row
from controller.store.base import RunRecord
from tests.controller.api.clicks import NOON
from tests.controller.api.fake_service import Service

ERROR = {"error_code": "author_code_failed", "message": "boom", "details": {}}


def _attempt(number: int, status: RunStatus, *, minute: int) -> RunRecord:
    at = NOON + timedelta(minutes=minute)
    ended = None if status is RunStatus.INTENDED else at + timedelta(seconds=3)
    read = {"urls": (1,)}
    return RunRecord(
        f"r{number}", "clicks", "count", 1, number, status, read, read, at, ended, error=ERROR
    )


def test_a_row_of_failures_began_with_the_first_after_a_success() -> None:
    """The attempt that goes on does not end the row; one that committed does."""
    goes_on = _attempt(5, RunStatus.INTENDED, minute=5)
    row = [_attempt(n, RunStatus.FAILED, minute=n) for n in (4, 3)]
    committed = _attempt(2, RunStatus.COMMITTED, minute=2)
    before = _attempt(1, RunStatus.FAILED, minute=1)
    last, first = first_of_row([goes_on, *row, committed, before])
    assert (last, first) == (row[0], row[1])
    assert first_of_row([goes_on]) == (None, None)


def test_the_list_says_what_fails_since_when_and_with_which_error(filled: Service) -> None:
    """A reader of the list alone can tell when the trouble began and what to look at."""
    store = filled.store
    store.stage_records = [replace(store.stage_records[0], epoch=1, failures=2)]
    store.run_records = [
        _attempt(2, RunStatus.FAILED, minute=9),
        _attempt(1, RunStatus.FAILED, minute=4),
    ]
    with filled.client() as client:
        summary = client.get("/api/v1/dataflows").json()["items"][0]
    (failing,) = summary["failing"]
    assert (failing["stage"], failing["run"], failing["tries"]) == ("count", "r2", 2)
    assert failing["since"].startswith("2026-11-01T12:04:03")
    assert failing["error"] == ERROR
    assert [run["id"] for run in summary["recent"]] == ["r1", "r2"]
    assert summary["recent"][0]["seconds"] == 3.0


def test_what_works_does_not_fail(filled: Service) -> None:
    """A failure that a later success has mended is in the past; a run under way has no time."""
    with filled.client() as client:
        summary = client.get("/api/v1/dataflows").json()["items"][0]
    assert summary["failing"] == []
    assert [run["id"] for run in summary["recent"]] == ["r1", "r2"]


def test_a_queue_says_how_much_may_wait(filled: Service) -> None:
    """A source is never held, so its queue has no limit; the input that reads it is named."""
    with filled.client() as client:
        (stage,) = client.get("/api/v1/dataflows/clicks").json()["stages"]
    assert stage["inputs"] == {"urls": "urls"}
    (queue,) = stage["queues"]
    assert (queue["limits"], queue["share"]) == ({}, 0.0)
    assert (queue["unread"], queue["unread_records"]) == (2, 7)
    assert stage["error"] is None


def test_a_success_before_the_last_runs_is_still_the_last_success(filled: Service) -> None:
    """Whether it is among the runs that are shown, or older: the newest one counts."""
    store = filled.store
    failed = [_attempt(n, RunStatus.FAILED, minute=n) for n in range(99, 40, -1)]
    successes = [_attempt(n, RunStatus.COMMITTED, minute=n) for n in (40, 30)]
    for runs in ([*failed, *successes], [failed[0], *successes]):
        store.run_records = runs
        with filled.client() as client:
            summary = client.get("/api/v1/dataflows").json()["items"][0]
        assert summary["last_success_at"].startswith("2026-11-01T12:40:03")
        assert len(summary["recent"]) == min(len(runs), 24)
