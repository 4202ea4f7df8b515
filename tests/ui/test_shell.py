"""The frame of the page: sign-in, navigation, palette, keys, light and dark, what fails."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.system.processes import until
from tests.ui.conftest import OpenViewer
from tests.ui.served import Served
from tests.ui.viewer import Viewer, assert_accessible, screenshot


@pytest.fixture(scope="module")
def served(shared: Served) -> Served:
    return shared


def test_nothing_is_shown_before_the_token(clicks: Served, viewer: Viewer) -> None:
    """Without the token the page shows a form; a wrong one is refused in words, with its code."""
    viewer.allow("401")
    page = viewer.page
    page.goto(f"{clicks.url}/ui/")
    expect(page.get_by_role("form", name="Sign in")).to_be_visible()
    expect(page.get_by_text("clicks")).to_have_count(0)
    assert_accessible(page)
    screenshot(page, "sign-in")
    viewer.sign_in("wrong")
    expect(page.get_by_role("alert")).to_contain_text("unauthenticated")
    viewer.sign_in()
    expect(page.get_by_role("link", name="clicks", exact=True)).to_be_visible()


@pytest.mark.soak
def test_the_palette_goes_to_a_dataflow(clicks: Served, viewer: Viewer) -> None:
    """Ctrl K and a few letters open a dataflow; nothing else needs to be touched."""
    page = viewer.open("/")
    page.keyboard.press("Control+k")
    search = page.get_by_placeholder("A screen, a dataflow or a stage")
    search.fill("dataflows")
    expect(page.get_by_role("dialog").get_by_text("Dataflows").first).to_be_visible()
    assert_accessible(page)
    page.keyboard.press("Escape")
    expect(search).to_be_hidden()


def test_the_keys_are_listed_and_work(clicks: Served, viewer: Viewer) -> None:
    """`?` lists the keys; `t` turns light to dark, `p` holds the page still."""
    page = viewer.open("/")
    page.keyboard.press("?")
    dialog = page.get_by_role("dialog", name="Keyboard shortcuts")
    expect(dialog).to_be_visible()
    assert_accessible(page)
    screenshot(page, "keys")
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    page.keyboard.press("t")
    expect(page.locator("html")).to_have_attribute("data-mantine-color-scheme", "dark")
    assert_accessible(page)
    screenshot(page, "dataflows-dark")
    page.keyboard.press("p")
    expect(page.get_by_role("button", name="Paused: resume updates")).to_be_visible()


def test_an_address_without_a_screen_says_so(clicks: Served, viewer: Viewer) -> None:
    """A wrong link leads to words and a way on, not to a blank page."""
    page = viewer.open("/no/such/screen")
    expect(page.get_by_role("heading", level=1)).to_have_text("No such screen")
    assert_accessible(page)


def test_the_frame_fits_a_telephone(clicks: Served, open_viewer: OpenViewer) -> None:
    """At 400 pixels nothing but tables scrolls sideways, and the navigation opens by a button."""
    viewer = open_viewer(width=400, height=800)
    page = viewer.open("/")
    assert page.evaluate("document.documentElement.scrollWidth") <= 400
    page.get_by_role("button", name="Open the navigation").click()
    expect(page.get_by_role("link", name=re.compile("^Dataflows$"))).to_be_visible()
    assert_accessible(page)
    screenshot(page, "navigation-400")


SCREEN = re.compile(r'path: "([^"]+)"')


@pytest.mark.soak
def test_every_screen_uses_a_wall(clicks: Served, open_viewer: OpenViewer) -> None:
    """At 2,560 pixels each has its title, no part is cut off at the right, and lines stay short.

    The paths are those of the page's own registry: a new screen is looked at, too.
    """
    run = clicks.get("/runs")["items"][0]["id"]
    (clicks.drop_root / "staged").write_text('{"url": 7}\n')
    folder = clicks.drop_root / "clicks" / "urls" / "incoming"
    (clicks.drop_root / "staged").rename(folder / "bad.jsonl")
    refused = "/dataflows/clicks/sources/urls/quarantine"
    until(lambda: bool(clicks.get(refused)["items"]), "the bad file is not in quarantine")
    values = {
        "dataflow": "clicks",
        "source": "urls",
        "claim": clicks.get(refused)["items"][0]["id"],
        "run": run,
        "stage": "count",
        "flow": "count.totals",
        "index": "0",
        "state": "counts",
        "guide": "settings",
    }
    page = open_viewer(width=2560, height=1300).open("/")
    for path in SCREEN.findall(REGISTRY.read_text()):
        filled = re.sub(r":(\w+)", lambda name: values[name.group(1)], path)
        page.goto(f"{clicks.url}/ui{filled}")
        expect(page.locator("main h1")).not_to_have_text("No such screen")
        expect(page.get_by_role("status", name="Loading")).to_have_count(0)
        screenshot(page, f"wall{filled.replace('/', '-')}")
        assert page.evaluate("document.documentElement.scrollWidth") <= 2560, path
        assert page.evaluate(WIDEST_LINE) <= 1700, f"{path}: a line of text is too long to read"


REGISTRY = Path(__file__).resolve().parents[2] / "controller/ui/src/screens/registry.ts"
WIDEST_LINE = """() => Math.max(0, ...[...document.querySelectorAll("main p")].map((paragraph) => {
    const range = document.createRange();
    range.selectNodeContents(paragraph);
    return range.getBoundingClientRect().width;
}))"""
