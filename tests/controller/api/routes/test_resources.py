"""Readiness, metrics, translators, settings, quarantine, the index, OpenAPI."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import httpx
import pytest

from controller.api.security.guard import SIGN_IN
from tests.controller.api.clicks import DOCUMENT
from tests.controller.api.fake_service import Service

DATAFLOW = "/api/v1/dataflows/clicks"


@pytest.fixture
def client(filled: Service) -> httpx.Client:
    return filled.client()


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
    assert shown.json()["summary"]["problem_code"] == "unreadable"
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
    assert summary["problem_code"] == "stages"
    filled.store.stage_records[0] = replace(filled.store.stage_records[0], failures=0)
    assert client.get("/api/v1/dataflows").json()["items"][0]["problem_code"] is None


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
    ours = {"way", "source", "method", "reason", "route", "status", "folder"}  # words of ours
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
