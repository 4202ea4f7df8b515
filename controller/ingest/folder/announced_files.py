"""Finds where the files of a sealed manifest lie, before they are taken in together. Pure.

The files of a manifest become one increment, or none. A crash can leave some of them in `claimed`
and others in `incoming`, so they are gathered from both before any of them is read.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from controller.ingest.folder.incoming_names import Candidate
from controller.ingest.folder.listing import Listed
from controller.ingest.folder.manifest import Manifest
from controller.store.base import ClaimRecord

__all__ = ["AnnouncedFiles", "announced_claims", "gather_files"]


@dataclass(frozen=True, slots=True)
class AnnouncedFiles:
    """The files of one manifest.

    Attributes:
        claims: Open claims whose files lie in `claimed`.
        candidates: Files that lie in `incoming` and are to be claimed, in the manifest's order.
        missing: Names of those that are nowhere: settled before a crash, or taken away.
    """

    claims: Sequence[ClaimRecord]
    candidates: Sequence[Candidate]
    missing: Sequence[str]


def announced_claims(
    manifests: Iterable[Manifest],
    claims: Sequence[ClaimRecord],
    copies: Collection[str],
    listed_paths: Collection[str],
) -> dict[str, ClaimRecord]:
    """Return the open claims that belong to manifests, by the file's name.

    Args:
        manifests: Those that are sealed.
        claims: All open claims of the source.
        copies: Ids of the claims whose file lies in `claimed`.
        listed_paths: Names of the files in `incoming`. If a name lies there as well, a claimed copy
            of that name is an older file.
    """
    promised = {path: file.bytes for one in manifests for path, file in one.promises.items()}
    return {
        claim.path: claim
        for claim in claims
        if promised.get(claim.path) == claim.bytes
        and not (claim.path in listed_paths and claim.id in copies)
    }


def gather_files(
    manifest: Manifest, claimed: Mapping[str, ClaimRecord], listed: Listed
) -> AnnouncedFiles | None:
    """Return where the files of a manifest are; `None` if one of them is still being written.

    Args:
        manifest: A sealed manifest.
        claimed: Open claims whose files lie in `claimed`, by the file's name.
        listed: The newest listing.
    """
    eligible = {one.path: one for one in listed.eligible}
    claims, candidates, missing = list[ClaimRecord](), list[Candidate](), list[str]()
    for path in manifest.promises:
        if path in eligible:
            candidates.append(eligible[path])
        elif path in listed.paths:
            return None
        elif path in claimed:
            claims.append(claimed[path])
        else:
            missing.append(path)
    return AnnouncedFiles(claims, candidates, missing)
