"""Notices: when an alert is sent, sent again, and reported as over. Pure.

An alert is sent once it has held for a while, again if it lasts for long, again if it gets
worse, and once more when it is over. A short disturbance sends nothing.

Invariants (tests/controller/alerts/test_notices.py): what was never sent is never resolved;
`repeat_seconds` pass between two notices of an alert that does not get worse.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Literal

from controller.alerts.conditions import Alert


@dataclass(frozen=True, slots=True)
class AlertLimits:
    """When alerts are sent.

    Attributes:
        lag_seconds: Age of the oldest waiting increment at which a dataflow is late; 0 means never.
        hold_seconds: How long a warning must hold before it is sent. Critical alerts are sent
            at once.
        repeat_seconds: Time after which a lasting alert is sent again; 0 means never.
    """

    lag_seconds: float = 900.0
    hold_seconds: float = 60.0
    repeat_seconds: float = 4 * 3600.0


@dataclass(frozen=True, slots=True)
class Standing:
    """An alert that holds; `sent_at` is `None` while it has not held for long enough."""

    alert: Alert
    since: datetime
    sent_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class NoticeBook:
    """The memory of `decide`: the firing alerts, by key, and when each was sent."""

    standing: Mapping[str, Standing] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Notice:
    """A message about an alert."""

    status: Literal["firing", "resolved", "test"]
    alert: Alert
    since: datetime

    @property
    def line(self) -> str:
        """What happened, or that it is over, in one line."""
        before = {"firing": "", "resolved": "Resolved: ", "test": "Test: "}[self.status]
        return f"{before}{self.alert.summary}".replace("\n", " ")


def observe(book: NoticeBook, alerts: Iterable[Alert], now: datetime) -> NoticeBook:
    """Return which alerts hold, and since when; nothing is sent."""
    standing: dict[str, Standing] = {}
    for alert in alerts:
        before = book.standing.get(alert.key)
        since, sent_at = (now, None) if before is None else (before.since, before.sent_at)
        standing[alert.key] = Standing(alert, since, sent_at)
    return NoticeBook(standing)


def decide(
    book: NoticeBook, alerts: Iterable[Alert], now: datetime, limits: AlertLimits
) -> tuple[NoticeBook, tuple[Notice, ...]]:
    """Return the alerts to remember, and the notices to send now."""
    standing = dict(observe(book, alerts, now).standing)
    notices: list[Notice] = []
    for key, one in standing.items():
        if _is_due(one, book.standing.get(key), now, limits):
            notices.append(Notice("firing", one.alert, one.since))
            standing[key] = replace(one, sent_at=now)
    for key, one in book.standing.items():
        if key not in standing and one.sent_at is not None:
            notices.append(Notice("resolved", one.alert, one.since))
    return NoticeBook(standing), tuple(notices)


def _is_due(one: Standing, before: Standing | None, now: datetime, limits: AlertLimits) -> bool:
    if one.sent_at is None:
        hold = 0.0 if one.alert.severity == "critical" else limits.hold_seconds
        return now - one.since >= timedelta(seconds=hold)
    if before is not None and one.alert.size > before.alert.size:
        return True
    repeat = timedelta(seconds=limits.repeat_seconds)
    return bool(repeat) and now - one.sent_at >= repeat
