"""Increments by stage: which stages applied an increment, and where it waits.

The parts are read one after the other, so a run that commits in between may show in only some of
the cells. The figures are for people; no decision depends on them.

Guaranteed: one answer examines at most `EXAMINED_MAX` increments, and reads at most `RUNS_MAX` runs
of each stage. An increment that was applied by an older run is shown as applied, without its run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from cbp.model.dataflow.dataflow import Dataflow
from cbp.model.flow.connector import Connector
from cbp.model.graph.cycles import components, predecessors
from cbp.model.plan.increment_progress import Cell, StageProgress, follow
from cbp.model.run.intention import RunStatus
from controller.store.base import IncrementRecord, RunRecord, Store

EXAMINED_MAX = 1_000
RUNS_MAX = 1_000

_DONE = ("none", "applied", "unknown")


@dataclass(frozen=True, slots=True)
class GridRow:
    """One increment, with a cell for each leading stage."""

    increment: IncrementRecord
    cells: Mapping[str, Cell]


@dataclass(frozen=True, slots=True)
class Grid:
    """A page of increments.

    Attributes:
        order: The leading stages, upstream first.
        cursor: Cursor of the next page; `None` if there is none.
    """

    order: tuple[str, ...]
    rows: tuple[GridRow, ...]
    cursor: str | None


def increment_grid(
    store: Store,
    dataflow: Dataflow,
    members: Mapping[str, tuple[str, ...]],
    flow: str,
    *,
    cursor: str | None,
    limit: int,
    open_only: bool = False,
) -> Grid:
    """Return a page of increments of one flow, newest first.

    Args:
        members: Leading stage to the stages that run together.
        flow: A source, or `stage.output`.
        limit: Maximal number of rows (> 0).
        open_only: Leave out increments that every stage has applied.
    """
    order = _order(dataflow, members)
    connectors = store.connectors(dataflow.name)
    rows: list[GridRow] = []
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
            rows.append(GridRow(record, cells))
            if len(rows) == limit and number + 1 < len(page.items):
                cursor = store.increments(
                    dataflow.name, flow, cursor=cursor, limit=number + 1
                ).cursor
                return Grid(order, tuple(rows), cursor)
        cursor = page.cursor
        if cursor is None:
            break
    return Grid(order, tuple(rows), cursor)


def _order(dataflow: Dataflow, members: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    wiring = {name: dict(stage.wiring) for name, stage in dataflow.stages.items()}
    upstream_first = (stage for part in components(predecessors(wiring)) for stage in part)
    return tuple(stage for stage in upstream_first if stage in members)


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
