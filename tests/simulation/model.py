"""What must become of files that producers brought, in plain Python."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from typing import Any

__all__ = ["Broken", "Deliveries", "Record", "multiset"]

Record = dict[str, Any]


class Broken(AssertionError):
    """A promise does not hold; the message names it."""


def multiset(records: Any) -> list[str]:
    """Return records so that two lists are equal if they hold the same ones."""
    return sorted(repr({n: _in_utc(v) for n, v in one.items()}) for one in records)


def _in_utc(value: Any) -> Any:
    return value.astimezone(UTC) if isinstance(value, datetime) else value


class Deliveries:
    """Files by their name and content, per source.

    Attributes:
        certain: Those that producers know to be there.
        possible: The same, and those whose upload failed or was never answered.
    """

    def __init__(self, files: list[bytes], rows: list[list[dict[str, int]] | None]) -> None:
        self._names = [hashlib.sha256(data).hexdigest() for data in files]
        self._rows = dict(zip(self._names, rows, strict=True))
        self.certain: dict[str, set[tuple[str, str]]] = {}
        self.possible: dict[str, set[tuple[str, str]]] = {}

    def bring(self, source: str, name: str, file: int, *, certain: bool) -> None:
        """Note that a file was brought under a name."""
        brought = name, self._names[file]
        self.possible.setdefault(source, set()).add(brought)
        if certain:
            self.certain.setdefault(source, set()).add(brought)

    def sha256(self, file: int) -> str:
        """Return the SHA-256 of a file of the plan."""
        return self._names[file]

    def bad(self, data: bytes) -> bool:
        """Tell whether a file is one that must be refused."""
        return self._rows.get(hashlib.sha256(data).hexdigest(), []) is None

    def rows(self, source: str, name: str, sha256: str) -> list[dict[str, int]]:
        """Return the records of an accepted file; raises `Broken` if it must not be accepted."""
        if (name, sha256) not in self.possible.get(source, ()):
            message = f"P1: {source} accepted what nobody brought: {name}, {sha256}"
            raise Broken(message)
        rows = self._rows[sha256]
        if rows is None:
            message = f"P1: {source} accepted a bad file"
            raise Broken(message)
        return rows

    def missing(self, source: str, accepted: set[tuple[str, str]]) -> set[tuple[str, str]]:
        """Return the good files that were certainly brought and are not accepted."""
        certain = self.certain.get(source, set())
        return {one for one in certain if self._rows[one[1]] is not None} - accepted
