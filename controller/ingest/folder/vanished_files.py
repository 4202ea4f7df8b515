"""Remembers claimed files that went away, so that an operator is shown them.

    in `incoming`, claim recorded   its producer took it away before it was moved: never ours
    in `claimed`, or an upload      acknowledged, then removed by somebody: its content is lost
                                    unless it is dropped again

Each such file keeps its claim for good (`cbp claims`, code `file_gone`). This module holds what is
shown now: the newest `SHOWN_MAX` files of each source. A file is shown for `SHOWN_SECONDS` after it
was missed, however long ago it was claimed, or until a file of the same name is taken in. The
readiness report (`ready`) also names the acknowledged ones. After a start, the list is restored
from the newest claims.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from cbp.errors.counts import format_count
from controller.ingest.rejection import FileRejectedError
from controller.store.base import ClaimRecord

__all__ = ["ASKED_MAX", "SHOWN_MAX", "SHOWN_SECONDS", "GoneFile", "GoneFiles", "reason_of", "words"]

SHOWN_MAX = 100
SHOWN_SECONDS = 86_400.0

ASKED_MAX = 1_000
"""Number of newest claims of a source that are read after a start."""

_RULE = "file_gone"


def reason_of(claim: ClaimRecord, missed_at: datetime) -> dict[str, Any]:
    """Return the reason for settling an open claim without its file, as JSON values.

    Args:
        claim: The open claim.
        missed_at: When its file was looked for and was nowhere; aware, in UTC.
    """
    lost = _acknowledged(claim)
    message = "the file was removed while it was being claimed"
    if lost:
        message = (
            "the file was removed after it was claimed and before it was read: its content is NOT "
            "taken in; its producer drops it again"
        )
    rejection = FileRejectedError(rule=_RULE, message=message)
    reason = rejection.reason(file=claim.path, claim=claim.id)
    return {**reason, "lost": lost, "missed_at": missed_at.isoformat()}


def _missed_at(claim: ClaimRecord) -> datetime:
    """Return when the file of a settled claim was missed.

    Claims that an earlier version settled have no such time; theirs is when they were made.
    """
    text = (claim.reason or {}).get("missed_at")
    return datetime.fromisoformat(text) if isinstance(text, str) else claim.created_at


def _acknowledged(claim: ClaimRecord) -> bool:
    """Return whether the producer could rely on it: it was moved, or came as an upload."""
    return claim.status == "claimed" or bool(claim.sha256)


@dataclass(frozen=True, slots=True)
class GoneFile:
    """One file that went away.

    Attributes:
        name: As evidence.
        claim: Id of its claim.
        since: When it was claimed; aware, in UTC.
        lost: Whether it had been acknowledged.
        missed_at: When it was looked for and was nowhere; aware, in UTC.
    """

    name: str
    claim: str
    since: datetime
    lost: bool
    missed_at: datetime


class GoneFiles:
    """Remembers gone files by source; safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._files: dict[Path, dict[str, GoneFile]] = {}

    def note(self, root: Path, claim: ClaimRecord, missed_at: datetime) -> None:
        """Remember the file of an open claim, by the folder of its source."""
        lost = _acknowledged(claim)
        self._add(root, GoneFile(claim.path, claim.id, claim.created_at, lost, missed_at))

    def restore(self, root: Path, newest: Iterable[ClaimRecord]) -> None:
        """Restore a source's gone files from its claims, newest first, if none are known yet."""
        with self._lock:
            if root in self._files:
                return
            self._files[root] = {}
        came, gone = set[str](), list[GoneFile]()
        for claim in newest:
            reason = claim.reason or {}
            if reason.get("code") != _RULE:
                came.add(claim.path)
            elif claim.path not in came:
                lost = bool(reason.get("lost"))
                missed_at = _missed_at(claim)
                gone.append(GoneFile(claim.path, claim.id, claim.created_at, lost, missed_at))
        for file in reversed(gone):
            self._add(root, file)

    def came(self, root: Path, name: str) -> None:
        """Forget a file, since a file of its name was taken in."""
        with self._lock:
            self._files.get(root, {}).pop(name, None)

    def of(self, root: Path, now: datetime) -> list[GoneFile]:
        """Return the gone files of a source that are still shown, newest first."""
        since = now - timedelta(seconds=SHOWN_SECONDS)
        with self._lock:
            files = list(self._files.get(root, {}).values())
        return [file for file in reversed(files) if file.missed_at >= since]

    def lost_below(self, folder: Path, now: datetime) -> list[str]:
        """Return, in words, the acknowledged files that are lost, of all sources below a folder."""
        with self._lock:
            roots = sorted(root for root in self._files if root.parent == folder)
        warnings = []
        for root in roots:
            lost = [file for file in self.of(root, now) if file.lost]
            if lost:
                warnings.append(f"source {root.name}: {words(lost)}")
        return warnings

    def _add(self, root: Path, file: GoneFile) -> None:
        with self._lock:
            files = self._files.setdefault(root, {})
            files.pop(file.name, None)
            files[file.name] = file
            while len(files) > SHOWN_MAX:
                del files[next(iter(files))]


def words(files: Sequence[GoneFile]) -> str:
    """Return what to do about files that went away; `""` if there are none."""
    if not files:
        return ""
    more = "" if len(files) < SHOWN_MAX else " or more"
    many = format_count(len(files), "file was", f"files{more} were")
    lost = sum(file.lost for file in files)
    kind = (
        f"{lost} of them acknowledged" if lost else "all before they were moved out of `incoming`"
    )
    return (
        f"{many} removed after being claimed ({kind}), such as {files[0].name!r}: not taken in; "
        "drop it again if it is data (shown for a day, or until a file of this name comes)"
    )
