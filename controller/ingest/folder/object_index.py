"""Which objects of a location were claimed; beside the source's increments, as small records.

    _objects/<n>.json    objects that were claimed together, or all of those before ("whole")

An object whose key, ETag and size are in the index is not fetched again. A record is put after the
claims of its objects are durable. After a crash in between, and after a loss of the index, the
objects are known by the keys of their claims. So the index decides nothing about data: it spares
the database a question for each object and listing. If the database is lost with it, every object
is fetched once more, the accepted ones are known from the source's log, and the others come to
quarantine anew.

Each record is put under the first number that is free, so two controllers cannot both put it. After
many records one that is whole takes their place; it leaves out objects that are gone. Records of
another location are not believed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from cbp.engine.storage.checked_json import digested, read_record, record_numbers
from cbp.engine.storage.files import Exists, Files
from cbp.errors import FileLostError, LogConflictError
from controller.ingest.folder.fetch_limits import FetchLimits
from controller.ingest.folder.stored_object import StoredObject

__all__ = ["ObjectIndex"]


@dataclass(frozen=True, slots=True)
class _Record:
    """One file of the index.

    Attributes:
        whole: Whether it replaces all records before it.
        objects: Key behind the location, ETag and size of each object.
    """

    location: str
    whole: bool
    objects: tuple[tuple[str, str, int], ...]

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> _Record:
        """Read what `ObjectIndex` wrote."""
        objects = tuple((str(k), str(e), int(n)) for k, e, n in value["objects"])
        return cls(value["location"], bool(value["whole"]), objects)

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values; `from_json` is the inverse."""
        return {"location": self.location, "whole": self.whole, "objects": self.objects}


@dataclass(slots=True)
class ObjectIndex:
    """The index of one source at one location, as it was read; `load` reads it.

    Attributes:
        folder: Folder of its records.
        location: As text.
        numbers: The numbers of its records that count, ascending.
        next: The number of the next record.
    """

    folder: str
    location: str
    files: Files
    numbers: list[int] = field(default_factory=list)
    next: int = 0
    _seen: dict[str, tuple[str, int]] = field(default_factory=dict)

    @classmethod
    def load(cls, increments: str, location: str, files: Files) -> ObjectIndex:
        """Read the index of a source, by the folder of its increments.

        Raises:
            FileDamagedError: A record is not what was written.
            FileLostError: A record between others is gone.
        """
        made = cls(f"{increments}/_objects", location, files)
        numbers = sorted(record_numbers(files.list_names(made.folder)))
        made.next = numbers[-1] + 1 if numbers else 0
        records = dict[int, _Record]()
        for number in reversed(numbers):
            records[number] = read_record(files, made._path(number), _Record.from_json)
            if records[number].whole:
                break
        made.numbers = sorted(records)
        made._require_all(records)
        for number in made.numbers:
            if records[number].location == location:
                made._seen.update((k, (e, n)) for k, e, n in records[number].objects)
        return made

    def __len__(self) -> int:
        return len(self._seen)

    def has(self, name: str, one: StoredObject) -> bool:
        """Return whether an object was claimed as a listing shows it; `name` as in `put`."""
        return self._seen.get(name) == (one.etag, one.size)

    def put(self, claimed: Iterable[tuple[str, StoredObject]]) -> None:
        """Note that objects were claimed; durable when it returns.

        Args:
            claimed: At least one; each with its key behind the location.

        Raises:
            LogConflictError: Another controller takes in objects of this source.
        """
        objects = tuple((name, one.etag, one.size) for name, one in claimed)
        self._put(_Record(self.location, not self.numbers, objects))
        self._seen.update((name, (etag, size)) for name, etag, size in objects)

    def is_worn(self, there: int, limits: FetchLimits) -> bool:
        """Return whether `renew` is worth it; `there`: how many of its objects were listed."""
        gone = len(self._seen) - there
        return len(self.numbers) > limits.index_records or gone > max(limits.index_gone, there)

    def renew(self, there: Iterable[str]) -> None:
        """Put one record in the place of all, with those of its objects that are there.

        May be interrupted anywhere: records before one that is whole are read no more.

        Raises:
            LogConflictError: As for `put`.
        """
        seen = {name: self._seen[name] for name in there if name in self._seen}
        objects = tuple((name, etag, size) for name, (etag, size) in seen.items())
        self._put(_Record(self.location, True, objects))
        self._seen = seen
        for number in sorted(record_numbers(self.files.list_names(self.folder))):
            if number < self.numbers[0]:
                self.files.remove(self._path(number), what="dead_record")

    def _put(self, record: _Record) -> None:
        path = self._path(self.next)
        data = digested(json.dumps(record.to_json(), separators=(",", ":")).encode(), path)
        if isinstance(self.files.put_if_absent(path, data, what="feed_position"), Exists):
            raise LogConflictError(path)
        self.numbers = [self.next] if record.whole else [*self.numbers, self.next]
        self.next += 1

    def _require_all(self, records: Mapping[int, _Record]) -> None:
        for number in self.numbers:
            if not records[number].whole and number - 1 not in records:
                raise FileLostError(self._path(number - 1), f"record {number} is there")

    def _path(self, number: int) -> str:
        return f"{self.folder}/{number:020d}.json"
