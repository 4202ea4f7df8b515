"""What metrics are made of, and the figures among it that cost too much for every scrape."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path

from cbp.clock import MACHINE
from cbp.model.schedule.lease import Standing
from controller.access.audit import Audit
from controller.alerts.disk_room import DiskRoom
from controller.api.requests.request_counts import RequestCounts
from controller.events import EventFeed
from controller.ingest.drop_folder import DropFolder
from controller.loop.controller import Controller
from controller.store.base import Store

SLOW_SECONDS = 60.0
"""How old figures may be that cost more than others: files in quarantine, and of the cache."""


class MetricSources:
    """The sources of metrics; one for the application, since it remembers slow figures."""

    def __init__(
        self,
        *,
        controller: Controller,
        store: Store,
        drop_folder: DropFolder,
        standing: Callable[[], Standing],
        feed: EventFeed,
        requests: RequestCounts,
        audit: Audit,
        cache: Path,
        disks: Callable[[], Sequence[DiskRoom]],
        now: Callable[[], datetime] = MACHINE.now,
        monotonic: Callable[[], float] = MACHINE.seconds,
    ) -> None:
        self.now = now
        self.controller, self.store, self.standing = controller, store, standing
        self.drop_folder = drop_folder
        self.feed, self.requests, self.audit = feed, requests, audit
        self.disks = disks
        self._cache, self._monotonic, self._lock = cache, monotonic, threading.Lock()
        self._slow: tuple[float, Mapping[tuple[str, str], int], int] | None = None

    def slow_figures(self) -> tuple[Mapping[tuple[str, str], int], int]:
        """Return the files in quarantine, and the bytes of the cache; read once a minute."""
        with self._lock:
            now = self._monotonic()
            if self._slow is None or now - self._slow[0] > SLOW_SECONDS:
                self._slow = (now, self.store.quarantined(), _bytes_below(self._cache))
            return self._slow[1:]


def _bytes_below(folder: Path) -> int:
    total = 0
    for path, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):
                total += os.stat(os.path.join(path, name), follow_symlinks=False).st_size
    return total
