"""Framing: what arrived at framed inputs becomes frames, beside the thread that ticks.

Each output increment is read once per framed input, in order, and replaced by the frames
that it ended; a punctuation stands between two of them. That is a function of the flow and
its punctuations alone, so after a loss of the store the same frames come again, under the
same numbers, before records that name them are redone.

One piece of work is what waits at one stage; `parallel_max` at a time, those of stages that
had no turn for longest first. Reading takes as long as it takes; what it found is recorded
in one short step, if the work is still wanted then. Work that takes longer than the time
limit is given up, its stage stops, and it counts no more.

Guaranteed (tests/controller/test_frames.py): an author's function that fails or hangs stops
its stage only, with its line; nothing of a dataflow that was deleted is recorded.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass
from datetime import datetime

import structlog

from cbp.engine.base import Engine
from cbp.errors import CbpError, TimeLimitError
from cbp.model.connector import Connector
from cbp.model.dataflow import StageNode
from cbp.model.punctuation import idle_at
from cbp.model.stage import InputSpec
from controller.loop.punctuations import Punctuations
from controller.store.base import DataflowRecord, Store

__all__ = ["Framer"]

StageId = tuple[str, str]

_log = structlog.get_logger(__name__)


@dataclass(eq=False)
class _Work:
    """A stage at which something is framed.

    Attributes:
        since: When its present output increment was begun.
    """

    record: DataflowRecord
    node: StageNode
    since: datetime

    @property
    def id(self) -> StageId:
        """The dataflow and the stage."""
        return self.record.name, self.node.name


class Framer:
    """Frames what arrived; every method may be called from any thread.

    Args:
        threads: Where pieces of work go.
        wake: Called when one has ended.
        parallel_max: Pieces of work at a time.
        seconds_max: Time limit of one output increment; 0: none.
    """

    def __init__(
        self,
        *,
        store: Store,
        engine: Engine,
        punctuations: Punctuations,
        clock: Callable[[], datetime],
        threads: Executor,
        wake: Callable[[], None],
        parallel_max: int = 2,
        seconds_max: float = 0.0,
    ) -> None:
        self._store, self._engine, self._punctuations = store, engine, punctuations
        self._clock, self._threads, self._wake = clock, threads, wake
        self._parallel_max, self._seconds_max = parallel_max, seconds_max
        self._lock = threading.Lock()
        self._busy: dict[StageId, _Work] = {}
        self._turns: dict[StageId, int] = {}
        self._idle_since: dict[tuple[str, str, str, int], datetime] = {}
        self._stopping = False

    # beside the tick

    def start(self, found: Iterable[tuple[DataflowRecord, StageNode]]) -> None:
        """Begin to frame what waits at these stages, as far as there are places."""
        waiting = sorted(found, key=lambda one: self._turns.get((one[0].name, one[1].name), -1))
        for record, node in waiting:
            work = _Work(record, node, self._clock())
            with self._lock:
                full = len(self._busy) >= self._parallel_max
                if self._stopping or full or work.id in self._busy:
                    continue
                self._busy[work.id] = work
                self._turns[work.id] = max(self._turns.values(), default=0) + 1
            self._threads.submit(self._work, work)

    def waits(self, node: StageNode, connectors: Mapping[str, Connector]) -> bool:
        """Tell whether something waits to be framed at a stage."""
        framed = (connectors[spec.name] for spec in node.translator.framed)
        return any(connector.arrived or connector.closes for connector in framed)

    def busy(self) -> set[StageId]:
        """Return the stages that are being worked for."""
        with self._lock:
            return set(self._busy)

    def forget(self, dataflow: str) -> None:
        """Want nothing any more of a dataflow that is deleted."""
        self._drop(lambda key: key[0] == dataflow)

    def begin(self) -> None:
        """Frame again after `stop`, with nothing kept of before."""
        with self._lock:
            assert not self._busy, f"still wanted: {self._busy.keys()}"
            self._turns.clear()
            self._idle_since.clear()
            self._stopping = False

    def stop(self) -> None:
        """Want nothing any more; what is under way records nothing."""
        self._stopping = True
        self._drop(lambda key: True)

    def _drop(self, chosen: Callable[[StageId], bool]) -> None:
        with self._lock:
            dropped = [key for key in self._busy if chosen(key)]
            for key in dropped:
                del self._busy[key]
            self._turns = {key: turn for key, turn in self._turns.items() if not chosen(key)}
        for dataflow in {name for name, _ in dropped}:
            with self._punctuations.lock(dataflow):
                pass  # who was recording has ended, who comes later is not wanted

    def _work(self, work: _Work) -> None:
        try:
            self._frame(work.record, work.node, lambda: self._wanted(work))
        except Exception:  # a worker's last resort: the store failed, the next tick tries again
            _log.exception("framing.lost", dataflow=work.record.name, stage=work.node.name)
        finally:
            with self._lock:
                if self._busy.get(work.id) is work:
                    del self._busy[work.id]
            self._wake()

    def _wanted(self, work: _Work) -> bool:
        work.since = self._clock()  # each increment has the whole time
        with self._lock:
            return self._busy.get(work.id) is work

    def keep_time(self) -> None:
        """Stop the stages whose author's function hangs; their threads are left alone."""
        if not self._seconds_max:
            return
        now = self._clock()
        with self._lock:
            late = [
                work
                for work in self._busy.values()
                if (now - work.since).total_seconds() > self._seconds_max
            ]
            for work in late:
                del self._busy[work.id]
        for work in late:
            place = next(s.frame_by.place for s in work.node.translator.framed if s.frame_by)
            error = TimeLimitError(
                f"framing for stage {work.node.name!r} ({place})", self._seconds_max
            )
            told = error.as_dict()
            _log.warning("framing.gave_up", dataflow=work.record.name, error=told)
            self._store.pause_stage(work.record.name, work.node.name, error.message, told)

    # one stage

    def frame(self, record: DataflowRecord, node: StageNode) -> None:
        """Frame everything that waits at a stage, in the caller's thread.

        An author's error, or damaged data, pauses the stage with its reason.
        """
        self._frame(record, node, lambda: True)

    def _frame(self, record: DataflowRecord, node: StageNode, wanted: Callable[[], bool]) -> None:
        for spec in node.translator.framed:
            try:
                while wanted() and self._step(record, node, spec, wanted):
                    pass
            except CbpError as error:
                if not wanted():
                    return
                told = error.as_dict()
                _log.warning("framing.failed", dataflow=record.name, error=told)
                self._store.pause_stage(record.name, node.name, error.message, told)
                return

    def _step(
        self,
        record: DataflowRecord,
        node: StageNode,
        spec: InputSpec,
        wanted: Callable[[], bool],
    ) -> bool:
        """Apply one punctuation or frame one output increment; tell whether there was one."""
        if self._close_what_is_due(record, node, spec, wanted):
            return True
        connector = self._connector(record, node, spec)
        if not connector.arrived:
            return False
        increment, framing = connector.arrived[0], connector.framing
        assert framing is not None, "the store knows this input as framed"
        # Whatever is closed meanwhile is closed behind this increment: it has arrived.
        found, memo = self._engine.frame(record.folder, node.name, spec, increment, framing.memo)
        with self._punctuations.lock(record.name):
            if not wanted():
                return False
            framing, done = framing.take(increment, found, memo)
            self._store.frame(
                record.name,
                node.name,
                spec.name,
                index=increment.index,
                framing=framing,
                frames=done,
            )
        return True

    def _close_what_is_due(
        self,
        record: DataflowRecord,
        node: StageNode,
        spec: InputSpec,
        wanted: Callable[[], bool],
    ) -> bool:
        """Apply the punctuations that come before anything that waits; tell whether any did."""
        moved = False
        with self._punctuations.lock(record.name):
            if not wanted():
                return False
            self._punctuations.catch_up(record)
            while True:
                end = self._store.next_index(record.name, node.wiring[spec.name])
                connector = self._connector(record, node, spec)
                if not connector.close_is_due(end):
                    return moved
                assert connector.framing is not None, "the store knows this input as framed"
                framing, done = connector.framing.close()
                self._store.frame(
                    record.name, node.name, spec.name, index=None, framing=framing, frames=done
                )
                moved = True

    def _connector(self, record: DataflowRecord, node: StageNode, spec: InputSpec) -> Connector:
        return self._store.connectors(record.name)[node.name][spec.name]

    # idle time

    def close_idle(
        self, record: DataflowRecord, node: StageNode, connectors: Mapping[str, Connector]
    ) -> bool:
        """Close the inputs of a stage at which nothing came for too long; tell whether any was."""
        closed = False
        for spec in node.translator.framed:
            connector, flow = connectors[spec.name], node.wiring[spec.name]
            seconds = node.close_idle_seconds(spec.name)
            if not seconds or connector.framing is None or connector.framing.open is None:
                continue
            with self._punctuations.lock(record.name):
                # Anew: what came meanwhile is framed first.
                connector = self._connector(record, node, spec)
                due = idle_at(connector, self._since(record, node, connector), seconds)
                if due is None or self._clock() < due or connector.framing is None:
                    continue
                # One per frame, whose number is the one before the next.
                name = f"{node.name}.{spec.name}"
                key = f"idle/{name}/{connector.framing.next - 1}"
                self._punctuations.close(record, flow, key=key, reason="idle", input_=name)
                closed = True
        return closed

    def _since(self, record: DataflowRecord, node: StageNode, connector: Connector) -> datetime:
        """Return when the last record came; of one that a lost store does not know: now."""
        assert connector.framing is not None, "asked of framed inputs only"
        flow, last = node.wiring[connector.input], connector.framing.last
        key = record.name, node.name, connector.input, last
        if key not in self._idle_since:
            for old in [one for one in self._idle_since if one[:3] == key[:3]]:
                del self._idle_since[old]
            try:
                since = self._store.increment(record.name, flow, last).created_at
            except CbpError:
                since = self._clock()
            self._idle_since[key] = since
        return self._idle_since[key]
