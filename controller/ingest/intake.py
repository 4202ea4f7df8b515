r"""Takes in one claimed file: read, write, log, index; or reject, or skip.

    claimed file -> increment files -> source log -> store -> finished
                 \-> (rejected) reason file -> quarantine -> store
                  \-> (same content as before) store -> finished

Every arrow is durable before the next begins and may be repeated: `take` is called
again with the same claim until it returns, also by another process. The source log
is the point of acceptance. A file is accepted whole or not at all.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Literal

import pyarrow as pa

from cbp.engine.faults import Faults
from cbp.engine.files import Files
from cbp.errors import OperatingError
from controller.ingest.content import ClaimedContent, never
from controller.ingest.errors import device_errors
from controller.ingest.folders import SourcePlace, kept_name, move, reason_path
from controller.ingest.formats import read_batches
from controller.ingest.increments import IncrementWriter
from controller.ingest.limits import IngestLimits
from controller.ingest.manifest import MANIFEST_NAME, Manifest, read_manifest
from controller.ingest.notes import Notes
from controller.ingest.rejection import FileRejectedError
from controller.ingest.source_log import SourceEntry, SourceLog
from controller.store.base import ClaimRecord, IncrementRecord, Store

__all__ = ["Intake", "Outcome"]

Outcome = Literal["accepted", "duplicate", "quarantined"]


class Intake:
    """Settles claims, one at a time per source; see the module header."""

    def __init__(
        self,
        *,
        store: Store,
        files: Files,
        clock: Callable[[], datetime],
        limits: IngestLimits,
        faults: Faults,
    ) -> None:
        self._store, self._files, self._clock = store, files, clock
        self._limits, self._faults = limits, faults

    def take(
        self,
        place: SourcePlace,
        claim: ClaimRecord,
        path: Path,
        sha256: str = "",
        stopping: Callable[[], bool] = never,
    ) -> Outcome:
        """Settle one claim.

        Args:
            place: The claim's source.
            claim: An open claim.
            path: The claimed copy.
            sha256: What a manifest promised; `""` when nothing was.
            stopping: Asked while the file is read whether to leave off.

        Raises:
            IntakeStoppedError: `stopping` said so: as if the claim had never been looked at.
            DiskFullError: The claim stays open and the file stays claimed.
            DropFolderError: So here.
            LogConflictError: Another controller takes in files of this source.
        """
        try:
            with device_errors(str(path)):
                entry = self._read(place, claim, path, sha256, stopping)
        except FileRejectedError as error:
            self.reject(place, claim, path, error)
            return "quarantined"
        if not entry.increment.files and self._is_known(place, entry.sha256):
            self._store.update_claim(replace(claim, status="duplicate", sha256=entry.sha256))
            self.finish(place, claim.id, claim.path, path)
            return "duplicate"
        SourceLog(place.folder, place.name, self._files).put(entry)
        self.index(place, entry, claim)
        self.finish(place, claim.id, claim.path, path)
        return "accepted"

    def replay(self, place: SourcePlace) -> int:
        """Index the log entries that the store lacks; return how many."""
        log = SourceLog(place.folder, place.name, self._files)
        known: dict[str, ClaimRecord] | None = None
        count = 0
        for entry in log.since(self._store.next_index(place.dataflow, place.name)):
            if known is None:
                known = {c.id: c for c in self._store.open_claims(place.dataflow, place.name)}
            claim = known.get(entry.claim) or _claim_of(place, entry)
            self.index(place, entry, claim)
            count += 1
        return count

    def index(self, place: SourcePlace, entry: SourceEntry, claim: ClaimRecord) -> None:
        """Tell the store what the log says; does nothing when it knows."""
        accepted = replace(
            claim,
            status="accepted",
            sha256=entry.sha256,
            bytes=entry.bytes,
            index=entry.increment.index,
        )
        record = IncrementRecord(place.dataflow, entry.increment, entry.accepted_at, entry.origin())
        self._store.accept(accepted, record)

    def reject(
        self, place: SourcePlace, claim: ClaimRecord, path: Path, error: FileRejectedError
    ) -> None:
        """Put a file into quarantine with its reason, then tell the store."""
        reason = error.reason(file=claim.path, claim=claim.id)
        target = place.quarantine / kept_name(claim.id, claim.path)
        data = json.dumps(reason, ensure_ascii=True, indent=2).encode()
        self._files.write_durable(str(reason_path(target)), data)
        with device_errors(str(path)):
            move(path, target, self._files, self._faults)
        self._store.update_claim(replace(claim, status="quarantined", reason=reason))

    def finish(self, place: SourcePlace, claim: str, original: str, path: Path) -> bool:
        """Move a settled file out of the way; a failure is left to the next pass."""
        with suppress(OSError, OperatingError):
            move(path, place.finished / kept_name(claim, original), self._files, self._faults)
            return True
        return False

    def _is_known(self, place: SourcePlace, sha256: str) -> bool:
        return self._store.accepted_claim(place.dataflow, place.name, sha256) is not None

    def _read(
        self,
        place: SourcePlace,
        claim: ClaimRecord,
        path: Path,
        sha256: str,
        stopping: Callable[[], bool],
    ) -> SourceEntry:
        """Write the increment's files; without files when the content is empty or known."""
        if claim.path == MANIFEST_NAME:
            _reject_manifest(path)
        notes = Notes()
        writer = IncrementWriter(
            self._files,
            place.folder,
            flow=place.name,
            index=self._store.next_index(place.dataflow, place.name),
            claim=claim.id,
            schema=place.source.schema,
            limits=self._limits,
            faults=self._faults,
        )
        try:
            with ClaimedContent(str(path), self._limits, stopping) as content:
                if content.size != claim.bytes:
                    message = f"had {claim.bytes} bytes when it was claimed, now {content.size}"
                    raise FileRejectedError(rule="file_changed", message=message)
                batches = read_batches(content, place.source, self._limits, notes)
                writer.write(_until_stopped(batches, content))
                found = content.finish()
            if sha256 and found != sha256:
                message = f"the manifest promises SHA-256 {sha256}, the content has {found}"
                raise FileRejectedError(rule="manifest_mismatch", message=message)
            if self._is_known(place, found):
                writer.discard()
            increment = writer.finish()
        except (FileRejectedError, OSError, OperatingError):
            writer.discard()
            raise
        return SourceEntry(
            increment=increment,
            claim=claim.id,
            sequence=claim.sequence,
            sha256=found,
            path=claim.path,
            bytes=claim.bytes,
            accepted_at=self._clock(),
            notes=notes.to_json(),
        )


def _until_stopped(
    batches: Iterator[pa.RecordBatch], content: ClaimedContent
) -> Iterator[pa.RecordBatch]:
    """Ask between batches too: of Parquet, and of what decompresses to much, few reads are seen."""
    for batch in batches:
        content.go_on()
        yield batch


def _claim_of(place: SourcePlace, entry: SourceEntry) -> ClaimRecord:
    """Return the claim that a log entry tells of, for a store that lost it."""
    return ClaimRecord(
        id=entry.claim,
        dataflow=place.dataflow,
        source=place.name,
        sequence=entry.sequence,
        path=entry.path,
        bytes=entry.bytes,
        status="accepted",
        created_at=entry.accepted_at,
        sha256=entry.sha256,
    )


def _reject_manifest(path: Path) -> None:
    try:
        manifest: Manifest | None = read_manifest(path)
        cause = ""
    except ValueError as exc:
        manifest, cause = None, str(exc)
    message = "not a manifest" if manifest is None else "a manifest that was not complete in time"
    raise FileRejectedError(
        rule="manifest_mismatch", message=f"{message}: {cause}".rstrip(": "), cause=cause
    )
