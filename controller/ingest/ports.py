"""Ports of ingestion to the outside; a simulation passes others."""

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
    """

    store: Store
    files: Files
    clock: Callable[[], datetime]
    faults: Faults
    limits: IngestLimits
    new_id: Callable[[], str]
