"""What a source needs of a service that has buckets: to list, and to read a part of an object.

Nothing here writes, moves or deletes an object.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

__all__ = ["ObjectStore", "StoredObject"]


@dataclass(frozen=True, slots=True)
class StoredObject:
    """One object, as a listing shows it.

    Attributes:
        key: Its whole name in the bucket.
        etag: Changes when the object is written anew, as a rule; the content decides.
        modified: When it was written, by the clock of the service; only compared for equality.
    """

    key: str
    etag: str
    size: int
    modified: datetime


class ObjectStore(Protocol):
    """A service that has buckets; methods may be called from several threads.

    Every method raises the errors of `controller.ingest.bucket_errors`, and no others.
    """

    def pages(self, bucket: str, prefix: str) -> Iterator[Sequence[StoredObject]]:
        """Yield the objects whose keys begin with a prefix, a page at a time."""

    def read(self, bucket: str, one: StoredObject, offset: int, size: int) -> bytes:
        """Return `size` bytes of an object; fewer only if the connection was cut.

        Args:
            bucket: The bucket.
            one: As a listing showed it.
            offset: Where the part begins.
            size: 0 for an empty object.

        Raises:
            ObjectGoneError, ObjectChangedError: It is not any more what the listing showed.
        """
