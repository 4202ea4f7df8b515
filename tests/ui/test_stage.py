"""The screen of a stage: a failure seen, understood and repaired through the page alone."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from tests.system.processes import until
from tests.ui.authored import LOOKING_UP, Author, send
from tests.ui.served import Served
from tests.ui.viewer import Viewer, assert_accessible, screenshot


@pytest.fixture(scope="module")
def author(tmp_path_factory: pytest.TempPathFactory) -> Author:
    return Author(tmp_path_factory.mktemp("author"))


@pytest.fixture(scope="module")
def served(
    browser: Browser, bundle: Any, author: Author, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Served]:
    """Replace the common service by one whose documents may name `picky`."""
    service = Served(tmp_path_factory.mktemp("served"), **author.settings())
    try:
        service.start()
        service.register(author.document("visits"))
        for n in range(5):
            send(service, "visits", f"a{n}", *((f"w{i}", n) for i in range(10 * (n + 1))))
            service.wait_for_run("visits", "again", n)
        yield service
    finally:
        service.stop()


def detail(served: Served, stage: str = "keep") -> Any:
    return served.get(f"/dataflows/visits/stages/{stage}")


def test_a_stage_shows_its_queues_state_and_runs(served: Served, viewer: Viewer) -> None:
    """Its waits in the service's words; sizes, skew, index hits and run times as REST has them."""
    page = viewer.open("/dataflows/visits/stages/again")
    answer = detail(served, "again")
    waits = page.get_by_role("region", name="Waiting for")
    expect(waits).to_contain_text(answer["stage"]["waiting"])
    (state,) = served.get("/dataflows/visits/stages/again/states")["items"]
    row = page.get_by_role("table", name="States").get_by_role("row").nth(1)
    expect(row).to_contain_text(f"{state['rows']}")
    expect(row).to_contain_text(f"{state['skew']:.2f}")
    expect(row).to_contain_text(f"{state['used']} of {state['buckets']}")
    pressure = page.get_by_role("progressbar")
    expect(pressure).to_have_attribute("aria-label", re.compile("of 50 records"))
    expect(page.get_by_text("Index hit rate")).to_be_visible()
    expect(page.get_by_text(answer["code"]["registered"])).to_be_visible()
    assert_accessible(page)
    screenshot(page, "stage")
    page.get_by_text("Table", exact=True).click()
    table = page.get_by_role("table", name="Run times")
    expect(table.get_by_role("row")).to_have_count(6)
    page.reload()
    viewer.sign_in_if_asked()
    expect(table).to_be_visible()
    assert_accessible(page)
    table.get_by_role("link", name="4", exact=True).click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("epoch 4")


@pytest.mark.soak
def test_a_full_queue_holds_its_writer_and_says_so(served: Served, viewer: Viewer) -> None:
    """At its limit the bar is full, in words, on the stage and on the graph; then it empties."""
    served.post("/dataflows/visits/stages/again/pause")
    epoch = detail(served)["stage"]["epoch"]
    send(served, "visits", "many", *((f"w{i}", 9) for i in range(60)))
    served.wait_for_run("visits", "keep", epoch)
    send(served, "visits", "held", ("held", 1))
    until(lambda: "again.words" in detail(served)["stage"]["waiting"], "it is not held")
    (queue,) = detail(served, "again")["stage"]["queues"]
    assert queue["share"] >= 1
    page = viewer.open("/dataflows/visits/stages/again")
    bar = page.get_by_role("progressbar")
    expect(bar).to_have_attribute(
        "aria-label", re.compile("full, so the stage that writes to it waits, .*50 records")
    )
    expect(page.get_by_text("full, so the stage that writes to it waits: ")).to_be_visible()
    assert_accessible(page)
    screenshot(page, "stage-full")
    page = viewer.open("/dataflows/visits")
    limit = page.get_by_test_id("graph").get_by_role("img", name=re.compile("of the limit"))
    expect(limit).to_have_attribute(
        "aria-label", re.compile("full, so the stage that writes to it waits")
    )
    expect(page.locator('[data-full="true"]')).to_have_count(1)
    expect(page.locator('[data-id="stage:keep"]')).to_contain_text("Waiting")
    screenshot(page, "graph-full")
    held = page.get_by_role("region", name="Trouble")
    expect(held).to_contain_text("The stage again is paused.")
    held.get_by_role("button", name="Resume").click()
    served.wait_for_run("visits", "again", epoch + 1)
    expect(page.locator('[data-full="true"]')).to_have_count(0)


@pytest.mark.soak
def test_a_stage_is_paused_and_resumed(served: Served, viewer: Viewer) -> None:
    """Pause starts no more runs and says so; Resume lifts it."""
    page = viewer.open("/dataflows/visits/stages/again")
    page.get_by_role("button", name="Pause", exact=True).click()
    until(lambda: detail(served, "again")["stage"]["state"] == "paused", "it was not paused")
    expect(page.get_by_role("button", name="Resume")).to_be_visible()
    assert_accessible(page)
    page.get_by_role("button", name="Resume").click()
    until(lambda: detail(served, "again")["stage"]["state"] == "waiting", "it was not resumed")
    expect(page.get_by_role("button", name="Pause", exact=True)).to_be_visible()


@pytest.mark.soak
def test_a_stage_gets_a_priority(
    served: Served, viewer: Viewer, open_viewer: Callable[..., Viewer]
) -> None:
    """Each of the three words; shown beside the state and in the graph, also on a telephone."""
    page = viewer.open("/dataflows/visits/stages/again")
    control = page.get_by_role("radiogroup", name="Priority")
    expect(control.get_by_role("radio", name="Normal")).to_be_checked()
    heading = page.get_by_role("heading", level=1)
    for word in ("Low", "High"):
        control.get_by_text(word, exact=True).click()
        expect(heading).to_contain_text(f"{word} priority")
        assert detail(served, "again")["stage"]["priority"] == word.lower()
        assert detail(served, "keep")["stage"]["priority"] == "normal"
    page.reload()
    viewer.sign_in_if_asked()
    expect(control.get_by_role("radio", name="High")).to_be_checked()
    assert_accessible(page)
    screenshot(page, "stage-priority")
    small = open_viewer(width=400, height=800, color_scheme="dark").open(
        "/dataflows/visits/stages/again"
    )
    expect(small.get_by_role("radio", name="High")).to_be_checked()
    assert small.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    assert_accessible(small)
    screenshot(small, "stage-priority-400")
    page.goto(f"{served.url}/ui/dataflows/visits")
    viewer.sign_in_if_asked()
    expect(page.get_by_text("high priority")).to_have_count(1)
    screenshot(page, "graph-priority")
    page.goto(f"{served.url}/ui/dataflows/visits/stages/again")
    viewer.sign_in_if_asked()
    control.get_by_text("Normal", exact=True).click()
    expect(heading).not_to_contain_text("priority")
    assert detail(served, "again")["stage"]["priority"] == "normal"


@pytest.mark.soak
def test_a_failing_stage_is_seen_understood_and_repaired_through_the_page(
    served: Served, author: Author, viewer: Viewer
) -> None:
    """From the overview to the author's line in two clicks; a retry after the repair runs on."""
    send(served, "visits", "poisoned", ("poison", 1), ("north", 2))
    until(lambda: detail(served)["stage"]["state"] == "stopped", "it did not stop")
    epoch = detail(served)["stage"]["epoch"]
    page = viewer.open("/")
    row = page.get_by_role("row").filter(has_text="visits")
    expect(row).to_contain_text("Stopped")
    page.goto(f"{served.url}/ui/runs?status=FAILED")
    viewer.sign_in_if_asked()
    page.locator("tr[data-row]").first.get_by_role("link").first.click()
    error = page.get_by_role("region", name="Error")
    place = detail(served)["error"]["details"]["place"]
    expect(error).to_contain_text("cannot weigh 'poison'")
    expect(error).to_contain_text(place)
    expect(error).to_contain_text("translate")
    expect(error).to_contain_text("fix the line above, register the dataflow again")
    assert_accessible(page)
    screenshot(page, "run-failed")
    page.get_by_role("navigation", name="Where you are").get_by_role("link", name="keep").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("Stopped")
    error = page.get_by_role("region", name="Error")
    expect(error).to_contain_text(place)
    assert_accessible(page)
    screenshot(page, "stage-failed")
    # A retry before the repair fails again, and the stage stops again: nothing is skipped.
    before = len(served.get("/runs", status="FAILED", limit=100)["items"])
    page.get_by_role("button", name="Retry now").click()
    until(
        lambda: len(served.get("/runs", status="FAILED", limit=100)["items"]) > before,
        "it was not tried again",
    )
    until(lambda: detail(served)["stage"]["state"] == "stopped", "it did not stop again")
    assert detail(served)["stage"]["epoch"] == epoch
    author.repair()
    page.get_by_role("button", name="Retry now").click()
    served.wait_for_run("visits", "keep", epoch)
    expect(error).to_have_count(0)
    expect(page.get_by_role("button", name="Retry now")).to_have_count(0)
    expect(page.get_by_role("heading", level=1)).to_contain_text("Waiting")
    served.wait_for_run("visits", "again", epoch)
    found = served.get("/dataflows/visits/state/again/seen", word="poison")
    assert found["items"] == [{"word": "poison", "n": 1}]


def test_look_ups_are_in_the_graph_and_on_the_stage(
    served: Served, viewer: Viewer, open_viewer: Callable[..., Viewer]
) -> None:
    """Dotted, and named in words: the table, by what, whether it wakes, and the last moment."""
    served.register(LOOKING_UP)
    served.upload("shop", "words", "w.jsonl", [{"word": "a", "n": 4}])
    served.wait_for_run("shop", "paired", 0)
    served.upload("shop", "orders", "o.jsonl", [{"word": "a", "n": 1}])
    served.wait_for_run("shop", "named", 0)
    page = viewer.open("/dataflows/shop")
    stages = {one["name"]: one for one in served.get("/dataflows/shop")["stages"]}
    lookups = [(name, one) for name, stage in stages.items() for one in stage["lookups"]]
    assert [(name, one["table"]) for name, one in lookups] == [
        ("named", "newest.newest"),
        ("paired", "newest.newest"),
    ]
    dotted = page.locator('.react-flow__edge path[data-lookup="true"]')
    expect(dotted).to_have_count(len(lookups))
    graph = page.get_by_test_id("graph")
    labels = graph.get_by_text("looks up", exact=True)
    expect(labels).to_have_count(len(lookups))
    assert dotted.first.evaluate("one => getComputedStyle(one).strokeDasharray") != "none"
    expect(page.get_by_text("Dotted edges with “looks up” are look-ups")).to_be_visible()
    assert_accessible(page)
    screenshot(page, "graph-lookups")
    page.locator('[data-id="stage:paired"]').get_by_text("Waiting").click()
    panel = page.get_by_role("region", name="Chosen: paired")
    expect(panel).to_contain_text("looked up in newest.newest:by word; changed records call groups")
    page = viewer.open("/dataflows/shop?view=table")
    row = page.get_by_role("table", name="Look-ups").locator('tr[data-row="named.words"]')
    expect(row).to_contain_text("by word; changed records call no group")
    page = open_viewer(width=400, color_scheme="dark").open("/dataflows/shop/stages/named")
    moment = served.get("/dataflows/shop/stages/named")["moments"]["words"]
    assert moment["epoch"] == 0
    table = page.get_by_role("table", name="Look-ups of shop.named")
    expect(table).to_contain_text(f"epoch 0 (version {moment['version']})")
    assert page.evaluate("document.documentElement.scrollWidth") <= 400
    assert_accessible(page)
    screenshot(page, "stage-lookups-400-dark")
    table.get_by_role("link", name="newest.newest").click()
    page.wait_for_url("**/ui/dataflows/shop/state/newest/newest")
    run = served.get("/runs", dataflow="shop", stage="named")["items"][0]["id"]
    page = viewer.open(f"/runs/{run}")
    looked_up = page.get_by_role("table", name="Tables looked up")
    expect(looked_up).to_contain_text("named.words")
    expect(looked_up).to_contain_text(f"epoch 0 (version {moment['version']})")
    screenshot(page, "run-lookups")
