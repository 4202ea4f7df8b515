"""One slice of fetching: claims the new objects of a listing for some seconds, and notes them.

Claimed objects are noted together (`object_index`). What a crash, or a note that fails, leaves
unnoted is known by its claim in the next listing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, Future
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from itertools import islice

from controller.ingest.bucket_errors import (
    BucketDeniedError,
    BucketFailedError,
    ObjectChangedError,
    ObjectGoneError,
    ObjectSlowError,
)
from controller.ingest.errors import IntakeStoppedError
from controller.ingest.folder.bucket_listing import BucketListing
from controller.ingest.folder.fetch_limits import FetchLimits
from controller.ingest.folder.object_claims import ObjectClaims
from controller.ingest.folder.source_place import SourcePlace
from controller.ingest.folder.stored_object import ObjectStore, StoredObject
from controller.store.base import ClaimRecord

__all__ = ["FetchSlice", "Hold"]

Hold = Callable[[], AbstractContextManager[object]]
"""Returns a lock under which the dataflow stays registered, or raises `NotFoundError`."""


@dataclass(slots=True, kw_only=True)
class FetchSlice:
    """Claims objects of one source; `run` does it, once.

    Attributes:
        claims: Claims one object.
        objects: Has the objects.
        hold: Held while the index is written.
        stopping: Called before each object; returns whether to stop.
        monotonic: Returns seconds that never go back.
        executor: Fetches small objects ahead; `None`: none is fetched ahead.
        unreadable: Names of objects that could not be read; kept up to date.
    """

    place: SourcePlace
    listing: BucketListing
    claims: ObjectClaims
    objects: ObjectStore
    hold: Hold
    stopping: Callable[[], bool]
    monotonic: Callable[[], float]
    executor: Executor | None
    limits: FetchLimits
    unreadable: set[str]
    _claimed: list[tuple[str, StoredObject]] = field(default_factory=list)
    _ahead: dict[str, Future[bytes]] = field(default_factory=dict)

    def run(self, waiting: list[ClaimRecord]) -> None:
        """Claim objects until none is left, time is over, or enough wait to be read.

        Args:
            waiting: The claims of the source that wait already.
        """
        count = max(self.limits.waiting_files, self.place.source.batch.files) - len(waiting)
        size = self.limits.waiting_bytes - sum(claim.bytes for claim in waiting)
        begun = noted_at = self.monotonic()
        new = self.listing.new
        try:
            while new and count > 0 and size > 0 and not self._is_over(begun):
                name, one = new[0]
                if self._claim(name, one, self._first(new)):
                    self._claimed.append((name, one))
                    count, size = count - 1, size - one.size
                new.popleft()
                if self.listing.failed >= self.limits.failed_in_a_row:
                    new.clear()
                if self._is_full(noted_at):
                    self._note()
                    noted_at = self.monotonic()
        except Exception:
            self._note()
            raise
        self._note()

    def _is_over(self, begun: float) -> bool:
        if self.stopping():
            raise IntakeStoppedError(str(self.listing.location))
        return self.monotonic() - begun >= self.limits.slice_seconds

    def _is_full(self, noted_at: float) -> bool:
        """Return whether what was claimed is to be noted now."""
        late = self.monotonic() - noted_at >= self.limits.noted_seconds
        return late or len(self._claimed) >= self.limits.noted_together

    def _claim(self, name: str, one: StoredObject, first: Future[bytes] | None) -> bool:
        """Claim an object; return whether it is claimed now."""
        location, claim = self.listing.location, self.claims.claim
        try:
            claimed = claim(self.place, location, name, one, self.objects, first, self.stopping)
        except (ObjectGoneError, ObjectChangedError):
            return False  # the next listing shows what is there
        except (BucketDeniedError, BucketFailedError, ObjectSlowError) as error:
            self.listing.failure = self.listing.failure or error
            self.listing.failed += 1
            self.unreadable.add(name)
            return False
        self.listing.failed = 0
        self.unreadable.discard(name)
        return claimed

    def _first(self, new: deque[tuple[str, StoredObject]]) -> Future[bytes] | None:
        """Return the content of the next object, if it is small; begin to fetch those behind it."""
        if self.executor is None:
            return None
        bucket, read = self.listing.location.bucket, self.objects.read
        for _, one in islice(new, self.limits.ahead):
            if one.size <= self.limits.ahead_bytes and one.key not in self._ahead:
                self._ahead[one.key] = self.executor.submit(read, bucket, one, 0, one.size)
        return self._ahead.pop(new[0][1].key, None)

    def _note(self) -> None:
        """Put what was claimed into the index; if that fails, it is not tried again."""
        claimed, self._claimed = self._claimed, []
        if claimed:
            with self.hold():
                self.listing.index.put(claimed)
