"""Compiled dataflows: a catalog of them, by name; each is kept until its document changes.

Registration chose which stages run together: the store has a row for each leading stage. A later
compilation, by any version of the service, never chooses again.

A dataflow whose loaded code is not that of its version is compiled again once translator files have
changed, since the right code may now be on disk: the old text was saved again, or another instance
registered the new text.

Invariant: the result was compiled from the record that the store holds now; a name that was
deleted and registered again is compiled again (tests/controller/loop/operations/test_operating.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from threading import Lock

import structlog

from cbp.errors import CbpError, CodeDriftedError, DataflowInvalidError, Mistake, NotFoundError
from cbp.model.dataflow.dataflow import Dataflow, StageNode
from cbp.model.plan.fusion import PhysicalStage, physical_stages
from cbp.model.version.code_drift import drift, is_code_of, unfingerprinted
from cbp.model.version.dataflow_shape import DataflowShape, shape_of
from controller.loop.records.version_log import Descriptions
from controller.registry import Registry
from controller.store.base import DataflowRecord, Store

Units = Mapping[str, PhysicalStage]
"""The leading stages, each with those that run with it."""

_UNKNOWN = -1

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _Compared:
    """How the loaded code differs from the registered code.

    Attributes:
        loads: How often translator files had been loaded by then; `_UNKNOWN` for a dataflow that
            may have been compiled earlier.
    """

    dataflow: Dataflow
    drifted: CodeDriftedError | None
    other_tables: CodeDriftedError | None
    adopted: bool
    loads: int

    @classmethod
    def of(
        cls,
        record: DataflowRecord,
        dataflow: Dataflow,
        registered: DataflowShape | None,
        loads: int,
    ) -> _Compared:
        """Compare; `registered` is `None` for a dataflow of a release that kept no shapes."""
        if registered is None:
            return cls(dataflow, None, None, adopted=False, loads=loads)
        loaded = shape_of(dataflow)
        drifts = (drift(registered, loaded), drift(registered, loaded, code=False))
        drifted, other_tables = (
            CodeDriftedError(record.name, record.version, mistakes) if mistakes else None
            for mistakes in drifts
        )
        return cls(dataflow, drifted, other_tables, not unfingerprinted(registered), loads)

    @property
    def stages(self) -> frozenset[str]:
        """What differs, as the errors name it."""
        return frozenset(one.where for one in (self.drifted.mistakes if self.drifted else ()))


class Catalog:
    """Compiles documents and keeps the result; safe to use from several threads."""

    def __init__(self, store: Store, registry: Registry, descriptions: Descriptions) -> None:
        self._store, self._registry = store, registry
        self._descriptions = descriptions
        self._lock = Lock()
        self._compiled: dict[str, tuple[tuple[int, datetime], Dataflow]] = {}
        self._never_run: dict[str, Mapping[str, Mistake]] = {}
        self._units: dict[str, tuple[Dataflow, Units]] = {}
        self._compared: dict[str, _Compared] = {}

    def compiled(self, record: DataflowRecord) -> Dataflow:
        """Return the dataflow of a record; raises `DataflowInvalidError`."""
        made_from = record.version, record.created_at
        with self._lock:
            cached = self._compiled.get(record.name)
        if cached is not None and cached[0] == made_from:
            return cached[1]
        dataflow = self._registry.compile_registered(record.document, self._fits(record))
        never_run = dataflow.never_run()
        with self._lock:
            self._compiled[record.name] = made_from, dataflow
            self._never_run[record.name] = never_run
        return dataflow

    def first_position(self, record: DataflowRecord) -> int:
        """Return the number of the position at which the record's version began; 0 for version 1.

        A roll-back cannot go further back, since earlier runs used other code.
        """
        begins, _ = self._descriptions.begins(record)
        return sum(begins.values())

    def never_run(self, record: DataflowRecord) -> Mapping[str, Mistake]:
        """Return the stages that wait for themselves; only earlier releases registered any."""
        self.compiled(record)
        with self._lock:
            return self._never_run.get(record.name, {})

    def units(self, record: DataflowRecord) -> Units:
        """Return the physical stages of a dataflow by their leading stages."""
        dataflow = self.compiled(record)
        with self._lock:
            cached = self._units.get(record.name)
        if cached is not None and cached[0] is dataflow:
            return cached[1]
        leaders = {stage.stage for stage in self._store.stages(record.name)}
        units = physical_stages(dataflow, leaders)
        with self._lock:
            self._units[record.name] = dataflow, units
        return units

    def require_same(self, record: DataflowRecord) -> None:
        """Raise `CodeDriftedError` if the loaded code differs from the code of the version."""
        if (error := self._compare(record).drifted) is not None:
            raise error

    def drifted(self, record: DataflowRecord) -> Mapping[str, CodeDriftedError]:
        """Return the leading stages that may not run, since their code or a member's has drifted.

        The other stages continue: they are unchanged, and read the same columns as before.

        Raises:
            CodeDriftedError: If tables, keys or inputs differ. Then all stages stop, since the
                layout of a stage's output depends on its readers.
        """
        compared = self._compare(record)
        if compared.drifted is None:
            return {}
        if compared.other_tables is not None:
            raise compared.drifted
        stopped = {}
        for leader, unit in self.units(record).items():
            names = {f"stages.{name}" for name in unit.names}
            mistakes = [one for one in compared.drifted.mistakes if one.where in names]
            if mistakes:
                stopped[leader] = CodeDriftedError(record.name, record.version, mistakes)
        return stopped

    def drift_of(self, record: DataflowRecord, stage: str) -> str:
        """Return how the loaded code of a stage differs, in words; `""` if it does not."""
        drifted = self._compare(record).drifted
        mistakes = () if drifted is None else drifted.mistakes
        return "; ".join(one.message for one in mistakes if one.where == f"stages.{stage}")

    def newer_files(self, record: DataflowRecord, stage: str) -> tuple[str, ...]:
        """Return the files of a stage's code that have changed on disk since they were loaded."""
        return tuple(self._registry.newer_files(self.compiled(record), stage))

    def newer_files_of_run(self, name: str, leader: str) -> tuple[str, ...]:
        """Return the changed files of all stages that run together; empty if unknown."""
        try:
            record = self._store.dataflow(name)
            names = self.units(record)[leader].names
            return tuple(sorted({one for n in names for one in self.newer_files(record, n)}))
        except (CbpError, KeyError):
            return ()

    def with_older_code(self, but: str) -> tuple[str, ...]:
        """Return the names of all other dataflows that run older code than the code on disk."""
        with self._lock:
            compiled = [(n, dataflow) for n, (_, dataflow) in self._compiled.items() if n != but]
        return tuple(
            sorted(
                name
                for name, dataflow in compiled
                if any(self._registry.newer_files(dataflow, stage) for stage in dataflow.stages)
            )
        )

    def require_same_tables(self, record: DataflowRecord) -> None:
        """Raise an error if the loaded code has other tables or keys than the registered code.

        Called before a state is searched or written.
        """
        if (error := self._compare(record).other_tables) is not None:
            raise error

    def adopt(self, record: DataflowRecord, *, staged: str = "") -> None:
        """Record the loaded code as the code of a version that an earlier release registered."""
        compared = self._compare(record)
        if compared.adopted or compared.drifted is not None:
            return
        self._descriptions.adopt(record, shape_of(compared.dataflow), staged=staged)
        with self._lock:
            self._compared.pop(record.name, None)
        _log.info("code.adopted", dataflow=record.name, version=record.version)

    def _compare(self, record: DataflowRecord) -> _Compared:
        dataflow = self.compiled(record)
        with self._lock:
            compared = self._compared.get(record.name)
        if compared is None or compared.dataflow is not dataflow:
            compared = self._compared_with(record, dataflow, _UNKNOWN)
            with self._lock:
                self._compared[record.name] = compared
        if compared.drifted is not None and (loads := self._registry.renew()) != compared.loads:
            compared = self._compare_again(record, compared, loads)
        return compared

    def _compare_again(self, record: DataflowRecord, before: _Compared, loads: int) -> _Compared:
        """Compare with the code that is loaded now; use that code if fewer stages differ."""
        after = before
        with suppress(DataflowInvalidError):
            dataflow = self._registry.compile_registered(record.document)
            after = self._compared_with(record, dataflow, loads)
        if not after.stages < before.stages:
            after = replace(before, loads=loads)
        with self._lock:
            if after.dataflow is not before.dataflow:
                self._compiled[record.name] = (record.version, record.created_at), after.dataflow
            self._compared[record.name] = after
        return after

    def _compared_with(self, record: DataflowRecord, dataflow: Dataflow, loads: int) -> _Compared:
        return _Compared.of(record, dataflow, self._descriptions.of(record).shape, loads)

    def _fits(self, record: DataflowRecord) -> Callable[[Dataflow], bool]:
        """Return a test for the code of a version; it accepts any code if that is unknown."""
        with suppress(CbpError):
            return partial(is_code_of, self._descriptions.of(record).shape)
        return lambda _: True

    def leader(self, name: str, stage: str) -> str:
        """Return the leader of a stage, which may be itself; raises `NotFoundError`."""
        record, _ = self.stage(name, stage)
        return next(n for n, unit in self.units(record).items() if stage in unit.names)

    def find(self, name: str) -> tuple[DataflowRecord, Dataflow]:
        """Return the record of a dataflow, and the compiled dataflow; raises `NotFoundError`."""
        record = self._store.dataflow(name)
        return record, self.compiled(record)

    def stage(self, name: str, stage: str) -> tuple[DataflowRecord, StageNode]:
        """Return the record of a dataflow, and one of its stages; raises `NotFoundError`."""
        record, dataflow = self.find(name)
        if stage not in dataflow.stages:
            raise NotFoundError(kind="stage", name=f"{name}.{stage}")
        return record, dataflow.stages[stage]

    def forget(self, name: str) -> None:
        """Forget a deleted dataflow."""
        with self._lock:
            for kept in (self._compiled, self._never_run, self._units, self._compared):
                kept.pop(name, None)


def wiring_of(units: Units) -> tuple[dict[str, dict[str, str]], set[tuple[str, str]]]:
    """Return the store's facts about leading stages: their wiring, and framed inputs."""
    wiring = {name: dict(unit.leader.wiring) for name, unit in units.items()}
    framed = {(n, one.name) for n, u in units.items() for one in u.leader.translator.framed}
    return wiring, framed
