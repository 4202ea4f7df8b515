r"""Uploads: a stream becomes a claimed file, and the answer says whether it is new.

    received (hidden part, synced) -> compared -> claimed          the next pass takes it in
                                             \-> known: settled    duplicate, or quarantined

An upload that repeats its Idempotency-Key makes no claim: it gets the claim of the first one. The
key is kept in the claim and in the source's log: no key is forgotten in a restart, and no key of an
accepted file if the database is lost.
"""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO

from cbp.errors import NotFoundError, OperatingError
from controller.ingest.errors import (
    FileNameSharedError,
    FileRetractedError,
    FileUnreadError,
    UploadTooLargeError,
    device_errors,
)
from controller.ingest.folder.claims import Claims, upload_id, upload_name
from controller.ingest.folder.folder_check import require_folders
from controller.ingest.folder.source_place import SourcePlace, evidence
from controller.ingest.intake import Intake
from controller.ingest.ports import Ports
from controller.ingest.repeated_files import (
    RETRACTED,
    client_key,
    put_aside_reason,
    replacement_key,
    retraction_key,
)
from controller.ingest.replacement import Compared
from controller.store.base import ClaimRecord, Uploaded


@dataclass(frozen=True, slots=True)
class Author:
    """The person who decides about a file, and the reason. Both are stored with the file."""

    by: str
    why: str


_READ_BYTES = 1 << 20

_Held = tuple[ClaimRecord, Path]
"""A claim that is recorded nowhere, and its file."""


class Uploads:
    """Receives files; methods can be called from several threads."""

    def __init__(self, ports: Ports, claims: Claims, intake: Intake) -> None:
        self._store, self._files, self._limits = ports.store, ports.files, ports.limits
        self._clock, self._new_id = ports.clock, ports.new_id
        self._claims, self._intake = claims, intake
        self.active: set[str] = set()

    def receive(self, place: SourcePlace, name: str, stream: BinaryIO, key: str = "") -> Uploaded:
        """See `DropFolder.upload`."""
        return self.receive_as(place, evidence(name), stream, client_key(key))

    def receive_as(
        self,
        place: SourcePlace,
        path: str,
        stream: BinaryIO,
        key: str,
        *,
        before_claim: Callable[[ClaimRecord], object] = lambda claim: None,
        asked: Mapping[str, str] | None = None,
    ) -> Uploaded:
        """Like `receive`, for a name that is already in the form of `evidence`.

        `before_claim` is called with the claim once the file is durable, before the claim is
        recorded. If the file replaces another one, `asked` has the person and the reason, kept in
        `same_as`.
        """
        identity = upload_id(self._new_id(), key)
        part = place.incoming / upload_name(identity)
        self.active.add(identity)
        try:
            with device_errors(str(part)):
                claim = self._received(place, identity, path, stream, key)
                return self._claim(place, replace(claim, same_as=asked), part, before_claim)
        except Exception:
            self._give_up(identity, part)
            raise
        finally:
            self.active.discard(identity)

    @contextmanager
    def held(self, place: SourcePlace, path: str, stream: BinaryIO, key: str) -> Iterator[_Held]:
        """Yield a file to compare, which is not taken in, with a claim that is not recorded."""
        identity = self._new_id()
        part = place.incoming / upload_name(identity)
        self.active.add(identity)
        try:
            with device_errors(str(part)):
                claim = self._received(place, identity, path, stream, key)
            yield claim, part
        finally:
            with suppress(OSError):  # the next recovery removes it; the error of the request counts
                part.unlink(missing_ok=True)
            self.active.discard(identity)

    def _claim(
        self,
        place: SourcePlace,
        claim: ClaimRecord,
        part: Path,
        before_claim: Callable[[ClaimRecord], object],
    ) -> Uploaded:
        if claim.key and (first := self.first_of(place, claim.key)) is not None:
            part.unlink()
            same = (first.path, first.sha256) == (claim.path, claim.sha256)
            return Uploaded(first, repeated=True, same_request=same)
        before_claim(claim)
        judged, settled = self._intake.identities.foresee(place, claim)
        if not settled or judged.outcome == "accepted":
            said = {**(claim.same_as or {}), **(judged.same_as or {})}
            claim = replace(claim, same_as=said or None)
            return Uploaded(self._claims.make(place, part, claim))
        claim = replace(claim, same_as={**(judged.same_as or {}), "at_once": True})
        if judged.outcome == "duplicate":
            claim = self._claims.record(place, replace(claim, status="duplicate"))
            self._intake.finish(place, [(claim, part)])
            return Uploaded(claim)
        reason = self._intake.put_aside(place, claim, part, put_aside_reason(judged))
        settled_claim = replace(claim, status="quarantined", reason=reason)
        return Uploaded(self._claims.record(place, settled_claim))

    def first_of(self, place: SourcePlace, key: str) -> ClaimRecord | None:
        """Return the claim of the first upload of a key; `None` if its outcome no longer holds."""
        first = self._store.keyed_claim(place.dataflow, place.name, key)
        if first is None or (first.reason or {}).get("code") == "file_gone":
            return None
        known = str((first.same_as or {}).get("claim", ""))
        if first.status not in ("duplicate", "quarantined") or not known:
            return first
        # The claim that it equals may have been dropped by a roll-back since.
        earlier = self._store.find_claims([known]).get(known)
        return None if earlier is not None and earlier.status == "withdrawn" else first

    def _give_up(self, identity: str, part: Path) -> None:
        """Remove the part, unless its claim is recorded: then the next pass continues with it."""
        # On a read-only disk the part was never made, and `unlink` fails.
        with suppress(OperatingError, OSError):
            if not self._store.known_claims([identity]):
                part.unlink(missing_ok=True)

    def _received(
        self, place: SourcePlace, identity: str, path: str, stream: BinaryIO, key: str
    ) -> ClaimRecord:
        """Write the part of an upload, durably; return its claim, which is not recorded."""
        require_folders(place, self._files)
        size, digest = 0, hashlib.sha256()
        with open(place.incoming / upload_name(identity), "xb") as file:
            while chunk := stream.read(_READ_BYTES):
                size += len(chunk)
                if size > self._limits.file_bytes_max:
                    raise UploadTooLargeError(place.name, self._limits.file_bytes_max)
                digest.update(chunk)
                file.write(chunk)
            file.flush()
            os.fsync(file.fileno())
        self._files.sync_dir(str(place.incoming))
        at, sha256 = self._clock(), digest.hexdigest()
        return place.new_claim(identity, path, size, "claiming", at, sha256=sha256, key=key)


class ReplacementRequests:
    """Receives requests to replace or retract files; thread-safe."""

    def __init__(
        self,
        ports: Ports,
        uploads: Uploads,
        intake: Intake,
        require_open: Callable[[SourcePlace], None],
        called: Callable[[SourcePlace, Uploaded], Uploaded],
    ) -> None:
        self._store, self._new_id = ports.store, ports.new_id
        self._uploads, self._intake = uploads, intake
        self._require_open, self._called = require_open, called

    def ask(
        self,
        place: SourcePlace,
        name: str,
        stream: BinaryIO | None,
        author: Author,
        key: str = "",
    ) -> Uploaded:
        """Receive a file that replaces the file of its name, or retract it if `stream` is `None`.

        The next scan makes an increment of the difference. The caller has made sure that the
        readers of the source can apply the difference, unless the request is `repeated`. The name
        is the producer's, or the one that `cbp claims` shows. Raises `NotFoundError`,
        `FileUnreadError`, `FileRetractedError`, `FileNameSharedError`, or as an upload.
        """
        self._require_open(place)
        path = self._path(place, name)
        unique = _unique_key(key or self._new_id(), retracts=stream is None)
        if not key or self._uploads.first_of(place, unique) is None:
            self._earlier(place, path)
        asked = {"who": author.by, "why": author.why}
        content = io.BytesIO() if stream is None else stream
        done = self._uploads.receive_as(place, path, content, unique, asked=asked)
        return self._called(place, done)

    def repeated(self, place: SourcePlace, key: str, *, retracts: bool) -> bool:
        """Return whether `ask` would return the answer to an earlier request with this key.

        The earlier request may have been carried out since, so the caller must not check whether it
        is possible now. The key `""` is never repeated.
        """
        self._require_open(place)
        unique = _unique_key(key, retracts=retracts)
        return bool(key) and self._uploads.first_of(place, unique) is not None

    def compare(self, place: SourcePlace, name: str, stream: BinaryIO | None) -> Compared:
        """Return the effects of `ask`, with the same arguments and errors; changes nothing."""
        self._require_open(place)
        name = self._path(place, name)
        earlier = self._earlier(place, name)
        key = retraction_key("") if stream is None else replacement_key("")
        content = io.BytesIO() if stream is None else stream
        with self._uploads.held(place, name, content, key) as (claim, path):
            made = self._intake.compare(place, claim, path, earlier.id)
        return Compared.of(made, place)

    def _path(self, place: SourcePlace, name: str) -> str:
        """Return the name of a file as claims have it.

        If the name is not text, or has backslashes, the escaped form that is shown is accepted too.
        """
        path = evidence(name)
        if path == name or "\0" in name:
            return path
        known = self._store.named_claims(place.dataflow, place.name, [path, name])
        return name if name in known and path not in known else path

    def _earlier(self, place: SourcePlace, path: str) -> ClaimRecord:
        """Return the claim of the current file of a name, as claims have it; raises as `ask`."""
        # Asked first, so that a claim which is accepted meanwhile is found below.
        waiting = self._store.open_claims(place.dataflow, place.name)
        claim = self._store.named_claims(place.dataflow, place.name, [path]).get(path)
        counts = claim is not None and (claim.same_as or {}).get("by") != RETRACTED
        if not counts and any(one.path == path for one in waiting):
            raise FileUnreadError(place.dataflow, place.name, path)
        if claim is None:
            hint = f"`cbp claims {place.dataflow}` lists the files that were taken in"
            raise NotFoundError(kind="file", name=f"{place.name}/{path}", hint=hint)
        if (claim.same_as or {}).get("by") == RETRACTED:
            at = f"{claim.created_at:%Y-%m-%d %H:%M:%S} UTC"
            by = str((claim.same_as or {}).get("who", ""))
            raise FileRetractedError(place.dataflow, place.name, path, at=at, by=by)
        if increments := self._intake.replacements.sharing(claim):
            raise FileNameSharedError(place.dataflow, place.name, path, increments)
        return claim


def _unique_key(key: str, *, retracts: bool) -> str:
    # Hashed, so that prefix and key together fit into a column of the store.
    number = hashlib.sha256(key.encode()).hexdigest()
    return retraction_key(number) if retracts else replacement_key(number)
