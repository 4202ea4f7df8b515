"""Late writes: a file that its producer changes after it was taken in; and how long files are kept.

A file is taken in as it was at one moment. A producer that stalls for longer than the settle time
and then continues writes into the file in `finished`, which would never be read again.

    before it is read   stamp: inode, size, time of last write
    once it is moved    compared with the stamp, then stamped again
    each pass           the next 1,000 files that were finished in the last ten minutes
                        (`RECENT_SECONDS`) are compared again, in turn; without events a pass comes
                        after a second at first, and after a minute in the end (`next_look`)
    each cleaning       every finished file, before any is removed: with the stamp, or, after a
                        restart, with the size in its claim and with its own times
    if it differs       hashed up to the bytes that were taken in, and compared with the claim

A file that differs is moved to `quarantine` with a reason (`file_grew`, `file_rewritten`), which
says what was taken in, what was not, and what to do. The moved file gets a claim of its own; its id
is the id of the first claim followed by `g`. What was accepted stays accepted.

Guaranteed (tests/controller/ingest/folder/test_growth.py):
- Whatever a producer writes into its file until the file is removed from `finished` is reported,
  or is part of the increment. A change of size or of the last write's time is always noticed.
- Each change is reported once, wherever the service is killed.
Not guaranteed: after a restart, a change is not noticed if it keeps the size and sets the time of
the last write back to before the file was taken in. If a text file was taken in with a truncated
last record, that record stays in the increment; the reason says that there may be one.

The oldest files are removed first, by the time of their claims, with which their names begin; the
times of the files themselves are set by producers. A file whose claim is still open stays. No
increment needs its finished file.
"""

from __future__ import annotations

import hashlib
import os
import stat
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import structlog

from cbp.engine.storage.files import Files
from cbp.model.dataflow.nodes import BINARY_FORMATS
from cbp.model.flow.retention import Expiry, FlowRetention, Held, expire
from controller.ingest.errors import IntakeStoppedError
from controller.ingest.folder.quarantine_folder import move_to_quarantine
from controller.ingest.folder.source_place import (
    SourcePlace,
    claimed_at,
    forget_below,
    kept_name,
)
from controller.ingest.formats.file_bytes import open_regular
from controller.ingest.ports import Ports
from controller.ingest.rejection import FileRejectedError
from controller.store.base import ClaimRecord

RECENT_SECONDS = 600.0
"""How long passes compare a finished file; later only a cleaning does."""

_LOOK_SECONDS_MIN, _LOOK_SECONDS_MAX = 1.0, 60.0
_COMPARED_BY_A_PASS = 1_000
_RECENT_MAX = 100_000
_STAMPS_MAX = 100_000
_ASKED_AT_ONCE = 500
_READ_BYTES = 1 << 20

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Stamp:
    """Inode, size and times of a file; they differ after a write."""

    inode: int
    bytes: int
    mtime_ns: int
    ctime_ns: int

    @classmethod
    def of(cls, path: Path | os.DirEntry[str]) -> Stamp | None:
        """Return the stamp of a regular file; `None` if there is none."""
        with suppress(OSError):
            status = os.lstat(path)
            if stat.S_ISREG(status.st_mode):
                return cls(status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
        return None

    def same_content(self, other: Stamp) -> bool:
        """Return whether the content is unchanged since `other`; a rename is not a change."""
        return (self.inode, self.bytes, self.mtime_ns) == (other.inode, other.bytes, other.mtime_ns)


@dataclass(frozen=True, slots=True)
class _Recent:
    """A file that passes still compare; a hash of its stamp takes a tenth of the memory."""

    name: str
    at: datetime
    stamp: int


@dataclass(frozen=True, slots=True)
class _Comparison:
    """The present content of a file that changed.

    It `grew` if it still begins with the bytes that were taken in. These bytes are `whole` if they
    end with a line end.
    """

    bytes: int
    grew: bool
    whole: bool


class LateWrites:
    """Compares finished files with the content that was read; thread-safe."""

    def __init__(self, ports: Ports) -> None:
        self._store, self._files = ports.store, ports.files
        self._clock, self._faults = ports.clock, ports.faults
        self._lock = threading.Lock()
        self._stamps: OrderedDict[str, int] = OrderedDict()
        self._recent: dict[Path, deque[_Recent]] = {}
        self._newest: dict[Path, datetime] = {}

    def finished(
        self,
        place: SourcePlace,
        claim: ClaimRecord,
        before: Stamp | None,
        stopping: Callable[[], bool],
    ) -> int:
        """Compare a file that was just moved with its stamp from before it was read.

        Return how many files changed: 0 or 1. Raises `IntakeStoppedError` once `stopping` returned
        true while the file was read again.
        """
        name = kept_name(claim.id, claim.path)
        now = Stamp.of(place.finished / name)
        if now is None:  # not moved: the next pass moves it, and a cleaning compares it
            return 0
        if before is None or not now.same_content(before):
            self._remember(name, before or now)  # known to have changed
            return self._settle(place, [name], stopping)
        self._remember(name, now)
        recent = self._recent.setdefault(place.root, deque(maxlen=_RECENT_MAX))
        self._newest[place.root] = self._clock()
        recent.append(_Recent(name, self._newest[place.root], hash(now)))
        return 0

    def look_at_recent(self, place: SourcePlace, stopping: Callable[[], bool]) -> int:
        """Compare the recent files whose turn it is; return how many changed; raises as `finished`.

        The file that was compared longest ago comes first. So the cost of a pass does not depend on
        the number of files, and each has its turn.
        """
        since = self._clock() - timedelta(seconds=RECENT_SECONDS)
        recent, changed = self._recent.get(place.root, deque()), list[str]()
        for _ in range(min(len(recent), _COMPARED_BY_A_PASS)):
            one = recent.popleft()
            if one.at < since or (now := Stamp.of(place.finished / one.name)) is None:
                continue  # too old, or removed
            if hash(now) != one.stamp:
                changed.append(one.name)
            recent.append(replace(one, stamp=hash(now)))
        return self._settle(place, changed, stopping)

    def next_look(self, place: SourcePlace) -> datetime | None:
        """Return when passes compare recent files again; `None` if there are none.

        A producer that continues a file usually does so soon, so the pauses grow with the age
        of the newest file.
        """
        if not (recent := self._recent.get(place.root)):
            return None
        now = self._clock()
        age = (now - self._newest.get(place.root, now)).total_seconds()
        if len(recent) > _COMPARED_BY_A_PASS:
            age = 0.0  # the others have their turn first
        return now + timedelta(seconds=min(max(age, _LOOK_SECONDS_MIN), _LOOK_SECONDS_MAX))

    def look_at_all(self, place: SourcePlace, stopping: Callable[[], bool]) -> int:
        """Compare every finished file; return how many changed; raises as `finished`."""
        stamped = _stamped(place)
        suspects = [name for name, stamp in stamped if self._stamps.get(name) != hash(stamp)]
        return self._settle(place, suspects, stopping)

    def forget(self, folder: Path) -> None:
        """Stop comparing the recent files of a dataflow, given by the dataflow's folder."""
        forget_below(folder, self._recent, self._newest)

    def _remember(self, name: str, stamp: Stamp) -> None:
        with self._lock:
            self._stamps[name] = hash(stamp)
            while len(self._stamps) > _STAMPS_MAX:
                self._stamps.popitem(last=False)

    def _settle(self, place: SourcePlace, names: list[str], stopping: Callable[[], bool]) -> int:
        settled = 0
        for start in range(0, len(names), _ASKED_AT_ONCE):
            some = {name.partition("-")[0]: name for name in names[start : start + _ASKED_AT_ONCE]}
            for claim in self._store.find_claims(list(some)).values():
                settled += self._settle_one(place, claim, some[claim.id], stopping)
        return settled

    def _settle_one(
        self, place: SourcePlace, claim: ClaimRecord, name: str, stopping: Callable[[], bool]
    ) -> bool:
        path = place.finished / name
        stamp = Stamp.of(path)
        if stamp is None or not claim.sha256:
            return False
        known = name in self._stamps
        if not known and stamp.bytes == claim.bytes and stamp.mtime_ns < stamp.ctime_ns:
            self._remember(name, stamp)  # after a restart: last written before it was moved
            return False
        change = _compare(path, claim, stopping)
        if change is None:
            self._remember(name, stamp)
            return False
        with self._lock:  # a pass and a cleaning may overlap
            if not os.path.lexists(path):
                return False
            self._quarantine(place, claim, path, change)
        return True

    def _quarantine(
        self, place: SourcePlace, claim: ClaimRecord, path: Path, comparison: _Comparison
    ) -> None:
        identity = f"{claim.id}g"
        target = place.quarantine / kept_name(identity, claim.path)
        reason = _reason(claim, identity, comparison, target, place)
        move_to_quarantine(path, target, reason, self._files, self._faults)
        size, at = comparison.bytes, self._clock()
        claim_record = place.new_claim(identity, claim.path, size, "quarantined", at, reason=reason)
        self._faults("claim.before")
        self._store.add_claim(claim_record)
        self._faults("claim.after")
        _log.warning("file.changed_later", dataflow=claim.dataflow, reason=reason)


def _stamped(place: SourcePlace) -> Iterator[tuple[str, Stamp]]:
    with suppress(FileNotFoundError), os.scandir(place.finished) as entries:
        for entry in entries:
            if claimed_at(entry.name) is not None and (stamp := Stamp.of(entry)) is not None:
                yield entry.name, stamp


def _compare(path: Path, claim: ClaimRecord, stopping: Callable[[], bool]) -> _Comparison | None:
    """Read a file again; `None` if it has exactly the content that was taken in."""
    digest, left, last = hashlib.sha256(), claim.bytes, b""
    try:
        with open_regular(path) as file:
            while left and (data := file.read(min(left, _READ_BYTES))):
                if stopping():
                    raise IntakeStoppedError(str(path))
                digest.update(data)
                left, last = left - len(data), data
            size = os.fstat(file.fileno()).st_size
    except (FileNotFoundError, FileRejectedError):
        return None
    same = not left and digest.hexdigest() == claim.sha256
    if same and size == claim.bytes:
        return None
    return _Comparison(size, same, last[-1:] in (b"", b"\n"))


def _reason(
    claim: ClaimRecord, identity: str, comparison: _Comparison, target: Path, place: SourcePlace
) -> Mapping[str, Any]:
    if claim.index is None:
        became = f"have the status `{claim.status}`"
    else:
        became = f"are increment {claim.index} of {claim.source}"
    overwrites = place.source.same_name == "replace" and claim.index is not None
    replaces = (
        "The source declares `same_name: replace`. So once the file is complete, readmit it "
        "unchanged (cbp quarantine readmit): its content then replaces that increment"
    )
    advice = (
        "To prevent this, producers should write under a name that ends in .part, and rename the "
        "file when it is complete"
    )
    if comparison.grew:
        code, more = "file_grew", comparison.bytes - claim.bytes
        said = (
            f"the file grew after it was read: its first {claim.bytes} bytes {became}, and the "
            f"{more} bytes after them were NOT taken in. "
            f"{replaces if overwrites else _rest(claim, comparison, target, place)}"
        )
    else:
        code = "file_rewritten"
        added = (
            "If this is additional data, drop it again under another name. If it corrects the "
            "increment, use `cbp replace`, or roll back to before the increment (cbp rollback)"
        )
        said = (
            "the file was overwritten after it was read: it no longer begins with the "
            f"{claim.bytes} bytes that {became}. The current content ({comparison.bytes} bytes) "
            f"was NOT taken in. {replaces if overwrites else added}"
        )
    return {
        "code": code,
        "message": f"{claim.path}: {said}. {advice}",
        "file": claim.path,
        "line": None,
        "column": None,
        "cause": f"{comparison.bytes} bytes now, {claim.bytes} when it was read",
        "claim": identity,
        "ingested": {
            "claim": claim.id,
            "increment": claim.index,
            "bytes": claim.bytes,
            "sha256": claim.sha256,
        },
    }


def _rest(claim: ClaimRecord, comparison: _Comparison, target: Path, place: SourcePlace) -> str:
    if place.source.format in (*BINARY_FORMATS, "xml"):
        return f"Drop the later content as a separate file, in the format {place.source.format}"
    header = ", with the header line in front" if place.source.format == "csv" else ""
    cut = ""
    if not comparison.whole:
        cut = (
            ". The bytes that were read before do not end with a line end, so the last record "
            "among them may be truncated: check that record"
        )
    return (
        f"Drop the rest as a separate file (tail -c +{claim.bytes + 1} '{target}'{header}; "
        f"decompress a compressed file first){cut}"
    )


_EVERYTHING = 1 << 62


def plan_finished(
    place: SourcePlace, *, open_claims: Collection[str], retention: FlowRetention, now: datetime
) -> Expiry:
    """Return which finished files of a source are to be removed; reads only."""
    held = [
        Held(number, size, min(arrived, now), (name,))
        for number, (name, size) in enumerate(sorted(_finished(place)))
        if (arrived := claimed_at(name)) is not None
    ]
    return expire(
        held,
        total_bytes=sum(one.bytes for one in held),
        first_replayed=_EVERYTHING,
        needed={path for one in held for path in one.paths if path.split("-")[0] in open_claims},
        retention=retention,
        now=now,
    )


def remove_finished(place: SourcePlace, files: Files, plan: Expiry) -> None:
    """Carry out a plan; can be interrupted anywhere, and repeated."""
    for one in plan.gone:
        for path in one.paths:
            files.remove(f"{place.finished}/{path}", what="dead_file")


def _finished(place: SourcePlace) -> Iterator[tuple[str, int]]:
    """Yield name and size of the entries of `finished`; follows no link."""
    with suppress(FileNotFoundError), os.scandir(place.finished) as entries:
        for entry in entries:
            with suppress(OSError):  # only this name fails: it stays
                status = entry.stat(follow_symlinks=False)
                if not stat.S_ISDIR(status.st_mode):
                    yield entry.name, status.st_size
