"""The result of one pass over the drop folders."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from cbp.errors import OperatingError
from controller.ingest.intake import Outcome

__all__ = ["ScanReport"]


@dataclass(frozen=True, slots=True)
class ScanReport:
    """The result of one pass.

    Attributes:
        accepted, quarantined, duplicates: Files that were settled.
        waiting: Files that are not taken in yet.
        settles_at: When the first of them has settled; look again then.
        ignored: Names in `incoming` that are not regular files.
        ready: Waiting files that could be taken in now; look again at once.
        closed: Markers that closed the open frames of a source.
        failures: Errors that stopped the pass of a source; the next pass tries again.
        again_at: When something else is due: look again then.
        polled: Whether files can come to a source without an event, so that only listings find
            them.
    """

    accepted: int = 0
    quarantined: int = 0
    duplicates: int = 0
    waiting: int = 0
    ignored: int = 0
    closed: int = 0
    failures: tuple[OperatingError, ...] = ()
    ready: int = 0
    settles_at: datetime | None = None
    again_at: datetime | None = field(default=None, compare=False)
    polled: bool = field(default=False, compare=False)

    def __add__(self, other: ScanReport) -> ScanReport:
        return ScanReport(
            self.accepted + other.accepted,
            self.quarantined + other.quarantined,
            self.duplicates + other.duplicates,
            self.waiting + other.waiting,
            self.ignored + other.ignored,
            self.closed + other.closed,
            self.failures + other.failures,
            self.ready + other.ready,
            _first(self.settles_at, other.settles_at),
            _first(self.again_at, other.again_at),
            self.polled or other.polled,
        )

    @property
    def next_at(self) -> datetime | None:
        """When to look again though no event has come; `None` if there is no need to."""
        return _first(self.settles_at, self.again_at)

    def count(self, outcome: Outcome) -> ScanReport:
        """Return the report with one more file of this outcome."""
        return self + ScanReport(
            accepted=outcome == "accepted",
            quarantined=outcome == "quarantined",
            duplicates=outcome == "duplicate",
        )


def _first(*times: datetime | None) -> datetime | None:
    return min((at for at in times if at is not None), default=None)
