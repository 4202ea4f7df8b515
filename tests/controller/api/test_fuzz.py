"""Requests made of the OpenAPI document, to every operation of a real controller: no surprise.

Whatever is asked, in whatever form, the answer is one that the document names, with the media
type and the shape that it says, and it is never an error of ours. What the document forbids is
refused. What it allows may be refused, too: a cursor or a query can be well formed and wrong. Paths
name what exists three times in four, so that requests get behind the first look-up.

Five checks of the tool are left out:

    positive_data_acceptance       what the document allows may be refused, as said
    ignored_auth                   `security/test_every_route.py` sends every kind of caller to each
    object_level_authorization     route, and a token of another dataflow
    use_after_free                 they follow links between operations, which the document has none
    ensure_resource_availability   of: names are chosen by clients, and deletions are tested by hand
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, reject, settings

from cbp.engine.direct import LocalEngine
from controller.settings import Settings
from tests.controller.api.app_transport import TOKEN, AppTransport
from tests.controller.rest import api_of_world
from tests.controller.world import ONE, World
from tests.sampling import examples

schemathesis = pytest.importorskip("schemathesis", reason="is of the `dev` extra")

pytestmark = pytest.mark.usefixtures("without_syncs")

TOLD = {"Authorization": f"Bearer {TOKEN}"}
URL = "http://127.0.0.1:8420"
EXAMPLES = examples(2)
"""Requests of each operation; with all of them it takes some seconds."""

TOO_LARGE = 413

schemathesis.checks.load_all_checks()
CHECKS = [
    schemathesis.checks.CHECKS.get_one(name)
    for name in (
        "negative_data_rejection",
        "not_a_server_error",
        "status_code_conformance",
        "content_type_conformance",
        "response_schema_conformance",
        "response_headers_conformance",
        "unsupported_method",
        "allow_header_conformance",
        "missing_required_header",
    )
]

KNOWN: dict[str, list[str]] = {
    "name": ["one"],
    "flow": ["a", "sum.totals"],
    "source": ["a"],
    "stage": ["sum"],
    "state": ["sums"],
    "index": ["0", "1"],
}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Give a dataflow that has run."""
    made = World(tmp_path_factory.mktemp("fuzz"), engine=LocalEngine)
    made.controller.register(ONE)
    for n in range(3):
        made.arrive("one", "a", ("x", n), ("y", 2))
        made.ticks()
    yield made
    made.close()


@pytest.fixture(scope="module")
def client(world: World) -> Iterator[httpx.Client]:
    app = api_of_world(world, Settings(root=world.root, token=TOKEN))
    app.state.parts.events.stop()  # a stream of events ends at once
    with httpx.Client(transport=AppTransport(app), base_url=URL, headers=TOLD) as made:
        yield made


@pytest.fixture(scope="module")
def document(client: httpx.Client) -> Any:
    # No corners of each parameter, one after the other: those of all routes are thousands.
    few = {"phases": {name: {"enabled": False} for name in ("coverage", "examples", "stateful")}}
    described = client.get("/api/v1/openapi.json").json()
    for methods in described["paths"].values():
        for operation in methods.values():
            operation.pop("security", None)  # each request has the token; see `security`
    schema = schemathesis.openapi.from_dict(
        described,
        config=schemathesis.config.SchemathesisConfig.from_dict(few),
    )

    @schema.hook
    def map_path_parameters(context: Any, path_parameters: Any) -> Any:
        if not path_parameters:
            return path_parameters
        chance = random.Random(repr(sorted(path_parameters.items())))
        if context.operation.method.lower() == "delete" or chance.random() < 0.25:
            return path_parameters
        known = {
            n: chance.choice(KNOWN[n])
            for n, given in path_parameters.items()
            if n in KNOWN and not _is_forbidden(n, given)
        }
        return {**path_parameters, **known}

    return schema


def _is_forbidden(name: str, given: Any) -> bool:
    """Tell whether the document forbids a value; then it has to be sent, and refused."""
    return name == "index" and not (isinstance(given, int) and 0 <= given < 2**63)


fuzzed = schemathesis.pytest.from_fixture("document")


@pytest.mark.part(every=3)
@fuzzed.parametrize()
@settings(
    max_examples=EXAMPLES,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)
def test_every_answer_is_one_that_the_document_names(case: Any, client: httpx.Client) -> None:
    """No error of ours; status, media type and shape are those of the document."""
    asked = case.as_transport_kwargs(base_url=URL)
    body = asked.get("data")
    told = {"content": body} if isinstance(body, str | bytes) else {"data": body}
    try:
        request = client.build_request(
            asked["method"],
            asked["url"],
            params=asked["params"],
            headers={**asked["headers"], **TOLD},
            json=asked.get("json"),
            files=asked.get("files"),
            **(told if body is not None else {}),
        )
    except httpx.InvalidURL:  # longer than this client, and the server, take
        reject()
    answer = client.send(request)
    answer.elapsed = timedelta()  # of an answer that came over no wire nobody measures it
    # A body beyond its limit is refused unread; the tool does not count that as a refusal.
    unread = answer.status_code == TOO_LARGE
    case.validate_response(answer, checks=CHECKS[1:] if unread else CHECKS)
