"""A new version of a dataflow takes over, between two epochs, in one step.

    (1) the dataflow starts nothing; runs under way end; what is recorded is published
    (2) compared: what becomes of every stage, and where the new version begins   (pure)
    (3) files of altered tables are written; nobody sees them
    (4) the description is put                                          <- the commit point
    (5) redo: tables altered, new ones made, drop folders made, the store brought over

A crash before (4) leaves the old version and files that nobody names; after it, recovery
goes on at (5), whose every step may be repeated. Where (5) fails, the dataflow starts
nothing until it succeeded: it is never run by a version that is not the truth any more.

Invariants (tests/controller/test_change_crashes.py): killed at any point, a restart leads to the
old version or to the new one; kept stages lose and repeat no increment.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

import structlog

from cbp.engine.base import Engine
from cbp.engine.files import Files
from cbp.errors import ChangeRefusedError, CodeDriftedError
from cbp.model.change import ChangePlan, Choice, compare_versions, flow_schemas
from cbp.model.dataflow import Dataflow
from cbp.model.drift import drift
from cbp.model.fusion import physical_stages
from cbp.model.increment import Increment
from cbp.model.intention import TableChange
from cbp.model.schema import Schema
from cbp.model.shape import DataflowShape, shape_of
from cbp.model.succession import Succession, succeed
from controller.loop.catalog import Catalog
from controller.loop.description import Begin, Description, Descriptions
from controller.loop.runs import Runs
from controller.loop.terms import Terms
from controller.store.base import DataflowRecord, Store

__all__ = ["Changed", "Changes", "require_planned", "stage_wiring"]

_PAGE = 500

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Changed:
    """A new version, as it is planned or has taken over.

    Attributes:
        version: Its number; that of the old one where nothing changes.
        done: Whether it has taken over.
    """

    dataflow: str
    version: int
    plan: ChangePlan
    succession: Succession
    changed: bool
    done: bool = False

    def require_allowed(self) -> None:
        """Raise `ChangeRefusedError` if the plan cannot be carried out."""
        refused = (*self.plan.refused, *self.succession.refused)
        if refused:
            raise ChangeRefusedError(self.dataflow, refused)


class Changes:
    """Plans, carries out and finishes changes; the caller keeps the dataflow still.

    Args:
        prepare: Makes the drop folders of a dataflow; idempotent.
        new_id: Returns unique ids.
    """

    def __init__(
        self,
        *,
        store: Store,
        engine: Engine,
        files: Files,
        catalog: Catalog,
        runs: Runs,
        terms: Terms,
        clock: Callable[[], datetime],
        compile_: Callable[[Any], Dataflow],
        prepare: Callable[[DataflowRecord, Dataflow], object],
        new_id: Callable[[], str],
    ) -> None:
        self._store, self._engine, self._files, self._catalog = store, engine, files, catalog
        self._runs, self._terms, self._clock, self._compile = runs, terms, clock, compile_
        self._prepare, self._new_id = prepare, new_id
        self._descriptions = Descriptions(files)

    def plan(
        self, record: DataflowRecord, document: Mapping[str, Any], after: Dataflow, choice: Choice
    ) -> Changed:
        """Return what a new version would do; reads only.

        Raises:
            DataflowInvalidError: If nobody knows what the old version was.
        """
        description = self._descriptions.of(record)
        now, then = self._shape(record, description), shape_of(after)
        plan = compare_versions(now, then, choice, self._past(record, now, then))
        units = self._catalog.units(record)
        succession = succeed(
            plan,
            choice,
            before=self._store.position(record.name),
            version=record.version + 1,
            units={name: leader for leader, unit in units.items() for name in unit.names},
            after=after,
            next_epochs=self._runs.log(record.folder).next_epochs(),
            retained=lambda flow: self.retained(record, flow),
        )
        changed = plan.changed or dict(description.document) != dict(document)
        version = record.version + changed
        return Changed(record.name, version, plan, succession, changed)

    def carry_out(
        self, record: DataflowRecord, document: Mapping[str, Any], after: Dataflow, choice: Choice
    ) -> Changed:
        """Let a new version take over; the dataflow is still, and nobody feeds it.

        Raises:
            ChangeRefusedError: With every reason; nothing happened.
            DataflowBusyError: If what is recorded cannot be finished now; nothing happened.
            LogConflictError: If another controller changed it, or leads now.
            OperatingError: If it took over and could not be finished: see `finish`.
        """
        self._runs.finish_all(record)
        self._runs.require_finished(record.name)
        found = self.plan(record, document, after, choice)
        found.require_allowed()
        if not found.changed:
            return replace(found, done=True)
        leads = _leads(after, found.succession.leaders)
        begin = Begin(
            self._runs.publisher.next_ms(record.name, int(self._clock().timestamp() * 1000)),
            found.succession.position,
            self._rewritten(record, after, found, leads),
            tuple(n for n in found.succession.leaders if found.plan.stages[n].kind != "kept"),
            tuple(
                name
                for name in after.stages
                if found.plan.stages[name].kind != "kept" or name in found.plan.rebuilt
            ),
        )
        description = Description(
            found.version, document, found.succession.leaders, shape_of(after), begin
        )
        self._descriptions.put(record.folder, description, staged=self._terms.folder)
        _log.info("dataflow.changed", dataflow=record.name, version=found.version)
        self.finish(record)
        return replace(found, done=True)

    def unfinished(self, record: DataflowRecord) -> bool:
        """Tell whether the newest version of a dataflow is not the store's."""
        return self._ahead(record) is not None

    def _ahead(self, record: DataflowRecord) -> Description | None:
        """Return the newest version, where it is not the store's."""
        newest = self._descriptions.newest(record.folder)
        return newest if newest is not None and newest.version > record.version else None

    def cut_short(self, record: DataflowRecord) -> bool:
        """Tell whether the store has a version's document, and does not stand where it began.

        So it is where a registration died that took over a folder.
        """
        newest = self._ahead(record)
        return newest is not None and dict(newest.document) == dict(record.document)

    def finish(self, record: DataflowRecord) -> DataflowRecord:
        """Redo what follows the newest description; does nothing where it is done.

        Raises:
            CodeDriftedError: If what is installed is not what the new version was planned for.
            CbpError: Whatever else prevents it; to be tried again.
        """
        newest = self._ahead(record)
        if newest is None or newest.begin is None:
            return record
        now = replace(record, version=newest.version, document=newest.document)
        dataflow = self._compile(newest.document)
        require_planned(now, dataflow, newest)
        try:
            self.bring_tables(now, dataflow, newest)
            self._prepare(now, dataflow)
            self._runs.log(record.folder).forget_positions(newest.version)
            self.bring_store(now, dataflow, newest)
        finally:
            # Also where the store's answer was lost: then it is never finished again.
            self._catalog.forget(record.name)
            self._engine.forget(record.folder)
            self._runs.forget(record.name, since_ms=newest.begin.at_ms)
        _log.info("dataflow.change_finished", dataflow=record.name, version=newest.version)
        return now

    def bring_tables(
        self, record: DataflowRecord, dataflow: Dataflow, description: Description
    ) -> None:
        """Alter the tables of a version, and make those that are not there; idempotent.

        All entries have one time, that of the version, and records come later.
        """
        at_ms = int(record.created_at.timestamp() * 1000)
        if description.begin is not None:
            begin, leads = description.begin, _leads(dataflow, description.leaders)
            at_ms = begin.at_ms
            for name, changes in begin.tables.items():
                self._engine.alter(
                    record.folder,
                    record.name,
                    dataflow.stages[name],
                    changes,
                    epoch=begin.position.stages[leads[name]].epoch,
                    version=description.version,
                    timestamp_ms=begin.at_ms,
                )
        stages = tuple(dataflow.stages.values())
        self._engine.create_tables(record.folder, record.name, stages, timestamp_ms=at_ms)

    def bring_store(
        self, record: DataflowRecord, dataflow: Dataflow, description: Description
    ) -> None:
        """Bring the store to where a version began; idempotent."""
        if description.begin is not None:
            self._store.change(
                record,
                *stage_wiring(dataflow, description.leaders),
                position=description.begin.position,
                fresh=description.begin.fresh,
                at=self._clock(),
            )

    def retained(self, record: DataflowRecord, flow: str) -> tuple[Increment, ...]:
        """Return the increments of a flow that can be read, without gaps to the newest.

        Those of a stage whose own files are gone are found in its table.
        """
        found: list[Increment] = []
        cursor: str | None = None
        while True:
            page = self._store.increments(record.name, flow, cursor=cursor, limit=_PAGE)
            readable = self._located(record, flow, [item.increment for item in page.items])
            there = list(itertools.takewhile(lambda i: self._there(record, i), readable))
            found += there
            cursor = page.cursor
            if cursor is None or len(there) < len(readable):
                return tuple(reversed(found))

    def _located(
        self, record: DataflowRecord, flow: str, increments: list[Increment]
    ) -> list[Increment]:
        gone = [i for i in increments if not self._there(record, i)]
        if not gone or "." not in flow:  # the files of a source are its own, or gone
            return increments
        known = {increment.index: increment for increment in increments}
        known |= {i.index: i for i in self._engine.locate(record.folder, flow, gone)}
        return list(known.values())

    def _there(self, record: DataflowRecord, increment: Increment) -> bool:
        return all(self._files.exists(f"{record.folder}/{file.path}") for file in increment.kept)

    def _shape(self, record: DataflowRecord, description: Description) -> DataflowShape:
        if description.shape is not None:
            return description.shape
        # From before shapes were kept: what is installed now stands for what was then.
        found = shape_of(self._catalog.compiled(record))
        stages = {name: replace(stage, code="") for name, stage in found.stages.items()}
        return replace(found, stages=stages)

    def _past(
        self, record: DataflowRecord, now: DataflowShape, then: DataflowShape
    ) -> dict[str, Schema]:
        """Return the last columns of flows that are new, if earlier versions had them."""
        new = flow_schemas(then).keys() - flow_schemas(now).keys()
        past: dict[str, Schema] = {}
        for description in self._descriptions.before(record) if new else ():
            if description.shape is not None:
                past |= flow_schemas(description.shape)
        return {flow: schema for flow, schema in past.items() if flow in new}

    def _rewritten(
        self,
        record: DataflowRecord,
        after: Dataflow,
        found: Changed,
        leads: Mapping[str, str],
    ) -> dict[str, tuple[TableChange, ...]]:
        run, changes = self._new_id(), {}
        for name, node in after.stages.items():
            made = self._engine.rewrite(
                record.folder,
                record.name,
                node,
                epoch=found.succession.position.stages[leads[name]].epoch,
                run=run,
                anew=name in found.plan.rebuilt | found.plan.of_kind("added"),
            )
            if made:
                changes[name] = tuple(made)
        return changes


def require_planned(record: DataflowRecord, dataflow: Dataflow, description: Description) -> None:
    """Refuse to make tables of a description by code that it was not made for.

    Raises:
        CodeDriftedError: With every difference.
    """
    mistakes = drift(description.shape, shape_of(dataflow)) if description.shape else ()
    if mistakes:
        raise CodeDriftedError(record.name, description.version, mistakes)


def stage_wiring(
    dataflow: Dataflow, leaders: tuple[str, ...] | None
) -> tuple[dict[str, dict[str, str]], set[tuple[str, str]]]:
    """Return what the store keeps of the stages that lead: their wiring, and framed inputs."""
    units = physical_stages(dataflow, leaders or tuple(dataflow.stages))
    wiring = {name: dict(unit.leader.wiring) for name, unit in units.items()}
    framed = {
        (name, spec.name) for name, unit in units.items() for spec in unit.leader.translator.framed
    }
    return wiring, framed


def _leads(dataflow: Dataflow, leaders: tuple[str, ...] | None) -> dict[str, str]:
    units = physical_stages(dataflow, leaders or tuple(dataflow.stages))
    return {name: leader for leader, unit in units.items() for name in unit.names}
