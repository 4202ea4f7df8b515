"""Runs: filters, pages, figures and phases of one, many at once."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

import httpx
import pytest

from cbp.engine.interface.runs import ProcessStack, StackCall
from cbp.errors import RunStackUnseenError
from controller.api.answers.schemas import PAGE_SIZE_MAX
from controller.api.routes.dataflows.runs import RUNS_MAX
from tests.controller.api.clicks import NOON
from tests.controller.api.fake_service import Service

DATAFLOW = "/api/v1/dataflows/clicks"


@pytest.fixture
def client(filled: Service) -> httpx.Client:
    return filled.client()


def test_runs_are_filtered_by_the_server(client: httpx.Client) -> None:
    """Filters are applied before paging."""
    failed = client.get("/api/v1/runs", params={"status": "FAILED", "stage": "count"}).json()
    assert [run["id"] for run in failed["items"]] == ["r2"]
    assert failed["items"][0]["error"]["message"] == "boom"
    assert client.get("/api/v1/runs", params={"status": "DONE"}).status_code == 422
    assert client.get("/api/v1/runs", params={"dataflow": "nobody"}).status_code == 404


def test_pages_join_to_the_whole(client: httpx.Client) -> None:
    """Following the cursors gives every item once, in order, and ends."""
    seen: list[str] = []
    cursor: str | None = None
    while True:
        params = {"limit": "1"} | ({"cursor": cursor} if cursor else {})
        page = client.get("/api/v1/runs", params=params).json()
        seen += [run["id"] for run in page["items"]]
        cursor = page["cursor"]
        if cursor is None:
            break
    assert seen == ["r3", "r2", "r1"]


@pytest.mark.parametrize(
    "path",
    [
        "/api/v1/runs",
        f"{DATAFLOW}/increments",
        f"{DATAFLOW}/claims",
        f"{DATAFLOW}/flows/urls/records",
        f"{DATAFLOW}/punctuations",
    ],
)
def test_a_page_has_a_largest_size(client: httpx.Client, path: str) -> None:
    """The largest size is served, one more and zero are refused."""
    assert client.get(path, params={"limit": PAGE_SIZE_MAX}).status_code == 200
    for limit in (PAGE_SIZE_MAX + 1, 0, -1):
        assert client.get(path, params={"limit": limit}).status_code == 422


def test_an_operator_may_allow_smaller_pages_only(filled: Service) -> None:
    """A client that asks for more is given smaller pages, with a cursor, and no error."""
    object.__setattr__(filled.settings, "page_size_max", 1)
    with filled.client() as client:
        one, two = (client.get("/api/v1/runs", params={"limit": limit}).json() for limit in (1, 2))
    assert one["cursor"]
    assert [run["id"] for run in two["items"]] == [run["id"] for run in one["items"]]
    assert len(two["items"]) == 1


def test_a_run_shows_its_figures(client: httpx.Client) -> None:
    """Counts and the time it took."""
    run = client.get("/api/v1/runs/r1").json()
    assert (run["figures"], run["seconds"]) == ({"records_in": 3.0, "groups": 2.0}, 2.0)
    assert client.get("/api/v1/runs/nobody").status_code == 404


def test_runs_are_filtered_by_epoch_error_and_time(client: httpx.Client) -> None:
    """Each filter reaches the store; a time without a zone is in UTC, and must be one there."""

    def ids(**filters: Any) -> list[str]:
        return [run["id"] for run in client.get("/api/v1/runs", params=filters).json()["items"]]

    assert ids(epoch=0) == ["r1"]
    assert ids(error_code="author_code_failed") == ["r2"]
    assert ids(error_code="disk_full") == []
    assert ids(since="2026-11-01T14:00:00+02:00") == ["r3", "r2", "r1"]
    assert ids(since="2026-11-01T12:00:01Z") == []
    assert ids(until="2026-11-01T12:00:00Z") == []
    assert ids(since="2026-11-01T12:00:00") == ["r3", "r2", "r1"]
    assert ids(until="2026-11-01T12:00:00") == []
    wrong = ("2026-11-01T12:00:61", "0001-01-01T00:00:00+14:00", "soon")
    for value in wrong:
        assert client.get("/api/v1/runs", params={"since": value}).status_code == 422
    assert client.get("/api/v1/runs", params={"error_code": "x'--"}).status_code == 422


def test_a_run_says_how_long_its_input_had_waited(client: httpx.Client, filled: Service) -> None:
    """From the arrival of its oldest increment; not known of increments that are forgotten."""
    late = replace(filled.store.run_records[2], started_at=NOON + timedelta(seconds=7))
    filled.store.run_records[2] = late
    runs = client.get("/api/v1/runs").json()["items"]
    # Epoch 0 read increment 0, which arrived at noon; epoch 1 began before its increment came.
    assert [run["waited_seconds"] for run in runs] == [0.0, 0.0, 7.0]
    filled.store.increment_records = []
    runs = client.get("/api/v1/runs").json()["items"]
    assert [run["waited_seconds"] for run in runs] == [None, None, None]


def test_a_run_shows_its_phases(client: httpx.Client, filled: Service) -> None:
    """As recorded; of a run under way, as the controller knows them, without an end."""
    begins = {"begin_00_start": 0.0, "begin_01_job": 0.25, "begin_02_finish": 1.5}
    filled.store.run_records[2] = replace(
        filled.store.run_records[2], figures={"groups": 2.0, **begins}
    )
    run = client.get("/api/v1/runs/r1").json()
    assert run["phases"] == [
        {"name": "start", "begin_seconds": 0.0, "end_seconds": 0.25},
        {"name": "job", "begin_seconds": 0.25, "end_seconds": 1.5},
        {"name": "finish", "begin_seconds": 1.5, "end_seconds": 2.0},
    ]
    assert run["figures"] == {"groups": 2.0}
    assert client.get("/api/v1/runs/r3").json()["phases"] == []
    filled.controller.under_way["r3"] = {"begin_00_start": 0.0, "begin_01_plan": 0.1}
    assert client.get("/api/v1/runs/r3").json()["phases"] == [
        {"name": "start", "begin_seconds": 0.0, "end_seconds": 0.1},
        {"name": "plan", "begin_seconds": 0.1, "end_seconds": None},
    ]


def test_many_runs_are_cancelled_with_a_report_for_each(
    client: httpx.Client, filled: Service
) -> None:
    """Some can be refused while others are asked to stop; a run that is named twice counts once."""
    asked = {"runs": ["r1", "r3", "nobody", "r3"]}
    answer = client.post("/api/v1/runs/cancel", json=asked)
    assert answer.status_code == 207
    report = [
        (item["id"], item["status"], (item["error"] or {}).get("error_code"))
        for item in answer.json()["items"]
    ]
    assert report == [("r1", 409, "run_ended"), ("r3", 202, None), ("nobody", 404, "not_found")]
    assert filled.controller.asked == [("cancel", "r3")]


def test_many_runs_are_tried_again_with_a_report_for_each(
    client: httpx.Client, filled: Service
) -> None:
    """Only failed runs of the epoch that is still due; nothing else reaches the controller."""
    stage = filled.store.stage_records[0]
    filled.store.stage_records[0] = replace(stage, epoch=1)
    asked = {"runs": ["r1", "r2", "r3"]}
    answer = client.post("/api/v1/runs/retry", json=asked)
    report = [(item["id"], item["status"]) for item in answer.json()["items"]]
    assert (answer.status_code, report) == (207, [("r1", 409), ("r2", 202), ("r3", 409)])
    assert filled.controller.asked == [("retry", "clicks", "count")]
    filled.store.stage_records[0] = replace(stage, epoch=2)
    (item,) = client.post("/api/v1/runs/retry", json={"runs": ["r2"]}).json()["items"]
    assert (item["status"], item["error"]["error_code"]) == (409, "run_not_due")
    assert len(filled.controller.asked) == 1


@pytest.mark.parametrize("action", ["cancel", "retry"])
def test_a_request_for_many_runs_has_a_limit(client: httpx.Client, action: str) -> None:
    """The largest number is served, one more and none are refused, and so is what is no id."""
    path = f"/api/v1/runs/{action}"
    many = [f"r{n}x" for n in range(RUNS_MAX)]
    assert len(client.post(path, json={"runs": many}).json()["items"]) == RUNS_MAX
    for runs in ([*many, "one"], [], ["../x"], ["\ud800"], "r1"):
        body = json.dumps({"runs": runs})  # in ASCII: httpx cannot write half of a character
        headers = {"Content-Type": "application/json"}
        assert client.post(path, content=body, headers=headers).status_code == 422


def test_only_a_run_under_way_can_be_cancelled(client: httpx.Client, filled: Service) -> None:
    """A run that has ended is refused; it never reaches the controller."""
    assert client.post("/api/v1/runs/r3/cancel").status_code == 202
    for run in ("r1", "r2"):
        answer = client.post(f"/api/v1/runs/{run}/cancel")
        assert (answer.status_code, answer.json()["error_code"]) == (409, "run_ended")
    assert client.post("/api/v1/runs/nobody/cancel").status_code == 404
    assert filled.controller.asked == [("cancel", "r3")]


def test_the_stack_of_a_run_marks_the_authors_code(filled: Service, client: httpx.Client) -> None:
    """Each call with file, line and function; a process that does not answer has none."""
    calls = [("/srv/engine.py", 7, "run"), ("/srv/count.py", 12, "translate")]
    stack = tuple(StackCall(*call) for call in calls)
    filled.controller.now_in = [ProcessStack(41, stack), ProcessStack(42, ())]
    filled.controller.under_way = {"r3": {"begin_00_start": 0.0, "begin_01_job": 1.0}}
    answer = client.get("/api/v1/runs/r3/stack").json()
    assert (answer["run"], answer["status"], answer["phase"]) == ("r3", "INTENDED", "job")
    first, second = answer["processes"]
    assert [call["authors"] for call in first["calls"]] == [False, True]
    assert first["calls"][1] == {
        "file": "/srv/count.py", "line": 12, "function": "translate", "authors": True,
    }  # fmt: skip
    assert second == {"pid": 42, "calls": []}


def test_the_stack_of_a_run_that_nobody_can_ask_is_refused(
    filled: Service, client: httpx.Client
) -> None:
    """With a code, and where to look; a run that is unknown is another matter."""
    filled.controller.stack_fails_with = RunStackUnseenError("r3")
    refused = client.get("/api/v1/runs/r3/stack")
    assert (refused.status_code, refused.json()["error_code"]) == (409, "run_stack_unseen")
    assert client.get("/api/v1/runs/nobody/stack").status_code == 404
