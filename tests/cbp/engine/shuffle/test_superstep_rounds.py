"""Rounds of a superstep: pieces, their order, and what all know after them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from cbp.engine.columnar.arrow_types import arrow_schema
from cbp.engine.shuffle.exchange import Exchange, Message, Tables
from cbp.engine.shuffle.flight_exchange import connected
from cbp.engine.shuffle.layout import FlowRoute, shuffle_layout
from cbp.engine.shuffle.superstep_rounds import Arrived, Round, SuperstepRounds
from cbp.engine.storage.held_records import Room
from tests.loops import Swells, loop_of
from tests.loops_in_tasks import together

BUCKETS = 8
SPEC = loop_of(Swells(), items="k BIGINT, n BIGINT").stages["stage"].translator


class Counted:
    """An exchange that counts its rounds."""

    def __init__(self, inner: Exchange) -> None:
        self.inner, self.tasks, self.rounds = inner, inner.tasks, 0

    def swap(self, facts: Any, tables: Any) -> list[Message]:
        """See `Exchange`."""
        self.rounds += 1
        return self.inner.swap(facts, tables)

    def finish(self, *, done: bool) -> None:
        """See `Exchange`."""
        self.inner.finish(done=done)


def messages_of(part: int, many: int) -> pa.Table:
    """Return messages of a task for many keys, numbered in the order of their emission."""
    schema = arrow_schema(SPEC.input("on").schema)
    columns = [[n % 97 for n in range(many)], [*range(many)], [f"{part}" * 40] * many]
    return pa.table([pa.array(column) for column in columns], schema.names).cast(schema)


def rounds_of(exchange: Exchange, tasks: int, room: Room) -> SuperstepRounds:
    """Return the rounds of a task of `Swells`."""
    layout = shuffle_layout(SPEC)
    routes = [
        FlowRoute("stage", SPEC, layout, flow, BUCKETS, -1, 0) for flow in range(len(SPEC.inputs))
    ]
    return SuperstepRounds(exchange, routes, tasks, Arrived(room))


@pytest.mark.parametrize("spills", [False, True], ids=["memory", "disk"])
def test_what_is_larger_than_a_piece_takes_several_rounds(spills: bool) -> None:
    """As many in each task; each message arrives once, in the order of tasks and of emission."""
    tasks, most = 2, 30_000 if spills else 1 << 20

    def work(part: int, gather: Any) -> Any:
        room = Room("stage", most, most * 1000)
        with connected(part, tasks, gather) as inner:
            exchange = Counted(inner)
            rounds = rounds_of(exchange, tasks, room)
            messages: Tables = {"on": messages_of(part, 3_000 if part else 10)}
            nothing: Tables = {}
            done: Round = rounds.swap(
                messages=messages,
                remote=nothing,
                outputs={"log": messages_of(part, 20)} if part else nothing,
                aggregates={"a": [float(part)]},
                saves=part == 0,
                last=False,
            )
            exchange.finish(done=True)
            outputs = [table for _, table in rounds.arrived.take_outputs()]
            held = rounds.arrived.move_messages()["on"]
            came = pa.concat_tables([table for one in held for table in one.tables])
            facts = done.waiting, done.saves, done.aggregates
            return exchange.rounds, facts, came, outputs, room

    done = together(tasks, work)
    assert not [one for one in done if isinstance(one, BaseException)], done
    assert done[0][0] == done[1][0] > 5
    assert done[0][1] == done[1][1] == ({"on": 3_010}, False, {"a": [0.0, 1.0]})
    came = [one[2] for one in done]
    assert sum(table.num_rows for table in came) == 3_010
    whose: dict[int, int] = {}
    for part, table in enumerate(came):
        rows = [(row["text"][0], row["n"]) for row in table.to_pylist()]
        assert rows == sorted(rows), "by sending task, then as they were emitted"
        for key in table.column("k").to_pylist():
            assert whose.setdefault(key, part) == part, "a key has one task"
    assert pa.concat_tables(done[0][3]).equals(messages_of(1, 20))
    assert done[1][3] == []
    assert all((one[4].on_disk > 0) == spills for one in done if one[2].num_rows > 1_000)


def test_messages_that_nobody_reads_stay() -> None:
    """After the last superstep they are counted, and not sent."""

    def work(part: int, gather: Any) -> Any:
        with connected(part, 2, gather) as exchange:
            rounds = rounds_of(exchange, 2, Room("stage", 1 << 20))
            done = rounds.swap(
                messages={"on": messages_of(part, 5)},
                remote={},
                outputs={},
                aggregates={},
                saves=True,
                last=True,
            )
            exchange.finish(done=True)
            return done.waiting, done.saves, rounds.arrived.move_messages()

    assert together(2, work) == [({"on": 10}, True, {}), ({"on": 10}, True, {})]


@pytest.mark.parametrize("last", [False, True])
def test_messages_that_have_waited_come_in_the_order_of_supersteps(last: bool) -> None:
    """Within one, in the order of the tasks; after the last superstep task 0 has all of them."""

    def work(part: int, gather: Any) -> Any:
        room = Room("stage", 1 << 20)
        with connected(part, 2, gather) as exchange:
            rounds = rounds_of(exchange, 2, room)
            waited = [("on", at, messages_of(at, 50)) for at in ((2, 30) if part else (3, 30))]
            rounds.deliver(waited, last=last).require_routed(["on"])
            exchange.finish(done=True)
            moved = rounds.arrived.move_left() if last else rounds.arrived.move_messages()
            came = [table for held in moved.get("on", ()) for table in held.tables]
            return [row["text"] for table in came for row in table.to_pylist()]

    done = together(2, work)
    assert sorted(done[0] + done[1]) == sorted(["2" * 40, "3" * 40, *["30" * 40] * 2] * 50)
    for texts in done:
        assert texts == sorted(texts, key=lambda text: int(text[:1]) if len(text) == 40 else 30)
    assert bool(done[1]) != last
