"""Frames of framed inputs, in the store: one JSON value per input, in its row of `wiring`.

    {"framing": Framing, "frames": [[increment, read mark], ...]}

What arrives at a framed input stands in `queue`, as at any other, until it is framed;
`keep` then takes it out and adds the frames, in one transaction. An input whose value is
NULL is not framed. There are few frames at a time: those that wait.

Invariant: what is framed left the queue in the same transaction, so each output increment
is framed once (tests/conformance/test_store.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from sqlalchemy import Connection, and_, select
from sqlalchemy import delete as delete_from
from sqlalchemy import update as update_table

from cbp.errors import InvariantError
from cbp.model.connector import Connector, Queued
from cbp.model.framing import Framing
from cbp.model.increment import Increment
from controller.store.tables import queue, wiring

__all__ = ["EMPTY", "connector_of", "consume_frames", "framed_inputs", "keep_frames"]

EMPTY: Mapping[str, Any] = {"framing": Framing().to_json(), "frames": []}


def connector_of(name: str, value: Mapping[str, Any], arrived: Iterable[Queued]) -> Connector:
    """Return the connector of a framed input."""
    frames = tuple(Queued(Increment.from_json(i), bool(read)) for i, read in value["frames"])
    waiting = tuple(queued.increment for queued in arrived)
    return Connector(name, frames, Framing.from_json(value["framing"]), waiting)


def framed_inputs(connection: Connection, dataflow: str, stage: str) -> dict[str, Connector]:
    """Return the connectors of a stage's framed inputs, without what is not framed yet."""
    query = select(wiring.c.input, wiring.c.framing).where(
        wiring.c.dataflow == dataflow, wiring.c.stage == stage, wiring.c.framing.is_not(None)
    )
    return {
        row.input: connector_of(row.input, row.framing, ()) for row in connection.execute(query)
    }


def consume_frames(
    connection: Connection,
    dataflow: str,
    stage: str,
    connector: Connector,
    *,
    read: Iterable[int],
    remove: Iterable[int],
) -> None:
    """Set read marks of frames and drop some; raises `InvariantError` for one that is not there."""
    after = connector.after(tuple(read), tuple(remove))
    _write(connection, dataflow, stage, after)


def keep_frames(
    connection: Connection,
    dataflow: str,
    stage: str,
    *,
    input_: str,
    index: int,
    framing: Framing,
    frames: Iterable[Increment],
) -> None:
    """Take one output increment out of the queue, and add the frames that it completed.

    Raises:
        InvariantError: If the increment does not wait there: the framing was stale.
    """
    found = framed_inputs(connection, dataflow, stage).get(input_)
    gone = connection.execute(
        delete_from(queue).where(
            queue.c.dataflow == dataflow,
            queue.c.stage == stage,
            queue.c.input == input_,
            queue.c.idx == index,
        )
    )
    if found is None or gone.rowcount != 1:
        message = f"increment {index} does not wait to be framed at {stage}.{input_}"
        raise InvariantError(message, dataflow=dataflow, stage=stage)
    queued = (*found.queue, *map(Queued, frames))
    _write(connection, dataflow, stage, Connector(input_, queued, framing))


def _write(connection: Connection, dataflow: str, stage: str, connector: Connector) -> None:
    assert connector.framing is not None, "a framed input has a framing"
    value = {
        "framing": connector.framing.to_json(),
        "frames": [[q.increment.to_json(), int(q.read)] for q in connector.queue],
    }
    here = and_(
        wiring.c.dataflow == dataflow,
        wiring.c.stage == stage,
        wiring.c.input == connector.input,
    )
    connection.execute(update_table(wiring).where(here).values(framing=value))
