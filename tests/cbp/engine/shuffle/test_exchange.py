"""Exchange between tasks: rounds, failures, its token; aggregates of parts."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import flight

from cbp.engine.columnar.key_hash import first_bucket
from cbp.engine.shuffle.exchange import (
    ALONE,
    Message,
    PeerGoneError,
    exact_parts,
    owners,
    shared_out,
)
from cbp.engine.shuffle.flight_exchange import FlightExchange, connected
from cbp.model.dataflow.stage import AggregateSpec
from tests.loops_in_tasks import together

FLOATS = [0.0, -0.0, 0.1, 3.0, 1e16, -1e16, 1e308, -1e308, 1e300, -2e3, 5e-324]
FLOATS += [float("inf"), float("-inf"), float("nan")]
_numbers = st.lists(
    st.one_of(st.sampled_from(FLOATS), st.floats(allow_nan=False, allow_infinity=False)),
    max_size=12,
)


@given(st.sampled_from(["sum", "min", "max"]), st.lists(_numbers, min_size=1, max_size=4))
def test_an_aggregate_of_parts_is_that_of_all_numbers(how: Any, tasks: list[list[float]]) -> None:
    """To the last bit, however the numbers are shared out, or too large on the way."""
    aggregate = AggregateSpec("a", how)
    whole = aggregate.value([number for numbers in tasks for number in numbers])
    parts = [part for numbers in tasks for part in exact_parts(how, numbers)]
    assert repr(aggregate.value(parts)) == repr(whole)


def test_a_sum_that_is_too_large_on_the_way_is_exact() -> None:
    """In whatever order; and infinities of both signs are no number."""
    sums = [(1e308, 1e308, -1e308), (1e308, -1e308, 1e308)]
    assert {AggregateSpec("a", "sum").value(one) for one in sums} == {1e308}
    inf = math.inf
    assert math.isnan(AggregateSpec("a", "sum").value([1e308, 1e308, inf, -inf]) or 0)
    assert AggregateSpec("a", "sum").value([1e308, 1e308, -inf]) == -inf


def test_a_sum_has_few_parts() -> None:
    """A task sends some numbers of its groups, not all."""
    numbers = (np.random.default_rng(3).random(10_000) ** 9).tolist()
    assert len(exact_parts("sum", numbers)) < 5


@pytest.mark.parametrize("tasks", [1, 2, 3, 5])
def test_rows_go_to_the_task_that_owns_their_bucket(tasks: int) -> None:
    """Each once, in their order."""
    hashes = np.random.default_rng(1).integers(-(1 << 63), (1 << 63) - 1, 200)
    whose = owners(hashes, tasks=tasks, buckets=8)
    for part in range(tasks):
        first, stop = (first_bucket(at, tasks=tasks, buckets=8) for at in (part, part + 1))
        buckets = hashes[whose == part].view(np.uint64) >> np.uint64(61)
        assert ((buckets >= first) & (buckets < stop)).all()
    table = pa.table({"hash": hashes, "at": np.arange(200)})
    parts = shared_out(table, whose, tasks)
    for part, rows in enumerate(parts):
        assert rows.column("at").to_pylist() == np.flatnonzero(whose == part).tolist()
    empty = shared_out(table.slice(0, 0), whose[:0], tasks)
    assert [part.num_rows for part in empty] == [0] * tasks


def test_alone_a_round_gives_back_what_was_sent() -> None:
    """As it is."""
    table = pa.table({"x": [1]})
    assert ALONE.swap({"a": 1}, [{"t": table}]) == [Message({"a": 1}, {"t": table})]
    ALONE.finish(done=False)


@pytest.mark.parametrize("tasks", [2, 3])
def test_each_task_gets_what_all_sent_it(tasks: int) -> None:
    """In the order of the tasks, in each of many rounds; also what takes several batches."""
    large = np.arange(12_000_000)

    def work(part: int, gather: Any) -> list[list[Message]]:
        with connected(part, tasks, gather) as exchange:
            rounds = []
            for number in range(20):
                tables = [
                    {
                        "few": pa.table({"x": [f"{number}: {part} to {to}"] * to}),
                        "none": pa.table({"y": pa.array([], pa.int64())}),
                    }
                    for to in range(tasks)
                ]
                if number == 3 and part == 0:
                    tables[1]["large"] = pa.table({"z": large})
                rounds.append(exchange.swap({"from": part, "nan": math.nan}, tables))
            exchange.finish(done=True)
            return rounds

    for to, rounds in enumerate(together(tasks, work)):
        assert not isinstance(rounds, BaseException), rounds
        for number, came in enumerate(rounds):
            assert [one.facts["from"] for one in came] == list(range(tasks))
            assert all(math.isnan(one.facts["nan"]) for one in came)
            for part, one in enumerate(came):
                rows = one.tables["few"].column("x").to_pylist() if "few" in one.tables else []
                assert rows == [f"{number}: {part} to {to}"] * to
        if to == 1:
            assert rounds[3][0].tables["large"].column("z").to_numpy()[[0, -1]].tolist() == [
                0,
                len(large) - 1,
            ]


class Dead(BaseException):
    """What ends a task without a word."""


@pytest.mark.parametrize(
    ("error", "broken"), [(ValueError("no"), False), (Dead(), True)], ids=["fails", "dies"]
)
@pytest.mark.parametrize("tasks", [2, 3])
def test_a_task_that_fails_ends_the_round_of_all(
    error: BaseException, broken: bool, tasks: int
) -> None:
    """They know whether it has said so, as it has an error then; nobody waits for it."""

    def work(part: int, gather: Any) -> None:
        with connected(part, tasks, gather) as exchange:
            exchange.swap({}, [{}] * tasks)
            if part == 1:
                raise error
            exchange.swap({}, [{}] * tasks)

    done = together(tasks, work)
    assert done[1] is error
    others = [one for part, one in enumerate(done) if part != 1]
    assert all(isinstance(one, PeerGoneError) for one in others)
    assert any(one.broken == broken for one in others)
    if not broken:
        assert not any(one.broken for one in others)


@pytest.mark.parametrize("failing", [0, 1])
def test_a_task_that_fails_at_the_end_fails_all(failing: int) -> None:
    """None of them has succeeded unless all have."""

    def work(part: int, gather: Any) -> str:
        with connected(part, 2, gather) as exchange:
            exchange.finish(done=part != failing)
            return "done"

    done = together(2, work)
    assert done[failing] == "done"
    assert isinstance(done[1 - failing], PeerGoneError)
    assert not done[1 - failing].broken


def call(address: str, token: str, part: bytes = b"0") -> None:
    """Open a stream to a server and end it; raises what it answers."""
    options = flight.FlightCallOptions(headers=[(b"authorization", token.encode())])
    with flight.FlightClient(f"grpc://{address}") as client:
        descriptor = flight.FlightDescriptor.for_command(part)
        schema = pa.schema([("data", pa.uint8())])
        writer, _ = client.do_put(descriptor, schema, options)
        writer.close()


def test_a_call_without_the_token_is_refused() -> None:
    """None, a wrong one, or one that another run has; and its own task is heard all the same."""
    seen: dict[int, str] = {}

    def work(part: int, gather: Any) -> Any:
        def noting(text: str) -> list[str]:
            seen[part] = text.split('"')[1]
            return gather(text)  # type: ignore[no-any-return]

        with connected(part, 2, noting) as exchange:
            refused = []
            for token in ("", "Bearer ", "Bearer " + "0" * 64):
                try:
                    call(seen[1 - part], token, str(part).encode())
                except flight.FlightUnauthenticatedError as exc:
                    refused.append(exc)
            (_, other) = exchange.swap({"a": part}, [{}, {}])
            exchange.finish(done=True)
            return len(refused), other.facts["a"]

    assert together(2, work) == [(3, 1), (3, 1)]
    assert all(address.startswith("127.0.0.1:") for address in seen.values())


def test_each_task_is_reached_at_its_own_host() -> None:
    """As on a cluster; it listens nowhere else."""
    seen: dict[int, str] = {}

    def work(part: int, gather: Any) -> Any:
        def noting(text: str) -> list[str]:
            seen[part] = text.split('"')[1]
            return gather(text)  # type: ignore[no-any-return]

        with connected(part, 2, noting, host=f"127.0.0.{part + 2}") as exchange:
            other = exchange.swap({"a": part}, [{}, {}])[1 - part]
            exchange.finish(done=True)
            return other.facts["a"]

    assert together(2, work) == [1, 0]
    assert [seen[part].rpartition(":")[0] for part in range(2)] == ["127.0.0.2", "127.0.0.3"]


def test_a_task_has_one_stream() -> None:
    """A second one in its name is refused, though it has the token."""

    def work(part: int, gather: Any) -> str:
        with connected(part, 2, gather) as exchange:
            assert isinstance(exchange, FlightExchange)
            exchange.swap({}, [{}, {}])
            said = ""
            if part == 0:
                token = exchange._server.token._token.decode()
                try:
                    call(f"127.0.0.1:{exchange._server.port}", token, b"1")
                except flight.FlightError as exc:
                    said = str(exc)
            exchange.finish(done=True)
            return said

    assert "already opened its stream" in together(2, work)[0]


def test_a_stream_that_is_never_opened_is_not_waited_for() -> None:
    """A task that cannot reach the others does not hold them up."""

    def work(part: int, gather: Any) -> None:
        now = iter(range(1000))
        with connected(
            part, 2, gather, start_seconds=0.5, seconds=lambda: float(next(now))
        ) as exchange:
            assert isinstance(exchange, FlightExchange)
            exchange.swap(
                {}, [{}, {}]
            )  # the other's stream is open; from here on as if it were not
            exchange._server.awaited.add(1 - part)
            exchange._receive(1 - part)

    assert all(isinstance(one, PeerGoneError) for one in together(2, work))
