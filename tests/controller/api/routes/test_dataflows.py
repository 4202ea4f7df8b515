"""Dataflows over REST: register, repeat, list, show, steer, delete."""

from __future__ import annotations

import threading
from dataclasses import replace
from datetime import timedelta

import httpx
import pytest

from controller.api.answers.request_errors import IdempotencyKeyBusyError, IdempotencyKeyReusedError
from controller.api.requests.idempotency import IdempotencyKeys
from controller.run_logs import run_logs_of
from tests.controller.api.clicks import DOCUMENT, NOON
from tests.controller.api.fake_service import Service

PATH = "/api/v1/dataflows"


def test_a_registration_says_where_it_is(client: httpx.Client) -> None:
    """201 with the address under which the dataflow can be shown."""
    answer = client.post(PATH, json=DOCUMENT)
    assert answer.status_code == 201
    shown = client.get(answer.headers["location"])
    assert shown.json()["document"] == DOCUMENT
    assert shown.json()["summary"]["name"] == "clicks"


def test_a_name_is_taken_once(client: httpx.Client) -> None:
    """The second registration of a name is refused."""
    client.post(PATH, json=DOCUMENT)
    answer = client.post(PATH, json=DOCUMENT)
    assert (answer.status_code, answer.json()["error_code"]) == (409, "already_exists")


def test_a_repeated_request_gets_the_first_answer(client: httpx.Client) -> None:
    """With an Idempotency-Key a client may repeat a request whose answer was lost."""
    headers = {"Idempotency-Key": "k1"}
    first = client.post(PATH, json=DOCUMENT, headers=headers)
    again = client.post(PATH, json=DOCUMENT, headers=headers)
    assert (first.status_code, again.status_code) == (201, 201)
    assert again.json()["summary"] == first.json()["summary"]


def test_a_key_does_not_excuse_another_document(client: httpx.Client) -> None:
    """Neither the same key with another document, nor another key for a taken name."""
    client.post(PATH, json=DOCUMENT, headers={"Idempotency-Key": "k1"})
    other = {**DOCUMENT, "description": "another one"}
    reused = client.post(PATH, json=other, headers={"Idempotency-Key": "k1"})
    assert (reused.status_code, reused.json()["error_code"]) == (422, "idempotency_key_reused")
    taken = client.post(PATH, json=other, headers={"Idempotency-Key": "k2"})
    assert (taken.status_code, taken.json()["error_code"]) == (409, "already_exists")


def test_a_key_whose_request_is_being_served_is_busy() -> None:
    """Two requests with one key never run at the same time."""
    keys = IdempotencyKeys()
    with keys.use("k", b"1"), pytest.raises(IdempotencyKeyBusyError), keys.use("k", b"1"):
        pass
    with keys.use("k", b"1"):
        pass


def test_only_the_latest_keys_are_remembered() -> None:
    """The memory is bounded: at n keys the first is known, at n + 1 it is forgotten."""
    keys = IdempotencyKeys(keys_max=2)
    for key in ("a", "b"):
        with keys.use(key, b"1"):
            pass
    with pytest.raises(IdempotencyKeyReusedError), keys.use("a", b"2"):
        pass
    with keys.use("c", b"1"), keys.use("a", b"2"):
        pass


def test_keys_are_safe_between_threads() -> None:
    """Two threads with one key are served one at a time."""
    keys, inside, leave = IdempotencyKeys(), threading.Event(), threading.Event()

    def hold() -> None:
        with keys.use("k", b"1"):
            inside.set()
            leave.wait(120)

    thread = threading.Thread(target=hold)
    thread.start()
    assert inside.wait(120)
    with pytest.raises(IdempotencyKeyBusyError), keys.use("k", b"1"):
        pass
    leave.set()
    thread.join(120)


def test_a_check_changes_nothing(client: httpx.Client, service: Service) -> None:
    """Validation answers the flows with their columns, and registers nothing."""
    answer = client.post(f"{PATH}/validate", json=DOCUMENT)
    assert answer.json()["flows"] == {
        "urls": "url STRING, site BIGINT",
        "count.totals": "url STRING, n BIGINT",
    }
    assert answer.json()["wiring"] == {"count": {"urls": "urls"}}
    assert service.store.records == {}


@pytest.mark.parametrize("path", [PATH, f"{PATH}/validate", f"{PATH}/clicks"])
def test_every_mistake_has_its_line_and_column(client: httpx.Client, path: str) -> None:
    """Checked, registered or changed: the same places, that of the syntax included."""
    send = client.put if path.endswith("clicks") else client.post
    text = "name: clicks\nstages:\n  count: {translator: nobody, input: {}}\nfoo: 1\n"
    answer = send(path, content=text, headers={"Content-Type": "application/yaml"})
    places = {
        mistake["where"]: (mistake["line"], mistake["column"])
        for mistake in answer.json()["details"]["mistakes"]
    }
    assert places["document.foo"] == (4, 1)
    assert places["stages.count.translator"] == (3, 23)
    assert places["stages.count.input"] == (3, 31)
    answer = send(path, content=b"name: \xff", headers={"Content-Type": "application/yaml"})
    (mistake,) = answer.json()["details"]["mistakes"]
    assert (mistake["code"], mistake["line"], mistake["column"]) == ("document_syntax", 1, 7)


def test_lag_is_the_age_of_the_oldest_unread_increment(filled: Service) -> None:
    """The oldest increment that waits decides, not the newest and not the latest run."""
    filled.clock.move(hours=2)
    with filled.client() as client:
        before = client.get(PATH).json()["items"][0]
        oldest = filled.store.increment_records.pop()
        later = replace(oldest, created_at=NOON + timedelta(hours=1))
        filled.store.increment_records.append(later)
        after = client.get(PATH).json()["items"][0]
    assert 3500 < before["lag_seconds"] - after["lag_seconds"] <= 3600
    assert (before["queued_increments"], before["queued_records"]) == (2, 7)
    assert before["last_success_at"] == "2026-11-01T12:00:02Z"


def test_the_list_counts_the_files_in_quarantine(filled: Service) -> None:
    """By source, and no others: a dataflow may be up to date and still need a decision."""
    with filled.client() as client:
        refused = client.get(PATH).json()["items"][0]["quarantined"]
        filled.store.claim_records.clear()
        after = client.get(PATH).json()["items"][0]["quarantined"]
    assert (refused, after) == ({"urls": 1}, {})


def test_nothing_that_waits_is_no_lag(client: httpx.Client) -> None:
    """An idle dataflow has no lag, rather than a lag of zero."""
    client.post(PATH, json=DOCUMENT)
    summary = client.get(PATH).json()["items"][0]
    assert (summary["lag_seconds"], summary["state"]) == (None, "ok")


def test_a_stage_says_why_it_waits(client: httpx.Client) -> None:
    """In words that an operator can act on."""
    client.post(PATH, json=DOCUMENT)
    stage = client.get(f"{PATH}/clicks").json()["stages"][0]
    assert stage["waiting"] == "waits for an increment on urls"
    assert stage["states"][0]["key"] == "url STRING, site BIGINT"
    assert stage["outputs"] == {"count.totals": "url STRING, n BIGINT"}


def test_a_stage_that_stopped_says_why(filled: Service) -> None:
    """The reason of the stop wins over the reason of the last decision."""
    stopped = replace(filled.store.stage_records[0], paused_because="3 tries failed", failures=3)
    filled.store.stage_records = [stopped]
    filled.store.run_records = []
    with filled.client() as client:
        shown = client.get(f"{PATH}/clicks").json()
    assert (shown["summary"]["state"], shown["summary"]["failures"]) == ("stopped", 3)
    assert (shown["stages"][0]["state"], shown["stages"][0]["waiting"]) == (
        "stopped",
        "3 tries failed",
    )


def test_a_package_that_is_gone_does_not_hide_the_dataflow(filled: Service) -> None:
    """What does not need the translators is still shown, with the reason."""
    record = filled.store.records["clicks"]
    document = {**record.document, "stages": {"count": {"translator": "gone", "inputs": {}}}}
    filled.store.records["clicks"] = replace(record, document=document)
    with filled.client() as client:
        shown = client.get(f"{PATH}/clicks").json()
    assert "gone" in shown["definition_problem"]
    assert shown["stages"][0]["queues"][0]["unread"] == 2


def test_pause_and_resume_are_idempotent(filled: Service) -> None:
    """Each answers with the state of the dataflow, as often as it is asked."""
    with filled.client() as client:
        for action, desired in [("pause", "paused"), ("resume", "running")]:
            for _ in range(2):
                answer = client.post(f"{PATH}/clicks/{action}")
                assert (answer.status_code, answer.json()["desired"]) == (200, desired)


def test_a_stopped_stage_can_be_tried_again(filled: Service) -> None:
    """The wish reaches the controller; a stage that does not exist is refused."""
    with filled.client() as client:
        assert client.post(f"{PATH}/clicks/stages/count/retry").status_code == 200
        assert client.post(f"{PATH}/clicks/stages/nobody/retry").status_code == 404
        assert client.post(f"{PATH}/clicks/stages/count/pause").status_code == 200
        assert client.post(f"{PATH}/clicks/stages/nobody/pause").status_code == 404
        assert client.post(f"{PATH}/clicks/stages/count/resume").status_code == 200
        assert client.post(f"{PATH}/clicks/stages/nobody/resume").status_code == 404
    asked = [(what, "clicks", "count") for what in ("retry", "pause", "resume")]
    assert filled.controller.asked == asked


def test_a_priority_is_one_of_three_words(filled: Service) -> None:
    """It is shown with the stage; another word, another stage or no word changes nothing."""
    with filled.client() as client:
        at = f"{PATH}/clicks/stages/count/priority"
        for priority in ("high", "low", "low"):
            assert client.put(f"{at}/{priority}").json()["name"] == "clicks"
            assert client.get(f"{PATH}/clicks").json()["stages"][0]["priority"] == priority
        assert client.put(f"{at}/urgent").status_code == 422
        assert client.put(f"{PATH}/clicks/stages/nobody/priority/high").status_code == 404
        assert client.put(at).status_code == 404
        assert client.get(f"{PATH}/clicks").json()["stages"][0]["priority"] == "low"


@pytest.mark.parametrize(("query", "purge"), [("", False), ("?purge=true", True)])
def test_tables_are_removed_only_on_request(filled: Service, query: str, purge: bool) -> None:
    """Deletion keeps the tables and the logs of runs, unless `purge` is true."""
    logs = run_logs_of(filled.settings)
    for name in ("clicks", "other"):
        logs.append(name, "r", {"event": "x"})
    with filled.client() as client:
        answer = client.delete(f"{PATH}/clicks{query}")
        assert (answer.status_code, answer.content) == (204, b"")
        assert client.get(f"{PATH}/clicks").status_code == 404
        assert client.delete(f"{PATH}/clicks").status_code == 404
    assert filled.controller.asked == [("delete", "clicks", purge)]
    assert len(logs.read("clicks", "r", None, limit=1).lines) == (not purge)
    assert len(logs.read("other", "r", None, limit=1).lines) == 1


def test_a_misspelt_purge_deletes_nothing(filled: Service) -> None:
    """An unknown parameter is refused, never ignored."""
    with filled.client() as client:
        assert client.delete(f"{PATH}/clicks?purgee=true").status_code == 422
    assert "clicks" in filled.store.records


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/nobody"),
        ("POST", "/nobody/pause"),
        ("POST", "/nobody/resume"),
        ("DELETE", "/nobody"),
        ("GET", "/nobody/increments"),
        ("GET", "/nobody/claims"),
        ("GET", "/nobody/flows/urls/records"),
        ("GET", "/nobody/state/count/counts?url=a&site=1"),
        ("POST", "/nobody/sources/urls/files?name=a"),
    ],
)
def test_an_unknown_dataflow_is_told_so(client: httpx.Client, method: str, path: str) -> None:
    """404 that names what is missing, on every route below a dataflow."""
    answer = client.request(method, PATH + path)
    assert answer.status_code == 404
    assert answer.json()["details"] == {"kind": "dataflow", "name": "nobody"}


def test_a_new_version_is_put_under_its_name(client: httpx.Client, service: Service) -> None:
    """What the author chose reaches the change, and what becomes of each stage comes back."""
    client.post(PATH, json=DOCUMENT)
    query = {"rebuild": "count", "keep": ["a", "b"], "dry_run": "true", "expected_version": "1"}
    answer = client.put(f"{PATH}/clicks", json=DOCUMENT, params=query)
    assert answer.status_code == 200
    assert [(s["name"], s["state"]) for s in answer.json()["stages"]] == [("count", "rebuilt")]
    assert {r["code"] for r in answer.json()["refused"]} == {"choice_unknown"}
    asked = service.controller.asked[-1]
    assert asked[1].keep == {"a", "b"}
    assert asked[2:] == (1, True)


def test_a_version_is_of_the_dataflow_that_is_named(client: httpx.Client) -> None:
    """Another name in the document is a mistake, an unknown dataflow is not made."""
    client.post(PATH, json=DOCUMENT)
    answer = client.put(f"{PATH}/other", json=DOCUMENT)
    assert (answer.status_code, answer.json()["error_code"]) == (422, "dataflow_invalid")
    unknown = client.put(f"{PATH}/other", json={**DOCUMENT, "name": "other"})
    assert unknown.status_code == 404
    assert client.put(f"{PATH}/clicks", json=DOCUMENT, params={"from": "x"}).status_code == 422
