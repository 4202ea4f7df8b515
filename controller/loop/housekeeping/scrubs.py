"""Requested scrubs: one dataflow is read at once, as fast as the disk allows.

The background scrubber reads everything too, slowly (`controller.loop.housekeeping.scrubber`).
Both keep their findings in one place, so that `ready`, state and metrics agree.

Guaranteed: at most one requested scrub per dataflow is under way; a second request returns that
one. A scrub changes nothing except the note (tests/controller/loop/housekeeping/test_scrubs.py).
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Literal

import structlog

from cbp.engine.read.scrub import Damage
from cbp.errors import CbpError, FileDamagedError, InvariantError
from controller.loop.housekeeping.scrubber import Scrubbing
from controller.loop.records.job_table import JobTable
from controller.store.base import DataflowRecord, Store

Status = Literal["never", "running", "whole", "damaged", "failed"]

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Scrub:
    """The progress or the result of a scrub.

    Attributes:
        status: `never`: no complete reading was ever noted for this dataflow.
        by: What began it: a request, or the background scrubber.
        began_at, ended_at: Aware, in UTC; `ended_at` is that of the last complete reading.
        files, bytes: How much was read.
        files_total, bytes_total: How much there was when it began; 0 if it is not known.
        damages: The damages known so far.
        error: Why it did not finish.
        seconds: How long a requested scrub has taken.
    """

    dataflow: str
    status: Status
    by: Literal["request", "idle work"]
    began_at: datetime | None = None
    ended_at: datetime | None = None
    files: int = 0
    bytes: int = 0
    files_total: int = 0
    bytes_total: int = 0
    damages: tuple[Damage, ...] = ()
    error: CbpError | None = None
    seconds: float = 0.0

    @property
    def ended(self) -> bool:
        """Whether it is no longer running."""
        return self.status != "running"


class Scrubs:
    """Starts scrubs and reports their progress; safe to use from several threads.

    Args:
        scrubbing: Reads the files and keeps the damages.
        executor: Carries out the reading.
    """

    def __init__(
        self,
        *,
        store: Store,
        scrubbing: Scrubbing,
        clock: Callable[[], datetime],
        executor: Executor,
    ) -> None:
        self._store, self._scrubbing, self._clock = store, scrubbing, clock
        self._executor = executor
        self._asked: JobTable[Scrub] = JobTable(most=None)

    def note(self, error: FileDamagedError) -> None:
        """Add the damage that a read met to the findings; a failure is logged."""
        try:
            self._scrubbing.note(error)
        except CbpError as failure:
            _log.warning("read.damage_not_noted", error=failure.as_dict())

    def start(self, name: str) -> Scrub:
        """Start to read a dataflow's folder; returns at once.

        Raises:
            NotFoundError: If there is no such dataflow.
        """
        record = self._store.dataflow(name)
        scrub = Scrub(name, "running", "request", self._clock())
        known = self._asked.begin(name, scrub)
        if known is not scrub:
            return known
        try:
            self._executor.submit(self._read, record)
        except RuntimeError:  # no thread can be started, or the service stops
            self._asked.forget(name)
            raise
        return scrub

    def show(self, name: str) -> Scrub:
        """Return the last requested scrub, or the background scrubber's if that is newer.

        Raises:
            NotFoundError: If there is no such dataflow.
        """
        self._store.dataflow(name)
        return self.last(name)

    def last(self, name: str) -> Scrub:
        """Like `show`, for a dataflow that is known to exist."""
        progress = self._scrubbing.progress(name)
        asked = self._asked.get(name)
        damages = tuple(sorted(progress.damages.values(), key=lambda damage: damage.path))
        if asked is not None and (
            not asked.ended
            or asked.status == "failed"
            or progress.ended_at is None
            or asked.ended_at == progress.ended_at
        ):
            # A read may have met damage since.
            judged: Status = "damaged" if damages and asked.status == "whole" else asked.status
            ended_at = asked.ended_at or progress.ended_at
            return replace(asked, status=judged, damages=damages, ended_at=ended_at)
        status: Status = "damaged" if damages else "whole"
        if progress.ended_at is None and not damages:
            status = "never"
        figures = (progress.began_at, progress.ended_at, progress.files, progress.bytes)
        return Scrub(name, status, "idle work", *figures, damages=damages)

    def _read(self, record: DataflowRecord) -> None:
        name, damages, began = record.name, dict[str, Damage](), self._clock()
        files = bytes_ = 0
        try:
            files_total, bytes_total = self._scrubbing.size(record)
            self._asked.show(name, files_total=files_total, bytes_total=bytes_total)
            for looked in self._scrubbing.looks(record):
                if looked.damage is not None:
                    damages[looked.damage.path] = looked.damage
                files, bytes_ = files + 1, bytes_ + looked.bytes
                self._asked.show(name, files=files, bytes=bytes_)
            self._scrubbing.take(name, damages, now := self._clock(), since=began)
        except CbpError as error:
            _log.warning("scrub.failed", dataflow=name, error=error.as_dict())
            self._asked.show(name, status="failed", error=error)
        except Exception as unforeseen:
            _log.exception("scrub.failed", dataflow=name)
            unexpected = InvariantError(f"{type(unforeseen).__name__}: {unforeseen}")
            self._asked.show(name, status="failed", error=unexpected)
        else:
            self._asked.show(name, status="damaged" if damages else "whole", ended_at=now)
