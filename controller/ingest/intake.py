r"""Takes in claimed files: read, write, log, index; or rejects them, or skips them.

    claimed file -> increment files -> source log -> store -> finished
                 \-> (rejected) reason file -> quarantine -> store
                  \-> (same as an accepted file) store -> finished

Each arrow is durable before the next begins, and can be repeated: an open claim is processed again
until it is settled, possibly by another process. Files are read one by one. The later arrows run
once for a group of files, since each costs one or two syncs of the disk. Putting the entry into the
source log accepts all files of a group together. A file is accepted as a whole or not at all.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import structlog

from cbp.engine.storage.parquet_writer import sync_files
from cbp.errors import CbpError, FileLostError, OperatingError, ReplaceRefusedError
from cbp.model.flow.increment import DataFile
from controller.ingest.errors import NewColumnsError, device_errors
from controller.ingest.folder.folder_report import Outcome
from controller.ingest.folder.manifest import MANIFEST_NAME, Promise, is_sealed, read_manifest
from controller.ingest.folder.quarantine_folder import kept_files, move_to_quarantine
from controller.ingest.folder.source_place import SourcePlace, kept_name, move_all
from controller.ingest.formats.file_bytes import never
from controller.ingest.limits import IngestLimits
from controller.ingest.ports import Ports
from controller.ingest.reader.file_reader import ClaimedFile, FileReader, ReadRequest, SoundFile
from controller.ingest.reader.increment_parts import PartNames, WrittenPart
from controller.ingest.rejection import FileRejectedError, unforeseen
from controller.ingest.repeated_files import (
    RepeatedFiles,
    is_correction,
    is_retraction,
    put_aside_reason,
    replaces,
)
from controller.ingest.replacement import Brought, Difference, Replacements
from controller.ingest.source_log import ArrivedFile, SourceEntry, SourceLog
from controller.store.base import ClaimRecord, IncrementRecord, Judged

_log = structlog.get_logger(__name__)
_PART = re.compile(r"(\d{12})-\d{5}-([a-z0-9]+)\.parquet", re.ASCII)

Claimed = tuple[ClaimRecord, Path]
"""An open claim with its copy."""


@dataclass(frozen=True, slots=True)
class Pending:
    """Files that were read and judged, and become one increment that is not accepted yet.

    Attributes:
        files: Claims with their digests and the increment's index, in the order of the records.
        came, gone: Parts with the records that it adds, and with those that it takes back.
    """

    files: Sequence[tuple[ClaimRecord, SoundFile]]
    names: PartNames
    came: tuple[WrittenPart, ...]
    read_at: datetime
    gone: tuple[WrittenPart, ...] = ()

    @property
    def parts(self) -> tuple[WrittenPart, ...]:
        """All parts of the increment."""
        return (*self.came, *self.gone)

    @property
    def brought(self) -> Brought:
        """The files of the increment, under temporary names, which are full paths."""
        files = [
            tuple(DataFile(path, p.records, p.bytes) for path, p in zip(paths, parts, strict=True))
            for parts in (self.came, self.gone)
            for paths in (self.names.temporaries(parts),)
        ]
        return Brought(*files)

    def entry(self) -> SourceEntry:
        """Name the parts, and return the log entry."""
        several = len(self.files) > 1
        files = (
            ArrivedFile.of(claim, sound.notes, sound.records if several else None)
            for claim, sound in self.files
        )
        increment = self.names.publish(self.came, self.gone)
        return SourceEntry(increment, tuple(files), self.read_at)


@dataclass(frozen=True, slots=True)
class Known:
    """A file that equals an earlier one in content or in name, so that it makes no increment."""

    claim: ClaimRecord
    path: Path
    judged: Judged


class Intake:
    """Settles claims, one source at a time; see the module header."""

    def __init__(self, ports: Ports, reader: FileReader) -> None:
        self._store, self._files, self.clock = ports.store, ports.files, ports.clock
        self._limits, self._faults, self.reader = ports.limits, ports.faults, reader
        self.identities, self.replacements = RepeatedFiles(ports.store), Replacements(ports)
        self._require_followed = ports.require_followed
        self._not_added: dict[str, str] = {}

    def replay(self, place: SourcePlace, *, to_the_end: bool = False) -> int:
        """Index the entries that the store lacks; return how many. Raises `FileDamagedError`."""
        log = self.log(place)
        known: dict[str, ClaimRecord] | None = None
        count = 0
        for entries in log.groups_since(self._store.next_index(place.dataflow, place.name)):
            if known is None:
                known = {c.id: c for c in self._store.open_claims(place.dataflow, place.name)}
            claims = [
                [known.get(one.claim) or _claim_of(place, one, entry) for one in entry.files]
                for entry in entries
            ]
            # Entries that were put together are indexed together: otherwise an instance that no
            # longer leads could take the middle of a file for the end of the log.
            self.index(place, list(zip(entries, claims, strict=True)))
            count += len(entries)
        if to_the_end:
            end = self._store.next_index(place.dataflow, place.name)
            log.require_end(end)
            self._require_no_orphan(place, end)
        return count

    def _require_no_orphan(self, place: SourcePlace, end: int) -> None:
        """Raise `FileLostError` if an increment was accepted and the end of the log is missing.

        A file is moved to `finished` only once its log entry is durable. A crash before the entry
        leaves an increment's files too, but the file is still in `claimed` then.
        """
        part_matches = map(_PART.fullmatch, self._files.list_names(place.increments))
        orphans = {one[2]: int(one[1]) for one in part_matches if one and int(one[1]) >= end}
        if not orphans:
            return
        finished = kept_files(place.finished).keys()
        lost = sorted(orphans[claim] for claim in orphans.keys() & finished)
        if lost:
            path = f"{place.increments}/_log/{lost[0]:020d}.json"
            why = "the data of its increment exists, and the dropped file was moved to `finished`"
            raise FileLostError(path, why)

    def accept(self, place: SourcePlace, pending: Sequence[Pending]) -> None:
        """Sync and name the parts, put the log entries, index them; each step for all files."""
        try:
            with device_errors(place.increments):
                parts = [path for one in pending for path in one.names.temporaries(one.parts)]
                sync_files(parts, faults=self._faults)
                entries = [one.entry() for one in pending]
            if parts:
                self._files.sync_dir(place.increments)
        except Exception:
            for one in pending:
                one.names.discard()
            raise
        self.log(place).put(entries)
        claims = ([claim for claim, _ in one.files] for one in pending)
        self.index(place, list(zip(entries, claims, strict=True)))

    def log(self, place: SourcePlace) -> SourceLog:
        """Return the log of a source."""
        return SourceLog(place.folder, place.name, self._files)

    def index(
        self, place: SourcePlace, accepted: Sequence[tuple[SourceEntry, Sequence[ClaimRecord]]]
    ) -> None:
        """Add log entries to the store in one step; skips those that the store has."""
        arrivals = list[tuple[ClaimRecord, IncrementRecord]]()
        for entry, claims in accepted:
            increment, at = entry.increment, entry.accepted_at
            record = IncrementRecord(place.dataflow, increment, at, entry.origin())
            for file, claim in zip(entry.files, claims, strict=True):
                settled = replace(
                    claim,
                    status="accepted",
                    sha256=file.sha256,
                    bytes=file.bytes,
                    index=increment.index,
                    same_as=file.same_as,
                )
                arrivals.append((settled, record))
        self._store.accept_all(arrivals)

    def settle(
        self, place: SourcePlace, pending: Sequence[Pending], known: Sequence[Known]
    ) -> dict[str, Outcome]:
        """Settle files that were read; return the outcomes by the claims' ids.

        New files are settled first. Other files may equal one of them, and must not be settled as
        known while a crash could still prevent the new file from being accepted. Raises
        `LogConflictError` if another controller takes in files of this source; after
        `DiskFullError` and `DropFolderError` the claims stay open and the files stay claimed.
        """
        if pending:
            self.accept(place, pending)
        outcomes: dict[str, Outcome] = {c.id: "accepted" for one in pending for c, _ in one.files}
        skipped = [one.claim for one in known if one.judged.outcome == "duplicate"]
        if skipped:
            self._store.update_claims([replace(claim, status="duplicate") for claim in skipped])
        outcomes |= {claim.id: "duplicate" for claim in skipped}
        for one in known:
            if one.claim.id not in outcomes:
                self.reject(place, one.claim, one.path, put_aside_reason(one.judged))
                outcomes[one.claim.id] = "quarantined"
        return outcomes

    def reject(
        self, place: SourcePlace, claim: ClaimRecord, path: Path, error: FileRejectedError
    ) -> None:
        """Put a file into quarantine with its reason, then update the store."""
        reason = self.put_aside(place, claim, path, error)
        self._store.update_claim(replace(claim, status="quarantined", reason=reason))

    def put_aside(
        self, place: SourcePlace, claim: ClaimRecord, path: Path, error: FileRejectedError
    ) -> Mapping[str, Any]:
        """Put a file into quarantine and return the reason; the caller updates the store."""
        reason = error.reason(file=claim.path, claim=claim.id)
        target = place.quarantine / kept_name(claim.id, claim.path)
        move_to_quarantine(path, target, reason, self._files, self._faults)
        return reason

    def without_columns(
        self, place: SourcePlace, claim: ClaimRecord, error: FileRejectedError
    ) -> FileRejectedError:
        """Return why a file with new columns is rejected: its source does not or cannot add them.

        Raises `NewColumnsError` if the columns are to be added; the claim stays open.
        """
        if not (place.adds_columns and error.lacks_only_columns):
            return error
        if (why := self._not_added.pop(claim.id, None)) is not None:
            return error.not_added(why)
        raise NewColumnsError(place.name, claim.id, claim.path, error.new_columns)

    def refuse_columns(self, claim: str, why: str) -> None:
        """Reject the file of an open claim when it is read again, unless the schema then fits."""
        self._not_added[claim] = why

    def finish(self, place: SourcePlace, settled: Iterable[tuple[ClaimRecord, Path]]) -> None:
        """Move settled files to `finished`; the next pass repeats a move that failed."""
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
    ) -> Pending | Known | None:
        """Read a claimed file and judge it; `None` if it was rejected and settled.

        After `IntakeStoppedError` and `NewColumnsError` nothing has changed; after `DiskFullError`
        and `DropFolderError` the claim stays open and the file stays claimed.
        """
        try:
            with device_errors(str(path)):
                return self._read(place, claim, path, stopping, pending)
        except FileRejectedError as error:
            self.reject(place, claim, path, self.without_columns(place, claim, error))
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
    ) -> Pending | Known:
        if claim.path == MANIFEST_NAME or is_sealed(claim.path):
            _reject_manifest(path)
        index = self._store.next_index(place.dataflow, place.name) + len(pending)
        names = self.names(place, index, claim.id)
        try:
            parts, sound = self._sound(place, (claim, path), index, stopping)
            require_promised(claim, sound.sha256)
            before = [one for increment in pending for one, _ in increment.files]
            claim = replace(claim, sha256=sound.sha256)
            (judged,) = self.identities.judge(place, [claim], before)
            if judged.outcome != "accepted":
                names.discard()
                return Known(replace(claim, same_as=judged.same_as, index=None), path, judged)
            gone: tuple[WrittenPart, ...] = ()
            same_as = judged.same_as
            if replaces(same_as):
                said = claim.same_as or {}  # has the person who asked for it, and the reason
                asked = {name: said[name] for name in ("who", "why") if name in said}
                same_as = {**asked, **(same_as or {})}
                parts, gone, sound = self._replaced(place, same_as, names, parts, sound, pending)
                if gone:
                    self._require_readers(place, asked=is_correction(claim.key))
        except Exception:
            names.discard()
            raise
        claim = replace(claim, same_as=same_as, index=index)
        return Pending([(claim, sound)], names, parts, self.clock(), gone)

    def _sound(
        self, place: SourcePlace, one: Claimed, index: int, stopping: Callable[[], bool]
    ) -> tuple[tuple[WrittenPart, ...], SoundFile]:
        """Read a file; raises its `FileRejectedError`. A retraction has no records to read."""
        if is_retraction(one[0]):
            return (), SoundFile(0, one[0].sha256, {})
        request = request_of(place, [one], index, self._limits)
        # A file that replaces another is only compared with it; its increment is written later.
        read = self.reader(replace(request, draft=is_correction(one[0].key)), stopping)
        (outcome,) = read.outcomes
        if isinstance(outcome, FileRejectedError):
            raise outcome
        return read.parts, outcome

    def compare(
        self, place: SourcePlace, claim: ClaimRecord, path: Path, earlier: str
    ) -> Difference:
        """Return the effects of a file that would replace another; changes nothing.

        Raises `FileRejectedError` if the file cannot be read, or the earlier one is not kept.
        """
        index = self._store.next_index(place.dataflow, place.name)
        names = self.names(place, index, claim.id)
        try:
            parts, _ = self._sound(place, (claim, path), index, never)
            return self.replacements.difference(place, names.temporaries(parts), earlier, {})
        finally:
            names.discard()

    def _replaced(
        self,
        place: SourcePlace,
        same_as: Mapping[str, Any],
        names: PartNames,
        parts: Sequence[WrittenPart],
        sound: SoundFile,
        pending: Sequence[Pending],
    ) -> tuple[tuple[WrittenPart, ...], tuple[WrittenPart, ...], SoundFile]:
        """Write the differences from the earlier file instead of the file; return both parts."""
        waiting = {claim.id: (claim, one.brought) for one in pending for claim, _ in one.files}
        made = self.replacements.difference(
            place, names.temporaries(parts), str(same_as["claim"]), waiting
        )
        names.discard()
        came, gone = self.replacements.write(place, names.index, names.claim, made)
        counts = {"records_came": made.came.num_rows, "records_gone": made.gone.num_rows}
        return came, gone, replace(sound, notes={**sound.notes, **counts})

    def _require_readers(self, place: SourcePlace, *, asked: bool) -> None:
        """Refuse a file that takes back records, if a reader of its source cannot apply that.

        A request was checked when it arrived, but input may have been removed since then. If a
        request `asked` for it, a stage that cannot apply it may wait for a rebuild.
        """
        try:
            self._require_followed(place.dataflow, place.name, rebuild=asked)
        except ReplaceRefusedError as error:
            message = (
                "the file would replace the earlier file of the same name, but "
                f"{error.details['why']}. No record of this file was taken in"
            )
            raise FileRejectedError("replace_refused", message) from error

    def names(self, place: SourcePlace, index: int, claim: str) -> PartNames:
        """Return the names of the parts of an increment, made from its claim."""
        return PartNames(self._files, self._faults, place.folder, place.name, index, claim)


def request_of(
    place: SourcePlace,
    claimed: Sequence[Claimed],
    index: int,
    limits: IngestLimits,
    *,
    seconds: float | None = None,
) -> ReadRequest:
    """Return the request to read an increment; see `ReadRequest`.

    All files are read (`whole`); with `seconds`, only those that are begun in this time.
    """
    return ReadRequest(
        files=tuple(ClaimedFile(str(path), one.bytes, one.id, one.path) for one, path in claimed),
        source=place.as_read,
        folder=place.increments,
        index=index,
        limits=limits,
        seconds=math.inf if seconds is None else seconds,
        whole=seconds is None,
        keys=place.keys,
    )


def _claim_of(place: SourcePlace, file: ArrivedFile, entry: SourceEntry) -> ClaimRecord:
    """Return the claim that a log entry names, for a store that lost it."""
    record = place.new_claim(
        file.claim, file.path, file.bytes, "accepted", entry.accepted_at, sha256=file.sha256
    )
    return replace(record, sequence=file.sequence, key=file.key)


def require_promised(claim: ClaimRecord, sha256: str, promise: Promise | None = None) -> None:
    """Check a file against its upload, and its size and digest in a manifest that names it.

    Raises `manifest_mismatch` or `file_changed`.
    """
    if promise is not None and claim.bytes != promise.bytes:
        message = f"the manifest says {promise.bytes} bytes, but the file has {claim.bytes}"
        raise FileRejectedError("manifest_mismatch", message)
    if promise is not None and promise.sha256 and sha256 != promise.sha256:
        message = f"the manifest says SHA-256 {promise.sha256}, but the file has {sha256}"
        raise FileRejectedError("manifest_mismatch", message)
    if claim.sha256 and sha256 != claim.sha256:
        message = (
            f"the file had SHA-256 {claim.sha256} when it was received, but has {sha256} now: it "
            "was damaged, or another program wrote to it in `claimed`. Send the file again"
        )
        raise FileRejectedError("file_changed", message)


def _reject_manifest(path: Path) -> None:
    read_manifest(path)
    message = (
        "some files of the manifest did not arrive in time; drop all of its files again, with the "
        "manifest"
    )
    raise FileRejectedError("manifest_mismatch", message)
