"""The OpenAPI document: built from the routes of the application, and served as one text.

`python -m controller.api.write_openapi` writes it into the sources of the page.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

from fastapi import FastAPI, Request
from fastapi.openapi.utils import get_openapi
from fastapi.responses import JSONResponse, Response

from controller.api.answers.schemas import Problem
from controller.api.requests.examples import add_examples
from controller.api.routing.router_factory import PREFIX


def openapi_document(app: FastAPI) -> dict[str, Any]:
    """Return the OpenAPI document, including the problem document; it is built once."""
    if app.openapi_schema is None:
        document = get_openapi(title=app.title, version=app.version, routes=app.routes)
        schemas = document.setdefault("components", {}).setdefault("schemas", {})
        schemas["Problem"] = Problem.model_json_schema()
        _share_models(document, schemas)
        add_examples(document)
        app.openapi_schema = document
    return app.openapi_schema


def _share_models(document: dict[str, Any], schemas: dict[str, Any]) -> None:
    """Move the models that hand-written bodies contain to the document's schemas.

    Pydantic puts nested models into `$defs` of the outer model, and refers to them from the root.
    In this document the outer model is not at the root, so these references would be broken.
    """
    for part in list(_objects(document)):
        schemas.update(part.pop("$defs", {}))
        if isinstance(part.get("$ref"), str):
            part["$ref"] = part["$ref"].replace("#/$defs/", "#/components/schemas/")


def _objects(part: Any) -> Iterator[dict[str, Any]]:
    """Yield every object of a document, the outer ones first."""
    if isinstance(part, dict):
        yield part
    for inner in part.values() if isinstance(part, dict) else part:
        if isinstance(inner, (dict, list)):
            yield from _objects(inner)


def serve_document(app: FastAPI) -> None:
    """Serve the OpenAPI document as a text that is built once.

    FastAPI's own route encodes the 400 kB as JSON for each request, in the event loop's thread,
    which answers nothing else for some 20 ms.
    """

    @functools.cache
    def text() -> bytes:
        return bytes(JSONResponse(app.openapi()).body)

    async def document(_: Request) -> Response:
        return Response(text(), media_type="application/json")

    app.add_route(f"{PREFIX}/openapi.json", document, include_in_schema=False)
