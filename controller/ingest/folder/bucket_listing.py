"""Lists a location, and keeps what is new there until it is claimed."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from cbp.engine.storage.files import Files
from cbp.errors import OperatingError
from cbp.model.dataflow.source_location import BucketPrefix
from cbp.model.dataflow.unfinished_names import UNFINISHED
from controller.ingest.errors import IntakeStoppedError
from controller.ingest.folder.incoming_names import Unclaimed, UnclaimedFiles
from controller.ingest.folder.object_index import ObjectIndex
from controller.ingest.folder.object_names import is_folder_mark, why_left_out
from controller.ingest.folder.stored_object import ObjectStore, StoredObject

__all__ = ["BucketListing", "BucketReport", "list_location"]


@dataclass(frozen=True, slots=True)
class BucketReport:
    """What is known of a location; for people.

    Attributes:
        location: As text.
        listed_at: When it was listed last; `None` if it was not, as far as this instance knows.
        objects: How many objects it had then.
        waiting: How many of them are new and were not claimed since.
        left_out: Objects that are not taken in, and why.
    """

    location: str
    listed_at: datetime | None = None
    objects: int = 0
    waiting: int = 0
    left_out: UnclaimedFiles = field(default_factory=UnclaimedFiles)


@dataclass(slots=True)
class BucketListing:
    """One listing of a location.

    Attributes:
        index: What was claimed before, and since.
        new: The objects to be claimed, by key, each with its key behind the location.
        known: Names of the objects that the index has as they are.
        complete: Whether the whole location was listed.
        failed: How many objects could not be read, in a row.
        failure: The error of the first that could not be read.
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

    def report(self) -> BucketReport:
        """Return what people are shown."""
        return BucketReport(
            str(self.location), self.listed_at, self.objects, len(self.new), self.left_out
        )


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
    """List a location; reads names, ETags and sizes only.

    Args:
        location: The location.
        increments: Folder of the source's increments.
        store: Has the location.
        files: Has the index.
        now: The time, for people.
        new_max: See `FetchLimits`.
        last: Names of objects that are to be claimed behind all others.
        stopping: Called for each page; returns whether to stop.
        unfinished: Ends of the names of objects that are not whole yet.

    Raises:
        BucketGoneError, BucketDeniedError, BucketFailedError: See the errors.
        FileDamagedError, FileLostError: The index cannot be read.
        IntakeStoppedError: `stopping` returned true.
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
    """Return the sort key of an object, which is that of S3."""
    return name.encode("utf-8", "surrogatepass")
