"""Framing: cuts arrivals at framed inputs into frames, in threads beside the tick.

Each increment that arrives is read once per framed input, in order, and replaced by the frames
that end in it; a punctuation is between two increments. Frames are a function of the flow and its
punctuations alone. So after a loss of the store the same frames come again, with the same
numbers, before records that name them are redone.

One piece of work frames everything that waits at one stage. The stage whose last turn was longest
ago comes first. Reading may take long. The result is recorded in one short step, if the work is
still wanted then.

Guaranteed (tests/controller/loop/runs/test_time_limit.py): an author's function that fails or hangs
stops only its stage, and the error names its line; nothing of a deleted dataflow is recorded.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any

import structlog

from cbp.errors import CbpError
from cbp.model.dataflow.dataflow import StageNode
from cbp.model.dataflow.stage import InputSpec
from cbp.model.flow.connector import Connector
from cbp.model.flow.framing import Segment
from cbp.model.flow.increment import Increment
from cbp.model.flow.punctuation import idle_at
from cbp.model.schedule.idle_until import FOR_EVER
from cbp.model.schedule.parallel_runs import ActiveRun, Places
from controller.loop.author.calls_outside_runs import TimedCall, TimedCalls, pause_late
from controller.loop.author.punctuations import Punctuations
from controller.loop.runs.in_flight import StageId
from controller.loop.runs.isolation import Isolation
from controller.store.base import DataflowRecord, Store

SETTING = "run_seconds_max"

FRAMED, FRAMED_ASIDE = "framed", "framed in the background"

_log = structlog.get_logger(__name__)

Connectors = Mapping[str, Connector]

FindFrames = Callable[[str, str, InputSpec, Increment, Any, int | None], tuple[list[Segment], Any]]
"""See `cbp.engine.interface.readers.IncrementReader.frame`."""


@dataclass(kw_only=True, eq=False)
class Framer:
    """Frames arrivals; every method can be called from any thread.

    Attributes:
        origin: Returns, in words, the file and line of the record that an error's details name.
    """

    store: Store
    find_frames: FindFrames
    punctuations: Punctuations
    clock: Callable[[], datetime]
    threads: Executor
    wake: Callable[[], None]
    places: Places
    isolation: Isolation
    run_seconds_max: float = 0.0
    origin: Callable[[str, Mapping[str, Any]], str] = lambda dataflow, details: ""

    def __post_init__(self) -> None:
        self._questions = TimedCalls(threads=self.threads, clock=self.clock)
        self._lock = threading.Lock()
        self._turns: dict[StageId, int] = {}
        self._idle_since: dict[tuple[str, str, str, int], datetime] = {}

    # beside the tick

    def start(self, stages: Iterable[tuple[DataflowRecord, StageNode]]) -> None:
        """Begin to frame queued increments of these stages, as far as slots are free."""
        asked, rests = self._questions.busy(), self.isolation.resting
        waiting = [one for one in stages if (one[0].name, one[1].name) not in asked]
        waiting = [one for one in waiting if rests(one[0].name, FRAMED_ASIDE) is None]
        waiting.sort(key=lambda one: self._turns.get((one[0].name, one[1].name), -1))
        while (chosen := self._next(waiting)) is not None:
            record, node = waiting.pop(chosen)
            question = self._question(record, node)
            if self._questions.ask(question, partial(self._work, record, node, question)):
                with self._lock:
                    self._turns[question.key] = max(self._turns.values(), default=0) + 1

    def _next(self, waiting: Sequence[tuple[DataflowRecord, StageNode]]) -> int | None:
        works = [ActiveRun(*key, since) for key, since in self._questions.busy().items()]
        return self.places.next(works, [record.name for record, _ in waiting], self.clock())

    def waits(self, record: DataflowRecord, node: StageNode, connectors: Connectors) -> bool:
        """Return whether a stage has something to frame."""
        framed = (connectors[spec.name] for spec in node.translator.framed)
        return any(
            connector.arrived or self._close_is_due(record, node, connector) for connector in framed
        )

    def forget(self, dataflow: str) -> None:
        """Drop the work of a dataflow that was deleted, or that another instance now leads."""
        self._quiet(self._questions.drop(lambda key: key[0] == dataflow))
        with self._lock:
            self._turns = {key: turn for key, turn in self._turns.items() if key[0] != dataflow}
            for key in [key for key in self._idle_since if key[0] == dataflow]:
                del self._idle_since[key]

    def begin(self) -> None:
        """Begin a term: accept work again after `stop`, and forget everything from before."""
        self._questions.begin()
        with self._lock:
            self._turns.clear()
            self._idle_since.clear()

    def stop(self) -> None:
        """Drop all work; work under way records nothing."""
        self._quiet(self._questions.stop())

    def _quiet(self, dropped: Iterable[StageId]) -> None:
        for dataflow in {name for name, _ in dropped}:
            with self.punctuations.lock(dataflow):
                pass  # no thread records any more; one that records later finds its work unwanted

    def _question(self, record: DataflowRecord, node: StageNode) -> TimedCall:
        """Return a new call for a stage; `_frame` sets the function of each input in it."""
        own = node.run_seconds_max
        limit = self.run_seconds_max if own is None else own
        return TimedCall((record.name, node.name), "frame_by", "", limit, SETTING)

    def _work(self, record: DataflowRecord, node: StageNode, question: TimedCall) -> None:
        frame = partial(self._frame, record, node, question)
        try:
            self.isolation.attempt(record.name, FRAMED_ASIDE, frame)
        finally:
            self._questions.drop_one(question)
            self.wake()

    def keep_time(self) -> None:
        """Pause the stages whose author's function hangs; their threads are left alone."""
        late = self._questions.give_up_late()
        pause_late(late, "framing.timed_out", self.store, self.isolation)

    # one stage

    def frame(self, record: DataflowRecord, node: StageNode) -> None:
        """Frame all waiting increments of a stage, in the caller's thread.

        An author's error, or damaged data, pauses the stage with its reason.
        """
        self._frame(record, node, None)

    def advance(
        self,
        record: DataflowRecord,
        node: StageNode,
        *,
        wanted: Callable[[], bool],
        begins: Callable[[InputSpec], None] = lambda spec: None,
    ) -> None:
        """Frame a stage's queued increments step by step, while wanted; raises `CbpError`.

        Args:
            wanted: Called before each step, and again before the step is recorded.
        """
        for spec in node.translator.framed:
            while wanted():
                begins(spec)
                if not self._step(record, node, spec, wanted):
                    break

    def _frame(self, record: DataflowRecord, node: StageNode, question: TimedCall | None) -> None:
        def wanted() -> bool:
            return question is None or self._questions.wanted(question)

        def begins(spec: InputSpec) -> None:
            assert spec.frame_by is not None, f"input {spec.name!r} has no frame_by"
            if question is not None:
                place = spec.frame_by.place
                self._questions.goes_on(question, f"{spec.name}.frame_by", place)

        try:
            self.advance(record, node, wanted=wanted, begins=begins)
        except CbpError as error:
            if wanted():
                details = dict(error.as_dict())
                if words := self.origin(record.name, error.details):
                    details["message"] = f"{error.message} ({words})"
                _log.warning("framing.failed", dataflow=record.name, error=details)
                self.store.pause_stage(record.name, node.name, details["message"], details)

    def _step(
        self, record: DataflowRecord, node: StageNode, spec: InputSpec, wanted: Callable[[], bool]
    ) -> bool:
        """Apply one punctuation or frame one arrived increment; return whether there was one."""
        if self._close_what_is_due(record, node, spec, wanted):
            return True
        connector = self._connector(record, node, spec)
        if not connector.arrived:
            return False
        increment, framing = connector.arrived[0], connector.framing
        assert framing is not None, f"the store has no framing of input {spec.name!r}"
        # A close that is requested meanwhile comes after this increment, which has arrived.
        segments, memo = self.find_frames(
            record.folder, node.name, spec, increment, framing.memo, node.set_aside_max
        )
        with self.punctuations.lock(record.name):
            if not wanted():
                return False
            framing, done = framing.take(increment, segments, memo)
            self.store.frame(
                record.name,
                node.name,
                spec.name,
                index=increment.index,
                framing=framing,
                frames=done,
            )
        return True

    def _close_what_is_due(
        self, record: DataflowRecord, node: StageNode, spec: InputSpec, wanted: Callable[[], bool]
    ) -> bool:
        """Apply the punctuations that precede all waiting increments; return whether any did."""
        moved = False
        with self.punctuations.lock(record.name):
            if not wanted():
                return False
            self.punctuations.catch_up(record)
            while True:
                end = self.store.next_index(record.name, node.wiring[spec.name])
                connector = self._connector(record, node, spec)
                if not connector.close_is_due(end):
                    return moved
                assert connector.framing is not None, f"no framing of input {spec.name!r} is stored"
                framing, done = connector.framing.close()
                self.store.frame(
                    record.name, node.name, spec.name, index=None, framing=framing, frames=done
                )
                moved = True

    def _connector(self, record: DataflowRecord, node: StageNode, spec: InputSpec) -> Connector:
        return self.store.connectors(record.name)[node.name][spec.name]

    # idle time

    def close_idle(self, record: DataflowRecord, node: StageNode, connectors: Connectors) -> bool:
        """Close the frames of inputs that were idle too long; return whether there were any."""
        closed = False
        for spec in node.translator.framed:
            connector, flow = connectors[spec.name], node.wiring[spec.name]
            seconds = node.close_idle_seconds(spec.name)
            if not seconds or connector.framing is None or connector.framing.open is None:
                continue
            with self.punctuations.lock(record.name):
                # Load again: what arrived meanwhile is framed first.
                connector = self._connector(record, node, spec)
                if self._close_is_due(record, node, connector):
                    continue  # what has arrived comes first
                due = idle_at(connector, self._since(record, node, connector), seconds)
                if due is None or self.clock() < due or connector.framing is None:
                    continue
                # One key per frame: the open frame's number is the next one minus 1. After a
                # roll-back the numbers start again, so the generation is part of the key.
                name = f"{node.name}.{spec.name}"
                life = f"@{record.generation}" if record.generation else ""
                key = f"idle/{name}/{connector.framing.next - 1}{life}"
                self.punctuations.close(record, flow, key=key, reason="idle", input_=name)
                closed = True
        return closed

    def next_close(
        self, record: DataflowRecord, node: StageNode, connectors: Connectors
    ) -> datetime:
        """Return the time at which an idle frame of a stage will be closed, if nothing arrives."""
        ends = [
            idle_at(connector, self._since(record, node, connector), seconds)
            for spec in node.translator.framed
            if (seconds := node.close_idle_seconds(spec.name))
            and (connector := connectors[spec.name]).framing is not None
            and connector.framing.open is not None
        ]
        return min((end for end in ends if end is not None), default=FOR_EVER)

    def _close_is_due(self, record: DataflowRecord, node: StageNode, connector: Connector) -> bool:
        """Return whether a close waits at a place that its flow has reached.

        After a roll-back, a flow may first have to make increments before that place again.
        """
        if not connector.closes:
            return False
        flow = node.wiring[connector.input]
        return connector.close_is_due(self.store.next_index(record.name, flow))

    def _since(self, record: DataflowRecord, node: StageNode, connector: Connector) -> datetime:
        """Return when the last record arrived; the present time if the store lost its increment."""
        assert connector.framing is not None, f"input {connector.input!r} is not framed"
        flow, last = node.wiring[connector.input], connector.framing.last
        key = record.name, node.name, connector.input, last
        with self._lock:
            since = self._idle_since.get(key)
        if since is None:
            try:
                since = self.store.increment(record.name, flow, last).created_at
            except CbpError:
                since = self.clock()
            with self._lock:
                others = {k: v for k, v in self._idle_since.items() if k[:3] != key[:3]}
                self._idle_since = {**others, key: since}
        return since
