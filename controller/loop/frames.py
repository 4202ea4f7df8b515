"""Framing: what arrived at framed inputs becomes frames, before anything is decided.

Each output increment is read once per framed input, in order, and replaced by the frames
that it completed. That is a function of the flow alone, so after a loss of the store the
same frames come again, under the same numbers, before records that name them are redone.

Guaranteed: an author's function that fails stops its stage only, with its line.
Absent on purpose: threads; a large increment is framed in the caller's.
"""

from __future__ import annotations

from collections.abc import Mapping

import structlog

from cbp.engine.base import Engine
from cbp.errors import CbpError
from cbp.model.connector import Connector
from cbp.model.dataflow import StageNode
from controller.store.base import DataflowRecord, Store

__all__ = ["Framer"]

_log = structlog.get_logger(__name__)


class Framer:
    """Frames what arrived; idempotent, one caller at a time."""

    def __init__(self, *, store: Store, engine: Engine) -> None:
        self._store, self._engine = store, engine

    def frame(
        self, record: DataflowRecord, node: StageNode, connectors: Mapping[str, Connector]
    ) -> bool:
        """Frame everything that arrived at a stage; tell whether there was anything.

        A failure pauses the stage with its reason.
        """
        moved = False
        for spec in node.translator.framed:
            connector = connectors[spec.name]
            framing = connector.framing
            for increment in connector.arrived:
                assert framing is not None, "the store knows this input as framed"
                try:
                    found, memo = self._engine.frame(
                        record.folder, node.name, spec, increment, framing.memo
                    )
                except CbpError as error:
                    _log.warning("framing.failed", dataflow=record.name, error=error.as_dict())
                    self._store.pause_stage(record.name, node.name, error.message)
                    break
                framing, done = framing.take(increment.flow, found, memo)
                self._store.frame(
                    record.name,
                    node.name,
                    spec.name,
                    index=increment.index,
                    framing=framing,
                    frames=done,
                )
                moved = True
        return moved
