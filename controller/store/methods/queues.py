"""SQL statements that move increments through the connectors.

Functions that write are called inside a transaction that has locked the dataflow (`hold`), so
positions and indexes have neither gaps nor duplicates. A mismatch raises `InvariantError`: a queue
that lost an increment must never look like a shorter queue.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from typing import Any

from sqlalchemy import (
    Connection,
    Delete,
    Select,
    Text,
    Update,
    and_,
    func,
    insert,
    select,
    type_coerce,
)
from sqlalchemy import delete as delete_from
from sqlalchemy import update as update_table

from cbp.errors import InvariantError
from cbp.model.flow.connector import Connector, Queued
from cbp.model.flow.increment import Increment
from cbp.model.run.intention import Intention
from controller.store.methods.frames import connector_of, framed_inputs, write_frames
from controller.store.records import IncrementRecord
from controller.store.schema import rows
from controller.store.schema.tables import increments, queue, stages, wiring


def next_index(connection: Connection, dataflow: str, flow: str) -> int:
    """Return the index for the next increment of a flow; 0 for an unknown flow."""
    highest = select(func.max(increments.c.idx)).where(
        increments.c.dataflow == dataflow, increments.c.flow == flow
    )
    last_index = connection.execute(highest).scalar_one()
    return 0 if last_index is None else int(last_index) + 1


def append_increments(
    connection: Connection,
    records: Sequence[IncrementRecord],
    skip: Collection[tuple[str, str]] = (),
) -> int:
    """Store increments and enqueue them at every consumer; return how many were new.

    Args:
        records: At least one, of one flow, in order and without gaps.
        skip: (stage, input) pairs where they are not enqueued.

    Raises `InvariantError` if one is stored with other content, or a previous one is missing.
    """
    dataflow, flow = records[0].dataflow, records[0].increment.flow
    due = next_index(connection, dataflow, flow)
    new = list[IncrementRecord]()
    for record in records:
        increment = record.increment
        if increment.index < due:
            _assert_same(connection, record)
        elif increment.index == due + len(new):
            new.append(record)
        else:
            message = f"expected increment {flow}/{due + len(new)}, got {increment.name}"
            raise InvariantError(message, dataflow=dataflow)
    if new:
        connection.execute(insert(increments), [rows.increment_row(record) for record in new])
        _enqueue(connection, dataflow, flow, range(due, due + len(new)), skip)
    return len(new)


def wiring_of(connection: Connection, dataflow: str) -> dict[str, dict[str, str]]:
    """Return stage -> input -> flow."""
    query = select(wiring.c.stage, wiring.c.input, wiring.c.flow)
    wires: dict[str, dict[str, str]] = {}
    for row in connection.execute(query.where(wiring.c.dataflow == dataflow)):
        wires.setdefault(row.stage, {})[row.input] = row.flow
    return wires


def _assert_same(connection: Connection, record: IncrementRecord) -> None:
    """Check a repeated increment: increments never change, and a different one would be lost."""
    increment = record.increment
    query = select(increments).where(
        increments.c.dataflow == record.dataflow,
        increments.c.flow == increment.flow,
        increments.c.idx == increment.index,
    )
    row = connection.execute(query).first()
    if row is None or rows.increment_of(row) != increment:
        message = f"increment {increment.name} is already stored with other content"
        raise InvariantError(message, dataflow=record.dataflow)


def _enqueue(
    connection: Connection,
    dataflow: str,
    flow: str,
    indexes: range,
    skip: Collection[tuple[str, str]],
) -> None:
    q, w = queue.alias("q"), wiring.c
    end = select(func.coalesce(func.max(q.c.position), -1) + 1).where(
        q.c.dataflow == w.dataflow, q.c.stage == w.stage, q.c.input == w.input
    )
    consumers = select(w.stage, w.input, end.scalar_subquery().label("end")).where(
        w.dataflow == dataflow, w.flow == flow
    )
    known = {"dataflow": dataflow, "flow": flow, "read_mark": 0}
    new = [
        {**known, "stage": row.stage, "input": row.input, "position": row.end + n, "idx": index}
        for row in connection.execute(consumers).all()
        if (row.stage, row.input) not in skip
        for n, index in enumerate(indexes)
    ]
    if new:
        connection.execute(insert(queue), new)


def consume(connection: Connection, intention: Intention) -> None:
    """Set the read marks of a run, and drop the increments that it removed.

    Raises `InvariantError` if the run names an increment that does not wait there.
    """
    dataflow, stage = intention.dataflow, intention.stage
    framed = framed_inputs(connection, dataflow, stage)
    for name, connector in framed.items():
        read, remove = intention.read.get(name, ()), intention.remove.get(name, ())
        if read or remove:
            write_frames(connection, dataflow, stage, connector.after(tuple(read), tuple(remove)))
    mark = update_table(queue).values(read_mark=1)
    for change, chosen in ((mark, intention.read), (delete_from(queue), intention.remove)):
        for name, named in chosen.items():
            if named and name not in framed:
                _take(connection, intention, change, name, sorted(set(named)))


def _take(
    connection: Connection,
    intention: Intention,
    change: Update | Delete,
    input_: str,
    indexes: list[int],
) -> None:
    """Change the rows of increments that all wait at an input."""
    here = (queue.c.dataflow == intention.dataflow, queue.c.stage == intention.stage)
    waiting = (*here, queue.c.input == input_, queue.c.idx.in_(indexes))
    count = connection.execute(change.where(*waiting)).rowcount
    if count != len(indexes):
        message = (
            f"{intention.id} takes increments {indexes} from input {input_!r}, but only {count} of "
            "them are queued there"
        )
        raise InvariantError(message, dataflow=intention.dataflow, stage=intention.stage)


Known = dict[tuple[Any, ...], Queued]
"""The queued increments of a dataflow, by the values of their rows."""


def connectors(
    connection: Connection, dataflow: str, known: dict[str, Known] | None = None
) -> dict[str, dict[str, Connector]]:
    """Return stage -> input -> connector; inputs in the order of their registration.

    Args:
        known: By dataflow, the queued increments of the last call, which are reused, and
            replaced by the present ones. A row with equal values is an equal increment, so this
            is safe.
    """
    waiting: dict[tuple[str, str], list[Queued]] = {}
    before = {} if known is None else known.get(dataflow, {})
    now: Known = {}
    for stage, input_, *values in connection.execute(_queued(dataflow)):
        key = tuple(values)
        queued = now.get(key) or before.get(key) or _parsed(*values)
        now[key] = queued
        waiting.setdefault((stage, input_), []).append(queued)
    if known is not None and (now or before):
        known[dataflow] = now
    at_stage = and_(wiring.c.dataflow == stages.c.dataflow, wiring.c.stage == stages.c.stage)
    inputs = (
        select(stages.c.stage, wiring.c.input, wiring.c.framing)
        .select_from(stages.outerjoin(wiring, at_stage))
        .where(stages.c.dataflow == dataflow)
        .order_by(stages.c.stage, wiring.c.position)
    )
    queues_by_stage: dict[str, dict[str, Connector]] = {}
    for stage, name, framing in connection.execute(inputs):
        made = queues_by_stage.setdefault(stage, {})
        if name is not None:
            held = tuple(waiting.get((stage, name), ()))
            plain = framing is None
            made[name] = Connector(name, held) if plain else connector_of(name, framing, held)
    return queues_by_stage


def _queued(dataflow: str) -> Select[Any]:
    """Return the query for a dataflow's queues, in order; JSON values stay text."""
    of_queue = and_(
        increments.c.dataflow == queue.c.dataflow,
        increments.c.flow == queue.c.flow,
        increments.c.idx == queue.c.idx,
    )
    texts = (type_coerce(increments.c[name], Text) for name in _JSON)
    return (
        select(queue.c.stage, queue.c.input, queue.c.read_mark, queue.c.flow, queue.c.idx, *texts)
        .select_from(queue.join(increments, of_queue))
        .where(queue.c.dataflow == dataflow)
        .order_by(queue.c.stage, queue.c.input, queue.c.position)
    )


_JSON = ("framing_key", "files", "bindings")


def _parsed(read_mark: int, flow: str, index: int, *texts: str | None) -> Queued:
    framing_key, files, bindings = (None if one is None else json.loads(one) for one in texts)
    value = {"flow": flow, "index": index, "framing_key": framing_key, "files": files}
    increment = Increment.from_json(value | rows.files_beside(bindings))
    return Queued(increment, bool(read_mark))
