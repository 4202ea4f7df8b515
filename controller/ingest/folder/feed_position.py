"""How far a source has come in its Delta table; beside the source's increments, as a record.

It names the group of versions that is taken in at present. It is written before the group is
claimed, and once more afterwards (`claimed`). After a crash in between, the same group is claimed
under the same key, name and content, by which it is known again; so no version comes twice or
is left out, also if the database was lost.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cbp.engine.storage.checked_json import digested, read_record
from cbp.engine.storage.files import Files
from cbp.errors import NotFoundError
from controller.ingest.formats.change_group import ChangeGroup

__all__ = ["FeedPosition", "load_position", "save_position"]

_FILE = "_feed.json"


@dataclass(frozen=True, slots=True)
class FeedPosition:
    """The newest group of versions.

    Attributes:
        group: Its versions; those before them were taken in.
        digest: SHA-256 of the log entry of its last version, in hex: another table in the same
            folder has another one.
        claimed: Whether the group was claimed, or has no changes to claim.
    """

    group: ChangeGroup
    digest: str
    claimed: bool = False

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> FeedPosition:
        """Read what `save_position` wrote."""
        return cls(ChangeGroup.from_json(value["group"]), value["digest"], value["claimed"])


def load_position(folder: str, files: Files) -> FeedPosition | None:
    """Return the position of a source, by its folder of increments; `None` before the first group.

    Raises:
        FileDamagedError: It is not what was written.
    """
    try:
        return read_record(files, f"{folder}/{_FILE}", FeedPosition.from_json)
    except NotFoundError:
        return None


def save_position(folder: str, files: Files, position: FeedPosition) -> None:
    """Replace the position of a source, durably."""
    path = f"{folder}/{_FILE}"
    value = {
        "group": position.group.to_json(),
        "digest": position.digest,
        "claimed": position.claimed,
    }
    files.write_durable(path, digested(json.dumps(value).encode(), path), what="feed_position")
