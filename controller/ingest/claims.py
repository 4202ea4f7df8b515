"""Claims: the store's record of an intention, and the one rename that carries it out.

Recorded first, renamed second; after a crash in between, the claim is found open and
its file is looked for in every place where it can lie:

    claimed/<id>         go on
    incoming (upload)    the upload was complete: rename, go on
    finished, quarantine moved but not settled in the store: read again
    incoming (listed)    the same claim is used once the file is eligible again
    nowhere              its producer took it away: settled as `file_gone`
"""

from __future__ import annotations

import os
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path

from cbp.engine.faults import Faults
from cbp.engine.files import Files
from controller.ingest.content import ClaimedContent
from controller.ingest.folders import SourcePlace, find_kept, kept_name, move, names_in
from controller.ingest.limits import IngestLimits
from controller.ingest.listing import Candidate, Listed
from controller.ingest.rejection import FileRejectedError
from controller.store.base import ClaimRecord, Store

__all__ = ["Claims", "OpenClaims", "PathLocks", "upload_name"]


def upload_name(identity: str) -> str:
    """Return the hidden name under which an upload is received."""
    return f".upload-{identity}.part"


class PathLocks:
    """One lock per folder, made when it is first used."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._locks: defaultdict[Path, threading.Lock] = defaultdict(threading.Lock)

    @contextmanager
    def hold(self, path: Path) -> Iterator[None]:
        """Hold the lock of one folder."""
        with self._guard:
            lock = self._locks[path]
        with lock:
            yield


@dataclass(slots=True)
class OpenClaims:
    """Open claims of one source beside what lies in its `claimed` folder.

    Attributes:
        copies: Id to name of every claimed copy.
        claims: By sequence.
        reusable: Claims whose file still lies in `incoming`, by the file's path.
    """

    copies: dict[str, str]
    claims: list[ClaimRecord]
    reusable: dict[str, ClaimRecord] = field(default_factory=dict)

    def strays(self) -> dict[str, str]:
        """Return the copies that no open claim names: settled, or unknown to the store."""
        known = {claim.id for claim in self.claims}
        return {identity: name for identity, name in self.copies.items() if identity not in known}


class Claims:
    """Makes claims and finds their files; methods may be called from several threads."""

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
        # Held while a claim is recorded and carried out, and while claims are compared
        # with files, so that no half-made claim looks like one that a crash left.
        self._locks = PathLocks()

    def open(self, place: SourcePlace) -> OpenClaims:
        """Return the open claims of a source, of one instant."""
        with self._locks.hold(place.root):
            copies = {name.partition(".")[0]: name for name in names_in(place.claimed)}
            return OpenClaims(copies, self._store.open_claims(place.dataflow, place.name))

    def make(
        self, place: SourcePlace, source: Path, *, identity: str, path: str, size: int
    ) -> ClaimRecord:
        """Claim a file.

        Args:
            place: The source that it was dropped for.
            source: Where it lies now.
            identity: The new claim's id.
            path: Its name, as evidence.
            size: Its bytes; another size when it is read means that it was written to.

        Raises:
            FileNotFoundError: Its producer took it away; the claim stays open and is
                settled by the next pass.
        """
        claim = ClaimRecord(
            id=identity,
            dataflow=place.dataflow,
            source=place.name,
            sequence=0,
            path=path,
            bytes=size,
            status="claiming",
            created_at=self._clock(),
        )
        with self._locks.hold(place.root):
            self._faults("claim.before")
            claim = self._store.add_claim(claim)
            self._faults("claim.after")
            return self._carry_out(place, claim, source)

    def reuse(self, place: SourcePlace, claim: ClaimRecord, candidate: Candidate) -> ClaimRecord:
        """Carry out a claim that a crash left; raises as `make`."""
        with self._locks.hold(place.root):
            claim = replace(claim, bytes=candidate.bytes)
            return self._carry_out(place, claim, place.incoming / candidate.name)

    def locate(
        self, place: SourcePlace, claim: ClaimRecord, opened: OpenClaims, listed: Listed
    ) -> Path | None:
        """Return the claimed copy of an open claim; see the module header.

        Without one the claim is in `opened.reusable`, or settled as `file_gone`.
        """
        if claim.id in opened.copies:
            return place.claimed / opened.copies[claim.id]
        part = place.incoming / upload_name(claim.id)
        kept = part if part.exists() else find_kept(place.finished, claim.id)
        kept = kept or find_kept(place.quarantine, claim.id)
        if kept is not None:
            target = place.claimed / place.claimed_name(claim.id)
            move(kept, target, self._files, self._faults)
            return target
        if claim.path in listed.paths and claim.path not in opened.reusable:
            opened.reusable[claim.path] = claim
            return None
        message = "the file was taken away while it was being claimed"
        gone = FileRejectedError(rule="file_gone", message=message)
        reason = gone.reason(file=claim.path, claim=claim.id)
        self._store.update_claim(replace(claim, status="quarantined", reason=reason))
        return None

    def return_stray(
        self, place: SourcePlace, identity: str, path: Path, stopping: Callable[[], bool]
    ) -> None:
        """Move a file out of `claimed` whose claim is settled, or unknown to the store.

        Raises:
            IntakeStoppedError: `stopping` said so while it was read.
        """
        try:
            with ClaimedContent(str(path), self._limits, stopping) as content:
                known = self._store.accepted_claim(place.dataflow, place.name, content.finish())
        except FileRejectedError:
            known = None
        if known is not None:
            move(path, place.finished / kept_name(identity, known.path), self._files, self._faults)
        else:
            move(path, place.incoming / f"recovered-{path.name}", self._files, self._faults)

    def remove_unclaimed_uploads(self, place: SourcePlace, active: set[str]) -> None:
        """Remove parts of uploads that a killed process never acknowledged."""
        with suppress(FileNotFoundError):
            for name in os.listdir(place.incoming):
                identity = name.removeprefix(".upload-").removesuffix(".part")
                if name == upload_name(identity) and identity not in active:
                    (place.incoming / name).unlink(missing_ok=True)

    def _carry_out(self, place: SourcePlace, claim: ClaimRecord, source: Path) -> ClaimRecord:
        move(source, place.claimed / place.claimed_name(claim.id), self._files, self._faults)
        claimed = replace(claim, status="claimed")
        self._store.update_claim(claimed)
        return claimed
