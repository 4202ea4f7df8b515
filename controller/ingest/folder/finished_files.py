"""Retention of finished files: they stay in `finished` for a while, then the oldest go first.

The age of a file counts from its claim, whose id begins the file's name and holds the time. The
file's own times are its producer's. A file whose claim is still open stays. No increment needs
its finished file.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Iterator
from contextlib import suppress
from datetime import datetime

from cbp.engine.storage.files import Files
from cbp.model.flow.retention import Expiry, FlowRetention, Held, expire
from controller.ingest.folder.source_place import SourcePlace, claimed_at

__all__ = ["plan_finished", "remove_finished"]

_EVERYTHING = 1 << 62


def plan_finished(
    place: SourcePlace,
    *,
    open_claims: Collection[str],
    retention: FlowRetention,
    now: datetime,
) -> Expiry:
    """Return which finished files of a source are to be removed; reads only.

    Args:
        place: The source.
        open_claims: Ids of claims that are not settled.
        retention: How long, or how many bytes, to keep.
        now: Aware time in UTC.
    """
    finished = sorted(_finished(place), key=lambda file: file[0])
    held = [held for number, file in enumerate(finished) if (held := _held(number, *file, now))]
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


def _finished(place: SourcePlace) -> Iterator[tuple[str, int]]:
    """Yield name and size of the entries of `finished`; follows no link."""
    with suppress(FileNotFoundError), os.scandir(place.finished) as entries:
        for entry in entries:
            with suppress(OSError):  # only this name fails: it stays
                status = entry.stat(follow_symlinks=False)
                if not stat.S_ISDIR(status.st_mode):
                    yield entry.name, status.st_size


def _held(number: int, name: str, size: int, now: datetime) -> Held | None:
    """Return a finished file; `None` if the service did not name it."""
    arrived = claimed_at(name)
    if arrived is None:
        return None
    return Held(number, size, min(arrived, now), (name,))
