"""Roll-backs: show what one would do, do it, list past ones with their reasons."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime
from typing import Annotated

from fastapi import Path, Query
from pydantic import Field

from cbp.errors import NotFoundError
from cbp.model.flow.generation import Generation
from cbp.model.instants import instant_of
from cbp.model.version.rollback_point import PointAfterRun
from controller.api.answers.jobs import JobOut, JobStatus
from controller.api.answers.schemas import Model, Page, PageQuery
from controller.api.requests.moments import RangePageQuery
from controller.api.routing.cursors import CursorsDep, page_behind
from controller.api.routing.dependencies import (
    AmendmentsDep,
    IdempotencyKey,
    IdempotencyKeysDep,
    RollbackJobsDep,
    StoreDep,
)
from controller.api.routing.router_factory import PREFIX, Scope, needs, problems, router
from controller.loop.operations.jobs import RollbackJob
from controller.loop.records.correction_log import Corrected
from controller.loop.recovery.undone_inputs import UndoneInput
from controller.store.base import Store

routes = router("rollbacks", "/dataflows/{name}")

_FILES_SHOWN = 20
_FILES = "rollbacks_list_undone_files"
"""The list of files; a plan contains its first page."""
_TO = (
    "The number of a position, a stage with its last epoch to keep (count:57), a time (in UTC if "
    "it has no zone), or the first increment to read or make again (urls/3, count.totals/57)."
)
_WITHOUT_MAX = 100


class PlanQuery(Model):
    """The target of a roll-back."""

    to: str = Field(min_length=1, max_length=200, description=_TO)
    drop_later: bool = Field(
        False, description="Discard later arrivals and closes instead of queueing them again."
    )
    without: list[Annotated[str, Field(min_length=1, max_length=1000)]] = Field(
        default_factory=list,
        max_length=_WITHOUT_MAX,
        description="Files that are not applied again: a file's name, `source/name`, or an "
        "increment as `source/number`. May be given several times.",
    )


class ReplayQuery(Model):
    """The author and the reason of a replay."""

    reason: str = Field(min_length=1, max_length=1000)
    by: str = Field("", max_length=200, description="Name of the person who asks for the change.")


class RollbackQuery(ReplayQuery, PlanQuery):
    """The target, the author and the reason of a roll-back."""

    pause: bool = Field(False, description="Leave the dataflow paused.")


class TableRewindOut(Model):
    """What a roll-back does to one table."""

    table: str
    shows: int = Field(description="The version whose records the table shows after the roll-back.")
    files_removed: int
    files_added: int
    records_now: int
    records_then: int
    bytes_now: int
    bytes_then: int


class RollbackOut(Model):
    """A roll-back that was done."""

    generation: int
    position: int
    epochs: dict[str, int] = Field(
        description="Maps each stage to its next epoch after the roll-back."
    )
    undone: dict[str, int] = Field(
        description="Maps each stage to the number of its epochs that were undone."
    )
    dropped: dict[str, int] = Field(
        description="Maps each source to the number of its increments that are not read again."
    )
    left_out: dict[str, list[int]] = Field(
        description="Maps each source to the numbers of its increments that the request left "
        "out (`without`); they are not read again."
    )
    closes_dropped: int = Field(description="Number of later closes that are discarded.")
    at: datetime
    by: str
    reason: str


class RollbackJobOut(JobOut):
    """A roll-back that is under way, or has ended."""

    status: JobStatus
    rollback: RollbackOut | None = Field(
        description="What was done; `null` until the roll-back is done."
    )


class CorrectionUndoneOut(Model):
    """A correction that a roll-back would undo."""

    run: str
    stage: str
    state: str
    keys: int
    at: datetime
    by: str
    reason: str


class UndoneFileOut(Model):
    """A file of a source whose effect a roll-back would undo."""

    source: str
    index: int = Field(description="Number of its increment.")
    name: str = Field(
        description="The file's name, as its producer gave it; empty if no longer known."
    )
    again: bool = Field(description="Whether the file is applied again; otherwise it is dropped.")
    accepted_at: datetime | None


class RollbackPlanOut(Model):
    """What a roll-back would do."""

    rollback: RollbackOut
    records_undone: int
    queued: dict[str, int] = Field(
        description="Maps each `stage.input` to the number of increments that wait after the "
        "roll-back."
    )
    closes_again: int = Field(
        description="Number of closes after the roll-back point that are kept and applied again."
    )
    tables: list[TableRewindOut]
    queued_before: dict[str, int] = Field(
        description="With `drop_later`: maps each source to the number of increments that arrived "
        "before the roll-back point, but had not been read by then; they are applied again."
    )
    comes_back: dict[str, list[int]] = Field(
        description="Maps each source to increments that an earlier roll-back removed, and that "
        "are applied again because this roll-back goes back further."
    )
    corrections: list[CorrectionUndoneOut] = Field(
        description="Corrections that the roll-back would undo, oldest first."
    )
    files: list[UndoneFileOut] = Field(
        description="The first 20 files whose effect the roll-back would undo, by source and "
        "arrival. Of a framed input, these are the files that had not been framed at the "
        "roll-back point."
    )
    files_total: int = Field(description="Number of all files whose effect would be undone.")
    files_cursor: str | None = Field(
        description="Cursor of `/rollback/files` for the files after these; `null` if these are "
        "all."
    )


class FilesQuery(PlanQuery, PageQuery):
    """The target of a roll-back, and the part of its files that a client wants."""


class MomentsQuery(RangePageQuery):
    """The part of the roll-back points that a client wants."""

    drop_later: bool = Field(
        False, description="Only points that a roll-back with `drop_later` can reach."
    )


class MomentOut(Model):
    """A roll-back point: a moment to which a dataflow can be rolled back."""

    position: int = Field(
        description="Number of runs that a roll-back to this point keeps. Send this number as "
        "`to` of the roll-back."
    )
    stage: str = Field(
        description="Stage whose run was recorded; empty for the moment before the first run."
    )
    epoch: int = Field(description="Number of that run; -1 for the moment before the first run.")
    at: datetime | None = Field(
        description="When it was recorded; `null` for the moment before the first run."
    )


@routes.get("/rollback/moments", responses=problems(404))
@needs(Scope.VIEWER)
def list_moments(
    name: str, amendments: AmendmentsDep, cursors: CursorsDep, query: MomentsQuery = Query()
) -> Page[MomentOut]:
    """List the roll-back points of a dataflow, newest first."""
    moments = amendments.moments(
        name,
        limit=cursors.size(query) + 1,
        since=query.since,
        until=query.until,
        below=cursors.number(query.cursor),
        drop_later=query.drop_later,
    )
    return cursors.first_of(moments, query, lambda one: str(one.point.number), _moment)


@routes.get("/rollback", responses=problems(404, 409))
@needs(Scope.VIEWER)
def plan(
    name: str,
    amendments: AmendmentsDep,
    store: StoreDep,
    cursors: CursorsDep,
    query: PlanQuery = Query(),
) -> RollbackPlanOut:
    """Show what a roll-back would do; changes nothing."""
    cursors = cursors.of_list(_FILES).about(query.to)
    plan_ = amendments.plan_roll_back(
        name, query.to, drop_later=query.drop_later, without=query.without
    )
    shown, more = page_behind(plan_.undone_inputs, _place_of, place=None, size=_FILES_SHOWN)
    return RollbackPlanOut.of(
        plan_,
        rollback=_shown(plan_.generation),
        tables=[TableRewindOut(table=t, **asdict(one)) for t, one in plan_.tables.items()],
        corrections=[
            CorrectionUndoneOut.of(
                one, one.note, at=instant_of(one.at_ms), by=one.note.who, reason=one.note.why
            )
            for one in amendments.corrections(name)
            if not one.undone and _is_undone(one, plan_.generation)
        ],
        files=[_file(store, name, one) for one in shown],
        files_total=len(plan_.undone_inputs),
        files_cursor=cursors.seal(more),
    )


@routes.get("/rollback/files", responses=problems(404, 409))
@needs(Scope.VIEWER)
def list_undone_files(
    name: str,
    amendments: AmendmentsDep,
    store: StoreDep,
    cursors: CursorsDep,
    query: FilesQuery = Query(),
) -> Page[UndoneFileOut]:
    """List the files whose effect a roll-back would undo, by source and arrival."""
    cursors = cursors.about(query.to)
    after = cursors.named(query.cursor) or ("", -1)
    plan_ = amendments.plan_roll_back(
        name, query.to, drop_later=query.drop_later, without=query.without
    )
    rest = [one for one in plan_.undone_inputs if (one.source, one.index) > after]
    return cursors.first_of(rest, query, _place_of, lambda one: _file(store, name, one))


@routes.post("/rollback", status_code=202, responses=problems(404, 409))
@needs(Scope.ADMIN)
def roll_back(
    name: str,
    jobs: RollbackJobsDep,
    idempotency_keys: IdempotencyKeysDep,
    query: RollbackQuery = Query(),
    idempotency_key: IdempotencyKey = None,
) -> RollbackJobOut:
    """Begin to take tables, queues and epochs back to an earlier moment, and continue there.

    Poll the job until it has ended; it fails if the roll-back is impossible. A request that repeats
    an Idempotency-Key gets the same job, and undoes nothing more.
    """
    asked = f"rollback {name} {query.model_dump_json()}".encode()
    with idempotency_keys.use(idempotency_key, asked):
        job = jobs.start(
            name,
            query.to,
            who=query.by,
            why=query.reason,
            drop_later=query.drop_later,
            without=query.without,
            pause=query.pause,
            request=idempotency_key or "",
        )
    return _job(job)


@routes.post("/increments/{flow}/{index}/replay", status_code=202, responses=problems(404, 409))
@needs(Scope.ADMIN)
def replay(
    name: str,
    flow: str,
    index: Annotated[int, Path(ge=0, lt=1 << 59)],
    jobs: RollbackJobsDep,
    idempotency_keys: IdempotencyKeysDep,
    query: ReplayQuery = Query(),
    idempotency_key: IdempotencyKey = None,
) -> RollbackJobOut:
    """Begin to apply an increment and all later ones again, with the registered code.

    This is a roll-back to the moment before the increment arrived, or before its stage made it.
    `GET /dataflows/{name}/rollback?to=FLOW/INDEX` shows its effects.
    """
    to = f"{flow}/{index}"
    asked = f"replay {name} {to} {query.model_dump_json()}".encode()
    with idempotency_keys.use(idempotency_key, asked):
        job = jobs.start(name, to, who=query.by, why=query.reason, request=idempotency_key or "")
    return _job(job)


@routes.get("/rollback/jobs/{job}", responses=problems(404))
@needs(Scope.VIEWER, leader_only=True)
def show_job(name: str, job: str, jobs: RollbackJobsDep) -> RollbackJobOut:
    """Show the progress or the result of a roll-back."""
    return _job(jobs.show(name, job))


@routes.get("/rollbacks", responses=problems(404))
@needs(Scope.VIEWER)
def list_rollbacks(
    name: str, amendments: AmendmentsDep, cursors: CursorsDep, query: RangePageQuery = Query()
) -> Page[RollbackOut]:
    """List the roll-backs of a dataflow with their effects and reasons, newest first.

    Without a `limit` all of them are returned.
    """
    made = [one for one in amendments.rollbacks(name)[::-1] if query.holds_ms(one.prepared_ms)]
    return cursors.short_list(made, query, lambda one: str(one.number), _shown)


def _place_of(one: UndoneInput) -> str:
    return f"{one.source}/{one.index}"


def _file(store: Store, dataflow: str, one: UndoneInput) -> UndoneFileOut:
    try:
        record = store.increment(dataflow, one.source, one.index)
    except NotFoundError:
        name, accepted_at = "", None
    else:
        names = record.origin.get("files", ())
        more = int(record.origin.get("file_count", 0)) - len(names)
        name = ", ".join(names) + (f" and {more} more" if more > 0 else "")
        accepted_at = record.created_at
    return UndoneFileOut.of(one, name=name, accepted_at=accepted_at)


def _is_undone(one: Corrected, generation: Generation) -> bool:
    stage = generation.position.stages.get(one.leader)
    return stage is not None and one.epoch >= stage.epoch


def _moment(one: PointAfterRun) -> MomentOut:
    at = instant_of(one.point.at_ms) if one.stage else None
    return MomentOut.of(one, position=one.point.number, at=at)


def _job(one: RollbackJob) -> RollbackJobOut:
    path = f"{PREFIX}/dataflows/{one.dataflow}/rollback/jobs/{one.id}"
    done = None if one.result is None else _shown(one.result)
    return RollbackJobOut.at(path, one, rollback=done)


def _shown(one: Generation) -> RollbackOut:
    epochs = {name: stage.epoch for name, stage in one.position.stages.items()}
    return RollbackOut(
        generation=one.number,
        position=one.position.number,
        epochs=epochs,
        undone={name: end - epochs.get(name, end) for name, end in one.undone.items()},
        dropped=dict(one.dropped),
        left_out={source: list(indexes) for source, indexes in one.left_out.items()},
        closes_dropped=len(one.closes_dropped),
        at=instant_of(one.prepared_ms),
        by=one.who,
        reason=one.why,
    )
