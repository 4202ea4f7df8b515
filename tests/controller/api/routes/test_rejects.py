"""Records that were put aside, over REST and the command line: seen, mended, dropped again."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from controller.cli import main
from tests.controller.api.rejecting_shop import AT, SOUND, WRONG, Shop

pytestmark = pytest.mark.usefixtures("without_syncs")


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    made = Shop(tmp_path)
    yield made
    made.close()


def test_what_was_put_aside_is_listed_in_pages(shop: Shop) -> None:
    """Newest increment first, in pages of any size; the others are records of the flow."""
    shop.drop("a.jsonl", [SOUND[0], WRONG[0], SOUND[1]])
    shop.drop("b.jsonl", [WRONG[1], WRONG[2], SOUND[2]])
    assert shop.numbers() == [0, 1, 2]
    whole = shop.get(f"{AT}/rejects")
    assert whole["cursor"] is None
    assert [(one["increment"], one["file"], one["line"]) for one in whole["items"]] == [
        (1, "b.jsonl", 1),
        (1, "b.jsonl", 2),
        (0, "a.jsonl", 2),
    ]
    assert [one["text"] for one in whole["items"]] == [WRONG[1], WRONG[2], WRONG[0]]
    assert [one["code"] for one in whole["items"]] == ["json_no_object", "value_type", "value_type"]
    paged, cursor = list[Any](), None
    for _ in range(3):
        page = shop.get(f"{AT}/rejects", limit=1, **({"cursor": cursor} if cursor else {}))
        paged += page["items"]
        cursor = page["cursor"]
    assert (paged, cursor) == (whole["items"], None)
    (source,) = shop.get("/api/v1/dataflows/one")["sources"]
    assert source["on_bad_records"] == {"reject_rows": {"count": 5, "share": 1.0}}


def test_some_of_them_are_asked_for(shop: Shop, capsys: pytest.CaptureFixture[str]) -> None:
    """By code, by increment and by the time at which their file came; pages, too."""
    shop.drop("a.jsonl", [SOUND[0], WRONG[0], SOUND[1]])
    shop.drop("b.jsonl", [WRONG[1], WRONG[2], SOUND[2]])
    first, second, third = shop.get(f"{AT}/rejects")["items"]
    for query, expected in (
        ({"code": "json_no_object"}, [first]),
        ({"code": "value_type", "increment": 1}, [second]),
        ({"increment": 0}, [third]),
        ({"code": "line_end"}, []),
        ({"since": third["rejected_at"]}, [first, second, third]),
        ({"until": third["rejected_at"]}, []),
    ):
        assert shop.get(f"{AT}/rejects", **query)["items"] == expected, query
    page = shop.get(f"{AT}/rejects", code="value_type", limit=1)
    assert page["items"] == [second]
    page = shop.get(f"{AT}/rejects", code="value_type", limit=1, cursor=page["cursor"])
    assert (page["items"], page["cursor"]) == ([third], None)
    with pytest.raises(SystemExit):
        main(["rejects", "one", "a", "--text", "--increment", "0"], session=shop.session)
    assert capsys.readouterr().out.splitlines() == [WRONG[0]]


def test_a_source_that_is_not_there_has_no_rejects(shop: Shop) -> None:
    """404 for a name that nothing has; an empty list where nothing was put aside."""
    assert shop.get(f"{AT}/rejects")["items"] == []
    answer = shop.client.get(f"{AT[:-1]}x/rejects")
    assert (answer.status_code, answer.json()["error_code"]) == (404, "not_found")
    answer = shop.client.get(f"{AT}/rejects", params={"cursor": "c-1/2"})
    assert answer.json()["error_code"] == "cursor_invalid"


def test_the_command_prints_what_can_be_mended_and_dropped(
    shop: Shop, capsys: pytest.CaptureFixture[str]
) -> None:
    """`cbp rejects` in a table, as JSON as REST has it, and as the lines alone."""

    def cbp(*arguments: str) -> str:
        with pytest.raises(SystemExit) as ended:
            main(list(arguments), session=shop.session)
        printed = capsys.readouterr()
        assert not ended.value.code, printed.err + printed.out
        return printed.out

    assert "no record was rejected" in cbp("rejects", "one", "a")
    shop.drop("a.jsonl", [SOUND[0], WRONG[0], SOUND[1]])
    assert "value_type" in cbp("rejects", "one", "a")
    assert json.loads(cbp("rejects", "one", "a", "--json")) == shop.get(f"{AT}/rejects", limit=20)
    lines = cbp("rejects", "one", "a", "--text").splitlines()
    assert lines == [WRONG[0]]
    shop.drop("mended.jsonl", [line.replace('"many"', "7") for line in lines])
    assert shop.numbers() == [0, 1, 7]


@pytest.mark.soak
def test_all_texts_are_printed_and_what_is_missing_is_said(
    shop: Shop, capsys: pytest.CaptureFixture[str]
) -> None:
    """Page after page into a file; a limit, a text that was cut and odd bytes are on stderr."""

    def cbp(*arguments: str) -> tuple[list[str], str]:
        with pytest.raises(SystemExit) as ended:
            main(["rejects", "one", "a", *arguments], session=shop.session)
        assert not ended.value.code
        printed = capsys.readouterr()
        return printed.out.splitlines(), printed.err

    wrong = [f'{{"word": "y", "n": "{at}"}}' for at in range(125)]
    for at in range(0, len(wrong), 5):
        shop.drop(f"{at}.jsonl", [SOUND[0], *wrong[at : at + 5]])
    lines, said = cbp("--text")
    assert (sorted(lines), said) == (sorted(wrong), "")
    lines, said = cbp("--text", "--limit", "30")
    assert len(lines) == 30
    assert "there are more rows" in said
    (cursor,) = re.findall(r"--cursor (\S+?)[,.;]?\s", said)
    more, said = cbp("--text", "--cursor", cursor)
    assert (sorted(lines + more), said) == (sorted(wrong), "")
    listed, said = cbp("--json")
    assert len(json.loads("\n".join(listed))["items"]) == 20
    assert "there are more rows" in said

    odd = [b'{"n": "\xff"}', b'{"n": "' + b"x" * 2_000 + b'"}']
    (shop.incoming / "odd.jsonl").write_bytes(b"\n".join([SOUND[1].encode(), *odd, b""]))
    shop.drop("last.jsonl", [SOUND[2]])
    lines, said = cbp("--text")
    assert len(lines) == 127
    assert '{"n": "\\xff"}' in lines
    assert "1 record is cut: only the first 1,000 characters are kept" in said
    assert "1 record has bytes that are not text in the source's encoding" in said
