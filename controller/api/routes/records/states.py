"""States: the records of a key, all records page by page, and the history of a key.

Records are shown as of now, an epoch or a time. Key columns are query parameters, typed by the
schema. All other parameters of a look-up begin with `_`, unlike any column: `_null`, `_epoch`,
`_stage`, `_at`, `_limit`, `_cursor`.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any, Literal

from fastapi import Query, Request
from pydantic import Field

from cbp.engine.interface.readers import KeyChange
from cbp.errors import NotFoundError
from cbp.model.dataflow.dataflow import Dataflow
from cbp.model.flow.generation import Generation, home_of
from cbp.model.instants import instant_of
from controller.api.answers.json_values import json_value
from controller.api.answers.schemas import PAGE_SIZE_MAX, Model, PageQuery, Records
from controller.api.figures.overview import leader_of
from controller.api.requests.keys import KEY_PARAMETERS, parse_key, schemas_of, second_key_of
from controller.api.requests.moments import Instant, MomentPageQuery, MomentQuery, as_of
from controller.api.routing.cursors import CURSOR_MAX, CursorsDep
from controller.api.routing.dependencies import AmendmentsDep, ControllerDep, ReadingDep, StoreDep
from controller.api.routing.router_factory import Scope, needs, problems, router
from controller.loop.controller import Controller
from controller.loop.records.correction_log import Corrected
from controller.store.base import Store

routes = router("state", "/dataflows/{name}/state/{stage}/{state}")

_OWN = ("_epoch", "_stage", "_at", "_limit", "_cursor")
"""Parameters of a look-up that are not columns."""
_NULL_WORDS = ("", "-", "null", "NULL", "None")
"""Texts that may be meant as null, which has a parameter of its own."""


@routes.get("", openapi_extra=KEY_PARAMETERS, responses=problems(404, 409, 410))
@needs(Scope.VIEWER, read_anywhere=True)
def look_up(
    name: str,
    stage: str,
    state: str,
    request: Request,
    controller: ControllerDep,
    reading: ReadingDep,
    cursors: CursorsDep,
    epoch: Annotated[int | None, Query(alias="_epoch", ge=0)] = None,
    epoch_of: Annotated[str | None, Query(alias="_stage", max_length=200)] = None,
    at: Annotated[Instant | None, Query(alias="_at")] = None,
    limit: Annotated[int | None, Query(alias="_limit", ge=1, le=PAGE_SIZE_MAX)] = None,
    cursor: Annotated[str | None, Query(alias="_cursor", max_length=CURSOR_MAX)] = None,
) -> Records:
    """Return the published state records of one key, page by page; 404 when there is none.

    For a view or a kept state, further columns of its key select among the key's records. All pages
    show the snapshot of the first page.
    """
    pairs = [one for one in request.query_params.multi_items() if one[0] not in _OWN]
    key, among = _key_and_among(controller.dataflow(name), stage, state, pairs)
    moment = as_of(MomentQuery(epoch=epoch, stage=epoch_of, at=at), prefix="_")
    cursors = cursors.about(*(f"{column}={text}" for column, text in sorted(pairs)))
    size, place = cursors.size(PageQuery(limit=limit)), cursors.open(cursor)
    records, behind = reading.page_key(name, stage, state, key, place, size, moment, among)
    if not records:
        given = key | among
        shown = ", ".join(f"{column}={json_value(value)}" for column, value in given.items())
        nulls = [column for column, value in given.items() if value in _NULL_WORDS]
        hint = "".join(f"if {one} is null: --null {one} (REST: _null={one})" for one in nulls[:1])
        raise NotFoundError(kind="state record", name=f"{name}/{stage}.{state} {shown}", hint=hint)
    return Records(items=[json_value(record) for record in records], cursor=cursors.seal(behind))


@routes.get("/records", responses=problems(404, 409, 410))
@needs(Scope.VIEWER, read_anywhere=True)
def page(
    name: str,
    stage: str,
    state: str,
    controller: ControllerDep,
    reading: ReadingDep,
    cursors: CursorsDep,
    query: MomentPageQuery = Query(),
) -> Records:
    """Read a page of a state, ordered by the hash of its key.

    All pages show the snapshot of the first page, so they are complete and without duplicates while
    runs continue.
    """
    schemas_of(controller.dataflow(name), stage, state)
    limit, place = cursors.size(query), cursors.open(query.cursor)
    records, cursor = reading.page_state(name, stage, state, place, limit, as_of(query))
    return Records(items=[json_value(record) for record in records], cursor=cursors.seal(cursor))


CHANGES_MAX = 50
_PAGING = ("_limit", "_cursor")


class HistoryCorrectionOut(Model):
    """The correction that changed a key."""

    by: str
    reason: str


class KeyChangeOut(Model):
    """One publication that changed the records of a key."""

    first_epoch: int = Field(
        description="First of the epochs of this publication; usually the same as `epoch`."
    )
    epoch: int
    version: int = Field(description="Version of the state's table.")
    at: datetime
    before: list[dict[str, Any]]
    after: list[dict[str, Any]]
    undone: bool = Field(description="Whether a roll-back has undone it.")
    run: str | None = Field(
        description="The run that made the change; `null` if it is no longer known."
    )
    correction: HistoryCorrectionOut | None = Field(
        description="Set if an operator made the change."
    )


class KeyHistoryOut(Model):
    """The changes of one key, newest first."""

    items: list[KeyChangeOut]
    cursor: str | None
    ends: Literal["begin", "not_kept", "more"] = Field(
        description="`begin`: the history is complete. `not_kept`: older versions were collected. "
        "`more`: use the cursor."
    )


@routes.get("/history", openapi_extra=KEY_PARAMETERS, responses=problems(404, 409, 410))
@needs(Scope.VIEWER)
def history(
    name: str,
    stage: str,
    state: str,
    request: Request,
    store: StoreDep,
    controller: ControllerDep,
    reading: ReadingDep,
    amendments: AmendmentsDep,
    cursors: CursorsDep,
    limit: Annotated[int, Query(alias="_limit", ge=1, le=CHANGES_MAX)] = 20,
    cursor: Annotated[str | None, Query(alias="_cursor", max_length=CURSOR_MAX)] = None,
) -> KeyHistoryOut:
    """Return the epochs that changed one key, as far back as versions of the state are kept.

    For a view or a kept state, further columns of its key select among the key's records.
    """
    pairs = [one for one in request.query_params.multi_items() if one[0] not in _PAGING]
    key, among = _key_and_among(controller.dataflow(name), stage, state, pairs)
    cursors = cursors.about(*(f"{column}={text}" for column, text in sorted(pairs)))
    made, behind = reading.history(name, stage, state, key, cursors.open(cursor), limit, among)
    past = _Past(
        controller, store, name, stage, amendments.rollbacks(name), amendments.corrections(name)
    )
    return KeyHistoryOut(
        items=[past.shown(one) for one in made.changes], cursor=cursors.seal(behind), ends=made.ends
    )


def _key_and_among(
    dataflow: Dataflow, stage: str, state: str, pairs: Sequence[tuple[str, str]]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the key of a look-up, and further columns of it that select among its records."""
    schema, _ = schemas_of(dataflow, stage, state)
    given = parse_key(schema, pairs, optional=second_key_of(dataflow, stage, state))
    key = {column: given.pop(column) for column in schema.names}
    return key, given


class _Past:
    """Finds the run that made a change, and whether a roll-back undid it."""

    def __init__(
        self,
        controller: Controller,
        store: Store,
        dataflow: str,
        stage: str,
        generations: Sequence[Generation],
        corrections: Sequence[Corrected],
    ) -> None:
        self._store, self._dataflow, self._generations = store, dataflow, generations
        self._leader = leader_of(controller, dataflow, stage)
        self._corrections = {
            (one.epoch, one.generation): one for one in corrections if one.leader == self._leader
        }
        outputs = controller.dataflow(dataflow).stages[stage].translator.outputs
        self._flow = f"{stage}.{outputs[0].name}" if outputs else None

    def shown(self, change: KeyChange) -> KeyChangeOut:
        """Return a change with its run, its correction, and whether it is undone."""
        undone = home_of(self._generations, self._leader, change.epoch) != change.generation
        correction = self._corrections.get((change.epoch, change.generation))
        return KeyChangeOut.of(
            change,
            at=instant_of(change.at_ms),
            before=json_value(change.before),
            after=json_value(change.after),
            undone=undone,
            run=None if undone else self._run(change.epoch),
            correction=correction
            and HistoryCorrectionOut(by=correction.note.who, reason=correction.note.why),
        )

    def _run(self, epoch: int) -> str | None:
        if self._flow is None:
            return None
        try:
            origin = self._store.increment(self._dataflow, self._flow, epoch).origin
        except NotFoundError:
            return None
        return str(origin["run"]) if "run" in origin else None
