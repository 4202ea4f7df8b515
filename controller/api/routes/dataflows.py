"""Dataflows: register, check, change, list, show, pause, resume, retry, delete."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Annotated, Any

from fastapi import Query, Request, Response
from starlette.concurrency import run_in_threadpool

from cbp.errors import AlreadyExistsError, CbpError, DataflowInvalidError, Mistake
from cbp.model.dataflow.dataflow import Dataflow
from controller.api.answers.problems import MediaTypeError
from controller.api.answers.schemas import (
    DataflowDetail,
    DataflowSummary,
    LeftOut,
    Model,
    Page,
    Validation,
    Waits,
)
from controller.api.figures.overview import Overview, OverviewDep
from controller.api.figures.waiting import waits
from controller.api.requests.body import read_body
from controller.api.routes.change import ChangeOut, ChangeQuery, change_out
from controller.api.routing.dependencies import (
    ControllerDep,
    ExplainingDep,
    IdempotencyKey,
    IdempotencyKeysDep,
    SettingsDep,
    StoreDep,
)
from controller.api.routing.routers import (
    PREFIX,
    any_instance,
    problems,
    router,
)
from controller.loop.controller import Controller
from controller.loop.operations.version_change import Changed
from controller.registry import Registry
from controller.settings import Settings
from controller.store.base import DataflowRecord, Store

__all__ = ["routes"]

JSON_TYPES = ("application/json",)
YAML_TYPES = ("application/yaml", "application/x-yaml", "text/yaml", "text/x-yaml")

routes = router("dataflows")

_Document = tuple[Mapping[str, Any], tuple[str, ...]]

_NODE = {"type": "object", "additionalProperties": {"type": "object"}}
_DOCUMENT_SCHEMA = {
    "type": "object",
    "additionalProperties": False,
    "required": ["name", "stages"],
    "properties": {
        "name": {"type": "string", "pattern": "^[a-z][a-z0-9_]{0,62}$"},
        "description": {"type": "string"},
        "sources": {**_NODE, "description": "Name to `schema`, `format` and `options`."},
        "stages": {
            **_NODE,
            "description": "Name to `translator`, `parameters`, `inputs`, `buckets` and `fuse`.",
        },
    },
}
_BODY = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {"schema": _DOCUMENT_SCHEMA},
            "application/yaml": {"schema": _DOCUMENT_SCHEMA},
        },
    }
}
_BODY_PROBLEMS = problems(413, 415)


class DeleteQuery(Model):
    """What happens to the tables of a deleted dataflow."""

    purge: bool = False


@routes.post(
    "/dataflows",
    status_code=201,
    openapi_extra=_BODY,
    responses={**_BODY_PROBLEMS, **problems(409)},
)
async def register(
    request: Request,
    response: Response,
    controller: ControllerDep,
    overview: OverviewDep,
    settings: SettingsDep,
    idempotency_keys: IdempotencyKeysDep,
    idempotency_key: IdempotencyKey = None,
) -> DataflowDetail:
    """Register a dataflow; a wrong document gets one problem that lists every mistake."""
    body = await _read(request, settings)
    with idempotency_keys.use(idempotency_key, body):
        registered = await run_in_threadpool(
            _register,
            controller,
            overview,
            body,
            request.headers.get("content-type", ""),
            repeatable=idempotency_key is not None,
        )
    response.headers["Location"] = f"{PREFIX}/dataflows/{registered.summary.name}"
    return registered


@routes.post("/dataflows/validate", openapi_extra=_BODY, responses=_BODY_PROBLEMS)
@any_instance
async def validate(
    request: Request, controller: ControllerDep, settings: SettingsDep
) -> Validation:
    """Check a document as registration does; changes nothing."""
    body = await _read(request, settings)
    content_type = request.headers.get("content-type", "")
    dataflow = await run_in_threadpool(_validate, controller, body, content_type)
    return Validation(
        name=dataflow.name,
        sources=list(dataflow.sources),
        stages=list(dataflow.stages),
        flows={name: str(schema) for name, schema in dataflow.flows().items()},
    )


@routes.put(
    "/dataflows/{name}",
    openapi_extra=_BODY,
    responses={**_BODY_PROBLEMS, **problems(404, 409)},
)
async def change(
    name: str,
    request: Request,
    controller: ControllerDep,
    settings: SettingsDep,
    query: Annotated[ChangeQuery, Query()],
) -> ChangeOut:
    """Replace a dataflow by a new version; with `dry_run`, show what that would do.

    Kept stages keep their state and their queues. Sending the current version again changes
    nothing.
    """
    body = await _read(request, settings)
    content_type = request.headers.get("content-type", "")
    changed = await run_in_threadpool(_change, controller, name, body, content_type, query)
    return change_out(changed)


@routes.get("/dataflows")
def list_dataflows(store: StoreDep, overview: OverviewDep) -> Page[DataflowSummary]:
    """List every dataflow, by name."""
    now = datetime.now(UTC)
    return Page(items=[overview.summarise(record, now) for record in store.dataflows()])


@routes.get("/dataflows/{name}", responses=problems(404))
def show(name: str, store: StoreDep, overview: OverviewDep) -> DataflowDetail:
    """Show one dataflow with its sources, stages and queues."""
    return overview.detail(store.dataflow(name), datetime.now(UTC))


@routes.get("/dataflows/{name}/left", responses=problems(404))
def left(name: str, explaining: ExplainingDep) -> LeftOut:
    """Return the stages that still have work if nothing else arrives, and which work."""
    return LeftOut(stages=dict(explaining.left(name)))


@routes.get("/dataflows/{name}/waiting", responses=problems(404))
def waiting(name: str, controller: ControllerDep, store: StoreDep) -> Waits:
    """Explain what the stages wait for, in words and input by input, as of the last decision."""
    return waits(controller, store, store.dataflow(name))


@routes.post("/dataflows/{name}/pause", responses=problems(404))
@any_instance
def pause(
    name: str, controller: ControllerDep, store: StoreDep, overview: OverviewDep
) -> DataflowSummary:
    """Start no more runs; running ones finish. Idempotent and persistent."""
    controller.pause(name)
    return overview.summarise(store.dataflow(name), datetime.now(UTC))


@routes.post("/dataflows/{name}/resume", responses=problems(404))
@any_instance
def resume(
    name: str, controller: ControllerDep, store: StoreDep, overview: OverviewDep
) -> DataflowSummary:
    """Start runs again, and clear the failures of the stages. Idempotent."""
    controller.resume(name)
    return overview.summarise(store.dataflow(name), datetime.now(UTC))


@routes.post("/dataflows/{name}/stages/{stage}/pause", responses=problems(404))
@any_instance
def pause_stage(
    name: str, stage: str, controller: ControllerDep, store: StoreDep, overview: OverviewDep
) -> DataflowSummary:
    """Start no more runs of one stage; `retry` lets it run again. Idempotent."""
    controller.pause_stage(name, stage)
    return overview.summarise(store.dataflow(name), datetime.now(UTC))


@routes.post("/dataflows/{name}/stages/{stage}/retry", responses=problems(404))
@any_instance
def retry(
    name: str, stage: str, controller: ControllerDep, store: StoreDep, overview: OverviewDep
) -> DataflowSummary:
    """Give a stage that stopped by itself one more try; the next failure stops it again."""
    controller.retry(name, stage)
    return overview.summarise(store.dataflow(name), datetime.now(UTC))


@routes.delete("/dataflows/{name}", status_code=204, responses=problems(404, 409))
def delete(
    name: str,
    controller: ControllerDep,
    store: StoreDep,
    query: Annotated[DeleteQuery, Query()],
) -> None:
    """Delete a dataflow; its tables stay, unless `purge` is true."""
    store.dataflow(name)
    controller.delete(name, purge=query.purge)


def _register(
    controller: Controller,
    overview: Overview,
    body: bytes,
    content_type: str,
    *,
    repeatable: bool,
) -> DataflowDetail:
    document, duplicates = _parse(controller.registry, body, content_type)
    try:
        record = controller.register(document, duplicates)
    except AlreadyExistsError:
        known = _same(overview.store, document) if repeatable else None
        if known is None:
            raise
        return overview.detail(known, datetime.now(UTC))
    try:
        return overview.detail(record, datetime.now(UTC))
    except Exception:
        # A caller that gets an error has registered nothing; the folder stays for the next try.
        with suppress(CbpError):
            controller.delete(record.name)
        raise


def _change(
    controller: Controller, name: str, body: bytes, content_type: str, query: ChangeQuery
) -> Changed:
    document, duplicates = _parse(controller.registry, body, content_type)
    if document.get("name") != name:
        message = f"expected {name!r}, the dataflow that is changed; got {document.get('name')!r}"
        raise DataflowInvalidError(name, [Mistake("name_differs", "name", message)])
    return controller.change(
        document,
        duplicates,
        choice=query.choice,
        expected_version=query.expected_version,
        dry_run=query.dry_run,
    )


def _same(store: Store, document: Mapping[str, Any]) -> DataflowRecord | None:
    """Return the registered record if it has this very document: the request is a repetition."""
    record = store.dataflow(str(document["name"]))
    return record if record.document == document else None


def _validate(controller: Controller, body: bytes, content_type: str) -> Dataflow:
    document, duplicates = _parse(controller.registry, body, content_type)
    return controller.validate(document, duplicates)


def _parse(registry: Registry, body: bytes, content_type: str) -> _Document:
    try:
        text = body.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        message = f"is not UTF-8: invalid byte at position {error.start}"
        mistake = Mistake("document_syntax", "document", message)
        raise DataflowInvalidError(dataflow="", mistakes=[mistake]) from error
    return registry.parse_document(text, content_type)


async def _read(request: Request, settings: Settings) -> bytes:
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type not in (*JSON_TYPES, *YAML_TYPES):
        raise MediaTypeError(media_type, (*JSON_TYPES, *YAML_TYPES))
    return await read_body(
        request,
        bytes_max=settings.body_bytes_max,
        idle_seconds=settings.client_idle_seconds,
    )
