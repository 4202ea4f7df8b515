"""Ports of ingestion to the outside; a simulation passes others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from cbp.engine.storage.failpoints import Faults
from cbp.engine.storage.files import Files
from controller.ingest.limits import IngestLimits
from controller.store.base import Store


class RequireFollowed(Protocol):
    """Checks that the readers of a source can apply a retraction of records."""

    def __call__(self, dataflow: str, source: str, /, *, rebuild: bool) -> object:
        """Raise `ReplaceRefusedError` if a reader cannot; with `rebuild` it may wait for one."""
        ...


def allow_all(dataflow: str, source: str, /, *, rebuild: bool) -> None:
    """Refuse nothing."""


@dataclass(frozen=True, slots=True)
class Ports:
    """The environment that the parts of ingestion share; ids are hexadecimal, and sort by time."""

    store: Store
    files: Files
    clock: Callable[[], datetime]
    faults: Faults
    limits: IngestLimits
    new_id: Callable[[], str]
    require_followed: RequireFollowed = allow_all
