"""What a tick announces of waits and troubles that are nowhere stored."""

from __future__ import annotations

from datetime import UTC, datetime

from cbp.errors import CbpError, OperatingError
from cbp.model.schedule.waiting import Kind, Wait
from controller.loop.tick.announcements import Announcements
from controller.store.base import Event

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def wait(kind: Kind, error: CbpError | None = None) -> Wait:
    return Wait(kind, "words", NOW, error=error)


def test_only_changes_are_announced_and_none_is_lost() -> None:
    """Once each, also if the store did not take it at first; not for runs that come and go."""
    told: list[tuple[str, str]] = []
    broken = [False]

    def announce(*events: Event) -> None:
        if broken[0]:
            message = "the database does not answer"
            raise OperatingError(message)
        told.extend((event.kind, event.subject or event.dataflow) for event in events)

    seen = Announcements(announce)
    seen.see({"d": {("d", "s"): wait("input"), ("d", "t"): wait("running")}}, ())
    seen.see({"d": {("d", "s"): wait("running"), ("d", "t"): wait("place")}}, ())
    assert told == []
    seen.see({"d": {("d", "s"): wait("readers")}}, ())
    seen.see({"d": {("d", "s"): wait("readers")}}, ())
    assert told == [("stage.waiting", "readers")]
    broken[0] = True
    seen.see({"d": {("d", "s"): wait("retry")}}, ())
    broken[0] = False
    seen.see({"d": {("d", "s"): wait("retry")}}, ())
    seen.see({"d": {("d", "s"): wait("input")}}, ("d",))
    assert told[1:] == [
        ("stage.waiting", "retry"),
        ("degraded.began", "d"),
        ("stage.waiting", "d"),
    ]
    seen.see({"d": {("d", "s"): wait("input")}}, ())
    assert told[4:] == [("degraded.ended", "d")]
