"""The log of a source: one immutable entry per accepted increment; it is the truth.

A SQL store is an index over it. Entries that are accepted together are put together, in one file
with one line for each:

    _log/<n>.json                     entry n, and those that were put with it: n + 1, ...
    _log/sealed/<start>-<end>.jsonl   a thousand old entries, or a few more

A file is put once, when the files of its increments are durable. It exists completely or not at
all, so a crash leaves no gap. Its name is the first number that the log lacks; hence two
controllers cannot both put an entry. In a file of several lines, each line has their number
(`together`), so that a file that was cut at the end of a line is recognised as damaged.

Entries stay for good, since they identify all files that were accepted. A sealed file is put once;
then the files of its entries are removed one by one. Readers prefer the sealed file: if a
controller that was deposed long ago puts a sealed number again, its entry is ignored.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from typing import Any

from cbp.engine.storage.checked_json import digested, parsed, record_numbers
from cbp.engine.storage.files import Exists, Files
from cbp.engine.storage.table_names import source_folder
from cbp.errors import FileDamagedError, FileLostError, LogConflictError, NotFoundError
from cbp.model.flow.increment import Increment
from controller.ingest.formats.bad_lines import REJECTED
from controller.store.base import ClaimRecord

NAMES_SHOWN = 20
"""Number of file names that the store keeps with an increment; its claims have all names."""

_SEALED, _TOGETHER = "sealed", "together"
_SEALED_NAME = re.compile(r"(\d{20})-(\d{20})\.jsonl", re.ASCII)


@dataclass(frozen=True, slots=True)
class ArrivedFile:
    """One file of an increment.

    Its `records` follow those of the previous file; it is `None` for the only file of an increment,
    which has all records.
    """

    claim: str
    sequence: int
    sha256: str
    path: str
    bytes: int
    notes: Mapping[str, Any] = field(default_factory=dict)
    key: str = ""
    same_as: Mapping[str, Any] | None = None
    records: int | None = None

    @classmethod
    def of(
        cls, claim: ClaimRecord, notes: Mapping[str, Any], records: int | None = None
    ) -> ArrivedFile:
        """Return the part of an entry for a file that was read."""
        return cls(
            claim=claim.id,
            sequence=claim.sequence,
            sha256=claim.sha256,
            path=claim.path,
            bytes=claim.bytes,
            notes=notes,
            key=claim.key,
            same_as=claim.same_as,
            records=records,
        )

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values; `from_json` is the inverse."""
        values = {one.name: getattr(self, one.name) for one in fields(self)}
        absent = {"key": "", "same_as": None, "records": None}
        return {n: one for n, one in values.items() if n not in absent or one != absent[n]}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> ArrivedFile:
        """Read the output of `to_json`."""
        return cls(**{one.name: value[one.name] for one in fields(cls) if one.name in value})


@dataclass(frozen=True, slots=True)
class SourceEntry:
    """One accepted increment."""

    increment: Increment
    files: tuple[ArrivedFile, ...]
    accepted_at: datetime

    @property
    def claims(self) -> tuple[str, ...]:
        """Ids of the claims that brought its files."""
        return tuple(file.claim for file in self.files)

    def origin(self) -> dict[str, Any]:
        """Return the facts about the arrival that the store keeps; the claims have the rest."""
        if len(self.files) > 1:
            rejected = sum(file.notes.get("rejected_rows", 0) for file in self.files)
            return {
                "files": [file.path for file in self.files[:NAMES_SHOWN]],
                "file_count": len(self.files),
                "file_records": [file.records for file in self.files[:NAMES_SHOWN]],
                "lines": [file.notes.get("lines", ()) for file in self.files[:NAMES_SHOWN]],
                "bytes": sum(file.bytes for file in self.files),
                **({"rejected_rows": rejected} if rejected else {}),
            }
        (file,) = self.files
        return {
            "files": [file.path],
            "claim": file.claim,
            "sha256": file.sha256,
            "bytes": file.bytes,
            **{name: value for name, value in file.notes.items() if name != REJECTED},
            **({} if file.same_as is None else {"same_as": dict(file.same_as)}),
        }

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values; an entry of one file is as earlier versions wrote it."""
        value = {
            "increment": self.increment.to_json(),
            "accepted_ms": int(self.accepted_at.timestamp() * 1000),
        }
        if len(self.files) > 1:
            return value | {"files": [file.to_json() for file in self.files]}
        return value | self.files[0].to_json()

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> SourceEntry:
        """Read the output of `to_json`."""
        return cls(
            Increment.from_json(value["increment"]),
            tuple(map(ArrivedFile.from_json, value.get("files", (value,)))),
            datetime.fromtimestamp(value["accepted_ms"] / 1000, UTC),
        )


class SourceLog:
    """Reads and puts the entries below `<folder>/sources/<source>/_log`."""

    def __init__(self, folder: str, source: str, files: Files) -> None:
        self._folder, self._files = f"{folder}/{source_folder(source)}/_log", files

    def put(self, entries: Sequence[SourceEntry]) -> None:
        """Make entries durable, all or none; succeeds again for the same claims.

        Expects at least one entry; the indexes ascend by one from the lowest that the log lacks.
        Raises `LogConflictError` if other claims are already recorded there.
        """
        path = self._path(entries[0].increment.index)
        data = b"\n".join(self._line(entry, len(entries)) for entry in entries)
        result = self._files.put_if_absent(path, data, what="source_log")
        if isinstance(result, Exists):
            known = self._parsed(result.data, entries[0].increment.index)
            if [entry.claims for entry in known] != [entry.claims for entry in entries]:
                raise LogConflictError(path)

    def since(self, index: int) -> Iterator[SourceEntry]:
        """Yield the entries from `index` on, in order, up to the first missing one."""
        for group in self.groups_since(index):
            yield from group

    def groups_since(self, index: int) -> Iterator[list[SourceEntry]]:
        """Yield the entries of `since`, file by file, as they were put or sealed.

        Raises `FileDamagedError`; `FileLostError` if a file of sealed entries is missing between
        others, or the entries right before `index` are missing.
        """
        sealed_end = 0
        for start, sealed_end, name in self._sealed():
            if sealed_end > index:
                path = f"{self._folder}/{_SEALED}/{name}"
                if start > index:
                    first = f"{self._folder}/{_SEALED}/{index:020d}-{start:020d}.jsonl"
                    raise FileLostError(first, f"the next file of the same log, {name}, exists")
                sealed = list(self._entries(self._files.read(path), path, start))
                if len(sealed) != sealed_end - start:
                    why = f"it has {len(sealed)} entries instead of {sealed_end - start}"
                    raise FileDamagedError(path, why)
                yield [entry for entry in sealed if entry.increment.index >= index]
                index = sealed_end
        start = self._start_of(index, sealed_end)
        while self._files.exists(path := self._path(start)):
            entries = self._parsed(self._files.read(path), start)
            if group := [entry for entry in entries if entry.increment.index >= index]:
                yield group
            start += len(entries)
        # Looked up again: entries may have been sealed since.
        if start < index and all(end <= start for _, end, _ in self._sealed()):
            raise FileLostError(
                path, f"this log had entries up to {index - 1} when it was last read"
            )

    def require_end(self, index: int) -> None:
        """Raise `FileLostError` if the log has entries after `index`, so that this one is lost."""
        later = [number for number in self._singles() if number > index]
        later += [end - 1 for _, end, _ in self._sealed() if end > index]
        if later:
            why = f"a later entry of the same log, {max(later)}, exists"
            raise FileLostError(self._path(index), why)

    def seal(self, below: int, *, entries: int) -> int:
        """Seal entries before `below`, at least `entries` per file; return how many.

        Entries that were put together are sealed together. May be interrupted anywhere, and
        repeated. Raises `FileDamagedError` if an entry is damaged or missing, which is not sealed.
        """
        sealed = self._sealed()
        start = sealed[-1][1] if sealed else 0
        self._remove_before(start)
        first = start
        while below - start >= entries:
            end, lines = start, list[bytes]()
            while end - start < entries:
                lines_of_file = self._whole_lines(end)
                end, lines = end + len(lines_of_file), lines + lines_of_file
            if end > below:
                break
            target = f"{self._folder}/{_SEALED}/{start:020d}-{end:020d}.jsonl"
            self._files.put_if_absent(target, b"\n".join(lines), what="source_log")
            self._remove_before(end)
            start = end
        return start - first

    def _line(self, entry: SourceEntry, together: int) -> bytes:
        value = entry.to_json() | ({_TOGETHER: together} if together > 1 else {})
        data = json.dumps(value, separators=(",", ":")).encode()
        return digested(data, self._path(entry.increment.index))

    def _parsed(self, data: bytes, start: int) -> list[SourceEntry]:
        """Return the entries of a file that was put at `start`; raises `FileDamagedError`."""
        path = self._path(start)
        entries = list(self._entries(data, path, start))
        promised = json.loads(data.splitlines()[0]).get(_TOGETHER, 1) if entries else 1
        if len(entries) != promised:
            raise FileDamagedError(path, f"it has {len(entries)} entries instead of {promised}")
        return entries

    def _entries(self, data: bytes, path: str, start: int) -> Iterator[SourceEntry]:
        for index, line in enumerate(data.splitlines(), start):
            yield parsed(line, path, SourceEntry.from_json, written_to=self._path(index))

    def _start_of(self, index: int, sealed_end: int) -> int:
        """Return the number of the file that holds an entry, or would hold it."""
        if self._files.exists(self._path(index)):
            return index
        least = min(sealed_end, index)
        return max((start for start in self._singles() if least <= start < index), default=least)

    def _whole_lines(self, start: int) -> list[bytes]:
        """Return the lines of a file that is to be sealed, once its entries were checked."""
        path = self._path(start)
        try:
            data = self._files.read(path)
        except NotFoundError as error:
            raise FileLostError(path, "later entries of the same log exist") from error
        self._parsed(data, start)
        return data.splitlines()

    def _sealed(self) -> list[tuple[int, int, str]]:
        names = self._files.list_names(f"{self._folder}/{_SEALED}")
        matches = (_SEALED_NAME.fullmatch(name) for name in names)
        return [(int(one[1]), int(one[2]), one[0]) for one in matches if one]

    def _singles(self) -> list[int]:
        """Return the first entry numbers of the files that are not sealed, ascending."""
        return record_numbers(self._files.list_names(self._folder))

    def _remove_before(self, end: int) -> None:
        for number in self._singles():
            if number < end:
                self._files.remove(self._path(number), what="dead_record")

    def _path(self, index: int) -> str:
        return f"{self._folder}/{index:020d}.json"
