"""Claims of files in drop folders: the part of the store that says what became of each file."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Protocol

from controller.store.records import ClaimRecord, ClaimStatus, Page

__all__ = ["ClaimLog"]


class ClaimLog(Protocol):
    """Claims, each of one file that was found in a drop folder, or uploaded."""

    def add_claim(self, claim: ClaimRecord) -> ClaimRecord:
        """Record the intention to claim a file, and give it the source's next `sequence`."""
        ...

    def add_claims(self, new: Sequence[ClaimRecord]) -> list[ClaimRecord]:
        """Like `add_claim`, for several (>= 1) files of one source, in order, all or none."""
        ...

    def update_claim(self, claim: ClaimRecord) -> None:
        """Replace a claim by id (status, sha256, reason)."""
        ...

    def update_claims(self, changed: Sequence[ClaimRecord]) -> None:
        """Replace several (>= 1) claims of one dataflow by id, all or none."""
        ...

    def known_claims(self, ids: Sequence[str]) -> set[str]:
        """Return which of these ids (some hundred at most) belong to claims."""
        ...

    def find_claims(self, ids: Sequence[str]) -> dict[str, ClaimRecord]:
        """Return id -> claim, for those of these ids (some hundred at most) that exist."""
        ...

    def open_claims(self, dataflow: str, source: str) -> list[ClaimRecord]:
        """Return claims in status `claiming` or `claimed`, by sequence."""
        ...

    def claims(
        self,
        dataflow: str,
        source: str | None = None,
        *,
        status: ClaimStatus | None = None,
        index: int | None = None,
        code: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        cursor: str | None = None,
        limit: int = 100,
    ) -> Page[ClaimRecord]:
        """List claims, newest first.

        Args:
            dataflow: The dataflow.
            source: Only those of this source.
            status: Only those with this status.
            index: Only those of the files of this increment.
            code: Only those that were refused for this reason.
            since, until: Only those that were made at or after, and before, these times.
            cursor: The cursor of the previous page.
            limit: Maximum number of claims of the page (>= 1).
        """
        ...

    def claim_counts(self, dataflow: str) -> dict[str, dict[ClaimStatus, int]]:
        """Return source -> status -> number of claims; a source without claims is left out."""
        ...

    def same_claim(
        self,
        dataflow: str,
        source: str,
        sha256: str,
        *,
        path: str | None = None,
        waiting: bool = False,
    ) -> ClaimRecord | None:
        """Return an accepted claim with this content, if there is one.

        Args:
            dataflow: The name of the dataflow.
            source: The name of the source.
            sha256: Hex digest of the content.
            path: The name that the claim must have, too; `None` means any.
            waiting: Search claims whose file still waits to be taken in, instead.
        """
        ...

    def same_claims(
        self, dataflow: str, source: str, wanted: Collection[tuple[str, str]]
    ) -> dict[tuple[str, str], ClaimRecord]:
        """Return, by (SHA-256, name), the accepted claim of both, or else the content's first."""
        ...

    def named_claims(
        self, dataflow: str, source: str, paths: Collection[str]
    ) -> dict[str, ClaimRecord]:
        """Return, by name, the newest accepted claim of each of these names that has one."""
        ...

    def keyed_claim(
        self, dataflow: str, source: str, key: str, *, withdrawn: bool = False
    ) -> ClaimRecord | None:
        """Return the claim of the upload with this key; a withdrawn one only if that is asked."""
        ...

    def claims_of(self, dataflow: str, source: str, index: int) -> list[ClaimRecord]:
        """Return the claims whose files an increment of a source holds, by sequence."""
        ...
