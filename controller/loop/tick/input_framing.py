"""Framing of arrivals: finds stages with increments to frame, and starts it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial

from cbp.errors import CbpError
from cbp.model.dataflow.dataflow import StageNode
from cbp.model.schedule.rest import FOR_EVER
from controller.loop.author.framing import FRAMED, Framer
from controller.loop.records.catalog import Catalog
from controller.loop.runs.isolation import Isolation
from controller.loop.tick.holds import Holds
from controller.loop.tick.stage_views import LoadedDataflow
from controller.store.base import DataflowRecord


@dataclass
class InputFraming:
    """Starts the framing of a tick."""

    catalog: Catalog
    framer: Framer
    isolation: Isolation
    holds: Holds

    def keep_time(self) -> None:
        """Give up framings that take too long."""
        self.framer.keep_time()

    def start(self, loaded: Sequence[LoadedDataflow]) -> set[str]:
        """Frame arrivals, except at stopped stages; return the dataflows that changed."""
        waiting: list[tuple[DataflowRecord, StageNode]] = []
        for one in loaded:
            look = partial(self._to_frame, one)
            waiting += self.isolation.attempt(one.record.name, FRAMED, look) or ()
        self.framer.start(waiting)
        return {record.name for record, _ in waiting}

    def next_close(self, loaded: LoadedDataflow) -> datetime:
        """Return when idle time will close a frame of a dataflow, if nothing arrives."""
        units = self.catalog.units(loaded.record)
        return min(
            (
                self.framer.next_close(
                    loaded.record, units[stage.stage].leader, loaded.connectors[stage.stage]
                )
                for stage in loaded.stages
                if units[stage.stage].leader.translator.framed
            ),
            default=FOR_EVER,
        )

    def _to_frame(self, loaded: LoadedDataflow) -> list[tuple[DataflowRecord, StageNode]]:
        """Return the stages of a dataflow that have something to frame."""
        if self.holds.because(loaded.record.name):
            return []
        try:
            drifted = self.catalog.drifted(loaded.record)
            units = self.catalog.units(loaded.record)
        except CbpError:
            return []  # its stages say why
        waiting = []
        for stage in loaded.stages:
            node = units[stage.stage].leader
            if not node.translator.framed or stage.paused_because or stage.stage in drifted:
                continue
            connectors = loaded.connectors[stage.stage]
            idle = self.framer.close_idle(loaded.record, node, connectors)
            if idle or self.framer.waits(loaded.record, node, connectors):
                waiting.append((loaded.record, node))
        return waiting
