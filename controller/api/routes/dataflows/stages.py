"""Stages: why each waits, its queues and their limits, its code, and the size of its state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fastapi import Query
from pydantic import Field

from cbp.errors import NotFoundError
from cbp.model.dataflow.set_aside import BEHIND_CODE
from cbp.model.run.intention import RunStatus
from controller.api.answers.json_values import json_value
from controller.api.answers.schemas import Model, Page, PageQuery, StageOut
from controller.api.figures.overview import OverviewDep
from controller.api.figures.waiting import WaitOut, waits
from controller.api.routing.cursors import CursorsDep
from controller.api.routing.dependencies import ControllerDep, ReadingDep, StageFactsDep, StoreDep
from controller.api.routing.router_factory import Scope, needs, problems, router
from controller.store.base import Store
from controller.store.errors import CursorInvalidError

routes = router("stages")


class StageCodeOut(Model):
    """The code of a stage."""

    version: int = Field(description="Version of the dataflow.")
    registered: str = Field(description="Fingerprint at registration; empty if it is not known.")
    loaded: str = Field(description="Fingerprint of the code that this instance has loaded.")
    drift: str = Field(
        description="How the loaded code differs from the registered code, in words; empty if "
        "runs may use the loaded code."
    )
    place: str = Field(description="`file.py:line` of the translator.")
    newer_files: list[str] = Field(
        description="Files of the code that have changed on disk since they were loaded."
    )


class InputLimitOut(Model):
    """How much can wait at one input before the stage that writes its flow must wait."""

    increments: int | None
    records: int | None
    bytes: int | None


class LookupMomentOut(Model):
    """The version of a table in which a run looked up records."""

    epoch: int = Field(description="The newest epoch that was read; -1 if the table had none.")
    version: int = Field(description="The version of the table that was read.")


class SetAsideBrief(Model):
    """The records that a stage has set aside, in short."""

    records: int = Field(description="Records that are set aside now.")
    message: str = Field(description="The newest error of the stage's code.")
    file: str | None = Field(description="The file of the newest record, if it is known.")
    line: int | None = Field(description="The line of the file, from 1, if it is known.")


class StageDetail(Model):
    """One stage: its progress, what it waits for, and what stopped it."""

    stage: StageOut
    wait: WaitOut | None = Field(description="What the stage that leads its runs waits for.")
    limits: dict[str, InputLimitOut] = Field(
        description="Limit of each input; an input without a limit never holds a stage back."
    )
    moments: dict[str, LookupMomentOut] = Field(
        description="Maps each look-up to the version of its table that the last recorded run "
        "read; empty if no run has used a look-up yet."
    )
    code: StageCodeOut | None = Field(
        description="The loaded code; `null` if its translator cannot be loaded."
    )
    error: dict[str, Any] | None = Field(
        description="The error that stopped the stage, or with which its last attempt failed; "
        "`null` if there is none."
    )
    set_aside: SetAsideBrief | None = Field(
        description="Records that the stage has set aside; `null` if there are none."
    )
    run: str | None = Field(description="The run under way; `null` if there is none.")
    failed_run: str | None = Field(description="The last failed run, unless a later one succeeded.")


class SpreadOut(Model):
    """The size of a state, and how it is spread over its buckets."""

    state: str
    buckets: int = Field(description="Declared buckets.")
    used: int = Field(description="Buckets with files.")
    rows: int
    dead: int = Field(description="Deleted records whose files are not rewritten yet.")
    bytes: int
    files: int
    rows_mean: float = Field(description="Mean number of records per declared bucket.")
    rows_max: int
    fullest: int | None = Field(description="The bucket with the most records.")
    skew: float | None = Field(
        description="Records of the fullest bucket divided by the mean; 1.0 means evenly spread."
    )
    histogram: list[int] = Field(
        description="Number of buckets in each bin; bins go from 0 to `rows_max`."
    )
    bin_rows: float = Field(description="Width of a bin in records.")


class StatesOut(Model):
    """The states of one stage."""

    items: list[SpreadOut]


class StateSizeOut(SpreadOut):
    """The size of a state of a dataflow, and how it is spread over its buckets."""

    stage: str


@routes.get("/dataflows/{name}/stages/{stage}", responses=problems(404))
@needs(Scope.VIEWER)
def show(
    name: str,
    stage: str,
    controller: ControllerDep,
    store: StoreDep,
    overview: OverviewDep,
    facts: StageFactsDep,
    reading: ReadingDep,
) -> StageDetail:
    """Show one stage: why it waits, its queues with their limits, its code, its error."""
    record = store.dataflow(name)
    detail = overview.detail(record, overview.now())
    shown = next((one for one in detail.stages if one.name == stage), None)
    if shown is None:
        raise NotFoundError(kind="stage", name=f"{name}.{stage}")
    leader, waiting = shown.runs_with, waits(controller, store, record).items
    wait = next((one for one in waiting if one.stage == leader), None)
    loaded = detail.definition_problem is None
    failed = _newest(store, name, leader, RunStatus.FAILED) if shown.failures else None
    running = _newest(store, name, leader, RunStatus.INTENDED)
    error = None if wait is None else wait.error
    if error is None and failed is not None:
        error = failed.error
    return StageDetail.of(
        stage=shown,
        wait=wait,
        limits=facts.limits(name, stage) if loaded else {},
        moments=facts.moments(name, stage) if loaded else {},
        code=facts.code(name, stage) if loaded else None,
        error=json_value(error),
        set_aside=_set_aside(reading.set_aside(name, stage)) if loaded else None,
        run=None if running is None else running.id,
        failed_run=None if failed is None else failed.id,
    )


@routes.get("/dataflows/{name}/stages/{stage}/states", responses=problems(404, 409))
@needs(Scope.VIEWER)
def states(name: str, stage: str, facts: StageFactsDep) -> StatesOut:
    """Show the size of each state of a stage, and its skew, from the log of its table."""
    spreads = facts.states(name, stage)
    return StatesOut(items=[SpreadOut.of(one, state=state) for state, one in spreads.items()])


@routes.get("/dataflows/{name}/states", responses=problems(404, 409))
@needs(Scope.VIEWER)
def list_states(
    name: str, facts: StageFactsDep, cursors: CursorsDep, query: PageQuery = Query()
) -> Page[StateSizeOut]:
    """List the states of a dataflow by stage and name, each with its size and its skew."""
    size, cursor = cursors.size(query), cursors.open(query.cursor)
    rest = facts.state_names(name)
    if cursor is not None:
        stage, _, state = cursor.partition(".")
        if not (stage and state):
            raise CursorInvalidError(cursor)
        rest = [one for one in rest if one > (stage, state)]
    sizes = facts.sizes(name, rest[:size])
    return Page(
        items=[
            StateSizeOut.of(one, stage=stage, state=state) for (stage, state), one in sizes.items()
        ],
        cursor=cursors.seal(".".join(rest[size - 1]) if len(rest) > size else None),
    )


def _set_aside(rows: Sequence[Mapping[str, Any]]) -> SetAsideBrief | None:
    if not rows:
        return None
    newest = next((row for row in reversed(rows) if row["code"] != BEHIND_CODE), rows[-1])
    return SetAsideBrief(
        records=len(rows), message=newest["message"], file=newest["file"], line=newest["line"]
    )


def _newest(store: Store, dataflow: str, stage: str, status: RunStatus) -> Any:
    items = store.runs(dataflow, stage=stage, status=status, limit=1).items
    return items[0] if items else None
