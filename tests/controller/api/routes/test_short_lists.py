"""Lists that are whole without a limit, such as dataflows, roll-backs and rebuilds."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import httpx
import pytest

from cbp.model.verification import Request, Verification
from controller.api.routing.cursors import page_behind
from controller.loop.recovery.recovery_notes import RecoveryNote
from tests.controller.api.clicks import DOCUMENT, NOON
from tests.controller.api.fake_service import Service

LISTS = {
    "/dataflows": "name",
    "/dataflows/clicks/rollbacks": "generation",
    "/dataflows/clicks/rebuilds": "id",
    "/dataflows/clicks/verifications": "id",
    "/recoveries": "at",
}


class Verifications:
    """Knows five verifications."""

    def all(self, name: str) -> list[Verification]:
        return [Verification(f"v{n}", name, Request(), "running") for n in range(5)]


class Notes:
    """Knows five recoveries."""

    def notes(self) -> list[RecoveryNote]:
        return [RecoveryNote(at=NOON - timedelta(hours=n), term=1) for n in range(5)]


@pytest.fixture
def filled(filled: Service) -> Service:
    for name in "abcd":
        filled.controller.register(DOCUMENT | {"name": name})
    filled.controller.verifications = Verifications()  # type: ignore[assignment]
    filled.controller.recovery_notes = Notes()  # type: ignore[assignment]
    jobs = filled.controller.rebuild_jobs
    jobs.ended = [replace(jobs.show("clicks", "n1"), id=f"r{n}") for n in range(5)]
    for _ in range(5):
        filled.controller.amendments.roll_back("clicks", "1", who="", why="x")
    return filled


def asked(client: httpx.Client, path: str, **query: Any) -> dict[str, Any]:
    answer = client.get(f"/api/v1{path}", params=query)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


@pytest.mark.parametrize("path", LISTS)
def test_pages_together_are_the_whole_list(path: str, filled: Service) -> None:
    """Each item once, in the order of the list; without a limit all come at once."""
    with filled.client() as client:
        whole = asked(client, path)
        assert whole["cursor"] is None
        assert len(whole["items"]) == 5
        items, page = [], asked(client, path, limit=2)
        while True:
            items += page["items"]
            assert len(page["items"]) <= 2
            if page["cursor"] is None:
                break
            page = asked(client, path, limit=2, cursor=page["cursor"])
    key = LISTS[path]
    assert [one[key] for one in items] == [one[key] for one in whole["items"]]


def test_a_dataflow_that_is_deleted_between_two_pages_hides_no_other(filled: Service) -> None:
    """The next page begins behind its name."""
    with filled.client() as client:
        first = asked(client, "/dataflows", limit=2)
        del filled.store.records[first["items"][-1]["name"]]
        rest = asked(client, "/dataflows", cursor=first["cursor"])
    assert [one["name"] for one in rest["items"]] == ["c", "clicks", "d"]


def test_a_page_behind_what_is_lost_is_empty() -> None:
    """The oldest items go first, so nothing follows one that is lost; nothing comes twice."""
    assert page_behind("dcb", str, place="a", size=2) == ("", None)
    assert page_behind("edc", str, place="d", size=1) == ("c", None)
    assert page_behind("edcb", str, place="d", size=1) == ("c", "c")
