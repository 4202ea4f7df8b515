"""Recovery, verification and housekeeping through the page, each effect asked for over REST.

One dataflow with three increments is rolled back, verified with a difference that was planted in
its kept input, and scrubbed with a damage that was planted in its state.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from playwright.sync_api import Page, expect

from cbp.engine.storage.checked_parquet import seal
from tests.controller.damaging import flip
from tests.system.processes import until
from tests.ui.conftest import OpenViewer
from tests.ui.served import CLICKS, Served
from tests.ui.viewer import Viewer, assert_accessible, screenshot


@pytest.fixture(scope="module")
def folder(clicks: Served) -> Path:
    """The tables of the dataflow that counts URLs."""
    return Path(clicks.drop_root).parent / "tables" / "clicks"


def counts(served: Served, dataflow: str) -> dict[str, int]:
    """Return the state as REST has it."""
    page = served.get(f"/dataflows/{dataflow}/state/count/counts/records", limit=100)
    return {one["url"]: one["n"] for one in page["items"]}


def section(page: Page, title: str) -> Any:
    """Return the part of a screen under a heading."""
    return page.get_by_role("region", name=title, exact=True)


def fits(page: Page) -> bool:
    """Tell whether only tables scroll sideways."""
    return bool(page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"))


def test_a_roll_back_shows_what_it_undoes_and_leads_to_the_state_of_then(
    served: Served, viewer: Viewer
) -> None:
    """The preview agrees with REST; confirmed by name, the state is that of the chosen moment."""
    served.register({**CLICKS, "name": "back"})
    states = []
    for day in range(3):
        served.upload("back", "urls", f"{day}.jsonl", [{"url": f"/{n}"} for n in range(day + 1)])
        served.wait_for_run("back", "count", day)
        states.append(counts(served, "back"))
    page = viewer.open("/dataflows/back/recovery")
    moments = section(page, "Roll back")
    expect(moments.get_by_role("row")).to_have_count(5)
    expect(section(page, "Open intentions")).to_contain_text("The tables show every committed run")
    expect(section(page, "Last recoveries")).to_contain_text("No work was left to do")
    expect(section(page, "Snapshot")).to_contain_text("state/count.counts")
    assert_accessible(page)
    screenshot(page, "recovery")
    moments.get_by_role("button", name="Preview position 1").click()
    dialog = page.get_by_role("dialog")
    plan = served.get("/dataflows/back/rollback", to="1")
    expect(dialog).to_contain_text(
        f"2 runs and the {plan['records_undone']} records that they wrote are undone."
    )
    expect(dialog).to_contain_text("2 increments will wait at count.urls, and are applied again.")
    files = dialog.get_by_role("table", name="Files that are undone").locator("tbody tr")
    expect(files).to_have_count(2)
    for day, row in enumerate(files.all(), 1):
        expect(row).to_contain_text(f"{day}.jsonl")
        expect(row).to_contain_text("Applied again")
    confirm = dialog.get_by_role("button", name="Roll back", exact=True)
    expect(confirm).to_be_disabled()
    assert_accessible(page)
    screenshot(page, "rollback-preview")
    dialog.get_by_label("Why").fill("a wrong file")
    dialog.get_by_label("Name of the person who asks for this").fill("ada")
    dialog.get_by_label("Leave the dataflow paused").check()
    dialog.get_by_label("Type the name back to confirm").fill("bac")
    expect(confirm).to_be_disabled()
    dialog.get_by_label("Type the name back to confirm").fill("back")
    confirm.click()
    expect(dialog).to_be_hidden()
    assert counts(served, "back") == states[0] != states[2]
    (done,) = served.get("/dataflows/back/rollbacks")["items"]
    assert (done["by"], done["reason"], done["undone"]) == ("ada", "a wrong file", {"count": 2})
    assert served.get("/dataflows/back")["summary"]["desired"] == "paused"
    expect(section(page, "Roll-backs so far")).to_contain_text("a wrong file")
    served.post("/dataflows/back/resume")
    served.wait_for_run("back", "count", 2)
    assert counts(served, "back") == states[2]


@pytest.fixture(scope="module")
def many(served: Served) -> Served:
    """A service with a dataflow that has read 22 files, one in each run."""
    served.register({**CLICKS, "name": "many"})
    served.post("/dataflows/many/pause")
    for n in range(22):
        served.upload("many", "urls", f"file-{n:02}.jsonl", [{"url": f"/{n}"}])
    served.post("/dataflows/many/resume")
    served.wait_for_run("many", "count", 21)
    return served


@pytest.mark.soak
def test_the_last_compactions_are_shown(many: Served, viewer: Viewer) -> None:
    """Each table has a row: when, from how many files to how many, as REST has it."""
    page = viewer.open("/dataflows/many/housekeeping")
    compactions = many.get("/dataflows/many/garbage")["compactions"]
    assert {one["table"] for one in compactions} == {"state/count.counts", "flows/count.totals"}
    rows = page.get_by_role("table", name="Last compactions").locator("tbody tr")
    expect(rows).to_have_count(2)
    for row, one in zip(rows.all(), compactions, strict=True):
        expect(row).to_contain_text(one["table"])
        expect(row).to_contain_text(f"{one['files_before']} to {one['files_after']}")
        expect(row).to_contain_text(f"{one['files_before'] - one['files_after']} files")
    assert_accessible(page)
    screenshot(page, "housekeeping-compactions")


@pytest.mark.soak
def test_many_files_of_a_preview_come_by_pages(many: Served, viewer: Viewer) -> None:
    """Each file once, in the order in which they arrived, with how many there are."""
    page = viewer.open("/dataflows/many/recovery?to=0")
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("22 files are undone")
    files = dialog.get_by_role("table", name="Files that are undone").locator("tbody tr")
    expect(files).to_have_count(20)
    seen = files.all_inner_texts()
    dialog.get_by_role("button", name="Next").click()
    expect(files).to_have_count(2)
    seen += files.all_inner_texts()
    assert [text.split()[0] for text in seen] == [f"file-{n:02}.jsonl" for n in range(22)]
    assert_accessible(page)
    screenshot(page, "rollback-files")
    dialog.get_by_role("button", name="First", exact=True).click()
    expect(files).to_have_count(20)


@pytest.mark.soak
def test_a_preview_is_left_without_an_effect(clicks: Served, viewer: Viewer) -> None:
    """Cancel and the browser's Back close it; dropping what came later changes the preview."""
    page = viewer.open("/dataflows/clicks/recovery?to=2")
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("1 increment will wait at count.urls, and is applied again.")
    dialog.get_by_label("Drop later increments").check()
    plan = clicks.get("/dataflows/clicks/rollback", to="2", drop_later="true")
    (change, count), *_ = [
        *((words, n) for n in plan["rollback"]["dropped"].values() for words in ["is dropped"]),
        *((words, n) for n in plan["queued_before"].values() for words in ["arrived before"]),
    ]
    expect(dialog).to_contain_text(f"{count} increment of urls {change}")
    dialog.get_by_role("button", name="Cancel").click()
    expect(dialog).to_be_hidden()
    assert clicks.get("/dataflows/clicks/rollbacks")["items"] == []


@pytest.mark.soak
def test_a_verification_that_is_equal(clicks: Served, viewer: Viewer) -> None:
    """Started and followed on the page, it ends with what REST says."""
    page = viewer.open("/dataflows/clicks/verify")
    expect(page.get_by_text("Nothing has been verified yet")).to_be_visible()
    page.get_by_label("Input").select_option("at_once")
    page.get_by_label("Engine").select_option("reference")
    page.get_by_label("Recompute twice").check()
    page.get_by_role("button", name="Verify", exact=True).click()
    expect(page.get_by_text("Every compared table equals its recomputation")).to_be_visible()
    (one,) = clicks.get("/dataflows/clicks/verifications")["items"]
    assert (one["status"], one["split"], one["engine"]) == ("equal", "at_once", "reference")
    expect(page.get_by_role("heading", level=2, name=one["id"])).to_be_visible()
    assert_accessible(page)


def test_a_planted_difference_is_shown_record_by_record(
    clicks: Served, folder: Path, viewer: Viewer, open_viewer: OpenViewer
) -> None:
    """The kept input says what the table should hold; the page shows both, column by column."""
    plant_other_urls(next((folder / "sources" / "urls").glob("000000000000-*.parquet")))
    page = viewer.open("/dataflows/clicks/verify")
    page.get_by_role("button", name="Verify", exact=True).click()
    expect(page.get_by_role("heading", name="Differences")).to_be_visible()
    one = clicks.get("/dataflows/clicks/verifications")["items"][0]
    until(
        lambda: clicks.get(f"/verifications/{one['id']}")["status"] == "differs",
        "it does not end",
    )
    expect(page.get_by_text("the first stage with a difference is count")).to_be_visible()
    differences = clicks.get(f"/verifications/{one['id']}/differences")["items"]
    shown = next(d for d in differences if d["table"] == "state/count.counts" and d["found"])
    url, n = shown["found"][0]
    table = page.get_by_role("table", name=f"state/count.counts: url = {url}", exact=True)
    expect(table.get_by_role("row").filter(has_text="actual")).to_contain_text(n)
    expect(table).to_contain_text(shown["expected"][0][1] if shown["expected"] else "no record")
    page.get_by_label("Table", exact=True).select_option("flows/count.totals")
    expect(table).to_have_count(0)
    expect(page.get_by_role("table", name=f"flows/count.totals: url = {url}")).to_be_visible()
    page.get_by_role("button", name=one["id"]).click()
    assert_accessible(page)
    screenshot(page, "verify-differences")
    narrow = open_viewer(width=400, height=800, color_scheme="dark")
    small = narrow.open(f"/dataflows/clicks/verify?verification={one['id']}")
    expect(small.get_by_role("heading", name="Differences")).to_be_visible()
    assert fits(small)
    assert_accessible(small)
    screenshot(small, "verify-400-dark")


def plant_other_urls(path: Path) -> None:
    """Make a kept increment say other URLs than those that were counted, unnoticed by checks."""
    table = pq.read_table(path)
    urls = table.column("url")
    other = pc.replace_substring(urls, pattern="/page-0", replacement="/page-7")
    changed = table.set_column(0, table.schema.field(0), pa.chunked_array(other))
    pq.write_table(changed.replace_schema_metadata(table.schema.metadata), path)
    seal(str(path))


@pytest.mark.soak
def test_a_verification_is_cancelled(clicks: Served, viewer: Viewer) -> None:
    """The button ends it; REST says so, and the earlier ones stay listed."""
    page = viewer.open("/dataflows/clicks/verify")
    before = len(clicks.get("/dataflows/clicks/verifications")["items"])
    page.get_by_label("Time limit in minutes").fill("5")
    with page.expect_response(lambda answer: answer.request.method == "POST") as begun:
        page.get_by_role("button", name="Verify", exact=True).click()
    assert begun.value.ok
    cancel = page.get_by_role("button", name="Cancel")
    ended = page.get_by_text("A second recomputation gave the same result").or_(
        page.get_by_text("cancelled")
    )
    expect(cancel.or_(ended).first).to_be_visible()
    if cancel.is_visible():
        cancel.click()
    until(
        lambda: all(v["ended"] for v in clicks.get("/dataflows/clicks/verifications")["items"]),
        "it does not end",
    )
    assert len(clicks.get("/dataflows/clicks/verifications")["items"]) == before + 1


def test_a_planted_damage_is_shown_with_what_mends_it(
    clicks: Served, folder: Path, viewer: Viewer, open_viewer: OpenViewer
) -> None:
    """Found by the button, it has the file, what is wrong, and the command; degraded says so."""
    page = viewer.open("/dataflows/clicks/housekeeping")
    expect(section(page, "Degraded")).to_contain_text("Nothing is degraded")
    read = page.get_by_role("button", name="Read everything now")
    with page.expect_response(lambda answer: answer.request.method == "POST") as begun:
        read.click()
    assert begun.value.ok
    # The idle scrubber's result may be shown before: the damage is planted behind this reading.
    until(lambda: clicks.get("/dataflows/clicks/scrub")["status"] == "whole", "it does not end")
    assert clicks.get("/dataflows/clicks/scrub")["by"] == "request"
    expect(section(page, "Scrub")).to_contain_text("No file is damaged")
    target = sorted((folder / "flows" / "count.totals").rglob("*.parquet"))[0]
    flip(target)
    read.click()
    damages = page.get_by_role("table", name="Damaged files")
    expect(damages).to_contain_text(target.name)
    (damage,) = clicks.get("/dataflows/clicks/scrub")["damages"]
    expect(damages).to_contain_text(damage["next_step"])
    expect(section(page, "Degraded")).to_contain_text("damaged")
    expect(section(page, "Degraded")).to_contain_text("cbp help damage")
    assert_accessible(page)
    screenshot(page, "housekeeping-damaged")
    dark = open_viewer(color_scheme="dark").open("/dataflows/clicks/housekeeping")
    expect(dark.get_by_role("table", name="Damaged files")).to_be_visible()
    assert_accessible(dark)
    screenshot(dark, "housekeeping-dark")


def test_garbage_is_looked_at_and_collected(
    clicks: Served, viewer: Viewer, open_viewer: OpenViewer
) -> None:
    """What stays says why; the button collects, and the time of the last collection is shown."""
    before = clicks.get("/dataflows/clicks/garbage")["last"]
    page = viewer.open("/dataflows/clicks/housekeeping")
    garbage = section(page, "Garbage collection and compaction")
    garbage.get_by_role("button", name="Also show files that are kept, and why").click()
    because = clicks.get("/dataflows/clicks/garbage")["items"][0]["because"]
    expect(garbage).to_contain_text(because)
    garbage.get_by_role("button", name="Look again").click()
    garbage.get_by_role("button", name="Collect now").click()
    expect(garbage).to_contain_text("by request")
    last = clicks.get("/dataflows/clicks/garbage")["last"]
    assert last["by"] == "request"
    assert last != before
    use = clicks.get("/dataflows/clicks/disk")
    disk = section(page, "Disk use")
    expect(disk).to_contain_text(f"{use['files']} files")
    expect(disk).to_contain_text("state/count.counts")
    expect(section(page, "Retention in effect")).to_contain_text("7 d")
    assert_accessible(page)
    small = open_viewer(width=400, height=800).open("/dataflows/clicks/housekeeping")
    expect(section(small, "Disk use")).to_contain_text("state/count.counts")
    assert fits(small)
    screenshot(small, "housekeeping-400")
