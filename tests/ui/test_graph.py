"""The graph of a dataflow: what runs, waits or failed, what is between, and 500 stages of it."""

from __future__ import annotations

import re
from typing import Any

import pytest
from playwright.sync_api import CDPSession, Page, expect

from tests.ui.conftest import OpenViewer
from tests.ui.served import Served
from tests.ui.viewer import Viewer, assert_accessible, screenshot


@pytest.fixture(scope="module")
def served(shared: Served) -> Served:
    return shared


COPIES = 100
"""Copies of a graph of five stages: 500, the most that a dataflow may have."""
SECONDS_MAX = 3.0
"""Time of the main thread; the graph takes about a quarter of it."""
ALL_BOXES = """() => document.querySelectorAll('[data-id^="stage:"]').length === 500"""


def _many(example: dict[str, Any], copies: int) -> dict[str, Any]:
    """Return a document with a graph several times, side by side."""

    def renamed(flow: str, at: int) -> str:
        head, dot, tail = flow.partition(".")
        return f"{head}_{at}{dot}{tail}"

    sources: dict[str, Any] = {}
    stages: dict[str, Any] = {}
    for at in range(copies):
        sources |= {f"{name}_{at}": source for name, source in example["sources"].items()}
        for name, stage in example["stages"].items():
            inputs = {one: renamed(flow, at) for one, flow in stage["inputs"].items()}
            stages[f"{name}_{at}"] = {**stage, "inputs": inputs}
    return {"name": "many", "sources": sources, "stages": stages}


def _example(service: Served, name: str) -> dict[str, Any]:
    """Return a shipped dataflow as it is once registered."""
    content = service.get(f"/examples/{name}")["text"]
    headers = {"Content-Type": "application/yaml"}
    answer = service.rest.post("/dataflows", content=content.encode(), headers=headers)
    assert answer.status_code in (201, 409), answer.text
    return dict(service.get(f"/dataflows/{name}")["document"])


@pytest.mark.soak
def test_the_graph_has_every_stage_and_flow(served: Served, viewer: Viewer) -> None:
    """Stages, sources and results as boxes with their states; frames around what runs together."""
    _example(served, "crawl_queue")
    page = viewer.open("/dataflows/crawl_queue")
    detail = served.get("/dataflows/crawl_queue")
    for stage in detail["stages"]:
        box = page.locator(f'.react-flow__node[data-id="stage:{stage["name"]}"]')
        expect(box).to_contain_text(stage["name"])
        expect(box).to_contain_text("Waiting")
        expect(box).to_contain_text(stage["waiting"])
    expect(page.locator('[data-id="source:pages"]')).to_be_visible()
    expect(page.locator('[data-id="result:threshold.queue"]')).to_be_attached()
    leaders = {one["runs_with"] for one in detail["stages"] if one["runs_with"] != one["name"]}
    expect(page.get_by_text("one run", exact=True)).to_have_count(len(leaders))
    reads = sum(len(stage["inputs"]) for stage in detail["stages"])
    expect(page.locator(".react-flow__edge")).to_have_count(reads + 1)
    assert_accessible(page)
    screenshot(page, "graph")


def test_a_box_says_what_it_waits_for_and_leads_to_its_stage(
    served: Served, viewer: Viewer
) -> None:
    """One click gives the words of the service, the second opens the stage; the address has it."""
    _example(served, "crawl_queue")
    page = viewer.open("/dataflows/crawl_queue")
    page.locator('[data-id="stage:merge"]').get_by_text("Waiting").click()
    panel = page.get_by_role("region", name="Chosen: merge")
    (stage,) = [
        one for one in served.get("/dataflows/crawl_queue")["stages"] if one["name"] == "merge"
    ]
    expect(panel).to_contain_text(stage["waiting"])
    assert "node=stage%3Amerge" in page.url
    expect(panel).to_contain_text("has room")
    panel.get_by_label("Neighbourhood").first.click()
    page.get_by_role("option", name="Only stages 1 step away").click()
    expect(page.get_by_test_id("graph")).not_to_have_attribute("data-nodes", "7")
    assert_accessible(page)
    screenshot(page, "graph-neighbourhood")
    panel.get_by_role("link", name="Open the stage").click()
    page.wait_for_url("**/ui/dataflows/crawl_queue/stages/merge")


@pytest.mark.soak
def test_groups_fold_into_one_box(served: Served, viewer: Viewer) -> None:
    """What runs together, and what loops, can be drawn as one box, and unfolded again."""
    _example(served, "pagerank_in_phases")
    page = viewer.open("/dataflows/pagerank_in_phases")
    expect(page.locator('[data-id="stage:rank"]')).to_be_visible()
    expect(page.locator('.react-flow__edge path[data-loop="true"]').first).to_be_attached()
    screenshot(page, "graph-loop")
    page.get_by_role("button", name="Fold all groups").click()
    expect(page.locator('[data-id="stage:rank"]')).to_have_count(0)
    expect(page.locator('[data-id="group:loop of rank"]')).to_contain_text("2 stages")
    page.reload()
    if page.get_by_role("form", name="Sign in").count():
        viewer.sign_in()
    expect(page.locator('[data-id="group:loop of rank"]')).to_be_visible()
    page.get_by_role("button", name="Unfold all").click()
    expect(page.locator('[data-id="stage:rank"]')).to_be_visible()


@pytest.mark.soak
def test_the_table_has_what_the_picture_has(clicks: Served, open_viewer: OpenViewer) -> None:
    """Every stage with its words, every flow with what waits and its limit; also at 400 pixels."""
    viewer = open_viewer(width=400, color_scheme="dark")
    page = viewer.open("/dataflows/clicks?view=table")
    stages = page.get_by_role("table", name="Stages")
    (stage,) = clicks.get("/dataflows/clicks")["stages"]
    expect(stages.locator('tr[data-row="count"]')).to_contain_text(stage["waiting"])
    expect(page.get_by_role("table", name="Flows").locator("tbody tr")).to_have_count(1)
    assert page.evaluate("document.documentElement.scrollWidth") <= 400
    assert_accessible(page)
    screenshot(page, "graph-table-400-dark")


def test_what_waits_is_on_the_edge(clicks: Served, viewer: Viewer) -> None:
    """A paused dataflow keeps an increment: the edge has its number, records and age."""
    clicks.post("/dataflows/clicks/pause")
    clicks.upload("clicks", "urls", "late.jsonl", [{"url": "/late"}, {"url": "/later"}])
    page = viewer.open("/dataflows/clicks")
    graph = page.get_by_test_id("graph")
    waiting = graph.get_by_text(re.compile(r"^1 inc\. · 2 rec\.\d+ m?s ago$"))
    expect(waiting).to_be_visible()
    boxes = [box.bounding_box() for box in page.locator(".react-flow__node").all()]
    assert not any(overlap(box, waiting.bounding_box()) for box in boxes)
    expect(page.locator('[data-id="stage:count"]')).to_contain_text("Paused")
    screenshot(page, "graph-paused")
    page.get_by_role("button", name="Resume", exact=True).click()
    clicks.wait_for_run("clicks", "count", 3)
    expect(graph.get_by_text("empty", exact=True)).to_be_visible()


def overlap(one: Any, other: Any) -> bool:
    """Tell whether two boxes of the screen cover the same place."""
    return bool(
        one["x"] < other["x"] + other["width"]
        and other["x"] < one["x"] + one["width"]
        and one["y"] < other["y"] + other["height"]
        and other["y"] < one["y"] + one["height"]
    )


@pytest.mark.soak
def test_five_hundred_stages_are_shown_with_little_work(served: Served, viewer: Viewer) -> None:
    """From the click on its name to the last of its boxes, with a real service behind it.

    What counts is the processor time of the page's main thread, which other programs on this
    machine do not change; the best of three.
    """
    served.register(_many(_example(served, "crawl_queue"), COPIES))
    page = viewer.open("/?name=many")
    seconds: list[float] = []
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable")
    while len(seconds) < 3 and min(seconds, default=SECONDS_MAX) >= SECONDS_MAX:
        began = _main_thread_seconds(session)
        page.get_by_role("link", name="many", exact=True).click()
        page.wait_for_function(ALL_BOXES, timeout=60_000)
        page.evaluate("() => new Promise((done) => requestAnimationFrame(() => setTimeout(done)))")
        seconds.append(_main_thread_seconds(session) - began)
        page.wait_for_selector(".react-flow__minimap")
        screenshot(page, "graph-500")
        page.go_back()
    assert 0 < min(seconds) < SECONDS_MAX, f"the graph took {seconds} s of the page's main thread"


def _main_thread_seconds(session: CDPSession) -> float:
    """Return what the page's main thread has computed since `Performance.enable`."""
    metrics = session.send("Performance.getMetrics")["metrics"]
    return float(next(one["value"] for one in metrics if one["name"] == "ThreadTime"))


def _chain(stages: int) -> dict[str, Any]:
    """Return a document of stages that read one another, in one line."""
    flows = ["urls", *(f"normalize_events_{at:02}.totals" for at in range(stages))]
    return {
        "name": "chain",
        "sources": {"urls": {"schema": "url STRING", "format": "jsonl"}},
        "stages": {
            f"normalize_events_{at:02}": {
                "translator": "url_count",
                "inputs": {"urls": flows[at]},
                "buckets": 2,
            }
            for at in range(stages)
        },
    }


def _readable_names(page: Page) -> list[str]:
    """Return the names of stages in sight whose letters are at least nine pixels high."""
    return list(
        page.evaluate(
            """() => {
                const canvas = document.querySelector('[data-testid="graph"]');
                const sight = canvas.getBoundingClientRect();
                const scale = (one) => one.getBoundingClientRect().height / one.offsetHeight;
                return [...canvas.querySelectorAll('[data-id^="stage:"]')]
                    .map((box) => [box, box.querySelector('a')])
                    .filter(([box, name]) => {
                        const { left, right, top, bottom } = box.getBoundingClientRect();
                        const size = parseFloat(getComputedStyle(name).fontSize) * scale(box);
                        return left >= sight.left && right <= sight.right
                            && top >= sight.top && bottom <= sight.bottom && size >= 9;
                    })
                    .map(([, name]) => name.textContent);
            }"""
        )
    )


@pytest.mark.soak
def test_a_long_chain_can_be_read_at_first_sight(served: Served, open_viewer: OpenViewer) -> None:
    """Sixty stages in one line: all names at 1280 pixels, some at 400, the first one included.

    What was chosen before is in sight, wherever it is drawn.
    """
    served.register(_chain(60))
    names = [f"normalize_events_{at:02}" for at in range(60)]
    page = open_viewer().open("/dataflows/chain")
    expect(page.locator('[data-id^="stage:"]')).to_have_count(60)
    assert _readable_names(page) == names
    assert_accessible(page)
    screenshot(page, "graph-60")
    narrow = open_viewer(width=400, color_scheme="dark")
    page = narrow.open("/dataflows/chain")
    expect(page.locator('[data-id^="stage:"]')).to_have_count(60)
    readable = _readable_names(page)
    assert readable[0] == names[0]
    assert len(readable) >= 8, readable
    expect(page.get_by_text("A part of the graph")).to_be_visible()
    assert_accessible(page)
    screenshot(page, "graph-60-400-dark")
    page = narrow.open("/dataflows/chain?node=stage:normalize_events_59")
    expect(page.locator('[data-id^="stage:"]')).to_have_count(60)
    assert names[59] in _readable_names(page)
    screenshot(page, "graph-60-400-last")
