"""The screens of guides: every guide of the package, shown from what the service took apart."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.ui.conftest import OpenViewer
from tests.ui.served import Served
from tests.ui.viewer import Viewer, assert_accessible, screenshot


@pytest.fixture(scope="module")
def served(shared: Served) -> Served:
    return shared


def test_every_guide_is_listed_and_leads_to_its_text(served: Served, viewer: Viewer) -> None:
    """In the order of the service; a guide has each of its commands, ready to be copied."""
    page = viewer.open("/guides")
    items = served.get("/guides")["items"]
    links = page.locator("main").get_by_role("listitem").get_by_role("link")
    expect(links).to_have_text([one["title"] for one in items])
    assert_accessible(page)
    screenshot(page, "guides")
    page.get_by_role("link", name="Roll back", exact=True).click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Roll back")
    blocks = served.get("/guides/roll-back")["blocks"]
    code = [block["text"] for block in blocks if block["kind"] == "code"]
    shown = page.locator("main pre")
    expect(shown).to_have_count(len(code))
    assert shown.all_text_contents() == code
    headings = [block for block in blocks if block["kind"] == "heading"][1:]
    words = ["".join(span["text"] for span in block["spans"]) for block in headings]
    expect(page.locator("main h2, main h3")).to_have_text(words)
    run = [block for block in blocks if block["kind"] == "code" and block["language"] == "bash"]
    expect(page.get_by_role("button", name="Copy: Commands")).to_have_count(len(run))
    assert_accessible(page)
    screenshot(page, "guide-roll-back")


@pytest.mark.soak
def test_a_link_leads_to_another_guide(viewer: Viewer) -> None:
    """Within the page; an unknown one is refused in words."""
    viewer.allow("404")
    page = viewer.open("/guides/roll-back")
    page.locator("main p").get_by_role("link", name="change your code").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Change your code")
    page.goto(f"{viewer.url}/ui/guides/nothing")
    viewer.sign_in_if_asked()
    expect(page.get_by_role("alert")).to_contain_text("there is no guide 'nothing'")


@pytest.mark.soak
def test_the_longest_guide_fits_a_telephone_in_the_dark(open_viewer: OpenViewer) -> None:
    """Tables and long lines scroll in their own frames."""
    page = open_viewer(width=400, height=800, color_scheme="dark").open("/guides/settings")
    expect(page.get_by_role("cell", name="CBP_LEASE_SECONDS")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= 400
    assert_accessible(page)
    screenshot(page, "guide-settings-400")
