"""Quarantine: refused files, the reason of each, the lines around a mistake, and decisions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, BinaryIO

from fastapi import Path, Query, Request
from fastapi.responses import StreamingResponse
from pydantic import Field

from cbp.errors import NotFoundError
from controller.access.errors import ScopeTooLowError
from controller.access.identity import Identity
from controller.api.answers.json_values import json_value
from controller.api.answers.schemas import ClaimOut, Model, Page
from controller.api.requests.body import READ_BYTES, receive_file
from controller.api.requests.moments import RefusalPageQuery
from controller.api.routes.records.claims import claim_out
from controller.api.routes.records.replacements import correctable
from controller.api.routes.records.sources import FILE
from controller.api.routing.cursors import CursorsDep
from controller.api.routing.dependencies import (
    CallerDep,
    Deliveries,
    DeliveriesDep,
    UploadLimiterDep,
)
from controller.api.routing.router_factory import Scope, needs, problems, request_body, router
from controller.ingest.folder.file_excerpt import inspect_file
from controller.ingest.quarantine_decisions import Decided, refusal
from controller.ingest.repeated_files import NOTHING_TO_REPLACE, REPLACE_REFUSED, is_correction
from controller.ingest.uploads import Author
from controller.store.base import ClaimRecord

routes = router("quarantine", "/dataflows/{name}/sources/{source}/quarantine")

ClaimId = Annotated[str, Path(pattern="^[a-z0-9]{1,64}$")]


class DecisionQuery(Model):
    """The reason for a decision about a file, and the person who asks for it."""

    reason: str = Field(min_length=1, max_length=1000, description="Kept with the file.")
    by: str = Field(
        "", max_length=200, description="Who asks for it; by default the name of the token."
    )


class ReadmitQuery(DecisionQuery):
    """How a file is admitted."""

    as_it_is: bool = Field(
        False,
        description="If true, admit the file from quarantine unchanged. Otherwise the body "
        "replaces the file.",
    )
    rebuild: bool = Field(
        False,
        description="For a refused replacement or retraction: admit the file even if some stages "
        "cannot apply it, as for `POST /dataflows/{name}/sources/{source}/replacements`.",
    )


class ExcerptLineOut(Model):
    """One line of a file."""

    number: int
    text: str
    mistakes: list[str] = Field(
        description="What is wrong with the line; empty if no mistake is known."
    )


class QuarantinedOut(Model):
    """One refused file."""

    claim: ClaimOut
    folder_path: str = Field(description="The file's path on the service's machine.")
    file_bytes: int | None = Field(
        description="The file's size now; `null` if the file is not there."
    )
    lines: list[ExcerptLineOut] = Field(
        description="Lines around the mistakes of the file, or its first lines."
    )
    content: str | None = Field(
        description="The whole text of a file of at most 64 KiB, to be corrected."
    )
    hint: str = Field(description="Why no lines are shown; empty if there are lines.")
    as_it_is_refused: str = Field(
        description="Why the file cannot be admitted unchanged; empty if it can."
    )


class DecidedOut(Model):
    """A decision about a file."""

    claim: ClaimOut
    readmitted: ClaimOut | None = Field(
        description="The claim of the file that was admitted in place of the refused one."
    )
    repeated: bool = Field(description="Whether an earlier request had made the same decision.")


@routes.get("", responses=problems(404))
@needs(Scope.VIEWER)
def list_quarantine(
    name: str,
    source: str,
    at: DeliveriesDep,
    cursors: CursorsDep,
    query: RefusalPageQuery = Query(),
) -> Page[ClaimOut]:
    """List the files of a source that wait for a decision, newest first."""
    at.store.dataflow(name)
    at.require(name, source)
    page = at.store.claims(
        name,
        source,
        status="quarantined",
        code=query.code,
        since=query.since,
        until=query.until,
        cursor=cursors.open(query.cursor),
        limit=cursors.size(query),
    )
    return Page(items=[claim_out(claim) for claim in page.items], cursor=cursors.seal(page.cursor))


@routes.get("/{claim}", responses=problems(404))
@needs(Scope.VIEWER)
def show(name: str, source: str, claim: ClaimId, at: DeliveriesDep) -> QuarantinedOut:
    """Show a refused file: its reason, and the lines around its mistakes."""
    place, quarantined = at.place(name, source), _claim(at, name, source, claim)
    file = inspect_file(place, quarantined)
    return QuarantinedOut.of(
        file,
        claim=claim_out(quarantined),
        folder_path=json_value(file.path),
        file_bytes=file.bytes,
        lines=[
            ExcerptLineOut(
                number=line.number, text=json_value(line.text), mistakes=json_value(line.mistakes)
            )
            for line in file.lines
        ],
        as_it_is_refused=refusal(quarantined, place.source),
    )


@routes.get(
    "/{claim}/content",
    responses={
        **problems(404),
        200: {"content": {"application/octet-stream": {}}, "description": "The file."},
    },
    response_class=StreamingResponse,
)
@needs(Scope.VIEWER)
def content(name: str, source: str, claim: ClaimId, at: DeliveriesDep) -> StreamingResponse:
    """Return the original file as an attachment, also after a decision."""
    place, quarantined = at.place(name, source), _claim(at, name, source, claim)
    file = at.folder.open_quarantined(place, quarantined)
    headers = {
        "Content-Disposition": f'attachment; filename="{claim}.{place.source.format}"',
        "X-Content-Type-Options": "nosniff",
    }
    return StreamingResponse(_parts(file), media_type="application/octet-stream", headers=headers)


@routes.post(
    "/{claim}/readmit",
    openapi_extra=request_body("application/octet-stream", schema=FILE, required=False),
    responses=problems(404, 409, 413, 422),
)
@needs(Scope.OPERATOR)
async def readmit(
    name: str,
    source: str,
    claim: ClaimId,
    request: Request,
    at: DeliveriesDep,
    limiter: UploadLimiterDep,
    caller: CallerDep,
    query: ReadmitQuery = Query(),
) -> DecidedOut:
    """Admit a refused file unchanged, or with the body as its new content; durable.

    The original file is kept with its reason and this decision. A repeated request admits nothing
    more: it gets the first answer, or 409 with the new claim. A refused replacement or retraction
    is then carried out. That needs the scope `admin`, and is refused like a new request (409,
    `replace_refused`), unless `rebuild` lets stages that cannot apply it wait for a rebuild.
    """
    author = Author(query.by or caller.actor, query.reason)

    def act(body: BinaryIO) -> Decided:
        _require_allowed(at, name, source, claim, caller, rebuild=query.rebuild)
        corrected = None if query.as_it_is else body
        place = at.place(name, source)
        return at.folder.readmit(place, claim, corrected, author, rebuild=query.rebuild)

    return _decided(await receive_file(request, limiter, act))


@routes.post("/{claim}/discard", responses=problems(404, 409))
@needs(Scope.OPERATOR)
def discard(
    name: str,
    source: str,
    claim: ClaimId,
    at: DeliveriesDep,
    caller: CallerDep,
    query: DecisionQuery = Query(),
) -> DecidedOut:
    """Discard a refused file; it is kept like finished files, and can be restored."""
    author = Author(query.by or caller.actor, query.reason)
    return _decided(at.folder.quarantine.discard(at.place(name, source), claim, author))


@routes.post("/{claim}/restore", responses=problems(404, 409))
@needs(Scope.OPERATOR)
def restore(name: str, source: str, claim: ClaimId, at: DeliveriesDep) -> DecidedOut:
    """Undo a decision: the file is in quarantine again.

    This is refused as long as a file that was admitted in its place counts as applied: roll back
    first.
    """
    return _decided(at.folder.quarantine.restore(at.place(name, source), claim))


def _decided(decided: Decided) -> DecidedOut:
    other = decided.readmitted
    readmitted = None if other is None else claim_out(other)
    return DecidedOut.of(decided, claim=claim_out(decided.claim), readmitted=readmitted)


def _require_allowed(
    at: Deliveries, name: str, source: str, claim: str, caller: Identity, *, rebuild: bool
) -> None:
    """Refuse to readmit a replacement or retraction that the caller may not request now."""
    refused = at.store.find_claims([claim]).get(claim)
    code = "" if refused is None else (refused.reason or {}).get("code")
    asks = rebuild and code == REPLACE_REFUSED
    if refused is None or not (is_correction(refused.key) or asks):
        return
    if code == NOTHING_TO_REPLACE:
        return  # it is added like any other file
    if not caller.scope.includes(Scope.ADMIN):
        raise ScopeTooLowError(Scope.ADMIN, caller.scope, "readmitting a refused replacement")
    correctable(at, name, source, rebuild=rebuild)


def _claim(at: Deliveries, name: str, source: str, claim: str) -> ClaimRecord:
    quarantined = at.store.find_claims([claim]).get(claim)
    mine = quarantined is not None and (quarantined.dataflow, quarantined.source) == (name, source)
    if quarantined is None or not mine or quarantined.reason is None:
        raise NotFoundError(kind="quarantined file", name=f"{name}/{source}/{claim}")
    return quarantined


def _parts(file: BinaryIO) -> Iterator[bytes]:
    with file:
        while part := file.read(READ_BYTES):
            yield part
