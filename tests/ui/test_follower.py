"""The page of an instance that follows: two services on one PostgreSQL database."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest
from playwright.sync_api import Browser, expect

from tests.conformance.conftest import new_postgres_database
from tests.machine import folder_in_memory
from tests.system.processes import until
from tests.ui.served import Served
from tests.ui.viewer import Viewer, assert_accessible, screenshot

__all__ = ["new_postgres_database"]

pytestmark = pytest.mark.service


@dataclass
class Two:
    """A service that leads, and one that follows."""

    leader: Served
    follower: Served


@pytest.fixture(scope="module")
def two(
    browser: Browser, bundle: object, new_postgres_database: Callable[[], str]
) -> Iterator[Two]:
    """Both over one folder; the leader has counted URLs."""
    with folder_in_memory() as folder:
        url = new_postgres_database()
        made = Two(*(Served(folder, name, database_url=url) for name in ("leader", "follower")))
        try:
            made.leader.start()
            made.leader.apply_clicks()
            made.follower.start()
            yield made
        finally:
            made.leader.stop()
            made.follower.stop()


@pytest.fixture(scope="module")
def served(two: Two) -> Served:
    """What the viewer opens: the one that follows."""
    return two.follower


@pytest.mark.soak
def test_a_follower_shows_what_is_stored_and_says_who_leads(two: Two, viewer: Viewer) -> None:
    """It reads the same, steers what any instance can, refuses the rest, and takes over."""
    viewer.allow("421")
    page = viewer.open("/")
    assert two.follower.get("/leader") == {"role": "follows", "epoch": 1, "leader": two.leader.url}
    expect(page.locator('tr[data-row="clicks"]')).to_contain_text("Up to date")
    notice = page.get_by_role("status").filter(has_text="Another instance leads")
    link = notice.get_by_role("link", name=two.leader.url)
    expect(link).to_have_attribute("href", f"{two.leader.url}/ui/")
    assert_accessible(page)
    screenshot(page, "follower")
    page = viewer.open("/dataflows/clicks/state/count/counts?k.url=/page-0")
    (record,) = two.leader.get("/dataflows/clicks/state/count/counts", url="/page-0")["items"]
    expect(page.get_by_role("region", name="Records of the key").first).to_contain_text(
        str(record["n"])
    )
    expect(link).to_have_attribute("href", re.compile("/ui/dataflows/clicks/state/count/counts"))
    page = viewer.open("/")
    page.get_by_role("button", name="Pause clicks").click()
    until(
        lambda: two.leader.get("/dataflows/clicks")["summary"]["desired"] == "paused",
        "the leader was not told",
    )
    page.get_by_role("button", name="Resume").first.click()
    until(
        lambda: two.leader.get("/dataflows/clicks")["summary"]["desired"] == "running",
        "the leader was not told",
    )
    page = viewer.open("/dataflows/clicks/housekeeping")
    degraded = page.get_by_role("region", name="Degraded", exact=True)
    expect(degraded.get_by_role("link", name=two.leader.url)).to_be_visible()
    expect(page.get_by_role("status", name="Loading")).to_have_count(0)
    assert_accessible(page)
    screenshot(page, "follower-housekeeping")
    page.get_by_role("button", name="Collect now").click()
    expect(page.get_by_role("alert").filter(has_text="led_elsewhere").last).to_contain_text(
        two.leader.url
    )
    viewer.allow("Failed to load resource")
    two.leader.kill()
    until(lambda: two.follower.get("/leader")["role"] == "leads", "it does not take over")
    expect(notice).to_have_count(0)
    two.follower.upload("clicks", "urls", "later.jsonl", [{"url": "/later"}])
    two.follower.wait_for_run("clicks", "count", 3)
