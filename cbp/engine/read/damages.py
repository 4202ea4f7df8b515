"""Findings of a scrub: a damaged or lost file, and what it belongs to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cbp.errors import CbpError, place_of


@dataclass(frozen=True, slots=True)
class Damage:
    """One file that is not as it was written."""

    code: str
    path: str
    kind: str
    dataflow: str
    table: str
    stage: str
    why: str
    next_step: str

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {name: getattr(self, name) for name in self.__slots__}

    @classmethod
    def of(cls, error: CbpError, path: str) -> Damage:
        """Return the damage that an error reports about a file."""
        path = str(error.details.get("path", path))
        place, why = place_of(path), str(error.details.get("why", error.message))
        return cls(
            error.code,
            path,
            place.kind,
            place.dataflow,
            place.name,
            place.stage,
            why,
            place.next_step,
        )


@dataclass(frozen=True, slots=True)
class ScrubbedFile:
    """The result for one file: its path, its bytes, and its damage, if any."""

    path: str
    bytes: int
    damage: Damage | None = None
