"""Store methods for runs: from intended to committed or failed."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any

from sqlalchemy import Connection, func, insert, select
from sqlalchemy import update as update_table

from cbp.errors import InvariantError, NotFoundError
from cbp.model.graph.cycles import inner_inputs
from cbp.model.run.intention import Intention, RunStatus
from controller.store.database.connections import Database, insert_new
from controller.store.errors import StagePausedError
from controller.store.methods import queues
from controller.store.methods.events import tell
from controller.store.methods.leases import hold_stage
from controller.store.methods.listing_pages import begins_with, between, page
from controller.store.records import Event, EventKind, IncrementRecord, Page, RunRecord, StageRecord
from controller.store.schema import rows
from controller.store.schema.tables import dataflows, runs, stages


class Runs:
    """Store methods for runs, from intended to committed or failed; see `Store`."""

    _database: Database

    def intend(self, run: RunRecord) -> None:
        """Record a run as INTENDED and set its stage's `waiting_since`.

        Raises `NotFoundError`, `AlreadyExistsError`; `InvariantError` if the stage has another next
        epoch, because the decision was stale.
        """
        with self._database.write() as connection:
            stage = hold_stage(connection, run.dataflow, run.stage)
            if run.epoch != stage.epoch:
                message = f"run {run.id} is for epoch {run.epoch}, expected epoch {stage.epoch}"
                raise InvariantError(message, dataflow=run.dataflow, stage=run.stage)
            intended = replace(run, status=RunStatus.INTENDED)
            insert_new(connection, runs, rows.run_row(intended), kind="run", name=run.id)
            _update_stage(connection, stage, waiting_since=run.started_at)
            tell(connection, _event("run.started", stage, run.id))

    def commit(self, intention: Intention, *, finished_at: datetime) -> None:
        """Move the connectors, store the outputs, enqueue them, advance the epoch.

        All in one transaction. An empty output is not enqueued inside a cycle
        (`cbp.model.graph.cycles`): it would circulate forever. Does nothing if the stage's
        epoch is already past this intention (redo). The run becomes COMMITTED with the
        intention's figures; a run that the store has lost is inserted.

        Raises `NotFoundError`; `InvariantError` if a previous epoch is missing, if the intention
        takes an increment that is not queued, or writes one that is stored with other content, or
        if it belongs to another generation.
        """
        with self._database.write() as connection:
            stage = hold_stage(connection, intention.dataflow, intention.stage)
            if stage.epoch > intention.epoch:
                return
            if stage.epoch < intention.epoch:
                message = f"expected epoch {stage.epoch} of the stage, got {intention.id}"
                raise InvariantError(message, dataflow=intention.dataflow, stage=intention.stage)
            _require_generation(connection, intention)
            queues.consume(connection, intention)
            origin = {"run": intention.run}
            inner = inner_inputs(queues.wiring_of(connection, intention.dataflow))
            for increment in intention.outputs.values():
                record = IncrementRecord(intention.dataflow, increment, finished_at, origin)
                queues.append_increments(connection, [record], () if increment.records else inner)
            _commit_run(connection, intention, finished_at)
            _update_stage(
                connection,
                stage,
                epoch=stage.epoch + 1,
                memo=intention.memo,
                turns=_turns(stage, intention, inner),
                due_ms=intention.due_ms,
                failures=0,
                retry_at=None,
            )
            tell(connection, *_events_of(stage, intention))

    def fail(
        self,
        run: str,
        error: Mapping[str, Any],
        *,
        finished_at: datetime,
        retry_at: datetime | None,
        pause: str = "",
        figures: Mapping[str, float] = MappingProxyType({}),
    ) -> None:
        """Mark a run as FAILED and count the failure; pause the stage if `pause` is given.

        Does nothing if the run has already failed. Does not change the stage if another run
        committed the epoch. `figures` are those of the attempt.

        Raises `NotFoundError`; `InvariantError` if the run is committed.
        """
        with self._database.write() as connection:
            stage = hold_stage(connection, *_stage_of(connection, run))
            record = rows.run_of(connection.execute(select(runs).where(runs.c.id == run)).one())
            if record.status is RunStatus.FAILED:
                return
            if record.status is RunStatus.COMMITTED:
                message = f"run {run} is already committed and cannot be recorded as failed"
                raise InvariantError(message, dataflow=record.dataflow, stage=record.stage)
            failed = replace(
                record,
                status=RunStatus.FAILED,
                finished_at=finished_at,
                figures=dict(figures),
                error=dict(error),
            )
            row = rows.run_row(failed)
            connection.execute(update_table(runs).where(runs.c.id == run).values(row))
            if record.epoch == stage.epoch:
                values: dict[str, Any] = {"failures": stage.failures + 1, "retry_at": retry_at}
                if pause:
                    values |= {"paused_because": _pause_of(stage, pause), "error": dict(error)}
                _update_stage(connection, stage, **values)
            stopped = [_event("stage.stopped", stage, run)] if pause else []
            tell(connection, _event("run.failed", stage, run), *stopped)

    def pause_stage(
        self, dataflow: str, stage: str, because: str, error: Mapping[str, Any] | None = None
    ) -> None:
        """Pause a stage, with the reason, and the error that caused it if any.

        A stage that an operator paused (`PAUSED_BY_HAND`) stays paused; the error is noted.
        Raises `NotFoundError`.
        """
        with self._database.write() as connection:
            row = hold_stage(connection, dataflow, stage)
            why = None if error is None else dict(error)
            _update_stage(connection, row, paused_because=_pause_of(row, because), error=why)
            tell(connection, _event("stage.stopped" if error else "stage.paused", row, stage))

    def retry_stage(self, dataflow: str, stage: str) -> None:
        """Retry a stopped stage once, or end the wait of a stage after a failed attempt.

        Raises `NotFoundError`, `StagePausedError`.
        """
        with self._database.write() as connection:
            row = hold_stage(connection, dataflow, stage)
            if row.is_paused:
                raise StagePausedError(dataflow, stage)
            self._let_run(connection, row)

    def resume_stage(self, dataflow: str, stage: str) -> None:
        """Resume a paused or stopped stage, and reset its failures; raises `NotFoundError`."""
        with self._database.write() as connection:
            self._let_run(connection, hold_stage(connection, dataflow, stage), failures=0)

    def _let_run(self, connection: Connection, stage: StageRecord, **values: Any) -> None:
        lifted = {"paused_because": "", "error": None, "retry_at": None}
        _update_stage(connection, stage, **lifted, **values)
        tell(connection, _event("stage.resumed", stage, stage.stage))

    def intended_runs(self) -> list[RunRecord]:
        """Return every run in status INTENDED (normally at most one per stage)."""
        query = select(runs).where(runs.c.status == RunStatus.INTENDED.value).order_by(runs.c.id)
        return self._database.rows(query, rows.run_of)

    def run(self, run_id: str) -> RunRecord:
        """Return one run; raises `NotFoundError`."""
        return self._database.one(
            select(runs).where(runs.c.id == run_id), rows.run_of, "run", run_id
        )

    def runs(
        self,
        dataflow: str | None = None,
        *,
        stage: str | None = None,
        status: RunStatus | None = None,
        epoch: int | None = None,
        error_code: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        cursor: str | None = None,
        limit: int = 100,
    ) -> Page[RunRecord]:
        """List the runs that match all given filters, newest first.

        The times refer to the starts of runs; `until` is exclusive. Raises `CursorInvalidError`.
        """
        wanted = {"dataflow": dataflow, "stage": stage, "epoch": epoch}
        wanted["status"] = status and status.value
        query = select(runs)
        for column, value in wanted.items():
            if value is not None:
                query = query.where(runs.c[column] == value)
        if error_code is not None:
            query = query.where(begins_with(runs.c.error, "error_code", error_code))
        query = query.where(*between(runs.c.started_at, since, until))
        return page(self._database, query, runs.c.id, rows.run_of, cursor, limit)

    def committed_runs(
        self, dataflow: str, stage: str, *, since: datetime, limit: int
    ) -> list[RunRecord]:
        """Return the oldest committed runs of a stage that started at a time or later, in order."""
        committed = runs.c.status == RunStatus.COMMITTED.value
        mine = (runs.c.dataflow == dataflow, runs.c.stage == stage, committed)
        query = select(runs).where(*mine, runs.c.started_at >= since).order_by(runs.c.id)
        return self._database.rows(query.limit(limit), rows.run_of)


def _require_generation(connection: Connection, intention: Intention) -> None:
    """Refuse a run of a generation that was rolled back."""
    query = select(dataflows.c.generation).where(dataflows.c.name == intention.dataflow)
    number = connection.execute(query).scalar_one()
    if number != intention.generation:
        message = (
            f"{intention.id} belongs to generation {intention.generation}, but the store is at "
            f"generation {number}"
        )
        raise InvariantError(message, dataflow=intention.dataflow, stage=intention.stage)


def _event(kind: EventKind, stage: StageRecord, subject: str) -> Event:
    return Event(kind=kind, dataflow=stage.dataflow, stage=stage.stage, subject=subject)


def _events_of(stage: StageRecord, intention: Intention) -> list[Event]:
    """Return the events of a committed run: its end, its input and its output."""
    corrects = intention.correction is not None and not intention.correction.gives_back
    ended: EventKind = "state.corrected" if corrects else "run.ended"
    events = [_event(ended, stage, intention.run)]
    applied = sum(len(indexes) for indexes in intention.remove.values())
    if applied:
        one = _event("increment.applied", stage, intention.run)
        events.append(replace(one, count=applied))
    written = [increment for increment in intention.outputs.values() if increment.records]
    if written:
        one = _event("increment.arrived", stage, written[-1].name)
        events.append(replace(one, flow=written[-1].flow, count=len(written)))
    return events


def _turns(stage: StageRecord, intention: Intention, inner: Collection[tuple[str, str]]) -> int:
    """Count the epochs in a row that read nothing from outside the stage's cycle."""
    on_cycle = any(name == stage.stage for name, _ in inner)
    read = {(stage.stage, name) for name, indexes in intention.read.items() if indexes}
    if not read:  # a run for timers, or a correction: the cycle did not turn
        return stage.turns
    return stage.turns + 1 if on_cycle and read <= set(inner) else 0


def _stage_of(connection: Connection, run: str) -> tuple[str, str]:
    row = connection.execute(select(runs.c.dataflow, runs.c.stage).where(runs.c.id == run)).first()
    if row is None:
        raise NotFoundError(kind="run", name=run)
    return row.dataflow, row.stage


def _pause_of(stage: StageRecord, because: str) -> str:
    """Return why a stage is paused from now on; a pause by an operator remains one."""
    return stage.paused_because if stage.is_paused else because


def _update_stage(connection: Connection, stage: StageRecord, **values: Any) -> None:
    connection.execute(
        update_table(stages)
        .where(stages.c.dataflow == stage.dataflow, stages.c.stage == stage.stage)
        .values(values)
    )


def _commit_run(connection: Connection, intention: Intention, finished_at: datetime) -> None:
    row = connection.execute(select(runs).where(runs.c.id == intention.run)).first()
    known = _lost_run(connection, intention) if row is None else rows.run_of(row)
    run = replace(
        known,
        status=RunStatus.COMMITTED,
        read=intention.read,
        remove=intention.remove,
        finished_at=finished_at,
        figures=intention.figures,
        error=None,
    )
    if row is None:
        connection.execute(insert(runs), rows.run_row(run))
    else:
        connection.execute(update_table(runs).where(runs.c.id == run.id).values(rows.run_row(run)))


def _lost_run(connection: Connection, intention: Intention) -> RunRecord:
    """Rebuild the record of a run that the store has lost, from its intention."""
    attempts = select(func.count()).where(
        runs.c.dataflow == intention.dataflow,
        runs.c.stage == intention.stage,
        runs.c.epoch == intention.epoch,
    )
    return RunRecord(
        id=intention.run,
        dataflow=intention.dataflow,
        stage=intention.stage,
        epoch=intention.epoch,
        attempt=connection.execute(attempts).scalar_one() + 1,
        status=RunStatus.PREPARED,
        read=intention.read,
        remove=intention.remove,
        # Its start is not recorded, so this is the time of its preparation.
        started_at=datetime.fromtimestamp(intention.prepared_ms / 1000, UTC),
    )
