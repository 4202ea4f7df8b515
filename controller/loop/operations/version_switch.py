"""Version switch: a new version of a dataflow takes over between two epochs, in one step.

    (1) the dataflow starts nothing; runs under way end; what is recorded is published
    (2) the versions are compared: what becomes of each stage, and where the new one begins  (pure)
    (3) files of altered tables are written; no reader sees them
    (4) the description is put                                          <- the commit point
    (5) redo: tables are altered, new ones and drop folders are made, the store is updated

A crash before (4) leaves the old version, and files that no record names. All steps of (5) may be
repeated. If (5) fails, the dataflow starts nothing until it has succeeded, by a tick or by
recovery: it never runs an outdated version.

Invariants (tests/controller/loop/operations/test_change_crashes.py): after a kill at any point, a
restart leads to the old version or to the new one; kept stages lose and repeat no increment.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

import structlog

from cbp.engine.interface.readers import IncrementReader, RecordReader
from cbp.engine.interface.tables import TableAdministration
from cbp.errors import ChangeRefusedError, CodeDriftedError, Mistake
from cbp.errors.counts import format_count
from cbp.model.dataflow.dataflow import Dataflow
from cbp.model.flow.increment import Increment
from cbp.model.flow.position import Position
from cbp.model.flow.schema import Schema
from cbp.model.plan.fusion import physical_stages
from cbp.model.run.intention import TableChange
from cbp.model.version.code_drift import drift, is_code_of, without_codes
from cbp.model.version.dataflow_shape import DataflowShape, shape_of
from cbp.model.version.flow_life import NEW_LIFE, FlowLife
from cbp.model.version.new_views import collected_mistake
from cbp.model.version.succession import Succession, succeed
from cbp.model.version.version_change import ChangePlan, Choice, compare_versions, flow_schemas
from controller.loop.leadership.terms import Terms
from controller.loop.operations.priorities import read_priorities
from controller.loop.reading.flow_increments import FlowIncrements
from controller.loop.records.compiled_dataflows import wiring_of
from controller.loop.records.dataflow_part import DataflowPart
from controller.loop.records.version_log import Begin, Description
from controller.loop.runs.publisher import Publisher
from controller.loop.runs.run_commit import RunCommit
from controller.registry import Registry
from controller.store.base import DataflowRecord

_PAGE = 500

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Changed:
    """A new version, planned or in force.

    Attributes:
        version: Its number; the old number if nothing changes.
        lives: The life of each flow and view before the change.
        sinks: Sentences on sinks that are added, changed or removed.
    """

    dataflow: str
    version: int
    plan: ChangePlan
    succession: Succession
    changed: bool
    lives: Mapping[str, FlowLife]
    done: bool = False
    sinks: tuple[str, ...] = ()

    def require_allowed(self) -> None:
        """Raise `ChangeRefusedError` if the plan cannot be carried out."""
        refused = (*self.plan.refused, *self.succession.refused)
        if refused:
            raise ChangeRefusedError(self.dataflow, refused)


class Swap(Protocol):
    """Finds the table contents that a version shows."""

    @property
    def back(self) -> bool:
        """Whether these are the contents from before an earlier swap."""
        ...

    def find(
        self, record: DataflowRecord, planned: Changed, run: str
    ) -> tuple[Position, Mapping[str, tuple[TableChange, ...]]]:
        """Return where the version begins, and how tables change; raises `ChangeRefusedError`."""
        ...


@dataclass(kw_only=True, eq=False)
class VersionSwitch(DataflowPart):
    """Plans, carries out and finishes changes; the caller keeps the dataflow idle."""

    tables: TableAdministration
    increments: IncrementReader
    publisher: Publisher
    run_commit: RunCommit
    terms: Terms
    registry: Registry
    prepare: Callable[[DataflowRecord, Dataflow], object]
    new_id: Callable[[], str]
    records: RecordReader

    def plan(
        self, record: DataflowRecord, document: Mapping[str, Any], after: Dataflow, choice: Choice
    ) -> Changed:
        """Return the effects of a new version; reads only.

        Raises:
            DataflowInvalidError: If the shape of the old version was not recorded, and its document
                does not compile with the installed code.
            InvariantError: If the description of the old version is damaged.
        """
        description = self.descriptions.reread(record)
        now, then = self._shape(record, description), shape_of(after)
        lives = self.descriptions.lives(record)
        units = self.catalog.units(record)
        leaders = {name: leader for leader, unit in units.items() for name in unit.names}
        next_epochs = self.open_log(record.folder).next_epochs()
        never_ran = {name for name, leader in leaders.items() if not next_epochs.get(leader)}
        plan = compare_versions(now, then, choice, self._past(record, now, then), never_ran)
        plan = self._with_collected(record, plan, lives)
        plan = plan.with_settings(description.document, document)
        waiting = tuple(self._set_aside_mistakes(record, description, after, choice))
        plan = replace(plan, refused=(*plan.refused, *waiting))
        succession = succeed(
            plan,
            choice,
            before=self.store.position(record.name),
            version=record.version + 1,
            units=leaders,
            after=after,
            next_epochs=next_epochs,
            retained=lambda flow: self.retained(record, flow),
            dropped=self.dropped(record),
            lives=lives,
        )
        changed = plan.changed or dict(description.document) != dict(document)
        version = record.version + changed
        documents = description.document, document
        sinks = tuple(self._sink_changes(record, documents, after, flow_schemas(now).keys()))
        return Changed(record.name, version, plan, succession, changed, lives, sinks=sinks)

    def _sink_changes(
        self,
        record: DataflowRecord,
        documents: tuple[Mapping[str, Any], Mapping[str, Any]],
        after: Dataflow,
        known: Collection[str],
    ) -> Iterator[str]:
        """Yield what happens to each sink that differs, and what an added one cannot publish."""
        was, now = (one.get("sinks") or {} for one in documents)
        for name in sorted(was.keys() - now.keys()):
            yield f"The sink {name} is removed. The data that it has published stays."
        increments = FlowIncrements(self.store, self.increments)
        for name, sink in after.sinks.items():
            if was.get(name) == now.get(name):
                continue
            if name in was:
                yield f"The sink {name} changes: it now publishes {sink.reads} to {sink.to}."
                continue
            yield f"The sink {name} is added: it publishes {sink.reads} to {sink.to}."
            if sink.view or sink.begin == "now" or sink.flow not in known:
                continue  # a mirror has the complete view
            if first := increments.bounds(record, after, sink.flow).start:
                yield (
                    f"The sink {name} begins at increment {first:,}, because earlier increments "
                    "are no longer kept (for example, after a rebuild)."
                )

    def _set_aside_mistakes(
        self, record: DataflowRecord, before: Description, after: Dataflow, choice: Choice
    ) -> Iterator[Mistake]:
        """Refuse a version under which records that are set aside could not be given back."""
        known = {} if before.shape is None else before.shape.stages
        stages = before.document.get("stages", {})
        for name, node in after.stages.items():
            if name in choice.rebuild or stages.get(name, {}).get("on_error") != "set_aside":
                continue
            same_key = name not in known or known[name].key == node.translator.key
            if (node.sets_aside and same_key) or not (
                waiting := self.records.set_aside(record.folder, node)
            ):
                continue
            what = "has another key" if node.sets_aside else "no longer sets records aside"
            message = (
                f"the stage {what}, but {format_count(len(waiting), 'record is', 'records are')} "
                f"set aside: run `cbp give-back {record.name} {name}` first, or rebuild the stage "
                f"(--rebuild {name}; REST: rebuild={name})"
            )
            yield Mistake("set_aside_waits", f"stages.{name}.on_error", message)

    def carry_out(
        self,
        record: DataflowRecord,
        document: Mapping[str, Any],
        after: Dataflow,
        choice: Choice,
        swap: Swap | None = None,
    ) -> Changed:
        """Let a new version take over; no run is active, and nothing arrives.

        Raises:
            ChangeRefusedError: With every reason; nothing changed.
            DataflowBusyError: If recorded runs cannot be finished now; nothing changed.
            LogConflictError: If another controller changed the dataflow, or leads now.
            OperatingError: If the change is committed and could not be finished: see `finish`.
        """
        self.run_commit.finish_all(record)
        self.run_commit.require_finished(record.name)
        planned = self.plan(record, document, after, choice)
        if swap is None:
            planned.require_allowed()
        if not planned.changed:
            return replace(planned, done=True)
        position, swapped = planned.succession.position, None
        leads = stage_leaders(after, planned.succession.leaders)
        if swap is None:
            tables: Mapping[str, tuple[TableChange, ...]]
            tables = self._rewritten(record, after, planned, leads)
        else:
            swapped = self.store.position(record.name)
            position, tables = swap.find(record, planned, self.new_id())
        tried_again = planned.plan.tried_again
        begin = Begin(
            self.publisher.next_ms(record.name),
            position,
            tables,
            tuple(sorted({leads[name] for name in after.stages if name in tried_again})),
            tuple(
                name
                for name in after.stages
                if planned.plan.stages[name].kind != "kept" or name in planned.plan.rebuilt
            ),
            tuple(sorted(planned.plan.emptied)),
            swapped,
            back=swap is not None and swap.back,
        )
        description = Description(
            planned.version, document, planned.succession.leaders, shape_of(after), begin
        )
        self.descriptions.put(record.folder, description, staged=self.terms.folder)
        _log.info("dataflow.changed", dataflow=record.name, version=planned.version)
        self.finish(record)
        return replace(planned, done=True)

    def unfinished(self, record: DataflowRecord) -> bool:
        """Return whether the newest version of a dataflow is ahead of the store."""
        return self._ahead(record) is not None

    def _ahead(self, record: DataflowRecord) -> Description | None:
        newest = self.descriptions.newest(record.folder)
        return newest if newest is not None and newest.version > record.version else None

    def cut_short(self, record: DataflowRecord) -> bool:
        """Return whether the store has the newest version's document, but not its start position.

        This happens if a process dies while a registration takes over a folder.
        """
        newest = self._ahead(record)
        return newest is not None and dict(newest.document) == dict(record.document)

    def finish(self, record: DataflowRecord) -> DataflowRecord:
        """Bring the tables and the store to the newest version; does nothing if both show it.

        Raises:
            CodeDriftedError: If the installed code declares other tables than the plan of the
                version.
            CbpError: Any other obstacle; retry.
        """
        newest = self._ahead(record)
        if newest is None or newest.begin is None:
            return record
        now = replace(record, version=newest.version, document=newest.document)
        dataflow = self.registry.compile_registered(
            newest.document, partial(is_code_of, newest.shape)
        )
        require_planned(now, dataflow, newest)
        try:
            self.bring_tables(now, dataflow, newest)
            self.prepare(now, dataflow)
            self.open_log(record.folder).forget_positions(newest.version)
            self.bring_store(now, dataflow, newest)
        finally:
            # Also after an error: if only the store's answer was lost, a retry does nothing.
            self.catalog.forget(record.name)
            self.tables.forget(record.folder)
            self.run_commit.forget(record.name, since_ms=newest.begin.at_ms)
        _log.info("dataflow.change_finished", dataflow=record.name, version=newest.version)
        return now

    def bring_tables(
        self, record: DataflowRecord, dataflow: Dataflow, description: Description
    ) -> None:
        """Alter the tables of the stages that a version changes, and create missing ones.

        Idempotent. All entries have one time: that of the version, or that of the registration if
        it is the first version. Later records have later times.
        """
        at_ms = int(record.created_at.timestamp() * 1000)
        if description.begin is not None:
            begin, leads = description.begin, stage_leaders(dataflow, description.leaders)
            at_ms = begin.at_ms
            for name, changes in begin.tables.items():
                self.tables.alter(
                    record.folder,
                    record.name,
                    dataflow.stages[name],
                    changes,
                    epoch=begin.position.stages[leads[name]].epoch,
                    version=description.version,
                    timestamp_ms=begin.at_ms,
                )
        stages = tuple(dataflow.stages.values())
        self.tables.create_tables(record.folder, record.name, stages, timestamp_ms=at_ms)

    def bring_store(
        self, record: DataflowRecord, dataflow: Dataflow, description: Description
    ) -> None:
        """Set the store to the start position of a version, unless it is the first one.

        Idempotent. The priorities are read from the folder.
        """
        if description.begin is not None:
            self.store.change(
                record,
                *stage_wiring(dataflow, description.leaders),
                position=description.begin.position,
                fresh=description.begin.fresh,
                priorities=read_priorities(self.files, record.folder) or {},
                at=self.clock(),
            )

    def retained(self, record: DataflowRecord, flow: str) -> tuple[Increment, ...]:
        """Return the newest increments of a flow that can be read, without a gap.

        If the files of an increment were merged or removed, its records are located in the
        table of its stage.
        """
        increments: list[Increment] = []
        cursor: str | None = None
        dropped = self.dropped(record).get(flow, ())

        def is_back(increment: Increment) -> bool:
            # Increments that a roll-back dropped are not read again: their files may be gone.
            gone = any(increment.index in part for part in dropped)
            return gone or self.has_files(record, increment)

        while True:
            page = self.store.increments(record.name, flow, cursor=cursor, limit=_PAGE)
            readable = self._located(record, flow, [item.increment for item in page.items])
            there = list(itertools.takewhile(is_back, readable))
            increments += there
            cursor = page.cursor
            if cursor is None or len(there) < len(readable):
                return tuple(reversed(increments))

    def _located(
        self, record: DataflowRecord, flow: str, increments: list[Increment]
    ) -> list[Increment]:
        gone = [i for i in increments if not self.has_files(record, i)]
        if not gone or "." not in flow:  # a source has no table to find lost files in
            return increments
        known = {increment.index: increment for increment in increments}
        known |= {i.index: i for i in self.increments.locate(record.folder, flow, gone)}
        return list(known.values())

    def _shape(self, record: DataflowRecord, description: Description) -> DataflowShape:
        if description.shape is not None:
            return description.shape
        # Registered before shapes were kept: assume that the installed code is the old one.
        return without_codes(shape_of(self.catalog.compiled(record)))

    def _past(
        self, record: DataflowRecord, now: DataflowShape, then: DataflowShape
    ) -> dict[str, Schema]:
        """Return the last columns of those new flows that earlier versions had, too."""
        new = flow_schemas(then).keys() - flow_schemas(now).keys()
        past: dict[str, Schema] = {}
        for description in self.descriptions.before(record) if new else ():
            if description.shape is not None:
                past |= flow_schemas(description.shape)
        return {flow: schema for flow, schema in past.items() if flow in new}

    def _with_collected(
        self, record: DataflowRecord, plan: ChangePlan, lives: Mapping[str, FlowLife]
    ) -> ChangePlan:
        """Refuse to fill a view from a flow that lost old records."""
        horizons = {
            (name, view): self.increments.horizon(record.folder, f"{name}.{view}")
            for name, stage in plan.stages.items()
            for view in stage.filled
        }
        mistakes = (
            collected_mistake(name, view, oldest)
            for (name, view), oldest in horizons.items()
            if oldest > (life := lives.get(f"{name}.{view}", NEW_LIFE)).first or life.built
        )
        return replace(plan, refused=(*plan.refused, *mistakes))

    def _rewritten(
        self, record: DataflowRecord, after: Dataflow, change: Changed, leads: Mapping[str, str]
    ) -> dict[str, tuple[TableChange, ...]]:
        run, changes = self.new_id(), {}
        for name, node in after.stages.items():
            made = self.tables.rewrite(
                record.folder,
                record.name,
                node,
                epoch=change.succession.position.stages[leads[name]].epoch,
                run=run,
                anew=name in change.plan.emptied,
                filled={
                    view: change.lives.get(f"{name}.{view}", NEW_LIFE).first
                    for view in change.plan.stages[name].filled
                },
            )
            if made:
                changes[name] = tuple(made)
        return changes


def require_planned(record: DataflowRecord, dataflow: Dataflow, description: Description) -> None:
    """Raise `CodeDriftedError` if the code declares other tables than a description.

    Code with the same tables and a different function passes: it makes the tables, but does not
    run.
    """
    loaded = shape_of(dataflow)
    mistakes = drift(description.shape, loaded, code=False) if description.shape else ()
    if mistakes:
        raise CodeDriftedError(record.name, description.version, mistakes)


def stage_wiring(
    dataflow: Dataflow, leaders: tuple[str, ...] | None
) -> tuple[dict[str, dict[str, str]], set[tuple[str, str]]]:
    """Return the store's facts about leading stages: their wiring, and framed inputs."""
    return wiring_of(physical_stages(dataflow, leaders or tuple(dataflow.stages)))


def stage_leaders(dataflow: Dataflow, leaders: tuple[str, ...] | None) -> dict[str, str]:
    """Return stage -> the stage that leads it; for `None` each leads itself."""
    units = physical_stages(dataflow, leaders or tuple(dataflow.stages))
    return {name: leader for leader, unit in units.items() for name in unit.names}
