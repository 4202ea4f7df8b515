"""Tokens that are limited to dataflows, where the path of a route does not name the dataflow."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from cbp.engine.storage.files import LocalFiles
from cbp.errors import NotFoundError
from cbp.model.run.intention import RunStatus
from cbp.model.verification import Request, Verification
from controller.access.scopes import Scope
from controller.loop.recovery.recovery_notes import RecoveryNotes
from tests.controller.api.all_routes import routes
from tests.controller.api.clicks import NOON
from tests.controller.api.fake_service import Service
from tests.controller.api.security.callers import make_token

SCOPES = [scope.value for scope in Scope]
ASK_BY_THEMSELVES = {
    "activity_show",
    "explain_account",
    "explain_lineage",
    "freshness_show",
    "recovery_list_recoveries",
    "runs_cancel",
    "runs_cancel_many",
    "runs_list_runs",
    "runs_retry_many",
    "runs_show",
    "runs_show_log",
    "runs_show_stack",
    "sessions_show",
    "verifications_cancel",
    "verifications_list_differences",
    "verifications_show",
}


class TwoVerifications:
    """Has one of `clicks` and one of `other`, which run until they are cancelled."""

    def __init__(self) -> None:
        self.kept = {
            name: Verification(name, dataflow, Request(), "running")
            for name, dataflow in (("mine", "clicks"), ("theirs", "other"))
        }

    def show(self, id_: str) -> Verification:
        if id_ not in self.kept:
            raise NotFoundError(kind="verification", name=id_)
        return self.kept[id_]

    def cancel(self, id_: str) -> Verification:
        self.kept[id_] = replace(self.kept[id_], status="cancelled")
        return self.kept[id_]


@pytest.fixture
def verifications(filled: Service) -> TwoVerifications:
    made = TwoVerifications()
    filled.controller.verifications = made  # type: ignore[assignment]
    return made


def limited(service: Service, scope: str) -> httpx.Client:
    """Return a client whose token is limited to `clicks`."""
    secret = make_token(service, f"limited-{scope}", scope, dataflows=["clicks"])
    return service.client(token=secret)


def ticking() -> Callable[[], datetime]:
    """Return a clock that goes on by a second whenever it is read."""
    seconds = itertools.count()
    return lambda: NOON + timedelta(seconds=next(seconds))


def code_of(answer: httpx.Response) -> Any:
    return answer.json().get("error_code")


def test_only_these_routes_decide_by_themselves() -> None:
    """A further one needs a test of what it shows to a limited token."""
    assert {route.action for route in routes() if route.any_dataflow} == ASK_BY_THEMSELVES


@pytest.mark.parametrize("scope", SCOPES)
@pytest.mark.parametrize("what", ["", "/differences"])
def test_a_verification_is_shown_if_its_dataflow_is_granted(
    what: str, scope: str, filled: Service, verifications: TwoVerifications
) -> None:
    """Whatever the scope; that of another dataflow is refused, and an unknown one is unknown."""
    with limited(filled, scope) as client:
        assert client.get(f"/api/v1/verifications/mine{what}").status_code == 200
        refused = client.get(f"/api/v1/verifications/theirs{what}")
        assert (refused.status_code, code_of(refused)) == (403, "dataflow_not_granted")
        assert "other" not in str(refused.json()["details"])
        assert client.get(f"/api/v1/verifications/none{what}").status_code == 404
    with filled.client() as client:
        assert client.get(f"/api/v1/verifications/theirs{what}").status_code == 200


@pytest.mark.parametrize("scope", SCOPES)
def test_a_verification_is_cancelled_if_its_dataflow_is_granted(
    scope: str, filled: Service, verifications: TwoVerifications
) -> None:
    """By operators and admins; that of another dataflow goes on. The audit log has the dataflow."""
    with limited(filled, scope) as client:
        own = client.post("/api/v1/verifications/mine/cancel")
        foreign = client.post("/api/v1/verifications/theirs/cancel")
    if scope == "viewer":
        assert code_of(own) == code_of(foreign) == "scope_too_low"
    else:
        assert own.status_code == 202
        assert code_of(foreign) == "dataflow_not_granted"
    cancelled = {name: one.ended for name, one in verifications.kept.items()}
    assert cancelled == {"mine": scope != "viewer", "theirs": False}
    with filled.client() as client:
        entries = client.get("/api/v1/audit", params={"action": "verifications_cancel"}).json()
    done = [(one["dataflow"], one["outcome"]) for one in entries["items"]]
    assert ("clicks", "done") in done or scope == "viewer"
    assert ("other", "done") not in done


@pytest.mark.parametrize("scope", SCOPES)
def test_recoveries_are_shown_without_those_of_other_dataflows(
    scope: str, filled: Service, tmp_path: Path
) -> None:
    """Neither their names nor folders that were removed; asking for them by name is refused."""
    journal = RecoveryNotes(files=LocalFiles(), root=str(tmp_path / "tables"), clock=ticking())
    filled.controller.recovery_notes = journal
    for term, dataflows in ((1, ["other"]), (2, ["clicks", "other"]), (3, [])):
        journal.begin(term=term, instance="here")
        for name in dataflows:
            journal.redone(name, "count", 7)
        journal.end(["/tables/.purged/other"], {})
    with limited(filled, scope) as client:
        answer = client.get("/api/v1/recoveries")
        (shown,) = answer.json()["items"]
        assert (shown["term"], shown["removed"]) == (2, [])
        assert [one["dataflow"] for one in shown["dataflows"]] == ["clicks"]
        assert "other" not in answer.text
        assert client.get("/api/v1/recoveries?dataflow=clicks").json()["items"] == [shown]
        refused = client.get("/api/v1/recoveries?dataflow=other")
        assert (refused.status_code, code_of(refused)) == (403, "dataflow_not_granted")
    with filled.client() as client:
        everything = client.get("/api/v1/recoveries").json()["items"]
    assert [one["term"] for one in everything] == [3, 2, 1]


def two_runs(service: Service) -> None:
    """Fill the store with one run of `clicks` and one of `other`, which are not over."""
    (run, *_), record = service.store.run_records, service.store.records["clicks"]
    service.store.records["other"] = replace(record, name="other")
    service.store.run_records = [
        replace(run, id=id_, dataflow=dataflow, status=RunStatus.INTENDED)
        for id_, dataflow in (("mine", "clicks"), ("theirs", "other"))
    ]


@pytest.mark.parametrize("scope", SCOPES)
@pytest.mark.parametrize(
    ("what", "status"), [("", 200), ("/log", 200), ("/lineage", 200), ("/account", 404)]
)
def test_a_run_is_shown_if_its_dataflow_is_granted(
    what: str, status: int, scope: str, filled: Service
) -> None:
    """Whatever the scope; that of another dataflow is refused, and an unknown one is unknown.

    The fakes have no account of a run, so 404 is what the route itself answers.
    """
    two_runs(filled)
    with limited(filled, scope) as client:
        assert client.get(f"/api/v1/runs/mine{what}").status_code == status
        refused = client.get(f"/api/v1/runs/theirs{what}")
        assert (refused.status_code, code_of(refused)) == (403, "dataflow_not_granted")
        assert client.get(f"/api/v1/runs/none{what}").status_code == 404
    with filled.client() as client:
        assert client.get(f"/api/v1/runs/theirs{what}").status_code != 403


@pytest.mark.parametrize("scope", SCOPES)
def test_activity_is_that_of_granted_dataflows(scope: str, filled: Service) -> None:
    """Others are neither shown nor counted, nor are their runs and errors; by name: refused."""
    two_runs(filled)
    (theirs,) = (run for run in filled.store.run_records if run.id == "theirs")
    failed = replace(theirs, id="failed", status=RunStatus.FAILED)
    filled.store.run_records.append(failed)
    with limited(filled, scope) as client:
        shown = client.get("/api/v1/activity").json()
        assert [one["summary"]["name"] for one in shown["dataflows"]] == ["clicks"]
        assert ([run["id"] for run in shown["running"]], shown["errors"]) == (["mine"], [])
        assert shown["left_out"] == 0
        assert code_of(client.get("/api/v1/activity?dataflow=other")) == "dataflow_not_granted"
    with filled.client() as client:
        whole = client.get("/api/v1/activity?limit=1").json()
        assert (len(whole["running"]), whole["left_out"]) == (2, 1)
        assert [one["run"] for one in whole["errors"]] == ["failed"]


@pytest.mark.parametrize("scope", SCOPES)
def test_freshness_is_that_of_granted_dataflows(scope: str, filled: Service) -> None:
    """Others neither are shown nor make the whole worse; by name: refused."""
    two_runs(filled)
    with limited(filled, scope) as client:
        shown = client.get("/api/v1/freshness").json()
        assert [one["dataflow"] for one in shown["dataflows"]] == ["clicks"]
        assert code_of(client.get("/api/v1/freshness?dataflow=other")) == "dataflow_not_granted"
    with filled.client() as client:
        whole = client.get("/api/v1/freshness").json()
        assert [one["dataflow"] for one in whole["dataflows"]] == ["clicks", "other"]


@pytest.mark.parametrize("scope", SCOPES)
def test_runs_are_listed_of_a_dataflow_that_is_granted(scope: str, filled: Service) -> None:
    """A limited token has to name the dataflow; another one, or none, is refused."""
    two_runs(filled)
    with limited(filled, scope) as client:
        (item,) = client.get("/api/v1/runs?dataflow=clicks").json()["items"]
        assert item["id"] == "mine"
        for query in ("", "?dataflow=other"):
            assert code_of(client.get(f"/api/v1/runs{query}")) == "dataflow_not_granted"
    with filled.client() as client:
        assert len(client.get("/api/v1/runs").json()["items"]) == 2


@pytest.mark.parametrize("scope", SCOPES)
@pytest.mark.parametrize("many", [False, True])
def test_a_run_is_cancelled_if_its_dataflow_is_granted(
    many: bool, scope: str, filled: Service
) -> None:
    """That of another dataflow goes on; in a request for many, only its item says so."""
    two_runs(filled)
    body = {"runs": ["mine", "theirs"]}
    with limited(filled, scope) as client:
        if many:
            answer = client.post("/api/v1/runs/cancel", json=body)
            parts = [
                (item["status"], (item["error"] or {}).get("error_code"))
                for item in answer.json().get("items", [])
            ]
        else:
            answers = [client.post(f"/api/v1/runs/{run}/cancel") for run in body["runs"]]
            parts = [(answer.status_code, code_of(answer)) for answer in answers]
    if scope == "viewer":
        assert filled.controller.asked == []
    else:
        assert parts == [(202, None), (403, "dataflow_not_granted")]
        assert filled.controller.asked == [("cancel", "mine")]


def test_runs_of_others_are_not_tried_again(filled: Service) -> None:
    """In a request for many, those of a granted dataflow are judged, the others refused."""
    two_runs(filled)
    with limited(filled, "operator") as client:
        items = client.post("/api/v1/runs/retry", json={"runs": ["mine", "theirs"]}).json()["items"]
    codes = [item["error"]["error_code"] for item in items]
    assert codes == ["run_not_due", "dataflow_not_granted"]
