r"""Takes in claimed files: read, write, log, index; or rejects them, or skips them.

    claimed file -> increment files -> source log -> store -> finished
                 \-> (rejected) reason file -> quarantine -> store
                  \-> (same as an accepted file) store -> finished

Each arrow is durable before the next begins, and may be repeated: an open claim is taken again
until it is settled, possibly by another process. Files are read one by one. The next arrows run
once for a group of files, since each costs a sync of the disk or two. The source log is the point
of acceptance, of all files of a group at once. A file is accepted whole or not at all.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

import structlog

from cbp.engine.storage.failpoints import Faults
from cbp.engine.storage.files import Files
from cbp.engine.storage.parquet_writer import sync_files
from cbp.errors import CbpError, FileLostError, OperatingError
from cbp.model.flow.increment import DataFile
from controller.ingest.errors import device_errors
from controller.ingest.folder.manifest import MANIFEST_NAME, Promise, is_sealed, read_manifest
from controller.ingest.folder.source_place import (
    SourcePlace,
    kept_files,
    kept_name,
    move,
    move_all,
    reason_path,
)
from controller.ingest.formats.content import never
from controller.ingest.identity import (
    Identities,
    NamedContent,
    is_retraction,
    put_aside_reason,
)
from controller.ingest.limits import IngestLimits
from controller.ingest.reader.file_reader import FileRead, FileReader, ReadRequest, read_file
from controller.ingest.reader.increment_parts import PartNames, WrittenPart
from controller.ingest.rejection import FileRejectedError, unforeseen
from controller.ingest.replacement import (
    Brought,
    Difference,
    Replacements,
    replaces,
)
from controller.ingest.source_log import ArrivedFile, SourceEntry, SourceLog
from controller.store.base import ClaimRecord, IncrementRecord, Judged, Store

__all__ = ["Group", "Intake", "Outcome"]

_log = structlog.get_logger(__name__)
_PART = re.compile(r"(\d{12})-\d{5}-([a-z0-9]+)\.parquet", re.ASCII)

Outcome = Literal["accepted", "duplicate", "quarantined"]


@dataclass(frozen=True, slots=True)
class Pending:
    """A file that was read and judged, and is not settled yet.

    Attributes:
        claim: With the content's digest; with its index if it is to be accepted.
        path: The claimed copy.
        names: Names the parts of its increment, which exist if it is to be accepted.
        gone: Parts with records that it takes back.
    """

    claim: ClaimRecord
    path: Path
    judged: Judged
    names: PartNames
    read: FileRead
    read_at: datetime
    gone: tuple[WrittenPart, ...] = ()

    @property
    def parts(self) -> tuple[WrittenPart, ...]:
        """All parts of its increment."""
        return (*self.read.parts, *self.gone)

    @property
    def brought(self) -> Brought:
        """What it brings, under the temporary names, which are full paths."""
        files = [
            tuple(DataFile(path, p.records, p.bytes) for path, p in zip(paths, parts, strict=True))
            for parts in (self.read.parts, self.gone)
            for paths in (self.names.temporaries(parts),)
        ]
        return Brought(*files)


class Group:
    """Files of one source that are read one by one and settled together.

    A file is in the store or in quarantine only once `settle` has returned, except for one that
    the reader rejects, which depends on no other file.
    """

    def __init__(self, intake: Intake, place: SourcePlace) -> None:
        self._intake, self._place = intake, place
        self._accepted: list[Pending] = []
        self._known: list[Pending] = []

    def take(self, claim: ClaimRecord, path: Path, stopping: Callable[[], bool]) -> bool:
        """Read one file; return whether it waits for `settle`. `Intake.read` has the details."""
        read = self._intake.read(self._place, claim, path, stopping, self._accepted)
        if read is None:
            return False
        (self._accepted if read.judged.outcome == "accepted" else self._known).append(read)
        return True

    @property
    def since(self) -> datetime | None:
        """When the first file that waits was read; `None` if none waits."""
        return min((one.read_at for one in (*self._accepted[:1], *self._known[:1])), default=None)

    def settle(self) -> dict[str, Outcome]:
        """Settle the files that wait; return the outcome by the claim's id.

        New files first: the others may equal one of them, and must never be told to be known by
        a file that a crash keeps from being accepted.

        Raises:
            DiskFullError: The claims stay open and the files stay claimed.
            DropFolderError: The claims stay open and the files stay claimed.
            LogConflictError: Another controller takes in files of this source.
        """
        accepted, self._accepted = self._accepted, []
        known, self._known = self._known, []
        if accepted:
            self._intake.accept(self._place, accepted)
        skipped = [one.claim for one in known if one.judged.outcome == "duplicate"]
        if skipped:
            self._intake.settle_duplicates(skipped)
        for one in known:
            if one.judged.outcome == "quarantined":
                reason = put_aside_reason(one.judged)
                self._intake.reject(self._place, one.claim, one.path, reason)
        return {one.claim.id: one.judged.outcome for one in (*accepted, *known)}


class Intake:
    """Settles claims, one source at a time; see the module header."""

    def __init__(
        self,
        *,
        store: Store,
        files: Files,
        clock: Callable[[], datetime],
        limits: IngestLimits,
        faults: Faults,
        reader: FileReader = read_file,
    ) -> None:
        self._store, self._files, self._clock = store, files, clock
        self._limits, self._faults, self._reader = limits, faults, reader
        self._identities = Identities(store)
        self._replacements = Replacements(store, files, limits)

    def begin(self, place: SourcePlace) -> Group:
        """Return an empty group for files of a source; its `settle` must be called at the end."""
        return Group(self, place)

    def replay(self, place: SourcePlace, *, to_the_end: bool = False) -> int:
        """Index the log entries that the store lacks; return how many.

        Args:
            place: The source.
            to_the_end: Check that no entry lies behind a gap; lists the log.

        Raises:
            FileDamagedError: An entry is damaged, or missing; those before it are indexed.
        """
        log = SourceLog(place.folder, place.name, self._files)
        known: dict[str, ClaimRecord] | None = None
        count = 0
        for entries in log.groups_since(self._store.next_index(place.dataflow, place.name)):
            if known is None:
                known = {c.id: c for c in self._store.open_claims(place.dataflow, place.name)}
            claims = [
                [known.get(one.claim) or _claim_of(place, one, entry) for one in entry.files]
                for entry in entries
            ]
            # What was put together is indexed together: an instance that leads no more must not
            # see the middle of a file as the end of the log.
            self.index(place, list(zip(entries, claims, strict=True)))
            count += len(entries)
        if to_the_end:
            end = self._store.next_index(place.dataflow, place.name)
            log.require_end(end)
            self._require_no_orphan(place, end)
        return count

    def _require_no_orphan(self, place: SourcePlace, end: int) -> None:
        """Refuse to go on where an increment was accepted and the end of the log is gone.

        A file is moved to `finished` only once its log entry is durable. A crash before the entry
        leaves an increment's files too, but the file is still in `claimed` then.

        Raises:
            FileLostError: If the log lacks its newest entries.
        """
        part_matches = map(_PART.fullmatch, self._files.list_names(place.increments))
        orphans = {one[2]: int(one[1]) for one in part_matches if one and int(one[1]) >= end}
        if not orphans:
            return
        finished = kept_files(place.finished).keys()
        lost = sorted(orphans[claim] for claim in orphans.keys() & finished)
        if lost:
            path = f"{place.increments}/_log/{lost[0]:020d}.json"
            raise FileLostError(path, "its increment is there, and its file lies in `finished`")

    def accept(self, place: SourcePlace, pending: Sequence[Pending]) -> None:
        """Sync and name the parts of files, put their log entries, index them; each step for all.

        Args:
            place: Their source.
            pending: At least one; their increments follow each other.
        """
        try:
            with device_errors(place.increments):
                parts = [path for one in pending for path in one.names.temporaries(one.parts)]
                sync_files(parts, faults=self._faults)
                entries = [self._entry(one) for one in pending]
            if parts:
                self._files.sync_dir(place.increments)
        except Exception:
            for one in pending:
                one.names.discard()
            raise
        SourceLog(place.folder, place.name, self._files).put(entries)
        claims = ([one.claim] for one in pending)
        self.index(place, list(zip(entries, claims, strict=True)))

    def index(
        self, place: SourcePlace, accepted: Sequence[tuple[SourceEntry, Sequence[ClaimRecord]]]
    ) -> None:
        """Add log entries to the store in one step; skips those that the store has.

        Args:
            place: Their source.
            accepted: Each entry with the claims of its files.
        """
        arrivals = list[tuple[ClaimRecord, IncrementRecord]]()
        for entry, claims in accepted:
            increment, at = entry.increment, entry.accepted_at
            record = IncrementRecord(place.dataflow, increment, at, entry.origin())
            for file, claim in zip(entry.files, claims, strict=True):
                arrivals.append((_accepted(file, claim, increment.index), record))
        self._store.accept_all(arrivals)

    def settle_duplicates(self, claims: Sequence[ClaimRecord]) -> None:
        """Tell the store that files equal accepted ones."""
        self._store.update_claims([replace(claim, status="duplicate") for claim in claims])

    def reject(
        self, place: SourcePlace, claim: ClaimRecord, path: Path, error: FileRejectedError
    ) -> None:
        """Put a file into quarantine with its reason, then tell the store."""
        reason = self.put_aside(place, claim, path, error)
        self._store.update_claim(replace(claim, status="quarantined", reason=reason))

    def put_aside(
        self, place: SourcePlace, claim: ClaimRecord, path: Path, error: FileRejectedError
    ) -> Mapping[str, Any]:
        """Put a file into quarantine and return the reason; the store is told later."""
        reason = error.reason(file=claim.path, claim=claim.id)
        target = place.quarantine / kept_name(claim.id, claim.path)
        data = json.dumps(reason, ensure_ascii=True, indent=2).encode()
        self._files.write_durable(str(reason_path(target)), data)
        with device_errors(str(path)):
            move(path, target, self._files, self._faults)
        return reason

    def finish(self, place: SourcePlace, settled: Iterable[tuple[ClaimRecord, Path]]) -> None:
        """Move settled files to `finished`; the next pass repeats a move that failed.

        Args:
            place: Their source.
            settled: Claims with their files, which lie in one folder.
        """
        finished = place.finished
        moves = [(path, finished / kept_name(c.id, c.path)) for c, path in settled]
        with suppress(OSError, OperatingError):
            move_all(moves, self._files, self._faults)

    def read(
        self,
        place: SourcePlace,
        claim: ClaimRecord,
        path: Path,
        stopping: Callable[[], bool],
        pending: Sequence[Pending],
    ) -> Pending | None:
        """Read a claimed file and judge it; `None` if it was rejected, which is then settled.

        Args:
            place: The claim's source.
            claim: An open claim.
            path: The claimed copy.
            stopping: Called while the file is read; returns whether to stop.
            pending: The files before it that are accepted, but not in the store yet.

        Raises:
            IntakeStoppedError: `stopping` returned true; nothing has changed.
            DiskFullError: The claim stays open and the file stays claimed.
            DropFolderError: The claim stays open and the file stays claimed.
        """
        try:
            with device_errors(str(path)):
                return self._read(place, claim, path, stopping, pending)
        except FileRejectedError as error:
            self.reject(place, claim, path, error)
        except CbpError:
            raise
        except Exception as error:  # whatever failed, this file is rejected; see `unforeseen`
            _log.exception("file.failed", source=place.name, claim=claim.id, file=claim.path)
            self.reject(place, claim, path, unforeseen(error))
        return None

    def _read(
        self,
        place: SourcePlace,
        claim: ClaimRecord,
        path: Path,
        stopping: Callable[[], bool],
        pending: Sequence[Pending],
    ) -> Pending:
        if claim.path == MANIFEST_NAME or is_sealed(claim.path):
            _reject_manifest(path)
        index = self._store.next_index(place.dataflow, place.name) + len(pending)
        names = PartNames(
            self._files,
            place.folder,
            flow=place.name,
            index=index,
            claim=claim.id,
            faults=self._faults,
        )
        try:
            if is_retraction(claim):
                read = FileRead((), claim.sha256, {})
            else:
                read = self._reader(_request(place, claim, path, names, self._limits), stopping)
            require_promised(claim, read.sha256)
            before = [one.claim for one in pending]
            file = NamedContent(claim.path, read.sha256, claim.id, claim.key)
            judged = self._identities.judge(place, file, before)
            gone: tuple[WrittenPart, ...] = ()
            if judged.outcome != "accepted":
                names.discard()
            elif replaces(judged.same_as):
                read, gone = self._replaced(place, claim, judged, names, read, pending)
                judged = replace(judged, same_as={**_asked(claim), **(judged.same_as or {})})
        except Exception:
            names.discard()
            raise
        accepted = index if judged.outcome == "accepted" else None
        claim = replace(claim, sha256=read.sha256, same_as=judged.same_as, index=accepted)
        return Pending(claim, path, judged, names, read, self._clock(), gone)

    def compare(
        self, place: SourcePlace, claim: ClaimRecord, path: Path, earlier: str
    ) -> Difference:
        """Return what a file would change that replaces another; changes nothing.

        Args:
            place: Their source.
            claim: Stands for the file; it is recorded nowhere.
            path: The file.
            earlier: Id of the claim of the file that it would replace.

        Raises:
            FileRejectedError: The file cannot be read, or the earlier one is not kept any more.
        """
        index = self._store.next_index(place.dataflow, place.name)
        names = PartNames(
            self._files,
            place.folder,
            flow=place.name,
            index=index,
            claim=claim.id,
            faults=self._faults,
        )
        try:
            parts: tuple[WrittenPart, ...] = ()
            if not is_retraction(claim):
                request = _request(place, claim, path, names, self._limits)
                parts = self._reader(request, never).parts
            return self._replacements.difference(place, names.temporaries(parts), earlier, {})
        finally:
            names.discard()

    def _replaced(
        self,
        place: SourcePlace,
        claim: ClaimRecord,
        judged: Judged,
        names: PartNames,
        read: FileRead,
        pending: Sequence[Pending],
    ) -> tuple[FileRead, tuple[WrittenPart, ...]]:
        """Write what differs from the earlier file in place of what was read; return both parts."""
        earlier = str((judged.same_as or {})["claim"])
        made = self._replacements.difference(
            place,
            names.temporaries(read.parts),
            earlier,
            {one.claim.id: (one.claim, one.brought) for one in pending},
        )
        names.discard()
        came, gone = self._replacements.write(place, names.index, claim.id, made)
        notes = {
            **read.notes,
            "records_came": made.came.num_rows,
            "records_gone": made.gone.num_rows,
        }
        return replace(read, parts=came, notes=notes), gone

    def _entry(self, pending: Pending) -> SourceEntry:
        file = arrived(pending.claim, pending.read.notes)
        increment = pending.names.publish(pending.read.parts, pending.gone)
        return SourceEntry(increment, (file,), pending.read_at)


def _asked(claim: ClaimRecord) -> dict[str, Any]:
    """Return who asked for a replacement, and why, as far as it is known."""
    said = claim.same_as or {}
    return {name: said[name] for name in ("who", "why") if name in said}


def arrived(
    claim: ClaimRecord, notes: Mapping[str, Any], records: int | None = None
) -> ArrivedFile:
    """Return what a log entry says of a file that was read."""
    return ArrivedFile(
        claim=claim.id,
        sequence=claim.sequence,
        sha256=claim.sha256,
        path=claim.path,
        bytes=claim.bytes,
        notes=notes,
        key=claim.key,
        same_as=claim.same_as,
        records=records,
    )


def _request(
    place: SourcePlace, claim: ClaimRecord, path: Path, names: PartNames, limits: IngestLimits
) -> ReadRequest:
    return ReadRequest(
        path=str(path),
        size=claim.bytes,
        source=place.name,
        format=place.source.format,
        schema=place.source.schema,
        options=place.options,
        folder=names.folder,
        index=names.index,
        claim=claim.id,
        limits=limits,
        file=claim.path,
        on_bad_records=place.source.on_bad_records,
    )


def _accepted(file: ArrivedFile, claim: ClaimRecord, index: int) -> ClaimRecord:
    return replace(
        claim,
        status="accepted",
        sha256=file.sha256,
        bytes=file.bytes,
        index=index,
        same_as=file.same_as,
    )


def _claim_of(place: SourcePlace, file: ArrivedFile, entry: SourceEntry) -> ClaimRecord:
    """Return the claim that a log entry names, for a store that lost it."""
    return ClaimRecord(
        id=file.claim,
        dataflow=place.dataflow,
        source=place.name,
        sequence=file.sequence,
        path=file.path,
        bytes=file.bytes,
        status="accepted",
        created_at=entry.accepted_at,
        sha256=file.sha256,
        key=file.key,
    )


def require_promised(claim: ClaimRecord, sha256: str, promise: Promise | None = None) -> None:
    """Check a file against what was said of it before.

    Args:
        claim: Has the size, and the digest of an upload.
        sha256: The digest of what was read.
        promise: What a manifest promised, if it names the file.

    Raises:
        FileRejectedError: Rule `manifest_mismatch` or `file_changed`.
    """
    if promise is not None and claim.bytes != promise.bytes:
        message = f"the manifest promises {promise.bytes} bytes, the file has {claim.bytes}"
        raise FileRejectedError(rule="manifest_mismatch", message=message)
    if promise is not None and promise.sha256 and sha256 != promise.sha256:
        message = f"the manifest promises SHA-256 {promise.sha256}, the content has {sha256}"
        raise FileRejectedError(rule="manifest_mismatch", message=message)
    if claim.sha256 and sha256 != claim.sha256:
        message = (
            f"it was received with SHA-256 {claim.sha256} and now has {sha256}: it was damaged or "
            "written to in `claimed`; upload it again"
        )
        raise FileRejectedError(rule="file_changed", message=message)


def _reject_manifest(path: Path) -> None:
    """Raise the reason why a manifest was claimed like a file."""
    read_manifest(path)
    message = "a manifest that was not complete in time"
    raise FileRejectedError(rule="manifest_mismatch", message=message)
