"""Quarantine over REST and the command line: seen, understood, mended, and admitted once."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from controller.cli import main
from controller.cli.session import Session
from controller.settings import Settings
from tests.controller.api.app_transport import TOKEN, AppTransport
from tests.controller.rest import api_of_world
from tests.controller.world import ONE, World

pytestmark = pytest.mark.usefixtures("without_syncs")

NAME = "<img src=x onerror=alert(1)> 'ü\".jsonl"
LINES = [json.dumps({"word": "x", "n": n}) for n in range(20)]
BAD = "\n".join([*LINES[:11], '{"word": "<b>y</b>", "n": "many"}', *LINES[12:], ""]).encode()
AT = "/api/v1/dataflows/one/sources/a"


class Shop:
    """One source with a real API; passes are made by hand."""

    def __init__(self, root: Path) -> None:
        self.world = World(root)
        self.world.controller.register(ONE)
        settings = Settings(root=root, token=TOKEN)
        self.app = api_of_world(self.world, settings)
        self.session = Session(settings, AppTransport(self.app))
        self.client = httpx.Client(
            transport=AppTransport(self.app),
            base_url="http://127.0.0.1:8420",
            headers={"Authorization": f"Bearer {TOKEN}"},
        )
        self.incoming = settings.drop_root / "one" / "a" / "incoming"

    def scan(self) -> None:
        record = self.world.store.dataflow("one")
        dataflow = self.world.controller.dataflow("one")
        for _ in range(3):
            self.app.state.parts.drop_folder.scan(record, dataflow)
            self.world.clock.advance(5)

    def drop(self, data: bytes = BAD, name: str = NAME) -> str:
        """Drop a file; return the id of its claim."""
        (self.incoming / name).write_bytes(data)
        self.scan()
        return str(self.get("/quarantine")["items"][0]["id"])

    def get(self, path: str, **query: Any) -> Any:
        answer = self.client.get(f"{AT}{path}", params=query)
        assert answer.is_success, answer.text
        return answer.json()

    def files(self) -> Any:
        answer = self.client.get("/api/v1/dataflows/one/sources")
        return answer.json()["items"][0]["files"]

    def words(self) -> list[int]:
        answer = self.client.get("/api/v1/dataflows/one/flows/a/records", params={"limit": 100})
        return [row["n"] for row in answer.json()["items"]]


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    made = Shop(tmp_path)
    yield made
    made.client.close()
    made.world.close()


def test_a_refused_file_shows_the_lines_around_its_mistake(shop: Shop) -> None:
    """With the mistake at its line, all of a small file, and its name as text."""
    shown = shop.get(f"/quarantine/{shop.drop()}")
    assert shown["claim"]["path"] == NAME
    assert [line["number"] for line in shown["lines"]] == [1, 9, 10, 11, 12, 13, 14, 15]
    (marked,) = [line for line in shown["lines"] if line["mistakes"]]
    assert (marked["number"], marked["text"]) == (12, '{"word": "<b>y</b>", "n": "many"}')
    assert "expected BIGINT" in marked["mistakes"][0]
    assert shown["content"].encode() == BAD
    assert shown["file_bytes"] == len(BAD)


@pytest.mark.parametrize(
    ("data", "content", "hint"),
    [
        (b'{"word": 1}\n' + b" " * 70_000 + b"\n", None, ""),
        (b"\x1f\x8b\x08\x00broken", None, "a binary file has no lines to show"),
        (b'{"word": "\xff"}\n', None, ""),
    ],
    ids=["large", "compressed", "not UTF-8"],
)
def test_what_is_no_small_text_is_not_to_be_edited(
    shop: Shop, data: bytes, content: str | None, hint: str
) -> None:
    """Its lines are shown in part, or the reason why there are none."""
    shown = shop.get(f"/quarantine/{shop.drop(data)}")
    assert (shown["content"], shown["hint"]) == (content, hint)
    assert all(len(line["text"]) <= 1_001 for line in shown["lines"])


def test_a_mended_file_counts_once(shop: Shop) -> None:
    """The body replaces the file; counts move on; the original can still be fetched."""
    claim = shop.drop()
    assert shop.files()["quarantined"] == 1
    mended = BAD.replace(b'"many"', b"11")
    path = f"{AT}/quarantine/{claim}/readmit"
    answer = shop.client.post(path, content=mended, params={"reason": "text", "by": "me"})
    assert answer.json()["claim"]["status"] == "readmitted"
    again = shop.client.post(path, content=mended, params={"reason": "text", "by": "me"})
    assert (again.status_code, again.json()["error_code"]) == (409, "file_decided")
    shop.scan()
    assert shop.words() == list(range(20))
    files = shop.files()
    assert (files["quarantined"], files["decided"], files["accepted"], files["applied"]) == (
        0,
        1,
        1,
        0,
    )
    shop.world.ticks()
    assert shop.files()["applied"] == 1
    assert shop.client.get(f"{AT}/quarantine/{claim}/content").content == BAD
    decision = shop.get(f"/quarantine/{claim}")["claim"]["reason"]["decision"]
    assert (decision["by"], decision["why"], decision["mended"]) == ("me", "text", True)


def test_a_refused_file_is_a_download_whatever_it_holds(shop: Shop) -> None:
    """A browser never takes it for a page, and its own name is in no header."""
    page = b"<!doctype html><script>alert(1)</script>\n"
    claim = shop.drop(page, name='a"><script>.html')
    answer = shop.client.get(f"{AT}/quarantine/{claim}/content")
    assert answer.content == page
    assert answer.headers["content-type"] == "application/octet-stream"
    assert answer.headers["content-disposition"] == f'attachment; filename="{claim}.jsonl"'
    assert answer.headers["x-content-type-options"] == "nosniff"


def test_who_decides_is_the_caller_unless_it_is_said(shop: Shop) -> None:
    """The name of the token, or that it was the token file."""
    claim = shop.drop()
    path = f"{AT}/quarantine/{claim}/discard"
    answer = shop.client.post(path, params={"reason": "text"}).json()
    assert answer["claim"]["reason"]["decision"]["by"] == "token-file"


def test_an_empty_body_is_a_file_and_not_the_original(shop: Shop) -> None:
    """Without `as_it_is` the body counts: a file of no bytes, which has no records."""
    claim = shop.drop()
    answer = shop.client.post(f"{AT}/quarantine/{claim}/readmit", params={"reason": "x"})
    assert answer.json()["readmitted"]["bytes"] == 0
    shop.scan()
    assert shop.words() == []


@pytest.mark.parametrize("action", ["readmit", "discard"])
def test_a_decision_needs_a_reason_and_a_file_of_the_source(shop: Shop, action: str) -> None:
    """Another source's claim, an unknown one, and an accepted one are not found."""
    claim = shop.drop()
    assert shop.client.post(f"{AT}/quarantine/{claim}/{action}").status_code == 422
    for other in ("nothing", claim + "0"):
        answer = shop.client.post(f"{AT}/quarantine/{other}/{action}", params={"reason": "x"})
        assert answer.status_code == 404
    assert shop.client.get(f"{AT}/quarantine/..%2f..%2fx").status_code in (404, 422)


def test_commands_decide(shop: Shop, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """`cbp quarantine list | show | readmit | discard | restore`, as REST does it."""

    def cbp(*arguments: str) -> str:
        with pytest.raises(SystemExit) as ended:
            main(list(arguments), session=shop.session)
        printed = capsys.readouterr()
        assert not ended.value.code, printed.err + printed.out
        return printed.out

    claim = shop.drop()
    on = ("one", "a", claim)
    listed = json.loads(cbp("quarantine", "list", "one", "a", "--json"))
    (code,) = {one["reason"]["code"] for one in listed["items"]}
    assert json.loads(cbp("quarantine", "list", "one", "a", "--code", code, "--json")) == listed
    earlier = ("--until", listed["items"][-1]["created_at"])
    for none in (("--code", "line_end"), earlier):
        assert "nothing is in quarantine" in cbp("quarantine", "list", "one", "a", *none)
    assert [one["id"] for one in listed["items"]] == [claim]
    assert ">     12  " in cbp("quarantine", "show", *on)
    cbp("quarantine", "discard", *on, "--reason", "test")
    assert "nothing is in quarantine" in cbp("quarantine", "list", "one", "a")
    cbp("quarantine", "restore", *on)
    mended = tmp_path / "mended.jsonl"
    mended.write_bytes(BAD.replace(b'"many"', b"11"))
    made = json.loads(
        cbp("quarantine", "readmit", *on, "--file", str(mended), "--reason", "text", "--json")
    )
    assert made["readmitted"]["status"] == "claimed"
    shop.scan()
    assert shop.words() == list(range(20))
    assert "quarantined" in cbp("sources", "one")


def test_all_refused_files_are_decided_on_at_once(
    shop: Shop, capsys: pytest.CaptureFixture[str]
) -> None:
    """Oldest first, with a report for each; a refusal stops no other and ends with 1."""

    def cbp(*arguments: str) -> tuple[Any, int]:
        with pytest.raises(SystemExit) as ended:
            main(["quarantine", *arguments, "--json"], session=shop.session)
        printed = capsys.readouterr()
        return json.loads(printed.out), int(ended.value.code or 0)

    more = [f'{{"word": "{n}", "n": {n}, "new": 1}}\n'.encode() for n in range(3)]
    claims = [shop.drop(data, f"{n}.jsonl") for n, data in enumerate(more)]
    other = shop.drop()
    document = dict(ONE, sources={"a": {"schema": "word STRING, n BIGINT, new BIGINT"}})
    shop.world.controller.change(document)
    every = ("one", "a", "--all", "--code", "column_unknown", "--reason", "declared")
    answer, status = cbp("readmit", *every)
    assert (status, [one["id"] for one in answer["items"]]) == (0, claims)
    assert [one["readmitted"]["status"] for one in answer["items"]] == ["claimed"] * 3
    shop.scan()
    assert shop.words() == [0, 1, 2]
    answer, status = cbp("discard", "one", "a", claims[0], other, "--reason", "tests")
    assert [one["error"] is None for one in answer["items"]] == [False, True]
    assert status == 1
    assert cbp("readmit", *every) == ({"items": []}, 0)
    for wrong in (("one", "a"), ("one", "a", other, "--all"), ("one", "a", other, "--code", "x")):
        with pytest.raises(SystemExit) as ended:
            main(["quarantine", "readmit", *wrong, "--reason", "x"], session=shop.session)
        assert ended.value.code == 2
