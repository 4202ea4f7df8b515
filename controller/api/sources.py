"""Sources: upload of a file, which then takes the way of a dropped one."""

from __future__ import annotations

import io
from typing import Annotated, BinaryIO, cast

import anyio.to_thread
from fastapi import Query, Request
from pydantic import Field, field_validator

from cbp.errors import NotFoundError
from controller.api.body import BodyStream
from controller.api.claims import claim_out
from controller.api.ports import Services
from controller.api.routing import ServicesParameter, problems, router
from controller.api.schemas import ClaimOut, Model
from controller.store.base import ClaimRecord

__all__ = ["routes"]

NAME_BYTES_MAX = 200
READ_BYTES = 1 << 20

routes = router("sources")

_ANY_TYPE = {
    "requestBody": {
        "required": True,
        "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
    }
}


class UploadQuery(Model):
    """What the file is called; kept as evidence, never used as a path."""

    name: str = Field(min_length=1, max_length=NAME_BYTES_MAX)

    @field_validator("name")
    @classmethod
    def _plain(cls, name: str) -> str:
        if name.startswith(".") or any(c in "/\\" or not c.isprintable() for c in name):
            message = "a file's name has no '/' or '\\', begins with no '.' and is printable"
            raise ValueError(message)
        if len(name.encode()) > NAME_BYTES_MAX:
            message = f"is above {NAME_BYTES_MAX} bytes"
            raise ValueError(message)
        return name


@routes.post(
    "/dataflows/{name}/sources/{source}/files",
    status_code=202,
    openapi_extra=_ANY_TYPE,
    responses=problems(404, 413),
)
async def upload(
    name: str,
    source: str,
    request: Request,
    services: ServicesParameter,
    query: Annotated[UploadQuery, Query()],
) -> ClaimOut:
    """Take a file; it is durable once this answers. The body is the file's content as it is."""
    settings = services.settings
    stream = BodyStream(
        request,
        bytes_max=settings.upload_bytes_max,
        idle_seconds=settings.client_idle_seconds,
    )
    # Threads of their own: as many slow clients as there are others would stop every route.
    claim = await anyio.to_thread.run_sync(
        _upload, services, name, source, query.name, stream, limiter=request.app.state.uploads
    )
    return claim_out(claim)


def _upload(
    services: Services, name: str, source: str, file: str, stream: BodyStream
) -> ClaimRecord:
    record = services.store.dataflow(name)
    dataflow = services.controller.dataflow(name)
    if source not in dataflow.sources:
        raise NotFoundError(kind="source", name=f"{name}.{source}")
    with io.BufferedReader(stream, READ_BYTES) as reader:
        return services.drop_folder.upload(record, dataflow, source, file, cast(BinaryIO, reader))
