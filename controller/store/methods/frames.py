"""Frames of framed inputs in the store: one JSON value per input, in its row of `wiring`.

    {"framing": Framing, "frames": [[increment, read mark], ...], "closes": [index, ...]}

An increment that arrives at a framed input waits in `queue`, as at any other input, until it is
framed. Then `frame` removes it and adds the frames, in one transaction. A punctuation is handled
the same way; it waits in `closes`. An input whose value is NULL is not framed. Only frames that
wait are stored, so there are few.

Invariant: an increment leaves the queue in the transaction that frames it. So each output increment
is framed once, and each punctuation is applied once, after all increments before it
(tests/conformance/test_frames.py).

Each punctuation has a row, and `dataflows.punctuations` counts them. Inputs hold those that wait to
be applied. A restored store knows the count, and only the rows of punctuations after its position.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Row, and_, func, insert, select
from sqlalchemy import delete as delete_from
from sqlalchemy import update as update_table

from cbp.errors import InvariantError, NotFoundError
from cbp.model.flow.connector import Connector, Queued
from cbp.model.flow.framing import Framing
from cbp.model.flow.increment import Increment
from cbp.model.flow.punctuation import Punctuation
from controller.store.database.connections import Database
from controller.store.methods.events import tell
from controller.store.methods.leases import held, hold_stage
from controller.store.methods.listing_pages import page
from controller.store.records import Event, Page
from controller.store.schema.tables import dataflows, punctuations, queue, wiring

EMPTY: Mapping[str, Any] = {"framing": Framing().to_json(), "frames": [], "closes": []}


def connector_of(name: str, value: Mapping[str, Any], arrived: Iterable[Queued]) -> Connector:
    """Return the connector of a framed input."""
    frames = tuple(Queued(Increment.from_json(i), bool(read)) for i, read in value["frames"])
    waiting = tuple(queued.increment for queued in arrived)
    closes = tuple(value.get("closes", ()))
    return Connector(name, frames, Framing.from_json(value["framing"]), waiting, closes)


def framed_inputs(connection: Connection, dataflow: str, stage: str) -> dict[str, Connector]:
    """Return the connectors of a stage's framed inputs, without increments not framed yet."""
    query = select(wiring.c.input, wiring.c.framing).where(
        wiring.c.dataflow == dataflow, wiring.c.stage == stage, wiring.c.framing.is_not(None)
    )
    return {
        row.input: connector_of(row.input, row.framing, ()) for row in connection.execute(query)
    }


def keep_close(connection: Connection, dataflow: str, punctuation: Punctuation) -> None:
    """Queue a punctuation at every framed input to which it applies."""
    query = select(wiring.c.stage, wiring.c.input, wiring.c.flow).where(
        wiring.c.dataflow == dataflow, wiring.c.framing.is_not(None)
    )
    for row in connection.execute(query).all():
        if punctuation.meant_for(row.stage, row.input, row.flow):
            framed = framed_inputs(connection, dataflow, row.stage)[row.input]
            # After a roll-back, closes with a higher index may be there already.
            closed = replace(framed, closes=tuple(sorted((*framed.closes, punctuation.at))))
            write_frames(connection, dataflow, row.stage, closed)


def write_frames(connection: Connection, dataflow: str, stage: str, connector: Connector) -> None:
    """Replace the stored value of a framed input; arrived increments stay in `queue`."""
    assert connector.framing is not None, (
        "`write_frames` was called for an input that is not framed"
    )
    value = {
        "framing": connector.framing.to_json(),
        "frames": [[q.increment.to_json(), int(q.read)] for q in connector.queue],
        "closes": list(connector.closes),
    }
    here = and_(
        wiring.c.dataflow == dataflow, wiring.c.stage == stage, wiring.c.input == connector.input
    )
    connection.execute(update_table(wiring).where(here).values(framing=value))


class Frames:
    """Store methods for frames and their closes; see `Store`."""

    _database: Database

    def frame(
        self,
        dataflow: str,
        stage: str,
        input_: str,
        *,
        index: int | None,
        framing: Framing,
        frames: Sequence[Increment],
    ) -> None:
        """Replace an arrived output increment, or a punctuation, by the frames that end in it.

        Args:
            input_: A framed input of the stage.
            index: Index of the oldest output increment that arrived there. `None` means the
                oldest punctuation that is not applied there.
            framing: The framing after it.

        Raises `NotFoundError`; `InvariantError` if it is not the next one to be framed there: the
        framing was stale.
        """
        here = and_(queue.c.dataflow == dataflow, queue.c.stage == stage, queue.c.input == input_)
        with self._database.write() as connection:
            hold_stage(connection, dataflow, stage)
            oldest = connection.execute(select(func.min(queue.c.idx)).where(here)).scalar_one()
            framed = framed_inputs(connection, dataflow, stage).get(input_)
            closes = () if framed is None else framed.closes
            if index is None:
                stale = not closes or (oldest is not None and oldest < closes[0])
                closes = closes[1:]
            else:
                stale = oldest != index or bool(closes and closes[0] <= index)
                connection.execute(delete_from(queue).where(here, queue.c.idx == index))
            if framed is None or stale:
                what = "no punctuation is" if index is None else f"increment {index} is not"
                message = f"{what} the next to be framed at {stage}.{input_}"
                raise InvariantError(message, dataflow=dataflow, stage=stage)
            queued = (*framed.queue, *map(Queued, frames))
            after = Connector(input_, queued, framing, closes=closes)
            write_frames(connection, dataflow, stage, after)
            event = Event(kind="increment.framed", dataflow=dataflow, stage=stage, subject=input_)
            tell(connection, event)

    def punctuate(self, dataflow: str, punctuation: Punctuation) -> None:
        """Record a punctuation, and queue it at every framed input to which it applies.

        Does nothing if this number is already recorded (redo after a crash).

        Raises `NotFoundError`; `InvariantError` if the previous punctuation is missing.
        """
        with held(self._database, dataflow) as connection:
            number = next_punctuation(connection, dataflow)
            if punctuation.number < number:
                return
            if punctuation.number > number:
                message = f"expected punctuation {number} of {dataflow}, got {punctuation.number}"
                raise InvariantError(message, dataflow=dataflow)
            row = {"dataflow": dataflow, **punctuation.to_json()}
            connection.execute(insert(punctuations), row)
            connection.execute(
                update_table(dataflows)
                .where(dataflows.c.name == dataflow)
                .values(punctuations=number + 1)
            )
            keep_close(connection, dataflow, punctuation)
            event = Event(kind="flow.closed", dataflow=dataflow, flow=punctuation.flow)
            tell(connection, event)

    def next_punctuation(self, dataflow: str) -> int:
        """Return the number for the next punctuation; raises `NotFoundError`."""
        with self._database.read() as connection:
            return next_punctuation(connection, dataflow)

    def punctuation(self, dataflow: str, key: str) -> Punctuation | None:
        """Return the punctuation with this idempotency key, if there is one."""
        query = select(punctuations).where(
            punctuations.c.dataflow == dataflow, punctuations.c.key == key
        )
        return self._database.row(query, punctuation_of)

    def punctuations(
        self,
        dataflow: str,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        cursor: str | None = None,
        limit: int = 100,
    ) -> Page[Punctuation]:
        """List punctuations, newest first; `until` is exclusive. Raises `CursorInvalidError`."""
        query = select(punctuations).where(punctuations.c.dataflow == dataflow)
        if since is not None:
            query = query.where(punctuations.c.closed_ms >= int(since.timestamp() * 1000))
        if until is not None:
            query = query.where(punctuations.c.closed_ms < int(until.timestamp() * 1000))
        return page(
            self._database, query, punctuations.c.number, punctuation_of, cursor, limit, of=dataflow
        )


def next_punctuation(connection: Connection, dataflow: str) -> int:
    """Return the number of the next punctuation of a dataflow; raises `NotFoundError`."""
    query = select(dataflows.c.punctuations).where(dataflows.c.name == dataflow)
    number = connection.execute(query).scalar_one_or_none()
    if number is None:
        raise NotFoundError(kind="dataflow", name=dataflow)
    return int(number)


def punctuation_of(row: Row[Any]) -> Punctuation:
    """Return the punctuation of a row."""
    names = ("number", "flow", "at", "reason", "key", "closed_ms", "input")
    return Punctuation(**{name: getattr(row, name) for name in names})
