"""What a stage has set aside, on its screen: seen, tried, and given back."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from tests.system.processes import until
from tests.ui.authored import Author, send
from tests.ui.served import Served
from tests.ui.test_recovery_screens import section
from tests.ui.viewer import Viewer, assert_accessible, screenshot

expect.set_options(timeout=30_000)

AT = "/dataflows/visits/stages/keep"


@pytest.fixture(scope="module")
def author(tmp_path_factory: pytest.TempPathFactory) -> Author:
    return Author(tmp_path_factory.mktemp("author"))


@pytest.fixture(scope="module")
def served(
    browser: Browser, bundle: Any, author: Author, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Served]:
    """A service with a stage whose code fails on a word, which it sets aside."""
    service = Served(tmp_path_factory.mktemp("served"), **author.settings())
    try:
        service.start()
        document = author.document("visits")
        document["stages"]["keep"]["on_error"] = "set_aside"
        service.register(document)
        send(service, "visits", "monday", ("tea", 1), ("poison", 2), ("milk", 3), ("poison", 4))
        service.wait_for_run("visits", "keep", 0)
        send(service, "visits", "tuesday", ("poison", 5), ("tea", 6))
        service.wait_for_run("visits", "keep", 1)
        yield service
    finally:
        service.stop()


def test_what_is_set_aside_is_seen_tried_and_given_back(
    served: Served, viewer: Viewer, author: Author
) -> None:
    """Count, file, line and error of each; a trial changes nothing; then the section is gone."""
    page = viewer.open("/dataflows/visits")
    trouble = page.get_by_role("region", name="Trouble")
    expect(trouble).to_contain_text("3 records of the stage keep are set aside")
    trouble.get_by_role("link", name="Decide").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("Records set aside")
    section = page.get_by_role("region", name="3 records set aside", exact=True)
    rows = section.get_by_role("table").get_by_role("row")
    expect(rows).to_have_count(4)
    for number, place in enumerate(("monday.jsonl, line 2", "monday.jsonl, line 4"), 1):
        expect(rows.nth(number)).to_contain_text(place)
        expect(rows.nth(number)).to_contain_text("cannot weigh 'poison'")
        expect(rows.nth(number)).to_contain_text("picky.py")
    expect(rows.nth(3)).to_contain_text("tuesday.jsonl, line 1")
    expect(rows.nth(3)).to_contain_text("earlier records of its group are set aside")
    assert_accessible(page)
    screenshot(page, "set-aside")
    section.get_by_role("button", name="Try without changing anything").click()
    expect(
        page.get_by_text("0 records would be applied, 3 records would fail again")
    ).to_be_visible()
    author.repair()
    give = section.get_by_role("button", name="Give back")
    expect(give).to_be_disabled()
    section.get_by_label("Reason, stored permanently").fill("poison is a word like any other")
    give.click()
    expect(page.get_by_text("3 records applied", exact=True)).to_be_visible()
    expect(section).to_have_count(0)
    expect(page.get_by_role("heading", level=1)).not_to_contain_text("Records set aside")
    assert served.get("/dataflows/visits/stages/keep/set-aside")["items"] == []
    assert served.get("/dataflows/visits/state/keep/seen", word="poison")["items"][-1]["n"] == 5


def test_the_alert_of_a_failed_rebuild_is_ended(
    served: Served, viewer: Viewer, author: Author
) -> None:
    """Its error and what ended it are shown; the tables stay, and no alert is left."""
    author.repair()
    served.register(author.document("weighed"))
    send(served, "weighed", "monday", ("poison", 7))
    served.wait_for_run("weighed", "again", 0)
    author.break_again()
    served.post("/dataflows/weighed/rebuilds")

    def is_alerted() -> bool:
        return any(one["kind"] == "rebuild" for one in served.get("/alerts")["standing"])

    until(is_alerted, "the alert is there")
    rebuild = section(viewer.open("/dataflows/weighed/recovery"), "Rebuild beside")
    expect(rebuild).to_contain_text("cannot weigh 'poison'")
    screenshot(rebuild.page, "rebuild-failed")
    rebuild.get_by_role("button", name="Dismiss").click()
    expect(rebuild).to_contain_text("was cancelled")
    expect(rebuild.get_by_role("button", name="Dismiss")).to_have_count(0)
    until(lambda: not is_alerted(), "the alert is gone")
    assert served.get("/dataflows/weighed/state/keep/seen", word="poison")["items"][-1]["n"] == 7


@pytest.mark.soak
def test_it_is_shown_on_a_telephone(served: Served, open_viewer: Any) -> None:
    """A narrow page scrolls the table, not itself; nothing overlaps."""
    send(served, "visits", "wednesday", ("tea", 1))
    page = open_viewer(width=400, color_scheme="dark").open(AT)
    expect(page.get_by_role("heading", level=1)).to_contain_text(re.compile("keep"))
    assert_accessible(page)
