"""`cbp edit`, and the routes below it: a reason, typed values, and the list."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.controller.api.fake_service import Service
from tests.controller.cli.conftest import Cbp

EDIT = ("edit", "clicks", "count.counts", "url=a")
WHY = ("--reason", "twice")


@pytest.fixture(autouse=True)
def _filled(service: Service) -> None:
    service.fill()


def asked(service: Service) -> Any:
    ((_, name, stage, state, corrections, who, why, _),) = service.controller.amendments.asked
    assert (name, stage, state, why) == ("clicks", "count", "counts", "twice")
    assert who
    return corrections


def test_columns_are_set_with_the_types_of_the_state(cbp: Cbp, service: Service) -> None:
    """A text is read as the column's type; who and why reach the controller."""
    outcome = cbp(*EDIT, "--set", "n=5", *WHY)
    assert outcome.status == 0, outcome.err
    assert "1 key corrected" in outcome.out
    (one,) = asked(service)
    assert (one.key, one.kind, one.records) == ({"url": "a"}, "set", ({"n": 5},))


def test_a_key_is_deleted(cbp: Cbp, service: Service) -> None:
    """It has no records then."""
    assert cbp(*EDIT, "--delete", *WHY).status == 0
    (one,) = asked(service)
    assert (one.kind, one.records) == ("records", ())


def test_a_file_names_many_keys(cbp: Cbp, service: Service, tmp_path: Path) -> None:
    """Each with what becomes of it."""
    keys = [{"key": {"url": "a"}, "set": {"n": 1}}, {"key": {"url": None}, "records": [{"n": 2}]}]
    file = tmp_path / "right.json"
    file.write_text(json.dumps({"corrections": keys}))
    assert cbp(*EDIT[:3], "--file", str(file), *WHY).status == 0
    assert [one.kind for one in asked(service)] == ["set", "records"]


def test_corrections_are_listed(cbp: Cbp) -> None:
    """Newest first, with the reason."""
    for _ in range(3):
        cbp(*EDIT, "--delete", *WHY)
    listed = cbp("edit", "clicks", "--list", "--json").json["items"]
    assert [one["run"] for one in listed] == ["2", "1", "0"]
    assert "twice" in cbp("edit", "clicks", "--list").out


def test_pages_of_the_list_put_together_are_the_list(cbp: Cbp, service: Service) -> None:
    """A cursor goes on where the page ended."""
    for _ in range(3):
        cbp(*EDIT, "--delete", *WHY)
    with service.client() as client:
        path = "/api/v1/dataflows/clicks/corrections"
        page = client.get(path, params={"limit": 2}).json()
        rest = client.get(path, params={"limit": 2, "cursor": page["cursor"]}).json()
    assert [one["run"] for one in page["items"] + rest["items"]] == ["2", "1", "0"]
    assert rest["cursor"] is None


@pytest.mark.parametrize(
    ("body", "place"),
    [
        ({"key": {"url": "a"}, "set": {"n": "many"}}, "corrections[0].set.n"),
        ({"key": {"url": "a"}, "set": {"m": 1}}, "corrections[0].set.m"),
        ({"key": {"link": "a"}, "set": {"n": 1}}, "corrections[0].key.link"),
        ({"key": {"url": "a"}}, "corrections[0]"),
        ({"key": {"url": "a"}, "set": {"n": 1}, "records": []}, "corrections[0]"),
        ({"key": "a"}, "corrections.0.key"),
        ("a", "corrections.0"),
    ],
)
def test_a_wrong_body_names_the_place(service: Service, body: Any, place: str) -> None:
    """Before the controller is asked."""
    with service.client() as client:
        answer = client.post(
            "/api/v1/dataflows/clicks/state/count/counts/corrections",
            params={"reason": "x"},
            content=json.dumps({"corrections": [body]}),
        )
    assert answer.json()["error_code"] == "definition_invalid"
    assert answer.json()["details"]["where"] == place
    assert service.controller.amendments.asked == []


def test_wrong_calls_are_refused(cbp: Cbp) -> None:
    """Without a reason, a state, or with nothing to do or too much."""
    assert cbp(*EDIT, "--delete").status == 2
    assert cbp("edit", "clicks", "count", "--delete", *WHY).status == 2
    assert cbp(*EDIT, *WHY).status == 2
    assert cbp(*EDIT, "--delete", "--set", "n=1", *WHY).status == 2
    outcome = cbp("edit", "clicks", "count.nothing", "url=a", "--delete", *WHY, "--json")
    assert outcome.json["error_code"] == "not_found"
