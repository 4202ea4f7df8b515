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

from controller.ingest.folder.source_folders import SourcePlace
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
        known = [stored, *pending]
        return _among(place, path, claim, known)

    def judge_in_turn(self, place: SourcePlace, claims: Sequence[ClaimRecord]) -> list[Judged]:
        """Return, for files that are accepted together, what `judge` says of each in turn.

        Args:
            place: Their source.
            claims: With digest and index, in the order of their records. Those that are accepted
                count as earlier files for those after them.
        """
        wanted = {(claim.sha256, claim.path) for claim in claims}
        stored = self.store.same_claims(place.dataflow, place.name, sorted(wanted))
        named: dict[tuple[str, str], ClaimRecord] = {}
        first: dict[str, ClaimRecord] = {}
        made = list[Judged]()
        for claim in claims:
            key = (claim.sha256, claim.path)
            pending = named.get(key) or first.get(claim.sha256)
            judged = _among(place, claim.path, claim.id, [stored.get(key), pending])
            made.append(judged)
            if judged.outcome == "accepted":
                named.setdefault(key, claim)
                earlier = first.get(claim.sha256)
                if earlier is None or claim.path < earlier.path:
                    first[claim.sha256] = claim
        return made

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


def _among(
    place: SourcePlace, path: str, claim: str, earlier: Sequence[ClaimRecord | None]
) -> Judged:
    """Compare a file with earlier ones of its content."""
    known = [one for one in earlier if one is not None]
    # As the store does: the claim of this name, or else the first by name.
    same = min(known, key=lambda one: (one.path != path, one.path), default=None)
    if same is None or same.id == claim:
        return NEW
    return _judged(place.source.duplicates, path, same)


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
