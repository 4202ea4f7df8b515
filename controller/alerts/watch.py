"""Checks for alerts every half minute, and sends due notices, in a thread of its own.

It also checks if no channel is configured, since `cbp alerts` lists what is wrong and since when.
Only the leader sends. If a channel fails, its notices are sent again with the next check; the other
channels continue. After a restart, alerts that still hold are sent again, since that is better than
an alert that is never sent.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

import structlog

from cbp.clock import MACHINE
from controller.alerts.channels import Channel
from controller.alerts.conditions import Alert, DataflowHealth, alerts_of
from controller.alerts.notices import AlertLimits, Notice, NoticeBook, Standing, decide, observe

LOOK_SECONDS = 30.0
PAUSES_PER_LOOK = 20
DELIVERIES_MAX = 100
UNSENT_MAX = 200
"""Notices that wait for a channel that fails; the oldest are dropped, and counted in the log."""

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Delivery:
    """One attempt to send; `error` says why it failed."""

    at: datetime
    channel: str
    summaries: tuple[str, ...]
    error: str | None


class AlertWatch:
    """See the module header."""

    def __init__(
        self,
        *,
        health: Callable[[], Iterable[DataflowHealth]],
        others: Callable[[], Iterable[Alert]] = tuple,
        leads: Callable[[], bool],
        channels: Iterable[Channel],
        limits: AlertLimits,
        clock: Callable[[], datetime],
        seconds: Callable[[], float] = MACHINE.seconds,
    ) -> None:
        self._seconds = seconds
        self._health, self._others, self._leads = health, others, leads
        self.channels, self._limits, self._clock = tuple(channels), limits, clock
        self._lock = threading.Lock()
        self._book = NoticeBook()
        self._unsent: dict[str, deque[Notice]] = {
            channel.name: deque(maxlen=UNSENT_MAX) for channel in self.channels
        }
        self._deliveries: deque[Delivery] = deque(maxlen=DELIVERIES_MAX)

    def watch(self, stopped: threading.Event) -> None:
        """Check again and again until the event is set; to be called in a separate thread."""
        pause = LOOK_SECONDS
        while not stopped.wait(pause):
            begun = self._seconds()
            try:
                self.look()
            except Exception:  # last resort of the thread: the store may come back
                _log.exception("alerts.failed")
            # With very many dataflows a check takes long, and must not slow the service down.
            pause = max(LOOK_SECONDS, PAUSES_PER_LOOK * (self._seconds() - begun))

    def look(self) -> None:
        """Check once, and send due notices."""
        if not self._leads():  # another instance sends what holds now
            self._book = NoticeBook()
            for unsent in self._unsent.values():
                unsent.clear()
            return
        alerts = self._alerts()
        with self._lock:
            if not self.channels:  # no alert counts as sent
                self._book = observe(self._book, alerts, self._clock())
                return
            self._book, notices = decide(self._book, alerts, self._clock(), self._limits)
        for channel in self.channels:
            self._send(channel, notices)

    def test(self) -> list[Delivery]:
        """Send a test notice by each channel now; return the results."""
        alert = Alert("test", "test", "warning", "", "this is a test alert", "", "nothing")
        notice = Notice("test", alert, self._clock())
        return [self._deliver(channel, [notice]) for channel in self.channels]

    def standing(self) -> list[Standing]:
        """Check again, and return the firing alerts, longest first; sends nothing.

        An instance that follows returns none.
        """
        if not self._leads():
            return []
        alerts = self._alerts()
        with self._lock:
            book = observe(self._book, alerts, self._clock())
        return sorted(book.standing.values(), key=lambda one: one.since)

    def deliveries(self) -> list[Delivery]:
        """Return the last attempts to send, newest first."""
        with self._lock:
            return list(reversed(self._deliveries))

    def _alerts(self) -> Sequence[Alert]:
        others = self._others()
        return alerts_of(self._health(), lag_seconds=self._limits.lag_seconds, others=others)

    def _send(self, channel: Channel, notices: Sequence[Notice]) -> None:
        unsent = self._unsent[channel.name]
        if (dropped := len(unsent) + len(notices) - UNSENT_MAX) > 0:
            _log.warning("alerts.dropped", channel=channel.name, count=dropped)
        unsent.extend(notices)
        if unsent and self._deliver(channel, list(unsent)).error is None:
            unsent.clear()

    def _deliver(self, channel: Channel, notices: Sequence[Notice]) -> Delivery:
        error = None
        try:
            channel.send(notices)
        except Exception as raised:  # whatever a channel does, the other channels continue
            error = f"{type(raised).__name__}: {raised}"[:300]
            _log.warning("alerts.not_sent", channel=channel.name, error=error, count=len(notices))
        summaries = tuple(notice.line for notice in notices)
        delivery = Delivery(self._clock(), channel.name, summaries, error)
        with self._lock:
            self._deliveries.append(delivery)
        return delivery


def silent_watch() -> AlertWatch:
    """Return a watch that sees nothing and notifies nobody."""
    limits, clock = AlertLimits(), MACHINE.now
    return AlertWatch(health=tuple, leads=lambda: False, channels=(), limits=limits, clock=clock)
