"""`cbp logs` and `cbp events`: what is printed once, and what is printed as it comes."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from cbp.model.run.intention import RunStatus
from controller.cli.dataflows import logs
from controller.cli.dataflows.logs import Message
from controller.cli.session import Session
from tests.controller.api.app_transport import AppTransport
from tests.controller.api.clicks import NOON
from tests.controller.api.fake_service import Service
from tests.controller.cli.conftest import Cbp
from tests.simulated_time import ManualClock


@pytest.fixture(autouse=True)
def _filled(service: Service) -> None:
    service.fill()


def log(service: Service, run: str, event: str) -> None:
    """Let a run write a line."""
    line = {"event": event, "level": "info", "timestamp": NOON.isoformat(), "run": run}
    where = {"dataflow": "clicks", "stage": "count", "epoch": 1}
    service.app.state.parts.run_logs.append("clicks", run, line | where)


def begin(service: Service, run: str) -> None:
    """Let a newer run begin."""
    newer = replace(service.store.run_records[0], id=run, status=RunStatus.INTENDED)
    service.store.run_records.insert(0, newer)


def end(service: Service, run: str) -> None:
    """Let a run commit."""
    service.store.run_records = [
        replace(one, status=RunStatus.COMMITTED, finished_at=NOON + timedelta(seconds=1))
        if one.id == run
        else one
        for one in service.store.run_records
    ]


def follow(cbp: Cbp, service: Service, of: str, rounds: list[Callable[[], Any]]) -> list[str]:
    """Follow a log for some rounds, in each of which something happens; return the events."""
    left = iter(rounds)

    def happen() -> None:
        try:
            next(left)()
        except StopIteration:
            raise SystemExit from None

    given = Session(service.settings, AppTransport(service.app), clock=ManualClock(NOON, happen))
    outcome = cbp("logs", of, "--follow", "--json", session=given)
    assert (outcome.status, outcome.err) == (0, "")
    return [json.loads(line)["event"] for line in outcome.out.splitlines()]


def test_the_last_lines_of_the_newest_run_are_printed(cbp: Cbp, service: Service) -> None:
    """With time, level, place, event and further fields; a run without a log says so."""
    assert "keeps no log of this run" in cbp("logs", "clicks").out
    log(service, "r3", "first")
    log(service, "r3", "second")
    line = cbp("logs", "clicks", "--limit", "1").out
    assert line.split() == ["2026-11-01T12:00:00Z", "info", "clicks.count/1", "second"]
    assert [one["event"] for one in cbp("logs", "clicks", "--json").json["items"]] == [
        "first",
        "second",
    ]


def test_newer_runs_are_followed_and_none_is_left_out(cbp: Cbp, service: Service) -> None:
    """Two that begin between two looks, and one that goes on beside them; each line once."""
    log(service, "r3", "a")

    def two_begin() -> None:
        for run in ("r4", "r5"):
            begin(service, run)
            log(service, run, f"{run} began")
        end(service, "r4")

    seen = follow(
        cbp,
        service,
        "clicks.count",
        [
            lambda: log(service, "r3", "b"),
            two_begin,
            lambda: log(service, "r4", "r4 published"),
            lambda: log(service, "r3", "c"),
            lambda: log(service, "r5", "r5 goes on"),
            lambda: None,
        ],
    )
    assert seen == ["a", "b", "r4 began", "r5 began", "r4 published", "c", "r5 goes on"]


def forget(service: Service, run: str) -> None:
    """Let a run be forgotten, with its log."""
    service.store.run_records = [one for one in service.store.run_records if one.id != run]


def test_a_run_that_is_forgotten_ends_nothing(cbp: Cbp, service: Service) -> None:
    """The others go on, and all lines of a run are printed at once, however many."""
    log(service, "r3", "a")

    def next_begins() -> None:
        begin(service, "r4")
        forget(service, "r3")
        for number in range(250):
            log(service, "r4", str(number))

    rounds = [next_begins, lambda: log(service, "r4", "last"), lambda: None]
    assert follow(cbp, service, "clicks.count", rounds) == ["a", *map(str, range(250)), "last"]


def test_events_are_printed_as_they_come(cbp: Cbp, monkeypatch: pytest.MonkeyPatch) -> None:
    """One a line, as text or as JSON; where some are no longer kept, that is said."""
    event: dict[str, Any] = {
        "id": "7",
        "at": NOON.isoformat(),
        "kind": "runs",
        "dataflow": "clicks",
    }
    event |= {"stage": "count", "flow": "", "subject": "r3", "count": 1}
    came = [Message("reset", "6", {}), Message("changed", "7", event)]
    monkeypatch.setattr(logs, "follow_events", lambda *_, **__: iter(came))
    reset, changed = cbp("events", "--follow").out.splitlines()
    assert "no longer kept" in reset
    assert [word in changed for word in ("7", "runs", "clicks.count", "r3")] == [True] * 4
    _, printed = map(json.loads, cbp("events", "--follow", "--json").out.splitlines())
    assert printed == {"event": "changed", **event}
