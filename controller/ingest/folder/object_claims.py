"""Claims one object: it is fetched like an upload, or refused unfetched since it is too large.

A claim carries a key made of what the listing showed. So an object that was claimed and not noted
(`object_index`), since a crash came between, is known by it, also if a roll-back dropped it since:
it does not come again by itself. One whose file was lost before it was read does.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import BinaryIO, cast

from cbp.model.dataflow.source_location import BucketPrefix
from controller.ingest.folder.claims import Claims
from controller.ingest.folder.fetch_limits import FetchLimits
from controller.ingest.folder.object_names import file_name
from controller.ingest.folder.object_stream import ObjectStream
from controller.ingest.folder.source_place import SourcePlace
from controller.ingest.folder.stored_object import ObjectStore, StoredObject
from controller.ingest.limits import IngestLimits
from controller.ingest.rejection import FileRejectedError
from controller.ingest.uploads import Uploads
from controller.store.base import ClaimRecord, Store

__all__ = ["ObjectClaims"]

_KEY_CHARACTERS = 40


@dataclass(frozen=True, slots=True)
class ObjectClaims:
    """Claims objects; methods may be called from several threads."""

    store: Store
    uploads: Uploads
    claims: Claims
    limits: IngestLimits
    fetch_limits: FetchLimits
    clock: Callable[[], datetime]
    monotonic: Callable[[], float]
    new_id: Callable[[], str]
    _refused: set[tuple[Path, str]] = field(default_factory=set)

    def claim(
        self,
        place: SourcePlace,
        location: BucketPrefix,
        name: str,
        one: StoredObject,
        objects: ObjectStore,
        first: Future[bytes] | None,
        stopping: Callable[[], bool],
    ) -> bool:
        """Fetch and claim an object, unless it is claimed already; durable when it returns.

        Args:
            place: The source.
            location: Its location.
            name: The object's key behind the location.
            one: The object, as it was listed.
            objects: Has the object.
            first: Its first block, if somebody is fetching it already.
            stopping: Called often; returns whether to stop.

        Returns:
            Whether it is claimed. It is not if it is too large: that has a claim of its own,
            and after the limit was raised the object comes by itself.

        Raises:
            OperatingError: As `ObjectStream.read` and `Uploads.receive`.
        """
        key = _key_of(location, one)
        if one.size > self.limits.file_bytes_max:
            self._refuse(place, name, one, f"too-large:{key}")
            return False

        key = f"object:{key}"
        known = self.store.keyed_claim(place.dataflow, place.name, key, withdrawn=True)
        if known is not None and (known.reason or {}).get("code") != "file_gone":
            return True
        stream = ObjectStream(
            objects,
            location.bucket,
            one,
            limits=self.limits,
            stopping=stopping,
            monotonic=self.monotonic,
            block_bytes=self.fetch_limits.block_bytes,
            first=first,
        )
        self.uploads.receive_as(place, file_name(name), cast(BinaryIO, stream), key)
        return True

    def _refuse(self, place: SourcePlace, name: str, one: StoredObject, key: str) -> None:
        """Record, once, that an object is too large; a store that was lost gets it again."""
        if (place.root, key) in self._refused:
            return
        if self.store.keyed_claim(place.dataflow, place.name, key) is None:
            identity, path = self.new_id(), file_name(name)
            message = (
                f"the object has {one.size} bytes, and {self.limits.file_bytes_max} are allowed; "
                "it was not fetched. Write it in several objects, or raise CBP_FILE_BYTES_MAX and "
                "restart the service: then it comes by itself"
            )
            rejection = FileRejectedError(rule="file_too_large", message=message)
            claim = ClaimRecord(
                id=identity,
                dataflow=place.dataflow,
                source=place.name,
                sequence=0,
                path=path,
                bytes=one.size,
                status="quarantined",
                created_at=self.clock(),
                reason=rejection.reason(file=path, claim=identity),
                key=key,
            )
            self.claims.record(place, claim)
        self._refused.add((place.root, key))


def _key_of(location: BucketPrefix, one: StoredObject) -> str:
    """Return what names an object as it was listed, short enough for any store."""
    identity = [location.bucket, one.key, one.etag, one.size, one.modified.timestamp()]
    return hashlib.sha256(json.dumps(identity).encode()).hexdigest()[:_KEY_CHARACTERS]
