"""Claims: the store's record of an intention, and the one rename that carries it out.

A claim is recorded first, and its file is renamed second, for a group of files at a time, since
each of these steps costs one or two syncs of the disk. A large file takes long, so it is claimed
only when its turn comes. Groups are small, so that a file that fails keeps few others claimed.
After a crash in between, the claim is found open, and its file may be in any of these places:

    claimed/<id>         continue
    incoming (upload)    the upload was complete: rename, continue
    finished, quarantine moved but not settled in the store: read again
    incoming (listed)    the same claim is used once the file is eligible again
    nowhere              its producer removed it: settled as `file_gone`
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import threading
from collections.abc import Iterator, Sequence, Set
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import TypeVar
from weakref import WeakValueDictionary

import structlog

from controller.ingest.folder.eligible_files import CLOSE_NAME, Listed
from controller.ingest.folder.folder_report import GoneFiles, gone_reason
from controller.ingest.folder.incoming_watch import Candidate
from controller.ingest.folder.quarantine_folder import kept_files, move_to_quarantine
from controller.ingest.folder.source_place import (
    SourcePlace,
    claimed_at,
    claimed_of,
    evidence,
    kept_name,
    move,
    move_all,
    name_fits_copy,
    names_in,
)
from controller.ingest.limits import IngestLimits
from controller.ingest.ports import Ports
from controller.ingest.rejection import FileRejectedError
from controller.store.base import ClaimRecord

CORRECTIONS = {"r": "replacement:", "t": "retraction:"}
"""The beginning of the key of a request to replace or retract a file, by the last letter of its id.

The id is in the name of the copy. So if the database is lost before the copy is read, an accepted
request is not mistaken for another file of that name.
"""

CORRECTION_UNNAMED = "correction_unnamed"
"""The rule of a correction whose file is no longer known."""

_ASKED_AT_ONCE = 500
_NAME_BYTES_MAX = 255
_ID = re.compile(r"[0-9a-f]{12}[a-z0-9]*")
_CLOCK_SET_BACK_MOST = timedelta(days=366)

_log = structlog.get_logger(__name__)


def _is_copy(place: SourcePlace, claim: ClaimRecord) -> bool:
    """Return whether `claimed` may hold the file of a settled claim: this source's, and read."""
    mine = (claim.dataflow, claim.source) == (place.dataflow, place.name)
    return mine and claim.status in ("accepted", "duplicate", "withdrawn")


def upload_id(identity: str, key: str) -> str:
    """Return the id of an upload's claim, made from a new id and the upload's key."""
    letters = (letter for letter, begins in CORRECTIONS.items() if key.startswith(begins))
    return identity + next(letters, "")


def lost_key(identity: str) -> str:
    """Return the key that the id of a lost upload's claim implies; `""` if it implies none."""
    begins = CORRECTIONS.get(identity[-1:], "")
    return f"{begins}{identity}" if begins else ""


def upload_name(identity: str) -> str:
    """Return the hidden name under which an upload is received."""
    return f".upload-{identity}.part"


class PathLocks:
    """One lock per folder, which exists while somebody holds it or waits for it."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._locks = WeakValueDictionary[Path, threading.Lock]()

    def hold(self, path: Path) -> threading.Lock:
        """Return the lock of one folder, for a `with` statement."""
        with self._guard:
            return self._locks.setdefault(path, threading.Lock())

    @contextmanager
    def attempt(self, path: Path) -> Iterator[bool]:
        """Hold the lock of one folder if it is free; yield whether it was."""
        lock = self.hold(path)
        is_free = lock.acquire(blocking=False)
        try:
            yield is_free
        finally:
            if is_free:
                lock.release()


@dataclass(slots=True)
class OpenClaims:
    """Open claims of one source, and the contents of its `claimed` folder.

    Attributes:
        copies: Id to name of every claimed copy.
        foreign: Further names with the id of a copy; a person put these files there.
        reusable: Claims whose file is still in `incoming`, by the file's path.
    """

    copies: dict[str, str]
    claims: list[ClaimRecord]
    foreign: list[str] = field(default_factory=list)
    reusable: dict[str, ClaimRecord] = field(default_factory=dict)
    _moved_on: dict[str, Path] | None = None

    def moved_on(self, place: SourcePlace) -> dict[str, Path]:
        """Return the files in `quarantine` and `finished`, by claim.

        Both are listed at the first call only, since they may hold very many names.
        """
        if self._moved_on is None:
            self._moved_on = kept_files(place.quarantine) | kept_files(place.finished)
        return self._moved_on

    def strays(self) -> dict[str, str]:
        """Return the copies, id -> name, whose claims are settled or unknown."""
        known = {claim.id for claim in self.claims}
        return {identity: name for identity, name in self.copies.items() if identity not in known}


class Claims:
    """Makes claims and finds their files; methods can be called from several threads."""

    def __init__(self, ports: Ports) -> None:
        self._store, self._files, self._clock = ports.store, ports.files, ports.clock
        self._faults, self.gone = ports.faults, GoneFiles()
        # Held while a claim is recorded and carried out, and while claims are compared with files.
        # Otherwise a half-made claim would look like one that a crash left.
        self._locks = PathLocks()

    def open(self, place: SourcePlace) -> OpenClaims:
        """Return the open claims and the claimed copies of a source, as of one instant."""
        with self._locks.hold(place.root):
            names = names_in(place.claimed)
            claims = self._store.open_claims(place.dataflow, place.name)
            exact = {place.claimed_name(one.id, one.path) for one in claims}
            copies, foreign = dict[str, str](), list[str]()
            for name in sorted(names, key=lambda name: name not in exact):
                if copies.setdefault(claimed_of(name)[0], name) != name:
                    foreign.append(name)
            return OpenClaims(copies, claims, foreign)

    def make(self, place: SourcePlace, source: Path, claim: ClaimRecord) -> ClaimRecord:
        """Claim a file; the given claim has the status `claiming`.

        Raises `FileNotFoundError` if the producer removed it: the claim stays open, and the next
        pass settles it.
        """
        made = self.make_all(place, [(source, claim, None)])
        if not made:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(source))
        return made[0]

    def make_all(
        self,
        place: SourcePlace,
        files: Sequence[tuple[Path, ClaimRecord, Candidate | None]],
        known: Set[str] = frozenset(),
    ) -> list[ClaimRecord]:
        """Claim files together: each step runs for all files and is durable before the next step.

        A file that changed since it was listed is skipped. `known` has the ids of claims that were
        recorded before; the others get their sequence. The claims whose files existed are returned,
        in order. The others stay open: a later pass uses them again or settles them.
        """
        with self._locks.hold(place.root):
            new = [claim for _, claim, _ in files if claim.id not in known]
            added = {claim.id: claim for claim in self._add(new)} if new else {}
            folder = place.claimed
            targets = [folder / place.claimed_name(c.id, c.path) for _, c, _ in files]
            moved = move_all(
                (
                    (source, target)
                    for (source, _, listed), target in zip(files, targets, strict=True)
                    if listed is None or listed.is_at(source)
                ),
                self._files,
                self._faults,
            )
            claimed = [
                replace(added.get(claim.id, claim), status="claimed")
                for (_, claim, _), target in zip(files, targets, strict=True)
                if target in moved
            ]
            if claimed:
                self._store.claims_moved(claimed)
            return claimed

    def record(self, place: SourcePlace, claim: ClaimRecord) -> ClaimRecord:
        """Record a claim that is already settled, and give it its sequence."""
        with self._locks.hold(place.root):
            return self._add([claim])[0]

    def bring_copy(
        self, place: SourcePlace, claim: ClaimRecord, opened: OpenClaims, listed: Listed
    ) -> Path | None:
        """Move the file of an open claim to `claimed` if it is elsewhere; return its path there.

        `None` if there is no such file: it is either still in `incoming`, and the claim is now in
        `opened.reusable`; or it is missing, and the claim is now settled as `file_gone`.
        """
        if claim.id in opened.copies:
            return place.claimed / opened.copies[claim.id]
        part = place.incoming / upload_name(claim.id)
        path = part if os.path.lexists(part) else opened.moved_on(place).get(claim.id)
        if path is not None:
            target = place.claimed / place.claimed_name(claim.id, claim.path)
            move(path, target, self._files, self._faults)
            return target
        if claim.path in listed.paths and claim.path not in opened.reusable:
            opened.reusable[claim.path] = claim
            return None
        reason = gone_reason(claim, self._clock())
        settled = replace(claim, status="quarantined", reason=reason)
        self._store.update_claim(settled)
        self.gone.note(place.root, settled)
        _log.warning("file.gone", dataflow=place.dataflow, source=place.name, reason=reason)
        return None

    def settle_strays(self, place: SourcePlace, opened: OpenClaims) -> bool:
        """Move away the copies that no open claim names; return whether there were any.

        A copy whose claim is settled moves to `finished`. A copy is claimed again under its
        original name if the store lost its claim and no log entry names it; without that name, a
        correction goes to quarantine, since its records must not be added as further data.
        Everything else goes back to `incoming`: another copy without an original name, a copy whose
        claim was settled without it, and files that a person put there. Nothing is overwritten.
        """
        strays = opened.strays()
        known = dict[str, ClaimRecord]()
        for start in range(0, len(strays), _ASKED_AT_ONCE):
            known |= self._store.find_claims([*strays][start : start + _ASKED_AT_ONCE])
        for identity, name in strays.items():
            path, original = place.claimed / name, claimed_of(name)[1]
            claim = known.get(identity)
            if claim is None and self._is_id(identity) and (original or lost_key(identity)):
                at, size = claimed_at(path.name) or self._clock(), path.lstat().st_size
                key = lost_key(identity)
                adopted = place.new_claim(identity, original, size, "claimed", at, key=key)
                if not original:
                    adopted = self._put_aside(place, adopted, path)
                with self._locks.hold(place.root):
                    self._add([adopted])
                continue
            target = place.finished / kept_name(identity, original or name)
            if claim is None or not _is_copy(place, claim) or os.path.lexists(target):
                self._give_back(place, name)
            else:
                move(path, target, self._files, self._faults)
        for name in opened.foreign:
            self._give_back(place, name)
        return bool(strays or opened.foreign)

    def _put_aside(self, place: SourcePlace, claim: ClaimRecord, path: Path) -> ClaimRecord:
        """Quarantine a correction, since the name of its copy lacks the file that it corrects."""
        claim = replace(claim, path=f"correction-{claim.id}")
        message = (
            "the database was lost before this correction was read. The name of the file to "
            "correct was only in the database, because it is too long to be part of the name of "
            "the correction's copy. The correction was not taken in: discard it, and send it again "
            "with `cbp replace` or `cbp retract`"
        )
        error = FileRejectedError(CORRECTION_UNNAMED, message)
        reason = error.reason(file=claim.path, claim=claim.id)
        target = place.quarantine / kept_name(claim.id, claim.path)
        move_to_quarantine(path, target, reason, self._files, self._faults)
        return replace(claim, status="quarantined", reason=reason)

    def _is_id(self, identity: str) -> bool:
        """Return whether the service may have made an id: it begins with a time in the past."""
        made = claimed_at(identity) if _ID.fullmatch(identity) else None
        return made is not None and made <= self._clock() + _CLOCK_SET_BACK_MOST

    def _give_back(self, place: SourcePlace, name: str) -> None:
        """Move a file from `claimed` to `incoming`, under a name that is not in use."""
        target = place.incoming / f"recovered-{name}"
        if len(os.fsencode(target.name)) > _NAME_BYTES_MAX or os.path.lexists(target):
            target = place.incoming / f"recovered-{secrets.token_hex(8)}"
        move(place.claimed / name, target, self._files, self._faults)
        _log.warning(
            "file.moved_back_to_incoming",
            dataflow=place.dataflow,
            source=place.name,
            file=evidence(name),
            became=evidence(target.name),
        )

    def remove_unclaimed_uploads(self, place: SourcePlace, active: set[str]) -> None:
        """Remove parts of uploads that a killed process never acknowledged."""
        with suppress(FileNotFoundError):
            for name in os.listdir(place.incoming):
                identity = name.removeprefix(".upload-").removesuffix(".part")
                if name == upload_name(identity) and identity not in active:
                    with suppress(OSError):  # a folder of this name is somebody else's, and stays
                        (place.incoming / name).unlink()

    def _add(self, claims: Sequence[ClaimRecord]) -> list[ClaimRecord]:
        self._faults("claim.before")
        added = self._store.add_claims(claims)
        self._faults("claim.after")
        return added


_F = TypeVar("_F", Candidate, ClaimRecord)


def groups(files: Sequence[_F], limits: IngestLimits) -> Iterator[list[_F]]:
    """Yield files in order, in groups within the limits; each marker or long name alone."""
    group, total, before = list[_F](), 0, False
    for file in files:
        alone = file.path == CLOSE_NAME or not name_fits_copy(file.path)
        full = len(group) == limits.group_files or total + file.bytes > limits.group_bytes
        if group and (alone or before or full):
            yield group
            group, total = [], 0
        group.append(file)
        total, before = total + file.bytes, alone
    if group:
        yield group
