"""Dropping: whole files only, none replaced, nothing left behind."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from controller.cli.errors import FilesRefusedError
from controller.cli.session import Session, Waits
from controller.store.base import ClaimRecord, DataflowRecord, Judged, StageRecord
from tests.controller.api.app_transport import AppTransport
from tests.controller.api.clicks import DOCUMENT, NOON
from tests.controller.api.fake_service import Service
from tests.controller.cli.conftest import Cbp

SAME = {"by": "content", "claim": "c", "file": "old", "index": 7}


@pytest.fixture
def incoming(service: Service) -> Path:
    folder = service.settings.drop_root / "clicks" / "urls" / "incoming"
    folder.mkdir(parents=True)
    return folder


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(b"x" * 3_000_000)
    return path


def test_a_file_is_dropped_without_the_service(cbp: Cbp, incoming: Path, file: Path) -> None:
    """A copy under its own name; the original stays."""
    outcome = cbp("drop", "clicks", "urls", file)
    assert (outcome.status, "not compared with earlier files" in outcome.out) == (0, True)
    assert [path.name for path in incoming.iterdir()] == ["a.jsonl.gz"]
    assert (incoming / "a.jsonl.gz").read_bytes() == file.read_bytes()


def test_a_file_that_waits_is_never_replaced(
    cbp: Cbp, incoming: Path, file: Path, service: Service
) -> None:
    """Nor is another one dropped under a name that is not its own: a retry would not be known."""
    cbp("drop", "clicks", "urls", file)
    impatient = Waits(patience_seconds=0)
    session = Session(service.settings, AppTransport(service.app), impatient)
    file.write_bytes(b"other")
    outcome = cbp("drop", "clicks", "urls", file, "--json", session=session)
    assert (outcome.status, outcome.json["error_code"]) == (1, "file_waits")
    assert [path.name for path in incoming.iterdir()] == ["a.jsonl.gz"]
    assert (incoming / "a.jsonl.gz").stat().st_size == 3_000_000


def test_a_retry_of_a_file_that_waits_leaves_that_one(cbp: Cbp, incoming: Path, file: Path) -> None:
    """It is the same file; the command says so, and ends with status 3."""
    first = cbp("drop", "clicks", "urls", file)
    assert first.status == 0
    outcome = cbp("drop", "clicks", "urls", file, "--json")
    assert (outcome.status, outcome.json["items"][0]["status"]) == (3, "waits")
    assert cbp("drop", "clicks", "urls", file).status == 3
    assert [path.name for path in incoming.iterdir()] == ["a.jsonl.gz"]


class Limited(httpx.BaseTransport):
    """A service that knows the caller's token by one scope."""

    def __init__(self, service: Service, scope: str) -> None:
        self._inner, self._scope = AppTransport(service.app), scope

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        if request.url.path.endswith("/session"):
            return httpx.Response(200, json={"scope": self._scope})
        return self._inner.handle_request(request)


@pytest.mark.parametrize(
    ("scope", "status", "names"), [("viewer", 1, []), ("operator", 0, ["a.jsonl.gz"])]
)
def test_a_token_that_may_not_upload_may_not_drop(
    scope: str,
    status: int,
    names: list[str],
    cbp: Cbp,
    service: Service,
    incoming: Path,
    file: Path,
) -> None:
    """Although the caller could write into the folder; the code is that of a refused upload."""
    session = Session(service.settings, Limited(service, scope), Waits(poll_seconds=0))
    outcome = cbp("drop", "clicks", "urls", file, "--json", session=session)
    assert outcome.status == status
    assert outcome.json.get("error_code") == ("scope_too_low" if names == [] else None)
    assert [path.name for path in incoming.iterdir()] == names


@pytest.mark.parametrize(
    ("judged", "status", "became", "shown"),
    [
        (Judged("accepted"), 0, "dropped", ""),
        (Judged("accepted", SAME), 0, "dropped", "increment 7 of urls"),
        (
            Judged("duplicate", {**SAME, "by": "name_and_content"}),
            3,
            "duplicate",
            "increment 7 of urls",
        ),
        (Judged("duplicate", SAME), 3, "duplicate", "increment 7 of urls"),
        (Judged("quarantined", SAME), 1, "quarantined", "files_refused"),
    ],
)
def test_the_answer_says_at_once_what_a_file_is(
    judged: Judged,
    status: int,
    became: str,
    shown: str,
    cbp: Cbp,
    service: Service,
    incoming: Path,
    file: Path,
) -> None:
    """Before it is taken, with a status that a script can act on, and the earlier file."""
    service.store.records["clicks"] = DataflowRecord("clicks", 1, DOCUMENT, "/", "running", NOON)
    service.drop_folder.judged = judged
    outcome = cbp("drop", "clicks", "urls", file)
    assert (outcome.status, shown in outcome.out + outcome.err) == (status, True)
    other = file.rename(file.with_name("b.jsonl.gz"))
    (item,) = cbp("drop", "clicks", "urls", other, "--json").json["items"]
    assert (item["status"], item["same_as"], item["compared"]) == (became, judged.same_as, True)


def test_nothing_is_copied_through_a_link(cbp: Cbp, incoming: Path, file: Path) -> None:
    """A source's folder that leads to another's would hand it the file."""
    other = incoming.parents[1] / "other"
    incoming.parent.rename(other)
    incoming.parent.symlink_to(other)
    outcome = cbp("drop", "clicks", "urls", file, "--json")
    assert (outcome.status, outcome.json["error_code"]) == (1, "drop_folder_unusable")
    assert list((other / "incoming").iterdir()) == []


def test_a_name_that_is_no_text_is_dropped_as_it_is(
    cbp: Cbp, incoming: Path, tmp_path: Path, service: Service
) -> None:
    """Its bytes are its name; it cannot be asked about, and is shown with its bytes."""
    service.fill()
    path = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff.jsonl"))
    path.write_bytes(b"x")
    outcome = cbp("drop", "clicks", "urls", path)
    assert (outcome.status, os.listdir(os.fsencode(incoming))) == (0, [b"\xff.jsonl"])
    assert "\\udcff.jsonl" in outcome.out
    sent = cbp("drop", "clicks", "urls", path, "--upload", "--json")
    assert (sent.status, sent.json["error_code"]) == (1, "file_unreadable")


def test_a_file_that_cannot_be_read_is_told(cbp: Cbp, incoming: Path, tmp_path: Path) -> None:
    """Before anything is copied, when it is one of several."""
    good = tmp_path / "good.jsonl"
    good.write_bytes(b"{}")
    for bad in (tmp_path / "missing", tmp_path, tmp_path / ("long" * 100)):
        outcome = cbp("drop", "clicks", "urls", good, bad)
        assert (outcome.status, "file_unreadable" in outcome.err) == (1, True)
    assert list(incoming.iterdir()) == []


@pytest.mark.parametrize(
    "target", [("nobody", "urls"), ("clicks", "nobody"), ("..", "urls"), ("clicks/urls", ".")]
)
def test_a_source_that_is_not_there_is_told(
    cbp: Cbp, incoming: Path, file: Path, target: tuple[str, str]
) -> None:
    """No folder is made, and no name leads out of the drop folder."""
    outcome = cbp("drop", *target, file)
    assert outcome.status == 1
    assert "--upload" in outcome.err
    assert list(incoming.iterdir()) == []


class Arriving(list[ClaimRecord]):
    """Claims of which one more is there each time that somebody looks."""

    def __init__(self, *coming: ClaimRecord) -> None:
        super().__init__()
        self._coming = list(coming)

    def __iter__(self) -> Iterator[ClaimRecord]:
        seen = list(super().__iter__())
        if self._coming:
            self.insert(0, self._coming.pop(0))
        return iter(seen)


def claim(sequence: int, path: str, **more: Any) -> ClaimRecord:
    made = ClaimRecord("c", "clicks", "urls", sequence, path, 1, "accepted", NOON, index=sequence)
    return replace(made, id=f"c{sequence}", **more)


@pytest.mark.usefixtures("incoming")
def test_waiting_is_for_these_files_and_all_that_they_cause(
    cbp: Cbp, service: Service, file: Path
) -> None:
    """Older claims of the same name do not count, nor those that are not decided."""
    service.store.records["clicks"] = DataflowRecord("clicks", 1, {}, "/", "running", NOON)
    service.store.claim_records = Arriving(
        claim(1, "other"), claim(2, "a.jsonl.gz", status="claimed"), claim(3, "a.jsonl.gz")
    )
    service.store.claim_records.append(claim(0, "a.jsonl.gz"))
    left = [{"count": "may run"}, {"count": "runs"}, {}]
    service.controller.explaining.left = lambda name, waits=None: left.pop(0)  # type: ignore[method-assign]
    outcome = cbp("drop", "clicks", "urls", file, "--wait", "--json")
    assert (outcome.status, left) == (0, [])
    assert [item["index"] for item in outcome.json["items"]] == [3]


def test_a_file_that_came_before_is_told(
    cbp: Cbp, service: Service, incoming: Path, file: Path
) -> None:
    """Dropping it again shows why nothing happens; a new one becomes an increment."""
    service.store.records["clicks"] = DataflowRecord("clicks", 1, {}, "/", "running", NOON)
    again = claim(1, "a.jsonl.gz", status="duplicate", index=None)
    service.store.claim_records = Arriving(again)
    known = cbp("drop", "clicks", "urls", file, "--wait", "--json")
    assert (known.status, known.json["items"][0]["status"]) == (3, "duplicate")
    (incoming / "a.jsonl.gz").unlink()
    service.store.claim_records = Arriving(claim(2, "a.jsonl.gz"))
    outcome = cbp("drop", "clicks", "urls", file, "--wait")
    assert (outcome.status, "increment 2 of urls" in outcome.out) == (0, True)


@pytest.mark.usefixtures("incoming")
@pytest.mark.parametrize("json_", [False, True])
def test_a_refused_file_hides_no_accepted_one(
    cbp: Cbp, service: Service, file: Path, json_: bool
) -> None:
    """The accepted files of the same command are waited for, and shown beside the refused one."""
    service.store.records["clicks"] = DataflowRecord("clicks", 1, {}, "/", "running", NOON)
    bad = file.with_name("bad.jsonl")
    bad.write_bytes(b"no")
    reason = {"message": "line 3 is wrong"}
    service.store.claim_records = Arriving(
        claim(1, "a.jsonl.gz"), claim(2, "bad.jsonl", status="quarantined", reason=reason)
    )
    left = [{"count": "may run"}, {}]
    service.controller.explaining.left = lambda name, waits=None: left.pop(0)  # type: ignore[method-assign]
    more = ["--json"] if json_ else []
    outcome = cbp("drop", "clicks", "urls", file, bad, "--wait", *more)
    assert (outcome.status, left) == (1, [])
    if json_:
        assert outcome.json["error_code"] == "files_refused"
        items = outcome.json["details"]["items"]
        assert [(item["status"], item["index"]) for item in items[:1]] == [("accepted", 1)]
    else:
        assert "a.jsonl.gz, increment 1 of urls, applied" in outcome.out
        assert "bad.jsonl, quarantined: line 3 is wrong" in outcome.out
        assert "files_refused" in outcome.err


@pytest.mark.usefixtures("incoming")
def test_stages_that_stop_hide_no_refused_file(cbp: Cbp, service: Service, file: Path) -> None:
    """What was refused is printed before the error that ends the command."""
    service.store.records["clicks"] = DataflowRecord("clicks", 1, DOCUMENT, "/", "running", NOON)
    bad = file.with_name("bad.jsonl")
    bad.write_bytes(b"no")
    reason = {"message": "line 3 is wrong"}
    service.store.claim_records = Arriving(
        claim(1, "a.jsonl.gz"), claim(2, "bad.jsonl", status="quarantined", reason=reason)
    )
    service.store.stage_records = [
        StageRecord("clicks", "count", 0, NOON, paused_because="too many failures")
    ]
    service.controller.explaining.left = (  # type: ignore[method-assign]
        lambda name, waits=None: {"count": "may run"}
    )
    outcome = cbp("drop", "clicks", "urls", file, bad, "--wait")
    assert (outcome.status, "stages_stopped" in outcome.err) == (1, True)
    assert "bad.jsonl, quarantined: line 3 is wrong" in outcome.out


def test_waiting_ends_when_files_are_refused_or_stages_stopped(
    cbp: Cbp, service: Service, incoming: Path, file: Path
) -> None:
    """With a coded error that says what, and status 1."""
    service.store.records["clicks"] = DataflowRecord("clicks", 1, DOCUMENT, "/", "running", NOON)
    refused = claim(1, "a.jsonl.gz", status="quarantined", reason={"message": "line 3 is wrong"})
    service.store.claim_records = Arriving(refused)
    outcome = cbp("drop", "clicks", "urls", file, "--wait", "--json")
    assert (outcome.status, outcome.json["error_code"]) == (1, "files_refused")
    assert "line 3 is wrong" in outcome.json["message"]
    service.store.claim_records = Arriving(claim(2, "a.jsonl.gz"))
    (incoming / "a.jsonl.gz").unlink()
    service.store.stage_records = [
        StageRecord("clicks", "count", 0, NOON, paused_because="too many failures")
    ]
    service.controller.explaining.left = (  # type: ignore[method-assign]
        lambda name, waits=None: {"count": "may run"}
    )
    outcome = cbp("drop", "clicks", "urls", file, "--wait", "--json")
    assert (outcome.status, outcome.json["error_code"]) == (1, "stages_stopped")
    assert outcome.json["details"]["stages"] == {"count": "too many failures"}


@pytest.mark.parametrize(
    ("target", "words"),
    [
        (("clicks", "url"), ("there is no source of clicks 'url'", "did you mean urls?")),
        (("clicks", "zzz"), ("there is no source of clicks 'zzz'", "its sources are urls")),
        (("click", "urls"), ("there is no dataflow 'click'", "did you mean clicks?")),
        (("other", "urls"), ("there is no drop folder", "register the dataflow first")),
    ],
)
def test_a_misspelt_name_is_told_with_the_near_ones(
    cbp: Cbp, incoming: Path, file: Path, target: tuple[str, str], words: tuple[str, str]
) -> None:
    """Rather than that the dataflow is not registered."""
    outcome = cbp("drop", *target, file, "--json")
    assert (outcome.status, outcome.json["error_code"]) == (1, "not_found")
    for word in words:
        assert word in outcome.json["message"]


@pytest.mark.parametrize("why", ["a.gz: it is cut", "a.gz, line 3: it is cut"])
def test_a_refused_file_is_named_once(why: str) -> None:
    """Its reason begins with its name, with or without a line."""
    assert FilesRefusedError("clicks", {"a.gz": why}, []).message.count("a.gz") == 1
