r"""Takes in one claimed file: read, write, log, index; or rejects it, or skips it.

    claimed file -> increment files -> source log -> store -> finished
                 \-> (rejected) reason file -> quarantine -> store
                  \-> (same as an accepted file) store -> finished

Each arrow is durable before the next begins, and may be repeated: `take` is called again with
the same claim until it returns, possibly by another process. The source log is the point of
acceptance. A file is accepted whole or not at all.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

import structlog

from cbp.engine.storage.failpoints import Faults
from cbp.engine.storage.files import Files
from cbp.errors import CbpError, OperatingError
from controller.ingest.content import never
from controller.ingest.errors import device_errors
from controller.ingest.folders import SourcePlace, kept_name, move, move_all, reason_path
from controller.ingest.identity import Identities, known_content
from controller.ingest.increments import PartNames
from controller.ingest.limits import IngestLimits
from controller.ingest.manifest import MANIFEST_NAME, is_sealed, read_manifest
from controller.ingest.reading import FileReader, ReadRequest, read_file
from controller.ingest.rejection import FileRejectedError, unforeseen
from controller.ingest.source_log import SourceEntry, SourceLog
from controller.store.base import ClaimRecord, IncrementRecord, Judged, Store

__all__ = ["Intake", "Outcome"]

_log = structlog.get_logger(__name__)

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
        reader: FileReader = read_file,
    ) -> None:
        self._store, self._files, self._clock = store, files, clock
        self._limits, self._faults, self._reader = limits, faults, reader
        self._identities = Identities(store)

    def take(
        self,
        place: SourcePlace,
        claim: ClaimRecord,
        path: Path,
        sha256: str = "",
        stopping: Callable[[], bool] = never,
    ) -> Outcome:
        """Settle one claim; `finish` moves the file away, unless it is in quarantine.

        Args:
            place: The claim's source.
            claim: An open claim.
            path: The claimed copy.
            sha256: The digest that a manifest promised; `""` if there is none.
            stopping: Called while the file is read; returns whether to stop.

        Raises:
            IntakeStoppedError: `stopping` returned true; nothing has changed.
            DiskFullError: The claim stays open and the file stays claimed.
            DropFolderError: The claim stays open and the file stays claimed.
            LogConflictError: Another controller takes in files of this source.
        """
        try:
            with device_errors(str(path)):
                entry, judged = self._read(place, claim, path, sha256, stopping)
        except FileRejectedError as error:
            self.reject(place, claim, path, error)
            return "quarantined"
        except CbpError:
            raise
        except Exception as error:  # whatever failed, this file is rejected; see `unforeseen`
            _log.exception("file.failed", source=place.name, claim=claim.id, file=claim.path)
            self.reject(place, claim, path, unforeseen(error))
            return "quarantined"
        claim = replace(claim, sha256=entry.sha256, same_as=judged.same_as)
        if judged.outcome == "quarantined":
            self.reject(place, claim, path, known_content(judged))
            return "quarantined"
        if judged.outcome == "duplicate":
            self._store.update_claim(replace(claim, status="duplicate"))
            return "duplicate"
        SourceLog(place.folder, place.name, self._files).put(entry)
        self.index(place, entry, claim)
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
        """Add a log entry to the store; does nothing if the store has it."""
        accepted = replace(
            claim,
            status="accepted",
            sha256=entry.sha256,
            bytes=entry.bytes,
            index=entry.increment.index,
            same_as=entry.same_as,
        )
        record = IncrementRecord(place.dataflow, entry.increment, entry.accepted_at, entry.origin())
        self._store.accept(accepted, record)

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
        moves = [(path, place.finished / kept_name(c.id, c.path)) for c, path in settled]
        with suppress(OSError, OperatingError):
            move_all(moves, self._files, self._faults)

    def _read(
        self,
        place: SourcePlace,
        claim: ClaimRecord,
        path: Path,
        sha256: str,
        stopping: Callable[[], bool],
    ) -> tuple[SourceEntry, Judged]:
        """Write the increment's files, unless the file is not accepted; return what the file is."""
        if claim.path == MANIFEST_NAME or is_sealed(claim.path):
            _reject_manifest(path)
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
            read = self._reader(_request(place, claim, path, names, self._limits), stopping)
            if sha256 and read.sha256 != sha256:
                message = f"the manifest promises SHA-256 {sha256}, the content has {read.sha256}"
                raise FileRejectedError(rule="manifest_mismatch", message=message)
            judged = self._judge(place, claim, read.sha256)
            parts = read.parts
            if judged.outcome != "accepted":
                names.discard()
                parts = ()
            increment = names.publish(parts)
        except Exception:
            names.discard()
            raise
        entry = SourceEntry(
            increment=increment,
            claim=claim.id,
            sequence=claim.sequence,
            sha256=read.sha256,
            path=claim.path,
            bytes=claim.bytes,
            accepted_at=self._clock(),
            notes=read.notes,
            key=claim.key,
            same_as=judged.same_as,
        )
        return entry, judged

    def _judge(self, place: SourcePlace, claim: ClaimRecord, sha256: str) -> Judged:
        return self._identities.judge(place, claim.path, sha256, claim.id)


def _request(
    place: SourcePlace, claim: ClaimRecord, path: Path, names: PartNames, limits: IngestLimits
) -> ReadRequest:
    return ReadRequest(
        path=str(path),
        size=claim.bytes,
        source=place.name,
        format=place.source.format,
        schema=place.source.schema,
        options=dict(place.source.options),
        folder=names.folder,
        index=names.index,
        claim=claim.id,
        limits=limits,
    )


def _claim_of(place: SourcePlace, entry: SourceEntry) -> ClaimRecord:
    """Return the claim that a log entry names, for a store that lost it."""
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
        key=entry.key,
    )


def _reject_manifest(path: Path) -> None:
    """Raise the reason why a manifest was claimed like a file."""
    read_manifest(path)
    message = "a manifest that was not complete in time"
    raise FileRejectedError(rule="manifest_mismatch", message=message)
