"""Restores the claims of quarantined files after the store was lost.

Nothing here is decided by an operator: see `controller.ingest.quarantine` for that.

The folder is the truth: each rejected file lies there under its claim's id, beside its reason,
which was durable before the file was moved there (`intake`). The claim is an index over the folder,
as the store's increments are an index over a source's log.

Guaranteed: after the call every rejected file has a claim; a file that the store already knows is
left alone. Not restored: claims of files that their producer took away (`file_gone`), since no file
records them; claims of duplicates; the order relative to accepted files.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import structlog

from cbp.engine.storage.failpoints import Faults
from controller.ingest.folder.listing import CLOSE_NAME
from controller.ingest.folder.source_place import (
    SourcePlace,
    claimed_at,
    evidence,
    kept_name,
    names_in,
    reason_path,
)
from controller.ingest.formats.regular_file import read_regular
from controller.ingest.rejection import FileRejectedError
from controller.store.base import ClaimRecord, Store

__all__ = ["restore_quarantined"]

_ASKED_AT_ONCE = 500
_ID = re.compile(r"[a-z0-9]{1,64}")
_REASON_BYTES_MAX = 1 << 20

_log = structlog.get_logger(__name__)


def restore_quarantined(place: SourcePlace, store: Store, faults: Faults) -> int:
    """Add the claims that the store lacks; return how many. May be interrupted, and repeated.

    Args:
        place: The source; nobody else takes in its files meanwhile.
        store: Gets the claims, in the order of their ids.
        faults: Called with `claim.before` and `claim.after`.
    """
    names = names_in(place.quarantine)
    there = set(names)
    # Skips reasons, markers, and files that a person put there.
    file_names = [
        name
        for name in names
        if reason_path(Path(name)).name in there
        and not _is_marker(name)
        and _ID.fullmatch(_claim_id(name))
    ]
    restored = 0
    for start in range(0, len(file_names), _ASKED_AT_ONCE):
        some = {_claim_id(name): name for name in file_names[start : start + _ASKED_AT_ONCE]}
        known = store.known_claims(list(some))
        for identity, name in some.items():
            if identity not in known:
                restored += _restore(place, identity, name, store, faults)
    return restored


def _restore(place: SourcePlace, identity: str, name: str, store: Store, faults: Faults) -> bool:
    """Restore the claim of one file; a person may have put anything there."""
    try:
        claim = _claim_of(place, identity, place.quarantine / name)
    except OSError:
        return False  # gone, or its name cannot be looked at
    except Exception:  # whatever failed, it is this file alone
        _log.exception("quarantine.not_restored", source=place.name, file=evidence(name))
        return False
    faults("claim.before")
    store.add_claim(claim)
    faults("claim.after")
    return True


def _is_marker(name: str) -> bool:
    return name == kept_name(_claim_id(name), CLOSE_NAME)


def _claim_id(name: str) -> str:
    return name.partition("-")[0]


def _claim_of(place: SourcePlace, identity: str, file: Path) -> ClaimRecord:
    status, reason = file.lstat(), _reason(identity, file)
    return ClaimRecord(
        id=identity,
        dataflow=place.dataflow,
        source=place.name,
        sequence=0,
        path=str(reason["file"]),
        bytes=status.st_size,
        status="quarantined",
        created_at=claimed_at(file.name) or datetime.fromtimestamp(status.st_mtime, UTC),
        reason=reason,
    )


def _reason(identity: str, file: Path) -> Mapping[str, Any]:
    """Return why a file was rejected, or that its reason is damaged and so unknown."""
    beside = reason_path(file)
    try:
        reason = json.loads(read_regular(beside, bytes_max=_REASON_BYTES_MAX))
        if isinstance(reason, dict) and all(
            isinstance(reason.get(part), str) for part in ("code", "message", "file")
        ):
            return {**reason, "file": evidence(reason["file"])}
        cause = "not a reason"
    except (ValueError, RecursionError, OSError, FileRejectedError) as exc:
        cause = exc.message if isinstance(exc, FileRejectedError) else str(exc)
    name = evidence(file.name.partition("-")[2])
    return {
        "code": "reason_unreadable",
        "message": f"{name}: was rejected, and why cannot be read in {evidence(beside.name)}: "
        f"{cause}",
        "file": name,
        "line": None,
        "column": None,
        "cause": cause,
        "claim": identity,
    }
