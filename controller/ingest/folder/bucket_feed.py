"""Claims the objects of a source's location: each is fetched once, and then handled as an upload.

    listed -> new by its ETag? -> fetched into a hidden part -> claimed, as an upload -> noted

A location is listed once per interval; after a failure, when `SourceTroubles` allows it. Fetches
are separate from the passes over drop folders, so a bucket's service that hangs delays no dropped
file of the same source. Objects are claimed in the order of their keys in a listing. There is no
settle time: S3 shows an object only when it is complete.

The key of a claim is made of what the listing showed. If a crash prevents the note (`ObjectIndex`),
the claimed object is recognised by that key, even if a roll-back dropped it since: it is not
fetched again automatically. An object whose file was lost before it was read is fetched again.

Guaranteed: an object that cannot be read does not stop those after it. A large backlog does not
fill the disk: fetching waits while many files wait in `claimed` (`FetchLimits`). A cut connection
costs one block, and all blocks are of one version of the object.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from concurrent.futures import Executor, Future
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, cast

from cbp.clock import MACHINE
from cbp.errors import LogConflictError, NotFoundError
from cbp.model.dataflow.dataflow import Dataflow
from cbp.model.source.bucket_prefix import BucketPrefix
from controller.ingest.errors import (
    BucketDeniedError,
    BucketFailedError,
    IntakeStoppedError,
    LocationRefusedError,
    ObjectChangedError,
    ObjectGoneError,
    ObjectSlowError,
)
from controller.ingest.folder.bucket_listing import (
    AllowedLocations,
    BucketListing,
    file_name,
    list_location,
)
from controller.ingest.folder.claims import Claims
from controller.ingest.folder.folder_report import MOST_SECONDS, SourceTroubles
from controller.ingest.folder.object_store import ObjectStore, S3Store, StoredObject
from controller.ingest.folder.source_place import SourcePlace, forget_below
from controller.ingest.limits import FetchLimits
from controller.ingest.ports import Ports
from controller.ingest.rejection import FileRejectedError
from controller.store.base import ClaimRecord, DataflowRecord

TRIES = 3
_KEY_CHARACTERS = 40
_LAST = datetime.max.replace(tzinfo=UTC)

Hold = Callable[[], AbstractContextManager[object]]
"""Returns a lock under which the dataflow stays registered, or raises `NotFoundError`."""


Receive = Callable[[SourcePlace, str, BinaryIO, str], object]
"""Stores a file from a stream and claims it, durably: place, name, stream and key."""


@dataclass(frozen=True, slots=True)
class Buckets:
    """Access to buckets.

    `make_store` is called when the first source needs it. A location is listed every `seconds`. An
    `executor` fetches small objects ahead, each in a thread; without one none is fetched ahead.
    """

    allowed: AllowedLocations = field(default_factory=AllowedLocations)
    make_store: Callable[[], ObjectStore] = S3Store
    seconds: float = 30.0
    executor: Executor | None = None
    monotonic: Callable[[], float] = MACHINE.seconds
    limits: FetchLimits = field(default_factory=FetchLimits)


class BucketFeed:
    """Lists locations and claims objects; one call of `fetch` at a time for each source."""

    def __init__(
        self,
        ports: Ports,
        *,
        claims: Claims,
        receive: Receive,
        buckets: Buckets,
        drop_root: Path,
        on_claim: Callable[[str], None],
    ) -> None:
        self.store, self.limits, self._clock = ports.store, ports.limits, ports.clock
        self._files, self._new_id = ports.files, ports.new_id
        self._claims, self.receive, self.buckets = claims, receive, buckets
        self._root, self._on_claim = drop_root, on_claim
        self._objects: ObjectStore | None = None
        self._due: dict[Path, datetime] = {}
        self._left: dict[Path, BucketListing] = {}
        self._reports: dict[Path, dict[str, Any]] = {}
        # Objects that could not be read are tried last, so that they do not block the others.
        self._unreadable: dict[Path, set[str]] = {}
        self._too_large: dict[Path, set[str]] = {}
        self.troubles = SourceTroubles(ports.clock)

    def due(self, record: DataflowRecord, dataflow: Dataflow) -> list[str]:
        """Return the sources whose locations are to be listed now; reads nothing."""
        folder, now = self._root / dataflow.name, self._clock()
        located = [
            name for name, source in dataflow.sources.items() if source.location and record.takes_in
        ]
        self.troubles.keep(folder, located)
        return [name for name in located if self._due.get(folder / name, now) <= now]

    def fetch(
        self,
        record: DataflowRecord,
        dataflow: Dataflow,
        source: str,
        *,
        hold: Hold,
        stopping: Callable[[], bool],
    ) -> None:
        """Claim new objects of a source for some seconds, if it is `due`; a failure is recorded.

        Raises `LogConflictError`, `IntakeStoppedError` once `stopping` returned true, or
        `NotFoundError` if the dataflow was deleted meanwhile.
        """
        if source not in self.due(record, dataflow):
            return
        place = SourcePlace.of(record, dataflow, dataflow.sources[source], self._root)
        self._due[place.root] = _LAST  # it is not due while it is under way
        due, pause = self._clock(), timedelta(seconds=self.buckets.seconds)
        try:
            if not self._claim_some(place, record, hold, stopping):
                due = self._clock() + pause
        except (LogConflictError, IntakeStoppedError, NotFoundError):
            raise
        except Exception as error:  # whatever failed: the location is listed again
            self.troubles.failed(place.root, place.name, error)
            trouble, now = self.troubles.of(place.root), self._clock()
            assert trouble is not None, "the failure was not recorded"
            due = trouble.retry_at
            if due - now >= timedelta(seconds=MOST_SECONDS):  # in the end once per interval
                due = max(due, now + pause)
        else:
            self.troubles.works(place.root)
        finally:
            self._due[place.root] = due
        self._on_claim(place.dataflow)

    def forget(self, folder: Path) -> None:
        """Forget everything about a dataflow's locations, given the dataflow's folder."""
        forget_below(
            folder, self._left, self._due, self._reports, self._unreadable, self._too_large
        )
        self.troubles.keep(folder, ())

    def list_again(self, root: Path) -> None:
        """List a source's location at the next call of `fetch`: another instance may have led."""
        self._left.pop(root, None)
        self._due.pop(root, None)

    def report(self, place: SourcePlace) -> dict[str, Any] | None:
        """Return the known facts about a source's location as JSON; `None` if it has none."""
        location = place.source.location
        if not location:
            return None
        unknown: dict[str, Any] = {"location": location, "listed_at": None, "objects": 0}
        unknown |= {"waiting": 0, "left_out": 0, "oldest_left_out": []}
        known = self._reports.get(place.root)
        return unknown if known is None else known

    def _claim_some(
        self,
        place: SourcePlace,
        record: DataflowRecord,
        hold: Hold,
        stopping: Callable[[], bool],
    ) -> bool:
        location = BucketPrefix.parse(place.source.location)
        if why := self.buckets.allowed.refusal(location):
            raise LocationRefusedError(place.name, why)
        if self._objects is None:
            self._objects = self.buckets.make_store()
        # Taken out first: after a failure its index may differ from the stored one.
        listing = self._left.pop(place.root, None)
        # Not used if it is of a deleted dataflow of the same name, whose last fetch ended late.
        if listing is not None and listing.listed_at < record.created_at:
            listing = None
        if listing is None or listing.location != location:
            listing = self._list(place, location, self._objects, hold, stopping)
        waiting = self.store.open_claims(place.dataflow, place.name)
        unreadable = self._unreadable.setdefault(place.root, set())
        _Slice(self, place, listing, self._objects, hold, stopping, unreadable).run(waiting)
        self._reports[place.root] = listing.report()
        if listing.new:
            self._left[place.root] = listing
        elif listing.failure is not None:
            raise listing.failure
        return bool(listing.new)

    def _list(
        self,
        place: SourcePlace,
        location: BucketPrefix,
        objects: ObjectStore,
        hold: Hold,
        stopping: Callable[[], bool],
    ) -> BucketListing:
        limits, unreadable = self.buckets.limits, self._unreadable.get(place.root, set())
        listing = list_location(
            location,
            place.increments,
            store=objects,
            files=self._files,
            now=self._clock(),
            new_max=limits.new_max,
            last=unreadable,
            stopping=stopping,
            unfinished=place.source.unfinished,
        )
        self._unreadable[place.root] = unreadable.intersection(name for name, _ in listing.new)
        self._reports[place.root] = listing.report()
        if listing.complete and listing.index.is_worn(len(listing.known), limits):
            with hold():
                listing.index.renew(listing.known)
        listing.known.clear()
        return listing

    def refuse(self, place: SourcePlace, name: str, one: StoredObject, key: str) -> None:
        """Record, once, that an object is too large; after a loss of the store, record it again."""
        known = self._too_large.setdefault(place.root, set())
        if key in known:
            return
        if self.store.keyed_claim(place.dataflow, place.name, key) is None:
            identity, path = self._new_id(), file_name(name)
            message = (
                f"the object has {one.size} bytes, but at most {self.limits.file_bytes_max} are "
                "allowed, so it was not fetched. Split it into several objects, or raise "
                "CBP_FILE_BYTES_MAX and restart the service, which then fetches the object"
            )
            rejection = FileRejectedError("file_too_large", message)
            reason = rejection.reason(file=path, claim=identity)
            claim = place.new_claim(
                identity, path, one.size, "quarantined", self._clock(), reason=reason, key=key
            )
            self._claims.record(place, claim)
        known.add(key)


@dataclass(slots=True)
class _Slice:
    """Claims the new objects of a listing for some seconds; `run` is called once.

    Claimed objects are noted together (`ObjectIndex`). If a crash or a failure prevents a note, the
    next listing recognises the objects by their claims.
    """

    feed: BucketFeed
    place: SourcePlace
    listing: BucketListing
    objects: ObjectStore
    hold: Hold
    stopping: Callable[[], bool]
    unreadable: set[str]
    claimed: list[tuple[str, StoredObject]] = field(default_factory=list)
    ahead: dict[str, Future[bytes]] = field(default_factory=dict)

    def run(self, waiting: list[ClaimRecord]) -> None:
        limits, new, now = self.feed.buckets.limits, self.listing.new, self.feed.buckets.monotonic
        count = max(limits.waiting_files, self.place.source.batch.files) - len(waiting)
        size = limits.waiting_bytes - sum(claim.bytes for claim in waiting)
        begun = noted_at = now()
        try:
            while new and count > 0 and size > 0:
                if self.stopping():
                    raise IntakeStoppedError(str(self.listing.location))
                if now() - begun >= limits.slice_seconds:
                    break
                name, one = new[0]
                if self._is_claimed(name, one):
                    self.claimed.append((name, one))
                    count, size = count - 1, size - one.size
                new.popleft()
                if self.listing.failed >= limits.failed_in_a_row:
                    new.clear()
                late = now() - noted_at >= limits.noted_seconds
                if late or len(self.claimed) >= limits.noted_together:
                    self._note()
                    noted_at = now()
        except Exception:
            self._note()
            raise
        self._note()

    def _is_claimed(self, name: str, one: StoredObject) -> bool:
        listing = self.listing
        try:
            claimed = self._claim(name, one)
        except (ObjectGoneError, ObjectChangedError):
            return False  # the next listing shows what is there
        except (BucketDeniedError, BucketFailedError, ObjectSlowError) as error:
            listing.failure = listing.failure or error
            listing.failed += 1
            self.unreadable.add(name)
            return False
        listing.failed = 0
        self.unreadable.discard(name)
        return claimed

    def _claim(self, name: str, one: StoredObject) -> bool:
        """Fetch and claim an object, unless it is claimed already; durable when it returns.

        An object that is too large gets a claim with another key, so that it is fetched
        automatically after the limit was raised.
        """
        feed, place, location = self.feed, self.place, self.listing.location
        first = self._first()
        identity = [location.bucket, one.key, one.etag, one.size, one.modified.timestamp()]
        key = hashlib.sha256(json.dumps(identity).encode()).hexdigest()[:_KEY_CHARACTERS]
        if one.size > feed.limits.file_bytes_max:
            feed.refuse(place, name, one, f"too-large:{key}")
            return False
        key = f"object:{key}"
        known = feed.store.keyed_claim(place.dataflow, place.name, key, withdrawn=True)
        if known is not None and (known.reason or {}).get("code") != "file_gone":
            return True
        stream = _ObjectStream(
            self.objects, location.bucket, one, feed, stopping=self.stopping, first=first
        )
        feed.receive(place, file_name(name), cast(BinaryIO, stream), key)
        return True

    def _first(self) -> Future[bytes] | None:
        """Return the content of the next object, if it is small; begin to fetch those after it."""
        executor, limits = self.feed.buckets.executor, self.feed.buckets.limits
        if executor is None:
            return None
        bucket, new = self.listing.location.bucket, self.listing.new
        for _, one in islice(new, limits.ahead):
            if one.size <= limits.ahead_bytes and one.key not in self.ahead:
                self.ahead[one.key] = executor.submit(self.objects.read, bucket, one, 0, one.size)
        return self.ahead.pop(new[0][1].key, None)

    def _note(self) -> None:
        """Put claimed objects into the index; if that fails, it is not retried."""
        claimed, self.claimed = self.claimed, []
        if claimed:
            with self.hold():
                self.listing.index.put(claimed)


class _ObjectStream:
    """Reads one object once, block by block, each with a time limit and retries.

    No error here is an `OSError`, which would be mistaken for an error of the drop folder's disk.
    `first` is the first block, if it is being fetched ahead.
    """

    def __init__(
        self,
        store: ObjectStore,
        bucket: str,
        one: StoredObject,
        feed: BucketFeed,
        *,
        stopping: Callable[[], bool],
        first: Future[bytes] | None,
    ) -> None:
        self._store, self._bucket, self._one, self._first = store, bucket, one, first
        self._stopping, self._monotonic = stopping, feed.buckets.monotonic
        self._block_bytes = feed.buckets.limits.block_bytes
        self._what = f"s3://{bucket}/{one.key}"
        self._seconds = feed.limits.seconds_max + one.size / feed.limits.bytes_per_second_min
        self._until = self._monotonic() + self._seconds
        self._left, self._fetched, self._begun = memoryview(b""), 0, False

    def read(self, size: int) -> bytes:
        """Return up to `size` bytes; `b""` at the end.

        Raises as `ObjectStore.read`, `ObjectSlowError`, or `IntakeStoppedError`.
        """
        if not self._left and (self._fetched < self._one.size or not self._begun):
            self._left = memoryview(self._block())
        data, self._left = bytes(self._left[:size]), self._left[size:]
        return data

    def _block(self) -> bytes:
        """Fetch the next block, even of an empty object, to find out whether it still exists."""
        self._begun = True
        wanted = min(self._block_bytes, self._one.size - self._fetched)
        why = "the connection was interrupted"
        for _ in range(TRIES):
            if self._stopping():
                raise IntakeStoppedError(self._what)
            if self._monotonic() >= self._until:
                raise ObjectSlowError(self._what, self._seconds)
            try:
                data = self._fetch(wanted)
            except BucketFailedError as error:
                why = str(error.details.get("cause", why))
                continue
            if len(data) == wanted:
                self._fetched += wanted
                return data
        raise BucketFailedError(self._what, f"{why} ({TRIES} times in a row)")

    def _fetch(self, wanted: int) -> bytes:
        first, self._first = self._first, None
        if first is not None and not first.cancelled():
            return first.result()
        return self._store.read(self._bucket, self._one, self._fetched, wanted)
