"""The screens of runs, of one run and of an increment's records, against what REST says."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from tests.system.processes import until
from tests.ui.authored import Author, send
from tests.ui.conftest import OpenViewer
from tests.ui.served import Served
from tests.ui.viewer import Viewer, assert_accessible, screenshot

BIG = 9_007_199_254_740_993
"""2^53 + 1, which a double cannot hold."""


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
        send(service, "visits", "a", ("north", 1), ("south", BIG))
        service.wait_for_run("visits", "again", 0)
        for n in range(6):
            send(service, "visits", f"b{n}", *((f"w{i}", n) for i in range(8 * (n + 1))))
            service.wait_for_run("visits", "again", n + 1)
        service.register(author.document("broken"))
        send(service, "broken", "a", ("poison", 1))
        until(lambda: stage_of(service, "broken")["state"] == "stopped", "it did not stop")
        yield service
    finally:
        author.let_go()
        service.stop()


def stage_of(served: Served, dataflow: str, stage: str = "keep") -> Any:
    return served.get(f"/dataflows/{dataflow}/stages/{stage}")["stage"]


def runs_of(served: Served, **filters: Any) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = served.get("/runs", limit=100, **filters)["items"]
    return items


def running(served: Served, dataflow: str) -> dict[str, Any]:
    """Return the run of a dataflow that goes on; waits for it to start."""
    until(lambda: bool(runs_of(served, dataflow=dataflow, status="INTENDED")), "it did not start")
    (run,) = runs_of(served, dataflow=dataflow, status="INTENDED")
    return run


def choose(page: Page, run: str) -> None:
    """Check the box of a run; the address, which keeps what is chosen, changes a moment later."""
    box = page.get_by_label(f"Choose run {run}")
    box.click()
    expect(box).to_be_checked()


def listed(page: Page) -> list[str]:
    """Return the ids of the runs that the table shows, in its order."""
    rows = page.locator("tr[data-row]")
    expect(rows.first).to_be_visible()
    return [row.get_attribute("data-row") or "" for row in rows.all()]


def test_the_list_shows_every_run_with_its_figures(served: Served, viewer: Viewer) -> None:
    """The same runs as REST, attempts of an epoch side by side, with code, wait and lane."""
    page = viewer.open("/runs")
    wanted = runs_of(served)
    assert sorted(listed(page)) == sorted(run["id"] for run in wanted)
    failed = [run for run in wanted if run["status"] == "FAILED"]
    assert len(failed) == 2
    newest = page.locator(f"tr[data-row='{failed[0]['id']}']")
    expect(newest).to_contain_text("author_code_failed")
    expect(newest).to_contain_text("2, newest")
    expect(newest.locator("xpath=following-sibling::tr[1]")).to_contain_text("1, replaced")
    done = next(run for run in wanted if run["status"] == "COMMITTED")
    row = page.locator(f"tr[data-row='{done['id']}']")
    expect(row).to_contain_text("Committed")
    expect(row).to_contain_text(done["lanes"][0])
    expect(page.get_by_text("cbp runs", exact=True)).to_be_visible()
    assert_accessible(page)
    screenshot(page, "runs")


def test_filters_are_the_servers_and_survive_a_reload(served: Served, viewer: Viewer) -> None:
    """Each filter shows what REST answers to it; the address keeps them, and Clear drops them."""
    page = viewer.open("/runs")
    page.get_by_text("Failed only").click()
    failed = [run["id"] for run in runs_of(served, status="FAILED")]
    expect(page.locator("tr[data-row]")).to_have_count(len(failed))
    assert sorted(listed(page)) == sorted(failed)
    page.get_by_label("Error code").fill("author_code_failed")
    page.get_by_label("Error code").press("Enter")
    page.get_by_role("combobox", name="Began").click()
    page.get_by_role("option", name="The last hour").click()
    expect(page).to_have_url(re.compile("since=1h"))
    page.reload()
    viewer.sign_in_if_asked()
    expect(page.locator("tr[data-row]")).to_have_count(len(failed))
    expect(page.get_by_label("Error code")).to_have_value("author_code_failed")
    expect(
        page.get_by_text("cbp runs --failed --error-code author_code_failed --since 1h")
    ).to_be_visible()
    page.get_by_label("Error code").fill("disk_full")
    page.get_by_label("Error code").press("Enter")
    expect(page.get_by_text("No run matches these filters")).to_be_visible()
    assert_accessible(page)
    page.get_by_role("button", name="Clear the filters").click()
    expect(page.locator("tr[data-row]")).to_have_count(len(runs_of(served)))
    page.get_by_role("combobox", name="Dataflow").click()
    page.get_by_role("option", name="visits").click()
    page.get_by_role("combobox", name="Stage").click()
    page.get_by_role("option", name="again").click()
    wanted = runs_of(served, dataflow="visits", stage="again")
    expect(page.locator("tr[data-row]")).to_have_count(len(wanted))
    page.get_by_role("combobox", name="Began").click()
    page.get_by_role("option", name="From … to …").click()
    page.get_by_label("To", exact=True).fill("2020-01-01T00:00")
    expect(page.get_by_text("No run matches these filters")).to_be_visible()
    page.get_by_role("button", name="Clear", exact=True).click()
    expect(page).to_have_url(re.compile(r"/ui/runs$"))


@pytest.mark.soak
def test_many_runs_are_cancelled_and_tried_again_at_once(
    served: Served, author: Author, viewer: Viewer
) -> None:
    """Two that run are cancelled by one press, tried again by another, and each is reported."""
    author.hold()
    for name in ("slow_a", "slow_b"):
        served.register(author.document(name))
        send(served, name, "a", ("slow", 1))
    until(lambda: len(runs_of(served, status="INTENDED")) == 2, "they did not start")
    running = [run["id"] for run in runs_of(served, status="INTENDED")]
    page = viewer.open("/runs?status=INTENDED")
    for run in running:
        choose(page, run)
    page.get_by_role("button", name="Cancel 2 running").click()
    report = page.get_by_role("region", name="Report: Cancel")
    expect(report).to_contain_text("2 runs asked to stop")
    author.let_go()
    until(
        lambda: all(served.get(f"/runs/{run}")["status"] == "FAILED" for run in running),
        "they were not cancelled",
    )
    page.get_by_role("button", name="Close the report").click()
    expect(report).to_have_count(0)
    page.get_by_text("All", exact=True).first.click()
    committed = runs_of(served, status="COMMITTED")[0]["id"]
    choose(page, committed)
    expect(page.get_by_text("3 runs chosen")).to_be_visible()
    page.get_by_role("button", name="Retry 2 failed").click()
    expect(page.get_by_role("region", name="Report: Retry")).to_contain_text("2 runs tried again")
    screenshot(page, "runs-report")
    for name in ("slow_a", "slow_b"):
        served.wait_for_run(name, "keep", 0)
    page.get_by_role("button", name="Choose none").click()
    expect(page.get_by_text("Select runs with their check boxes.")).to_be_visible()
    # Once more: what is done is refused, each with its reason, and nothing is run twice.
    for run in running:
        choose(page, run)
    page.get_by_role("button", name="Retry 2 failed").click()
    expect(page.get_by_role("region", name="Report: Retry")).to_contain_text("2 refused")
    assert {stage_of(served, name)["epoch"] for name in ("slow_a", "slow_b")} == {1}


@pytest.mark.soak
def test_a_run_shows_its_time_its_records_and_its_neighbours(
    served: Served, viewer: Viewer
) -> None:
    """Phases, figures and increments are those of REST; its cause and its effect are links."""
    run = runs_of(served, dataflow="visits", stage="again")[0]
    page = viewer.open(f"/runs/{run['id']}")
    account = served.get(f"/runs/{run['id']}/account")
    expect(page.get_by_text(account["why"])).to_be_visible()
    timeline = page.get_by_role("img", name=re.compile("^Timeline of attempt 1"))
    for phase in run["phases"]:
        expect(timeline).to_contain_text(phase["name"])
    page.get_by_text("As a table").click()
    phases = page.get_by_role("table", name="Phases of attempt 1")
    expect(phases.get_by_role("row")).to_have_count(len(run["phases"]) + 1)
    groups = str(int(run["figures"]["groups"]))
    expect(page.get_by_role("region", name="Figures")).to_contain_text(f"Groups touched{groups}")
    assert_accessible(page)
    screenshot(page, "run")
    (cause,) = served.get(f"/runs/{run['id']}/lineage")["causes"]
    page.get_by_role("region", name="Input").get_by_role("link", name=cause["run"]).click()
    expect(page).to_have_url(re.compile(f"/runs/{cause['run']}$"))
    wrote = page.get_by_role("region", name="Output")
    expect(wrote.get_by_role("link", name=run["id"])).to_be_visible()
    wrote.get_by_role("link", name=re.compile("^keep.newest")).click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("keep.newest/")


def test_the_records_of_an_increment_are_exact(served: Served, viewer: Viewer) -> None:
    """Every digit of a BIGINT, the types of the columns, and pages that go on and back."""
    page = viewer.open("/dataflows/visits/increments/visits/0")
    table = page.get_by_role("table", name="Records")
    expect(table).to_contain_text(str(BIG))
    expect(table.get_by_role("columnheader").nth(1)).to_contain_text("BIGINT")
    expect(page.get_by_text("cbp increment visits visits 0")).to_be_visible()
    assert_accessible(page)
    screenshot(page, "increment")
    many = [("m" + str(n), n) for n in range(130)]
    send(served, "visits", "many", *many)
    until(
        lambda: (
            served.get("/dataflows/visits/increments", flow="visits")["items"][0]["records"] == 130
        ),
        "it did not come",
    )
    index = served.get("/dataflows/visits/increments", flow="visits")["items"][0]["index"]
    page = viewer.open(f"/dataflows/visits/increments/visits/{index}")
    expect(page.get_by_text("100 records", exact=True)).to_be_visible()
    page.get_by_role("button", name="Next").click()
    expect(page.get_by_text("30 records", exact=True)).to_be_visible()
    page.get_by_role("button", name="Newest").click()
    expect(page.get_by_text("100 records", exact=True)).to_be_visible()
    viewer.allow("404")
    page = viewer.open("/dataflows/visits/increments/visits/99999")
    expect(page.get_by_role("alert")).to_contain_text("not_found")


@pytest.mark.soak
def test_the_timeline_of_a_running_run_grows(
    served: Served, author: Author, viewer: Viewer
) -> None:
    """Its phase is open and gets longer; when it is let go, the page shows the end by itself."""
    author.hold()
    served.register(author.document("growing"))
    send(served, "growing", "a", ("slow", 1))
    run = running(served, "growing")
    page = viewer.open(f"/runs/{run['id']}")
    timeline = page.get_by_role("img", name=re.compile("^Timeline of attempt 1"))
    expect(timeline).to_have_attribute("aria-label", re.compile(r"job .* so far"))
    first = timeline.get_attribute("aria-label")
    expect(timeline).not_to_have_attribute("aria-label", first or "")
    expect(page.get_by_role("button", name="Cancel")).to_be_visible()
    assert_accessible(page)
    screenshot(page, "run-running")
    author.let_go()
    expect(page.get_by_text("Committed").first).to_be_visible()
    expect(timeline).to_have_attribute("aria-label", re.compile("finish"))
    expect(page.get_by_role("button", name="Cancel")).to_have_count(0)


def test_a_run_is_cancelled_and_tried_again_from_its_page(
    served: Served, author: Author, viewer: Viewer
) -> None:
    """Cancel stops it, its page says so, Retry runs the epoch again; both attempts are shown."""
    author.hold()
    served.register(author.document("stopped"))
    send(served, "stopped", "a", ("slow", 1))
    run = running(served, "stopped")
    page = viewer.open(f"/runs/{run['id']}")
    # The run may only go on once the service has taken the cancellation.
    with page.expect_response(re.compile("/cancel$")) as cancelled:
        page.get_by_role("button", name="Cancel").click()
    assert cancelled.value.ok
    author.let_go()
    expect(page.get_by_text("Cancelled").first).to_be_visible()
    expect(page.get_by_role("region", name="Error")).to_contain_text("run_cancelled")
    page.get_by_role("button", name="Retry").click()
    served.wait_for_run("stopped", "keep", 0)
    expect(page.get_by_role("region", name="Other attempts of this epoch")).to_contain_text(
        "Attempt 2"
    )
    assert_accessible(page)
    screenshot(page, "run-attempts")


def coming_late(
    served: Served, author: Author, dataflow: str, run: dict[str, Any]
) -> Callable[[Route], None]:
    """Return what lets a run commit before the request that cancels it is answered."""

    def answer(route: Route) -> None:
        author.let_go()
        served.wait_for_run(dataflow, "keep", 0)
        if dataflow == "late_refused":
            route.continue_()
        else:  # as the service answers while the result is being recorded
            route.fulfill(status=202, json=run)

    return answer


@pytest.mark.soak
def test_a_cancel_that_comes_too_late_is_said(
    served: Served, author: Author, viewer: Viewer
) -> None:
    """A run that is being recorded commits all the same; one that has committed is refused."""
    viewer.allow("status of 409")
    for name in ("late_taken", "late_refused"):
        author.hold()
        served.register(author.document(name))
        send(served, name, "a", ("slow", 1))
        run = running(served, name)
        page = viewer.open(f"/runs/{run['id']}")

        page.route("**/cancel", coming_late(served, author, name, run))
        page.get_by_role("button", name="Cancel").click()
        expect(page.get_by_text("had finished before").first).to_be_visible()
        expect(page.get_by_role("heading", level=1)).to_contain_text("Committed")
        screenshot(page, name)
        page.unroute("**/cancel")


@pytest.mark.soak
def test_the_screens_fit_a_telephone_and_the_dark(served: Served, open_viewer: OpenViewer) -> None:
    """At 400 pixels nothing but tables scrolls sideways; in the dark all keeps its contrast."""
    run = runs_of(served, dataflow="visits", stage="again")[0]
    failed = runs_of(served, dataflow="broken", status="FAILED")[0]
    small = open_viewer(width=400, height=800)
    dark = open_viewer(color_scheme="dark")
    for path, name in (
        ("/runs", "runs"),
        (f"/runs/{run['id']}", "run"),
        (f"/runs/{failed['id']}", "run-failed"),
        ("/dataflows/visits/stages/keep", "stage"),
    ):
        page = small.open(path)
        expect(page.get_by_role("status")).to_have_count(0)
        assert page.evaluate("document.documentElement.scrollWidth") <= 400, path
        screenshot(page, f"{name}-400")
        page = dark.open(path)
        expect(page.get_by_role("status")).to_have_count(0)
        assert_accessible(page)
        screenshot(page, f"{name}-dark")
