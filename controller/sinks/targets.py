"""Makes the target of a sink, after checking that its place is allowed.

    CBP_SINK_ROOTS    folders below which sinks write; by default `<root>/sinks`
    CBP_SINK_SECRETS  folder of the secrets that sign webhooks; by default `<root>/secrets`

Addresses of webhooks are checked when they are dialled (`controller.outbound`).
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock

import httpx
import pyarrow as pa

from cbp.engine.read.increments import column_schema
from cbp.engine.storage.failpoints import Faults
from cbp.engine.storage.files import Files
from cbp.errors import Mistake
from cbp.model.dataflow.dataflow import Dataflow
from cbp.model.dataflow.sinks import SinkNode
from controller.allowed_folders import AllowedFolders
from controller.outbound.addresses import AddressRules
from controller.outbound.web_client import outbound_client
from controller.sinks.delta_table import GENERATION, INCREMENT, DeltaAppend, DeltaMirror
from controller.sinks.errors import SinkPlaceError, SinkSecretError
from controller.sinks.increment_files import IncrementFiles
from controller.sinks.target import Target
from controller.sinks.webhook import Webhook
from controller.store.base import DataflowRecord

_SECRET_BYTES_MAX = 4096


@dataclass(frozen=True, slots=True)
class SinkPlaces:
    """The allowed targets.

    Relative paths begin at the first of `roots`. No sink writes to the folders `taken`, which are
    the service's own.
    """

    roots: tuple[Path, ...]
    secrets: Path
    taken: tuple[Path, ...] = ()

    def mistakes(self, dataflow: Dataflow) -> Iterator[Mistake]:
        """Yield the targets of a dataflow's sinks that are not allowed."""
        for sink in dataflow.sinks.values():
            if sink.path and (why := self._allowed.refusal(sink.path)):
                yield Mistake("sink_place_refused", f"sinks.{sink.name}.path", why)

    def folder(self, sink: SinkNode) -> tuple[str, str]:
        """Return the folder of a sink and its root, links followed; raises `SinkPlaceError`."""
        allowed = self._allowed
        if why := allowed.refusal(sink.path):
            raise SinkPlaceError(sink.path, why)
        folder = allowed.locate(sink.path)
        return folder, allowed.root_of(folder)

    def secret(self, sink: SinkNode) -> bytes | None:
        """Return the secret that signs a webhook's requests; `None` if they are not signed.

        Raises `SinkSecretError` if it cannot be read, or if other users can read it.
        """
        if not sink.secret:
            return None
        path = self.secrets / sink.secret
        try:
            status = path.stat()
            if status.st_uid == os.geteuid() and stat.S_IMODE(status.st_mode) & 0o077:
                raise SinkSecretError(sink.secret, str(path), "other users can read the file")
            with path.open("rb") as file:
                value = file.read(_SECRET_BYTES_MAX).strip()
        except OSError as error:
            why = error.strerror or str(error)
            raise SinkSecretError(sink.secret, str(path), why) from error
        if not value:
            raise SinkSecretError(sink.secret, str(path), "the file is empty")
        return value

    @property
    def _allowed(self) -> AllowedFolders:
        return AllowedFolders("CBP_SINK_ROOTS", self.roots, self.taken)


@dataclass(frozen=True, slots=True)
class Targets:
    """Makes targets; safe to use from several threads.

    `cleaned` has the folders from which this process has removed the drafts of killed writers.
    """

    places: SinkPlaces
    files: Files
    faults: Faults
    service_url: str
    rules: AddressRules
    cleaned: set[str] = field(default_factory=set)
    lock: Lock = field(default_factory=Lock)
    http: list[httpx.Client] = field(default_factory=list)

    def make(
        self, record: DataflowRecord, dataflow: Dataflow, sink: SinkNode, choice: str
    ) -> Target:
        """Return the target of a sink; raises `SinkPlaceError` or `SinkSecretError`."""
        names = (record.name, sink.name, self.faults)
        if sink.to == "webhook":
            secret = self.places.secret(sink)
            return Webhook(*names, sink.url, secret, self.service_url, self._client())
        place = (sink.reads, *self.places.folder(sink))
        if sink.view:
            schema, key = _view(dataflow, sink.view)
            return DeltaMirror(*names, *place, schema, self.files, choice, key)
        schema = column_schema(dataflow.flows()[sink.flow])
        if sink.to == "delta":
            for name in (INCREMENT, GENERATION):
                schema = schema.append(pa.field(name, pa.int64()))
            return DeltaAppend(*names, *place, schema, self.files, choice)
        target = IncrementFiles(*names, *place, schema, self.files, sink.to)
        with self.lock:
            first = target.folder not in self.cleaned
            self.cleaned.add(target.folder)
        if first and os.path.isdir(target.folder):  # drafts of a killed writer
            self.files.remove_temporaries(target.folder)
        return target

    def _client(self) -> httpx.Client:
        """Return the client of all webhooks, which is made when it is first needed."""
        with self.lock:
            if not self.http:
                self.http.append(outbound_client(self.rules))
            return self.http[0]


def _view(dataflow: Dataflow, name: str) -> tuple[pa.Schema, tuple[str, ...]]:
    """Return the columns of a view, and those that name a record."""
    translator, spec = dataflow.tables()[name]
    key = dict.fromkeys((*translator.key_of(spec).names, *spec.second_key))
    return column_schema(spec.schema), tuple(key)
