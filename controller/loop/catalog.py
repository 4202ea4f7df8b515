"""Compiled dataflows, by name: what a stored document means, kept until it changes.

Which stages run together was chosen at registration: the store has a row for each that
leads, and what is compiled anew, by whatever version, never chooses again.

Invariant: what is returned was compiled from the record that the store holds now;
a name that was deleted and registered again is compiled again
(tests/controller/test_operating.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from threading import Lock

import structlog

from cbp.errors import CodeDriftedError, NotFoundError
from cbp.model.dataflow import Dataflow, StageNode
from cbp.model.drift import drift, other_code
from cbp.model.fusion import PhysicalStage, physical_stages
from cbp.model.shape import shape_of
from controller.loop.description import Descriptions
from controller.registry import Registry
from controller.store.base import DataflowRecord, Store

__all__ = ["Catalog"]

_log = structlog.get_logger(__name__)


class Catalog:
    """Compiles documents and remembers the result; safe to use from several threads."""

    def __init__(self, store: Store, registry: Registry, descriptions: Descriptions) -> None:
        self._store, self._registry = store, registry
        self._descriptions = descriptions
        self._lock = Lock()
        self._compiled: dict[str, tuple[tuple[int, datetime], Dataflow]] = {}
        self._units: dict[str, tuple[Dataflow, Mapping[str, PhysicalStage]]] = {}
        self._compared: dict[str, tuple[Dataflow, CodeDriftedError | None]] = {}

    def compiled(self, record: DataflowRecord) -> Dataflow:
        """Return the dataflow of a record.

        Raises:
            DataflowInvalidError: If the document names what is no longer installed.
        """
        made_from = record.version, record.created_at
        with self._lock:
            found = self._compiled.get(record.name)
        if found is not None and found[0] == made_from:
            return found[1]
        dataflow = self._registry.compile(record.document)
        with self._lock:
            self._compiled[record.name] = made_from, dataflow
        return dataflow

    def units(self, record: DataflowRecord) -> Mapping[str, PhysicalStage]:
        """Return the physical stages of a dataflow by their leaders.

        Raises:
            DataflowInvalidError: See `compiled`.
            InvariantError: If the store's stages are not those of the document.
        """
        dataflow = self.compiled(record)
        with self._lock:
            found = self._units.get(record.name)
        if found is not None and found[0] is dataflow:
            return found[1]
        leaders = {stage.stage for stage in self._store.stages(record.name)}
        units = physical_stages(dataflow, leaders)
        with self._lock:
            self._units[record.name] = dataflow, units
        return units

    def require_same(self, record: DataflowRecord) -> None:
        """Refuse to run, or to search a state by, code that has drifted from its version.

        Raises:
            CodeDriftedError: With every difference.
            DataflowInvalidError: See `compiled`.
            InvariantError: If the description of the version cannot be read.
        """
        dataflow = self.compiled(record)
        with self._lock:
            found = self._compared.get(record.name)
        if found is None or found[0] is not dataflow:
            found = dataflow, self._drifted(record, dataflow)
            with self._lock:
                self._compared[record.name] = found
        if found[1] is not None:
            raise found[1]

    def _drifted(self, record: DataflowRecord, dataflow: Dataflow) -> CodeDriftedError | None:
        registered = self._descriptions.of(record).shape
        if registered is None:
            return None  # from before shapes were kept
        installed = shape_of(dataflow)
        mistakes = drift(registered, installed)
        if mistakes:
            return CodeDriftedError(record.name, record.version, mistakes)
        if others := other_code(registered, installed):
            _log.warning("code.upgraded", dataflow=record.name, stages=others)
        return None

    def leader(self, name: str, stage: str) -> str:
        """Return the stage that another one, or itself, runs with; raises `NotFoundError`."""
        record, _ = self.stage(name, stage)
        return next(n for n, unit in self.units(record).items() if stage in unit.names)

    def find(self, name: str) -> tuple[DataflowRecord, Dataflow]:
        """Return a registered dataflow with its record; raises `NotFoundError`."""
        record = self._store.dataflow(name)
        return record, self.compiled(record)

    def stage(self, name: str, stage: str) -> tuple[DataflowRecord, StageNode]:
        """Return one stage with the record of its dataflow; raises `NotFoundError`."""
        record, dataflow = self.find(name)
        if stage not in dataflow.stages:
            raise NotFoundError(kind="stage", name=f"{name}.{stage}")
        return record, dataflow.stages[stage]

    def forget(self, name: str) -> None:
        """Drop what is kept about a dataflow that was deleted."""
        with self._lock:
            self._compiled.pop(name, None)
            self._units.pop(name, None)
            self._compared.pop(name, None)
