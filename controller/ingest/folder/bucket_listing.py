"""Lists a location, and keeps its new objects until they are claimed.

Which objects are data, and what their files are called:

    orders/2026/a.jsonl             data; its file is called `2026/a.jsonl`
    orders/, orders/2026_$folder$   empty: a marker of a folder, skipped
    orders/_SUCCESS, orders/.x      left out, and shown: what jobs write beside their data
    orders/_temporary/0/a.jsonl     left out: it is renamed when it is complete
    orders/a.jsonl.part             left out, as in a drop folder

A name is evidence and part of the identity of a file, and never becomes a path. It is short enough
to fit into the name of a claimed copy: if the database is lost, only the copy has it.

Which objects were claimed (`ObjectIndex`); beside the source's increments, as small records:

    _objects/<n>.json    objects that were claimed together, or ("whole") all claimed so far

An object whose key, ETag and size are in the index is not fetched again. A record is put after the
claims of its objects are durable. After a crash in between, and after a loss of the index, the
objects are recognised by the keys of their claims. So the index decides nothing about data: it
saves a query of the database for each object and listing. If the database is lost as well, every
object is fetched again; the accepted ones are recognised by the source's log, and the others go to
quarantine again.

Each record is put under the first number that is free, so two controllers cannot both put it. After
many records, a "whole" one replaces them; it leaves out objects that no longer exist. Records of
another location are ignored.

A document is written by someone who may register dataflows, not by the operator of the service. So
a location outside the allowed prefixes (`AllowedLocations`) is refused at registration, and again
at each listing, since the settings may have changed.
"""

from __future__ import annotations

import hashlib
import json
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from cbp.engine.storage.checked_json import digested, read_record, record_numbers
from cbp.engine.storage.files import Exists, Files
from cbp.errors import FileLostError, LogConflictError, Mistake, OperatingError
from cbp.model.dataflow.dataflow import Dataflow
from cbp.model.source.bucket_prefix import BucketPrefix
from cbp.model.source.unfinished_names import UNFINISHED, why_left_out
from controller.ingest.errors import IntakeStoppedError
from controller.ingest.folder.eligible_files import Unclaimed, UnclaimedFiles
from controller.ingest.folder.object_store import ObjectStore, StoredObject
from controller.ingest.folder.source_place import evidence, name_fits_copy
from controller.ingest.limits import FetchLimits


@dataclass(frozen=True, slots=True)
class AllowedLocations:
    """Prefixes below which documents may name locations, as `BucketPrefix.parse` returns them."""

    prefixes: tuple[str, ...] = ()

    def refusal(self, location: BucketPrefix) -> str:
        """Return why a location is not allowed; `""` if it is."""
        if any(location.is_below(BucketPrefix.parse(one)) for one in self.prefixes):
            return ""
        return (
            f"{location} is not below any prefix in CBP_SOURCE_LOCATIONS; ask the operator to add "
            "one that covers it"
        )


def location_mistakes(dataflow: Dataflow, allowed: AllowedLocations) -> Iterator[Mistake]:
    """Yield the locations of a dataflow's sources that the settings do not allow."""
    for source in dataflow.sources.values():
        if source.location and (why := allowed.refusal(BucketPrefix.parse(source.location))):
            yield Mistake("location_refused", f"sources.{source.name}.location", why)


_MARK = "_$folder$"
_DIGEST_CHARACTERS = 32
_KEPT_CHARACTERS = 200


def is_folder_mark(one: StoredObject) -> bool:
    """Return whether an object is only a marker of a folder, as some tools leave them."""
    return not one.size and one.key.endswith(("/", _MARK))


def file_name(name: str) -> str:
    """Return the file name of an object; different objects get different names."""
    shown = evidence(name)
    if name_fits_copy(shown):
        return shown
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGEST_CHARACTERS]
    rest = shown[-_KEPT_CHARACTERS:]
    while not name_fits_copy(made := f"{digest}~{rest}"):
        rest = rest[1:]
    return made


@dataclass(frozen=True, slots=True)
class _Record:
    """One file of the index: key in the location, ETag and size of each object.

    If it is `whole`, it replaces all records before it.
    """

    location: str
    whole: bool
    objects: tuple[tuple[str, str, int], ...]

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> _Record:
        objects = tuple((str(k), str(e), int(n)) for k, e, n in value["objects"])
        return cls(value["location"], bool(value["whole"]), objects)

    def to_json(self) -> dict[str, Any]:
        return {"location": self.location, "whole": self.whole, "objects": self.objects}


@dataclass(slots=True)
class ObjectIndex:
    """The index of one source at one location; `numbers` has the numbers of its valid records."""

    folder: str
    location: str
    files: Files
    numbers: list[int] = field(default_factory=list)
    next: int = 0
    _seen: dict[str, tuple[str, int]] = field(default_factory=dict)

    @classmethod
    def load(cls, increments: str, location: str, files: Files) -> ObjectIndex:
        """Read the index of a source; raises `FileDamagedError` or `FileLostError`."""
        made = cls(f"{increments}/_objects", location, files)
        numbers = sorted(record_numbers(files.list_names(made.folder)))
        made.next = numbers[-1] + 1 if numbers else 0
        records = dict[int, _Record]()
        for number in reversed(numbers):
            records[number] = read_record(files, made._path(number), _Record.from_json)
            if records[number].whole:
                break
        made.numbers = sorted(records)
        for number in made.numbers:
            if not records[number].whole and number - 1 not in records:
                raise FileLostError(made._path(number - 1), f"record {number} exists")
            if records[number].location == location:
                made._seen.update((k, (e, n)) for k, e, n in records[number].objects)
        return made

    def __len__(self) -> int:
        return len(self._seen)

    def has(self, name: str, one: StoredObject) -> bool:
        """Return whether an object was claimed in its listed version; `name` as in `put`."""
        return self._seen.get(name) == (one.etag, one.size)

    def put(self, claimed: Iterable[tuple[str, StoredObject]]) -> None:
        """Note that objects were claimed; durable when it returns. Raises `LogConflictError`.

        Expects at least one object, each with its key relative to the location.
        """
        objects = tuple((name, one.etag, one.size) for name, one in claimed)
        self._put(_Record(self.location, not self.numbers, objects))
        self._seen.update((name, (etag, size)) for name, etag, size in objects)

    def is_worn(self, there: int, limits: FetchLimits) -> bool:
        """Return whether `renew` is worthwhile; `there` is the number of its listed objects."""
        gone = len(self._seen) - there
        return len(self.numbers) > limits.index_records or gone > max(limits.index_gone, there)

    def renew(self, there: Iterable[str]) -> None:
        """Replace all records by one, of the existing objects; raises `LogConflictError`.

        It can be interrupted anywhere: records before a "whole" one are no longer read.
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

    def _path(self, number: int) -> str:
        return f"{self.folder}/{number:020d}.json"


@dataclass(slots=True)
class BucketListing:
    """One listing of a location; objects have their keys relative to it.

    Attributes:
        new, known: The objects to be claimed, by key, and those that the index has.
        complete: Whether the whole location was listed.
        failed: Number of objects in a row that could not be read.
    """

    location: BucketPrefix
    listed_at: datetime
    index: ObjectIndex
    new: deque[tuple[str, StoredObject]] = field(default_factory=deque)
    known: list[str] = field(default_factory=list)
    objects: int = 0
    left_out: UnclaimedFiles = field(default_factory=UnclaimedFiles)
    complete: bool = True
    failed: int = 0
    failure: OperatingError | None = None

    def report(self) -> dict[str, Any]:
        """Return the facts for people, as JSON values."""
        return {
            "location": str(self.location),
            "listed_at": self.listed_at.isoformat(),
            "objects": self.objects,
            "waiting": len(self.new),
            "left_out": self.left_out.count,
            "oldest_left_out": self.left_out.to_json(),
        }


def list_location(
    location: BucketPrefix,
    increments: str,
    *,
    store: ObjectStore,
    files: Files,
    now: datetime,
    new_max: int,
    last: Collection[str],
    stopping: Callable[[], bool],
    unfinished: Sequence[str] = UNFINISHED,
) -> BucketListing:
    """List a location, without content; objects with names in `last` are claimed after others.

    Asks `stopping` before each page, and then raises `IntakeStoppedError`. Other errors are those
    of `ObjectStore`, `FileDamagedError` and `FileLostError`.
    """
    made = BucketListing(location, now, ObjectIndex.load(increments, str(location), files))
    new, left_out = list[tuple[str, StoredObject]](), list[Unclaimed]()
    for page in store.pages(location.bucket, location.prefix):
        if stopping():
            raise IntakeStoppedError(str(location))
        for one in page:
            made.objects += 1
            name = one.key.removeprefix(location.prefix)
            if made.index.has(name, one):
                made.known.append(name)
            elif is_folder_mark(one):
                continue
            elif why := why_left_out(name, unfinished):
                left_out.append(Unclaimed(name, why, one.modified))
            else:
                new.append((name, one))
        if len(new) >= new_max:
            made.complete = False
            break
    made.left_out = UnclaimedFiles.of(left_out)
    made.new.extend(sorted(new, key=lambda each: (each[0] in last, _turn(each[0]))))
    return made


def _turn(name: str) -> bytes:
    """Return the sort key of an object: the order of S3."""
    return name.encode("utf-8", "surrogatepass")
