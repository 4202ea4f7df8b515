"""Reports the contents of the drop folder of one source now; any instance can ask.

Each report looks at the folder anew. It opens no file, and no decision depends on it.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from cbp.errors.counts import format_count
from controller.ingest.errors import DropFolderError
from controller.ingest.folder.bucket_listing import BucketReport
from controller.ingest.folder.folder_check import require_real
from controller.ingest.folder.incoming_names import UnclaimedFiles
from controller.ingest.folder.listing import scan_folder
from controller.ingest.folder.source_place import SourcePlace
from controller.ingest.folder.source_troubles import SourceTrouble
from controller.ingest.folder.vanished_files import GoneFile
from controller.ingest.folder.vanished_files import words as gone_hint

__all__ = [
    "OLD_SECONDS",
    "FolderReport",
    "backlog_hint",
    "count_arriving",
    "old_hint",
    "report_folder",
]

OLD_SECONDS = 3600.0
"""Age after which a name that will not be claimed causes a warning."""

_MANY_FILES = 1_000
_SMALL_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class FolderReport:
    """The contents of one `incoming`, and the state of its source.

    Attributes:
        name: Name of the source.
        folder: Path of `incoming`.
        waiting: Number of files that are not claimed yet.
        waiting_bytes: Their total size.
        oldest_at: When the oldest of them was last changed; aware, in UTC.
        unclaimed: Names that will not be claimed, and why.
        warning: What an operator should do; `""` if there is nothing.
        trouble: Why nothing is taken in for now, as far as this instance knows.
        gone: Files that went away after they were claimed, newest first, as far as this instance
            knows.
        bucket: What is known of its location; `None` if it has none.
    """

    name: str
    folder: str
    waiting: int = 0
    waiting_bytes: int = 0
    oldest_at: datetime | None = None
    unclaimed: UnclaimedFiles = field(default_factory=UnclaimedFiles)
    warning: str = ""
    trouble: SourceTrouble | None = None
    gone: Sequence[GoneFile] = ()
    bucket: BucketReport | None = None

    def to_json(self) -> dict[str, Any]:
        """Return JSON values."""
        trouble = self.trouble
        return {
            "name": self.name,
            "folder": self.folder,
            "waiting": self.waiting,
            "waiting_bytes": self.waiting_bytes,
            "oldest_at": _text(self.oldest_at),
            "unclaimed": self.unclaimed.count,
            "oldest_unclaimed": _unclaimed_json(self.unclaimed),
            "gone": [
                {"name": one.name, "claim": one.claim, "since": _text(one.since), "lost": one.lost}
                for one in self.gone
            ],
            "warning": self.warning,
            "bucket": self.bucket and _bucket_json(self.bucket),
            "trouble": trouble
            and {
                "error": trouble.error.as_dict(),
                "since": _text(trouble.since),
                "tries": trouble.tries,
                "retry_at": _text(trouble.retry_at),
            },
        }


def count_arriving(place: SourcePlace) -> int:
    """Return how many files of a source are not claimed yet, or are claimed and not taken in."""
    count = 0
    with suppress(OSError, DropFolderError):
        require_real(place)
        waiting = scan_folder(place.incoming)
        count = len(waiting.candidates) + len(waiting.sealed)
        with os.scandir(place.claimed) as entries:
            names = (one.name for one in entries if one.is_file(follow_symlinks=False))
            count += sum(not name.startswith(".") for name in names)
    return count


def report_folder(
    place: SourcePlace,
    *,
    trouble: SourceTrouble | None,
    now: datetime,
    gone: Sequence[GoneFile] = (),
    bucket: BucketReport | None = None,
    notes: Sequence[str] = (),
) -> FolderReport:
    """Look at one source's folder; reads names, sizes and times only.

    Args:
        place, trouble, gone, bucket: See `FolderReport`.
        now: The time.
        notes: What else belongs into the warning; an empty one is left out.
    """
    report = _look(place, trouble=trouble, now=now, gone=gone)
    warning = "; ".join(note for note in (*notes, report.warning) if note)
    return replace(report, bucket=bucket, warning=warning)


def _look(
    place: SourcePlace,
    *,
    trouble: SourceTrouble | None,
    now: datetime,
    gone: Sequence[GoneFile],
) -> FolderReport:
    folder = str(place.incoming)
    try:
        require_real(place)
        scanned = scan_folder(place.incoming, place.source.unfinished)
    except DropFolderError as exc:
        warning = exc.message
        return FolderReport(place.name, folder, warning=warning, trouble=trouble, gone=gone)
    except OSError as exc:
        warning = f"{folder} cannot be read: {exc.strerror or exc}"
        return FolderReport(place.name, folder, warning=warning, trouble=trouble, gone=gone)
    files = [*scanned.candidates, *scanned.sealed]
    unclaimed = UnclaimedFiles.of(scanned.unclaimed)
    total = sum(one.bytes for one in files)
    hints = [gone_hint(gone), old_hint(unclaimed, now), backlog_hint(len(files), total)]
    oldest = min((one.mtime_ns for one in files), default=None)
    return FolderReport(
        place.name,
        folder,
        waiting=len(files),
        waiting_bytes=total,
        oldest_at=None if oldest is None else _time(oldest),
        unclaimed=unclaimed,
        warning="; ".join(hint for hint in hints if hint),
        trouble=trouble,
        gone=gone,
    )


def old_hint(unclaimed: UnclaimedFiles, now: datetime) -> str:
    """Return what to do about names that have stayed for long; `""` if there are none."""
    old = unclaimed.older_than(now - timedelta(seconds=OLD_SECONDS))
    if not old:
        return ""
    more = "" if len(old) == unclaimed.count else " or more"
    names = format_count(len(old), f"name{more} has", f"names{more} have")
    first = old[0]
    return f"{names} not been taken in for over an hour, such as {first.name!r}: {first.why}"


def backlog_hint(files: int, total: int) -> str:
    """Return what to do about very many small files; `""` if there are not that many."""
    if files < _MANY_FILES or total > files * _SMALL_BYTES:
        return ""
    return (
        f"{files} small files wait: each becomes an increment, and each increment an epoch. Let "
        "producers write larger files, and let stages take many increments in one epoch "
        "(runnable: {run_all: {batch: 1000}})"
    )


def _bucket_json(bucket: BucketReport) -> dict[str, Any]:
    return {
        "location": bucket.location,
        "listed_at": _text(bucket.listed_at),
        "objects": bucket.objects,
        "waiting": bucket.waiting,
        "left_out": bucket.left_out.count,
        "oldest_left_out": _unclaimed_json(bucket.left_out),
    }


def _unclaimed_json(unclaimed: UnclaimedFiles) -> list[dict[str, Any]]:
    return [
        {"name": one.name, "why": one.why, "since": _text(one.since)} for one in unclaimed.oldest
    ]


def _text(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat()


def _time(mtime_ns: int) -> datetime | None:
    try:
        return datetime.fromtimestamp(mtime_ns / 1e9, UTC)
    except (ValueError, OverflowError, OSError):
        return None
