"""Groups of files that are claimed together and moved away together.

Each of these steps costs one or two syncs of the disk, whatever the number of files. A large file
takes long, so it is claimed only when its turn comes. Groups are small, so that a file that fails
keeps few others claimed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar

from controller.ingest.folder.incoming_names import Candidate
from controller.ingest.folder.listing import CLOSE_NAME
from controller.ingest.folder.source_place import name_fits_copy
from controller.ingest.limits import IngestLimits
from controller.store.base import ClaimRecord

__all__ = ["groups"]

_F = TypeVar("_F", Candidate, ClaimRecord)


def groups(files: Sequence[_F], limits: IngestLimits) -> Iterator[list[_F]]:
    """Yield files in order, in groups within `group_files` and `group_bytes`."""
    group, total = list[_F](), 0
    for file in files:
        alone = _is_alone(file)
        full = len(group) == limits.group_files or total + file.bytes > limits.group_bytes
        if group and (alone or full):
            yield group
            group, total = [], 0
        group.append(file)
        total += file.bytes
        if alone:
            yield group
            group, total = [], 0
    if group:
        yield group


def _is_alone(file: Candidate | ClaimRecord) -> bool:
    """Return whether a file needs its own group: it is a marker, or its name is very long."""
    return file.path == CLOSE_NAME or not name_fits_copy(file.path)
