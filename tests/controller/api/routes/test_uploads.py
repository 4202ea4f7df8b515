"""Uploads and drop folders: names, sizes, request keys, sources that take nothing in."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from controller.store.base import ClaimRecord, Uploaded
from tests.controller.api.clicks import NOON
from tests.controller.api.fake_service import Service

DATAFLOW = "/api/v1/dataflows/clicks"


@pytest.fixture
def client(filled: Service) -> httpx.Client:
    return filled.client()


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
    """`ready` names the dataflow; a caller who may read more gets the reason."""
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
    assert item["problem_code"] == "outside"
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
