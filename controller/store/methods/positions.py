"""Store methods that take a dataflow's position, and bring it back or forward.

Each is one transaction, so a position is a consistent cut: no commit is half inside it. A
restored dataflow has the increments in its queues, the last increment of each flow, and the
increments of its sources' logs; older increments are read from their tables.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from types import MappingProxyType
from typing import Any

from sqlalchemy import Connection, and_, func, insert, select
from sqlalchemy import delete as delete_from
from sqlalchemy import update as update_table

from cbp.errors import InvariantError, NotFoundError
from cbp.model.flow.connector import Connector
from cbp.model.flow.generation import Generation
from cbp.model.flow.increment import Increment
from cbp.model.flow.position import Position, StagePosition
from controller.store.database.connections import Database
from controller.store.methods import queues
from controller.store.methods.arrivals import withdraw
from controller.store.methods.events import tell
from controller.store.methods.frames import (
    keep_close,
    next_punctuation,
    punctuation_of,
    write_frames,
)
from controller.store.methods.leases import held
from controller.store.records import Event, IncrementRecord, StageRecord
from controller.store.schema import rows
from controller.store.schema.tables import dataflows, increments, punctuations, queue, stages


class Positions:
    """Store methods that take and restore a dataflow's position; see `Store`."""

    _database: Database

    def position(self, dataflow: str) -> Position:
        """Return the position of a dataflow between two commits; raises `NotFoundError`."""
        with self._database.read() as connection:
            known = select(dataflows.c.version).where(dataflows.c.name == dataflow)
            version = connection.execute(known).scalar_one_or_none()
            if version is None:
                raise NotFoundError(kind="dataflow", name=dataflow)
            waiting = queues.connectors(connection, dataflow)
            stage_positions = {
                stage.stage: StagePosition(
                    stage.epoch, stage.memo, waiting.get(stage.stage, {}), stage.turns, stage.due_ms
                )
                for stage in _stages(connection, dataflow)
            }
            number = next_punctuation(connection, dataflow)
            newest = tuple(_newest(connection, dataflow))
            return Position(dataflow, stage_positions, newest, number, version)

    def restore(self, position: Position, *, at: datetime) -> None:
        """Bring a dataflow forward to a position; later arrivals at sources stay queued.

        For a store that lost the contents of the position. Does nothing if no stage is behind the
        position.

        Args:
            at: Arrival time for increments that are unknown to the store.

        Raises:
            NotFoundError: If there is no such dataflow.
            InvariantError: If its stages or inputs differ from those of the position, or if some
                stages are ahead of the position.
        """
        dataflow = position.dataflow
        with held(self._database, dataflow) as connection:
            known = {stage.stage: stage.epoch for stage in _stages(connection, dataflow)}
            waiting = queues.connectors(connection, dataflow)
            _require_same(position, waiting)
            steps = [stage.epoch - known[name] for name, stage in position.stages.items()]
            if all(step <= 0 for step in steps):
                return
            if any(step < 0 for step in steps):
                message = (
                    f"some stages of {dataflow!r} are ahead of the position, and others behind it"
                )
                raise InvariantError(message, epochs=known)
            store_increments(connection, position, at)
            ends = _ends(position)
            for name, stage in position.stages.items():
                restore_stage(connection, dataflow, name, stage)
                for input_, connector in stage.connectors.items():
                    # Later arrivals follow the increments of the position.
                    arrived = standing(waiting[name][input_])
                    later = [(i, read) for i, read in arrived if i.index > ends.get(i.flow, -1)]
                    restore_input(connection, dataflow, name, connector, later)
            close_again(connection, position)
            tell(connection, Event(kind="dataflow.restored", dataflow=dataflow))

    def rewind(
        self,
        generation: Generation,
        *,
        at: datetime,
        dropped: Mapping[str, Sequence[range]] = MappingProxyType({}),
    ) -> None:
        """Move a dataflow, backwards or forwards, to the position at which a generation began.

        Undone increments of stages are removed, and failures and pauses of stages are reset.
        Later arrivals at sources stay queued. Does nothing if this or a later generation is
        already stored.

        Args:
            at: Arrival time for increments that are unknown to the store.
            dropped: As in `withdraw`.

        Raises `NotFoundError`; `InvariantError` if stages or inputs differ from those of the
        position.
        """
        position = generation.position
        dataflow = position.dataflow
        with held(self._database, dataflow) as connection:
            stored = select(dataflows.c.generation).where(dataflows.c.name == dataflow)
            if connection.execute(stored).scalar_one() >= generation.number:
                return
            _require_same(position, queues.connectors(connection, dataflow))
            connection.execute(delete_from(queue).where(queue.c.dataflow == dataflow))
            wired = queues.wiring_of(connection, dataflow)
            ends = _ends(position)
            sources = _forget_undone(connection, dataflow, ends)
            store_increments(connection, position, at)
            for name, stage in position.stages.items():
                restore_stage(connection, dataflow, name, stage, paused_because="")
                for input_, connector in stage.connectors.items():
                    later = [(i, False) for i in sources.get(wired[name][input_], ())]
                    restore_input(connection, dataflow, name, connector, later)
            close_again(connection, position)
            withdraw(connection, dataflow, dropped)
            _touch(connection, dataflow, ends, at)
            connection.execute(
                update_table(dataflows)
                .where(dataflows.c.name == dataflow)
                .values(generation=generation.number)
            )
            tell(connection, Event(kind="dataflow.rolled_back", dataflow=dataflow))


def _ends(position: Position) -> dict[str, int]:
    """Return the index of the last increment of each flow that has one."""
    return {increment.flow: increment.index for increment in position.newest}


def _forget_undone(
    connection: Connection, dataflow: str, ends: Mapping[str, int]
) -> dict[str, list[Increment]]:
    """Remove the increments of stages after `ends`; return source increments after `ends`."""
    table = increments.c
    later: dict[str, list[Increment]] = {}
    flows = select(table.flow).where(table.dataflow == dataflow).distinct()
    for flow in connection.execute(flows).scalars().all():
        behind = and_(
            table.dataflow == dataflow, table.flow == flow, table.idx > ends.get(flow, -1)
        )
        if "." in flow:  # `stage.output`; a source has a plain name
            connection.execute(delete_from(increments).where(behind))
        else:
            later_rows = connection.execute(select(increments).where(behind).order_by(table.idx))
            later[flow] = [rows.increment_of(row) for row in later_rows]
    return later


def close_again(connection: Connection, position: Position) -> None:
    """Queue the closes after the present position of the dataflow.

    Closes that a roll-back dropped are in no connector of its position; the store only keeps their
    requests.
    """
    dataflow, number = position.dataflow, punctuations.c.number
    here = punctuations.c.dataflow == dataflow
    later = select(punctuations).where(here, number >= position.punctuations).order_by(number)
    for row in connection.execute(later).all():
        keep_close(connection, dataflow, punctuation_of(row))
    known = next_punctuation(connection, dataflow)
    connection.execute(
        update_table(dataflows)
        .where(dataflows.c.name == dataflow)
        .values(punctuations=max(known, position.punctuations))
    )


def _touch(connection: Connection, dataflow: str, ends: Mapping[str, int], at: datetime) -> None:
    """Set the arrival of the stages' newest increments to `at`: idle time is counted from then."""
    table = increments.c
    for flow, index in ends.items():
        if "." in flow:
            one = (table.dataflow == dataflow, table.flow == flow, table.idx == index)
            connection.execute(update_table(increments).where(*one).values(created_at=at))


def _stages(connection: Connection, dataflow: str) -> list[StageRecord]:
    query = select(stages).where(stages.c.dataflow == dataflow).order_by(stages.c.stage)
    return [rows.stage_of(row) for row in connection.execute(query)]


def _newest(connection: Connection, dataflow: str) -> list[Increment]:
    last = (
        select(increments.c.flow, func.max(increments.c.idx).label("idx"))
        .where(increments.c.dataflow == dataflow)
        .group_by(increments.c.flow)
        .subquery()
    )
    query = (
        select(increments)
        .join(last, and_(increments.c.flow == last.c.flow, increments.c.idx == last.c.idx))
        .where(increments.c.dataflow == dataflow)
        .order_by(increments.c.flow)
    )
    return [rows.increment_of(row) for row in connection.execute(query)]


def _require_same(position: Position, waiting: Mapping[str, Mapping[str, Connector]]) -> None:
    present = {name: _inputs(stage.connectors) for name, stage in position.stages.items()}
    known = {name: _inputs(connectors) for name, connectors in waiting.items()}
    if present != known:
        message = f"the stages or inputs of {position.dataflow!r} differ from those of the position"
        raise InvariantError(message, position=sorted(present), dataflow=sorted(known))


def _inputs(connectors: Mapping[str, Connector]) -> set[tuple[str, bool]]:
    """Return inputs, each with whether it is framed."""
    return {(name, one.framing is not None) for name, one in connectors.items()}


def store_increments(connection: Connection, position: Position, at: datetime) -> None:
    """Insert unknown increments, and update those whose records have moved to other files."""
    wanted = {increment.name: increment for increment in position.newest}
    for stage in position.stages.values():
        for connector in stage.connectors.values():
            wanted.update((increment.name, increment) for increment, _ in standing(connector))
    table = increments.c
    query = select(table.flow, table.idx, table.files).where(table.dataflow == position.dataflow)
    known = {f"{row.flow}/{row.idx}": row.files for row in connection.execute(query)}
    new = []
    for name, increment in sorted(wanted.items(), key=lambda pair: pair[1].index):
        row = rows.increment_row(IncrementRecord(position.dataflow, increment, at))
        if name not in known:
            new.append(row)
        elif known[name] != row["files"]:
            mine = (table.flow == increment.flow, table.idx == increment.index)
            here = update_table(increments).where(table.dataflow == position.dataflow, *mine)
            connection.execute(here.values(files=row["files"]))
    if new:
        connection.execute(insert(increments), new)


def standing(connector: Connector) -> list[tuple[Increment, bool]]:
    """Return the rows of the table `queue`, with its read marks, without frames."""
    if connector.framing is None:
        return [(queued.increment, queued.read) for queued in connector.queue]
    return [(increment, False) for increment in connector.arrived]


def restore_stage(
    connection: Connection, dataflow: str, name: str, stage: StagePosition, **more: Any
) -> None:
    """Set a stage to its position, without failures; `more` are values of further columns."""
    names = ("epoch", "memo", "turns", "due_ms")
    values = {column: getattr(stage, column) for column in names}
    mine = (stages.c.dataflow == dataflow, stages.c.stage == name)
    reset = {"failures": 0, "retry_at": None, **more}
    connection.execute(update_table(stages).where(*mine).values(**values, **reset))


def restore_input(
    connection: Connection,
    dataflow: str,
    stage: str,
    connector: Connector,
    later: Iterable[tuple[Increment, bool]],
) -> None:
    """Set the queue and the frames of one input to those of a connector, plus later arrivals."""
    place = {"dataflow": dataflow, "stage": stage, "input": connector.input}
    mine = (queue.c[name] == value for name, value in place.items())
    connection.execute(delete_from(queue).where(*mine))
    new = [
        {**place, "position": n, "flow": one.flow, "idx": one.index, "read_mark": int(read)}
        for n, (one, read) in enumerate([*standing(connector), *later])
    ]
    if new:
        connection.execute(insert(queue), new)
    if connector.framing is not None:
        write_frames(connection, dataflow, stage, connector)
