"""The first screen: is all up to date, what is not, since when, why, and what to press."""

from __future__ import annotations

import re
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.system.processes import until
from tests.ui.conftest import OpenViewer
from tests.ui.served import Served
from tests.ui.viewer import Viewer, assert_accessible, screenshot


def _summary(service: Served, name: str) -> dict[str, Any]:
    items = service.get("/dataflows")["items"]
    return next(dict(item) for item in items if item["name"] == name)


@pytest.mark.soak
def test_a_newcomer_gets_from_nothing_to_a_registered_dataflow(
    served: Served, viewer: Viewer
) -> None:
    """Without dataflows the page offers those that are shipped; a press registers one."""
    page = viewer.open("/")
    expect(page.get_by_role("heading", name="No dataflow is registered yet")).to_be_visible()
    offered = [item["name"] for item in served.get("/examples")["items"]]
    for name in offered:
        expect(page.get_by_role("button", name=f"Register {name}", exact=True)).to_be_visible()
    assert_accessible(page)
    screenshot(page, "dataflows-empty")
    page.get_by_role("button", name="Register crawl_queue").click()
    page.wait_for_url("**/ui/dataflows/crawl_queue/sources")
    assert _summary(served, "crawl_queue")["state"] == "ok"


def test_the_list_shows_what_the_service_says(clicks: Served, viewer: Viewer) -> None:
    """State, lag, queue, last success and failures of each dataflow, and one sentence on top."""
    page = viewer.open("/")
    row = page.locator('tr[data-row="clicks"]')
    expect(row).to_contain_text("Up to date")
    expect(row).to_contain_text("nothing")
    summary = _summary(clicks, "clicks")
    assert (summary["queued_increments"], summary["lag_seconds"]) == (0, None)
    moment = row.locator("time")
    expect(moment).to_have_attribute("datetime", str(summary["last_success_at"]))
    runs = summary["recent"]
    words = re.compile(f"^The last {len(runs)} runs: .* 0 failed$")
    expect(row.get_by_role("img", name=words)).to_be_visible()
    expect(page.get_by_role("region", name="State of all dataflows")).to_contain_text(
        "Everything is up to date."
    )
    assert_accessible(page)
    screenshot(page, "dataflows")


def test_a_dataflow_is_paused_and_resumed(clicks: Served, viewer: Viewer) -> None:
    """The buttons change what the service wants, and the page says what is paused."""
    page = viewer.open("/")
    page.get_by_role("button", name="Pause clicks").click()
    expect(page.get_by_role("region", name="State of all dataflows")).to_contain_text(
        "clicks is paused"
    )
    assert _summary(clicks, "clicks")["desired"] == "paused"
    _says_what_the_service_says(clicks, viewer, "Everything is up to date.")
    clicks.upload("clicks", "urls", "waits.jsonl", [{"url": "/waits"}])
    said = re.compile(r"Not up to date: 1 of \d dataflows?; an operator is needed\.")
    _says_what_the_service_says(clicks, viewer, said)
    page.get_by_role("region", name="State of all dataflows").get_by_role(
        "button", name="Resume"
    ).click()
    expect(page.get_by_role("button", name="Pause clicks")).to_be_visible()
    assert _summary(clicks, "clicks")["desired"] == "running"


def _says_what_the_service_says(
    service: Served, viewer: Viewer, said: str | re.Pattern[str]
) -> None:
    """Compare the sentence on top with `GET /freshness`."""
    region = viewer.page.get_by_role("region", name="State of all dataflows")
    expect(region).to_contain_text(said)
    is_fresh = service.get("/freshness")["state"] == "up_to_date"
    assert is_fresh == isinstance(said, str)


@pytest.mark.soak
def test_the_list_fits_a_telephone_and_a_wall(clicks: Served, open_viewer: OpenViewer) -> None:
    """At 400 pixels only the table scrolls sideways; at 2,560 in the dark nothing is lost."""
    page = open_viewer(width=400).open("/")
    expect(page.locator('tr[data-row="clicks"]')).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= 400
    assert_accessible(page)
    screenshot(page, "dataflows-400")
    wall = open_viewer(width=2560, height=1300, color_scheme="dark").open("/")
    expect(wall.locator('tr[data-row="clicks"]')).to_be_visible()
    assert_accessible(wall)
    screenshot(wall, "dataflows-2560-dark")


def test_a_failing_stage_is_named_with_its_error_and_tried_again(
    clicks: Served, viewer: Viewer
) -> None:
    """The sentence on top says what fails, since when and why; the button helps at once."""
    clicks.apply_failing()
    page = viewer.open("/")
    headline = page.get_by_role("region", name="State of all dataflows")
    expect(headline).to_contain_text(re.compile(r"Not up to date: 1 of \d dataflows;"))
    expect(headline).to_contain_text("failing: the stage extract")
    trouble = _trouble(clicks)
    expect(headline).to_contain_text(trouble["error"]["message"][:60])
    assert_accessible(page)
    screenshot(page, "dataflows-failing")
    headline.get_by_role("button", name="Retry now").click()
    until(lambda: _trouble(clicks).get("run") not in (None, trouble["run"]), "no second try")
    headline.get_by_role("link", name="Investigate").click()
    page.wait_for_url("**/ui/dataflows/failing/stages/extract")


def _trouble(service: Served) -> dict[str, Any]:
    failing = _summary(service, "failing")["failing"]
    return dict(failing[0]) if failing else {}
