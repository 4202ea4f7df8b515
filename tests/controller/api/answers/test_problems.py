"""Every error of the product has a status; every problem has the shape of RFC 9457."""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Iterator, MutableMapping
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest

import cbp
import controller
from cbp.errors import CbpError, DiskFullError, Mistake, OperatingError
from controller.api.answers.problems import (
    MEDIA_TYPE,
    RETRY_SECONDS,
    STATUS,
    answer,
    problem,
    title_of,
)
from controller.api.answers.request_errors import NotLeadingError, RunEndedError
from controller.events import EventStreamsExhaustedError
from controller.loop.runs.retry_policy import INTERRUPTED_CODE
from tests.controller.api.clicks import DOCUMENT
from tests.controller.api.fake_service import Service

# They start Spark or a service when imported, or are never answered by the API.
SKIPPED = (
    "cbp.engine.spark",
    "controller.cli",
    "cbp.client",
    "controller.client",
    "controller.demo",
    "controller.server",
    "controller.store.migrations",
)


def _import_everything() -> None:
    for package in (cbp, controller):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not module.name.startswith(SKIPPED):
                importlib.import_module(module.name)


def _classes(base: type[CbpError] = CbpError) -> Iterator[type[CbpError]]:
    yield base
    for child in base.__subclasses__():
        yield from _classes(child)


def _of_product(error: type[CbpError]) -> bool:
    return error.__module__.startswith(("cbp.", "controller.")) and not (
        error.__module__.startswith(SKIPPED)
    )


def test_every_error_class_has_a_status() -> None:
    """No error of the product is answered by guessing."""
    _import_everything()
    missing = {e.__name__ for e in _classes() if _of_product(e) and e.code not in STATUS}
    assert missing == set()


def test_the_page_has_steps_only_for_codes_that_exist() -> None:
    """A step for a code that no error has is never shown, and another code lacks its step."""
    _import_everything()
    page = Path(controller.__path__[0]) / "ui" / "src" / "components" / "runs" / "errorFacts.ts"
    text = page.read_text(encoding="utf-8")
    authors = re.findall(r'^  "([a-z_]+)",$', text, re.MULTILINE)
    compared = re.findall(r'code === "([a-z_]+)"', text)
    assert min(len(authors), len(compared)) > 4
    assert {*authors, *compared} - {error.code for error in _classes()} == {INTERRUPTED_CODE}


def test_codes_are_unique() -> None:
    """A client can tell any two errors apart by their code."""
    _import_everything()
    classes = {e for e in _classes() if _of_product(e)}
    assert len({e.code for e in classes}) == len(classes)


@pytest.mark.parametrize(("code", "status"), STATUS.items())
def test_statuses_are_errors(code: str, status: int) -> None:
    """The table holds client and server errors only, under stable snake_case names."""
    assert 400 <= status <= 599
    assert code == code.lower()
    assert code.isidentifier()


def test_a_title_says_what_a_type_of_problem_is() -> None:
    """Each type has its own, in words of this product: none repeats the status (RFC 9457)."""
    _import_everything()
    titles = {e: title_of(e) for e in _classes() if _of_product(e)}
    phrases = {status.phrase.casefold() for status in HTTPStatus}
    assert not [e for e, title in titles.items() if title.casefold() in phrases]
    assert not [title for title in titles.values() if not 10 < len(title) <= 100]
    assert len(set(titles.values())) == len(titles)
    error = RunEndedError("r1", "committed")
    assert problem(error, "/")[1]["title"] == title_of(RunEndedError)


def test_a_retryable_failure_says_when_to_come_back() -> None:
    """503 with Retry-After, so that a client's library tries again by itself."""
    status, document, headers = problem(DiskFullError("/data"), "/api/v1/x")
    assert (status, headers["Retry-After"]) == (503, str(RETRY_SECONDS))
    assert document["type"] == "urn:cbp:error:disk_full"
    assert document["details"] == {"path": "/data"}


@pytest.mark.parametrize(
    ("error", "level", "has_stack"),
    [
        (EventStreamsExhaustedError(4), "warning", False),
        (NotLeadingError("it stops"), "warning", False),
        (DiskFullError("/data"), "error", True),
        (RunEndedError("r1", "committed"), "info", False),
    ],
)
def test_a_refusal_is_no_failure_in_the_log(
    error: CbpError, level: str, has_stack: bool, logs: list[MutableMapping[str, Any]]
) -> None:
    """One line without a stack where nothing failed here; a failure is an error with its stack."""
    answer(error, method="GET", path="/api/v1/events")
    (entry,) = logs
    assert (entry["log_level"], "exc_info" in entry) == (level, has_stack)
    assert entry["error_code"] == error.code


def test_an_unknown_code_is_our_own_fault() -> None:
    """A class that nobody put into the table is answered with 500."""

    class Unknown(CbpError):
        code = "code_of_a_test"

    assert problem(Unknown("?"), "/")[0] == 500


def test_half_a_surrogate_pair_can_be_told() -> None:
    """A message that quotes a file name that is no UTF-8 is still a JSON document."""
    document = problem(OperatingError("name \udcff", path="\udcff"), "/")[1]
    assert document["details"] == {"path": "\ufffd"}


def test_readiness_follows_the_store_and_the_lead(service: Service) -> None:
    """Not ready without the store, before the engine, nor once another controller leads."""
    with service.client(token=None) as client:
        assert client.get("/api/v1/health/ready").status_code == 200
        service.store.broken = True
        answer = client.get("/api/v1/health/ready")
        assert (answer.status_code, answer.headers["retry-after"]) == (503, str(RETRY_SECONDS))
        service.store.broken = False
        service.controller.waits_for = "Spark, which has been starting for 3 s"
        answer = client.get("/api/v1/health/ready")
        assert (answer.status_code, answer.headers["retry-after"]) == (503, str(RETRY_SECONDS))
        assert answer.json()["error_code"] == "engine_starting"
        assert answer.json()["details"] == {"waits_for": "Spark, which has been starting for 3 s"}
        service.controller.waits_for = ""
        service.controller.problem = "another one wrote the log"
        assert client.get("/api/v1/health/ready").json()["error_code"] == "not_leading"
        assert client.get("/api/v1/health/live").status_code == 200


def test_a_wrong_registration_lists_every_mistake(service: Service) -> None:
    """One 422 problem with all mistakes, each with its place in the document."""
    document = {
        "name": "Clicks",
        "sources": {"urls": {"schema": "url TEXT"}, "more": {"schema": "a INT", "format": "orc"}},
        "stages": {
            "count": {"translator": "url_cuont", "inputs": {"urls": "urls"}},
            "again": {"translator": "url_count", "inputs": {"urls": "nobody"}, "buckets": 3},
        },
    }
    with service.client() as client:
        answer = client.post("/api/v1/dataflows", json=document)
    assert answer.status_code == 422
    assert answer.headers["content-type"] == MEDIA_TYPE
    told = answer.json()
    assert told["error_code"] == "dataflow_invalid"
    assert told["type"] == "urn:cbp:error:dataflow_invalid"
    actual = {(mistake["code"], mistake["where"]) for mistake in told["details"]["mistakes"]}
    assert {
        ("name_invalid", "name"),
        ("type_unknown", "sources.urls.schema"),
        ("format_unknown", "sources.more.format"),
        ("translator_unknown", "stages.count.translator"),
        ("buckets_invalid", "stages.again.buckets"),
        ("flow_unknown", "stages.again.inputs.urls"),
    } <= actual
    assert service.store.records == {}


def test_a_yaml_document_with_a_pair_twice_is_told_so(service: Service) -> None:
    """What a mapping cannot hold is not lost on the way."""
    text = """
name: clicks
sources: {urls: {schema: "url STRING, site BIGINT"}}
stages:
  count:
    translator: url_count
    inputs:
      urls: urls
      urls: urls
"""
    with service.client() as client:
        answer = client.post(
            "/api/v1/dataflows", content=text, headers={"Content-Type": "application/yaml"}
        )
    mistakes = answer.json()["details"]["mistakes"]
    assert [(m["code"], m["where"]) for m in mistakes] == [
        ("input_twice", "stages.count.inputs.urls")
    ]


@pytest.mark.parametrize(
    ("content", "content_type", "status", "code"),
    [
        (b"{", "application/json", 422, "dataflow_invalid"),
        (b"a: [", "application/yaml; charset=utf-8", 422, "dataflow_invalid"),
        (b"\xff\xfe", "application/json", 422, "dataflow_invalid"),
        (b"[]", "application/json", 422, "dataflow_invalid"),
        (b"", "application/json", 422, "dataflow_invalid"),
        (b"{}", "text/plain", 415, "media_type_unsupported"),
        (b"{}", "", 415, "media_type_unsupported"),
        (b"a=b", "application/x-www-form-urlencoded", 415, "media_type_unsupported"),
    ],
)
@pytest.mark.parametrize("path", ["/api/v1/dataflows", "/api/v1/dataflows/validate"])
def test_what_is_no_document_is_refused(
    service: Service, path: str, content: bytes, content_type: str, status: int, code: str
) -> None:
    """Bytes that are no document, and forms that a browser could send."""
    headers = {"Content-Type": content_type} if content_type else {}
    with service.client() as client:
        answer = client.post(path, content=content, headers=headers)
    assert (answer.status_code, answer.json()["error_code"]) == (status, code)


def test_wrong_parameters_are_listed_and_not_repeated(service: Service) -> None:
    """Every wrong parameter is named; its value, perhaps a misplaced secret, is not."""
    with service.client() as client:
        answer = client.get("/api/v1/runs", params={"limit": "sw0rdfish", "token": "hunter2"})
    assert answer.status_code == 422
    places = {mistake["where"] for mistake in answer.json()["details"]["mistakes"]}
    assert places == {"query.limit", "query.token"}
    assert "sw0rdfish" not in answer.text
    assert "hunter2" not in answer.text


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/api/v1/nothing", 404, "route_unknown"),
        ("PUT", "/api/v1/dataflows", 405, "method_not_allowed"),
        ("GET", "/api/v1/dataflows/clicks/", 404, "route_unknown"),
        ("GET", "/api/v1/dataflows/..%2f..%2fetc", 404, "route_unknown"),
        ("GET", "/api/v1/dataflows/..", 404, "route_unknown"),
    ],
)
def test_what_is_not_there_is_told_as_a_problem(
    service: Service, method: str, path: str, status: int, code: str
) -> None:
    """The router's own refusals have the same shape as all others."""
    with service.client() as client:
        answer = client.request(method, path)
    assert (answer.status_code, answer.headers["content-type"]) == (status, MEDIA_TYPE)
    assert answer.json()["error_code"] == code


def test_mistakes_keep_the_place_in_the_authors_file(service: Service) -> None:
    """The place of an author's code reaches the client."""
    document = {**DOCUMENT, "stages": {"count": {"translator": "url_count"}}}
    with service.client() as client:
        mistakes = client.post("/api/v1/dataflows", json=document).json()["details"]["mistakes"]
    assert Mistake(**mistakes[0]).place.partition(":")[0].endswith("clicks.py")
