"""Ports of ingestion to the outside; a simulation passes others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from cbp.engine.storage.failpoints import Faults
from cbp.engine.storage.files import Files
from controller.ingest.limits import IngestLimits
from controller.store.base import Store


@dataclass(frozen=True, slots=True)
class Ports:
    """The environment that the parts of ingestion share.

    Attributes:
        new_id: Returns a unique `[a-z0-9]+` that sorts by time.
        require_followed: `(dataflow, source)`; raises `ReplaceRefusedError` if a reader of the
            source cannot apply that records are taken back.
    """

    store: Store
    files: Files
    clock: Callable[[], datetime]
    faults: Faults
    limits: IngestLimits
    new_id: Callable[[], str]
    require_followed: Callable[[str, str], object] = lambda _dataflow, _source: None
