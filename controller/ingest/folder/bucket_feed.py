"""Claims the objects of a source's location: each is fetched once, and goes the way of an upload.

    listed -> new by its ETag? -> fetched into a hidden part -> claimed (`Uploads.receive`) -> noted

What becomes of a claimed object is decided as for every file: it is an increment, a duplicate or a
case of quarantine. An object that was written anew under its key is new, and its content decides
(`identity`). Objects are claimed in the order of their keys in a listing; nothing in the bucket is
changed. There is no settle time: S3 shows an object only when it is whole.

Guaranteed: an object that cannot be read does not stop those behind it. A large backlog does not
fill the disk: fetching waits while many files wait in `claimed` (`FetchLimits`).
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor
from datetime import datetime
from pathlib import Path

from cbp.engine.storage.files import Files
from cbp.model.dataflow.source_location import BucketPrefix
from controller.ingest.bucket_errors import LocationRefusedError
from controller.ingest.folder.bucket_listing import BucketListing, BucketReport, list_location
from controller.ingest.folder.fetch_limits import FetchLimits
from controller.ingest.folder.fetch_slice import FetchSlice, Hold
from controller.ingest.folder.locations import AllowedLocations
from controller.ingest.folder.object_claims import ObjectClaims
from controller.ingest.folder.source_place import SourcePlace
from controller.ingest.folder.stored_object import ObjectStore
from controller.store.base import Store

__all__ = ["BucketFeed"]


class BucketFeed:
    """Claims objects; the caller makes one call at a time for each source.

    Args:
        claims: Claims one object.
        clock: Returns an aware time in UTC.
        monotonic: Returns seconds that never go back.
        allowed: The locations that the operator allows.
        make_store: Makes what reads buckets, when it is first needed.
        executor: Fetches small objects ahead, a thread for each; `None`: none is fetched ahead.
        limits: What a fetch may take.
    """

    def __init__(
        self,
        *,
        store: Store,
        files: Files,
        claims: ObjectClaims,
        clock: Callable[[], datetime],
        monotonic: Callable[[], float],
        allowed: AllowedLocations,
        make_store: Callable[[], ObjectStore],
        executor: Executor | None,
        limits: FetchLimits,
    ) -> None:
        self._store, self._files, self._claims = store, files, claims
        self._clock, self._monotonic, self._allowed = clock, monotonic, allowed
        self._make_store, self._executor, self._limits = make_store, executor, limits
        self._objects: ObjectStore | None = None
        self._left: dict[Path, BucketListing] = {}
        self._reports: dict[Path, BucketReport] = {}
        # Objects that could not be read are tried last, so that those behind them come.
        self._unreadable: dict[Path, set[str]] = {}

    def claim_some(self, place: SourcePlace, hold: Hold, stopping: Callable[[], bool]) -> bool:
        """Claim new objects for some seconds, after a listing if nothing is left of the last one.

        Args:
            place: The source.
            hold: Held while the index is written.
            stopping: Called often; returns whether to stop.

        Returns:
            Whether objects are left that can be claimed soon.

        Raises:
            OperatingError: One of `bucket.errors`, or as `Uploads.receive`.
            FileDamagedError, FileLostError: The index cannot be read.
            IntakeStoppedError: `stopping` returned true.
            LogConflictError: Another controller takes in objects of this source.
            NotFoundError: The dataflow was deleted meanwhile.
        """
        location = BucketPrefix.parse(place.source.location)
        if why := self._allowed.refusal(location):
            raise LocationRefusedError(place.name, why)
        if self._objects is None:
            self._objects = self._make_store()
        # Whatever fails: the index in memory may not be the stored one any more.
        listing = self._left.pop(place.root, None)
        if listing is None or listing.location != location:
            listing = self._list(place, location, self._objects, hold, stopping)
        one = FetchSlice(
            place=place,
            listing=listing,
            claims=self._claims,
            objects=self._objects,
            hold=hold,
            stopping=stopping,
            monotonic=self._monotonic,
            executor=self._executor,
            limits=self._limits,
            unreadable=self._unreadable[place.root],
        )
        one.run(self._store.open_claims(place.dataflow, place.name))
        self._reports[place.root] = listing.report()
        if listing.new:
            self._left[place.root] = listing
        elif listing.failure is not None:
            raise listing.failure
        return bool(listing.new)

    def report(self, place: SourcePlace) -> BucketReport | None:
        """Return what is known of a source's location; `None` if it has none."""
        location = place.source.location
        return self._reports.get(place.root, BucketReport(location)) if location else None

    def forget(self, root: Path) -> None:
        """Forget the last listing of a source, by its folder: another instance may have led."""
        self._left.pop(root, None)

    def _list(
        self,
        place: SourcePlace,
        location: BucketPrefix,
        objects: ObjectStore,
        hold: Hold,
        stopping: Callable[[], bool],
    ) -> BucketListing:
        """List a location; make many records of the index one."""
        unreadable = self._unreadable.get(place.root, set())
        listing = list_location(
            location,
            place.increments,
            store=objects,
            files=self._files,
            now=self._clock(),
            new_max=self._limits.new_max,
            last=unreadable,
            stopping=stopping,
            unfinished=place.source.unfinished,
        )
        self._unreadable[place.root] = unreadable.intersection(name for name, _ in listing.new)
        self._reports[place.root] = listing.report()
        if listing.complete and listing.index.is_worn(len(listing.known), self._limits):
            with hold():
                listing.index.renew(listing.known)
        listing.known.clear()
        return listing
