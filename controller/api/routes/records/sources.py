"""Sources: upload a file, check how one would be treated, list the records that were rejected.

An uploaded file is handled like a dropped one.

Idempotency-Keys of uploads are checked in `controller.ingest.uploads`.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, BinaryIO

from fastapi import Query, Request, Response
from pydantic import Field, field_validator
from pydantic_core import PydanticCustomError

from cbp.errors import NotFoundError
from controller.api.answers.json_values import json_value
from controller.api.answers.request_errors import IdempotencyKeyReusedError
from controller.api.answers.schemas import ClaimOut, Model, Page
from controller.api.requests.body import receive_file
from controller.api.requests.moments import RefusalPageQuery
from controller.api.routes.records.claims import claim_out
from controller.api.routing.cursors import CursorsDep
from controller.api.routing.dependencies import (
    ControllerDep,
    DeliveriesDep,
    IdempotencyKey,
    IdempotencyKeysDep,
    StoreDep,
    UploadLimiterDep,
)
from controller.api.routing.router_factory import Scope, needs, problems, request_body, router
from controller.ingest.rejects_table import Chosen, read_rejects
from controller.store.base import Uploaded

NAME_BYTES_MAX = 200
_NAME_PATTERN = r"^[^./\\\x00-\x1f\x7f-\xa0][^/\\\x00-\x1f\x7f-\xa0]*$"
"""What the OpenAPI document says about a name. Other unprintable characters are refused as well."""
routes = router("sources", "/dataflows/{name}/sources/{source}")

FILE = {"type": "string", "format": "binary"}
ANY_TYPE = request_body("application/octet-stream", schema=FILE)
"""What the OpenAPI document says about a body that is a file."""


class UploadQuery(Model):
    """The file's name; kept as evidence, never used as a path."""

    name: str = Field(
        min_length=1, max_length=NAME_BYTES_MAX, json_schema_extra={"pattern": _NAME_PATTERN}
    )

    @field_validator("name")
    @classmethod
    def _plain(cls, name: str) -> str:
        if name.startswith(".") or any(c in "/\\" or not c.isprintable() for c in name):
            message = "must be printable, without '/' or '\\', and not begin with '.'"
            raise PydanticCustomError("name_invalid", message)
        if len(name.encode()) > NAME_BYTES_MAX:
            raise PydanticCustomError("name_invalid", f"is longer than {NAME_BYTES_MAX} bytes")
        return name


class IdentityQuery(UploadQuery):
    """A file that may arrive."""

    sha256: str = Field(
        pattern="^[0-9a-f]{64}$", description="SHA-256 of the content, in hexadecimal digits."
    )


class IdentityOut(Model):
    """The outcome if the file arrived now."""

    outcome: str = Field(
        description="`accepted` (if the file can be read), `duplicate` or `quarantined`."
    )
    same_as: dict[str, Any] | None = Field(
        description="The earlier file with this content or name."
    )


@routes.get("/identity", responses=problems(404))
@needs(Scope.VIEWER)
def identity(
    name: str, source: str, at: DeliveriesDep, query: IdentityQuery = Query()
) -> IdentityOut:
    """Return whether a file with this name or content arrived before; changes nothing."""
    foreseen = at.folder.foresee(at.place(name, source), query.name, query.sha256)
    same_as = json_value(foreseen.same_as)
    return IdentityOut(outcome=foreseen.outcome, same_as=same_as)


@routes.post(
    "/files",
    status_code=202,
    openapi_extra=ANY_TYPE,
    responses={
        200: {
            "model": ClaimOut,
            "description": "The file is already known: see `status` and `same_as`.",
        },
        **problems(404, 409, 413, 422),
    },
)
@needs(Scope.OPERATOR)
async def upload(
    name: str,
    source: str,
    request: Request,
    response: Response,
    at: DeliveriesDep,
    idempotency_keys: IdempotencyKeysDep,
    limiter: UploadLimiterDep,
    query: UploadQuery = Query(),
    idempotency_key: IdempotencyKey = None,
) -> ClaimOut:
    """Receive a file, which is durable when this answers. The body is its unchanged content.

    A file with the name and content of an accepted one is a retry, and is not applied again
    (200). Equal content under another name is new data, unless the source declares otherwise by
    `duplicates`. Other content under the name of an accepted file goes to quarantine (`same_name`),
    unless the source declares `same_name: add`. `same_as` names the earlier file. An upload that
    repeats an Idempotency-Key gets the answer of the first, also after a restart; with another file
    it gets 422.
    """
    key = idempotency_key or ""

    def receive(content: BinaryIO) -> Uploaded:
        return at.folder.upload(at.place(name, source), query.name, content, key)

    with idempotency_keys.busy(f"{name}/{source}/{key}" if key else None):
        done = await receive_file(request, limiter, receive)
    if not done.same_request:
        raise IdempotencyKeyReusedError
    claim = done.answer
    if claim.status != "claimed":
        response.status_code = 200
    return claim_out(claim)


class RejectsQuery(RefusalPageQuery):
    """Which rejected records to list."""

    increment: int | None = Field(
        None, ge=0, lt=2**63, description="Only records of the files of this increment."
    )


class RejectedRecordOut(Model):
    """One rejected record."""

    increment: int = Field(description="Index of the increment that has the file's other records.")
    claim: str = Field(description="Id of the file's claim.")
    file: str = Field(description="Name of the file.")
    line: int = Field(description="Line in the decompressed text (row of a binary file), from 1.")
    column_name: str | None = Field(description="Null if the record as a whole is wrong.")
    code: str = Field(description="What is wrong, as a stable code.")
    message: str = Field(description="The found and the expected value.")
    text: str = Field(description="The record, cut to 1,000 characters.")
    rejected_at: datetime = Field(description="When the file was taken in.")


@routes.get("/rejects", responses=problems(400, 404))
@needs(Scope.VIEWER)
def list_rejects(
    name: str,
    source: str,
    store: StoreDep,
    controller: ControllerDep,
    cursors: CursorsDep,
    query: RejectsQuery = Query(),
) -> Page[RejectedRecordOut]:
    """List the rejected records of a source, newest increment first."""
    record = store.dataflow(name)
    if source not in controller.dataflow(name).sources:
        raise NotFoundError(kind="source", name=f"{name}.{source}")
    rows, place = read_rejects(
        record.folder,
        source,
        below=cursors.pair(query.cursor),
        limit=cursors.size(query),
        chosen=Chosen(query.code, query.increment, query.since, query.until),
    )
    items = [RejectedRecordOut.model_validate(row) for row in rows]
    following = None if place is None else f"{place[0]}/{place[1]}"
    return Page(items=items, cursor=cursors.seal(following))
