"""Store methods for figures of all dataflows together, for metrics.

Metrics are read every few seconds, so the number of statements does not depend on the dataflows.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from sqlalchemy import Text, and_, func, literal_column, select, type_coerce

from controller.store.database.connections import Database
from controller.store.records import GaugeRows, QueueGauge, StageGauge
from controller.store.schema.tables import claims, increments, queue, stages, wiring

_FILES_RECORDS, _FILES_BYTES = 1, 2
_IS_QUARANTINED = claims.c.status == literal_column("'quarantined'")
"""The literal of the partial index `ix_claims_quarantined`, which a parameter would not match."""


class Gauges:
    """Store methods for figures of all dataflows together; see `Store`."""

    _database: Database

    def gauges(self) -> GaugeRows:
        """Return figures of stages and queues of all dataflows, with a fixed number of statements.

        The cost grows with the number of waiting increments.
        """
        s, w, q, i = stages.c, wiring.c, queue.c, increments.c
        named = and_(i.dataflow == q.dataflow, i.flow == q.flow, i.idx == q.idx)
        waiting = select(
            q.dataflow, q.stage, q.input, q.read_mark, i.created_at, type_coerce(i.files, Text)
        ).join(increments, named)
        columns = (s.dataflow, s.stage, s.epoch, s.failures, s.paused_because)
        with self._database.read() as connection:
            stage_rows = connection.execute(select(*columns).order_by(s.dataflow, s.stage)).all()
            inputs = connection.execute(
                select(w.dataflow, w.stage, w.input, w.framing.is_not(None))
            ).all()
            queue_rows = connection.execute(waiting).all()
        queues: dict[tuple[str, str, str], list[Any]] = {
            (row[0], row[1], row[2]): [0, 0, 0, None, row[3]] for row in inputs
        }
        unreadable = set[str]()
        for dataflow, stage, input_, read, at, files in queue_rows:
            try:
                _add(queues[dataflow, stage, input_], read, at, files)
            except (ValueError, LookupError, TypeError):
                unreadable.add(dataflow)
        return GaugeRows(
            tuple(StageGauge(*row) for row in stage_rows),
            tuple(QueueGauge(*key, *values[:4]) for key, values in sorted(queues.items())),
            frozenset(unreadable),
        )

    def queued(self) -> set[str]:
        """Return the dataflows that have an increment or a frame in a queue."""
        with self._database.read_once() as connection:
            return set(connection.scalars(select(queue.c.dataflow).distinct()))

    def paused_stages(self) -> Mapping[str, Mapping[str, str]]:
        """Return dataflow -> stage -> why it is paused; reads only paused stages."""
        c = stages.c
        query = select(c.dataflow, c.stage, c.paused_because).where(c.paused_because != "")
        paused: dict[str, dict[str, str]] = {}
        with self._database.read_once() as connection:
            for dataflow, stage, why in connection.execute(query):
                paused.setdefault(dataflow, {})[stage] = why
        return paused

    def quarantined(self) -> Mapping[tuple[str, str], int]:
        """Return (dataflow, source) -> files in quarantine; reads no other claims."""
        c = claims.c
        query = (
            select(c.dataflow, c.source, func.count())
            .where(_IS_QUARANTINED)
            .group_by(c.dataflow, c.source)
        )
        with self._database.read_once() as connection:
            return {(row[0], row[1]): int(row[2]) for row in connection.execute(query)}

    def quarantined_of(self, dataflow: str, sources: Iterable[str]) -> Mapping[str, int]:
        """Return source -> files in quarantine, if any; reads no other claims."""
        c = claims.c
        query = (
            select(c.source, func.count())
            .where(c.dataflow == dataflow, c.source.in_(list(sources)), _IS_QUARANTINED)
            .group_by(c.source)
        )
        with self._database.read_once() as connection:
            return {row[0]: int(row[1]) for row in connection.execute(query)}


def _add(values: list[Any], read: int, at: datetime, files: str) -> None:
    parts = json.loads(files)
    values[0] += 1
    values[1] += sum(part[_FILES_RECORDS] for part in parts)
    values[2] += sum(part[_FILES_BYTES] for part in parts)
    framed, oldest = values[4], values[3]
    if not read and not framed and (oldest is None or at < oldest):
        values[3] = at
