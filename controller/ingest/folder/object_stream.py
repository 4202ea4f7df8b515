"""An object as a stream: fetched block by block, with a limit of time, and each block tried again.

A cut connection costs one block. All blocks are of one version of the object: each request names
its ETag. No error here is an `OSError`, which would be taken for one of the drop folder's disk.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future

from controller.ingest.bucket_errors import BucketFailedError, ObjectSlowError
from controller.ingest.errors import IntakeStoppedError
from controller.ingest.folder.stored_object import ObjectStore, StoredObject
from controller.ingest.limits import IngestLimits

__all__ = ["ObjectStream"]

TRIES = 3


class ObjectStream:
    """Reads one object once, from its begin to its end.

    Args:
        store: Has the object.
        bucket: Its bucket.
        one: The object, as a listing showed it.
        limits: `seconds_max`, and a second more for each `bytes_per_second_min`.
        stopping: Called before each block; returns whether to stop.
        monotonic: Returns seconds that never go back.
        block_bytes: What one request fetches.
        first: The first block, if somebody is fetching it already.
    """

    def __init__(
        self,
        store: ObjectStore,
        bucket: str,
        one: StoredObject,
        *,
        limits: IngestLimits,
        stopping: Callable[[], bool],
        monotonic: Callable[[], float],
        block_bytes: int,
        first: Future[bytes] | None = None,
    ) -> None:
        self._store, self._bucket, self._one, self._first = store, bucket, one, first
        self._stopping, self._monotonic, self._block_bytes = stopping, monotonic, block_bytes
        self._what = f"s3://{bucket}/{one.key}"
        self._seconds = limits.seconds_max + one.size / limits.bytes_per_second_min
        self._until = monotonic() + self._seconds
        self._left, self._fetched, self._begun = memoryview(b""), 0, False

    def read(self, size: int) -> bytes:
        """Return up to `size` bytes; `b""` at the end.

        Raises:
            ObjectGoneError, ObjectChangedError: It is not any more what was listed.
            ObjectSlowError, BucketDeniedError, BucketFailedError: See the errors.
            IntakeStoppedError: `stopping` returned true.
        """
        if not self._left and (self._fetched < self._one.size or not self._begun):
            self._left = memoryview(self._block())
        data, self._left = bytes(self._left[:size]), self._left[size:]
        return data

    def _block(self) -> bytes:
        """Fetch the next block; an empty object is asked for once, since it may be gone."""
        self._begun = True
        wanted = min(self._block_bytes, self._one.size - self._fetched)
        why = "the connection was cut"
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
