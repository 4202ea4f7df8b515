"""The screen of REST: every route of the service's own document, tried on the service itself."""

from __future__ import annotations

import json

import pytest
from playwright.sync_api import expect

from tests.ui.conftest import OpenViewer
from tests.ui.served import Served
from tests.ui.viewer import Viewer, assert_accessible, screenshot


@pytest.fixture(scope="module")
def served(shared: Served) -> Served:
    return shared


def test_every_route_is_there_and_one_that_reads_can_be_tried(
    clicks: Served, viewer: Viewer
) -> None:
    """What `Send` shows is what REST answers; what changes something has a call for a shell."""
    page = viewer.open("/api")
    paths = clicks.get("/openapi.json")["paths"]
    routes = [(method, path) for path, methods in paths.items() for method in methods]
    controls = page.locator("main h3 button")
    expect(controls).to_have_count(len(routes))
    assert_accessible(page)
    page.get_by_label("Find").fill("dataflows_show")
    expect(controls).to_have_count(1)
    controls.first.click()
    send = page.get_by_role("button", name="Send")
    page.get_by_role("textbox", name="name").fill("nobody")
    viewer.allow("404")
    send.click()
    expect(page.get_by_role("group", name="Answer", exact=True)).to_contain_text("not_found")
    page.get_by_role("textbox", name="name").fill("clicks")
    send.click()
    shown = page.get_by_role("group", name="Answer", exact=True)
    expect(shown).to_contain_text('"summary"')
    shown.scroll_into_view_if_needed()
    expect(shown).to_be_in_viewport()
    actual, expected = json.loads(shown.text_content() or ""), clicks.get("/dataflows/clicks")
    assert [one["name"] for one in actual["stages"]] == [one["name"] for one in expected["stages"]]
    assert_accessible(page)
    screenshot(page, "rest-api")
    page.get_by_label("Find").fill("dataflows_register")
    controls.first.click()
    call = page.get_by_role("group", name="The same request in a shell")
    expect(call).to_contain_text(f'curl -X POST "{clicks.url}/api/v1/dataflows"')
    expect(call).to_contain_text('"name":"clicks"')
    expect(page.get_by_role("button", name="Send")).to_have_count(0)


@pytest.mark.soak
def test_it_fits_a_telephone_in_the_dark(clicks: Served, open_viewer: OpenViewer) -> None:
    """An open route at 400 pixels: tables and calls scroll in their own frames."""
    page = open_viewer(width=400, height=800, color_scheme="dark").open(
        "/api?find=flows_read&route=flows_read"
    )
    expect(page.get_by_role("group", name="The same request in a shell")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= 400
    assert_accessible(page)
    screenshot(page, "rest-api-400")
