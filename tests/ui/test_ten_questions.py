"""The ten questions that an operator asks, each answered within two clicks of the landing page.

One stage has failed, one is late, a file is in quarantine, a name is in a folder that is not
taken in, and the last deploy has added a stage.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from tests.system.processes import until
from tests.ui.authored import Author, send
from tests.ui.served import CLICKS, Served
from tests.ui.viewer import Viewer, screenshot

README = Path(__file__).resolve().parents[2] / "controller" / "ui" / "README.md"
CLICKS_MAX = 2


@pytest.fixture(scope="module")
def author(tmp_path_factory: pytest.TempPathFactory) -> Author:
    return Author(tmp_path_factory.mktemp("author"))


@pytest.fixture(scope="module")
def served(
    browser: Browser, bundle: Any, author: Author, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Served]:
    """Replace the common service by one with all of that."""
    service = Served(tmp_path_factory.mktemp("served"), **author.settings())
    try:
        service.start()
        author.hold()
        service.register(author.document("late"))
        send(service, "late", "a", ("slow", 1))
        service.apply_clicks()
        _deploy(service)
        _refuse_files(service)
        service.register(author.document("visits"))
        for n in range(2):
            send(service, "visits", f"a{n}", *((f"w{i}", n) for i in range(10 * (n + 1))))
            service.wait_for_run("visits", "again", n)
        send(service, "visits", "poisoned", ("poison", 1))
        until(lambda: _stage(service)["stage"]["state"] == "stopped", "it did not stop")
        yield service
    finally:
        author.let_go()
        service.stop()


def _deploy(service: Served) -> None:
    """Register the second version of `clicks`, with one more stage."""
    again = {"translator": "url_count", "inputs": {"urls": "urls"}, "buckets": 4}
    document = {**CLICKS, "stages": {**CLICKS["stages"], "added": again}}
    answer = service.rest.put("/dataflows/clicks", json=document)
    assert answer.is_success, answer.text


def _refuse_files(service: Served) -> None:
    """Put a file that cannot be read and a name that is not taken in into the folder."""
    folder = service.drop_root / "clicks" / "urls" / "incoming"
    (folder / "tuesday.jsonl.part").write_text("{}")
    (service.drop_root / "staged").write_text('{"url": 7}\n')
    (service.drop_root / "staged").rename(folder / "bad.jsonl")

    def is_refused() -> bool:
        return bool(service.get("/dataflows/clicks/sources/urls/quarantine")["items"])

    until(is_refused, "the bad file is not in quarantine")


def _stage(service: Served) -> Any:
    return service.get("/dataflows/visits/stages/keep")


class Operator:
    """Somebody who looks at the page and presses as little as possible.

    Attributes:
        clicks: So many were needed so far.
    """

    def __init__(self, page: Page, served: Served) -> None:
        self.page, self.served, self.clicks = page, served, 0

    def click(self, what: Locator) -> None:
        """Click once."""
        what.click()
        self.clicks += 1

    def row(self, dataflow: str) -> Locator:
        """Return a row of the landing page."""
        return self.page.locator(f'tr[data-row="{dataflow}"]')

    def figure(self, dataflow: str, title: str) -> Locator:
        """Return the number of a row whose title begins so; it leads to what it counts."""
        return self.row(dataflow).locator(f'a[title^="{title}"]')

    def open_tab(self, dataflow: str, tab: str) -> None:
        """Open a screen of a dataflow: its name, then the tab."""
        self.click(self.row(dataflow).get_by_role("link", name=dataflow, exact=True))
        tabs = self.page.get_by_role("navigation", name=f"Screens of the dataflow {dataflow}")
        self.click(tabs.get_by_role("link", name=tab, exact=True))

    def sees(self, region: str, *texts: str) -> None:
        """Read texts in a part of the screen."""
        part = self.page.get_by_role("region", name=region, exact=True).first
        for text in texts:
            expect(part).to_contain_text(text)


def is_all_up_to_date(operator: Operator) -> None:
    operator.sees(
        "State of all dataflows", "Not up to date: 3 of 3 dataflows; an operator is needed."
    )
    operator.sees("State of all dataflows", "clicks: 1 file of urls is in quarantine.")
    expect(operator.row("visits")).to_contain_text("Stopped")
    expect(operator.row("late")).to_contain_text("Catching up")


def what_is_late_and_why(operator: Operator) -> None:
    operator.click(operator.figure("late", "Age of the oldest increment"))
    (late,) = [
        one for one in operator.served.get("/dataflows/late")["stages"] if one["lag_seconds"]
    ]
    expect(operator.page.get_by_role("region", name="Late")).to_contain_text(
        re.compile(rf"{late['name']}, by \d+.*: runs epoch 0")
    )


def what_failed_since_when_in_which_line(operator: Operator) -> None:
    error = _stage(operator.served)["error"]
    operator.sees("State of all dataflows", "visits: the stage keep has stopped, since")
    operator.sees("State of all dataflows", error["details"]["place"], "cannot weigh 'poison'")


def what_does_it_cost(operator: Operator) -> None:
    operator.click(operator.figure("visits", "Duration, input and output of each run"))
    run = operator.served.get("/runs", dataflow="visits", status="COMMITTED")["items"][0]
    operator.click(operator.page.locator(f"tr[data-row='{run['id']}'] a").first)
    groups = int(run["figures"]["groups"])
    operator.sees("Figures", f"Groups touched{groups}", "Bytes written", "Bytes read of state")


def what_will_happen_if_i_press_this(operator: Operator) -> None:
    page = operator.page
    page.get_by_role("button", name="Retry now").hover()
    expect(page.get_by_role("tooltip")).to_contain_text("If it fails, the stage stops again.")
    page.get_by_role("button", name="Pause visits").hover()
    expect(page.get_by_role("tooltip").last).to_contain_text("runs under way finish")
    operator.open_tab("visits", "Recovery")
    plan = operator.served.get("/dataflows/visits/rollback", to="1")
    undone = sum(plan["rollback"]["undone"].values())
    row = page.get_by_role("table", name="Roll-back points").locator("tr[data-row^='1/']")
    expect(row).to_contain_text(f"{undone} runs")


def which_records_made_this_result(operator: Operator) -> None:
    operator.click(operator.figure("visits", "The newest results"))
    newest = operator.page.get_by_role("region", name="Newest records", exact=True)
    operator.click(newest.get_by_role("link", name="1", exact=True).first)
    made = operator.page.get_by_role("table", name="Origins of the increment")
    rows = made.locator("tbody tr")
    expect(rows).to_have_count(2)
    expect(rows.nth(0)).to_contain_text("keep.newest/1")
    expect(rows.nth(1)).to_contain_text("visits/1")
    expect(rows.nth(1)).to_contain_text("file a1.jsonl")


def is_the_state_skewed(operator: Operator) -> None:
    operator.open_tab("visits", "State")
    (size,) = operator.served.get("/dataflows/visits/stages/keep/states")["items"]
    row = operator.page.locator("tr[data-row='keep.seen']")
    expect(row).to_contain_text(f"{size['skew']:.2f}: bucket {size['fullest']} has")
    expect(row).to_contain_text(f"{size['rows']}")


def did_the_last_deploy_change_anything(operator: Operator) -> None:
    operator.open_tab("clicks", "Versions")
    newest = operator.served.get("/dataflows/clicks/versions")["items"][0]
    assert newest["version"] == 2
    added = next(line for line in newest["difference"] if line.startswith("+") and "added" in line)
    changed = operator.page.get_by_label("What version 2 changed")
    expect(changed).to_contain_text(added)


def what_is_waiting_in_the_folder(operator: Operator) -> None:
    operator.click(operator.figure("clicks", "Files in quarantine"))
    (source,) = operator.served.get("/dataflows/clicks/sources")["items"]
    assert source["files"]["quarantined"] == 1
    operator.sees("Counts of urls", f"Waiting in the folder{source['waiting']}")
    (unclaimed,) = source["oldest_unclaimed"]
    expect(operator.page.get_by_text(f"{unclaimed['name']}: {unclaimed['why']}")).to_be_visible()
    files = operator.page.get_by_role("region", name="List of files")
    expect(files.get_by_role("link", name="bad.jsonl")).to_be_visible()


def can_i_undo_it(operator: Operator) -> None:
    operator.open_tab("visits", "Recovery")
    moments = operator.served.get("/dataflows/visits/rollback/moments")["items"]
    points = operator.page.get_by_role("table", name="Roll-back points")
    expect(points.get_by_role("button", name="Preview")).to_have_count(len(moments))
    expect(points).to_contain_text("Before the first run")


QUESTIONS: dict[str, Callable[[Operator], None]] = {
    "Is all up to date?": is_all_up_to_date,
    "What is late, and why?": what_is_late_and_why,
    "What failed, since when, in which line?": what_failed_since_when_in_which_line,
    "What does it cost?": what_does_it_cost,
    "What will happen if I press this?": what_will_happen_if_i_press_this,
    "Which records made this result?": which_records_made_this_result,
    "Is the state skewed?": is_the_state_skewed,
    "Did the last deploy change anything?": did_the_last_deploy_change_anything,
    "What is waiting in the folder?": what_is_waiting_in_the_folder,
    "Can I undo it?": can_i_undo_it,
}


def clicks_in_the_readme() -> dict[str, int]:
    """Return the clicks that the README says each question needs."""
    rows = re.findall(r"^\| ([^|]+\?) \| (\d)\b", README.read_text(), re.MULTILINE)
    return {question: int(clicks) for question, clicks in rows}


WAITS = "What is late, and why?"
"""The answer comes once something is late: after real seconds."""


@pytest.mark.part(every=3)
@pytest.mark.parametrize(
    "question",
    [pytest.param(one, marks=[pytest.mark.soak] if one == WAITS else []) for one in QUESTIONS],
)
def test_a_question_is_answered_in_two_clicks(
    served: Served, viewer: Viewer, question: str
) -> None:
    """What is seen then agrees with REST, and the README's comparison says how many clicks."""
    page = viewer.open("/")
    expect(page.locator('tr[data-row="visits"]')).to_be_visible()
    operator = Operator(page, served)
    QUESTIONS[question](operator)
    screenshot(page, f"question-{list(QUESTIONS).index(question) + 1}")
    assert operator.clicks <= CLICKS_MAX
    assert clicks_in_the_readme()[question] == operator.clicks


def test_the_readme_compares_the_ten_questions() -> None:
    """Every question that is measured, and no other."""
    assert list(clicks_in_the_readme()) == list(QUESTIONS)
