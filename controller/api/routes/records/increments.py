"""Increments of a dataflow's flows, newest first; which stages applied each, and where it waits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated

from fastapi import Path, Query
from pydantic import Field

from cbp.errors import NotFoundError
from cbp.model.dataflow.dataflow import Dataflow
from cbp.model.flow.connector import Connector
from cbp.model.graph.cycles import components, predecessors
from cbp.model.plan.increment_progress import Cell, CellStatus, StageProgress, follow
from cbp.model.run.intention import RunStatus
from controller.api.answers.json_values import json_value
from controller.api.answers.schemas import IncrementOut, Model, Page, PageQuery, Records
from controller.api.figures.rejected import rejected_of_increment
from controller.api.requests.moments import RangePageQuery
from controller.api.routing.cursors import CursorsDep
from controller.api.routing.dependencies import ControllerDep, ReadingDep, StoreDep
from controller.api.routing.router_factory import Scope, needs, problems, router
from controller.store.base import IncrementRecord, RunRecord, StageRecord, Store

routes = router("increments", "/dataflows/{name}/increments")

GRID_ROWS_MAX = 100


class IncrementQuery(RangePageQuery):
    """Which increments to list."""

    flow: str | None = Field(None, max_length=200, description="`source` or `stage.output`.")


@routes.get("", responses=problems(404))
@needs(Scope.VIEWER, read_anywhere=True, lasting=True)
def list_increments(
    name: str, store: StoreDep, cursors: CursorsDep, query: IncrementQuery = Query()
) -> Page[IncrementOut]:
    """List the increments of a dataflow."""
    store.dataflow(name)
    limit = cursors.size(query)
    page = store.increments(
        name,
        query.flow,
        since=query.since,
        until=query.until,
        cursor=cursors.open(query.cursor),
        limit=limit,
    )
    return Page(items=[_shown(record) for record in page.items], cursor=cursors.seal(page.cursor))


class GridQuery(PageQuery):
    """Which increments to show by stage."""

    flow: str | None = Field(
        None, max_length=200, description="`source` or `stage.output`; by default the first source."
    )
    not_applied: bool = Field(False, description="Only increments that some stage has not applied.")
    limit: int | None = Field(None, ge=1, le=100, description="Maximum number of rows to return.")


class GridStageOut(Model):
    """One column: a leading stage."""

    name: str
    stages: list[str] = Field(description="The stages that run together.")
    failures: int = Field(description="How often in a row the run that is due next has failed.")
    retry_at: datetime | None
    stopped: str = Field(
        description="Why the stage does not start automatically; empty if it does."
    )
    paused_itself: bool = Field(
        description="Whether an operator paused the stage. If so, resume the stage; a retry is "
        "refused."
    )


class GridCellOut(Model):
    """The progress of one stage on an increment, or on the output made from it."""

    status: CellStatus
    run: str | None = Field(
        description="The run that applied the increment; `null` if there is none, or if it is "
        "unknown."
    )
    epoch: int | None


class GridRowOut(Model):
    """One increment."""

    index: int
    records: int
    bytes: int
    created_at: datetime
    rejected: int = Field(
        description="Number of rejected records in the files of the increment; they are not in "
        "the increment."
    )
    file: str = Field(
        description="The file from which the increment was made; empty for the flow of a stage."
    )
    cells: list[GridCellOut] = Field(
        description="One cell for each of `stages`, in the same order."
    )


class GridOut(Model):
    """Increments of one flow by stage, newest first."""

    flow: str
    flows: list[str] = Field(description="All flows of the dataflow, sources first.")
    stages: list[GridStageOut]
    items: list[GridRowOut]
    cursor: str | None


@routes.get("/grid", responses=problems(404))
@needs(Scope.VIEWER)
def grid(
    name: str,
    store: StoreDep,
    controller: ControllerDep,
    cursors: CursorsDep,
    query: GridQuery = Query(),
) -> GridOut:
    """Show which stages applied each increment of a flow, and where it waits.

    If a stage reads the increment only through other stages, their output is followed. At most
    1,000 increments are examined for one answer, so a page with a cursor may be short.
    """
    store.dataflow(name)
    dataflow = controller.dataflow(name)
    flows = list(dataflow.flows())
    flow = query.flow or flows[0]
    if flow not in flows:
        raise NotFoundError(kind="flow", name=f"{name}/{flow}")
    members = controller.members(name)
    limit = min(cursors.size(query), GRID_ROWS_MAX)
    wiring = {stage: dict(node.wiring) for stage, node in dataflow.stages.items()}
    upstream_first = (stage for part in components(predecessors(wiring)) for stage in part)
    order = [stage for stage in upstream_first if stage in members]
    rows, cursor = _grid_rows(
        store,
        dataflow,
        members,
        order,
        flow,
        cursor=cursors.open(query.cursor),
        limit=limit,
        open_only=query.not_applied,
    )
    states = {one.stage: one for one in store.stages(name)}
    order = [one for one in order if one in states]
    return GridOut(
        flow=flow,
        flows=flows,
        stages=[_column(states[one], members[one]) for one in order],
        items=[_row(record, [cells[one] for one in order]) for record, cells in rows],
        cursor=cursors.seal(cursor),
    )


def _column(stage: StageRecord, members: Sequence[str]) -> GridStageOut:
    return GridStageOut.of(
        stage,
        name=stage.stage,
        stages=members,
        stopped=stage.paused_because,
        paused_itself=stage.is_paused,
    )


def _row(record: IncrementRecord, cells: list[Cell]) -> GridRowOut:
    return GridRowOut.of(
        record,
        record.increment,
        rejected=rejected_of_increment(record),
        file=str(json_value(record.file_names)),
        cells=cells,
    )


@routes.get("/{flow}/{index}", responses=problems(404))
@needs(Scope.VIEWER, read_anywhere=True, lasting=True)
def show(
    name: str,
    flow: str,
    # A database rejects larger numbers, with an error of its own.
    index: Annotated[int, Path(ge=0, le=(1 << 63) - 1)],
    store: StoreDep,
) -> IncrementOut:
    """Show one increment."""
    return _shown(store.increment(name, flow, index))


class FlowColumnOut(Model):
    """One column of a flow."""

    name: str
    type: str = Field(description="Type in the schema, such as `BIGINT` or `ARRAY<STRING>`.")


class IncrementRecords(Records):
    """Records of one increment, with the columns of its flow."""

    columns: list[FlowColumnOut] = Field(
        description="Columns in order. Records of a stage's flow also have `_epoch`."
    )


@routes.get("/{flow}/{index}/records", responses=problems(404, 410))
@needs(Scope.VIEWER, read_anywhere=True)
def read(
    name: str,
    flow: str,
    index: Annotated[int, Path(ge=0, le=(1 << 63) - 1)],
    controller: ControllerDep,
    reading: ReadingDep,
    cursors: CursorsDep,
    query: PageQuery = Query(),
) -> IncrementRecords:
    """Read a page of the records of one increment, in their order."""
    schema = controller.dataflow(name).flows().get(flow)
    if schema is None:
        raise NotFoundError(kind="flow", name=f"{name}/{flow}")
    offset, limit = cursors.number(query.cursor) or 0, cursors.size(query)
    records, behind = reading.read_increment(name, flow, index, offset, limit)
    return IncrementRecords(
        columns=[FlowColumnOut(name=field.name, type=str(field.type)) for field in schema.fields],
        items=[json_value(record) for record in records],
        cursor=cursors.seal(None if behind is None else str(behind)),
    )


def _shown(record: IncrementRecord) -> IncrementOut:
    return IncrementOut.of(
        record,
        record.increment,
        rejected=rejected_of_increment(record),
        origin=json_value(record.origin),
    )


EXAMINED_MAX = 1_000
RUNS_MAX = 1_000

_DONE = ("none", "applied", "unknown")


_Row = tuple[IncrementRecord, Mapping[str, Cell]]
"""One increment, with a cell for each leading stage."""


def _grid_rows(
    store: Store,
    dataflow: Dataflow,
    members: Mapping[str, tuple[str, ...]],
    order: Sequence[str],
    flow: str,
    *,
    cursor: str | None,
    limit: int,
    open_only: bool,
) -> tuple[list[_Row], str | None]:
    """Return a page of increments of one flow, newest first, and the cursor of the next page."""
    connectors = store.connectors(dataflow.name)
    rows: list[_Row] = []
    examined = 0
    while len(rows) < limit and examined < EXAMINED_MAX:
        wanted = min(limit - len(rows) if not open_only else limit, EXAMINED_MAX - examined)
        page = store.increments(dataflow.name, flow, cursor=cursor, limit=wanted)
        if not page.items:
            cursor = None
            break
        since = min(one.created_at for one in page.items)
        stages = {
            leader: _progress(store, dataflow, members[leader], connectors.get(leader, {}), since)
            for leader in order
        }
        for number, record in enumerate(page.items):
            cells = follow(flow, record.increment.index, order, stages)
            examined += 1
            if open_only and all(cell.status in _DONE for cell in cells.values()):
                continue
            rows.append((record, cells))
            if len(rows) == limit and number + 1 < len(page.items):
                cursor = store.increments(
                    dataflow.name, flow, cursor=cursor, limit=number + 1
                ).cursor
                return rows, cursor
        cursor = page.cursor
        if cursor is None:
            break
    return rows, cursor


def _progress(
    store: Store,
    dataflow: Dataflow,
    names: tuple[str, ...],
    connectors: Mapping[str, Connector],
    since: datetime,
) -> StageProgress:
    leader = names[0]
    running = [
        run for run in store.intended_runs() if (run.dataflow, run.stage) == (dataflow.name, leader)
    ]
    last = store.runs(dataflow.name, stage=leader, limit=1).items
    failed = [run for run in last if run.status is RunStatus.FAILED]
    applied: dict[str, dict[int, tuple[str, int]]] = {}
    for run in store.committed_runs(dataflow.name, leader, since=since, limit=RUNS_MAX):
        for name, indexes in run.read.items():
            applied.setdefault(name, {}).update(dict.fromkeys(indexes, (run.id, run.epoch)))
    return StageProgress(
        inputs=dict(dataflow.stages[leader].wiring),
        outputs=tuple(
            f"{name}.{output.name}"
            for name in names
            for output in dataflow.stages[name].translator.outputs
        ),
        waiting={name: _waiting(one) for name, one in connectors.items()},
        running=_read(running),
        failed=_read(failed),
        applied=applied,
        framed=frozenset(name for name, one in connectors.items() if one.framing is not None),
    )


def _waiting(connector: Connector) -> frozenset[int]:
    waiting = connector.unread if connector.framing is None else connector.arrived
    return frozenset(one.index for one in waiting)


def _read(runs: list[RunRecord]) -> dict[str, frozenset[int]]:
    read: dict[str, frozenset[int]] = {}
    for run in runs:
        for name, indexes in run.read.items():
            read[name] = read.get(name, frozenset()) | frozenset(indexes)
    return read
