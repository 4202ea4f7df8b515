"""The examples of the OpenAPI document: each is sent to a real service, and accepted."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from controller.api.app import describe_api
from controller.api.requests.examples import BODIES, PARAMETERS
from tests.controller.served import served
from tests.controller.small_app import TOKEN
from tests.controller.world import until

DOCUMENT = describe_api()
OPERATIONS: dict[str, tuple[str, str, dict[str, Any]]] = {
    operation["operationId"]: (method, path, operation)
    for path, methods in DOCUMENT["paths"].items()
    for method, operation in methods.items()
}
STATUSES = {
    "dataflows_register": 201,
    "rebuilds_start": 202,
    "sources_replace": 202,
    "sources_upload": 202,
    "tokens_create": 201,
    "verifications_start": 202,
}
REPORTS = {"runs_cancel_many", "runs_retry_many"}
"""Their examples name runs that nobody has: the report says so of each."""
BY_ID = {"claim", "run", "verification"}
WITHOUT = {"session", "token", "sink", "job", "rebuild"}
"""A secret, or what the example has none of."""
ENDLESS = {"events_follow"}


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """Give a service that knows nothing of the examples yet."""
    with served(tmp_path_factory.mktemp("examples")) as (settings, _, _):
        headers = {"Authorization": f"Bearer {TOKEN}"}
        with httpx.Client(
            base_url=settings.url, headers=headers, timeout=60, trust_env=False
        ) as made:
            yield made


def request_of(name: str, ids: dict[str, str] | None = None) -> tuple[str, str, dict[str, str]]:
    """Return method, path and query of an operation, by the examples of its parameters."""
    method, path, operation = OPERATIONS[name]
    given: dict[str, dict[str, str]] = {"path": dict(ids or {}), "query": {}, "header": {}}
    for one in operation.get("parameters", ()):
        if "example" in one:
            given[one["in"]][one["name"]] = one["example"]
    return method, path.format_map(given["path"]), given["query"]


def send(client: httpx.Client, name: str, ids: dict[str, str] | None = None) -> httpx.Response:
    method, path, query = request_of(name, ids)
    contents = OPERATIONS[name][2].get("requestBody", {}).get("content", {})
    for media_type, content in contents.items():
        example = content["examples"]["clicks"]["value"]
        if media_type == "application/octet-stream":
            headers = {"Content-Type": media_type}
            return client.request(method, path, params=query, content=example, headers=headers)
        return client.request(method, path, params=query, json=example)
    return client.request(method, path, params=query)


def counts_of(client: httpx.Client) -> int:
    """Return how often `/docs` was counted; 0 while there is no state."""
    path = "/api/v1/dataflows/clicks/state/count/counts"
    items = client.get(path, params={"url": "/docs"}).json().get("items")
    return items[0]["n"] if items else 0


def test_every_body_has_an_example() -> None:
    """None is missing, and none is left of an operation that is gone."""
    with_body = {name for name, (_, _, one) in OPERATIONS.items() if "requestBody" in one}
    assert with_body == set(BODIES)


def test_every_name_in_a_path_has_an_example() -> None:
    """What is missing is an id that the service makes."""
    names = {
        parameter["name"]
        for _, _, operation in OPERATIONS.values()
        for parameter in operation.get("parameters", ())
        if parameter["in"] == "path"
    }
    assert names - set(PARAMETERS) == BY_ID | WITHOUT


def test_a_body_has_numbers_as_numbers(client: httpx.Client) -> None:
    """Text is taken for no number, and a number for no truth value, in any field of any body."""
    tried = set()
    for name in BODIES:
        content = OPERATIONS[name][2]["requestBody"]["content"].get("application/json")
        for field, wrong in wrong_numbers(content["schema"] if content else {}):
            method, path, query = request_of(name)
            body = {**content["examples"]["clicks"]["value"], field: wrong}
            answer = client.request(method, path, params=query, json=body)
            assert answer.status_code == 422, (name, field, wrong, answer.text)
            tried.add((name, field))
    assert len(tried) >= 5


def wrong_numbers(schema: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield each field that is a number or a truth value, with what is none."""
    reference = schema.get("$ref", "").rpartition("/")[2]
    whole = DOCUMENT["components"]["schemas"][reference] if reference else schema
    for field, one in whole.get("properties", {}).items():
        types = {kind.get("type") for kind in (one, *one.get("anyOf", ()))}
        if "boolean" in types:
            yield from ((field, wrong) for wrong in (0, 1, "true"))
        if types & {"integer", "number"}:
            yield from ((field, wrong) for wrong in ("1", True))


def test_the_examples_are_accepted(client: httpx.Client) -> None:
    """One after the other they tell a story; then every route that reads can be asked."""
    bad = b'{"url": 7}\n'
    for name in BODIES:
        if name in ("quarantine_readmit", "sessions_sign_in"):
            continue
        answer = send(client, name)
        assert answer.status_code == STATUSES.get(name, 207 if name in REPORTS else 200), (
            name,
            answer.text,
        )
        if name == "sources_upload":
            until(lambda: counts_of(client) == 2)
            method, path, _ = request_of(name)
            client.request(method, path, params={"name": "bad.jsonl"}, content=bad)
        if name == "sources_replace":
            until(lambda: counts_of(client) == 3)
    refused = "/api/v1/dataflows/clicks/sources/urls/quarantine"
    until(lambda: bool(client.get(refused).json()["items"]))
    ids = {
        "claim": client.get(refused).json()["items"][0]["id"],
        "run": client.get("/api/v1/runs", params={"dataflow": "clicks"}).json()["items"][0]["id"],
        "verification": client.get("/api/v1/dataflows/clicks/verifications").json()["items"][0][
            "id"
        ],
    }
    for name, (method, path, operation) in OPERATIONS.items():
        given = operation.get("parameters", ())
        needs_more = any(
            (one["in"] == "query" and one.get("required")) or one["name"] in WITHOUT
            for one in given
        )
        if method == "get" and not needs_more and name not in ENDLESS:
            assert send(client, name, ids).status_code == 200, (name, path)
    readmitted = send(client, "quarantine_readmit", ids)
    assert readmitted.status_code < 300, readmitted.text


def test_the_example_of_a_sign_in_has_no_secret(client: httpx.Client) -> None:
    """It names the field; with a token of the service in it, it signs in."""
    method, path, _ = request_of("sessions_sign_in")
    page = {"X-CBP-Request": "1"}
    example = BODIES["sessions_sign_in"]
    assert set(example) == {"token"}
    assert client.request(method, path, json=example, headers=page).status_code == 401
    assert client.request(method, path, json={"token": TOKEN}, headers=page).is_success
