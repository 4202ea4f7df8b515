"""Results: a flow from its newest increment, and figures of each increment."""

from __future__ import annotations

import csv
import io
import json
from itertools import chain
from typing import Any

import httpx
import pytest

from cbp.errors import DefinitionError, NotFoundError
from cbp.model.flow.increment import DataFile, Increment
from controller.api.answers.record_files import csv_text, json_text
from controller.loop.reading.flow_increments import figures_of
from controller.settings import Settings
from tests.controller.api.app_transport import TOKEN, AppTransport
from tests.controller.rest import api_of_world
from tests.controller.world import ONE, World
from tests.controller.world_commands import call_json, call_text


def fill(world: World) -> None:
    """Give source `a` increments of 3, 1, 0 and 2 records."""
    world.controller.register(ONE)
    numbers = iter(range(100))
    for size in (3, 1, 0, 2):
        if size:
            world.arrive("one", "a", *[("x", next(numbers)) for _ in range(size)])
        else:
            world.enqueue("one", Increment("a", 2, 2))


def get(world: World, path: str, **query: Any) -> httpx.Response:
    settings = Settings(root=world.root, token=TOKEN)
    transport = AppTransport(api_of_world(world, settings))
    query = {name: value for name, value in query.items() if value is not None}
    with httpx.Client(transport=transport, base_url="http://127.0.0.1:8420/api/v1") as client:
        headers = {"Authorization": f"Bearer {TOKEN}"}
        return client.get(f"/dataflows/one/{path}", params=query, headers=headers)


@pytest.mark.parametrize("limit", [1, 2, 3, 100])
def test_pages_from_the_end_are_the_flow_with_its_increments_turned_round(
    world: World, limit: int
) -> None:
    """Every record once; records of one increment keep their order."""
    fill(world)
    pages, cursor = [], None
    for _ in range(10):
        answer = get(world, "flows/a/records", newest=True, limit=limit, cursor=cursor)
        pages.append([row["n"] for row in answer.json()["items"]])
        cursor = answer.json()["cursor"]
        if cursor is None:
            break
        world.enqueue("one", Increment("a", world.store.next_index("one", "a"), 9))  # not seen
    assert list(chain(*pages)) == [4, 5, 3, 0, 1, 2]
    assert all(len(page) == limit for page in pages[:-1])


@pytest.mark.parametrize("cursor", ["", "1.0", "n1", "n-1.0", "n1.0\n"])
def test_a_cursor_from_elsewhere_is_refused(world: World, cursor: str) -> None:
    """Cursors of pages from the oldest increment do not fit."""
    fill(world)
    with pytest.raises(DefinitionError) as caught:
        world.controller.reading.results.page("one", "a", cursor, 1)
    assert caught.value.mistake.code == "cursor_invalid"


def test_figures_are_those_of_the_records(world: World) -> None:
    """Per increment, oldest first, empty ones included; without a column only sizes."""
    fill(world)
    items = get(world, "flows/a/series", column="n").json()["items"]
    told = [(one["index"], one["records"], one["read"], one["total"], one["mean"]) for one in items]
    assert told == [
        (0, 3, 3, 3.0, 1.0),
        (1, 1, 1, 3.0, 3.0),
        (2, 0, 0, None, None),
        (3, 2, 2, 9, 4.5),
    ]
    sizes = get(world, "flows/a/series", limit=2).json()["items"]
    assert [(one["index"], one["records"], one["read"]) for one in sizes] == [(2, 0, 0), (3, 2, 0)]


def test_figures_leave_out_what_is_no_number() -> None:
    """Null, NaN and infinity are counted, and do not spoil the others."""
    increment = Increment("a", 4, 4, (DataFile("f", 5, 10),))
    made = figures_of(increment, [1, None, float("nan"), float("inf"), 3])
    assert (made.read, made.nulls, made.least, made.most, made.mean) == (5, 3, 1.0, 3.0, 2.0)
    assert figures_of(increment, [None]).mean is None


def test_figures_of_another_column_are_refused(world: World) -> None:
    """A text column, and one that does not exist, are named."""
    fill(world)
    with pytest.raises(DefinitionError) as caught:
        world.controller.reading.results.figures("one", "a", "word", 1)
    assert caught.value.mistake.code == "column_not_numeric"
    with pytest.raises(NotFoundError):
        world.controller.reading.results.figures("one", "a", "no", 1)


def test_a_downloaded_page_is_the_page(world: World) -> None:
    """As an attachment; CSV and JSON have the same records, in the order of the page."""
    fill(world)
    page = get(world, "flows/a/records", newest=True, limit=4).json()["items"]
    as_csv = get(world, "flows/a/download", newest=True, limit=4)
    as_json = get(world, "flows/a/download", newest=True, limit=4, format="json")
    assert as_json.json() == page
    rows = list(csv.DictReader(io.StringIO(as_csv.text, newline="")))
    assert [{"word": row["word"], "n": int(row["n"])} for row in rows] == page
    for answer, kind in ((as_csv, "csv"), (as_json, "json")):
        assert answer.headers["content-disposition"] == f'attachment; filename="one.a.{kind}"'


def test_newest_first_is_not_for_a_snapshot(world: World) -> None:
    """The two ways to read are not mixed."""
    fill(world)
    answer = get(world, "flows/sum.totals/records", newest=True, epoch=0)
    assert (answer.status_code, answer.json()["details"]["mistakes"][0]["code"]) == (
        422,
        "newest_of_snapshot",
    )


def test_a_csv_keeps_null_and_text_apart() -> None:
    """Whatever the text holds, a reader of RFC 4180 gets it back; a null has no quotes."""
    texts = ["", "a,b", 'say "no"', "two\r\nlines", "=1+1", "<script>", "ä"]
    records = [{"t": text, "n": number} for number, text in enumerate(texts)]
    made = csv_text(["t", "n"], [*records, {"t": None, "n": [1, None]}])
    rows = list(csv.reader(io.StringIO(made, newline="")))
    assert [row[0] for row in rows[1:-1]] == texts
    assert made.endswith('\r\n,"[1, null]"\r\n')
    assert '\r\n"",0\r\n' in made
    assert json.loads(json_text(records)) == records
    assert json.loads(json_text([])) == []


def test_commands_show_what_rest_has(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    """`cbp series`, and `cbp records` with `--newest` and `--csv`."""
    fill(world)
    figures = get(world, "flows/a/series", column="n", limit=20).json()
    assert call_json(world, capsys, "series", "one", "a", "n") == figures
    assert "4.5" in call_text(world, capsys, "series", "one", "a", "n")
    page = get(world, "flows/a/records", newest=True, limit=2).json()
    newest = ("records", "one", "a", "--newest", "--limit", "2")
    assert call_json(world, capsys, *newest) == page
    made = call_text(world, capsys, *newest, "--csv")
    assert made.replace("\r", "") == '"word","n"\n"x",4\n"x",5\n'
