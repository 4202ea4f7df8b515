"""Parked runs: prepared and recorded runs that could not be published or committed yet.

An intention is the commit point, so a parked run is never a failed run. Its stage starts nothing
until the run is finished, and shows the reason.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass

from cbp.model.dataflow.dataflow import StageNode
from cbp.model.run.intention import Intention
from cbp.model.schedule.backoff import Rest
from controller.loop.runs.in_flight import StageId
from controller.store.base import DataflowRecord

__all__ = ["Parked", "ParkedRuns"]


@dataclass(frozen=True, slots=True)
class Parked:
    """A prepared run that could not be finished yet.

    Attributes:
        rest: The pause before the next try; `None` means not until the stage is resumed.
        tries: How often finishing it failed.
    """

    record: DataflowRecord
    node: StageNode
    intention: Intention
    because: str
    tries: int
    rest: Rest | None

    @property
    def id(self) -> StageId:
        """The dataflow and the stage."""
        return self.record.name, self.node.name

    @property
    def reason(self) -> str:
        """Why the stage waits, in words."""
        when = "" if self.rest is None else f", tries again at {self.rest.end:%H:%M:%S} UTC"
        return f"finishes epoch {self.intention.epoch}{when}: {self.because}"


class ParkedRuns:
    """The parked runs, at most one for each stage; safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._parked: dict[StageId, Parked] = {}

    def all(self) -> dict[StageId, Parked]:
        """Return the parked run of each stage that has one."""
        with self._lock:
            return dict(self._parked)

    def put(self, parked: Parked) -> None:
        """Keep a run that is to be finished later."""
        with self._lock:
            self._parked[parked.id] = parked

    def remove(self, stage: StageId) -> None:
        """Drop the parked run of a stage, if there is one: it is finished."""
        with self._lock:
            self._parked.pop(stage, None)

    def forget(self, dataflow: str) -> None:
        """Drop the parked runs of a dataflow."""
        with self._lock:
            for key in [key for key in self._parked if key[0] == dataflow]:
                del self._parked[key]

    def clear(self) -> None:
        """Drop all: another term begins."""
        with self._lock:
            self._parked.clear()
