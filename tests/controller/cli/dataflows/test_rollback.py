"""`cbp rollback`, and the routes below it: shown first, asked for with a reason, listed."""

from __future__ import annotations

import pytest

from tests.controller.api.fakes import Service
from tests.controller.cli.conftest import Cbp

BACK = ("rollback", "clicks", "--to", "count:3")


@pytest.fixture(autouse=True)
def _filled(service: Service) -> None:
    service.fill()


def test_the_plan_is_shown_and_nothing_done(cbp: Cbp, service: Service) -> None:
    """Tables with records and bytes, queues, epochs, and what is dropped."""
    outcome = cbp(*BACK, "--dry-run", "--drop-later")
    assert outcome.status == 0, outcome.err
    for words in ("flows/count.totals", "60", "40", "count.urls", "2 increment(s) of urls"):
        assert words in outcome.out
    assert service.controller.asked == []
    plan = cbp(*BACK, "--dry-run", "--json").json
    assert plan["rollback"]["undone"] == {"count": 2}
    assert plan["tables"][0]["bytes_then"] == 600
    assert plan["closes_again"] == 2
    assert plan["queued_before"] == {}


def test_what_is_not_dropped_is_said(cbp: Cbp) -> None:
    """In the plan and in the answer, also without a question; nothing is said where all goes."""
    words = "3 increment(s) of urls had arrived before position 4: they stay queued"
    assert words in cbp(*BACK, "--dry-run", "--drop-later").out
    plan = cbp(*BACK, "--dry-run", "--drop-later", "--json").json
    assert plan["queued_before"] == {"urls": 3}
    outcome = cbp(*BACK, "--drop-later", "--yes", "--reason", "a bad file")
    assert (outcome.status, outcome.out.count(words)) == (0, 1)
    assert "records now" not in outcome.out
    for more in (["--dry-run"], ["--yes", "--reason", "a bad file"]):
        assert "had arrived" not in cbp(*BACK, *more).out


def test_it_is_done_with_a_reason_and_listed(cbp: Cbp, service: Service) -> None:
    """Who and why reach the controller, and are listed afterwards."""
    refused = cbp(*BACK, "--yes")
    assert (refused.status, "--reason" in refused.err) == (2, True)
    assert cbp(*BACK, "--dry-run").status == 0
    outcome = cbp(*BACK, "--yes", "--reason", "a bad file", "--pause")
    assert outcome.status == 0, outcome.err
    assert "position 4" in outcome.out
    ((_, name, to, who, why, drop, pause, _request),) = service.controller.amendments.asked
    assert (name, to, why, drop, pause) == ("clicks", "count:3", "a bad file", False, True)
    (listed,) = cbp("rollback", "clicks", "--list", "--json").json["items"]
    assert (listed["by"], listed["reason"], listed["generation"]) == (who, "a bad file", 1)
    assert "a bad file" in cbp("rollback", "clicks", "--list").out


def test_where_to_go_is_listed(cbp: Cbp) -> None:
    """With what `--to` takes, the run behind which it lies, and when that was; JSON too."""
    outcome = cbp("rollback", "clicks", "--moments")
    assert outcome.status == 0, outcome.err
    for words in ("count:5", "count:0", "before the first run"):
        assert words in outcome.out
    items = cbp("rollback", "clicks", "--moments", "--limit", "2", "--json").json["items"]
    assert [(one["position"], one["stage"], one["epoch"]) for one in items] == [
        (6, "count", 5),
        (5, "count", 4),
    ]
    assert "--moments" in cbp("rollback", "clicks").err


def test_wrong_calls_are_refused(cbp: Cbp, service: Service) -> None:
    """Without a place, or with one that is none, or of a dataflow that is none."""
    assert cbp("rollback", "clicks").status == 2
    outcome = cbp("rollback", "clicks", "--to", "soon", "--reason", "x", "--json", "--dry-run")
    assert outcome.json["error_code"] == "definition_invalid"
    outcome = cbp("rollback", "nobody", "--to", "1", "--reason", "x", "--json")
    assert outcome.json["error_code"] == "not_found"
    assert service.controller.asked == []


def test_a_key_names_the_request(service: Service) -> None:
    """The controller is told the Idempotency-Key, so that it undoes once."""
    with service.client() as client:
        path, query = "/api/v1/dataflows/clicks/rollback", {"to": "1", "reason": "x"}
        answer = client.post(path, params=query, headers={"Idempotency-Key": "k"})
        assert answer.status_code == 200
        assert service.controller.amendments.asked[0][-1] == "k"
        again = client.post(path, params={**query, "to": "2"}, headers={"Idempotency-Key": "k"})
        assert again.json()["error_code"] == "idempotency_key_reused"
