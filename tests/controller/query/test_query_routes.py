"""`POST /query`, `GET /current` and their commands, over a real service."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from cbp import Input, Output, Translate
from controller.cli.session import Session
from controller.settings import Settings
from tests.controller.api.app_transport import TOKEN, AppTransport
from tests.controller.cli.conftest import Cbp, cbp, logs, service
from tests.controller.live import Live, live
from tests.controller.query.queried import TYPED, VALUES, queried
from tests.controller.rest import api_of_world
from tests.controller.world import Inline

__all__ = ["cbp", "logs", "service"]

pytestmark = pytest.mark.usefixtures("without_syncs")


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    made = queried(tmp_path_factory.mktemp("routes"))
    yield made
    made.world.close()


def json_of(cbp: Cbp, session: Session, *arguments: str) -> Any:
    outcome = cbp(*arguments, "--json", session=session)
    assert outcome.status == 0, outcome.out
    return outcome.json


def test_a_query_has_its_moment_columns_and_rows(cbp: Cbp, real: Live) -> None:
    """As JSON for programs; large sums are numbers, nested values JSON."""
    sql = "SELECT word, sum(n) AS n, any_value(tags) AS tags, 1 AS n FROM sum.sums GROUP BY 1"
    answer = json_of(cbp, real.session, "sql", "one", sql)
    assert sorted(answer["rows"]) == [["b", 5, ["x", None], 1], ["c", 9, ["x", None], 1]]
    assert [column["name"] for column in answer["columns"]] == ["word", "n", "tags", "n"]
    assert answer["epochs"] == {"sum": 2}
    assert datetime.fromisoformat(answer["at"]).tzinfo is not None
    older = json_of(cbp, real.session, "sql", "one", "FROM sum.counts", "--epoch", "0")
    assert sorted(older["rows"]) == [["a", 1], ["b", 5]]
    again = json_of(cbp, real.session, "sql", "one", "FROM sum.counts", "--at", older["at"][:26])
    assert again["epochs"] in ({"sum": 0}, {"sum": 1})


def test_a_query_is_printed_as_a_table_and_as_csv(cbp: Cbp, real: Live) -> None:
    """With how many rows there are; without a query, the tables that it can name."""
    sql = "SELECT word, n, CAST(NULL AS VARCHAR) AS x FROM sum.counts ORDER BY word"
    outcome = cbp("sql", "one", sql, "--limit", "1", session=real.session)
    assert (outcome.status, outcome.err) == (0, "")
    assert "1 row; there are more" in outcome.out
    text = cbp("sql", "one", sql, "--csv", session=real.session).out
    assert list(csv.reader(io.StringIO(text))) == [
        ["word", "n", "x"],
        ["b", "5", ""],
        ["c", "9", ""],
    ]
    listed = cbp("sql", "one", session=real.session).out
    for name in ("sum.sums", "sum.counts", "sum.counts_changes", "sum.totals"):
        assert name in listed
    named = json_of(cbp, real.session, "sql", "one")["items"]
    assert {one["name"] for one in named} == {
        "sum.sums", "sum.counts", "sum.counts_changes", "sum.totals",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("sql", "code"),
    [
        ("SELECT * FROM read_csv('/etc/passwd')", "query_refused"),
        ("COPY (SELECT 1) TO '/tmp/x'", "query_refused"),
        ("SELECT nothing FROM sum.sums", "query_invalid"),
        ("x" * 20_001, "request_invalid"),
    ],
)
def test_a_query_that_is_refused_has_a_code(cbp: Cbp, real: Live, sql: str, code: str) -> None:
    """And ends the command with 1."""
    outcome = cbp("sql", "one", sql, "--json", session=real.session)
    assert (outcome.status, outcome.json["error_code"]) == (1, code)


@pytest.mark.part(every=2)
@pytest.mark.parametrize("table", ["sum.totals", "sum.counts"])
def test_the_current_record_per_key(cbp: Cbp, real: Live, table: str) -> None:
    """A state, a view or an output shows the last one of each key, by key, or of one key."""
    items = json_of(cbp, real.session, "last", "one", table)["items"]
    last = {"b": 5, "c": 9} | ({"a": 0} if table == "sum.totals" else {})
    assert {one["word"]: one["n"] for one in items} == last
    assert [one["word"] for one in items] == sorted(last)
    (one,) = json_of(cbp, real.session, "last", "one", table, "word=c")["items"]
    assert one["n"] == 9
    (older,) = json_of(cbp, real.session, "last", "one", table, "word=a", "--epoch", "1")["items"]
    assert older["n"] == 3


class Places(Translate):
    """Where an item is, and since when; an item moves from one group to another."""

    items = Input("word STRING, n BIGINT", route_by="word")
    places = Output("id BIGINT, at BIGINT, word STRING", key="id", latest_by="at")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        """Emit the item and the time that a number means."""
        for row in group.items:
            out.places(row.n % 10, row.n // 10, key.word)


@pytest.mark.soak
def test_the_greatest_record_per_key_is_the_current_one(cbp: Cbp, tmp_path: Path) -> None:
    """By `latest_by`, in whichever epoch it came; among equal ones that of the last epoch."""
    made = live(tmp_path, translators={"places": Places}, verifier=Inline())
    stage = {"translator": "places", "inputs": {"items": "a"}, "buckets": 4}
    made.world.controller.register({**TYPED, "stages": {"move": stage}})
    for arrived, where in (
        ([("b", 11), ("a", 21), ("c", 12)], {1: "a", 2: "c"}),
        ([("b", 1), ("a", 2)], {1: "a", 2: "c"}),
        ([("b", 21), ("a", 32)], {1: "b", 2: "a"}),
    ):
        made.world.arrive("one", "a", *arrived)
        made.world.ticks()
        items = json_of(cbp, made.session, "last", "one", "move.places")["items"]
        assert {one["id"]: one["word"] for one in items} == where
        for engine in ("direct", "reference"):
            options = ("--engine", engine, "--json")
            assert cbp("verify", "one", *options, session=made.session).json["status"] == "equal"
    made.world.close()


def test_current_records_are_paged_within_one_snapshot(cbp: Cbp, real: Live) -> None:
    """A cursor keeps the moment of its first page, also when a run commits in between."""
    first = json_of(cbp, real.session, "last", "one", "sum.totals", "--limit", "2")
    assert [one["word"] for one in first["items"]] == ["a", "b"]
    more = ["last", "one", "sum.totals", "--limit", "2", "--cursor", first["cursor"]]
    rest = json_of(cbp, real.session, *more)
    assert ([one["word"] for one in rest["items"]], rest["cursor"]) == (["c"], None)
    foreign = cbp(
        "last", "one", "sum.sums", "--cursor", first["cursor"], "--json", session=real.session
    )
    assert foreign.json["error_code"] == "cursor_invalid"


@pytest.mark.part(every=2)
@pytest.mark.parametrize(
    ("command", "key"),
    [(["last", "one", "sum.totals"], "word"), (["records", "one", "sum.totals"], "n")],
)
def test_a_table_as_csv_is_whole(cbp: Cbp, real: Live, command: list[str], key: str) -> None:
    """All pages of it with one header, also if a page is small; a limit is said on stderr."""
    whole = json_of(cbp, real.session, *command)["items"]
    assert len(whole) >= 3
    settings = Settings(root=real.world.root, token=TOKEN, page_size_default=2, page_size_max=2)
    small = Session(settings, AppTransport(api_of_world(real.world, settings)))
    outcome = cbp(*command, "--csv", session=small)
    rows = list(csv.DictReader(io.StringIO(outcome.out)))
    assert [row[key] for row in rows] == [str(one[key]) for one in whole]
    assert (outcome.status, outcome.err) == (0, "")
    outcome = cbp(*command, "--csv", "--limit", "1", session=real.session)
    assert len(outcome.out.splitlines()) == 2
    assert "there are more rows" in outcome.err


def test_an_empty_table_as_csv_has_its_header(cbp: Cbp, real: Live) -> None:
    """So that a reader of the file knows the columns."""
    outcome = cbp("last", "one", "sum.sums", "word=nothing", "--csv", session=real.session)
    assert outcome.out.startswith('"word",')
    assert len(outcome.out.splitlines()) == 1


def test_rows_of_a_query_that_are_cut_are_said(cbp: Cbp, real: Live) -> None:
    """On stderr, since stdout is the file."""
    sql = "SELECT word FROM sum.counts"
    assert cbp("sql", "one", sql, "--csv", session=real.session).err == ""
    outcome = cbp("sql", "one", sql, "--csv", "--limit", "1", session=real.session)
    assert len(outcome.out.splitlines()) == 2
    assert "CBP_QUERY_ROWS_MAX" in outcome.err


def test_records_are_selected_by_columns_of_every_type(cbp: Cbp, real: Live) -> None:
    """A value that a look-up returns finds its record again."""
    (item,) = json_of(cbp, real.session, "last", "one", "sum.sums", "word=b")["items"]
    columns = ("small", "half", "single", "yes", "raw", "day", "at", "exact", "word")
    texts = [f"{one}={str(item[one]).lower() if one == 'yes' else item[one]}" for one in columns]
    assert json_of(cbp, real.session, "last", "one", "sum.sums", *texts)["items"] == [item]
    assert json_of(cbp, real.session, "last", "one", "sum.sums", "--null", "n")["items"] == []
    assert set(VALUES) < set(item)


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["one", "sum.nothing"], "not_found"),
        (["one", "a"], "not_found"),
        (["nobody", "sum.sums"], "not_found"),
        (["one", "sum.sums", "nothing=1"], "request_invalid"),
        (["one", "sum.sums", "n=x"], "request_invalid"),
        (["one", "sum.totals", "--by", "nothing"], "definition_invalid"),
    ],
)
def test_wrong_names_are_told(cbp: Cbp, real: Live, arguments: list[str], code: str) -> None:
    """Before anything is read."""
    outcome = cbp("last", *arguments, "--json", session=real.session)
    assert (outcome.status, outcome.json["error_code"]) == (1, code)
