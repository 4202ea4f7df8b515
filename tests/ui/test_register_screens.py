"""From nothing to a running dataflow through the page alone, and on to its next version."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.ui.conftest import OpenViewer
from tests.ui.served import Served
from tests.ui.viewer import Viewer, assert_accessible, screenshot

WRONG = """\
name: visits
sources:
  urls: {schema: url STRING, format: jsonl}
stages:
  count:
    translator: url_cuont
    inputs: {urls: urls}
"""
RIGHT = WRONG.replace("url_cuont", "url_count")
REFUSED = "status of 422|status of 409"


def editor(page: Page) -> Locator:
    """Return the field that holds the document."""
    return page.get_by_label("Document (YAML)")


def test_a_mistake_is_marked_mended_registered_and_fed(
    served: Served, viewer: Viewer, tmp_path: Path
) -> None:
    """The mark is at the line that REST names; once mended, one click and one file do it."""
    viewer.allow(REFUSED)
    page = viewer.open("/register")
    expect(page.get_by_role("button", name="Register")).to_be_disabled()
    editor(page).fill(WRONG)
    place = page.get_by_role("button", name="Line 6, column 17")
    expect(place).to_be_visible()
    expect(page.get_by_text("did you mean url_count")).to_be_visible()
    expect(page.locator("mark")).to_have_text("url_cuont")
    assert_accessible(page)
    screenshot(page, "register-mistake")
    place.click()
    selected = "field => field.value.slice(field.selectionStart, field.selectionEnd)"
    assert editor(page).evaluate(selected) == "url_cuont"
    page.keyboard.type("url_count")
    expect(
        page.get_by_text("The document is valid, and no dataflow is named visits yet.")
    ).to_be_visible()
    expect(page.get_by_text("writes count.totals")).to_be_visible()
    assert served.get("/dataflows")["items"] == []
    screenshot(page, "register-valid")
    page.get_by_role("button", name="Register visits").click()
    dialog = page.get_by_role("dialog")
    assert_accessible(page)
    dialog.get_by_role("button", name="Register", exact=True).click()
    expect(page.get_by_role("heading", name="visits is registered")).to_be_visible()
    assert served.get("/dataflows/visits")["summary"]["version"] == 1
    file = tmp_path / "monday.jsonl"
    file.write_text('{"url": "/"}\n{"url": "/docs"}\n{"url": "/"}\n')
    with page.expect_file_chooser() as chooser:
        page.get_by_role("button", name="Send a file to urls").click()
    chooser.value.set_files(file)
    served.wait_for_run("visits", "count", 0)
    expect(page.get_by_text("1 run committed")).to_be_visible()
    expect(page.get_by_role("link", name="Records of count.totals")).to_be_visible()
    records = served.get("/dataflows/visits/flows/count.totals/records")["items"]
    assert {one["url"]: one["n"] for one in records} == {"/": 2, "/docs": 1}
    assert_accessible(page)
    screenshot(page, "register-next")
    page.get_by_role("button", name="Register another").click()
    expect(editor(page)).to_have_value("")


def test_a_new_version_is_planned_before_it_takes_over(
    served: Served, viewer: Viewer, open_viewer: OpenViewer
) -> None:
    """A second stage is added from the library; the plan loses nothing, and names what it adds."""
    viewer.allow(REFUSED)
    page = viewer.open("/dataflows/visits/versions")
    expect(page.get_by_text("This is version 1, as it is registered.")).to_be_visible()
    page.get_by_role("button", name="Translators").click()
    drawer = page.get_by_role("dialog")
    drawer.get_by_role("button", name="url_count Count", exact=False).first.click()
    insert = drawer.get_by_role("button", name="Insert a stage with url_count", exact=True)
    expect(insert).to_be_visible()
    assert_accessible(page)
    screenshot(page, "translators")
    insert.click()
    expect(drawer).to_be_hidden()
    expect(page.get_by_text("flow_unknown")).to_be_visible()
    editor(page).fill(editor(page).input_value().replace("FLOW", "urls"))
    expect(page.get_by_text("Nothing is lost")).to_be_visible()
    plan = page.get_by_role("table", name="Changes of sources and stages")
    expect(plan).to_contain_text("added")
    expect(page.get_by_text("reads new input only, not the 1 increment before it")).to_be_visible()
    plan.get_by_label("Decision about count").select_option("rebuild")
    expect(page.get_by_text("What readers see meanwhile")).to_be_visible()
    plan.get_by_label("Decision about count").select_option("")
    expect(page.get_by_text("What readers see meanwhile")).to_be_hidden()
    plan.get_by_label("Decision about url_count").select_option("retained")
    expect(page.get_by_text("url_count.urls reads 1 increment again")).to_be_visible()
    assert_accessible(page)
    screenshot(page, "versions-plan")
    assert served.get("/dataflows/visits")["summary"]["version"] == 1
    page.get_by_role("button", name="Change visits to version 2").click()
    page.get_by_role("dialog").get_by_role("button", name="Change", exact=True).click()
    expect(page.get_by_role("button", name="Edit version 2")).to_be_visible()
    assert served.get("/dataflows/visits")["summary"]["version"] == 2
    served.wait_for_run("visits", "url_count", 0)
    expect(page.get_by_label("What version 2 changed")).to_contain_text("+  url_count:")


@pytest.mark.soak
def test_what_a_version_loses_has_to_be_acknowledged(
    served: Served, viewer: Viewer, open_viewer: OpenViewer
) -> None:
    """Removing a stage names its state and its bytes; an earlier version is where one begins."""
    viewer.allow(REFUSED)
    page = viewer.open("/dataflows/visits/versions")
    page.get_by_role("button", name="Edit version 1").click()
    expect(page.get_by_text("The state of url_count is lost")).to_be_visible()
    page.get_by_role("button", name="Change visits to version 3").click()
    dialog = page.get_by_role("dialog")
    change = dialog.get_by_role("button", name="Change", exact=True)
    expect(change).to_be_disabled()
    dialog.get_by_label("I accept this loss").check()
    screenshot(page, "versions-lost")
    change.click()
    expect(page.get_by_role("button", name="Edit version 3")).to_be_visible()
    detail = served.get("/dataflows/visits")
    assert [stage["name"] for stage in detail["stages"]] == ["count"]
    dark = open_viewer(color_scheme="dark")
    again = dark.open("/dataflows/visits/versions")
    expect(again.get_by_label("What version 3 changed")).to_contain_text("-  url_count:")
    assert_accessible(again)
    screenshot(again, "versions-dark")


@pytest.mark.soak
def test_one_begins_with_a_shipped_example(
    served: Served, viewer: Viewer, open_viewer: OpenViewer, tmp_path: Path
) -> None:
    """Chosen, it is valid as it is; a file of one's own takes its place; it fits a phone."""
    page = viewer.open("/register")
    page.get_by_label("Begin with").select_option("crawl_queue")
    expect(page.get_by_text("crawl_queue is valid")).to_be_visible()
    stages = served.get("/examples/crawl_queue")["text"]
    assert editor(page).input_value() == stages
    screenshot(page, "register-example")
    file = tmp_path / "mine.yaml"
    file.write_text(RIGHT.replace("visits", "mine"))
    with page.expect_file_chooser() as chooser:
        page.get_by_role("button", name="Open a file").click()
    chooser.value.set_files(file)
    expect(page.get_by_text("mine is valid")).to_be_visible()
    small = open_viewer(width=400, height=800).open("/register")
    small.get_by_label("Begin with").select_option("template")
    expect(small.get_by_text("clicks is valid")).to_be_visible()
    assert small.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    assert_accessible(small)
    screenshot(small, "register-400")
