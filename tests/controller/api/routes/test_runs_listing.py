"""The listing of runs over the real store: 10,000 of them, page by page and filtered."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import insert

from cbp.model.run.intention import RunStatus
from controller.settings import Settings
from controller.store.base import RunRecord
from controller.store.schema import rows
from controller.store.schema.tables import runs
from tests.controller.api.app_transport import TOKEN, AppTransport
from tests.controller.api.clicks import NOON
from tests.controller.rest import api_of_world
from tests.controller.world import ONE, World

MANY = 10_000


def a_run(n: int) -> RunRecord:
    """Return run `n`: every hundredth failed, and its epoch was tried again."""
    failed = n % 100 == 99
    code = "disk_full" if n % 200 == 99 else "author_code_failed"
    return RunRecord(
        f"{n:016x}",
        "one",
        "sum",
        n - n // 100,
        2 if n % 100 == 0 and n else 1,
        RunStatus.FAILED if failed else RunStatus.COMMITTED,
        {"items": (n,)},
        {"items": (n,)},
        NOON + timedelta(seconds=n),
        finished_at=NOON + timedelta(seconds=n + 1),
        figures={"groups": 1.0, "begin_00_start": 0.0},
        error={"error_code": code, "message": "m", "details": {}} if failed else None,
    )


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    root: Path = tmp_path_factory.mktemp("listing")
    world = World(root)
    world.controller.register(ONE)
    with world.store._database.write() as connection:
        connection.execute(insert(runs), [rows.run_row(a_run(n)) for n in range(MANY)])
    app = api_of_world(world, Settings(root=root, token=TOKEN))
    told = {"Authorization": f"Bearer {TOKEN}"}
    with httpx.Client(
        transport=AppTransport(app), base_url="http://127.0.0.1:8420/api/v1", headers=told
    ) as made:
        yield made
    world.close()


def listed(client: httpx.Client, **filters: Any) -> list[dict[str, Any]]:
    """Turn all pages of the listing."""
    items: list[dict[str, Any]] = []
    cursor = None
    while True:
        page = client.get("/runs", params={**filters, **({"cursor": cursor} if cursor else {})})
        items += page.json()["items"]
        if (cursor := page.json()["cursor"]) is None:
            return items


@pytest.mark.soak
def test_ten_thousand_runs_are_listed_page_by_page(client: httpx.Client) -> None:
    """Each once, the newest first, in pages of the largest size."""
    items = listed(client, limit=500)
    assert [run["id"] for run in items] == [f"{n:016x}" for n in reversed(range(MANY))]


def test_filters_of_a_long_history_are_the_servers(client: httpx.Client) -> None:
    """A page is full of what was asked for, however rare it is; no page is sent in between."""
    page = client.get("/runs", params={"status": "FAILED", "limit": 50}).json()
    assert [int(run["id"], 16) for run in page["items"]] == [MANY - 1 - 100 * n for n in range(50)]
    assert len(listed(client, error_code="disk_full", dataflow="one", limit=500)) == MANY / 200
    since = (NOON + timedelta(seconds=MANY - 5)).isoformat()
    assert len(listed(client, since=since)) == 5


def test_the_attempts_of_an_epoch_are_found_together(client: httpx.Client) -> None:
    """By dataflow, stage and epoch: the failed one and the one after it."""
    epoch = a_run(5099).epoch
    attempts = listed(client, dataflow="one", stage="sum", epoch=epoch)
    assert [(run["attempt"], run["status"]) for run in attempts] == [
        (2, "COMMITTED"),
        (1, "FAILED"),
    ]
