"""The page follows the service: by events, with a pause, without growing."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import closing

import pytest
from playwright.sync_api import Page, Request, expect

from controller.store.base import Event, open_store
from tests.ui.conftest import OpenViewer
from tests.ui.served import Served
from tests.ui.viewer import Viewer, assert_accessible, screenshot


@pytest.fixture(scope="module")
def served(shared: Served) -> Served:
    return shared


EVENTS = 10_000
GROWTH_BYTES_MAX = 3_000_000
LIST = re.compile(r"/api/v1/dataflows$")


def announce(served: Served, count: int) -> None:
    """Store events as runs do, past the service; the database is the one that it serves."""
    url = f"sqlite:///{served.drop_root.parent}/cbp.db"
    with closing(open_store(url, exclusive=False)) as store:
        for begin in range(0, count, 500):
            some = range(begin, min(count, begin + 500))
            store.announce(
                *(Event(kind="run.ended", dataflow="clicks", subject=str(n)) for n in some)
            )


def heap_bytes(page: Page) -> int:
    """Return what the page's scripts hold, after a collection."""
    session = page.context.new_cdp_session(page)
    for _ in range(3):
        session.send("HeapProfiler.collectGarbage")
    used = session.send("Runtime.getHeapUsage")["usedSize"]
    session.detach()
    return int(used)


def lists_asked(page: Page, doing: Callable[[], object]) -> list[Request]:
    """Return the requests for the list of dataflows while something is done."""
    asked: list[Request] = []

    def hear(request: Request) -> None:
        asked.append(request)

    page.on("request", hear)
    doing()
    page.remove_listener("request", hear)
    return [one for one in asked if LIST.search(one.url)]


def test_a_change_shows_without_asking_in_turns(clicks: Served, viewer: Viewer) -> None:
    """A run that ends is shown at once; a paused page does not change, then catches up.

    The page asks by itself every 15 seconds only, so what comes sooner comes by an event.
    """
    viewer.page.clock.install()
    page = viewer.open("/")
    expect(page.get_by_role("button", name="Live: pause updates")).to_be_visible()
    with page.expect_response(LIST):  # what the beginning of the stream asks for
        page.clock.fast_forward(3_000)
    with page.expect_response(LIST, timeout=8_000):
        announce(clicks, 1)
    page.get_by_role("button", name="Live: pause updates").click()
    paused = page.get_by_role("button", name="Paused: resume updates")
    expect(paused).to_contain_text("Paused since")
    page.mouse.move(0, 0)  # no tooltip
    page.wait_for_timeout(500)
    assert_accessible(page)
    screenshot(page, "live-paused")

    def change_and_wait() -> None:
        announce(clicks, 5)
        page.clock.fast_forward(20_000)
        page.wait_for_timeout(500)

    assert lists_asked(page, change_and_wait) == [], "nothing moves while it is paused"
    with page.expect_response(LIST, timeout=8_000):
        paused.click()


@pytest.mark.soak
def test_a_page_left_open_does_not_grow(clicks: Served, viewer: Viewer) -> None:
    """Over 10,000 events the page's memory stays, and it asks at most once in two seconds."""
    page = viewer.open("/")
    expect(page.get_by_role("button", name="Live: pause updates")).to_be_visible()
    announce(clicks, 1_000)
    page.wait_for_timeout(4_000)
    before, began = heap_bytes(page), page.evaluate("performance.now()")

    def many() -> None:
        announce(clicks, EVENTS)
        page.wait_for_timeout(6_000)

    asked = lists_asked(page, many)
    seconds = (page.evaluate("performance.now()") - began) / 1000
    assert asked, "it follows"
    assert len(asked) <= seconds / 2 + 2
    assert heap_bytes(page) - before < GROWTH_BYTES_MAX


def test_without_a_stream_the_page_asks_in_turns(clicks: Served, viewer: Viewer) -> None:
    """A proxy that lets no stream through leaves a page that works, and says so."""
    viewer.allow("Failed to load resource|net::ERR_FAILED")
    viewer.page.route("**/api/v1/events*", lambda route: route.abort())
    viewer.page.clock.install()
    page = viewer.open("/")
    polling = page.get_by_role("button", name="Polling: pause updates")
    while not polling.is_visible():  # three tries, some seconds apart
        page.clock.fast_forward(1_000)
    with page.expect_response(LIST):
        page.clock.fast_forward(8_000)


@pytest.mark.soak
def test_a_killed_service_is_told_and_followed_again(
    clicks: Served, open_viewer: OpenViewer
) -> None:
    """What is shown is called old while nothing answers; then all continues automatically, once.

    A screen whose code was not fetched yet opens by itself, too. Nobody signs in again.
    """
    following, going_on = open_viewer(), open_viewer(width=400, color_scheme="dark")
    for viewer in (following, going_on):
        viewer.allow("Failed to (load|fetch)|ERR_CONNECTION|caught the following error")
    page, other = following.open("/"), going_on.open("/dataflows/clicks")
    state = page.get_by_role("region", name="State of all dataflows")
    expect(state).to_contain_text("up to date")
    before = clicks.get("/dataflows/clicks/state/count/counts", url="/page-0")["items"][0]["n"]
    epoch = clicks.get("/dataflows/clicks")["stages"][0]["epoch"]
    clicks.kill()
    for day in range(3):
        clicks.drop("clicks", "urls", f"away-{day}.jsonl", '{"url": "/page-0"}\n')
    notice = page.get_by_role("alert").filter(has_text="The service does not answer")
    expect(notice).to_contain_text("service_unreachable")
    expect(state).to_contain_text("Currently unknown")
    expect(page.get_by_role("button", name="Reconnecting: pause updates")).to_be_visible()
    assert_accessible(page)
    screenshot(page, "lost")
    other.get_by_role("link", name="Verify").click()
    expect(other.get_by_role("heading", level=1)).to_have_text("This screen is not loaded yet")
    page.wait_for_timeout(500)
    assert_accessible(other)
    screenshot(other, "lost-small")
    clicks.start()
    expect(notice).to_have_count(0)
    expect(page.get_by_role("button", name="Live: pause updates")).to_be_visible()
    expect(other.get_by_role("heading", level=1)).to_have_text("Verify clicks")
    clicks.wait_for_run("clicks", "count", epoch + 2)
    now = clicks.get("/dataflows/clicks/state/count/counts", url="/page-0")["items"][0]["n"]
    assert now == before + 3, "nothing is lost, nothing counts twice"
    expect(state).to_contain_text("up to date")
