"""The history of a key of a state: which epochs changed it, and what it was before and after."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any, Literal

from fastapi import Query, Request
from pydantic import Field

from cbp.engine.interface.readers import KeyChange
from cbp.errors import NotFoundError
from cbp.model.flow.generation import Generation, home_of
from cbp.model.instants import instant_of
from controller.access.scopes import Scope
from controller.api.answers.json_values import json_value
from controller.api.answers.schemas import Model
from controller.api.figures.overview import members_of
from controller.api.requests.keys import KEY_PARAMETERS, parse_key, schemas_of, second_key_of
from controller.api.routing.cursors import CURSOR_MAX, CursorsDep
from controller.api.routing.dependencies import AmendmentsDep, ControllerDep, ReadingDep, StoreDep
from controller.api.routing.routers import problems, router
from controller.api.routing.scope_check import needs
from controller.loop.controller import Controller
from controller.loop.records.correction_log import Corrected
from controller.store.base import Store

routes = router("state")

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


@routes.get(
    "/dataflows/{name}/state/{stage}/{state}/history",
    openapi_extra=KEY_PARAMETERS,
    responses=problems(404, 409, 410),
)
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
    dataflow = controller.dataflow(name)
    schema, _ = schemas_of(dataflow, stage, state)
    pairs = [one for one in request.query_params.multi_items() if one[0] not in _PAGING]
    given = parse_key(schema, pairs, optional=second_key_of(dataflow, stage, state))
    key = {column: given[column] for column in schema.names}
    among = {column: value for column, value in given.items() if column not in key}
    cursors = cursors.about(*(f"{column}={text}" for column, text in sorted(pairs)))
    made, behind = reading.history(name, stage, state, key, cursors.open(cursor), limit, among)
    past = _Past(
        controller, store, name, stage, amendments.rollbacks(name), amendments.corrections(name)
    )
    return KeyHistoryOut(
        items=[past.shown(one) for one in made.changes], cursor=cursors.seal(behind), ends=made.ends
    )


class _Past:
    """Finds which run made a change, and whether it still counts."""

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
        members = members_of(controller, dataflow)
        self._leader = next((one for one, all_ in members.items() if stage in all_), stage)
        self._corrections = {
            (one.epoch, one.generation): one for one in corrections if one.leader == self._leader
        }
        outputs = controller.dataflow(dataflow).stages[stage].translator.outputs
        self._flows = [f"{stage}.{output.name}" for output in outputs]

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
        for flow in self._flows[:1]:
            try:
                origin = self._store.increment(self._dataflow, flow, epoch).origin
            except NotFoundError:
                return None
            return str(origin["run"]) if "run" in origin else None
        return None
