"""Decides whether a file is new or a repetition of an earlier one.

    name and content of an accepted file       a retry: skipped
    content of one, but another name           data, unless the source says otherwise
    content of none                            data, whatever its name

Times, inodes and sizes are not compared. A file in quarantine was never accepted, and a file whose
increment was dropped by a roll-back is accepted no longer: both may come again as new. The known
files stand in the source's log, and in the store, which is an index over it; so none is forgotten.

Absent on purpose: the key of an upload, which identifies its request (`uploads`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from controller.ingest.folders import SourcePlace
from controller.ingest.rejection import FileRejectedError
from controller.store.base import ClaimRecord, Judged, Store

__all__ = ["NEW", "Identities", "known_content"]


NEW = Judged("accepted")


def known_content(judged: Judged) -> FileRejectedError:
    """Return the reason for putting aside a file whose content is known."""
    earlier = judged.same_as or {}
    message = (
        f"its content equals that of {earlier.get('file')!r}, increment "
        f"{earlier.get('index')}; its source says `duplicates: quarantine`"
    )
    return FileRejectedError(rule="content_known", message=message)


@dataclass(frozen=True, slots=True)
class Identities:
    """Compares files with earlier ones; only reads the store."""

    store: Store

    def judge(
        self,
        place: SourcePlace,
        path: str,
        sha256: str,
        claim: str = "",
        pending: Sequence[ClaimRecord] = (),
    ) -> Judged:
        """Return whether a file is new, given all accepted files.

        Args:
            place: Its source.
            path: Its name, as evidence.
            sha256: Hex digest of its content.
            claim: Its own claim, which another instance that leads by now may have accepted.
            pending: Claims with this content that are accepted together with the file, before it.
        """
        stored = self._find(place, path, sha256, waiting=False)
        known = [one for one in (stored, *pending) if one is not None]
        # As the store does: the claim of this name, or else the first by name.
        same = min(known, key=lambda one: (one.path != path, one.path), default=None)
        return (
            NEW
            if same is None or same.id == claim
            else _judged(place.source.duplicates, path, same)
        )

    def foresee(self, place: SourcePlace, path: str, sha256: str) -> tuple[Judged, bool]:
        """Return what `judge` returns, with waiting files counted too; and whether that is final.

        A waiting file may still be rejected, so the result for a file that equals it is not final.
        """
        judged = self.judge(place, path, sha256)
        if judged.outcome != "accepted":
            return judged, True
        waiting = self._find(place, path, sha256, waiting=True)
        if waiting is None or (judged.same_as is not None and waiting.path != path):
            return judged, True
        return _judged(place.source.duplicates, path, waiting), False

    def _find(
        self, place: SourcePlace, path: str, sha256: str, *, waiting: bool
    ) -> ClaimRecord | None:
        """Return the claim with this name and content, or else one with this content."""
        dataflow, source = place.dataflow, place.name
        same = self.store.same_claim(dataflow, source, sha256, waiting=waiting)
        if same is None or same.path == path:
            return same
        retried = self.store.same_claim(dataflow, source, sha256, path=path, waiting=waiting)
        return retried or same


def _judged(duplicates: str, path: str, same: ClaimRecord) -> Judged:
    retry = same.path == path
    judged: dict[str, Any] = {
        "by": "name_and_content" if retry else "content",
        "claim": same.id,
        "file": same.path,
    }
    if same.index is not None:
        judged["index"] = same.index
    if retry or duplicates == "skip":
        return Judged("duplicate", judged)
    return Judged("quarantined" if duplicates == "quarantine" else "accepted", judged)
