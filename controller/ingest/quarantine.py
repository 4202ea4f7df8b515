"""What lies in quarantine, told to a store that was lost.

The folder is the truth: each rejected file lies there under its claim's id, beside its reason,
which was durable before the file came (`intake`). The claim is an index over it, as the store's
increments are over a source's log.

Guaranteed: after it returns every file that was rejected is listed as such; a file that the store
knows is left alone. Not brought back: claims of files that their producer took away (`file_gone`),
since no file tells of them, and duplicates; the order among accepted files.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cbp.engine.faults import Faults
from controller.ingest.folders import SourcePlace, claimed_at, kept_name, names_in, reason_path
from controller.ingest.listing import CLOSE_NAME
from controller.store.base import ClaimRecord, Store

__all__ = ["restore_quarantined"]

_ASKED_AT_ONCE = 500


def restore_quarantined(place: SourcePlace, store: Store, faults: Faults) -> int:
    """Make the claims that the store lacks; return how many. May be interrupted, and repeated.

    Args:
        place: Of the source; nobody else takes in its files meanwhile.
        store: Gets the claims, in the order of their ids.
        faults: Told `claim.before` and `claim.after`.
    """
    names = names_in(place.quarantine)
    there = set(names)
    # No reason, no marker, nothing of a person's.
    kept = [n for n in names if reason_path(Path(n)).name in there and not _is_marker(n)]
    restored = 0
    for start in range(0, len(kept), _ASKED_AT_ONCE):
        some = {_claim_id(name): name for name in kept[start : start + _ASKED_AT_ONCE]}
        known = store.known_claims(list(some))
        for identity, name in some.items():
            if identity not in known:
                faults("claim.before")
                store.add_claim(_claim_of(place, identity, place.quarantine / name))
                faults("claim.after")
                restored += 1
    return restored


def _is_marker(name: str) -> bool:
    return name == kept_name(_claim_id(name), CLOSE_NAME)


def _claim_id(name: str) -> str:
    return name.partition("-")[0]


def _claim_of(place: SourcePlace, identity: str, file: Path) -> ClaimRecord:
    found, reason = file.stat(), _reason(identity, file)
    return ClaimRecord(
        id=identity,
        dataflow=place.dataflow,
        source=place.name,
        sequence=0,
        path=str(reason["file"]),
        bytes=found.st_size,
        status="quarantined",
        created_at=claimed_at(file.name) or datetime.fromtimestamp(found.st_mtime, UTC),
        reason=reason,
    )


def _reason(identity: str, file: Path) -> Mapping[str, Any]:
    """Return why a file was rejected; that nobody knows, where somebody damaged its reason."""
    beside = reason_path(file)
    try:
        reason = json.loads(beside.read_bytes())
        if isinstance(reason, dict) and {"code", "message", "file"} <= reason.keys():
            return reason
        cause = "not a reason"
    except ValueError as exc:
        cause = str(exc)
    name = file.name.partition("-")[2]
    return {
        "code": "reason_unreadable",
        "message": f"{name}: was rejected, and why cannot be read in {beside.name}: {cause}",
        "file": name,
        "line": None,
        "column": None,
        "cause": cause,
        "claim": identity,
    }
