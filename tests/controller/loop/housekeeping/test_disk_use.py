"""Disk use by table: what is in the folder, measured once a minute at most."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from cbp.engine.direct import LocalEngine
from controller.settings import Settings
from tests.controller.api.app_transport import TOKEN, AppTransport
from tests.controller.rest import api_of_world
from tests.controller.world import ONE, World


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path, engine=LocalEngine, collect_every=1)
    yield made
    made.close()


@pytest.fixture
def client(world: World) -> httpx.Client:
    settings = Settings(root=world.root, token=TOKEN)
    app = AppTransport(api_of_world(world, settings))
    headers = {"Authorization": f"Bearer {TOKEN}"}
    return httpx.Client(transport=app, base_url=settings.url, headers=headers)


def test_each_table_has_the_bytes_of_its_files(world: World, client: httpx.Client) -> None:
    """Every file of the folder counts once; what is written later counts a minute later."""
    world.controller.register(ONE)
    world.arrive("one", "a", ("x", 1))
    world.ticks()
    use = client.get("/api/v1/dataflows/one/disk").json()
    folder = Path(world.tables) / "one"
    there = [path for path in folder.rglob("*") if path.is_file()]
    assert (use["files"], use["bytes"]) == (len(there), sum(p.stat().st_size for p in there))
    state = [path for path in there if path.is_relative_to(folder / "state" / "sum.sums")]
    (shown,) = [one for one in use["items"] if one["place"] == "state/sum.sums"]
    assert shown["bytes"] == sum(path.stat().st_size for path in state)
    sizes = [one["bytes"] for one in use["items"]]
    assert sizes == sorted(sizes, reverse=True)
    (folder / "state" / "sum.sums" / "more").write_bytes(b"x" * 1000)
    world.clock.advance(59)
    assert client.get("/api/v1/dataflows/one/disk").json() == use
    world.clock.advance(2)
    assert client.get("/api/v1/dataflows/one/disk").json()["bytes"] == use["bytes"] + 1000
    world.controller.change({**ONE, "description": "more"})
    assert client.get("/api/v1/dataflows/one/disk").json()["bytes"] > use["bytes"] + 1000


def test_the_last_collection_is_known(world: World, client: httpx.Client) -> None:
    """When it was, who began it, and what it removed."""
    world.controller.register(ONE)
    path = "/api/v1/dataflows/one/garbage"
    assert client.get(path).json()["last"] is None
    world.arrive("one", "a", ("x", 1))
    world.ticks()
    last = client.get(path).json()["last"]
    assert (last["by"], last["at"][:16]) == ("idle work", world.clock().isoformat()[:16])
    assert client.post(f"{path}/collect").json()["last"]["by"] == "request"


def test_a_dataflow_of_a_deleted_ones_name_is_measured_again(world: World) -> None:
    """At once, however fresh the measurement of the deleted one is."""
    world.controller.register(ONE)
    world.arrive("one", "a", ("x", 1))
    world.ticks()
    before = world.controller.disk_uses.of(world.store.dataflow("one"))
    world.clock.advance(1)
    world.controller.delete("one", purge=True)
    world.controller.register(ONE)
    assert world.controller.disk_uses.of(world.store.dataflow("one")).places != before.places
