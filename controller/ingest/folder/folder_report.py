"""Report on a source for operators: its folder, lost files, failures, the result of a pass.

No decision depends on the report of a folder. Each report lists the folder again, and opens no
file.

Files that disappeared after they were claimed (`GoneFiles`):

    in `incoming`, claim recorded   its producer removed it before it was moved: never acknowledged
    in `claimed`, or an upload      acknowledged, then removed by somebody: its content is lost
                                    unless it is dropped again

Each such file keeps its claim for good (`cbp claims`, code `file_gone`). The newest of each source
are shown for a day after they were missed, or until a file of the same name is taken in; the
readiness report (`ready`) names the acknowledged ones. After a start, the list is restored from the
newest claims.

Failures of sources (`SourceTroubles`): what stopped the pass of one source, while others continue.
After each of the first two failures the next try follows at once. Every further failure is followed
by a pause, which doubles up to `MOST_SECONDS`. A device that is full or missing is treated like an
unexpected error of the service. The source's files stay where they are meanwhile.
"""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import structlog

from cbp.errors import CbpError, OperatingError
from cbp.errors.counts import format_count
from cbp.model.schedule.backoff import Backoff, Rest
from cbp.model.source.unfinished_names import is_unfinished
from controller.ingest.errors import DropFolderError, NewColumnsError, SourceFailedError
from controller.ingest.folder.eligible_files import (
    Scanned,
    UnclaimedFiles,
    count_files,
    scan_folder,
    time_of,
)
from controller.ingest.folder.folder_check import require_real
from controller.ingest.folder.source_place import SourcePlace, forget_below
from controller.ingest.rejection import FileRejectedError, place_of
from controller.store.base import ClaimRecord

GONE_SHOWN_MAX = 100
GONE_SHOWN_SECONDS = 86_400.0

ASKED_MAX = 1_000
"""Number of newest claims of a source that are read after a start."""

Outcome = Literal["accepted", "duplicate", "quarantined"]
"""The outcome for a file that was settled."""

_RULE = "file_gone"


def gone_reason(claim: ClaimRecord, missed_at: datetime) -> dict[str, Any]:
    """Return the reason for settling an open claim without its file, as JSON values."""
    # Its producer had a confirmation: the file was moved, or uploaded.
    lost = claim.status == "claimed" or bool(claim.sha256)
    message = "the file was removed while it was being claimed"
    if lost:
        message = (
            "the file was removed after the service had claimed it, but before it was read, so its "
            "content was NOT taken in. The producer must drop the file again"
        )
    rejection = FileRejectedError(_RULE, message)
    reason = rejection.reason(file=claim.path, claim=claim.id)
    return {**reason, "lost": lost, "missed_at": missed_at.isoformat()}


@dataclass(frozen=True, slots=True)
class GoneFile:
    """One file that disappeared. It was claimed at `since`, and found to be missing at `missed_at`.

    `lost` means that it had been acknowledged. Times are in UTC.
    """

    name: str
    claim: str
    since: datetime
    lost: bool
    missed_at: datetime

    @classmethod
    def of(cls, claim: ClaimRecord) -> GoneFile:
        """Return the file of a settled claim.

        Earlier versions did not note when the file was missed: then it is the claim's time.
        """
        reason = claim.reason or {}
        missed_at = reason.get("missed_at") or claim.created_at.isoformat()
        lost, at = bool(reason.get("lost")), datetime.fromisoformat(missed_at)
        return cls(claim.path, claim.id, claim.created_at, lost, at)


class GoneFiles:
    """Remembers files that disappeared, by source; safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._files: dict[Path, dict[str, GoneFile]] = {}

    def note(self, root: Path, claim: ClaimRecord) -> None:
        """Remember the file of a settled claim, by the folder of its source."""
        self._add(root, GoneFile.of(claim))

    def restore(self, root: Path, newest: Iterable[ClaimRecord]) -> None:
        """Restore a source's disappeared files from its claims, unless some are known already."""
        with self._lock:
            if root in self._files:
                return
            self._files[root] = {}
        came, gone = set[str](), list[GoneFile]()
        for claim in newest:
            if (claim.reason or {}).get("code") != _RULE:
                came.add(claim.path)
            elif claim.path not in came:
                gone.append(GoneFile.of(claim))
        for file in reversed(gone):
            self._add(root, file)

    def came(self, root: Path, name: str) -> None:
        """Forget a disappeared file, since a file of the same name was taken in."""
        with self._lock:
            self._files.get(root, {}).pop(name, None)

    def forget(self, folder: Path) -> None:
        """Forget the disappeared files of a dataflow's sources, given the dataflow's folder."""
        with self._lock:
            forget_below(folder, self._files)

    def of(self, root: Path, now: datetime) -> list[GoneFile]:
        """Return the disappeared files of a source that are still shown, newest first."""
        since = now - timedelta(seconds=GONE_SHOWN_SECONDS)
        with self._lock:
            files = list(self._files.get(root, {}).values())
        return [file for file in reversed(files) if file.missed_at >= since]

    def lost_below(self, folder: Path, now: datetime) -> list[str]:
        """Return the lost acknowledged files of all sources below a folder, in words."""
        with self._lock:
            roots = sorted(root for root in self._files if root.parent == folder)
        warnings = []
        for root in roots:
            lost = [file for file in self.of(root, now) if file.lost]
            if lost:
                warnings.append(f"source {root.name}: {gone_hint(lost)}")
        return warnings

    def _add(self, root: Path, file: GoneFile) -> None:
        with self._lock:
            files = self._files.setdefault(root, {})
            files.pop(file.name, None)
            files[file.name] = file
            while len(files) > GONE_SHOWN_MAX:
                del files[next(iter(files))]


def gone_hint(files: Sequence[GoneFile]) -> str:
    """Return advice on files that were removed; `""` if there are none."""
    if not files:
        return ""
    more = "" if len(files) < GONE_SHOWN_MAX else " or more"
    many = format_count(len(files), "file was", f"files{more} were")
    lost = sum(file.lost for file in files)
    kind = f"{lost} after the service had acknowledged receipt" if lost else "from `incoming`"
    return (
        f"{many} removed before the service read the content ({kind}), such as "
        f"{files[0].name!r}. Drop again each file that had data (this warning ends after a day, or "
        "once a file of the same name arrives)"
    )


MOST_SECONDS = 30.0
_BACKOFF = Backoff((0.0, 0.0, 1.0), MOST_SECONDS)

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class SourceTrouble:
    """Why a source takes in nothing; `since` is the time of the first failure in a row."""

    error: OperatingError
    since: datetime
    tries: int
    rest: Rest

    @property
    def retry_at(self) -> datetime:
        """Earliest time of the next attempt."""
        return self.rest.end

    @property
    def words(self) -> str:
        """Description for an operator."""
        failed = self.rest.words(self.tries)
        return f"nothing is taken in (failed {failed}): {self.error.message}"


class SourceTroubles:
    """Remembers the troubles of sources; safe to use from several threads."""

    def __init__(self, clock: Callable[[], datetime]) -> None:
        self._clock, self._lock = clock, threading.Lock()
        self._troubles: dict[Path, SourceTrouble] = {}

    def of(self, root: Path) -> SourceTrouble | None:
        """Return the trouble of a source, by the source's folder."""
        with self._lock:
            return self._troubles.get(root)

    def below(self, folder: Path) -> dict[str, SourceTrouble]:
        """Return source -> trouble, for the sources whose folders are below this one."""
        with self._lock:
            troubles = {r.name: t for r, t in self._troubles.items() if r.parent == folder}
        return dict(sorted(troubles.items()))

    def resting(self, root: Path) -> SourceTrouble | None:
        """Return the trouble whose pause is not over; `None` if the source may be retried."""
        trouble = self.of(root)
        return trouble if trouble is not None and trouble.rest.lasts(self._clock()) else None

    def failed(self, root: Path, source: str, error: Exception) -> OperatingError:
        """Record a failure of a source; return the error to report."""
        wrapped = _as_operating_error(source, error)
        now = self._clock()
        with self._lock:
            known = self._troubles.get(root)
            tries = 1 if known is None else known.tries + 1
            since = now if known is None else known.since
            self._troubles[root] = SourceTrouble(wrapped, since, tries, _BACKOFF.rest(tries, now))
        if known is None or known.error.code != wrapped.code:
            # The stack is added only for errors that are not the library's own.
            cause = None if isinstance(error, CbpError) else error
            _log.error("source.failed", folder=str(root), error=wrapped.as_dict(), exc_info=cause)
        return wrapped

    def keep(self, folder: Path, sources: Collection[str]) -> None:
        """Forget the troubles of a dataflow's sources, except these, by the dataflow's folder."""
        with self._lock:
            self._troubles = {
                root: trouble
                for root, trouble in self._troubles.items()
                if root.parent != folder or root.name in sources
            }

    def works(self, root: Path) -> None:
        """Record that a source works again; its trouble is over."""
        with self._lock:
            over = self._troubles.pop(root, None)
        if over is not None:
            _log.info("source.works_again", folder=str(root), tries=over.tries)


def _as_operating_error(source: str, error: Exception) -> OperatingError:
    if isinstance(error, OperatingError):
        return error
    said = error.message if isinstance(error, CbpError) else str(error)
    cause = f"{type(error).__name__}: {said}" if said else type(error).__name__
    return SourceFailedError(source, cause=cause, place=place_of(error))


@dataclass(frozen=True, slots=True)
class ScanReport:
    """The result of one pass.

    Attributes:
        waiting: Files that are not taken in yet.
        settles_at: When the first of them has settled; the next pass is due then.
        ready: Waiting files that could be taken in now; the next pass is due at once.
        closed: Markers that closed the open frames of a source.
        again_at: When a pass is due for another reason.
        polled: Whether files can arrive at a source without an event, so that only listings find
            them.
        new_columns: Files whose columns are to be added to the schemas of their sources.
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
    new_columns: tuple[NewColumnsError, ...] = field(default=(), compare=False)

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
            self.new_columns + other.new_columns,
        )

    @property
    def taken_in(self) -> ScanReport:
        """The part of the report with the outcomes of files."""
        return ScanReport(self.accepted, self.quarantined, self.duplicates, closed=self.closed)

    @property
    def next_at(self) -> datetime | None:
        """When the next pass is due without an event; `None` if none is."""
        return _first(self.settles_at, self.again_at)


def _first(*times: datetime | None) -> datetime | None:
    return min((at for at in times if at is not None), default=None)


OLD_SECONDS = 3600.0
"""Age after which a name that will not be claimed causes a warning."""

_LOOKED_AT_MAX = 1_000
_MANY_FILES = 1_000
_SMALL_BYTES = 64 * 1024


def scan_incoming(place: SourcePlace) -> Scanned:
    """List every waiting name of a source; raises `OSError`."""
    enter = (lambda _folder: None) if place.source.nested else None
    return scan_folder(place.incoming, place.source.unfinished, enter)


def count_arriving(place: SourcePlace) -> int:
    """Return how many files of a source are not claimed yet, or are claimed and not taken in."""
    count = 0
    with suppress(OSError, DropFolderError):
        require_real(place)
        if place.source.nested:
            waiting = scan_incoming(place)
            count = len(waiting.candidates) + len(waiting.sealed)
        else:
            count = count_files(place.incoming, place.source.unfinished)
        with os.scandir(place.claimed) as entries:
            names = (one.name for one in entries if one.is_file(follow_symlinks=False))
            count += sum(not name.startswith(".") for name in names)
    return count


def oldest_arrival(place: SourcePlace) -> datetime | None:
    """Return when the oldest file in a source's `incoming` began to wait; `None` if none waits.

    A wait begins with the last change that the file system recorded, which producers cannot set. At
    most `_LOOKED_AT_MAX` files are examined, although all names of a source with nested folders are
    listed. Never returns if the file system hangs.
    """
    changed = list[float]()
    with suppress(OSError, DropFolderError):
        require_real(place)
        if place.source.nested:
            names = [one.name for one in scan_incoming(place).candidates]
        else:
            with os.scandir(place.incoming) as entries:
                names = [one.name for one in islice(entries, _LOOKED_AT_MAX)]
        for name in names[:_LOOKED_AT_MAX]:
            with suppress(OSError):  # taken away meanwhile
                status = (place.incoming / name).lstat()
                if stat.S_ISREG(status.st_mode) and not is_unfinished(
                    os.path.basename(name), place.source.unfinished
                ):
                    changed.append(status.st_ctime)
    return time_of(min(changed)) if changed else None


def report_folder(
    place: SourcePlace,
    *,
    trouble: SourceTrouble | None,
    now: datetime,
    gone: Sequence[GoneFile],
    bucket: dict[str, Any] | None,
    notes: Sequence[str],
) -> dict[str, Any]:
    """Report on a source's folder as JSON values; `notes` are further sentences of its warning."""
    scanned, failure = Scanned(), ""
    try:
        require_real(place)
        scanned = scan_incoming(place)
    except DropFolderError as exc:
        failure = exc.message
    except OSError as exc:
        failure = f"{place.incoming} cannot be read: {exc.strerror or exc}"
    files, unclaimed = [*scanned.candidates, *scanned.sealed], UnclaimedFiles.of(scanned.unclaimed)
    total = sum(one.bytes for one in files)
    oldest = min((one.mtime_ns for one in files), default=None)
    hints = [gone_hint(gone), old_hint(unclaimed, now), backlog_hint(place, len(files), total)]
    return {
        "name": place.name,
        "folder": str(place.incoming),
        "waiting": len(files),
        "waiting_bytes": total,
        "oldest_at": None if oldest is None else _text(time_of(oldest / 1e9)),
        "unclaimed": unclaimed.count,
        "oldest_unclaimed": unclaimed.to_json(),
        "gone": [
            {"name": one.name, "claim": one.claim, "since": _text(one.since), "lost": one.lost}
            for one in gone
        ],
        "warning": "; ".join(said for said in (*notes, *([failure] if failure else hints)) if said),
        "bucket": bucket,
        "trouble": trouble
        and {
            "error": trouble.error.as_dict(),
            "since": _text(trouble.since),
            "tries": trouble.tries,
            "retry_at": _text(trouble.retry_at),
        },
    }


def old_hint(unclaimed: UnclaimedFiles, now: datetime) -> str:
    """Return advice on names that have stayed for a long time; `""` if there are none."""
    old = unclaimed.older_than(now - timedelta(seconds=OLD_SECONDS))
    if not old:
        return ""
    more = "" if len(old) == unclaimed.count else " or more"
    files = format_count(len(old), f"file{more} has", f"files{more} have")
    first = old[0]
    return f"{files} waited for more than an hour, such as {first.name!r}: {first.why}"


def backlog_hint(place: SourcePlace, files: int, total: int) -> str:
    """Return advice on many small files; `""` if the source takes in many together."""
    takes_many = place.source.batch_of(files).files > 1
    if files < _MANY_FILES or total > files * _SMALL_BYTES or takes_many:
        return ""
    return (
        f"{files} small files wait, and each will become an increment and an epoch of its own. "
        "Declare `batch: {}` in the source, so that many files become one increment"
    )


def _text(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat()
