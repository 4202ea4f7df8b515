"""The audit log: entries, counts of refusals, and its bounds."""

from __future__ import annotations

from collections.abc import MutableMapping
from datetime import timedelta
from typing import Any

from structlog.contextvars import bound_contextvars, merge_contextvars
from structlog.testing import capture_logs

from cbp.errors import OperatingError
from controller.access.access import FLUSH_SECONDS, FORGET_SECONDS
from controller.access.audit import KINDS_MAX, OTHERS
from controller.store.access import AuditFilter, AuditRecord
from tests.controller.access.service_access import NOON, AccessOfTest


def an_entry(**more: Any) -> AuditRecord:
    values: dict[str, Any] = {
        "at": NOON,
        "actor": "token:ci",
        "scope": "operator",
        "action": "dataflows_pause",
        "outcome": "done",
        "status": 200,
        "dataflow": "d",
        **more,
    }
    return AuditRecord(**values)


def a_refusal(**more: Any) -> AuditRecord:
    return an_entry(outcome="refused", status=403, error_code="scope_too_low", **more)


def entries(access: AccessOfTest) -> list[AuditRecord]:
    return list(access.kept.audit(AuditFilter(), limit=500).items)


def lines(logs: list[MutableMapping[str, Any]]) -> list[MutableMapping[str, Any]]:
    return [entry for entry in logs if entry["event"] == "audit"]


def test_an_entry_is_a_row_and_a_line(access: AccessOfTest) -> None:
    """With its names; what it has not is not in the line."""
    with capture_logs() as logs:
        access.audit.record(an_entry(target={"stage": "s"}, reason="why", request="r1"))
    (row,) = entries(access)
    assert (row.actor, row.target, row.reason, row.count) == ("token:ci", {"stage": "s"}, "why", 1)
    (line,) = lines(logs)
    assert line["actor"] == "token:ci"
    assert (line["stage"], line["reason"], line["request"]) == ("s", "why", "r1")
    assert "count" not in line
    assert "error_code" not in line


def test_an_entry_that_cannot_be_stored_is_in_the_log(access: AccessOfTest) -> None:
    """What was done stays done, and the failure is logged; the request does not fail."""
    access.kept.fails_with = OperatingError("the disk is full")
    with capture_logs() as logs:
        access.audit.record(an_entry(request="r1"))
    assert len(lines(logs)) == 1
    assert access.audit.unstored == 1
    (alarm,) = [entry for entry in logs if entry["event"] == "audit.not_stored"]
    assert (alarm["log_level"], alarm["request"]) == ("error", "r1")


def test_refusals_are_counted_by_kind(access: AccessOfTest) -> None:
    """A row for each actor, address, action and error, not for each request."""
    for n in range(1_000):
        access.audit.count_refusal(a_refusal(address="::1", request=str(n)))
    access.audit.count_refusal(a_refusal(address="::2"))
    assert entries(access) == []
    access.audit.flush()
    assert sorted((row.address, row.count) for row in entries(access)) == [
        ("::1", 1000),
        ("::2", 1),
    ]
    access.audit.flush()
    assert len(entries(access)) == 2
    assert access.audit.refusals == {"scope_too_low": 1001}


def test_an_outsider_cannot_fill_the_store(access: AccessOfTest) -> None:
    """Beyond a number of kinds only the error is counted; no refusal is lost."""
    for n in range(10 * KINDS_MAX):
        access.audit.count_refusal(a_refusal(address=f"::{n}"))
    access.audit.flush()
    rows = entries(access)
    assert len(rows) == KINDS_MAX + 1
    assert sum(row.count for row in rows) == 10 * KINDS_MAX
    assert {row.count for row in rows if row.address == OTHERS} == {9 * KINDS_MAX}


def test_counts_outlive_a_store_that_fails(access: AccessOfTest) -> None:
    """They are written with the next flush."""
    access.audit.count_refusal(a_refusal())
    access.kept.fails_with = OperatingError("the disk is full")
    access.move(seconds=FLUSH_SECONDS)
    access.do_due_work()
    access.kept.fails_with = None
    access.audit.count_refusal(a_refusal())
    access.move(seconds=FLUSH_SECONDS)
    access.do_due_work()
    assert [row.count for row in entries(access)] == [2]


def test_refusals_are_not_told_under_the_name_of_who_reads_them(access: AccessOfTest) -> None:
    """A reader's request writes the counts; its own names are no part of their lines."""
    access.audit.count_refusal(a_refusal(actor=""))
    with (
        capture_logs([merge_contextvars]) as logs,
        bound_contextvars(actor="token:reader", request="r1"),
    ):
        access.audit.list(AuditFilter(), cursor=None, limit=10)
    (line,) = lines(logs)
    assert (line["outcome"], line["error_code"]) == ("refused", "scope_too_low")
    assert {"actor", "request"}.isdisjoint(line)


def test_a_reader_sees_the_refusals_of_this_instance(access: AccessOfTest) -> None:
    """Though the minute is not over."""
    access.audit.count_refusal(a_refusal())
    assert len(access.audit.list(AuditFilter(), cursor=None, limit=10).items) == 1


def test_the_log_is_bounded_by_time(access: AccessOfTest) -> None:
    """Ninety days after it was made an entry goes."""
    access.audit.record(an_entry())
    access.audit.record(an_entry(at=NOON + timedelta(days=1)))
    access.move(days=90, seconds=1)
    access.do_due_work()
    assert [row.at for row in entries(access)] == [NOON + timedelta(days=1)]


def test_what_has_ended_goes_by_the_clock(access: AccessOfTest) -> None:
    """Codes and sessions, without a request of anybody."""
    access.do_due_work()
    _, code = access.sessions.make_code(access.authentication.admin)
    access.sessions.begin(code, address="", agent="")
    access.move(hours=13)
    access.do_due_work()
    assert access.kept.sessions().items == []
    assert access.kept.take_code(code.sha256) is None
    access.move(seconds=FORGET_SECONDS)
    access.do_due_work()
