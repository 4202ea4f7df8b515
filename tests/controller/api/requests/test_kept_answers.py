"""Answers that are kept: the same as fresh ones, for as long as nothing changes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cbp.model.run.intention import RunStatus
from controller.api.requests.kept_answers import KeptAnswers
from controller.api.routing.read_routes import is_lasting
from controller.api.routing.scopes import ScopedRoute
from tests.controller.api.all_routes import whole_app
from tests.controller.api.fake_service import Service


@pytest.fixture
def service(tmp_path: Path) -> Service:
    """Give a service with increments, claims and runs, whose store says when it changes."""
    made = Service(tmp_path)
    made.fill()
    STAMP[0] = 0
    made.app.state.parts.answers = KeptAnswers(lambda: STAMP[0])
    return made


STAMP: list[Any] = [0]


def test_an_answer_is_the_same_until_the_store_changes(service: Service) -> None:
    """Then it is made anew; and so it is where the store does not say whether it changed."""
    client = service.client()
    path = "/api/v1/dataflows/clicks/increments"
    first = client.get(path)
    assert first.status_code == 200
    kept = service.store.increment_records
    service.store.increment_records = kept[:1]
    again = client.get(path)
    assert again.content == first.content
    own = {name: text for name, text in first.headers.items() if name != "x-request-id"}
    assert own == {name: text for name, text in again.headers.items() if name != "x-request-id"}
    assert len(client.get(f"{path}?limit=5").json()["items"]) == 1, "another query"
    STAMP[0] += 1
    assert len(client.get(path).json()["items"]) == 1
    service.store.increment_records = kept
    STAMP[0] = None
    assert len(client.get(path).json()["items"]) == 2


def test_refusals_are_not_kept_nor_given_to_others(service: Service) -> None:
    """A key that is not known is refused each time; a wrong query too."""
    path = "/api/v1/dataflows/clicks/increments"
    assert service.client().get(path).status_code == 200
    assert service.client("wrong").get(path).status_code == 401
    for _ in range(2):
        assert service.client().get(f"{path}?limit=x").status_code == 422
        assert service.client().get("/api/v1/dataflows/none/increments").status_code == 404


def test_runs_under_way_are_shown_as_they_are(service: Service) -> None:
    """Their phases are not in the store, so an answer that has one is not kept; others are."""
    client, runs = service.client(), service.store.run_records
    under_way = [one for one in runs if one.status is RunStatus.INTENDED]
    for path in ("/api/v1/runs", f"/api/v1/runs/{under_way[0].id}"):
        service.store.run_records = under_way
        assert client.get(path).status_code == 200
        service.store.run_records = []
        assert client.get(path).json().get("items", []) == []
    STAMP[0] += 1
    service.store.run_records = [one for one in runs if one not in under_way]
    ended = client.get("/api/v1/runs").json()
    assert len(ended["items"]) == 2
    service.store.run_records = []
    assert client.get("/api/v1/runs").json() == ended


def test_what_is_kept_has_a_bound() -> None:
    """Beyond it all go; what is a large part of it is not kept at all."""
    answers = KeptAnswers(lambda: 1, bytes_max=1600)
    answers.keep(1, "large", b"x" * 101)
    assert answers.find(1, "large") is None
    for number in range(40):
        answers.keep(1, number, b"x" * 100)
        assert answers.find(1, number) == b"x" * 100
    assert sum(answers.find(1, number) is not None for number in range(40)) <= 17


def test_only_these_routes_last() -> None:
    """Each was looked at: it reads no header, no table and no clock."""
    every = [one for one in whole_app().routes if isinstance(one, ScopedRoute)]
    lasting = {one.path for one in every if is_lasting(one.endpoint)}
    assert lasting == {
        f"/api/v1/{path}"
        for path in (
            "dataflows/{name}/claims",
            "dataflows/{name}/increments",
            "dataflows/{name}/increments/{flow}/{index}",
            "events/recent",
            "runs",
            "runs/{run}",
        )
    }
    for route in (one for one in every if one.path in lasting and "GET" in (one.methods or ())):
        assert not route.dependant.header_params
