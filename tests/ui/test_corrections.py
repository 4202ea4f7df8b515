"""Corrections through the page: a file is replaced and taken back; tables are rebuilt beside."""

from __future__ import annotations

from typing import Any

from playwright.sync_api import FilePayload, expect

from tests.system.processes import until
from tests.ui.served import Served
from tests.ui.test_recovery_screens import fits, section
from tests.ui.viewer import Viewer, assert_accessible, screenshot

VISITS: dict[str, Any] = {
    "name": "visits",
    "sources": {"pages": {"schema": "url STRING", "format": "jsonl"}},
    "stages": {
        "count": {"translator": "url_count_view", "inputs": {"urls": "pages"}, "any_order": True}
    },
}


def counts(served: Served) -> dict[str, int]:
    page = served.get("/dataflows/visits/state/count/counts/records", limit=100)
    return {one["url"]: one["n"] for one in page["items"]}


def until_counted(served: Served, wanted: dict[str, int]) -> None:
    until(lambda: counts(served) == wanted, f"the counts are {wanted}")


def test_a_file_is_corrected_and_tables_are_rebuilt(served: Served, viewer: Viewer) -> None:
    """What each reaches is shown before it; the tables are what REST says after it."""
    served.register(VISITS)
    for day, urls in (("mon", "aab"), ("tue", "acc")):
        served.upload("visits", "pages", f"{day}.jsonl", [{"url": f"/{url}"} for url in urls])
    until_counted(served, {"/a": 3, "/b": 1, "/c": 2})
    page = viewer.open("/dataflows/visits/sources")
    expect(page.get_by_text("pages: all input is kept (2 increments).")).to_be_visible()
    page.get_by_role("button", name="Correct tue.jsonl").click()
    dialog = page.get_by_role("dialog")
    replace = dialog.get_by_role("button", name="Replace", exact=True)
    with page.expect_file_chooser() as chosen:
        dialog.get_by_label("The corrected file").click()
    right = b'{"url": "/a"}\n{"url": "/c"}\n{"url": "/d"}\n'
    file: FilePayload = {"name": "right.jsonl", "mimeType": "application/jsonl", "buffer": right}
    chosen.value.set_files(file)
    expect(dialog).to_contain_text(
        "1 record would be added, 1 would be taken back; 2 groups of count would be recomputed."
    )
    expect(replace).to_be_disabled()
    dialog.get_by_label("Why").fill("a broken clock")
    dialog.get_by_label("Name of the person who asks for this").fill("ada")
    assert_accessible(page)
    screenshot(page, "correct-a-file")
    replace.click()
    expect(dialog).to_be_hidden()
    until_counted(served, {"/a": 3, "/b": 1, "/c": 1, "/d": 1})
    page.get_by_role("button", name="Correct mon.jsonl").click()
    dialog.get_by_text("Retract the file").click()
    expect(dialog).to_contain_text("0 records would be added, 3 would be taken back")
    dialog.get_by_label("Why").fill("a test")
    dialog.get_by_role("button", name="Take back").click()
    until_counted(served, {"/a": 1, "/c": 1, "/d": 1})
    expect(page.get_by_text("takes back the earlier file of this name")).to_be_visible()
    assert fits(page)
    screenshot(page, "corrected-files")

    page = viewer.open("/dataflows/visits/recovery")
    reach = section(page, "How far back you can go")
    expect(reach.get_by_role("table")).to_contain_text("all of it")
    expect(reach).to_contain_text("A roll-back can go back to position 0.")
    rebuild = section(page, "Rebuild beside")
    rebuild.get_by_role("button", name="Build new tables").click()
    ask = page.get_by_role("dialog")
    expect(ask).to_contain_text("pages: all input is kept (4 increments).")
    screenshot(page, "rebuild-asks")
    ask.get_by_role("button", name="Build", exact=True).click()
    expect(rebuild).to_contain_text("New tables are ready, for version 2")
    differences = rebuild.get_by_role("table", name="What the swap would change")
    expect(differences.get_by_role("row").nth(1)).to_contain_text("state/count.counts")
    assert_accessible(page)
    screenshot(page, "rebuild-ready")
    rebuild.get_by_role("button", name="Cancel the rebuild").click()
    expect(rebuild).to_contain_text("No rebuild is under way.")
    rebuild.get_by_role("button", name="Build new tables").click()
    ask.get_by_role("button", name="Build", exact=True).click()
    rebuild.get_by_role("button", name="Swap in").click()
    ask.get_by_role("button", name="Swap", exact=True).click()
    rebuild.get_by_role("button", name="Swap back").click()
    assert served.get("/dataflows/visits")["summary"]["version"] == 2
    ask.get_by_role("button", name="Swap back", exact=True).click()
    until(lambda: served.get("/dataflows/visits")["summary"]["version"] == 3, "it is back")
    assert counts(served) == {"/a": 1, "/c": 1, "/d": 1}
    expect(rebuild.get_by_role("button", name="Swap back")).to_have_count(0)
    assert fits(page)
    screenshot(page, "swapped-back")
