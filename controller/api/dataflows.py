"""Dataflows: register, check, change, list, show, pause, resume, retry, delete."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Annotated, Any

from fastapi import Header, Query, Request, Response
from starlette.concurrency import run_in_threadpool

from cbp.errors import AlreadyExistsError, CbpError, DataflowInvalidError, Mistake
from cbp.model.dataflow.dataflow import Dataflow
from controller.api.body import read_body
from controller.api.change import ChangeOut, ChangeQuery, change_out
from controller.api.overview import detail, summarise
from controller.api.ports import Services
from controller.api.problems import MediaTypeError
from controller.api.routing import (
    PREFIX,
    ServicesParameter,
    any_instance,
    problems,
    router,
)
from controller.api.schemas import (
    DataflowDetail,
    DataflowSummary,
    LeftOut,
    Model,
    Page,
    Validation,
    Waits,
)
from controller.api.waiting import waits
from controller.loop.operations.version_change import Changed
from controller.store.base import DataflowRecord

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
    services: ServicesParameter,
    idempotency_key: Annotated[str | None, Header(min_length=1, max_length=255)] = None,
) -> DataflowDetail:
    """Register a dataflow; a wrong document gets one problem that lists every mistake."""
    body = await _read(request, services)
    with request.app.state.idempotency_keys.use(idempotency_key, body):
        registered = await run_in_threadpool(
            _register,
            services,
            body,
            request.headers.get("content-type", ""),
            repeatable=idempotency_key is not None,
        )
    response.headers["Location"] = f"{PREFIX}/dataflows/{registered.summary.name}"
    return registered


@routes.post("/dataflows/validate", openapi_extra=_BODY, responses=_BODY_PROBLEMS)
@any_instance
async def validate(request: Request, services: ServicesParameter) -> Validation:
    """Check a document as registration does; changes nothing."""
    body = await _read(request, services)
    content_type = request.headers.get("content-type", "")
    dataflow = await run_in_threadpool(_validate, services, body, content_type)
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
    services: ServicesParameter,
    query: Annotated[ChangeQuery, Query()],
) -> ChangeOut:
    """Replace a dataflow by a new version; with `dry_run`, show what that would do.

    Kept stages keep their state and their queues. Sending the current version again changes
    nothing.
    """
    body = await _read(request, services)
    content_type = request.headers.get("content-type", "")
    changed = await run_in_threadpool(_change, services, name, body, content_type, query)
    return change_out(changed)


@routes.get("/dataflows")
def list_dataflows(services: ServicesParameter) -> Page[DataflowSummary]:
    """List every dataflow, by name."""
    now = datetime.now(UTC)
    records = services.store.dataflows()
    return Page(items=[summarise(services, record, now) for record in records])


@routes.get("/dataflows/{name}", responses=problems(404))
def show(name: str, services: ServicesParameter) -> DataflowDetail:
    """Show one dataflow with its sources, stages and queues."""
    return detail(services, services.store.dataflow(name), datetime.now(UTC))


@routes.get("/dataflows/{name}/left", responses=problems(404))
def left(name: str, services: ServicesParameter) -> LeftOut:
    """Return the stages that still have work if nothing else arrives, and which work."""
    return LeftOut(stages=dict(services.controller.explaining.left(name)))


@routes.get("/dataflows/{name}/waiting", responses=problems(404))
def waiting(name: str, services: ServicesParameter) -> Waits:
    """Explain what the stages wait for, in words and input by input, as of the last decision."""
    return waits(services, services.store.dataflow(name))


@routes.post("/dataflows/{name}/pause", responses=problems(404))
@any_instance
def pause(name: str, services: ServicesParameter) -> DataflowSummary:
    """Start no more runs; running ones finish. Idempotent and persistent."""
    services.controller.pause(name)
    return summarise(services, services.store.dataflow(name), datetime.now(UTC))


@routes.post("/dataflows/{name}/resume", responses=problems(404))
@any_instance
def resume(name: str, services: ServicesParameter) -> DataflowSummary:
    """Start runs again, and clear the failures of the stages. Idempotent."""
    services.controller.resume(name)
    return summarise(services, services.store.dataflow(name), datetime.now(UTC))


@routes.post("/dataflows/{name}/stages/{stage}/pause", responses=problems(404))
@any_instance
def pause_stage(name: str, stage: str, services: ServicesParameter) -> DataflowSummary:
    """Start no more runs of one stage; `retry` lets it run again. Idempotent."""
    services.controller.pause_stage(name, stage)
    return summarise(services, services.store.dataflow(name), datetime.now(UTC))


@routes.post("/dataflows/{name}/stages/{stage}/retry", responses=problems(404))
@any_instance
def retry(name: str, stage: str, services: ServicesParameter) -> DataflowSummary:
    """Give a stage that stopped by itself one more try; the next failure stops it again."""
    services.controller.retry(name, stage)
    return summarise(services, services.store.dataflow(name), datetime.now(UTC))


@routes.delete("/dataflows/{name}", status_code=204, responses=problems(404, 409))
def delete(name: str, services: ServicesParameter, query: Annotated[DeleteQuery, Query()]) -> None:
    """Delete a dataflow; its tables stay, unless `purge` is true."""
    services.store.dataflow(name)
    services.controller.delete(name, purge=query.purge)


def _register(
    services: Services, body: bytes, content_type: str, *, repeatable: bool
) -> DataflowDetail:
    document, duplicates = _parse(services, body, content_type)
    try:
        record = services.controller.register(document, duplicates)
    except AlreadyExistsError:
        found = _same(services, document) if repeatable else None
        if found is None:
            raise
        return detail(services, found, datetime.now(UTC))
    try:
        return detail(services, record, datetime.now(UTC))
    except Exception:
        # A caller that gets an error has registered nothing; the folder stays for the next try.
        with suppress(CbpError):
            services.controller.delete(record.name)
        raise


def _change(
    services: Services, name: str, body: bytes, content_type: str, query: ChangeQuery
) -> Changed:
    document, duplicates = _parse(services, body, content_type)
    if document.get("name") != name:
        message = f"expected {name!r}, the dataflow that is changed; got {document.get('name')!r}"
        raise DataflowInvalidError(name, [Mistake("name_differs", "name", message)])
    return services.controller.change(
        document,
        duplicates,
        choice=query.choice,
        expected_version=query.expected_version,
        dry_run=query.dry_run,
    )


def _same(services: Services, document: Mapping[str, Any]) -> DataflowRecord | None:
    """Return the registered record if it has this very document: the request is a repetition."""
    record = services.store.dataflow(str(document["name"]))
    return record if record.document == document else None


def _validate(services: Services, body: bytes, content_type: str) -> Dataflow:
    document, duplicates = _parse(services, body, content_type)
    return services.controller.validate(document, duplicates)


def _parse(services: Services, body: bytes, content_type: str) -> _Document:
    try:
        text = body.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        message = f"is no UTF-8: byte {error.start} cannot be read"
        mistake = Mistake("document_syntax", "document", message)
        raise DataflowInvalidError(dataflow="", mistakes=[mistake]) from error
    return services.controller.registry.parse_document(text, content_type)


async def _read(request: Request, services: Services) -> bytes:
    found = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if found not in (*JSON_TYPES, *YAML_TYPES):
        raise MediaTypeError(found, (*JSON_TYPES, *YAML_TYPES))
    settings = services.settings
    return await read_body(
        request,
        bytes_max=settings.body_bytes_max,
        idle_seconds=settings.client_idle_seconds,
    )
