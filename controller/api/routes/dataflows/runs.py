"""Runs: list, show, cancel, try again; one, or many in one request; where a run is now.

A request for many runs is answered with 207 and a report for each of them: some can succeed while
others are refused. If it is repeated, what was already done is refused, and nothing changes.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Annotated, Any

from fastapi import Query
from pydantic import ConfigDict, Field

from cbp.errors import CbpError
from cbp.model.run.intention import RunStatus
from controller.api.answers.json_values import json_value
from controller.api.answers.problems import STATUS
from controller.api.answers.request_errors import RunEndedError, RunNotDueError
from controller.api.answers.schemas import BulkItemOut, BulkOut, Model, Page, PageQuery, RunOut
from controller.api.figures.overview import leader_of
from controller.api.figures.run_figures import RunFiguresDep
from controller.api.requests.moments import ErrorCode, RangePageQuery
from controller.api.routing.cursors import CursorsDep
from controller.api.routing.dependencies import (
    ControllerDep,
    ExchangeDep,
    GrantedRunDep,
    RunLogsDep,
    StoreDep,
    touchable_run,
)
from controller.api.routing.router_factory import Scope, needs, problems, router
from controller.api.routing.scope_check import require_granted, require_touchable
from controller.loop.controller import Controller
from controller.store.base import RunRecord, Store
from controller.store.errors import CursorInvalidError

RUNS_MAX = 500
"""Maximum number of runs of one request."""

routes = router("runs")


_RunId = Annotated[str, Field(pattern=r"^[a-z0-9]{1,100}$")]


class RunQuery(RangePageQuery):
    """Which runs to list; listed runs match all given filters."""

    dataflow: str | None = Field(None, max_length=200)
    stage: str | None = Field(
        None,
        max_length=200,
        description="Name of a stage. Without `dataflow`, the stage must lead its runs.",
    )
    status: RunStatus | None = None
    epoch: int | None = Field(None, ge=0, le=(1 << 63) - 1)
    error_code: ErrorCode = Field(None, description="Code of the error that ended the run.")


class BulkRuns(Model):
    """Runs to cancel, or to try again."""

    runs: list[_RunId] = Field(min_length=1, max_length=RUNS_MAX)


@routes.get("/runs", responses=problems(404))
@needs(Scope.VIEWER, any_dataflow=True, read_anywhere=True, lasting=True)
def list_runs(
    store: StoreDep,
    exchange: ExchangeDep,
    controller: ControllerDep,
    run_figures: RunFiguresDep,
    cursors: CursorsDep,
    query: RunQuery = Query(),
) -> Page[RunOut]:
    """List runs, newest first; a token that is limited to some dataflows has to name one."""
    if query.dataflow is None:
        require_touchable(exchange, None)
    else:
        require_granted(exchange, query.dataflow)
        store.dataflow(query.dataflow)
    leader = query.stage
    if query.dataflow is not None and query.stage is not None:
        leader = leader_of(controller, query.dataflow, query.stage)
    page = store.runs(
        query.dataflow,
        stage=leader,
        status=query.status,
        epoch=query.epoch,
        error_code=query.error_code,
        since=query.since,
        until=query.until,
        cursor=cursors.open(query.cursor),
        limit=cursors.size(query),
    )
    exchange.passing = any(map(_is_passing, page.items))
    return Page(items=run_figures.page(page.items), cursor=cursors.seal(page.cursor))


@routes.post("/runs/cancel", status_code=207)
@needs(Scope.OPERATOR, any_dataflow=True)
def cancel_many(
    body: BulkRuns, store: StoreDep, exchange: ExchangeDep, controller: ControllerDep
) -> BulkOut:
    """Ask runs to stop; the answer lists which were asked, and why others were not."""
    return _each(body, lambda run: _cancel(touchable_run(run, store, exchange), controller))


@routes.post("/runs/retry", status_code=207)
@needs(Scope.OPERATOR, any_dataflow=True, any_instance=True)
def retry_many(
    body: BulkRuns, store: StoreDep, exchange: ExchangeDep, controller: ControllerDep
) -> BulkOut:
    """Retry failed runs now: each of their stages gets one more attempt.

    Only a failed run whose epoch is still the next one of its stage can be tried again.
    """
    return _each(body, lambda run: _retry(touchable_run(run, store, exchange), store, controller))


@routes.get("/runs/{run}", responses=problems(404))
@needs(Scope.VIEWER, any_dataflow=True, read_anywhere=True, lasting=True)
def show(record: GrantedRunDep, run_figures: RunFiguresDep, exchange: ExchangeDep) -> RunOut:
    """Show one run with its figures, or with the error that ended it."""
    exchange.passing = _is_passing(record)
    return run_figures.one(record)


@routes.post("/runs/{run}/cancel", status_code=202, responses=problems(404, 409))
@needs(Scope.OPERATOR, any_dataflow=True)
def cancel(
    record: GrantedRunDep, store: StoreDep, controller: ControllerDep, run_figures: RunFiguresDep
) -> RunOut:
    """Ask a run to stop; it may still finish. Its input stays queued."""
    _cancel(record, controller)
    return run_figures.one(store.run(record.id))


def _each(body: BulkRuns, act: Callable[[str], None]) -> BulkOut:
    items = []
    for run in dict.fromkeys(body.runs):
        status, described = 202, None
        try:
            act(run)
        except CbpError as error:
            status, described = STATUS.get(error.code, 500), json_value(error.as_dict())
        items.append(BulkItemOut(id=run, status=status, error=described))
    return BulkOut(items=items)


def _cancel(record: RunRecord, controller: Controller) -> None:
    if record.status is not RunStatus.INTENDED:
        raise RunEndedError(record.id, record.status)
    controller.cancel(record.id)


def _retry(record: RunRecord, store: Store, controller: Controller) -> None:
    if record.status is not RunStatus.FAILED:
        raise RunNotDueError(record.id, f"it is {record.status}")
    stages = store.stages(record.dataflow)
    due = next((one.epoch for one in stages if one.stage == record.stage), None)
    if due is None:
        raise RunNotDueError(record.id, f"the dataflow no longer has the stage {record.stage!r}")
    if due != record.epoch:
        raise RunNotDueError(record.id, f"its epoch {record.epoch} is done; the next one is {due}")
    controller.retry(record.dataflow, record.stage)


def _is_passing(run: RunRecord) -> bool:
    """Return whether a run is under way; its phases then change, and are not in the store."""
    return run.status is RunStatus.INTENDED


_PLACE_MAX = 1 << 40


class LogLineOut(Model):
    """One line of a run's log, with its further fields."""

    model_config = ConfigDict(extra="allow")

    time: datetime | None = Field(description="`null` if the line has no time.")
    level: str
    event: str


class LogQuery(PageQuery):
    """The part of a log that a client wants."""

    oldest: bool = Field(False, description="Without `cursor`: begin at the first line.")


@routes.get("/runs/{run}/log", responses=problems(404))
@needs(Scope.VIEWER, any_dataflow=True)
def show_log(
    record: GrantedRunDep, run_logs: RunLogsDep, cursors: CursorsDep, query: LogQuery = Query()
) -> Page[LogLineOut]:
    """Show the last lines of a run's log; with `cursor`, the lines after it.

    The lines are kept for some days, on the machine of the instance that executed the run. Each
    answer has a cursor: send it with the next request to follow a run.
    """
    place = cursors.number(query.cursor)
    if place is None:
        place = 0 if query.oldest else None
    elif place > _PLACE_MAX:
        raise CursorInvalidError(str(place))
    page = run_logs.read(record.dataflow, record.id, place, limit=cursors.size(query))
    return Page(items=[_shown(line) for line in page.lines], cursor=cursors.seal(str(page.place)))


class StackCallOut(Model):
    """One call that a process is in."""

    file: str
    line: int
    function: str
    authors: bool = Field(
        description="Whether the called function is in a file with code of the run's stages."
    )


class ProcessStackOut(Model):
    """The calls that one process is in now."""

    pid: int = Field(description="Id of the process on the service's machine.")
    calls: list[StackCallOut] = Field(
        description="The calls that the process is in, outermost first; empty if it did not "
        "answer in time: it is starting or stopped, it waits in a system call for a device, or "
        "its code handles SIGURG."
    )


class RunStackOut(Model):
    """The calls that a run executes now."""

    run: str
    status: RunStatus
    phase: str = Field(description="The phase that the run is in; empty if it has ended.")
    processes: list[ProcessStackOut] = Field(
        description="The worker processes that execute the run; empty if none does now, for "
        "example while the files of the run are being published."
    )


@routes.get("/runs/{run}/stack", responses=problems(404, 409))
@needs(Scope.VIEWER, any_dataflow=True, leader_only=True)
def show_stack(
    record: GrantedRunDep, controller: ControllerDep, run_figures: RunFiguresDep
) -> RunStackOut:
    """Show the lines of code that a run is executing now, without stopping it; shows no values.

    Use it for a run that takes longer than expected. The answer takes seconds if a process does not
    respond. Runs in Spark's own workers cannot be shown (`run_stack_unseen`).
    """
    stacks = controller.stacks(record)
    # Names as the signal handler in the process writes them: in ASCII, with escapes.
    codes = (file.encode("ascii", "backslashreplace") for file in controller.code_files(record))
    files = {code.decode() for code in codes}
    phases = run_figures.one(record).phases
    return RunStackOut(
        run=record.id,
        status=record.status,
        phase=next((one.name for one in phases if one.end_seconds is None), ""),
        processes=[
            ProcessStackOut.of(
                stack,
                calls=[StackCallOut.of(one, authors=one.file in files) for one in stack.calls],
            )
            for stack in stacks
        ],
    )


def _shown(line: dict[str, Any]) -> LogLineOut:
    more = {name: value for name, value in line.items() if name not in ("timestamp", *_OWN)}
    return LogLineOut(
        time=_time(line.get("timestamp")),
        level=str(line.get("level", "info")),
        event=str(line.get("event", "")),
        **more,
    )


_OWN = ("time", "level", "event")


def _time(text: Any) -> datetime | None:
    try:
        return datetime.fromisoformat(text)
    except (TypeError, ValueError):
        return None
