"""Runs, increments, claims, flows, state, uploads, metrics, translators, OpenAPI."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import httpx
import pytest

from controller.api.answers.schemas import PAGE_SIZE_MAX
from controller.api.requests.idempotency import IdempotencyKeys
from controller.api.routes.dataflows.runs import RUNS_MAX
from controller.api.security.guard import SIGN_IN
from controller.loop.reading.reader import AsOf
from controller.store.base import ClaimRecord, Uploaded
from tests.controller.api.clicks import DOCUMENT, NOON
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
    """The operator's own limit holds as well, at n and n + 1."""
    object.__setattr__(filled.settings, "page_size_max", 7)
    with filled.client() as client:
        assert client.get("/api/v1/runs", params={"limit": 7}).status_code == 200
        answer = client.get("/api/v1/runs", params={"limit": 8})
    assert (answer.status_code, answer.json()["error_code"]) == (422, "request_invalid")


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


def test_increments_show_where_they_came_from(client: httpx.Client) -> None:
    """With the evidence of their arrival and their files."""
    page = client.get(f"{DATAFLOW}/increments", params={"flow": "urls"}).json()
    assert [item["index"] for item in page["items"]] == [1, 0]
    assert page["items"][0]["origin"] == {"files": ["b.jsonl"]}
    one = client.get(f"{DATAFLOW}/increments/urls/0").json()
    assert (one["records"], one["files"][0]["path"]) == (3, "sources/urls/0.parquet")
    assert client.get(f"{DATAFLOW}/increments/urls/9").status_code == 404
    assert client.get(f"{DATAFLOW}/increments/urls/x").status_code == 422


def test_the_files_of_an_increment_are_its_claims(client: httpx.Client) -> None:
    """Each with its name, where an increment holds more than its origin names."""
    every = client.get(f"{DATAFLOW}/claims").json()["items"]
    known = {claim["index"] for claim in every if claim["index"] is not None}
    assert known
    for index in known:
        page = client.get(f"{DATAFLOW}/claims", params={"source": "urls", "increment": index})
        mine = [claim["path"] for claim in every if claim["index"] == index]
        assert [claim["path"] for claim in page.json()["items"]] == mine
    assert client.get(f"{DATAFLOW}/claims", params={"increment": 99}).json()["items"] == []
    assert client.get(f"{DATAFLOW}/claims", params={"increment": -1}).status_code == 422


def test_quarantine_says_file_line_and_cause(client: httpx.Client) -> None:
    """What was refused is listed with its reason."""
    page = client.get(f"{DATAFLOW}/claims", params={"status": "quarantined"}).json()
    assert [claim["path"] for claim in page["items"]] == ["c.jsonl"]
    assert page["items"][0]["reason"] == {
        "code": "type_wrong",
        "message": "no number",
        "file": "c.jsonl",
        "line": 7,
    }


def test_a_file_name_that_is_no_utf8_is_shown(client: httpx.Client, filled: Service) -> None:
    """Half a surrogate pair, as Python decodes such names, does not break the listing."""
    claim = filled.store.claim_records[0]
    filled.store.claim_records = [replace(claim, path="caf\udce9", reason={"file": "caf\udce9"})]
    item = client.get(f"{DATAFLOW}/claims").json()["items"][0]
    assert (item["path"], item["reason"]["file"]) == ("caf\ufffd", "caf\ufffd")


def test_a_flow_is_read_page_by_page(client: httpx.Client) -> None:
    """Records come with the cursor of the next page; `null` at the end."""
    path = f"{DATAFLOW}/flows/count.totals/records"
    first = client.get(path, params={"limit": 3}).json()
    rest = client.get(path, params={"limit": 3, "cursor": first["cursor"]}).json()
    assert [row["n"] for row in (*first["items"], *rest["items"])] == list(range(5))
    assert rest["cursor"] is None
    assert client.get(f"{DATAFLOW}/flows/nobody/records").status_code == 404


def test_every_type_can_be_shown(client: httpx.Client, filled: Service) -> None:
    """What JSON has no word for goes out as text."""
    filled.controller.reading.flow = [
        {
            "nan": math.nan,
            "big": -math.inf,
            "day": date(2026, 11, 1),
            "at": datetime(2026, 11, 1, 12, tzinfo=UTC),
            "money": Decimal("1.50"),
            "raw": b"\xff",
            "tags": ["a", None],
            "map": {1: True},
            "count": 2**62,
        }
    ]
    assert client.get(f"{DATAFLOW}/flows/urls/records").json()["items"] == [
        {
            "nan": "NaN",
            "big": "-Infinity",
            "day": "2026-11-01",
            "at": "2026-11-01T12:00:00+00:00",
            "money": "1.50",
            "raw": "/w==",
            "tags": ["a", None],
            "map": {"1": True},
            "count": 2**62,
        }
    ]


def test_a_key_is_typed_by_the_schema(client: httpx.Client, filled: Service) -> None:
    """A column of numbers reaches the engine as a number, one of text as text."""
    answer = client.get(f"{DATAFLOW}/state/count/counts", params={"url": "a", "site": "7"})
    assert answer.json()["items"] == [{"url": "a", "site": 7, "n": 3}]
    asked = filled.controller.reading.asked[-1]
    assert asked == ("look_up", "clicks", "count", "counts", {"url": "a", "site": 7}, None)


AT = "2026-11-01T12:00:00.250Z"
AT_MS = 1_793_534_400_250


@pytest.mark.parametrize(
    ("query", "asked"),
    [
        ({}, None),
        ({"epoch": 3}, AsOf(3)),
        ({"epoch": 0, "stage": "count"}, AsOf(0, "count")),
        ({"at": AT}, AsOf(at_ms=AT_MS)),
    ],
)
def test_tables_are_read_as_of_an_epoch_or_a_time(
    client: httpx.Client, filled: Service, query: dict[str, Any], asked: AsOf | None
) -> None:
    """A key, a page of a state and one of a flow alike; of a key by names that no column has."""
    key = {"url": "a", "site": "7", **{f"_{name}": value for name, value in query.items()}}
    for path, parameters in (
        ("state/count/counts", key),
        ("state/count/counts/records", query),
        ("flows/count.totals/records", query),
    ):
        answer = client.get(f"{DATAFLOW}/{path}", params=parameters)
        assert answer.status_code == 200, answer.text
        assert filled.controller.reading.asked[-1][-1] == asked


@pytest.mark.parametrize("path", ["count/counts/records", "count/counts"])
def test_a_moment_is_checked_like_any_parameter(client: httpx.Client, path: str) -> None:
    """A stage without an epoch, an epoch below 0, a time that is none."""
    key = {} if path.endswith("records") else {"url": "a", "site": "7"}
    sign = "" if path.endswith("records") else "_"
    for name, value in (("stage", "count"), ("epoch", "-1"), ("at", "2026-11-01T12:00:61")):
        answer = client.get(f"{DATAFLOW}/state/{path}", params={**key, f"{sign}{name}": value})
        assert answer.status_code == 422, (name, answer.text)


@pytest.mark.parametrize(
    "at", ["2026-11-01T12:00:00", "2026-11-01T12:00:00Z", "2026-11-01T14:00:00+02:00"]
)
@pytest.mark.parametrize("path", ["count/counts/records", "count/counts"])
def test_a_time_without_a_zone_is_in_utc(
    client: httpx.Client, filled: Service, path: str, at: str
) -> None:
    """For states here, as for commands and roll-backs."""
    key = {"at": at} if path.endswith("records") else {"url": "a", "site": "7", "_at": at}
    answer = client.get(f"{DATAFLOW}/state/{path}", params=key)
    assert answer.status_code == 200, answer.text
    assert filled.controller.reading.asked[-1][-1] == AsOf(None, None, 1_793_534_400_000)


@pytest.mark.parametrize(
    ("query", "status", "code"),
    [
        ("url=b&site=7", 404, "not_found"),
        ("url=a", 422, "request_invalid"),
        ("url=a&site=x", 422, "request_invalid"),
        ("url=a&site=7&more=1", 422, "request_invalid"),
        ("url=a&url=b&site=7", 422, "request_invalid"),
        ("", 422, "request_invalid"),
    ],
)
def test_a_wrong_key_is_told_apart_from_no_record(
    client: httpx.Client, query: str, status: int, code: str
) -> None:
    """404 only for a key that could have a record."""
    answer = client.get(f"{DATAFLOW}/state/count/counts?{query}")
    assert (answer.status_code, answer.json()["error_code"]) == (status, code)


@pytest.mark.parametrize("path", ["nobody/counts", "count/nobody"])
def test_an_unknown_state_is_told_so(client: httpx.Client, path: str) -> None:
    """404 that names stage or state."""
    assert client.get(f"{DATAFLOW}/state/{path}?url=a&site=7").status_code == 404


def test_an_upload_arrives_as_it_was_sent(client: httpx.Client, filled: Service) -> None:
    """Byte for byte, whatever the content type says."""
    content = bytes(range(256)) * 100
    answer = client.post(
        f"{DATAFLOW}/sources/urls/files", params={"name": "a b.jsonl"}, content=content
    )
    assert (answer.status_code, answer.json()["path"]) == (202, "a b.jsonl")
    assert filled.drop_folder.files == {"a b.jsonl": content}


def test_an_upload_under_a_key_is_one_request(
    client: httpx.Client, filled: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In progress 409, used for another file 422; what is known already is 200, not 202."""
    first = ClaimRecord("c9", "clicks", "urls", 0, "a", 1, "duplicate", NOON)
    answers = [Uploaded(first, repeated=True, same_request=False), Uploaded(first)]
    inner: list[httpx.Response] = []

    def send() -> httpx.Response:
        url = f"{DATAFLOW}/sources/urls/files?name=a"
        return client.post(url, content=b"x", headers={"Idempotency-Key": "k"})

    def upload(*given: object) -> Uploaded:
        if not inner:
            inner.append(send())
        return answers.pop(0)

    monkeypatch.setattr(filled.drop_folder, "upload", upload)
    outer = send()
    assert (inner[0].status_code, inner[0].json()["error_code"]) == (409, "idempotency_key_busy")
    assert (outer.status_code, outer.json()["error_code"]) == (422, "idempotency_key_reused")
    assert (send().status_code, answers) == (200, [])


@pytest.mark.parametrize(
    "name", ["", "../a", "a/b", "a\\b", ".hidden", "a\nb", "a\0b", "ä" * 101, "x" * 201]
)
def test_a_name_that_could_be_a_path_is_refused(
    client: httpx.Client, filled: Service, name: str
) -> None:
    """Names are evidence, but not even as evidence may they look like a path."""
    answer = client.post(f"{DATAFLOW}/sources/urls/files", params={"name": name}, content=b"x")
    assert answer.status_code == 422
    assert filled.drop_folder.files == {}


def test_a_source_of_which_nothing_is_taken_in_degrades_its_dataflow(
    client: httpx.Client, filled: Service
) -> None:
    """`ready` names the dataflow, and whoever may read more gets the reason."""
    filled.drop_folder.trouble = ["source urls: the disk is full"]
    assert "clicks" in client.get("/api/v1/health/ready").json()["degraded"]
    (item,) = client.get("/api/v1/degraded").json()["items"]
    assert "source urls: the disk is full" in item["reason"]


def test_a_source_of_which_nothing_is_taken_in_degrades_it_wherever_it_is_shown(
    client: httpx.Client, filled: Service
) -> None:
    """Metrics and the list say what `ready` says; what is paused by hand raises no alarm."""
    gauge = 'cbp_dataflow_degraded{dataflow="clicks"}'

    def shown() -> tuple[bool, str]:
        metrics = client.get("/api/v1/metrics").text
        (item,) = client.get("/api/v1/dataflows").json()["items"]
        return f"{gauge} 1.0" in metrics, item["state"]

    filled.controller.reasons = {}
    assert shown() == (False, "ok")
    filled.drop_folder.trouble = ["source urls: the disk is full"]
    assert shown() == (True, "retrying")
    (item,) = client.get("/api/v1/dataflows").json()["items"]
    assert item["problem"] == "source urls: the disk is full"
    filled.store.records["clicks"] = replace(filled.store.records["clicks"], desired="paused")
    assert shown() == (False, "paused")


def test_what_lies_in_a_drop_folder_is_listed(client: httpx.Client) -> None:
    """Whatever its name; what waits, what stays, and what is wrong with the source."""
    (item,) = client.get(f"{DATAFLOW}/sources").json()["items"]
    assert (item["waiting"], item["unclaimed"], item["trouble"]["tries"]) == (2, 1, 3)
    assert item["oldest_unclaimed"][0]["name"].startswith("a\nb")
    assert (item["gone"][0]["name"], item["gone"][0]["lost"]) == ("b\nc", True)
    assert client.get("/api/v1/dataflows/nobody/sources").status_code == 404


def test_an_upload_needs_a_source(client: httpx.Client) -> None:
    """A stage's flow, or nothing at all, cannot be fed from outside."""
    for source in ("nobody", "count.totals"):
        answer = client.post(f"{DATAFLOW}/sources/{source}/files?name=a", content=b"x")
        assert answer.status_code == 404


@pytest.mark.parametrize("announced", [True, False])
def test_uploads_have_a_largest_size(tmp_path: Path, announced: bool) -> None:
    """At the limit it is taken, one byte more is refused, announced or not."""
    service = Service(tmp_path, upload_bytes_max=5000)
    service.fill()
    with service.client() as client:
        for size, status in [(5000, 202), (5001, 413)]:
            content = b"x" * size if announced else iter([b"x" * (size - 1), b"x"])
            path = f"{DATAFLOW}/sources/urls/files?name=f{size}"
            answer = client.post(path, content=content)
            assert answer.status_code == status
    assert answer.json()["error_code"] == "body_too_large"
    assert answer.json()["details"] == {"bytes_max": 5000, "setting": "CBP_UPLOAD_BYTES_MAX"}
    assert list(service.drop_folder.files) == ["f5000"]


@pytest.mark.parametrize("path", ["/api/v1/dataflows", "/api/v1/dataflows/validate"])
def test_documents_have_a_largest_size(service: Service, path: str) -> None:
    """At the limit it is read, one byte more is refused."""
    limit = service.settings.body_bytes_max
    headers = {"Content-Type": "application/json"}
    with service.client() as client:
        for size, code in [(limit, "dataflow_invalid"), (limit + 1, "body_too_large")]:
            answer = client.post(path, content=b" " * size, headers=headers)
            assert answer.json()["error_code"] == code


@pytest.mark.parametrize("breaks", ["connectors", "stages"])
def test_a_dataflow_that_cannot_be_read_hides_no_other(
    breaks: str, filled: Service, client: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lists, metrics and `ready` answer whatever one dataflow holds, and name it."""
    other = dict(DOCUMENT, name="other")
    filled.store.records["other"] = replace(
        filled.store.records["clicks"], name="other", document=other
    )
    works = getattr(filled.store, breaks)

    def broken(name: str) -> Any:
        if name == "other":
            raise KeyError(breaks)
        return works(name)

    monkeypatch.setattr(filled.store, breaks, broken)
    listed = client.get("/api/v1/dataflows").json()["items"]
    assert {item["name"]: item["state"] == "broken" for item in listed} == {
        "clicks": False,
        "other": True,
    }
    shown = client.get("/api/v1/dataflows/other")
    assert shown.status_code == 200
    assert breaks in shown.json()["summary"]["problem"]
    metrics = client.get("/api/v1/metrics")
    assert metrics.status_code == 200
    assert 'cbp_dataflow_degraded{dataflow="other"} 1.0' in metrics.text
    assert 'cbp_stage_epochs_total{dataflow="clicks",stage="count"}' in metrics.text
    assert client.get("/api/v1/health/ready").status_code == 200
    if breaks == "stages":
        assert client.get("/api/v1/health/ready").json()["degraded"]["other"] == "broken"


def test_what_does_not_get_on_is_told_by_ready(filled: Service, client: httpx.Client) -> None:
    """`ready` names what is tried again, `degraded` says why and when; both stay 200."""
    assert client.get("/api/v1/health/ready").json()["degraded"] == {}
    filled.controller.reasons = {}
    filled.store.stage_records[0] = replace(filled.store.stage_records[0], failures=2)
    ready = client.get("/api/v1/health/ready")
    assert ready.status_code == 200
    assert ready.json()["degraded"] == {"clicks": "retrying"}
    (item,) = client.get("/api/v1/degraded").json()["items"]
    assert "2 times in a row" in item["reason"]
    summary = client.get("/api/v1/dataflows").json()["items"][0]
    assert summary["state"] == "retrying"
    assert "2 times in a row" in summary["problem"]


def test_metrics_speak_prometheus(client: httpx.Client) -> None:
    """Queue depth, lag and failures by name; no label without bound."""
    client.get("/api/v1/runs/no-such-run")
    answer = client.get("/api/v1/metrics")
    assert answer.headers["content-type"].startswith("text/plain")
    assert "no-such-run" not in answer.text, "a route is counted by its template"
    lines = answer.text.splitlines()
    assert 'cbp_queue_increments{dataflow="clicks",input="urls",stage="count"} 2.0' in lines
    assert 'cbp_stage_failures{dataflow="clicks",stage="count"} 0.0' in lines
    assert 'cbp_runs_total{dataflow="clicks",lane="resident"} 3.0' in lines
    assert 'cbp_run_seconds_total{dataflow="clicks",lane="resident"} 0.5' in lines
    assert "deleted" not in answer.text, "only of dataflows that there are"
    # The value of a label can have braces: a route's template.
    names = {name for line in lines for name in re.findall(r'(\w+)="', line)}
    ours = {"way", "source", "method", "reason", "route", "status"}  # words of ours, and sources
    assert names == {"dataflow", "stage", "input", "lane", *ours}
    assert 'cbp_quarantined_files{dataflow="clicks",source="urls"} 1.0' in lines


def test_translators_are_listed(client: httpx.Client) -> None:
    """With what a document needs to know."""
    items = client.get("/api/v1/translators").json()["items"]
    assert [(item["name"], item["package"], item["summary"]) for item in items] == [
        ("url_count", "cbp", "Count how often each URL was seen.")
    ]


def test_the_settings_are_masked(client: httpx.Client) -> None:
    """They say that there is a token, not which."""
    assert client.get("/api/v1/settings").json()["token"] == "********"


def test_the_index_links_to_what_exists(client: httpx.Client) -> None:
    """Every link of `/` answers."""
    for path in client.get("/").json()["links"].values():
        assert client.get(path).status_code == 200


def test_openapi_names_every_refusal(client: httpx.Client) -> None:
    """Every operation says that it needs the token, and which problems it answers with."""
    document = client.get("/api/v1/openapi.json").json()
    assert document["openapi"].startswith("3.1")
    assert "Problem" in document["components"]["schemas"]
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            expected = {"400", "403", "422", "500", "503"}
            if "/health/" not in path and (method.upper(), path) != SIGN_IN:
                assert operation["security"], path
                expected |= {"401"}
            assert expected <= set(operation["responses"]), path
            for status, response in operation["responses"].items():
                if int(status) >= 400:
                    assert list(response["content"]) == ["application/problem+json"]


def test_what_openapi_promises_is_what_comes(client: httpx.Client) -> None:
    """Every status that these requests get is named by the document."""
    paths = client.get("/api/v1/openapi.json").json()["paths"]
    requests: list[tuple[str, str, dict[str, Any], int]] = [
        ("post", "/api/v1/dataflows", {"json": DOCUMENT}, 409),
        ("post", "/api/v1/dataflows", {"content": b"x"}, 415),
        ("get", "/api/v1/dataflows/{name}", {}, 200),
        ("post", "/api/v1/runs/{run}/cancel", {}, 409),
        ("delete", "/api/v1/dataflows/{name}", {}, 204),
    ]
    for method, path, more, status in requests:
        answer = client.request(method, path.format(name="clicks", run="r1"), **more)
        assert answer.status_code == status
        assert str(status) in paths[path][method]["responses"]


def test_stages_that_run_together_are_shown_one_by_one(service: Service) -> None:
    """A stage that another one leads is listed with it, and finds its runs by its own name."""
    service.fill()
    service.controller.beside = ("score",)
    with service.client() as client:
        stages = client.get("/api/v1/dataflows/clicks").json()["stages"]
        query = {"dataflow": "clicks", "stage": "score"}
        runs = client.get("/api/v1/runs", params=query).json()["items"]
    assert [(s["name"], s["runs_with"], len(s["queues"])) for s in stages] == [
        ("count", "count", 1),
        ("score", "count", 0),
    ]
    assert [run["stages"] for run in runs] == [["count", "score"]] * 3


@pytest.mark.parametrize("index", [-1, 1 << 63])
def test_an_index_that_no_database_has_is_refused(client: httpx.Client, index: int) -> None:
    """It is the client's mistake, not an error of the database."""
    assert client.get(f"{DATAFLOW}/increments/urls/{index}").status_code == 422


def test_a_flow_is_closed_once_per_key(client: httpx.Client) -> None:
    """The first answer comes again; without a key, or with another one, it closes again."""
    path = f"{DATAFLOW}/flows/urls/close"
    first = client.post(path, headers={"Idempotency-Key": "monday"})
    assert (first.status_code, first.json()["number"]) == (201, 0)
    assert (first.json()["flow"], first.json()["inputs"]) == ("urls", ["count.urls"])
    assert client.post(path, headers={"Idempotency-Key": "monday"}).json() == first.json()
    assert [client.post(path).json()["number"] for _ in range(2)] == [1, 2]
    other = client.post(f"{DATAFLOW}/flows/more/close", headers={"Idempotency-Key": "monday"})
    assert (other.status_code, other.json()["error_code"]) == (422, "idempotency_key_reused")
    page = client.get(f"{DATAFLOW}/punctuations", params={"limit": 2}).json()
    assert [one["number"] for one in page["items"]] == [2, 1]
    rest = client.get(f"{DATAFLOW}/punctuations", params={"cursor": page["cursor"]}).json()
    assert ([one["number"] for one in rest["items"]], rest["cursor"]) == ([0], None)


def test_a_key_of_another_flow_is_refused_after_a_restart(client: httpx.Client) -> None:
    """What this process does not remember is in the record of the punctuation."""
    keys = {"Idempotency-Key": "tuesday"}
    assert client.post(f"{DATAFLOW}/flows/urls/close", headers=keys).status_code == 201
    client._transport._inner.app.state.parts.idempotency_keys = IdempotencyKeys()  # type: ignore[attr-defined]
    other = client.post(f"{DATAFLOW}/flows/more/close", headers=keys)
    assert (other.status_code, other.json()["error_code"]) == (422, "idempotency_key_reused")
