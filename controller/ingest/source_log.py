"""The log of a source: one immutable entry per accepted increment; it is the truth.

A SQL store is an index over it. Entry n is put once, when the increment's files are durable; two
controllers cannot both put it. Each entry holds the increment, the claim, the SHA-256 and size of
the original, its name and the time.

    _log/<n>.json                     one entry
    _log/sealed/<start>-<end>.jsonl   a thousand old entries, together

Entries stay for good, since they identify all files that were accepted. A sealed file is put
once; then its entries are removed one by one. Readers prefer the sealed file: if a controller that
was deposed long ago puts a sealed number again, its entry is ignored.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from cbp.engine.storage.checked_json import digested, parsed, read_record
from cbp.engine.storage.files import Exists, Files
from cbp.engine.storage.table_names import source_folder
from cbp.errors import LogConflictError
from cbp.model.flow.increment import Increment

__all__ = ["SourceEntry", "SourceLog"]

SEALED_ENTRIES = 1_000
"""Entries of one sealed file: some hundred kilobytes."""

_SEALED = "sealed"


@dataclass(frozen=True, slots=True)
class SourceEntry:
    """One accepted arrival.

    Attributes:
        claim: Id of the claim that brought it.
        sequence: Order of the claim within its source.
        path: Original name, as evidence.
        bytes: Size of the original.
        notes: See `controller.ingest.notes`.
        key: The Idempotency-Key of its upload; `""`: none.
        same_as: See `ClaimRecord.same_as`.
    """

    increment: Increment
    claim: str
    sequence: int
    sha256: str
    path: str
    bytes: int
    accepted_at: datetime
    notes: Mapping[str, Any] = field(default_factory=dict)
    key: str = ""
    same_as: Mapping[str, Any] | None = None

    def origin(self) -> dict[str, Any]:
        """Return what the store keeps about the arrival."""
        return {
            "files": [self.path],
            "claim": self.claim,
            "sha256": self.sha256,
            "bytes": self.bytes,
            **self.notes,
            **({} if self.same_as is None else {"same_as": dict(self.same_as)}),
        }

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values; `from_json` is the inverse."""
        return {
            "increment": self.increment.to_json(),
            "claim": self.claim,
            "sequence": self.sequence,
            "sha256": self.sha256,
            "path": self.path,
            "bytes": self.bytes,
            "accepted_ms": int(self.accepted_at.timestamp() * 1000),
            "notes": dict(self.notes),
            **({"key": self.key} if self.key else {}),
            **({} if self.same_as is None else {"same_as": dict(self.same_as)}),
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> SourceEntry:
        """Read what `to_json` wrote."""
        return cls(
            increment=Increment.from_json(value["increment"]),
            claim=value["claim"],
            sequence=value["sequence"],
            sha256=value["sha256"],
            path=value["path"],
            bytes=value["bytes"],
            accepted_at=datetime.fromtimestamp(value["accepted_ms"] / 1000, UTC),
            notes=value["notes"],
            key=value.get("key", ""),
            same_as=value.get("same_as"),
        )


class SourceLog:
    """Reads and puts the entries below `<folder>/sources/<source>/_log`."""

    def __init__(self, folder: str, source: str, files: Files) -> None:
        self._folder, self._files = f"{folder}/{source_folder(source)}/_log", files

    def put(self, entry: SourceEntry) -> None:
        """Make an entry durable; succeeds again for the same claim.

        Raises:
            LogConflictError: If another claim is already recorded under this index.
        """
        path = self._path(entry.increment.index)
        data = digested(json.dumps(entry.to_json(), separators=(",", ":")).encode(), path)
        result = self._files.put_if_absent(path, data, what="source_log")
        if isinstance(result, Exists) and (
            parsed(result.data, path, SourceEntry.from_json).claim != entry.claim
        ):
            raise LogConflictError(path)

    def since(self, index: int) -> Iterator[SourceEntry]:
        """Yield the entries from `index` on, in order, up to the first that is absent."""
        for start, end, name in self._sealed():
            if end > index:
                path = f"{self._folder}/{_SEALED}/{name}"
                for at, line in enumerate(self._files.read(path).splitlines(), start):
                    entry = parsed(line, path, SourceEntry.from_json, written_to=self._path(at))
                    if entry.increment.index >= index:
                        yield entry
                index = end
        while self._files.exists(path := self._path(index)):
            yield read_record(self._files, path, SourceEntry.from_json)
            index += 1

    def seal(self, below: int) -> int:
        """Seal entries before `below`, `SEALED_ENTRIES` to a file; return how many entries.

        May be interrupted anywhere, and repeated.
        """
        sealed = self._sealed()
        start = sealed[-1][1] if sealed else 0
        self._remove_before(start)
        first = start
        while below - start >= SEALED_ENTRIES:
            end = start + SEALED_ENTRIES
            lines = [self._files.read(self._path(number)) for number in range(start, end)]
            target = f"{self._folder}/{_SEALED}/{start:020d}-{end:020d}.jsonl"
            self._files.put_if_absent(target, b"\n".join(lines), what="source_log")
            self._remove_before(end)
            start = end
        return start - first

    def _sealed(self) -> list[tuple[int, int, str]]:
        """Return first entry, end and name of the sealed files, ascending."""
        names = self._files.list_names(f"{self._folder}/{_SEALED}")
        parts = (name.removesuffix(".jsonl").split("-") for name in names)
        return [
            (int(start), int(end), name) for (start, end), name in zip(parts, names, strict=True)
        ]

    def _remove_before(self, end: int) -> None:
        for name in self._files.list_names(self._folder):
            if name.endswith(".json") and int(name.removesuffix(".json")) < end:
                self._files.remove(f"{self._folder}/{name}", what="dead_record")

    def _path(self, index: int) -> str:
        return f"{self._folder}/{index:020d}.json"
