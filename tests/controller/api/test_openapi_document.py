"""The OpenAPI document that the page's types are made from."""

from __future__ import annotations

import json
from typing import Any

from controller.api.write_openapi import DOCUMENT, document_text
from tests.controller.api.all_routes import filled_in
from tests.controller.api.fake_service import Service


def test_the_committed_document_is_the_services() -> None:
    """The page is typed against the routes as they are; `controller.api.write_openapi`."""
    assert DOCUMENT.read_text(encoding="utf-8") == document_text()


def _references(part: Any) -> list[str]:
    if isinstance(part, list):
        return [name for item in part for name in _references(item)]
    if not isinstance(part, dict):
        return []
    own = [part["$ref"]] if isinstance(part.get("$ref"), str) else []
    return own + [name for item in part.values() for name in _references(item)]


def test_every_reference_leads_somewhere() -> None:
    """A model inside of a hand-written body is found by those who read the document."""
    document = json.loads(document_text())
    schemas = {f"#/components/schemas/{name}" for name in document["components"]["schemas"]}
    assert set(_references(document)) - schemas == set()
    assert "$defs" not in document_text()


def test_a_wrong_method_is_told_all_methods_of_its_path(filled: Service) -> None:
    """Not those of one route only: a client learns from `Allow` what a resource takes."""
    wrong = {}
    with filled.client() as client:
        for path, operations in json.loads(document_text())["paths"].items():
            documented = {name.upper() for name in operations}
            answer = client.options(filled_in(path))
            allowed = set(answer.headers.get("allow", "").split(", "))
            if answer.status_code != 405 or documented != allowed - {"HEAD"}:
                wrong[path] = (answer.status_code, allowed)
    assert wrong == {}


def test_the_document_is_written_once(service: Service) -> None:
    """However often it is asked for: meanwhile the event loop would answer nobody else."""
    made = []
    describe = service.app.openapi
    service.app.openapi = lambda: made.append(1) or describe()  # type: ignore[method-assign, func-returns-value]
    with service.client() as client:
        answers = [client.get("/api/v1/openapi.json") for _ in range(3)]
    assert {answer.status_code for answer in answers} == {200}
    assert all(answer.json() == describe() for answer in answers)
    assert len(made) == 1
    with service.client(token=None) as client:
        assert client.get("/api/v1/openapi.json").status_code == 401
