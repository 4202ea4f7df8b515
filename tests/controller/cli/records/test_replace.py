"""`cbp replace` and `cbp retract`, from the command line through REST to the tables."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import httpx
import pytest
from fastapi import FastAPI

from cbp.clock import Clock
from controller.access.access import Access
from controller.api import create_api
from controller.cli.main import main
from controller.cli.session import Session
from controller.ingest.repeated_files import is_correction, readmitted_key
from controller.settings import Settings
from controller.store.access import AuditFilter
from tests.controller.api.app_transport import TOKEN, AppTransport
from tests.controller.corrected_files import DOCUMENT, Shelf
from tests.controller.rest import lead_alone

pytestmark = pytest.mark.usefixtures("without_syncs")

CAUTIOUS = {"sums": {**DOCUMENT["stages"]["sums"], "any_order": False}}


@pytest.fixture
def shelf(tmp_path: Path) -> Iterator[Shelf]:
    """Return a service that has applied one day."""
    made = Shelf(tmp_path)
    made.put("monday", ("a", 1), ("b", 2))
    made.counts["monday"] = [("a", 1), ("b", 2)]
    made.take_in()
    yield made
    made.close()


def cautious(folder: Path, *names: str) -> Shelf:
    """Return a service of a stage that promises nothing, which has applied files of these names."""
    made = Shelf(folder, {**DOCUMENT, "stages": CAUTIOUS})
    for name in names:
        made.put(name, ("a", 1), ("b", 2))
        made.take_in()
    return made


@dataclass(frozen=True)
class Called:
    """What a command printed, and the status that it ended with."""

    status: int
    out: str
    err: str


class Working(Clock):
    """A clock whose waits take in and apply what came."""

    def __init__(self, shelf: Shelf) -> None:
        self._shelf = shelf

    def wait(self, seconds: float) -> None:
        """Let the service work."""
        self._shelf.take_in()


def call(
    shelf: Shelf, capsys: pytest.CaptureFixture[str], *given: str, token: str = TOKEN
) -> Called:
    """Call a command against the shelf's service."""
    api = _api(shelf, Settings(root=shelf.root, token=TOKEN))
    settings = Settings(root=shelf.root, token=token)
    with pytest.raises(SystemExit) as ended:
        main(list(given), session=Session(settings, AppTransport(api), clock=Working(shelf)))
    return Called(int(ended.value.code or 0), *capsys.readouterr())


def _api(shelf: Shelf, settings: Settings) -> FastAPI:
    return create_api(
        controller=shelf.world.controller,
        store=shelf.world.store,
        drop_folder=shelf.drop_folder,
        settings=settings,
        access=Access(settings, shelf.world.store),
        standing=lead_alone,
    )


def test_a_file_is_replaced_and_taken_back(
    shelf: Shelf, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """First as a dry run, which counts and changes nothing; with a reason, which the audit has."""
    right = tmp_path / "right.jsonl"
    right.write_text('{"word": "a", "n": 1}\n{"word": "c", "n": 3}\n')
    named = ("replace", "shelf", "a", "monday", str(right))
    tried = call(shelf, capsys, *named, "--dry-run")
    assert tried.status == 0, tried.err
    assert "1 record would be added, 1 record would be taken back" in tried.out
    shelf.take_in()
    shelf.require_right()
    assert call(shelf, capsys, *named).status == 2  # without a reason
    done = call(shelf, capsys, *named, "--reason", "a slip")
    assert done.status == 0, done.err
    shelf.counts["monday"] = [("a", 1), ("c", 3)]
    shelf.take_in()
    shelf.require_right()
    entries = shelf.world.store.audit(AuditFilter()).items
    assert any("replace" in entry.action for entry in entries)
    tried = call(shelf, capsys, "retract", "shelf", "a", "monday", "--dry-run", "--json")
    assert json.loads(tried.out)["records_gone"] == 2
    done = call(shelf, capsys, "retract", "shelf", "a", "monday", "--reason", "a test", "--json")
    assert json.loads(done.out)["same_as"]["why"] == "a test"
    shelf.counts.clear()
    shelf.take_in()
    shelf.require_right()
    gone = call(shelf, capsys, "retract", "shelf", "a", "monday", "--reason", "again")
    assert gone.status == 1
    assert "was retracted at" in gone.err
    assert "cbp drop shelf a FILE" in gone.err


@pytest.mark.parametrize(
    ("path", "shown"),
    [
        (b"2026/\xc3\xa4 b.jsonl", "2026/ä b.jsonl"),
        (b"back\\slash.jsonl", "back\\slash.jsonl"),
        (b"no\xfftext.jsonl", "no\\xfftext.jsonl"),
        (b"two\nlines.jsonl", "two\nlines.jsonl"),
    ],
)
def test_a_file_of_any_name_is_corrected(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], path: bytes, shown: str
) -> None:
    """Also one of a folder, and one whose name is no text, by the name that claims show."""
    nested = {**DOCUMENT["sources"]["a"], "nested": True}
    shelf = Shelf(tmp_path, {**DOCUMENT, "sources": {"a": nested}})
    at = os.fsencode(tmp_path / "drop/shelf/a/incoming") + b"/" + path
    os.makedirs(os.path.dirname(at), exist_ok=True)
    Path(os.fsdecode(at)).write_text('{"word": "a", "n": 1}\n')
    shelf.scan()
    shelf.world.clock.advance(2)
    shelf.take_in()
    assert [one.path for one in shelf.world.store.claims("shelf", "a").items] == [shown]
    right = tmp_path / "right.jsonl"
    right.write_text('{"word": "b", "n": 2}\n')
    named = ("replace", "shelf", "a", shown, str(right))
    assert call(shelf, capsys, *named, "--dry-run").status == 0
    done = call(shelf, capsys, *named, "--reason", "a slip")
    assert done.status == 0, done.err
    shelf.counts[shown] = [("b", 2)]
    shelf.take_in()
    shelf.require_right()
    assert call(shelf, capsys, "retract", "shelf", "a", shown, "--reason", "a test").status == 0
    shelf.counts.clear()
    shelf.take_in()
    shelf.require_right()
    shelf.close()


@pytest.mark.parametrize("what", ["retractions", "replacements"])
def test_a_correction_that_was_done_is_answered_again(shelf: Shelf, what: str) -> None:
    """A client that lost the answer repeats its request, whatever it or others did since."""
    settings = Settings(root=shelf.root, token=TOKEN)
    with httpx.Client(transport=AppTransport(_api(shelf, settings)), base_url=settings.url) as rest:

        def ask(key: str, name: str = "monday") -> httpx.Response:
            return rest.post(
                f"/api/v1/dataflows/shelf/sources/a/{what}",
                params={"name": name, "reason": "wrong"},
                headers={"Authorization": f"Bearer {TOKEN}", "Idempotency-Key": key},
                content=b'{"word": "c", "n": 3}' if what == "replacements" else b"",
            )

        first = ask("k1")
        assert first.status_code == 202, first.text
        shelf.take_in()
        if what == "replacements":
            shelf.retract("monday")
            shelf.take_in()
        assert ask("k2").json()["error_code"] == "file_retracted"
        shelf.world.store.forget_increments("shelf", "a", below=1)
        assert ask("k2").json()["error_code"] == "replace_refused"
        again = ask("k1")
        assert (again.status_code, again.json()["id"]) == (202, first.json()["id"])
        assert ask("k1", "tuesday").status_code == 422


def test_who_replaced_a_file_is_the_token_unless_it_is_said(shelf: Shelf) -> None:
    """The source's log has a name for each correction, also if a program asked for it."""
    settings = Settings(root=shelf.root, token=TOKEN)
    api = _api(shelf, settings)
    with httpx.Client(transport=AppTransport(api), base_url=settings.url) as client:
        path = "/api/v1/dataflows/shelf/sources/a/retractions"
        headers = {"Authorization": f"Bearer {TOKEN}"}
        asked = {"name": "monday", "reason": "wrong"}
        answer = client.post(path, params=asked, headers=headers)
    assert answer.json()["same_as"]["who"] == "token-file"


def test_a_stage_that_cannot_follow_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The refusal has a code, the stage and the reason; nothing was changed."""
    stages = {"sum": {"translator": "sum", "inputs": {"items": "a"}}}
    shelf = Shelf(tmp_path, {**DOCUMENT, "stages": stages})
    shelf.put("monday", ("a", 1))
    shelf.take_in()
    refused = call(shelf, capsys, "retract", "shelf", "a", "monday", "--reason", "a test", "--json")
    assert refused.status == 1
    error = json.loads(refused.out)
    assert error["error_code"] == "replace_refused"
    assert list(error["details"]["stages"]) == ["stages.sum"]
    assert shelf.world.store.next_index("shelf", "a") == 1
    shelf.close()


def test_a_stage_that_cannot_follow_waits_for_the_rebuild_that_was_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The file is taken in, all tables are built from the files that count, and swapped in."""
    shelf = cautious(tmp_path)
    for name, rows in (("monday", [("a", 1), ("b", 2)]), ("tuesday", [("a", 4)])):
        shelf.put(name, *rows)
        shelf.counts[name] = rows
        shelf.take_in()
    right = tmp_path / "right.jsonl"
    right.write_text('{"word": "a", "n": 1}\n{"word": "c", "n": 3}\n')
    named = ("replace", "shelf", "a", "monday", str(right), "--then-rebuild")
    tried = call(shelf, capsys, *named, "--dry-run")
    assert "1 record would be added, 1 record would be taken back" in tried.out, tried.err
    done = call(shelf, capsys, *named, "--reason", "a slip")
    assert done.status == 0, done.err
    assert "the new ones are swapped in" in done.out
    shelf.counts["monday"] = [("a", 1), ("c", 3)]
    shelf.require_right()
    gone = ("retract", "shelf", "a", "tuesday", "--then-rebuild", "--reason", "a test", "--json")
    assert call(shelf, capsys, *gone).status == 0
    del shelf.counts["tuesday"]
    shelf.require_right()
    shelf.close()


def test_a_corrected_file_that_is_refused_replaces_nothing(
    shelf: Shelf, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command ends with 1, says why, and no word of it says that the file was replaced."""
    wrong = tmp_path / "wrong.jsonl"
    wrong.write_text('{"word": "a", "n": 1}\n{"word": 5x}\n')
    named = ("replace", "shelf", "a", "monday")
    refused = call(shelf, capsys, *named, str(wrong), "--reason", "a slip", "--wait")
    assert refused.status == 1
    assert "is replaced" not in refused.out
    assert "files_refused" in refused.err
    assert "line 2" in refused.err
    shelf.require_right()
    same = tmp_path / "same.jsonl"
    same.write_text('{"word": "a", "n": 1}\n{"word": "b", "n": 2}\n')
    done = call(shelf, capsys, *named, str(same), "--reason", "a slip")
    assert done.status == 0, done.err
    assert "nothing changes" in done.out
    shelf.take_in()
    shelf.require_right()


def test_records_of_a_corrected_file_that_are_rejected_are_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As those of a dropped file are: the command says how many, and where they are listed."""
    sources = {"a": {**DOCUMENT["sources"]["a"], "on_bad_records": "reject_rows"}}
    shelf = Shelf(tmp_path / "service", {**DOCUMENT, "sources": sources})
    shelf.put("monday", ("a", 1), ("b", 2))
    shelf.take_in()
    right = tmp_path / "right.jsonl"
    right.write_text('{"word": "a", "n": 1}\n{"word": 5x}\n')
    named = ("replace", "shelf", "a", "monday", str(right), "--reason", "a slip", "--wait")
    done = call(shelf, capsys, *named)
    assert done.status == 0, done.err
    assert "1 record rejected (see: cbp rejects shelf a)" in " ".join(done.out.split())
    shelf.close()


def test_who_may_not_replace_readmits_no_replacement(
    shelf: Shelf, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An operator may readmit files, but the content of a replacement is an admin's decision."""
    wrong, right = tmp_path / "wrong.jsonl", tmp_path / "right.jsonl"
    wrong.write_text('{"word": 5x}\n')
    right.write_text('{"word": "a", "n": 1}\n')
    assert call(shelf, capsys, "replace", "shelf", "a", "monday", str(wrong), "--reason", "r")
    shelf.take_in()
    (claim,) = shelf.world.store.claims("shelf", "a", status="quarantined").items
    made = call(shelf, capsys, "tokens", "new", "helper", "--scope", "operator", "--json")
    named = ("quarantine", "readmit", "shelf", "a", claim.id, "--file", str(right))
    readmit = (*named, "--reason", "mended")
    helper = json.loads(made.out)["secret"]
    refused = call(shelf, capsys, *readmit, token=helper)
    assert refused.status != 0
    assert "scope" in refused.err
    shelf.take_in()
    shelf.require_right()
    assert call(shelf, capsys, *readmit).status == 0
    shelf.counts["monday"] = [("a", 1)]
    shelf.take_in()
    shelf.require_right()


def test_a_readmitted_replacement_can_wait_for_a_rebuild(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Like a new replacement: the refusal advises `--then-rebuild`, and with it all is rebuilt."""
    shelf = cautious(tmp_path / "service", "monday")
    wrong, right = tmp_path / "wrong.jsonl", tmp_path / "right.jsonl"
    wrong.write_text('{"word": 5x}\n')
    right.write_text('{"word": "a", "n": 1}\n')
    asked = ("replace", "shelf", "a", "monday", str(wrong), "--then-rebuild", "--reason", "r")
    assert call(shelf, capsys, *asked).status == 1
    (claim,) = shelf.world.store.claims("shelf", "a", status="quarantined").items
    named = ("quarantine", "readmit", "shelf", "a", claim.id, "--file", str(right))
    refused = call(shelf, capsys, *named, "--reason", "mended")
    assert refused.status != 0
    assert "--then-rebuild" in refused.err
    many = ("quarantine", "readmit", "shelf", "a", "--all", "--reason", "r", "--then-rebuild")
    assert "one claim only" in call(shelf, capsys, *many).err
    done = call(shelf, capsys, *named, "--reason", "mended", "--then-rebuild")
    assert done.status == 0, done.err
    assert "the new ones are swapped in" in done.out
    shelf.counts["monday"] = [("a", 1)]
    shelf.require_right()
    shelf.close()


def test_an_operator_readmits_a_replacement_of_nothing(
    shelf: Shelf, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The file that it was to replace is gone, so it is added, as any other file."""
    right = tmp_path / "right.jsonl"
    right.write_text('{"word": "a", "n": 1}\n')
    assert call(shelf, capsys, "replace", "shelf", "a", "monday", str(right), "--reason", "r")
    store = shelf.world.store
    (monday,) = store.claims("shelf", "a", status="accepted").items
    store.update_claim(replace(monday, status="withdrawn"))
    shelf.take_in()
    (claim,) = store.claims("shelf", "a", status="quarantined").items
    made = call(shelf, capsys, "tokens", "new", "helper", "--scope", "operator", "--json")
    named = ("quarantine", "readmit", "shelf", "a", claim.id, "--reason", "it counts")
    done = call(shelf, capsys, *named, token=json.loads(made.out)["secret"])
    assert done.status == 0, done.err


def test_a_dropped_correction_that_was_refused_is_readmitted_as_a_request(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where names are overwritten: --then-rebuild needs the scope `admin`, and a rebuild."""
    sources = {"a": {**DOCUMENT["sources"]["a"], "same_name": "replace"}}
    shelf = Shelf(tmp_path, {**DOCUMENT, "sources": sources})
    for name in ("monday", "tuesday"):
        shelf.put(name, ("a", 1), ("b", 2))
        shelf.take_in()
    shelf.world.store.forget_increments("shelf", "a", below=1)
    shelf.put("tuesday", ("a", 1))
    shelf.take_in()
    (claim,) = shelf.world.store.claims("shelf", "a", status="quarantined").items
    assert (claim.reason or {})["code"] == "replace_refused"
    assert is_correction(readmitted_key(claim, "1", mended=False, asks=True))
    assert not is_correction(readmitted_key(claim, "1", mended=False))
    named = ("quarantine", "readmit", "shelf", "a", claim.id, "--reason", "r", "--then-rebuild")
    made = call(shelf, capsys, "tokens", "new", "helper", "--scope", "operator", "--json")
    assert "scope" in call(shelf, capsys, *named, token=json.loads(made.out)["secret"]).err
    assert call(shelf, capsys, *named).status != 0
    (still,) = shelf.world.store.claims("shelf", "a", status="quarantined").items
    assert still.id == claim.id, "no rebuild can read what is not kept"
    shelf.close()


def test_a_replacement_that_no_rebuild_could_apply_is_not_readmitted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It stays in quarantine, as a new one would be refused; the stage goes on."""
    shelf = cautious(tmp_path, "monday", "tuesday")
    wrong, right = tmp_path / "wrong.jsonl", tmp_path / "right.jsonl"
    wrong.write_text('{"word": 5x}\n')
    right.write_text('{"word": "a", "n": 1}\n')
    asked = ("replace", "shelf", "a", "tuesday", str(wrong), "--then-rebuild", "--reason", "r")
    assert call(shelf, capsys, *asked).status == 1
    (claim,) = shelf.world.store.claims("shelf", "a", status="quarantined").items
    shelf.world.store.forget_increments("shelf", "a", below=1)
    named = ("quarantine", "readmit", "shelf", "a", claim.id, "--file", str(right))
    refused = call(shelf, capsys, *named, "--reason", "mended", "--then-rebuild")
    assert refused.status != 0
    (still,) = shelf.world.store.claims("shelf", "a", status="quarantined").items
    assert still.id == claim.id
    shelf.close()


def test_without_an_answer_the_new_tables_wait_for_their_swap(
    shelf: Shelf, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where nobody can be asked, `cbp rebuild` says how to swap, and ends with 0."""
    monkeypatch.setattr("sys.stdin", io.StringIO())
    built = call(shelf, capsys, "rebuild", "shelf")
    assert built.status == 0, built.err
    assert "Swap them in with: cbp rebuild shelf --swap" in " ".join(built.out.split())
    swapped = call(shelf, capsys, "rebuild", "shelf", "--swap")
    assert "shows the new tables" in " ".join(swapped.out.split()), swapped.err
    shelf.require_right()
