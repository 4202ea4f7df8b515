"""Replacements: a file of a source is replaced by another one, or taken back.

Which stages can apply a correction, and how, is decided by
`cbp.model.dataflow.replacement_obstacles`.
"""

from __future__ import annotations

from typing import BinaryIO

from fastapi import Query, Request
from pydantic import Field

from controller.access.identity import Identity
from controller.api.answers.request_errors import IdempotencyKeyReusedError
from controller.api.answers.schemas import ClaimOut, Model
from controller.api.requests.body import receive_file
from controller.api.routes.records.claims import claim_out
from controller.api.routes.records.sources import ANY_TYPE
from controller.api.routing.dependencies import (
    CallerDep,
    Deliveries,
    DeliveriesDep,
    IdempotencyKey,
    IdempotencyKeysDep,
    UploadLimiterDep,
)
from controller.api.routing.router_factory import Scope, needs, problems, router
from controller.ingest.folder.source_place import SourcePlace
from controller.ingest.replacement import Compared
from controller.ingest.uploads import Author
from controller.store.base import Uploaded

routes = router("sources", "/dataflows/{name}/sources/{source}")


_PATH_MAX = 4_096
"""Maximum length of a path in a file system; keys of objects are shorter."""


class CorrectionQuery(Model):
    """The file, and what happens to stages that cannot apply the correction."""

    name: str = Field(
        min_length=1,
        max_length=_PATH_MAX,
        description="Name of the file, as `GET /dataflows/{name}/claims` shows it. For a nested "
        "source: its path below `incoming`. For a bucket: the key of the object.",
    )
    rebuild: bool = Field(
        False,
        description="Accept the file although some stages cannot apply it. These stages stop, "
        "with their tables as they are, until a rebuild swaps in tables built from the current "
        "files (`POST /dataflows/{name}/rebuilds`, once the file is accepted). The request is "
        "refused if such a rebuild would be refused.",
    )


class ReplaceQuery(CorrectionQuery):
    """The file, who asks, and why."""

    by: str = Field(
        "", max_length=200, description="Who asks for it; by default the name of the token."
    )
    reason: str = Field(min_length=1, max_length=1000, description="Kept with the increment.")


class ComparedOut(Model):
    """What a replacement would change."""

    records_came: int = Field(description="Number of records that are added.")
    records_gone: int = Field(description="Number of records that are taken back.")
    groups: dict[str, int] = Field(
        description="Maps each stage to its number of groups with an added or removed record."
    )


def _compared(made: Compared) -> ComparedOut:
    return ComparedOut.of(made, records_came=made.came, records_gone=made.gone)


@routes.post(
    "/replacements", status_code=202, openapi_extra=ANY_TYPE, responses=problems(404, 409, 413, 422)
)
@needs(Scope.ADMIN)
async def replace(
    name: str,
    source: str,
    request: Request,
    at: DeliveriesDep,
    idempotency_keys: IdempotencyKeysDep,
    limiter: UploadLimiterDep,
    caller: CallerDep,
    query: ReplaceQuery = Query(),
    idempotency_key: IdempotencyKey = None,
) -> ClaimOut:
    """Receive a file that replaces the earlier file of this name. The body is the new content.

    The next pass over the source makes one increment of the differences: added records, and records
    that are taken back. If a stage cannot apply them, the request is refused and nothing
    changes (409, `replace_refused`), unless `rebuild` lets such stages wait for a rebuild.
    """
    key = idempotency_key or ""

    def receive(content: BinaryIO) -> Uploaded:
        return _ask(at, (name, source), query, caller, key, content)

    with idempotency_keys.busy(f"{name}/{source}/{key}" if key else None):
        done = await receive_file(request, limiter, receive)
    return _answer(done)


@routes.post(
    "/replacements/preview", openapi_extra=ANY_TYPE, responses=problems(404, 409, 413, 422)
)
@needs(Scope.OPERATOR, changes=False)
async def preview_replacement(
    name: str,
    source: str,
    request: Request,
    at: DeliveriesDep,
    limiter: UploadLimiterDep,
    query: CorrectionQuery = Query(),
) -> ComparedOut:
    """Return what a replacement would change, with the same refusals; changes nothing."""

    def compare(content: BinaryIO) -> Compared:
        place = correctable(at, name, source, rebuild=query.rebuild)
        return at.folder.replacements.compare(place, query.name, content)

    return _compared(await receive_file(request, limiter, compare))


@routes.post("/retractions", status_code=202, responses=problems(404, 409, 422))
@needs(Scope.ADMIN)
def retract(
    name: str,
    source: str,
    at: DeliveriesDep,
    idempotency_keys: IdempotencyKeysDep,
    caller: CallerDep,
    query: ReplaceQuery = Query(),
    idempotency_key: IdempotencyKey = None,
) -> ClaimOut:
    """Take back all records of a file, as one increment; refusals as for a replacement."""
    key = idempotency_key or ""
    with idempotency_keys.busy(f"{name}/{source}/{key}" if key else None):
        return _answer(_ask(at, (name, source), query, caller, key, None))


@routes.post("/retractions/preview", responses=problems(404, 409, 422))
@needs(Scope.OPERATOR, changes=False)
def preview_retraction(
    name: str, source: str, at: DeliveriesDep, query: CorrectionQuery = Query()
) -> ComparedOut:
    """Return what a retraction would change, with the same refusals; changes nothing."""
    place = correctable(at, name, source, rebuild=query.rebuild)
    return _compared(at.folder.replacements.compare(place, query.name, None))


def correctable(at: Deliveries, name: str, source: str, *, rebuild: bool) -> SourcePlace:
    """Return the place of a source whose files can be replaced or taken back.

    Raises `ReplaceRefusedError` if a stage cannot apply corrections. With `rebuild`, stages may
    wait for a rebuild; then raises `ChangeRefusedError` if that rebuild would be refused.
    """
    record = at.controller.retained.check(name, source, rebuild=rebuild)
    if rebuild:
        dataflow = at.controller.dataflow(name)
        at.controller.rebuild_jobs.plan(record.document, dataflow).require_allowed()
    return at.place(name, source)


def _ask(
    at: Deliveries,
    named: tuple[str, str],
    query: ReplaceQuery,
    caller: Identity,
    key: str,
    content: BinaryIO | None,
) -> Uploaded:
    """Ask for a correction; a request that is repeated is not checked again."""
    requests, place = at.folder.replacements, at.place(*named)
    if not requests.repeated(place, key, retracts=content is None):
        place = correctable(at, *named, rebuild=query.rebuild)
    author = Author(query.by or caller.actor, query.reason)
    return requests.ask(place, query.name, content, author, key)


def _answer(done: Uploaded) -> ClaimOut:
    if not done.same_request:
        raise IdempotencyKeyReusedError
    return claim_out(done.answer)
