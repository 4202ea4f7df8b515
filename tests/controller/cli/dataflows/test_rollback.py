"""`cbp rollback`, and the routes below it: shown first, asked for with a reason, listed."""

from __future__ import annotations

from datetime import datetime

import pytest

from cbp.model.version.rollback_point import parse_point
from controller.api.routing.cursors import ListCursors
from tests.controller.api.fake_service import Service
from tests.controller.cli.conftest import Cbp

BACK = ("rollback", "clicks", "--to", "count:3")


@pytest.fixture(autouse=True)
def _filled(service: Service) -> None:
    service.fill()


def test_the_plan_is_shown_and_nothing_done(cbp: Cbp, service: Service) -> None:
    """Tables with records and bytes, queues, epochs, and what is dropped."""
    outcome = cbp(*BACK, "--dry-run", "--drop-later")
    assert outcome.status == 0, outcome.err
    for words in ("flows/count.totals", "60", "40", "count.urls", "2 increments of urls"):
        assert words in outcome.out
    assert service.controller.asked == []
    plan = cbp(*BACK, "--dry-run", "--json").json
    assert plan["rollback"]["undone"] == {"count": 2}
    assert plan["tables"][0]["bytes_then"] == 600
    assert plan["closes_again"] == 2
    assert plan["queued_before"] == {}


def test_the_files_that_it_undoes_are_named(cbp: Cbp) -> None:
    """The first ones with the plan, and how many; all of them by pages, whose cursors are checked.

    A file whose increment is forgotten has its number.
    """
    shown = cbp(*BACK, "--dry-run", "--drop-later").out
    assert "25 files are undone" in shown
    assert "and 5 more (to list all: --files)" in shown
    plan = cbp(*BACK, "--dry-run", "--json").json
    assert (plan["files_total"], len(plan["files"])) == (25, 20)
    assert plan["files"][0]["name"] == "a.jsonl"
    assert plan["files"][19]["name"] == ""
    rest = cbp(*BACK, "--files", "--cursor", plan["files_cursor"], "--json").json
    assert [one["index"] for one in plan["files"] + rest["items"]] == list(range(25))
    numbers, cursor = [], list[str]()
    for size in (10, 10, 5):
        page = cbp(*BACK, "--files", "--drop-later", "--limit", "10", *cursor, "--json").json
        assert len(page["items"]) == size
        numbers += [(one["index"], one["again"]) for one in page["items"]]
        cursor = ["--cursor", page["cursor"]]
    assert numbers == [(n, n < 23) for n in range(25)]
    assert page["cursor"] is None
    cursors = ListCursors(("rollbacks_list_undone_files", ("name", "clicks"))).about("count:3")
    behind = cursors.seal("urls/21")
    listed = cbp(*BACK, "--files", "--drop-later", "--cursor", behind or "").out
    for words in ("22", "applied again", "dropped", "no longer known"):
        assert words in listed
    assert "a.jsonl" not in listed
    for wrong in ("urls", "urls/x", "urls/-1", "/3", "urls/" + "9" * 40):
        for cursor_ in (wrong, cursors.seal(wrong) or ""):
            refused = cbp(*BACK, "--files", "--cursor", cursor_, "--json").json
            assert refused["error_code"] == "cursor_invalid", wrong


def test_what_is_not_dropped_is_said(cbp: Cbp) -> None:
    """In the plan and in the answer, also without a question; nothing is said where all goes."""
    words = "3 increments of urls arrived before position 4, but had not been read"
    assert words in cbp(*BACK, "--dry-run", "--drop-later").out
    plan = cbp(*BACK, "--dry-run", "--drop-later", "--json").json
    assert plan["queued_before"] == {"urls": 3}
    outcome = cbp(*BACK, "--drop-later", "--yes", "--reason", "a bad file")
    assert (outcome.status, outcome.out.count(words)) == (0, 1)
    assert "records now" not in outcome.out
    for more in (["--dry-run"], ["--yes", "--reason", "a bad file"]):
        assert "arrived before" not in cbp(*BACK, *more).out


def test_what_an_earlier_roll_back_left_out_is_said_if_it_comes_back(cbp: Cbp) -> None:
    """In the plan and in the answer, with the names by which it can be left out again."""
    words = "urls that an earlier roll-back left out or dropped will be applied again"
    back = ("rollback", "clicks", "--to", "count:1")
    assert words in cbp(*back, "--dry-run").out
    assert cbp(*back, "--dry-run", "--json").json["comes_back"] == {"urls": [7]}
    assert "urls/7 (to leave them out again: --without)" in cbp(*back, "--yes", "--reason", "x").out
    assert words not in cbp(*back, "--dry-run", "--without", "urls/7").out


def test_it_is_done_with_a_reason_and_listed(cbp: Cbp, service: Service) -> None:
    """Who and why reach the controller, and are listed afterwards."""
    refused = cbp(*BACK, "--yes")
    assert (refused.status, "--reason" in refused.err) == (2, True)
    assert cbp(*BACK, "--dry-run").status == 0
    outcome = cbp(*BACK, "--yes", "--reason", "a bad file", "--pause")
    assert outcome.status == 0, outcome.err
    assert "position 4" in outcome.out
    ((_, name, to, who, why, drop, without, pause, _request),) = service.controller.amendments.asked
    assert (name, to, why, drop, pause) == ("clicks", "count:3", "a bad file", False, True)
    assert without == ()
    (listed,) = cbp("rollback", "clicks", "--list", "--json").json["items"]
    assert (listed["by"], listed["reason"], listed["generation"]) == (who, "a bad file", 1)
    assert "a bad file" in cbp("rollback", "clicks", "--list").out


def test_named_files_are_left_out(cbp: Cbp, service: Service) -> None:
    """Each by an option of its own; the plan and the list of files say which."""
    named = ("--without", "urls/3", "--without", "urls/24")
    outcome = cbp(*BACK, *named, "--dry-run")
    assert "left out: 2 increments of urls" in outcome.out, outcome.err
    plan = cbp(*BACK, *named, "--dry-run", "--json").json
    assert plan["rollback"]["left_out"] == {"urls": [3, 24]}
    files = cbp(*BACK, *named, "--files", "--json").json["items"]
    assert [one["index"] for one in files if not one["again"]] == [3, 24]
    assert cbp(*BACK, *named, "--yes", "--reason", "x").status == 0
    assert service.controller.amendments.asked[0][6] == ("urls/3", "urls/24")


def test_where_to_go_is_listed(cbp: Cbp) -> None:
    """With what `--to` takes, the run before it, and when that was; JSON and pages, too."""
    outcome = cbp("rollback", "clicks", "--moments")
    assert outcome.status == 0, outcome.err
    for words in ("count:5", "count:0", "before the first run"):
        assert words in outcome.out
    items = cbp("rollback", "clicks", "--moments", "--limit", "2", "--json").json["items"]
    assert [(one["position"], one["stage"], one["epoch"]) for one in items] == [
        (6, "count", 5),
        (5, "count", 4),
    ]
    page = cbp("rollback", "clicks", "--moments", "--limit", "4", "--json").json
    rest = cbp("rollback", "clicks", "--moments", "--cursor", page["cursor"], "--json").json
    numbers = [one["position"] for one in page["items"] + rest["items"]]
    assert (numbers, rest["cursor"]) == ([6, 5, 4, 3, 2, 1, 0], None)
    assert page["cursor"] in cbp("rollback", "clicks", "--moments", "--limit", "4").out
    assert "--moments" in cbp("rollback", "clicks").err
    assert "before the first run" not in cbp("rollback", "clicks", "--moments", "--drop-later").out


def test_a_listed_moment_can_be_pasted(cbp: Cbp) -> None:
    """With its zone and to the millisecond: `--to` reads it as that very moment."""
    items = cbp("rollback", "clicks", "--moments", "--json").json["items"]
    lines = cbp("rollback", "clicks", "--moments").out.splitlines()
    for one in items:
        (line,) = (line for line in lines if line.split()[:1] == [str(one["position"])])
        if one["at"] is not None:
            at = datetime.fromisoformat(one["at"])
            assert parse_point(line.split()[-1]).at_ms == round(at.timestamp() * 1000)


def test_wrong_calls_are_refused(cbp: Cbp, service: Service) -> None:
    """Without a place, or with one that is none, or of a dataflow that is none."""
    assert cbp("rollback", "clicks").status == 2
    outcome = cbp("rollback", "clicks", "--to", "soon", "--reason", "x", "--json", "--dry-run")
    assert outcome.json["error_code"] == "definition_invalid"
    outcome = cbp("rollback", "nobody", "--to", "1", "--reason", "x", "--json")
    assert outcome.json["error_code"] == "not_found"
    assert service.controller.asked == []


def test_a_key_names_the_request(service: Service) -> None:
    """The controller gets the Idempotency-Key, so that it undoes once."""
    with service.client() as client:
        path, query = "/api/v1/dataflows/clicks/rollback", {"to": "1", "reason": "x"}
        answer = client.post(path, params=query, headers={"Idempotency-Key": "k"})
        assert answer.status_code == 202
        assert service.controller.amendments.asked[0][-1] == "k"
        again = client.post(path, params={**query, "to": "2"}, headers={"Idempotency-Key": "k"})
        assert again.json()["error_code"] == "idempotency_key_reused"
