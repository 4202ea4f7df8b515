"""Sources, quarantine, increments, state and results on the page, compared with what REST says.

Names and values are as odd as they come: whatever a producer writes is shown as text.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.system.processes import until
from tests.ui.conftest import OpenViewer
from tests.ui.served import CLICKS, Served
from tests.ui.viewer import Viewer, assert_accessible, assert_legible, screenshot


@pytest.fixture(scope="module")
def served(shared: Served) -> Served:
    return shared


HOSTILE = "<img src=x onerror=\"document.title='hacked'\">"
ODD = f"{HOSTILE} 'ü 日本\u202e"
NAME = "ü day <b>1<b> 'quoted' \"twice\".jsonl"
TURNING = "sales\u202elnosj.\x1b[31m\u200b.jsonl"
LONGEST = "n" * 249 + ".jsonl"
BAD = '{"url": "/one"}\n{"url": 7}\n{"url": "/three"}\n'


@pytest.fixture(scope="module")
def odd(clicks: Served) -> Served:
    """`clicks`, and the dataflow `odd` with hostile records, a refused file, and 60 more files."""
    clicks.apply_clicks(days=2, name="odd")
    records: list[dict[str, Any]] = [{"url": url} for url in (ODD, "", " ", None)]
    clicks.drop("odd", "urls", TURNING, "".join(f"{json.dumps(one)}\n" for one in records))
    clicks.wait_for_run("odd", "count", 2)
    for name in (NAME, LONGEST):
        clicks.drop("odd", "urls", name, BAD)
    until(lambda: len(quarantined(clicks)) == 2, "the bad files are in quarantine")
    return clicks


def quarantined(service: Served, dataflow: str = "odd") -> list[Any]:
    return list(service.get(f"/dataflows/{dataflow}/sources/urls/quarantine")["items"])


def count_of(service: Served, url: str, dataflow: str = "odd") -> int:
    """Return how often a URL was counted; 0: never."""
    answer = service.rest.get(f"/dataflows/{dataflow}/state/count/counts", params={"url": url})
    return int(answer.json()["items"][0]["n"]) if answer.is_success else 0


def region(page: Page, name: str) -> Any:
    return page.get_by_role("region", name=name)


def test_a_bad_file_is_seen_mended_and_counted_once(odd: Served, viewer: Viewer) -> None:
    """From the list of sources to the records in the state, through the page alone."""
    before = count_of(odd, "/three")
    page = viewer.open("/dataflows/odd/sources")
    expect(page.get_by_role("link", name=NAME)).to_be_visible()
    expect(page.get_by_role("link", name=LONGEST)).to_be_visible()
    files = odd.get("/dataflows/odd/sources")["items"][0]["files"]
    counts = region(page, "Counts of urls")
    expect(counts).to_contain_text(f"{files['arrived']} files arrived")
    assert_accessible(page)
    screenshot(page, "sources")
    counts.get_by_role("button", name="Show files: In quarantine").click()
    expect(page).to_have_url(re.compile("status=quarantined"))
    page.get_by_role("link", name=NAME).click()
    expect(page.get_by_role("heading", level=1)).to_have_text(NAME)
    line = page.locator("[data-line='2']")
    expect(line).to_contain_text('{"url": 7}')
    expect(line).to_contain_text("expected STRING")
    assert_accessible(page)
    screenshot(page, "quarantine")
    button = page.get_by_role("button", name="Readmit")
    expect(button).to_be_disabled()
    page.get_by_label("Content of the file").fill(BAD.replace("7", '"/two"'))
    page.get_by_label("Reason").fill("a number for a text")
    page.get_by_label("By").fill("me")
    button.click()
    expect(page.get_by_text("Readmitted; it is read within")).to_be_visible()
    until(lambda: count_of(odd, "/three") == before + 1, "the mended file is applied")
    assert count_of(odd, "/two") == 1
    (left,) = quarantined(odd)
    assert left["path"] == LONGEST
    decided = [c for c in odd.get("/dataflows/odd/claims")["items"] if c["status"] == "readmitted"]
    assert decided[0]["reason"]["decision"]["why"] == "a number for a text"


@pytest.mark.soak
def test_a_file_is_discarded_and_taken_back(odd: Served, viewer: Viewer) -> None:
    """With a reason; REST says the same; the file is in quarantine again."""
    (claim,) = [one["id"] for one in quarantined(odd) if one["path"] == LONGEST]
    page = viewer.open(f"/dataflows/odd/sources/urls/quarantine/{claim}")
    page.get_by_text("Discard", exact=True).click()
    page.get_by_label("Reason").fill("a test")
    page.get_by_role("button", name="Discard").click()
    expect(page.get_by_text("Discarded; the file is kept")).to_be_visible()
    assert claim not in [one["id"] for one in quarantined(odd)]
    page.goto(f"{odd.url}/ui/dataflows/odd/sources/urls/quarantine/{claim}")
    viewer.open(f"/dataflows/odd/sources/urls/quarantine/{claim}")
    page.get_by_role("button", name="Undo this decision").click()
    expect(page.get_by_role("button", name="Readmit")).to_be_visible()
    assert claim in [one["id"] for one in quarantined(odd)]


@pytest.mark.soak
def test_a_mended_file_is_sent_in_its_place(odd: Served, viewer: Viewer, tmp_path: Path) -> None:
    """Under the name of the refused one, which can be fetched before; it counts once."""
    (claim,) = [one["id"] for one in quarantined(odd) if one["path"] == LONGEST]
    mended = tmp_path / "mended.jsonl"
    mended.write_text('{"url": "/in its place"}\n')
    page = viewer.open(f"/dataflows/odd/sources/urls/quarantine/{claim}")
    with page.expect_download() as begun:
        page.get_by_role("button", name="Download the file").click()
    assert Path(begun.value.path()).read_text() == BAD
    page.get_by_text("Upload a corrected file").click()
    page.locator("input[type=file]").set_input_files(mended)
    page.get_by_label("Reason").fill("sent anew")
    page.get_by_role("button", name="Readmit").click()
    expect(page.get_by_text("Readmitted; it is read within")).to_be_visible()
    until(lambda: count_of(odd, "/in its place") == 1, "the mended file is applied")
    assert LONGEST not in [one["path"] for one in quarantined(odd)]


@pytest.mark.soak
def test_a_file_is_admitted_as_it_is_once_its_source_takes_it(
    served: Served, viewer: Viewer
) -> None:
    """The source was made lenient by a new version; the file is applied without being edited."""
    served.apply_clicks(days=0, name="lenient")
    served.upload("lenient", "urls", "more.jsonl", [{"url": "/more", "site": "s"}])
    until(lambda: len(quarantined(served, "lenient")) == 1, "the file is in quarantine")
    (claim,) = quarantined(served, "lenient")
    urls = {**CLICKS["sources"]["urls"], "options": {"unknown": "ignore"}}
    document = {**CLICKS, "name": "lenient", "sources": {"urls": urls}}
    assert served.rest.put("/dataflows/lenient", json=document).is_success
    page = viewer.open(f"/dataflows/lenient/sources/urls/quarantine/{claim['id']}")
    page.get_by_text("Admit unchanged", exact=True).click()
    expect(page.get_by_text("To continue, give a reason.")).to_be_visible()
    expect(page.get_by_role("button", name="Readmit")).to_be_disabled()
    page.get_by_label("Reason").fill("the source ignores it now")
    page.get_by_role("button", name="Readmit").click()
    expect(page.get_by_text("Readmitted; it is read within")).to_be_visible()
    until(lambda: count_of(served, "/more", "lenient") == 1, "the file is applied")
    assert quarantined(served, "lenient") == []


DROP = """async ([zone, files]) => {
    const data = new DataTransfer();
    for (const [name, text] of files) data.items.add(new File([text], name));
    for (const kind of ["dragenter", "dragover", "drop"]) {
        const event = {dataTransfer: data, bubbles: true, cancelable: true};
        zone.dispatchEvent(new DragEvent(kind, event));
        await new Promise((done) => setTimeout(done, 50));
    }
}"""


@pytest.mark.soak
def test_files_are_dragged_onto_the_page(served: Served, viewer: Viewer) -> None:
    """Two dropped at once; each is shown until it is read, also the one that is refused then."""
    served.apply_clicks(days=0, name="dragged")
    page = viewer.open("/dataflows/dragged/sources")
    zone = page.get_by_label("Upload files to urls")
    expect(zone).to_be_visible()
    files = [["good.jsonl", '{"url": "/dragged"}\n'], ["bad.jsonl", '{"url": 7}\n']]
    page.evaluate(DROP, [zone.element_handle(), files])
    uploads = page.get_by_role("list", name="Uploads").get_by_role("listitem")
    expect(uploads.filter(has_text="good.jsonl")).to_contain_text("Accepted")
    refused = uploads.filter(has_text="bad.jsonl")
    expect(refused).to_contain_text("In quarantine")
    expect(refused).to_contain_text("expected STRING, got integer 7")
    until(lambda: count_of(served, "/dragged", "dragged") == 1, "what was dropped is applied")
    assert [one["path"] for one in quarantined(served, "dragged")] == ["bad.jsonl"]


@pytest.mark.soak
def test_a_long_state_is_paged(served: Served, viewer: Viewer) -> None:
    """All pages together are the state; Back shows the page before, as its address does."""
    served.apply_clicks(days=0, name="long")
    urls = {f"/page-{n:03}" for n in range(120)}
    served.upload("long", "urls", "many.jsonl", [{"url": url} for url in sorted(urls)])
    served.wait_for_run("long", "count", 0)
    page = viewer.open("/dataflows/long/state/count/counts")
    rows = region(page, "Records of the state").locator("tr[data-row]")
    pages = page.get_by_role("navigation", name="Pages")
    seen: list[str] = []
    for expected in (50, 50, 20):
        expect(rows).to_have_count(expected)
        shown = rows.locator("td:first-child").all_inner_texts()
        assert not set(shown) & set(seen)
        seen += shown
        if len(seen) < len(urls):
            pages.get_by_role("button", name="Next").click()
            expect(rows.first).not_to_contain_text(shown[0])
    assert set(seen) == urls
    expect(pages.get_by_role("button", name="Next")).to_be_disabled()
    pages.get_by_role("button", name="Back").click()
    expect(rows).to_have_count(50)
    expect(rows.first).to_contain_text(seen[50])


def test_files_are_sent_from_the_page(odd: Served, viewer: Viewer, tmp_path: Path) -> None:
    """Several at once: two are taken in, one has a name that is refused in words; then again."""
    for name, text in (
        ("sent ü.jsonl", '{"url": "/sent"}\n'),
        ("sent again.jsonl", '{"url": "/again"}\n'),
        ("back\\slash.jsonl", '{"url": "/never"}\n'),
    ):
        (tmp_path / name).write_text(text)
    viewer.allow("422")
    page = viewer.open("/dataflows/odd/sources")
    chosen = page.locator("input[type=file]")
    chosen.set_input_files(sorted(tmp_path.iterdir()))
    uploads = page.get_by_role("list", name="Uploads")
    expect(uploads.get_by_text("Accepted")).to_have_count(2)
    expect(uploads.get_by_text("Refused")).to_have_count(1)
    expect(uploads).to_contain_text("request_invalid")
    until(lambda: count_of(odd, "/sent") == 1, "what was sent is applied")
    until(lambda: count_of(odd, "/again") == 1, "what was sent is applied")
    chosen.set_input_files(tmp_path / "sent ü.jsonl")
    expect(uploads.get_by_text("Duplicate")).to_have_count(1)
    assert count_of(odd, "/sent") == 1
    assert_accessible(page)


def test_the_grid_shows_runs_and_what_is_not_applied(odd: Served, viewer: Viewer) -> None:
    """Cells are those of REST; a paused stage makes an increment wait, and the filter shows it."""
    page = viewer.open("/dataflows/odd/increments")
    grid = odd.get("/dataflows/odd/increments/grid", limit=50)
    rows = page.locator("tr[data-row]")
    expect(rows).to_have_count(len(grid["items"]))
    first = page.locator(f"tr[data-row='{grid['items'][-1]['index']}']")
    cell = grid["items"][-1]["cells"][0]
    expect(first).to_contain_text(f"Applied in {cell['epoch']}")
    applied = first.get_by_role("link", name=re.compile("Applied"))
    expect(applied).to_have_attribute("href", re.compile(cell["run"]))
    assert_accessible(page)
    screenshot(page, "increments")
    page.get_by_role("switch", name="Only increments that are not applied").click()
    expect(page.get_by_text("Everything is applied")).to_be_visible()
    odd.post("/dataflows/odd/stages/count/pause")
    odd.upload("odd", "urls", "late.jsonl", [{"url": "/late"}])
    expect(page.locator("[data-status='waiting']")).to_have_count(1)
    odd.post("/dataflows/odd/stages/count/resume")
    expect(page.get_by_text("Everything is applied")).to_be_visible()


@pytest.mark.soak
def test_a_failed_cell_is_tried_again_from_the_page(served: Served, viewer: Viewer) -> None:
    """A run whose input is away fails; once it is back, the button lets the stage apply it."""
    served.apply_clicks(days=1, name="failing")
    served.post("/dataflows/failing/stages/count/pause")
    served.upload("failing", "urls", "late.jsonl", [{"url": "/late"}])
    path = "/dataflows/failing/increments/urls/1"
    until(lambda: served.rest.get(path).is_success, "the file is taken in")
    file = Path(served.get("/dataflows/failing")["folder"]) / served.get(path)["files"][0]["path"]
    file.rename(file.with_suffix(".away"))
    served.post("/dataflows/failing/stages/count/resume")

    def failures() -> int:
        return int(served.get("/dataflows/failing/increments/grid")["stages"][0]["failures"])

    until(lambda: failures() > 0, "the run fails")
    page = viewer.open("/dataflows/failing/increments")
    expect(page.locator("[data-status='failed']")).to_have_count(1)
    assert_accessible(page)
    screenshot(page, "increments-failed")
    served.post("/dataflows/failing/stages/count/pause")
    page.reload()
    expect(page.get_by_text("and is not retried until you resume it")).to_be_visible()
    expect(page.get_by_role("button", name="Retry failed")).to_have_count(0)
    page.get_by_role("button", name="Resume count").click()
    until(lambda: failures() > 0, "the run fails again")
    page.reload()
    file.with_suffix(".away").rename(file)
    page.get_by_role("button", name="Retry failed").click()
    expect(page.get_by_text("1 stage is retried")).to_be_visible()
    served.wait_for_run("failing", "count", 1)
    assert count_of(served, "/late", "failing") == 1
    expect(page.locator("[data-status='failed']")).to_have_count(0)


def test_hostile_values_are_text_everywhere(odd: Served, viewer: Viewer) -> None:
    """In results, state, history and claims; no element is made of them, and no script runs."""
    page = viewer.open("/dataflows/odd/results/count.totals")
    expect(page.get_by_text(HOSTILE).first).to_be_visible()
    viewer.open("/dataflows/odd/state/count/counts")
    expect(page.get_by_text(HOSTILE).first).to_be_visible()
    page.get_by_text(HOSTILE).first.click()
    expect(region(page, "History of the key").get_by_role("article")).to_have_count(1)
    expect(page.get_by_label("url", exact=True)).to_have_value(ODD)
    assert page.locator("img").count() == 0
    assert "hacked" not in page.title()
    assert_accessible(page)
    screenshot(page, "state-key")


@pytest.mark.part(every=3)
@pytest.mark.parametrize("path", ["sources", "increments", "increments/urls/2"])
def test_a_name_that_turns_the_text_around_it_is_seen_as_it_is(
    odd: Served, viewer: Viewer, path: str
) -> None:
    """A file's name with characters that hide or turn, on each screen that names the file."""
    page = viewer.open(f"/dataflows/odd/{path}")
    expect(page.get_by_text("sales\\u202elnosj.\\x1b[31m\\u200b.jsonl").first).to_be_visible()
    assert_legible(page)


@pytest.mark.soak
def test_the_sizes_of_all_states_are_one_request(odd: Served, viewer: Viewer) -> None:
    """However many stages there are; size, key and kind are those of REST."""
    asked: list[str] = []
    viewer.page.on("request", lambda request: asked.append(request.url))
    page = viewer.open("/dataflows/odd/state")
    (size,) = odd.get("/dataflows/odd/states")["items"]
    row = page.get_by_role("row", name="count.counts")
    expect(row.get_by_role("cell", name=str(size["rows"]), exact=True)).to_be_visible()
    expect(row.get_by_role("cell", name="state", exact=True)).to_be_visible()
    expect(row.get_by_role("cell", name="url STRING", exact=True)).to_be_visible()
    assert [url for url in asked if "/stages/" in url] == [], "no stage is asked for its own"
    assert_accessible(page)
    screenshot(page, "states")


def test_a_key_is_looked_up_now_and_then(odd: Served, viewer: Viewer) -> None:
    """Null and the empty text are keys of their own; as of an epoch, REST has the same."""
    page = viewer.open("/dataflows/odd/state/count/counts")
    expect(region(page, "All records")).to_be_visible()
    page.get_by_label("url", exact=True).fill("/page-0")
    page.get_by_role("button", name="Look up").click()
    records = region(page, "Records of the key").first
    now = count_of(odd, "/page-0")
    expect(records).to_contain_text(str(now))
    page.get_by_label("As of epoch").fill("0")
    expect(page).to_have_url(re.compile("epoch=0"))
    then = odd.get("/dataflows/odd/state/count/counts", url="/page-0", _epoch=0)["items"][0]["n"]
    assert then != now
    expect(records.get_by_role("cell", name=str(then), exact=True)).to_be_visible()
    history = odd.get("/dataflows/odd/state/count/counts/history", url="/page-0")
    articles = region(page, "History of the key").get_by_role("article")
    expect(articles).to_have_count(len(history["items"]))
    page.get_by_label("url is null").check()
    page.get_by_role("button", name="Look up").click()
    expect(page).to_have_url(re.compile("null=url"))
    page.get_by_role("button", name="All records").click()
    expect(region(page, "Records of the state").first).to_be_visible()
    page.get_by_label("url", exact=True).fill("/nowhere")
    viewer.allow("404")
    page.get_by_role("button", name="Look up").click()
    expect(page.get_by_text("No record has this key.")).to_be_visible()


def test_a_record_is_corrected_after_its_preview(odd: Served, viewer: Viewer) -> None:
    """The preview changes nothing; then it is an epoch with who and why, in history and list."""
    before = count_of(odd, "/page-1")
    page = viewer.open("/dataflows/odd/state/count/counts?k.url=/page-1")
    page.get_by_role("button", name="Correct").click()
    dialog = page.get_by_role("dialog", name="Correct the records of this key")
    dialog.get_by_label("n", exact=True).fill("1000")
    dialog.get_by_role("button", name="Show what changes").click()
    expect(dialog.get_by_text("What would change")).to_be_visible()
    expect(dialog.get_by_role("cell", name="1000")).to_be_visible()
    assert_accessible(page)
    screenshot(page, "correction")
    assert count_of(odd, "/page-1") == before
    dialog.get_by_label("Reason").fill("counted wrongly")
    dialog.get_by_label("By").fill("me")
    dialog.get_by_role("button", name="Correct", exact=True).click()
    expect(page.get_by_text("Corrected by me: counted wrongly")).to_be_visible()
    assert count_of(odd, "/page-1") == 1000
    viewer.open("/dataflows/odd/state")
    expect(region(page, "What was corrected")).to_contain_text("counted wrongly")
    assert_accessible(page)


def test_results_are_shown_charted_and_downloaded(odd: Served, viewer: Viewer) -> None:
    """Newest first, as REST has them; a column over epochs; the page of records as a file."""
    page = viewer.open("/dataflows/odd/results")
    expect(region(page, "Newest records").first).to_be_visible()
    records = odd.get("/dataflows/odd/flows/count.totals/records", newest=True, limit=50)["items"]
    rows = region(page, "Newest records of count.totals").locator("tr[data-row]")
    expect(rows).to_have_count(len(records))
    expect(rows.first).to_contain_text(str(records[0]["_epoch"]))
    page.get_by_role("combobox", name="Show").click()
    page.get_by_role("option", name="Column n").click()
    expect(page.locator("canvas")).to_be_visible()
    assert_accessible(page)
    screenshot(page, "results")
    page.get_by_role("button", name="As a table").click()
    series = odd.get("/dataflows/odd/flows/count.totals/series", column="n", limit=200)["items"]
    table = page.get_by_role("table", name="Figures by epoch")
    expect(table.locator("tr[data-row]")).to_have_count(len(series))
    for one in series:
        total = "–" if one["total"] is None else str(int(one["total"]))
        expect(table.locator(f"tr[data-row='{one['index']}']")).to_contain_text(total)
    with page.expect_download() as begun:
        page.get_by_role("button", name="This page as CSV").click()
    with Path(begun.value.path()).open(newline="", encoding="utf-8") as file:
        rows_of_file = list(csv.DictReader(file))
    assert [(row["n"], row["_epoch"]) for row in rows_of_file] == [
        (str(record["n"]), str(record["_epoch"])) for record in records
    ]
    assert ODD in [row["url"] for row in rows_of_file]
    assert begun.value.suggested_filename == "odd.count.totals.csv"
    with page.expect_download() as begun:
        page.get_by_role("button", name="This page as JSON").click()
    assert json.loads(Path(begun.value.path()).read_bytes()) == records
    assert begun.value.suggested_filename == "odd.count.totals.json"


def test_whole_numbers_keep_every_digit(served: Served, viewer: Viewer) -> None:
    """A BIGINT beyond 2^53 is shown, looked up and corrected exactly."""
    big = 9_007_199_254_740_993
    served.apply_clicks(days=1, name="big")
    body = {"corrections": [{"key": {"url": "/big"}, "set": {"n": big}}]}
    served.post("/dataflows/big/state/count/counts/corrections", body, reason="a large number")
    page = viewer.open("/dataflows/big/state/count/counts?k.url=/big")
    expect(region(page, "Records of the key").first).to_contain_text(str(big))
    page.get_by_role("button", name="Correct").click()
    expect(page.get_by_role("dialog").get_by_label("n", exact=True)).to_have_value(str(big))


SCREENS = ["sources", "increments", "state", "results"]


@pytest.mark.part(every=4)
@pytest.mark.soak
@pytest.mark.parametrize("screen", SCREENS)
def test_an_empty_dataflow_says_what_to_do(
    served: Served, open_viewer: OpenViewer, screen: str, register_empty: Callable[[], None]
) -> None:
    """Nothing has arrived: words and a next step, small and dark; no error."""
    register_empty()
    viewer = open_viewer(width=400, color_scheme="dark")
    page = viewer.open(f"/dataflows/empty/{screen}")
    words = {
        "sources": "No file has arrived yet",
        "increments": "Nothing has arrived yet",
        "state": "count.counts",
        "results": "No records yet",
    }
    expect(page.get_by_text(words[screen])).to_be_visible()
    wide = page.evaluate("document.documentElement.scrollWidth")
    assert wide <= 400, f"{screen} is {wide} pixels wide"
    assert_accessible(page)
    screenshot(page, f"{screen}-empty-400-dark")


@pytest.fixture
def register_empty(served: Served) -> Callable[[], None]:
    """Register the dataflow `empty`, unless it is there."""

    def register() -> None:
        if not any(one["name"] == "empty" for one in served.get("/dataflows")["items"]):
            served.apply_clicks(days=0, name="empty")

    return register


def test_rejected_records_are_counted_and_listed(clicks: Served, viewer: Viewer) -> None:
    """The figure, the count of each file, and the records themselves, as text; none: no figure."""
    page = viewer.open("/dataflows/clicks/sources")
    expect(region(page, "Counts of urls")).to_be_visible()
    expect(page.get_by_text("Records rejected")).to_have_count(0)
    source = CLICKS["sources"]["urls"] | {"on_bad_records": "reject_rows"}
    clicks.register({**CLICKS, "name": "rejecting", "sources": {"urls": source}})
    for name, content in {"sound.jsonl": '{"url": "/one"}\n', "bad.jsonl": BAD + HOSTILE}.items():
        clicks.drop("rejecting", "urls", name, content)
    until(lambda: rejected(clicks) == 2, "both wrong records are counted")
    page = viewer.open("/dataflows/rejecting/sources")
    expect(page.get_by_text("Records rejected")).to_be_visible()
    files = region(page, "List of files")
    expect(
        files.get_by_role("row", name=re.compile(r"bad\.jsonl.* 1 2 Correct bad\.jsonl$"))
    ).to_be_visible()
    page.get_by_role("button", name="Show or hide the rejected records").click()
    listed = region(page, "List of rejected records")
    expect(listed.get_by_role("row")).to_have_count(3)
    expect(listed.get_by_text(HOSTILE)).to_be_visible()
    assert_accessible(page)
    page.get_by_role("button", name="Show or hide the rejected records").click()
    expect(listed).to_have_count(0)


def rejected(service: Served) -> int:
    (source,) = service.get("/dataflows/rejecting/sources")["items"]
    return int(source["rejected"])
