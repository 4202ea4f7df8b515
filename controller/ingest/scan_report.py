"""The result of one pass over the drop folders."""

from __future__ import annotations

from dataclasses import dataclass

from cbp.errors import OperatingError
from controller.ingest.intake import Outcome

__all__ = ["ScanReport"]


@dataclass(frozen=True, slots=True)
class ScanReport:
    """The result of one pass.

    Attributes:
        accepted, quarantined, duplicates: Files that were settled.
        waiting: Files that are not settled yet; look again after the settle time.
        ignored: Names in `incoming` that are not regular files.
        ready: Waiting files that could be taken in now; look again at once.
        closed: Markers that closed the open frames of a source.
        failures: Errors that stopped the pass of a source; the next pass tries again.
    """

    accepted: int = 0
    quarantined: int = 0
    duplicates: int = 0
    waiting: int = 0
    ignored: int = 0
    closed: int = 0
    failures: tuple[OperatingError, ...] = ()
    ready: int = 0

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
        )

    def count(self, outcome: Outcome) -> ScanReport:
        """Return the report with one more file of this outcome."""
        return self + ScanReport(
            accepted=outcome == "accepted",
            quarantined=outcome == "quarantined",
            duplicates=outcome == "duplicate",
        )
