"""Names of callers never become paths, whatever they hold: over every route, on a real service."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import httpx
import pytest

from cbp.engine.direct import LocalEngine
from controller.settings import Settings
from tests.controller.api.all_routes import Route, routes
from tests.controller.api.app_transport import TOKEN, AppTransport
from tests.controller.rest import api_of_world
from tests.controller.world import ONE, World

pytestmark = pytest.mark.usefixtures("without_syncs")

CANARY = "canary-of-a-file-outside"
NAMES = [
    *("..", "../../outside", "..\\..\\outside", "/etc/passwd", "//outside", "a/../../outside"),
    *("%2e%2e%2foutside", "..%00", "\0", "a\0.jsonl", "\x1b[2J", "\u202eoutside", "\uff0e\uff0e/x"),
    *("*", "[a]", "$(touch x)", "`x`", "-rf", "~root", "CON", "a" * 300, "é漢😀", " ", "."),
]
WITH_NAMES = [route for route in routes() if "{" in route.path]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Give a dataflow that has run, and a file beside its root that nobody may read."""
    folder = tmp_path_factory.mktemp("names")
    (folder / "outside").write_text(CANARY)
    made = World(folder / "root", engine=LocalEngine)
    made.controller.register(ONE)
    made.arrive("one", "a", ("x", 1))
    made.ticks()
    yield made
    made.close()


@pytest.fixture(scope="module")
def client(world: World) -> Iterator[httpx.Client]:
    """Give the admin's client of a real controller."""
    app = api_of_world(world, Settings(root=world.root, token=TOKEN))
    app.state.parts.events.stop()
    headers = {"Authorization": f"Bearer {TOKEN}"}
    url = "http://127.0.0.1:8420"
    with httpx.Client(transport=AppTransport(app), base_url=url, headers=headers) as made:
        yield made


def _outside(root: Path) -> set[str]:
    """Return what is beside and above the root."""
    return {str(path) for path in (*root.parent.iterdir(), *root.parent.parent.iterdir())}


def _filled(route: Route, name: str) -> httpx.URL:
    """Return the path with a name in place of each parameter; a dataflow that exists before it."""
    path, hostile = route.path, quote(name, safe="")
    if path.count("{") > 1:  # the last parameter is reached only behind names that exist
        path = path.replace("{name}", "one", 1)
    while "{" in path:
        path = path[: path.index("{")] + hostile + path[path.index("}") + 1 :]
    return httpx.URL("http://127.0.0.1:8420").copy_with(raw_path=path.encode())


@pytest.mark.part(every=3)
@pytest.mark.parametrize("route", WITH_NAMES, ids=lambda route: f"{route.method} {route.path}")
def test_a_hostile_name_is_refused_by_every_route(
    route: Route, world: World, client: httpx.Client
) -> None:
    """Below 500 and no file outside of the root: neither read, nor made, nor gone."""
    before = _outside(world.root)
    for name in NAMES:
        request = client.build_request(route.method, _filled(route, name))
        answer = client.send(request)
        assert answer.status_code < 500, (name, answer.text[:300])
        if not answer.is_success:
            assert answer.json()["error_code"] != "internal_error"
        assert CANARY not in answer.text, name
        assert "root:x:" not in answer.text, name
    assert _outside(world.root) == before
    assert (world.root.parent / "outside").read_text() == CANARY


def test_a_hostile_name_of_a_file_is_only_text(world: World, client: httpx.Client) -> None:
    """An upload is refused by its name, or kept under a name that the service made."""
    before, taken = _outside(world.root), 0
    path = "/api/v1/dataflows/one/sources/a/files"
    for name in NAMES:
        answer = client.post(path, params={"name": name}, content=b'{"key": "k", "n": 1}\n')
        assert answer.status_code in (202, 422), (name, answer.text)
        taken += answer.status_code == 202
    assert taken > 5
    assert _outside(world.root) == before
    for _, folders, files in os.walk(world.root / "drop"):
        odd = [name for name in (*folders, *files) if not re.fullmatch(r"[\w.%~-]{1,255}", name)]
        assert odd == [], "a name is one part of a path, of plain characters"


def test_a_hostile_name_in_a_document_is_refused(world: World, client: httpx.Client) -> None:
    """Folders are made of names of dataflows and sources, so these are plain words."""
    before = _outside(world.root)
    source = {"schema": "key STRING, n BIGINT", "format": "jsonl"}
    for name in NAMES:
        for document in (
            {**ONE, "name": name},
            {**ONE, "name": "other", "sources": {**ONE["sources"], name: source}},
        ):
            answer = client.post("/api/v1/dataflows", json=document)
            assert answer.status_code == 422, (name, answer.text)
    assert _outside(world.root) == before
