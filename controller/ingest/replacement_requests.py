"""Requests to replace a file, or to take one back: each becomes a claim, like an upload.

The intake makes the increment (`controller.ingest.replacement`). A file that replaces
another has a key that says so, a retraction is an empty file with a key of its own; `same_as` of
the claim says who asked, and why.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable
from typing import BinaryIO

from cbp.errors import NotFoundError
from cbp.model.dataflow.dataflow import Dataflow
from controller.ingest.folder.source_place import SourcePlace, evidence
from controller.ingest.identity import replacement_key, retraction_key
from controller.ingest.intake import Intake
from controller.ingest.quarantine import Author
from controller.ingest.replacement import RETRACTED, Compared
from controller.ingest.uploads import Uploads
from controller.store.base import ClaimRecord, DataflowRecord, Store, Uploaded

__all__ = ["ReplacementRequests"]


class ReplacementRequests:
    """Takes requests; methods may be called from several threads.

    Args:
        open_place: Returns the place of a source that takes in files.
        called: Is given the place and what was claimed, so that it is taken in soon.
    """

    def __init__(
        self,
        store: Store,
        uploads: Uploads,
        intake: Intake,
        open_place: Callable[[DataflowRecord, Dataflow, str], SourcePlace],
        called: Callable[[SourcePlace, Uploaded], Uploaded],
        new_id: Callable[[], str],
    ) -> None:
        self._store, self._uploads, self._intake = store, uploads, intake
        self._open_place, self._called, self._new_id = open_place, called, new_id

    def ask(
        self,
        record: DataflowRecord,
        dataflow: Dataflow,
        source: str,
        name: str,
        stream: BinaryIO | None,
        author: Author,
        key: str = "",
    ) -> Uploaded:
        """Receive a file that replaces the one of its name, or take that one back.

        The next scan makes an increment of the difference. The caller has made sure that the
        readers of the source can follow.

        Args:
            record: The dataflow as registered.
            dataflow: The same dataflow, checked.
            source: Name of one of its sources.
            name: The name of both files.
            stream: The new file, read to its end; `None`: the earlier one is taken back.
            author: The person or token that asks, and the reason.
            key: Identifies the request, as for an upload.

        Raises:
            NotFoundError: There is no such source, or no file of this name counts.
            OperatingError: As for an upload.
        """
        place = self._open_place(record, dataflow, source)
        self._earlier(place, name)
        # Hashed, so that it fits into a column of the store with what stands before it.
        number = hashlib.sha256(key.encode()).hexdigest() if key else self._new_id()
        unique = retraction_key(number) if stream is None else replacement_key(number)
        asked = {"who": author.by, "why": author.why}
        content = io.BytesIO() if stream is None else stream
        path = evidence(name)
        done = self._uploads.receive_as(place, path, content, unique, asked=asked)
        return self._called(place, done)

    def compare(
        self,
        record: DataflowRecord,
        dataflow: Dataflow,
        source: str,
        name: str,
        stream: BinaryIO | None,
    ) -> Compared:
        """Return what `ask` would change; changes nothing. Arguments and errors as there."""
        place = self._open_place(record, dataflow, source)
        earlier = self._earlier(place, name)
        key = retraction_key("") if stream is None else replacement_key("")
        content = io.BytesIO() if stream is None else stream
        with self._uploads.held(place, evidence(name), content, key) as (claim, path):
            made = self._intake.compare(place, claim, path, earlier.id)
        return Compared.of(made, dataflow, source)

    def _earlier(self, place: SourcePlace, name: str) -> ClaimRecord:
        """Return the claim of the file that counts under a name; raises `NotFoundError`."""
        path = evidence(name)
        claim = self._store.named_claims(place.dataflow, place.name, [path]).get(path)
        if claim is None or (claim.same_as or {}).get("by") == RETRACTED:
            hint = f"`cbp claims {place.dataflow}` lists what was taken in"
            raise NotFoundError(kind="file", name=f"{place.name}/{name}", hint=hint)
        return claim
