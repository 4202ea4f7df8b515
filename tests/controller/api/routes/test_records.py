"""Increments, flows and state over REST: where they came from, keys, moments, closing."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import httpx
import pytest

from controller.api.requests.idempotency import IdempotencyKeys
from controller.loop.reading.reader import AsOf
from tests.controller.api.fake_service import Service

DATAFLOW = "/api/v1/dataflows/clicks"


@pytest.fixture
def client(filled: Service) -> httpx.Client:
    return filled.client()


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
