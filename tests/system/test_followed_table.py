"""`kill -9` of the service while it follows a Delta table: its view is the table, row for row.

Real processes and real files, `engine=local`. `CBP_KILLS` sets the number of kills (1 by default),
`CBP_SEED` the instants.
"""

from __future__ import annotations

import json
import os
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars
import pytest
from deltalake import DeltaTable

from controller.client.service_client import ServiceClient
from tests.system.processes import Instance, until

pytestmark = [pytest.mark.system, pytest.mark.timeout(3600)]

KILLS = int(os.environ.get("CBP_KILLS", "1"))
SEED = int(os.environ.get("CBP_SEED", "1"))
RUN_SECONDS = 1.0
VERSIONS, IDS = 8, 9
COLUMNS = "id BIGINT, name STRING"
FEED = {"configuration": {"delta.enableChangeDataFeed": "true"}}
DOCUMENT: dict[str, Any] = {
    "name": "follow",
    "sources": {
        "rows": {
            "format": "delta",
            "schema": f"{COLUMNS}, sign INT",
            "options": {"table": "rows"},
            "batch": {"files": 3},
        }
    },
    "stages": {
        "now": {
            "translator": "distinct",
            "parameters": {"schema": COLUMNS},
            "inputs": {"rows": "rows"},
            "buckets": 2,
        }
    },
}


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Instance]:
    """Give a service that is killed at the end."""
    instance = Instance(tmp_path, "one", engine="local")
    yield instance
    instance.kill()


def change(table: Path, chance: random.Random, number: int) -> None:
    """Insert a row, then update or delete others, each in a version of its own."""
    row = {"id": [number % IDS], "name": [f"n{number}"]}
    polars.DataFrame(row).write_delta(table, mode="append", delta_write_options=FEED)
    which = f"id = {chance.randrange(IDS)}"
    if number % 2:
        DeltaTable(str(table)).delete(which)
    else:
        DeltaTable(str(table)).update(predicate=which, new_values={"name": f"u{number}"})


@pytest.mark.soak
def test_a_view_of_a_table_is_the_table_after_kills(service: Instance, tmp_path: Path) -> None:
    """Each version counts once, whatever is cut off, and nobody helps."""
    chance, table, number = random.Random(SEED), tmp_path / "sources/rows", 0
    service.start()
    service.wait()
    with ServiceClient(service.settings) as client:
        body = json.dumps(DOCUMENT).encode()
        client.post("dataflows", content=body, content_type="application/json")
    for _ in range(KILLS):
        for _ in range(VERSIONS // 2):
            change(table, chance, number)
            number += 1
        time.sleep(chance.uniform(0, RUN_SECONDS))
        service.kill()
        change(table, chance, number)
        number += 1
        service.start()
        service.wait()

    def is_done() -> bool:
        view = tmp_path / "tables/follow/state/now.distinct"
        if not (view / "_delta_log").exists():
            return False
        expected = sorted(polars.read_delta(str(table)).select("id", "name").rows())
        return sorted(polars.read_delta(str(view)).select("id", "name").rows()) == expected

    until(is_done, "the view did not become the table")
    newest = DeltaTable(str(table)).version()

    def is_at_the_end() -> bool:
        position = json.loads((tmp_path / "tables/follow/sources/rows/_feed.json").read_bytes())
        return bool(position["claimed"] and position["group"].get("last") == newest)

    until(is_at_the_end, "the newest version did not come")
    until(is_done, "the view is not the table any more")
    with ServiceClient(service.settings) as client:
        items = client.get("dataflows", "follow", "claims", limit=500)["items"]
    assert {one["status"] for one in items} == {"accepted"}
