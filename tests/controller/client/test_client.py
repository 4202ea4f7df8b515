"""The public client: typed values, pages, errors, bounded repetitions."""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterator
from datetime import date
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace

import httpx
import pyarrow as pa
import pytest

from cbp import client as public
from cbp.client import (
    AccessRefusedError,
    Client,
    ConflictRefusedError,
    DataflowFreshness,
    Pages,
    RequestRefusedError,
    ResourceMissingError,
    Retries,
    Rows,
    ServiceBusyError,
    ServiceProblemError,
    ServiceUnreachableError,
    StagesStoppedError,
    WaitEndedError,
)
from cbp.client.pages import QueryResult
from cbp.client.rest import FileContent
from cbp.errors import DefinitionError
from tests.controller.api.app_transport import TOKEN, AppTransport
from tests.controller.api.clicks import DOCUMENT
from tests.controller.api.fake_service import Service
from tests.controller.served import served
from tests.controller.small_app import TOKEN as SERVED_TOKEN

URL = "http://127.0.0.1:8420"
CLAIM = {"id": "c1", "path": "large.jsonl", "created_at": "2026-11-01T12:00:00Z"}


@pytest.fixture
def service(tmp_path: Path) -> Service:
    made = Service(tmp_path)
    made.fill()
    return made


@pytest.fixture
def client(service: Service) -> Iterator[Client]:
    with Client(URL, token=TOKEN, transport=AppTransport(service.app)) as made:
        yield made


class Answers(httpx.BaseTransport):
    """Gives answers in turn; `None` breaks the connection."""

    def __init__(self, *statuses: int | None, retry_after: str = "") -> None:
        self._statuses, self._headers = list(statuses), {"Retry-After": retry_after}
        self.requests: list[httpx.Request] = []

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        status = self._statuses.pop(0)
        if status is None:
            raise httpx.ReadError("cut off")
        page: dict[str, object] = {"items": [], "cursor": None, "stages": {}}
        return httpx.Response(status, json=page, headers=self._headers)


def repeating(answers: Answers, pauses: list[float], attempts: int = 3) -> Client:
    retries = Retries(attempts=attempts, pause_seconds=1, sleep=pauses.append)
    return Client(URL, token="t", retries=retries, transport=answers)


def test_what_a_service_knows_comes_as_values(client: Client) -> None:
    """Each resource has a method, whose answer has typed attributes."""
    assert [one.name for one in client.dataflows()] == ["clicks"]
    detail = client.dataflow("clicks")
    assert (detail.summary.stages, detail.stages[0].name) == (1, "count")
    assert [run.id for run in client.runs("clicks", status="FAILED")] == ["r2"]
    assert client.run("r1").figures["groups"] == 2.0
    assert [one.status for one in client.claims("clicks")] == ["quarantined", "accepted"]
    assert client.increment("clicks", "urls", 1).records == 4
    assert client.register(DOCUMENT | {"name": "more"}).summary.name == "more"
    assert client.pause("clicks").desired == "paused"
    items = client.cancel_runs(["r3", "r9"])
    assert [(one.id, one.status) for one in items] == [("r3", 202), ("r9", 404)]


def test_records_come_page_by_page(client: Client) -> None:
    """An iteration reads a page when it is needed, and again from the begin."""
    rows = client.records("clicks", "count.totals")
    assert rows.first() == {"url": "u0", "n": 0}
    assert [row["n"] for row in rows] == [0, 1, 2, 3, 4]
    assert rows.to_arrow().column("url").to_pylist() == ["u0", "u1", "u2", "u3", "u4"]
    assert client.look_up("clicks", "count.counts", url="a", site=7) == [
        {"url": "a", "site": 7, "n": 3}
    ]
    assert "<td>a</td>" in client.state("clicks", "count.counts")._repr_html_()


def test_an_iteration_asks_for_the_next_page_only_when_it_is_needed() -> None:
    """The first item costs one request, however long the list is."""
    asked: list[str | None] = []

    def read(cursor: str | None) -> tuple[list[int], str | None]:
        asked.append(cursor)
        return ([1, 2], "p2") if cursor is None else ([3], None)

    assert Pages(read).first() == 1
    assert asked == [None]
    assert list(Pages(read)) == [1, 2, 3]
    assert asked == [None, None, "p2"]


def test_a_table_in_a_notebook_holds_no_markup_of_records() -> None:
    """A record may come from anywhere."""
    html = Rows(lambda cursor: ([{"<b>": "<script>"}], None))._repr_html_()
    assert "<script>" not in html
    assert "<th>&lt;b&gt;</th>" in html


def test_no_record_of_a_key_is_no_error_but_an_unknown_dataflow_is(
    client: Client, service: Service
) -> None:
    """A key that nothing came for is an answer; a wrong name is a mistake, with its code."""
    service.controller.reading.state = []
    assert client.look_up("clicks", "count.counts", url="b", site=7) == []
    with pytest.raises(ResourceMissingError) as caught:
        client.look_up("nothing", "count.counts", url="b", site=7)
    assert (caught.value.error_code, caught.value.status) == ("not_found", 404)
    with pytest.raises(RequestRefusedError) as refused:
        client.look_up("clicks", "count.counts", url="b")
    assert refused.value.details["mistakes"][0]["code"] == "key_column_missing"
    with pytest.raises(ValueError, match="expected 'stage"):
        client.state("clicks", "counts")


def test_a_wrong_token_is_told_as_such(service: Service) -> None:
    """And the token is not."""
    with (
        Client(URL, token="wrong-token", transport=AppTransport(service.app)) as client,
        pytest.raises(AccessRefusedError) as caught,
    ):
        list(client.dataflows())
    assert caught.value.status == 401
    assert "wrong-token" not in str(caught.value.as_dict())


def test_a_busy_or_lost_service_is_asked_again_a_bounded_number_of_times() -> None:
    """Pauses double, a service that says when is believed, and the last failure is raised."""
    pauses: list[float] = []
    answers = Answers(None, 503, 200, retry_after="7")
    assert repeating(answers, pauses).left("clicks") == {}
    assert pauses == [1, 7]
    with pytest.raises(ServiceBusyError):
        repeating(Answers(503, 503), [], attempts=2).left("clicks")
    with pytest.raises(ServiceUnreachableError):
        repeating(Answers(None, None), [], attempts=2).left("clicks")


def test_what_a_repetition_would_do_twice_is_sent_once() -> None:
    """A request that is no reading is repeated by its idempotency key alone, always the same."""
    answers = Answers(None)
    with pytest.raises(ServiceUnreachableError):
        repeating(answers, []).pause("clicks")
    assert len(answers.requests) == 1
    answers = Answers(None, None, None)
    with pytest.raises(ServiceUnreachableError):
        repeating(answers, []).roll_back("clicks", 1, reason="wrong prices")
    keys = {one.headers["Idempotency-Key"] for one in answers.requests}
    assert (len(answers.requests), len(keys)) == (3, 1)


def test_a_query_as_arrow_has_the_types_of_the_query() -> None:
    """Also a column without any value, and those that JSON has as texts."""
    kinds = ["BIGINT", "DATE", "DECIMAL(6,2)", "VARCHAR", "BIGINT[]", "TIMESTAMP WITH TIME ZONE"]
    result = QueryResult.of(
        {
            "columns": [{"name": f"c{at}", "type": kind} for at, kind in enumerate(kinds)],
            "rows": [[1, "2026-11-01", "12.50", None, [1], "2026-11-01T12:00:00Z"]],
            "at": "2026-11-01T12:00:00Z",
            "epochs": {},
            "tables": [],
            "truncated": False,
            "seconds": 0.1,
        }
    )
    table = result.to_arrow()
    assert table.schema.field("c3").type == pa.string()
    row = table.to_pylist()[0]
    assert (row["c0"], row["c1"], row["c2"]) == (1, date(2026, 11, 1), Decimal("12.50"))
    assert row["c5"].isoformat() == "2026-11-01T12:00:00+00:00"
    assert result.records()[0]["c4"] == [1]


def test_floats_that_json_lacks_are_floats_in_arrow() -> None:
    """The service sends them as texts, in a column whose other values are numbers."""
    rest = {"at": "2026-11-01T12:00:00Z", "epochs": {}, "tables": [], "truncated": False}
    result = QueryResult.of(
        {
            **rest,
            "columns": [{"name": "mean", "type": "DOUBLE"}],
            "rows": [[1.5], ["-Infinity"], [None]],
            "seconds": 0.1,
        }
    )
    assert result.to_arrow()["mean"].to_pylist() == [1.5, -math.inf, None]
    page: list[dict[str, object]] = [
        {"mean": 1.5, "name": "NaN"},
        {"mean": "Infinity", "name": "b"},
    ]
    table = Rows(lambda _: (page, None)).to_arrow()
    assert table["mean"].to_pylist() == [1.5, math.inf]
    assert table["name"].to_pylist() == ["NaN", "b"]
    nothing: list[dict[str, object]] = []
    assert Rows(lambda _: (nothing, None)).to_arrow().num_columns == 0


def test_whole_numbers_beyond_64_bits_are_decimals_in_arrow() -> None:
    """A sum of DuckDB has up to 128 bits; numbers that fit stay whole numbers."""
    sums: list[dict[str, object]] = [{"sum": 2**127 - 1, "n": 2**63 - 1}, {"sum": None, "n": 1}]
    table = Rows(lambda _: (sums, None)).to_arrow()
    assert table["sum"].to_pylist() == [Decimal(2**127 - 1), None]
    assert (table["n"].type, table["n"].to_pylist()) == (pa.int64(), [2**63 - 1, 1])
    answer = {"at": "2026-11-01T12:00:00Z", "epochs": {}, "tables": [], "truncated": False}
    columns = [{"name": "sum", "type": "HUGEINT"}]
    result = QueryResult.of({**answer, "columns": columns, "rows": [[-(2**64)]], "seconds": 0.1})
    assert result.to_arrow()["sum"].to_pylist() == [Decimal(-(2**64))]


@pytest.mark.parametrize("url", ["http://[::1", "http://here:port"])
def test_a_wrong_address_is_a_coded_error(url: str) -> None:
    """It names the address and what to write."""
    with pytest.raises(DefinitionError, match="is not an address") as caught:
        Client(url, token=TOKEN)
    assert (caught.value.mistake.code, caught.value.mistake.where) == ("settings_invalid", "url")


def test_a_verification_that_is_interrupted_stays_interrupted() -> None:
    """Also if the service does not cancel it: the interrupt says so in a note."""
    began = {"id": "v1", "dataflow": "clicks", "status": "running", "ended": False}

    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.path.endswith("/cancel"):
            raise httpx.ConnectError("refused")
        return httpx.Response(200, json=began)

    def interrupt(_: object) -> None:
        raise KeyboardInterrupt

    with (
        Client(URL, token=TOKEN, transport=httpx.MockTransport(answer)) as client,
        pytest.raises(KeyboardInterrupt) as caught,
    ):
        client.verify("clicks", report=interrupt)
    (note,) = caught.value.__notes__
    assert note.startswith("verification v1 was not cancelled: ")


@pytest.mark.parametrize(
    "answer",
    [
        httpx.Response(400, json={"code": 3, "message": "bad", "details": []}),
        httpx.Response(502, json={"details": {"message": "a name of an argument"}}),
        httpx.Response(421, json={"details": ["no leader"]}),
        httpx.Response(200, text="<html>please sign in</html>"),
    ],
)
def test_an_answer_of_a_proxy_is_a_coded_error(answer: httpx.Response) -> None:
    """Whatever its form; a traceback would not say what to do."""
    transport = httpx.MockTransport(lambda _: answer)
    with Client(URL, token=TOKEN, transport=transport) as client:
        with pytest.raises(ServiceProblemError) as caught:
            client.dataflow("clicks")
        assert caught.value.status == answer.status_code


def test_a_file_goes_in_and_its_result_comes_out(tmp_path: Path) -> None:
    """Over a socket: drop, wait until it is applied, look up, query, and take it back."""
    with served(tmp_path) as (settings, _, _), Client(settings.url, token=SERVED_TOKEN) as client:
        claim = client.drop("urls", "visits", b'{"url": "/"}\n{"url": "/"}\n', file="a.jsonl")
        client.wait("urls", claim, seconds=30)
        assert client.freshness("urls").dataflows == [
            DataflowFreshness(dataflow="urls", state="up_to_date", left=[])
        ]
        assert client.look_up("urls", "count.counts", url="/") == [{"url": "/", "n": 2}]
        answer = client.query("urls", "SELECT url, n FROM count.counts")
        assert answer.to_arrow().to_pylist() == [{"url": "/", "n": 2}]
        assert client.current("urls", "count.counts", url="/").first() == {"url": "/", "n": 2}
        assert client.snapshot("urls").epochs == {"count": 0}
        moments = client.moments("urls")
        object.__setattr__(settings, "page_size_max", 1)
        assert client.moments("urls") == moments, "page by page"
        begin = moments[-1]
        assert len(moments) > 1
        assert client.plan_roll_back("urls", begin.position).rollback.undone == {"count": 1}
        done = client.roll_back(
            "urls", begin.position, reason="a test", pause=True, drop_later=True
        )
        assert client.rollbacks("urls").first() == done
        assert client.look_up("urls", "count.counts", url="/") == []
        again = client.drop("urls", "visits", b'{"url": "/x"}\n', file="b.jsonl")
        assert client.freshness().state == "stuck"
        # On a busy machine the file may be taken in before the client asks.
        with pytest.raises((WaitEndedError, StagesStoppedError)):
            client.wait("urls", again, seconds=0)


def test_records_are_corrected_and_tables_compared_and_built_anew(tmp_path: Path) -> None:
    """Over a socket: each shows first what it would do, and returns once it is done."""
    with served(tmp_path) as (settings, _, _), Client(settings.url, token=SERVED_TOKEN) as client:
        claim = client.drop("urls", "visits", b'{"url": "/"}\n{"url": "/a"}\n', file="a.jsonl")
        client.wait("urls", claim, seconds=30)
        verified = client.verify("urls")
        assert (verified.status, {one.status for one in verified.tables}) == ("equal", {"equal"})
        assert client.verifications("urls").first() == verified
        five = [{"key": {"url": "/"}, "set": {"n": 5}}]
        (preview,) = client.plan_edit("urls", "count.counts", five).items
        assert [one["n"] for one in (*preview.before, *preview.after)] == [1, 5]
        assert client.look_up("urls", "count.counts", url="/") == [{"url": "/", "n": 1}]
        made = client.edit("urls", "count.counts", five, reason="a test", by="me")
        assert (made.keys, made.by, client.corrections("urls").first()) == (1, "me", made)
        assert client.look_up("urls", "count.counts", url="/") == [{"url": "/", "n": 5}]
        ready = client.rebuild("urls")
        assert (ready.status, {one.table for one in ready.tables} >= {"state/count.counts"}) == (
            "ready",
            True,
        )
        assert client.swap("urls", ready).status == "swapped"
        assert client.look_up("urls", "count.counts", url="/") == [{"url": "/", "n": 1}]
        assert [one.status for one in client.rebuilds("urls")] == ["swapped"]
        client.swap_back("urls")
        assert client.look_up("urls", "count.counts", url="/") == [{"url": "/", "n": 5}]


def test_a_file_is_replaced_and_taken_back(tmp_path: Path) -> None:
    """Over a socket, from a file on disk; a stage that cannot follow refuses it by its code."""
    with served(tmp_path) as (settings, _, _), Client(settings.url, token=SERVED_TOKEN) as client:
        file = tmp_path / "right.jsonl"
        file.write_bytes(b'{"url": "/b"}\n')
        client.wait("urls", client.drop("urls", "visits", b'{"url": "/"}\n', file="a"), seconds=30)
        for ask in (
            lambda: client.plan_replace("urls", "visits", file, file="a"),
            lambda: client.replace("urls", "visits", file, file="a", reason="x"),
            lambda: client.plan_retract("urls", "visits", file="a"),
            lambda: client.retract("urls", "visits", file="a", reason="x"),
        ):
            with pytest.raises(ConflictRefusedError) as refused:
                ask()
            assert refused.value.error_code == "replace_refused"


def test_a_file_is_sent_in_pieces_again_from_its_start(tmp_path: Path) -> None:
    """It is not held in memory, and a broken connection is answered by the whole file again."""
    file = tmp_path / "large.jsonl"
    file.write_bytes(b"x" * 2_500_000)
    counted: list[int] = []
    body = FileContent(file, counted.append)
    assert [len(piece) for piece in body] == [1 << 20, 1 << 20, 2_500_000 - (2 << 20)]
    assert b"".join(body) == file.read_bytes()
    assert sum(counted) == 2_500_000
    received: list[int] = []

    def answer(request: httpx.Request) -> httpx.Response:
        received.append(len(request.read()))
        if len(received) < 3:
            raise httpx.ReadError("cut off")
        return httpx.Response(202, json=CLAIM)

    retries = Retries(attempts=3, sleep=lambda seconds: None)
    transport = httpx.MockTransport(answer)
    with Client(URL, token="t", retries=retries, transport=transport) as client:
        assert client.drop("clicks", "urls", file).path == "large.jsonl"
    assert received == [2_500_000] * 3


def test_a_refused_file_is_decided_on(tmp_path: Path) -> None:
    """Mended, as it is, or not at all; over a socket."""
    with served(tmp_path) as (settings, _, _), Client(settings.url, token=SERVED_TOKEN) as client:
        bad = [client.drop("urls", "visits", b'{"url": 1}\n', file=f"{n}") for n in range(3)]
        client.wait("urls", *bad, seconds=30)
        first, second, third = reversed(list(client.claims("urls", status="quarantined")))
        client.wait("urls", client.readmit("urls", "visits", first, b'{"url": "/"}\n', reason="x"))
        assert client.look_up("urls", "count.counts", url="/") == [{"url": "/", "n": 1}]
        assert client.discard("urls", "visits", second.id, reason="x").status == "discarded"
        again = client.readmit("urls", "visits", third, reason="x")
        assert again.path == third.path
        with pytest.raises(ConflictRefusedError):
            client.discard("urls", "visits", third, reason="x")


def test_a_stage_that_stops_when_all_is_done_has_nothing_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A drain ends between two answers: first one epoch is left, then the stage is stopped."""
    left = iter([{"count": "1 epoch"}, {}])
    stopped = SimpleNamespace(name="count", waiting="", state="stopped")
    monkeypatch.setattr(Client, "left", lambda *_: next(left))
    monkeypatch.setattr(Client, "dataflow", lambda *_: SimpleNamespace(stages=[stopped]))
    with Client(URL, token=TOKEN) as client:
        client.wait("urls", seconds=0, poll_seconds=0)
        left = iter([{"count": "1 epoch"}, {"count": "1 epoch"}])
        with pytest.raises(StagesStoppedError):
            client.wait("urls", seconds=0)


def test_every_public_method_says_what_it_does() -> None:
    """A reader of a notebook sees the docstring, and nothing else."""
    kinds = [getattr(public, name) for name in public.__all__]
    methods = [
        (kind, name)
        for kind in kinds
        for name, method in inspect.getmembers(kind, inspect.isfunction)
        if not name.startswith("_") and not method.__doc__
    ]
    assert methods == []
    assert public.__all__ == sorted(public.__all__)
