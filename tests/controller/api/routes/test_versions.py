"""One version of a dataflow, and the entity tag by which a change names it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.controller.api.app_transport import TOKEN
from tests.controller.live import Live, live
from tests.controller.world import ONE

pytestmark = pytest.mark.usefixtures("without_syncs")

PATH = "/api/v1/dataflows/one"


@pytest.fixture
def real(tmp_path: Path) -> Iterator[Live]:
    made = live(tmp_path)
    made.world.controller.register(ONE)
    yield made
    made.world.close()


@pytest.fixture
def client(real: Live) -> Iterator[httpx.Client]:
    headers = {"Authorization": f"Bearer {TOKEN}"}
    with httpx.Client(
        transport=real.session.transport, base_url=real.session.settings.url, headers=headers
    ) as made:
        yield made


def test_a_version_is_shown_with_its_tag(client: httpx.Client) -> None:
    """A caller who has it already gets no content; one that does not exist is unknown."""
    shown = client.get(f"{PATH}/versions/1")
    assert (shown.headers["etag"], shown.json()["version"]) == ('"1"', 1)
    same = client.get(f"{PATH}/versions/1", headers={"If-None-Match": '"1"'})
    assert (same.status_code, same.content, same.headers["etag"]) == (304, b"", '"1"')
    assert client.get(f"{PATH}/versions/1", headers={"If-None-Match": '"2"'}).json()
    assert client.get(f"{PATH}/versions/2").status_code == 404


def test_a_change_names_the_version_that_it_replaces(client: httpx.Client, real: Live) -> None:
    """Another one than that in force is not replaced; a plan has no tag, what is done has one."""
    after = {**ONE, "sources": {**ONE["sources"], "more": {"schema": "word STRING"}}}

    def put(tag: str, **query: bool) -> httpx.Response:
        return client.put(PATH, json=after, params=query, headers={"If-Match": tag})

    refused = put('"2"')
    assert (refused.status_code, refused.json()["error_code"]) == (412, "version_differs")
    assert real.world.store.dataflow("one").version == 1
    planned = put('"1"', dry_run=True)
    assert (planned.status_code, planned.headers.get("etag")) == (200, None)
    done = put('"1"')
    assert (done.status_code, done.headers["etag"]) == (200, '"2"')
    assert put('"1"').status_code == 412
