"""Makes the target of a sink, after checking that its place is allowed."""

from __future__ import annotations

from dataclasses import dataclass, field
from threading import Lock

import httpx
import pyarrow as pa

from cbp.engine.read.increments import column_schema
from cbp.engine.storage.failpoints import Faults
from cbp.engine.storage.files import Files
from cbp.model.dataflow.dataflow import Dataflow
from cbp.model.dataflow.sinks import SinkNode
from controller.outbound.addresses import AddressRules
from controller.outbound.web_client import outbound_client
from controller.sinks.delta_table import GENERATION, INCREMENT, DeltaAppend, DeltaMirror
from controller.sinks.increment_files import IncrementFiles
from controller.sinks.places import SinkPlaces
from controller.sinks.target import Target
from controller.sinks.webhook import Webhook
from controller.store.base import DataflowRecord


@dataclass(frozen=True, slots=True)
class Targets:
    """Makes targets; safe to use from several threads.

    Attributes:
        cleaned: Folders from which this process has removed the drafts of killed writers.
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
        if sink.to == "webhook":
            secret = self.places.secret(sink)
            given = (record.name, sink.name, sink.url, secret, self.service_url, self._client())
            return Webhook(*given, self.faults)
        folder, root = self.places.folder(sink)
        names = (record.name, sink.name, sink.reads, folder, root)
        if sink.view:
            schema, key = _view(dataflow, sink.view)
            return DeltaMirror(*names, schema, choice, self.files, self.faults, key)
        schema = column_schema(dataflow.flows()[sink.flow])
        if sink.to == "delta":
            for name in (INCREMENT, GENERATION):
                schema = schema.append(pa.field(name, pa.int64()))
            return DeltaAppend(*names, schema, choice, self.files, self.faults)
        target = IncrementFiles(*names, sink.to, schema, self.files, self.faults)
        with self.lock:
            first = folder not in self.cleaned
            self.cleaned.add(folder)
        if first:
            target.remove_drafts()
        return target

    def _client(self) -> httpx.Client:
        """Return the client of all webhooks; it is made when the first one is at work."""
        with self.lock:
            if not self.http:
                self.http.append(outbound_client(self.rules))
            return self.http[0]


def _view(dataflow: Dataflow, name: str) -> tuple[pa.Schema, tuple[str, ...]]:
    """Return the columns of a view, and those that name a record."""
    translator, spec = dataflow.tables()[name]
    key = dict.fromkeys((*translator.key_of(spec).names, *spec.second_key))
    return column_schema(spec.schema), tuple(key)
