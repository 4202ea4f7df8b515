"""Corrections: replace records of a state, with a reason; list the corrections.

The body is JSON. Values are written as in the records that the service returns: as text if JSON
lacks the type (decimals, dates, times, base64). Numbers and booleans may also be given as text.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from fastapi import Query, Request
from pydantic import Field, ValidationError
from starlette.concurrency import run_in_threadpool

from cbp.errors import DefinitionError, Mistake
from cbp.model.flow.schema import Schema
from cbp.model.instants import instant_of
from cbp.model.run.correction import CORRECTIONS_MAX, Correction, corrected_records
from controller.api.answers.json_values import json_value
from controller.api.answers.schemas import Model, Page
from controller.api.requests.body import read_body
from controller.api.requests.keys import schemas_of
from controller.api.requests.moments import RangePageQuery
from controller.api.routing.cursors import CursorsDep
from controller.api.routing.dependencies import (
    AmendmentsDep,
    ControllerDep,
    IdempotencyKey,
    IdempotencyKeysDep,
    ReadingDep,
)
from controller.api.routing.router_factory import Scope, needs, problems, request_body, router
from controller.loop.records.correction_log import Corrected
from controller.store.errors import CursorInvalidError
from controller.value_conversion import from_json, from_text

routes = router("corrections", "/dataflows/{name}")

_TEXTS = frozenset({"TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "BOOLEAN"})


class CorrectionQuery(Model):
    """The author and the reason of a correction."""

    reason: str = Field(min_length=1, max_length=1000)
    by: str = Field("", max_length=200, description="Who asks for it.")


class CorrectionIn(Model):
    """New content of one key: exactly one of `set` and `records`."""

    key: dict[str, Any]
    set: dict[str, Any] | None = Field(
        None,
        description="Columns to set in every record of the key; a key without records gets one.",
    )
    records: list[dict[str, Any]] | None = Field(
        None,
        max_length=CORRECTIONS_MAX,
        description="All records of the key from now on; [] deletes the key.",
    )


class CorrectionsIn(Model):
    """The body of a correction."""

    corrections: list[CorrectionIn] = Field(min_length=1, max_length=CORRECTIONS_MAX)


class CorrectionOut(Model):
    """A correction that was made."""

    run: str
    stage: str
    state: str
    keys: int
    epoch: int = Field(description="Epoch of the run's leading stage.")
    generation: int
    undone: bool = Field(description="Whether a roll-back has undone it.")
    file: str = Field(description="Parquet file with what was corrected, in the dataflow's folder.")
    at: datetime
    by: str
    reason: str


class PreviewOut(Model):
    """The effect of a correction on one key now."""

    key: dict[str, Any]
    before: list[dict[str, Any]]
    after: list[dict[str, Any]]


class PreviewsOut(Model):
    """The effects of a correction on its first keys."""

    items: list[PreviewOut]
    keys: int = Field(description="Number of all keys of the correction.")


PREVIEWED_MAX = 100
"""How many keys a preview shows; each costs a look-up."""

_BODY = request_body("application/json", schema=CorrectionsIn.model_json_schema())


@routes.post(
    "/state/{stage}/{state}/corrections",
    openapi_extra=_BODY,
    responses=problems(404, 409, 413, 422),
)
@needs(Scope.ADMIN)
async def correct(
    name: str,
    stage: str,
    state: str,
    request: Request,
    controller: ControllerDep,
    amendments: AmendmentsDep,
    idempotency_keys: IdempotencyKeysDep,
    query: CorrectionQuery = Query(),
    idempotency_key: IdempotencyKey = None,
) -> CorrectionOut:
    """Correct records of a state in a separate epoch, which is published when this returns.

    A request that repeats an Idempotency-Key gets the first answer and corrects nothing more.
    """
    body = await read_body(request)

    def act() -> Corrected:
        schemas = schemas_of(controller.dataflow(name), stage, state)
        corrections = _parse(body, *schemas)
        asked = f"correct {name} {stage} {state} {query.model_dump_json()} ".encode() + body
        with idempotency_keys.use(idempotency_key, asked):
            return amendments.correct(
                name,
                stage,
                state,
                corrections,
                who=query.by,
                why=query.reason,
                request=idempotency_key or "",
            )

    return _shown(await run_in_threadpool(act))


@routes.post(
    "/state/{stage}/{state}/corrections/preview",
    openapi_extra=_BODY,
    responses=problems(404, 409, 413, 422),
)
@needs(Scope.VIEWER, changes=False)
async def preview(
    name: str,
    stage: str,
    state: str,
    request: Request,
    controller: ControllerDep,
    amendments: AmendmentsDep,
    reading: ReadingDep,
) -> PreviewsOut:
    """Show the effects of a correction, for at most 100 keys; changes nothing."""
    body = await read_body(request)

    def look() -> PreviewsOut:
        key, schema = schemas_of(controller.dataflow(name), stage, state)
        corrections = _parse(body, key, schema)
        amendments.check_corrections(name, stage, state, corrections)
        items = []
        for one in corrections[:PREVIEWED_MAX]:
            before = reading.look_up(name, stage, state, one.key)
            after = corrected_records(schema, one, before)
            items.append(
                PreviewOut(
                    key=json_value(one.key), before=json_value(before), after=json_value(after)
                )
            )
        return PreviewsOut(items=items, keys=len(corrections))

    return await run_in_threadpool(look)


@routes.get("/corrections", responses=problems(404))
@needs(Scope.VIEWER)
def list_corrections(
    name: str, amendments: AmendmentsDep, cursors: CursorsDep, query: RangePageQuery = Query()
) -> Page[CorrectionOut]:
    """List the corrections with person, state, time and reason, newest first."""
    every = reversed(amendments.corrections(name))
    corrections = [one for one in every if query.holds_ms(one.at_ms)]
    if (last := cursors.open(query.cursor)) is not None:
        if all(one.run != last for one in corrections):
            raise CursorInvalidError(last)
        corrections = [one for one in corrections if one.run < last]
    return cursors.first_of(corrections, query, lambda one: one.run, _shown)


def _parse(body: bytes, key: Schema, schema: Schema) -> list[Correction]:
    try:
        given = CorrectionsIn.model_validate_json(body).corrections
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"])) or "body"
        raise _invalid(place, first["msg"]) from error
    return [_correction(one, key, schema, f"corrections[{n}]") for n, one in enumerate(given)]


def _correction(given: CorrectionIn, key: Schema, schema: Schema, where: str) -> Correction:
    typed_key = _typed(given.key, key, f"{where}.key")
    if (given.set is None) == (given.records is None):
        which = "neither" if given.set is None else "both"
        raise _invalid(where, f"has {which} of `set` and `records`; give one of the two")
    if given.set is not None:
        return Correction(typed_key, "set", (_typed(given.set, schema, f"{where}.set"),))
    records = enumerate(given.records or ())
    typed = [_typed(one, schema, f"{where}.records[{n}]") for n, one in records]
    return Correction(typed_key, "records", tuple(typed))


def _typed(values: Mapping[str, Any], schema: Schema, where: str) -> dict[str, Any]:
    typed = {}
    for name, value in values.items():
        place = f"{where}.{name}"
        if name not in schema:
            raise _invalid(place, f"is not one of the columns ({schema})")
        type_ = schema[name].type
        as_text = isinstance(value, str) and type_.kind in _TEXTS
        try:
            read = from_text(type_) if as_text else from_json(type_)
            typed[name] = None if value is None else read(value)
        except ValueError as error:
            raise _invalid(place, str(error)) from error
    return typed


def _invalid(where: str, message: str) -> DefinitionError:
    return DefinitionError(Mistake("correction_invalid", where, message))


def _shown(one: Corrected) -> CorrectionOut:
    return CorrectionOut.of(
        one,
        one.note,
        file=one.note.path,
        at=instant_of(one.at_ms),
        by=one.note.who,
        reason=one.note.why,
    )
