"""Decisions of an operator on a quarantined file: admit it, discard it, or undo that decision.

    readmit   the file as it is, or a mended one in its place, becomes a new claim, like an upload
    discard   the file is not wanted
    restore   the decision is undone: the file is in quarantine again

The original file moves to `finished`, unchanged, with its reason and the note of the decision. Each
arrow is durable before the next:

    readmit:  hidden part -> note in quarantine -> claim of the part -> file, reason, note finished
    discard:                 note in quarantine ---------------------> file, reason, note finished
    restore:                 note in quarantine -> reason, file in quarantine -> both notes removed

The note names the claim of the part before it is made, so a note whose claim was never made is
removed, together with the part. Every other note is carried out by the next request or the next
recovery. So no request admits the file a second time.

Guaranteed (tests/controller/ingest/test_readmission.py, tests/simulation): wherever the service is
killed, the file is in quarantine, or was admitted once; also if the database is lost.

After the loss of the store (`restore_quarantined`) the folder is the truth: each rejected file is
there under its claim's id, beside its reason, which was durable before the file was moved there. So
every rejected file has a claim again; a file that the store already knows is left alone. Not
restored: claims of files that their producer removed (`file_gone`), since no file records them;
claims of duplicates; the order relative to accepted files.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO, Literal

import structlog

from cbp.engine.storage.failpoints import Faults
from cbp.errors import NotFoundError
from cbp.model.dataflow.nodes import SourceNode
from controller.ingest.errors import FileDecidedError, ReadmitRefusedError, device_errors
from controller.ingest.folder.claims import CORRECTION_UNNAMED, PathLocks, lost_key
from controller.ingest.folder.eligible_files import CLOSE_NAME
from controller.ingest.folder.folder_check import require_folders
from controller.ingest.folder.quarantine_folder import (
    DECISION_SUFFIX,
    decision_path,
    kept_files,
    reason_path,
)
from controller.ingest.folder.source_place import (
    SourcePlace,
    claimed_at,
    claimed_of,
    evidence,
    kept_name,
    move,
    names_in,
)
from controller.ingest.formats.file_bytes import open_regular, read_regular
from controller.ingest.ports import Ports
from controller.ingest.rejection import FileRejectedError
from controller.ingest.repeated_files import addition_key, is_correction, readmitted_key
from controller.ingest.uploads import Author, Uploads
from controller.store.base import ClaimRecord, Store

Action = Literal["readmit", "discard", "restore"]

_STATUSES: Mapping[Action, Literal["readmitted", "discarded", "quarantined"]] = {
    "readmit": "readmitted",
    "discard": "discarded",
    "restore": "quarantined",
}
_NOTE_BYTES_MAX = 1 << 16
_WOULD_COUNT_TWICE = ("file_grew", "file_rewritten")
_DECIDES_WHETHER_TO_ADD = ("same_name", "content_known", *_WOULD_COUNT_TWICE)
"""An operator who admits such a file decides that it is additional data, although its name or
content is known. A file that was refused for another reason was not compared with earlier files
yet, so it is compared once it is admitted."""


@dataclass(frozen=True, slots=True)
class Decided:
    """The outcome of a decision; `readmitted` is the claim of the file admitted in its place."""

    claim: ClaimRecord
    readmitted: ClaimRecord | None = None
    repeated: bool = False


@dataclass(frozen=True, slots=True)
class _Note:
    """A decision, as it is written beside the file.

    `readmitted_as` is the id of the claim of the file in its place; `""` for `discard`.
    """

    action: Action
    claim: str
    by: str
    why: str
    at: str
    readmitted_as: str = ""
    sha256: str = ""
    mended: bool = False


def refusal(claim: ClaimRecord, source: SourceNode) -> str:
    """Return why a file cannot be admitted unchanged, in words; `""` if it can.

    With `same_name: replace`, a file that changed can be admitted: it replaces the content that was
    taken in.
    """
    code = _code(claim)
    if code in _WOULD_COUNT_TWICE and source.same_name != "replace":
        return (
            "records of the file were taken in before it changed, and would count twice if the "
            "whole file were admitted; send a file that has only the missing records"
        )
    if code == "file_gone":
        return "the file no longer exists; send it again"
    if code == CORRECTION_UNNAMED:
        return (
            "the name of the file that it corrects is lost; discard it, and send the correction "
            "again with `cbp replace` or `cbp retract`"
        )
    return ""


def _code(claim: ClaimRecord) -> object:
    return (claim.reason or {}).get("code")


class QuarantineDecisions:
    """Carries out decisions; methods can be called from several threads."""

    def __init__(self, ports: Ports, uploads: Uploads) -> None:
        self._store, self._files, self._clock = ports.store, ports.files, ports.clock
        self._faults, self._new_id = ports.faults, ports.new_id
        self._uploads, self._locks = uploads, PathLocks()

    def readmit(
        self,
        place: SourcePlace,
        identity: str,
        mended: BinaryIO | None,
        author: Author,
        *,
        rebuild: bool = False,
    ) -> Decided:
        """See `DropFolder.readmit`."""
        with self._deciding(place, identity) as claim:
            if claim.status == "readmitted":
                return self._repeated(claim, mended is None)
            self._require_quarantined(claim)
            why = refusal(claim, place.source)
            if why and (mended is None or _code(claim) == CORRECTION_UNNAMED):
                raise ReadmitRefusedError(claim.path, why)
            if mended is not None:
                return self._admit(place, claim, mended, author, mended=True, rebuild=rebuild)
            with self._original(place, claim) as stream:
                return self._admit(place, claim, stream, author, mended=False, rebuild=rebuild)

    def discard(self, place: SourcePlace, identity: str, author: Author) -> Decided:
        """Move a quarantined file to `finished` without applying it; durable when it returns."""
        with self._deciding(place, identity) as claim:
            if claim.status == "discarded":
                return Decided(claim, repeated=True)
            self._require_quarantined(claim)
            note = _Note("discard", claim.id, author.by, author.why, self._clock().isoformat())
            self._put(place, claim, note)
            return Decided(self._carry_out(place, claim, note))

    def restore(self, place: SourcePlace, identity: str) -> Decided:
        """Undo a decision; the file is in quarantine again when this returns.

        Raises `FileDecidedError` if the file that was admitted in its place is applied, or waits to
        be read, or if nothing was decided about the claim's file; `NotFoundError` if the file is no
        longer kept.
        """
        with self._deciding(place, identity) as claim:
            if claim.status == "quarantined":
                return Decided(claim, repeated=True)
            if claim.status not in ("readmitted", "discarded"):
                raise FileDecidedError(claim.path, claim.status)
            decision = dict((claim.reason or {}).get("decision") or {})
            other = self._find(str(decision.get("readmitted_as", "")))
            if other is not None and other.status in ("claiming", "claimed", "accepted"):
                raise FileDecidedError(claim.path, claim.status, other.id, other.status)
            quarantined = place.quarantine / kept_name(claim.id, claim.path)
            finished = place.finished / quarantined.name
            if not any(os.path.lexists(one) for one in (finished, quarantined)):
                name = f"{place.dataflow}/{place.name}/{claim.id}"
                raise NotFoundError(kind="kept file", name=name)
            note = _Note("restore", claim.id, "", "", self._clock().isoformat())
            self._put(place, claim, note)
            return Decided(self._take_back(place, claim, quarantined))

    def finish(self, place: SourcePlace) -> bool:
        """Complete decisions that a crash interrupted; part of a recovery, and can be repeated.

        Return whether a file without a claim in the store was put back into quarantine.
        """
        came_back = False
        for name in names_in(place.quarantine):
            if name.endswith(DECISION_SUFFIX):
                identity = name.partition("-")[0]
                with self._locks.hold(place.quarantine / identity):
                    came_back |= self._finish(place, place.quarantine / name)
        return came_back

    def _finish(self, place: SourcePlace, path: Path) -> bool:
        note = _read_note(path)
        if note is None:  # a person may have put anything there
            return False
        claim = self._find(note.claim)
        file = path.with_name(path.name.removesuffix(DECISION_SUFFIX))
        if note.action == "restore":
            if claim is None:
                self._move_back(place, file)
            else:
                self._take_back(place, claim, file)
            return claim is None
        if note.action == "readmit" and not self._was_made(place, note, claim):
            self._files.remove(str(path), what="decision")
        elif claim is not None:
            self._carry_out(place, claim, note)
        else:  # the store lost the claim; the files still move, so that nobody decides again
            self._move(place.finished, file, reason_path(file), path)
        return False

    @contextmanager
    def _deciding(self, place: SourcePlace, identity: str) -> Iterator[ClaimRecord]:
        """Hold a claim for one decision, after an unfinished one was carried out."""
        claim = self._find(identity)
        if claim is None or (claim.dataflow, claim.source) != (place.dataflow, place.name):
            name = f"{place.dataflow}/{place.name}/{identity}"
            raise NotFoundError(kind="quarantined file", name=name)
        with self._locks.hold(place.quarantine / identity), device_errors(str(place.quarantine)):
            require_folders(place, self._files)
            note = decision_path(place.quarantine / kept_name(claim.id, claim.path))
            if os.path.lexists(note):
                self._finish(place, note)
            yield self._find(identity) or claim

    def _admit(
        self,
        place: SourcePlace,
        claim: ClaimRecord,
        stream: BinaryIO,
        author: Author,
        *,
        mended: bool,
        rebuild: bool,
    ) -> Decided:
        notes: list[_Note] = []

        def note(new: ClaimRecord) -> None:
            at = self._clock().isoformat()
            one = _Note("readmit", claim.id, author.by, author.why, at, new.id, new.sha256, mended)
            self._put(place, claim, one)
            notes.append(one)

        # A new key each time, so that a decision after one that was taken back is not skipped.
        code = _code(claim)
        overwrites = code in _WOULD_COUNT_TWICE and place.source.same_name == "replace"
        adds = code in _DECIDES_WHETHER_TO_ADD and not overwrites
        number = self._new_id()
        key = addition_key(claim.id, number)
        if not adds:
            key = readmitted_key(claim, number, mended=mended, asks=rebuild)
        said = {"who": author.by, "why": author.why} if is_correction(key) else None
        uploaded = self._uploads.receive_as(
            place, claim.path, stream, key, before_claim=note, asked=said
        )
        return Decided(self._carry_out(place, claim, notes[0]), uploaded.claim)

    def _put(self, place: SourcePlace, claim: ClaimRecord, note: _Note) -> None:
        path = decision_path(place.quarantine / kept_name(claim.id, claim.path))
        data = json.dumps(asdict(note), ensure_ascii=True, indent=2).encode()
        self._files.write_durable(str(path), data, what="decision")

    def _carry_out(self, place: SourcePlace, claim: ClaimRecord, note: _Note) -> ClaimRecord:
        """Move a decided file away and settle its claim; each step can be repeated."""
        file = place.quarantine / kept_name(claim.id, claim.path)
        self._move(place.finished, file, reason_path(file))
        reason = {**(claim.reason or {}), "decision": asdict(note)}
        settled = replace(claim, status=_STATUSES[note.action], reason=reason)
        self._store.update_claim(settled)
        self._move(place.finished, decision_path(file))
        return settled

    def _take_back(self, place: SourcePlace, claim: ClaimRecord, file: Path) -> ClaimRecord:
        """Move a file, and its claim, back to quarantine; each step can be repeated."""
        reason = {name: value for name, value in (claim.reason or {}).items() if name != "decision"}
        again = replace(claim, status="quarantined", reason=reason)
        self._move_back(place, file, lambda: self._store.update_claim(again))
        return again

    def _move_back(
        self, place: SourcePlace, file: Path, settle: Callable[[], object] = lambda: None
    ) -> None:
        """Move a file and its reason back; calls `settle` before the note is removed."""
        finished = place.finished / file.name
        self._move(place.quarantine, reason_path(finished), finished)  # a file has its reason
        settle()
        self._files.remove(str(decision_path(finished)), what="decision")
        self._files.sync_dir(str(place.finished))  # before its note is removed
        self._files.remove(str(decision_path(file)), what="decision")

    def _move(self, folder: Path, *paths: Path) -> None:
        for path in paths:
            if os.path.lexists(path):
                move(path, folder / path.name, self._files, self._faults)

    def _was_made(self, place: SourcePlace, note: _Note, claim: ClaimRecord | None) -> bool:
        """Return whether the claim of a readmitted file exists, in the store or as a file."""
        if self._find(note.readmitted_as) is not None:
            return True
        moved_on = kept_files(place.finished) | kept_files(place.quarantine)
        copies = {claimed_of(name)[0] for name in names_in(place.claimed)}
        return note.readmitted_as in moved_on or note.readmitted_as in copies

    def _find(self, identity: str) -> ClaimRecord | None:
        return self._store.find_claims([identity]).get(identity) if identity else None

    def _repeated(self, claim: ClaimRecord, as_it_is: bool) -> Decided:
        """Return the first answer to a repeated request; refuse a different request."""
        decision = (claim.reason or {}).get("decision") or {}
        other = self._find(str(decision.get("readmitted_as", "")))
        if as_it_is and not decision.get("mended"):
            return Decided(claim, other, repeated=True)
        raise FileDecidedError(
            claim.path, claim.status, other.id if other else "", other.status if other else ""
        )

    def _require_quarantined(self, claim: ClaimRecord) -> None:
        if claim.status != "quarantined":
            raise FileDecidedError(claim.path, claim.status)

    @contextmanager
    def _original(self, place: SourcePlace, claim: ClaimRecord) -> Iterator[BinaryIO]:
        path = place.quarantine / kept_name(claim.id, claim.path)
        try:
            stream = open_regular(path)
        except (FileNotFoundError, FileRejectedError) as error:
            why = "the file does not exist, or is not a regular file; send it again"
            raise ReadmitRefusedError(claim.path, why) from error
        with stream:
            yield stream


def _read_note(path: Path) -> _Note | None:
    try:
        value = json.loads(read_regular(path, bytes_max=_NOTE_BYTES_MAX))
        note = _Note(**value)
    except (ValueError, TypeError, OSError, RecursionError, FileRejectedError):
        return None
    texts = (note.action, note.claim, note.by, note.why, note.at, note.readmitted_as, note.sha256)
    sound = all(isinstance(one, str) for one in texts) and note.action in _STATUSES
    return note if sound and path.name.startswith(f"{note.claim}-") else None


_ASKED_AT_ONCE = 500
_ID = re.compile(r"[a-z0-9]{1,64}")
_REASON_BYTES_MAX = 1 << 20

_log = structlog.get_logger(__name__)


def restore_quarantined(place: SourcePlace, store: Store, faults: Faults) -> None:
    """Add the claims that the store lacks. May be interrupted, and repeated."""
    names = names_in(place.quarantine)
    there, rejected = set(names), list[tuple[str, str]]()
    for name in names:
        identity = name.partition("-")[0]
        has_reason = reason_path(Path(name)).name in there
        is_marker = name == kept_name(identity, CLOSE_NAME)
        if has_reason and not is_marker and _ID.fullmatch(identity):  # a person may put files there
            rejected.append((identity, name))
    for start in range(0, len(rejected), _ASKED_AT_ONCE):
        some = dict(rejected[start : start + _ASKED_AT_ONCE])
        known = store.known_claims(list(some))
        for identity, name in some.items():
            if identity not in known:
                _restore(place, identity, name, store, faults)


def _restore(place: SourcePlace, identity: str, name: str, store: Store, faults: Faults) -> None:
    """Restore the claim of one file; skips unreadable files: a person may have put them there."""
    try:
        claim = _claim_of(place, identity, place.quarantine / name)
    except OSError:
        return  # removed, or its status cannot be read
    except Exception:  # whatever failed, the other files are restored
        _log.exception("quarantine.not_restored", source=place.name, file=evidence(name))
        return
    faults("claim.before")
    store.add_claim(claim)
    faults("claim.after")


def _claim_of(place: SourcePlace, identity: str, file: Path) -> ClaimRecord:
    status, reason = file.lstat(), _reason(identity, file)
    at = claimed_at(file.name) or datetime.fromtimestamp(status.st_mtime, UTC)
    path = str(reason["file"])
    more = {"reason": reason, "key": lost_key(identity)}
    return place.new_claim(identity, path, status.st_size, "quarantined", at, **more)


def _reason(identity: str, file: Path) -> Mapping[str, Any]:
    beside = reason_path(file)
    try:
        reason = json.loads(read_regular(beside, bytes_max=_REASON_BYTES_MAX))
        if isinstance(reason, dict) and all(
            isinstance(reason.get(part), str) for part in ("code", "message", "file")
        ):
            return {**reason, "file": evidence(reason["file"])}
        cause = "`code`, `message` or `file` is missing"
    except (ValueError, RecursionError, OSError, FileRejectedError) as exc:
        cause = exc.message if isinstance(exc, FileRejectedError) else str(exc)
    name = evidence(file.name.partition("-")[2])
    return {
        "code": "reason_unreadable",
        "message": f"{name} was rejected, but the file with the reason, "
        f"{evidence(beside.name)}, cannot be read: {cause}",
        "file": name,
        "line": None,
        "column": None,
        "cause": cause,
        "claim": identity,
    }
