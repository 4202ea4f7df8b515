"""Lists of what happened can be narrowed to a range of time, and those of failures to a code."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from cbp.errors import DiskFullError
from cbp.model.verification import Request, Verification
from controller.api.app import describe_api
from controller.api.requests.moments import RangeQuery
from tests.controller.api.fake_service import Service

PRESENT = {
    "dataflows_list_dataflows": "the dataflows as they are now",
    "dataflows_waiting": "what waits now",
    "recovery_list_intentions": "what is open now",
    "rollbacks_list_undone_files": "what one roll-back would undo",
    "sessions_list_sessions": "who is signed in now",
    "sinks_list_sinks": "the sinks as they are now",
    "sources_list_sources": "the folders as they are now",
    "tokens_list_tokens": "the tokens as they are now",
}
PLACED = {
    "events_recent": "a stream that is read on from an event's id, kept for some hours",
    "runs_show_log": "a file that is read on from its place",
}
OF_ONE = {
    "increments_grid": "the last increments by stage, for a picture",
    "state_history": "the past of one key, epoch by epoch",
}
EXEMPT = {**PRESENT, **PLACED, **OF_ONE}
"""Operations whose items have times, and why they are not chosen by them."""

CODES = {"code", "error_code"}


def _resolved(part: Any, document: dict[str, Any]) -> Any:
    while isinstance(part, dict) and "$ref" in part:
        part = document["components"]["schemas"][part["$ref"].rpartition("/")[2]]
    return part


def _is_time(part: Any) -> bool:
    return part.get("format") == "date-time" or any(
        one.get("format") == "date-time" for one in part.get("anyOf", ())
    )


def lists() -> Iterator[tuple[str, set[str], dict[str, Any]]]:
    """Yield each list: its operation, its parameters, the properties of its items."""
    document = describe_api()
    for methods in document["paths"].values():
        operation = methods.get("get", {})
        answer = operation.get("responses", {}).get("200", {}).get("content", {})
        schema = _resolved(answer.get("application/json", {}).get("schema", {}), document)
        items = schema.get("properties", {}).get("items", {}).get("items")
        if items is not None:
            properties = _resolved(items, document).get("properties", {})
            names = {one["name"] for one in operation.get("parameters", ())}
            yield operation["operationId"], names, properties


def test_whatever_happened_at_a_time_is_listed_by_time() -> None:
    """Every list of the OpenAPI document whose items have a time of their own, but those named."""
    timed = {name: given for name, given, of in lists() if any(map(_is_time, of.values()))}
    lacking = {name for name, given in timed.items() if not {"since", "until"} <= given}
    assert lacking - EXEMPT.keys() == set()
    assert EXEMPT.keys() <= lacking, "no list of this name lacks them"
    assert len(timed.keys() - lacking) >= 13


def test_whatever_failed_is_listed_by_its_code() -> None:
    """Every list whose items have an error or a reason of a refusal, but those named."""
    said = {"corrections_list_corrections", "rollbacks_list_rollbacks", "flows_list_punctuations"}
    others = {*said, *EXEMPT, "health_degraded"}
    coded = {
        name: given
        for name, given, of in lists()
        if {"error", "reason", "code", "error_code"} & of.keys() and name not in others
    }
    assert {name for name, given in coded.items() if not CODES & given} == set()
    assert len(coded) >= 6


@pytest.mark.parametrize(
    ("since", "until", "held"),
    [
        (None, None, True),
        (12, None, True),
        (13, None, False),
        (None, 12, False),
        (None, 13, True),
        (12, 13, True),
    ],
)
def test_a_range_begins_with_its_first_moment(
    since: int | None, until: int | None, held: bool
) -> None:
    """It ends before its last one; what has no time is in a range without bounds only."""
    first, last = (hour and datetime(2026, 11, 1, hour, tzinfo=UTC) for hour in (since, until))
    query = RangeQuery(since=first, until=last)
    noon = datetime(2026, 11, 1, 12, tzinfo=UTC)
    assert query.holds(noon) is held
    assert query.holds_ms(int(noon.timestamp() * 1000)) is held
    assert query.holds(None) is (since is until is None)


class Verifications:
    """Knows a verification that failed and an equal one."""

    def all(self, name: str) -> list[Verification]:
        eight, nine = (datetime(2026, 11, 1, hour, tzinfo=UTC) for hour in (8, 9))
        error: dict[str, object] = {"error_code": "input_not_retained"}
        return [
            Verification("v1", name, Request(), "failed", began_at=nine, error=error),
            Verification("v0", name, Request(), "equal", began_at=eight),
        ]


@pytest.mark.parametrize(
    ("query", "ids"),
    [
        ({}, ["v1", "v0"]),
        ({"since": "2026-11-01T09:00:00Z"}, ["v1"]),
        ({"until": "2026-11-01T09:00:00Z"}, ["v0"]),
        ({"error_code": "input_not_retained"}, ["v1"]),
        ({"error_code": "disk_full"}, []),
    ],
)
def test_verifications_are_chosen(filled: Service, query: dict[str, str], ids: list[str]) -> None:
    """By when they began, and by what ended them."""
    filled.controller.verifications = Verifications()  # type: ignore[assignment]
    with filled.client() as client:
        answer = client.get("/api/v1/dataflows/clicks/verifications", params=query)
    assert [one["id"] for one in answer.json()["items"]] == ids


@pytest.mark.parametrize(
    ("query", "ids"),
    [
        ({}, ["r1", "r0"]),
        ({"since": "2026-11-01T09:00:00Z"}, ["r1"]),
        ({"error_code": "disk_full"}, ["r1"]),
        ({"error_code": "not_found"}, []),
    ],
)
def test_rebuilds_are_chosen(filled: Service, query: dict[str, str], ids: list[str]) -> None:
    """By when they began, and by what ended them, or keeps them waiting; by the command, too."""
    jobs = filled.controller.rebuild_jobs
    eight, nine = (datetime(2026, 11, 1, hour, tzinfo=UTC) for hour in (8, 9))
    done = replace(jobs.show("clicks", "n1"), id="r0", began_at=eight)
    jobs.ended = [replace(done, id="r1", began_at=nine, error=DiskFullError("/x")), done]
    with filled.client() as client:
        answer = client.get("/api/v1/dataflows/clicks/rebuilds", params=query)
    assert [one["id"] for one in answer.json()["items"]] == ids


def test_a_rebuild_that_goes_on_does_not_end_the_list_of_those_with_its_error(
    filled: Service,
) -> None:
    """It was the last of a page, and waits no more; those behind it are on the next page."""
    jobs = filled.controller.rebuild_jobs
    full = replace(jobs.show("clicks", "n1"), error=DiskFullError("/x"))
    jobs.ended = [replace(full, id="r2"), replace(full, id="r1")]
    asked = {"error_code": "disk_full", "limit": "1"}
    with filled.client() as client:
        first = client.get("/api/v1/dataflows/clicks/rebuilds", params=asked).json()
        assert [one["id"] for one in first["items"]] == ["r2"]
        jobs.ended[0] = replace(jobs.ended[0], error=None)
        asked["cursor"] = first["cursor"]
        second = client.get("/api/v1/dataflows/clicks/rebuilds", params=asked).json()
    assert [one["id"] for one in second["items"]] == ["r1"]


@pytest.mark.parametrize("value", ["0.5", "1763632800", "-1", "1e9", "", "2026-13-01T00:00:00Z"])
def test_a_time_is_text(filled: Service, value: str) -> None:
    """A number would be seconds or milliseconds, by its size; the document has no numbers."""
    with filled.client() as client:
        answer = client.get("/api/v1/runs", params={"since": value})
    assert answer.status_code == 422
