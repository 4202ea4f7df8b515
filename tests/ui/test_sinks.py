"""The sinks of a dataflow on its screen of results: how far they are, and their buttons."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from tests.system.processes import until
from tests.ui.served import CLICKS, Served
from tests.ui.viewer import Viewer, assert_accessible, screenshot

SINKS: dict[str, Any] = {
    "totals": {"flow": "count.totals", "to": "parquet", "path": "totals"},
    "lines": {"flow": "count.totals", "to": "csv", "path": "lines", "paused": True},
}


@pytest.fixture(scope="module")
def served(
    browser: Browser, bundle: object, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Served]:
    """A service whose dataflow has two sinks, one of them paused."""
    service = Served(tmp_path_factory.mktemp("served"))
    try:
        service.start()
        service.register({**CLICKS, "sinks": SINKS})
        service.drop("clicks", "urls", "a.jsonl", '{"url": "/"}\n{"url": "/docs"}\n')
        service.wait_for_run("clicks", "count", 0)
        yield service
    finally:
        service.stop()


def test_the_table_says_what_rest_says_and_steers(served: Served, viewer: Viewer) -> None:
    """A paused sink is behind, and goes on by the button."""

    def sinks() -> dict[str, Any]:
        items = served.get("/dataflows/clicks/sinks")["items"]
        return {one["name"]: (one["state"], one["records"]) for one in items}

    until(lambda: sinks() == {"totals": ("current", 2), "lines": ("paused", 0)}, "not published")
    page = viewer.open("/dataflows/clicks/results")
    table = page.get_by_role("region", name="Table of sinks")
    expect(table.get_by_text("count.totals to parquet totals")).to_be_visible()
    expect(table.get_by_text("Up to date")).to_be_visible()
    expect(table.get_by_text("1 increment, 2 records")).to_be_visible()
    assert_accessible(page)
    screenshot(page, "sinks")
    page.get_by_role("button", name="Resume lines").click()
    expect(page.get_by_role("button", name="Pause lines")).to_be_visible()
    until(lambda: sinks()["lines"] == ("current", 2), "the sink did not go on")
    page.get_by_role("button", name="Pause totals").click()
    expect(page.get_by_role("button", name="Resume totals")).to_be_visible()
    assert sinks()["totals"][0] == "paused"
