"""Store methods for punctuations.

Each punctuation has a row, and `dataflows.punctuations` counts them. Inputs hold the ones that wait
to be applied (`frames`). A restored store knows the count, and only the rows of punctuations after
its position.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, Row, insert, select
from sqlalchemy import update as update_table

from cbp.errors import InvariantError, NotFoundError
from cbp.model.flow.punctuation import Punctuation
from controller.store.database.connections import Database
from controller.store.methods.events import tell
from controller.store.methods.frames import keep_close
from controller.store.methods.listing_pages import page
from controller.store.methods.writer_lock import hold
from controller.store.records import Event, Page
from controller.store.schema.tables import dataflows, punctuations

__all__ = ["Punctuations", "next_punctuation", "punctuation_of"]


class Punctuations:
    """Methods of `Store`."""

    _database: Database

    def punctuate(self, dataflow: str, punctuation: Punctuation) -> None:
        """Record a punctuation, and queue it at every framed input that it is for.

        Does nothing if this number is already recorded (redo after a crash).

        Raises:
            NotFoundError: If there is no such dataflow.
            InvariantError: If the previous punctuation is missing.
        """
        with self._database.write() as connection:
            hold(connection, dataflow)
            number = next_punctuation(connection, dataflow)
            if punctuation.number < number:
                return
            if punctuation.number > number:
                message = f"punctuation {punctuation.number} came, but {number} is missing"
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
        with self._database.read_once() as connection:
            row = connection.execute(query).first()
        return None if row is None else punctuation_of(row)

    def punctuations(
        self, dataflow: str, *, cursor: str | None = None, limit: int = 100
    ) -> Page[Punctuation]:
        """List punctuations, newest first; raises `CursorInvalidError`."""
        query = select(punctuations).where(punctuations.c.dataflow == dataflow)
        with self._database.read_once() as connection:
            return page(
                connection,
                query,
                key=punctuations.c.number,
                cursor=cursor,
                limit=limit,
                of=dataflow,
                build=punctuation_of,
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
