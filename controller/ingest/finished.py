"""Files that were taken in: they stay in `finished` for a while, then go, oldest first.

When a file was taken in stands in its claim's id, which its name begins with: its own time is
its producer's. A file whose claim is still open stays; its increment does not need it.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime

from cbp.engine.files import Files, StoredFile
from cbp.model.retention import Expiry, FlowRetention, Held, expire
from controller.ingest.folders import SourcePlace, claimed_at

__all__ = ["plan_finished", "remove_finished"]

_EVERYTHING = 1 << 62


def plan_finished(
    place: SourcePlace,
    files: Files,
    *,
    open_claims: Collection[str],
    retention: FlowRetention,
    now: datetime,
) -> Expiry:
    """Return what of a source's finished files goes; reads only.

    Args:
        place: Of the source.
        files: Where it lies.
        open_claims: Ids of claims that are not settled.
        retention: What is asked for.
        now: Aware time in UTC.
    """
    found = sorted(files.list_files(str(place.finished)), key=lambda file: file.path)
    held = [held for number, file in enumerate(found) if (held := _held(number, file, now))]
    return expire(
        held,
        total_bytes=sum(one.bytes for one in held),
        first_replayed=_EVERYTHING,
        needed={path for one in held for path in one.paths if path.split("-")[0] in open_claims},
        retention=retention,
        now=now,
    )


def remove_finished(place: SourcePlace, files: Files, plan: Expiry) -> None:
    """Carry out a plan; may be interrupted anywhere, and repeated."""
    for one in plan.gone:
        for path in one.paths:
            files.remove(f"{place.finished}/{path}", what="dead_file")


def _held(number: int, file: StoredFile, now: datetime) -> Held | None:
    """Return a finished file; `None` for one that is none of ours."""
    arrived = claimed_at(file.path)
    if arrived is None:
        return None
    return Held(number, file.bytes, min(arrived, now), (file.path,))
