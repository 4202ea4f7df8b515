"""Dataflows: register, check, change, list, show, delete."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Annotated

from fastapi import Header, Query, Request, Response
from pydantic import Field
from starlette.concurrency import run_in_threadpool

from cbp.errors import AlreadyExistsError, CbpError, NotFoundError
from cbp.model.dataflow.dataflow import Dataflow
from controller.api.answers.request_errors import VersionDiffersError
from controller.api.answers.schemas import (
    DataflowDetail,
    DataflowSummary,
    LeftOut,
    Model,
    Page,
    PageQuery,
    Validation,
)
from controller.api.answers.version_changes import ChangeOut, ChangeQuery, change_out
from controller.api.figures.overview import Overview, OverviewDep
from controller.api.figures.waiting import Waits, waits
from controller.api.requests.body import Document, DocumentBody, read_document_body, require_name
from controller.api.routes.dataflows.versions import ETAG_HEADER, etag
from controller.api.routing.cursors import CursorsDep, page_behind
from controller.api.routing.dependencies import (
    CallerDep,
    ControllerDep,
    ExchangeDep,
    ExplainingDep,
    IdempotencyKey,
    IdempotencyKeysDep,
    RunLogsDep,
    StoreDep,
)
from controller.api.routing.router_factory import (
    PREFIX,
    Scope,
    needs,
    problems,
    request_body,
    router,
)
from controller.api.security.exchange import Exchange
from controller.loop.controller import Controller
from controller.loop.operations.added_columns import with_added_columns
from controller.registry.text_positions import TextPositions
from controller.store.base import Store

routes = router("dataflows")

_NODE = {"type": "object", "additionalProperties": {"type": "object"}}
_DOCUMENT_SCHEMA = {
    "type": "object",
    "additionalProperties": False,
    "required": ["name", "stages"],
    "properties": {
        "name": {"type": "string", "pattern": "^[a-z][a-z0-9_]{0,62}$"},
        "description": {"type": "string"},
        "sources": {
            **_NODE,
            "description": "Maps each name to a source: `schema`, `format` and `options`.",
        },
        "stages": {
            **_NODE,
            "minProperties": 1,
            "description": "Maps each name to a stage: `translator`, `parameters`, `inputs`, "
            "`buckets` and `fuse`.",
        },
    },
}
_BODY = request_body("application/json", "application/yaml", schema=_DOCUMENT_SCHEMA)
_BODY_PROBLEMS = problems(413, 415)


class DeleteQuery(Model):
    """What happens to the tables of a deleted dataflow."""

    purge: bool = Field(
        False, description="Whether its tables, and the logs of its runs, are deleted as well."
    )


@routes.post(
    "/dataflows",
    status_code=201,
    openapi_extra=_BODY,
    responses={**_BODY_PROBLEMS, **problems(409)},
)
@needs(Scope.ADMIN)
async def register(
    request: Request,
    response: Response,
    controller: ControllerDep,
    overview: OverviewDep,
    idempotency_keys: IdempotencyKeysDep,
    exchange: ExchangeDep,
    idempotency_key: IdempotencyKey = None,
) -> DataflowDetail:
    """Register a dataflow; a wrong document gets one problem that lists every mistake."""
    body = await read_document_body(request)
    with idempotency_keys.use(idempotency_key, body.body):
        repeatable = idempotency_key is not None
        registered = await run_in_threadpool(
            _register, controller, overview, exchange, body, repeatable=repeatable
        )
    response.headers["Location"] = f"{PREFIX}/dataflows/{registered.summary.name}"
    return registered


@routes.post("/dataflows/validate", openapi_extra=_BODY, responses=_BODY_PROBLEMS)
@needs(Scope.OPERATOR, changes=False, any_instance=True)
async def validate(request: Request, controller: ControllerDep) -> Validation:
    """Check a document as registration does; changes nothing."""
    body = await read_document_body(request)

    def check() -> Dataflow:
        with body.parsed() as document:
            return controller.validate(document.values, document.duplicates)

    dataflow = await run_in_threadpool(check)
    return Validation(
        name=dataflow.name,
        sources=list(dataflow.sources),
        stages=list(dataflow.stages),
        flows={name: str(schema) for name, schema in dataflow.flows().items()},
        wiring={name: dict(stage.wiring) for name, stage in dataflow.stages.items()},
        lookups={name: dict(stage.lookups) for name, stage in dataflow.stages.items()},
    )


@routes.put(
    "/dataflows/{name}",
    openapi_extra=_BODY,
    responses={
        **_BODY_PROBLEMS,
        **problems(404, 409, 412),
        200: {"headers": {"ETag": ETAG_HEADER}},
    },
)
@needs(Scope.ADMIN)
async def change(
    name: str,
    request: Request,
    response: Response,
    controller: ControllerDep,
    store: StoreDep,
    caller: CallerDep,
    exchange: ExchangeDep,
    query: ChangeQuery = Query(),
    if_match: Annotated[
        str | None, Header(max_length=200, description="The ETag of the version to replace.")
    ] = None,
) -> ChangeOut:
    """Replace a dataflow by a new version; with `dry_run`, show what that would do.

    Kept stages keep their state and their queues. Sending the current version again changes
    nothing. With `beside`, the answer is immediate and names a rebuild; the version is applied when
    the rebuild is swapped in.
    """
    exchange.changes = not query.dry_run
    body = await read_document_body(request)
    if if_match is not None:
        query = await run_in_threadpool(_matched, store, name, if_match, query)
    changed = await run_in_threadpool(_change, controller, store, name, body, query, caller.actor)
    if changed.done:
        response.headers["ETag"] = etag(changed.version)
    return changed


@routes.get("/dataflows")
@needs(Scope.VIEWER, read_anywhere=True, of_store=True)
def list_dataflows(
    store: StoreDep, overview: OverviewDep, cursors: CursorsDep, query: PageQuery = Query()
) -> Page[DataflowSummary]:
    """List dataflows by name: every one, or page by page if there is a `limit`."""
    now, after = overview.now(), cursors.open(query.cursor) or ""
    # The cursor is a name, not a position: a dataflow may be deleted between two pages.
    shown, more = page_behind(
        [record for record in store.dataflows() if record.name > after],
        lambda record: record.name,
        place=None,
        size=cursors.size_or_all(query),
    )
    items = overview.summarise_all(shown, now)
    return Page(items=items, cursor=cursors.seal(more))


@routes.get("/dataflows/{name}", responses=problems(404))
@needs(Scope.VIEWER)
def show(name: str, store: StoreDep, overview: OverviewDep) -> DataflowDetail:
    """Show one dataflow with its sources, stages and queues."""
    return overview.detail(store.dataflow(name), overview.now())


@routes.get("/dataflows/{name}/left", responses=problems(404))
@needs(Scope.VIEWER)
def left(name: str, explaining: ExplainingDep) -> LeftOut:
    """Return the stages that still have work, and the remaining work of each."""
    return LeftOut(stages=dict(explaining.left(name)))


@routes.get("/dataflows/{name}/waiting", responses=problems(404))
@needs(Scope.VIEWER)
def waiting(name: str, controller: ControllerDep, store: StoreDep) -> Waits:
    """Explain why each stage waits, in words and by input, as of the last decision."""
    return waits(controller, store, store.dataflow(name))


@routes.delete("/dataflows/{name}", status_code=204, responses=problems(404, 409))
@needs(Scope.ADMIN)
def delete(
    name: str,
    controller: ControllerDep,
    store: StoreDep,
    run_logs: RunLogsDep,
    query: DeleteQuery = Query(),
) -> None:
    """Delete a dataflow; its tables are kept, unless `purge` is true."""
    store.dataflow(name)
    controller.delete(name, purge=query.purge)
    if query.purge:
        run_logs.forget(name)


def _register(
    controller: Controller,
    overview: Overview,
    exchange: Exchange,
    body: DocumentBody,
    *,
    repeatable: bool,
) -> DataflowDetail:
    with body.parsed() as document:
        # The audit log needs the name of the dataflow, which is not in the path of the request.
        exchange.dataflow = str(document.values.get("name", ""))
        try:
            record = controller.register(document.values, document.duplicates)
        except AlreadyExistsError:
            if repeatable:
                known = overview.store.dataflow(str(document.values["name"]))
                if known.document == document.values:  # the request is a repetition
                    return overview.detail(known, overview.now())
            raise
        try:
            return overview.detail(record, overview.now())
        except Exception:
            # The caller gets an error, so nothing may stay registered; only the folder stays.
            with suppress(CbpError):
                controller.delete(record.name)
            raise


def _change(
    controller: Controller, store: Store, name: str, body: DocumentBody, query: ChangeQuery, by: str
) -> ChangeOut:
    with body.parsed() as document:
        require_name(document, name, "changed")
        places = TextPositions(document.text, document.content_type)
        with suppress(NotFoundError):  # `change` raises it after it has checked the document
            values = with_added_columns(store.dataflow(name).document, document.values)
            document = replace(document, values=values)
        if query.beside:
            return _build_beside(controller, document, query, places, by)
        changed = controller.change(
            document.values,
            document.duplicates,
            choice=query.choice,
            expected_version=query.expected_version,
            dry_run=query.dry_run,
        )
        return change_out(changed, places, older=controller.with_older_code(name))


def _build_beside(
    controller: Controller, document: Document, query: ChangeQuery, places: TextPositions, by: str
) -> ChangeOut:
    """Begin a rebuild that swaps in its tables automatically, or return what it would do."""
    jobs = controller.rebuild_jobs
    dataflow = controller.validate(document.values, document.duplicates)
    planned = jobs.plan(document.values, dataflow, query.choice)
    older = controller.with_older_code(dataflow.name)
    if query.dry_run:
        return change_out(planned, places, older=older, beside=True)
    job = jobs.start(
        document.values,
        dataflow,
        choice=query.choice,
        expected_version=query.expected_version,
        swaps=True,
        by=by,
    )
    return change_out(planned, places, older=older, beside=True, rebuild=job.id)


def _matched(store: Store, name: str, if_match: str, query: ChangeQuery) -> ChangeQuery:
    """Return the query, limited to the current version; raises if `if_match` names another one."""
    version = store.dataflow(name).version
    if if_match != etag(version):
        raise VersionDiffersError(name, if_match, version)
    return query.model_copy(update={"expected_version": query.expected_version or version})
