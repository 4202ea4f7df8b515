"""Replay a dataflow from its source increments, on any engine, in a separate folder.

The service is not needed: queues, memos and epochs are in memory. They are lost with the process,
unless the caller keeps them (`between`): then another replay of the same folder continues
from them. The same pure model as in the service decides what runs together, and when.

    kept: queues, memos, epochs; records of what is not published       (1) before ...
    published                                                           (2) ... anything is shown

So the tables are never ahead of what was kept last. If a process crashes after (1), these epochs
are published again. Epochs that were prepared later are prepared again under other ids, and the
files of the first attempt are orphans.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from cbp.engine.read.recomputed_epochs import RecomputedEpochs
from cbp.model.dataflow.dataflow import StageNode
from cbp.model.flow.connector import Connector
from cbp.model.flow.framing import Framing
from cbp.model.flow.increment import Increment
from cbp.model.flow.position import Position, StagePosition
from cbp.model.flow.punctuation import Punctuation
from cbp.model.run.intention import Intention
from cbp.model.schedule.runnable_call import call_runnable


@dataclass(frozen=True, slots=True)
class ReplayState:
    """The progress of a replay between two runs, as plain data.

    `position` has the epoch, memo and inputs of each stage that leads; `unpublished` the records
    that a stage's tables may not show yet.
    """

    position: Position
    unpublished: Mapping[str, tuple[Intention, ...]]
    last_ms: int

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values; `from_json` is the inverse."""
        unpublished = self.unpublished.items()
        return {
            "position": self.position.to_json(),
            "unpublished": {stage: [one.to_json() for one in some] for stage, some in unpublished},
            "last_ms": self.last_ms,
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> ReplayState:
        """Read the output of `to_json`."""
        unpublished = value["unpublished"].items()
        return cls(
            Position.from_json(value["position"]),
            {stage: tuple(map(Intention.from_json, some)) for stage, some in unpublished},
            value["last_ms"],
        )


@dataclass
class Replay:
    """One recomputation; the constructor creates tables, or continues those of `begins`.

    Attributes:
        limits: Leading stage to the number of epochs that it may run; other stages have no limit.
        punctuations: Each closes frames once all increments of its flow before it have arrived;
            more can be added with `close`.
        history: Returns the increments of a source that were offered, for runs that read a
            replacement; `None`: those of this replay.
        between: Called between two runs; its argument is whether epochs are published next.
    """

    recomputed: RecomputedEpochs
    limits: Mapping[str, int] | None = None
    punctuations: Sequence[Punctuation] = ()
    history: Callable[[str], Iterable[Increment]] | None = None
    between: Callable[[bool], object] = lambda publishes: None
    begins: ReplayState | None = None
    epochs: dict[str, int] = field(init=False)
    _connectors: dict[str, dict[str, Connector]] = field(init=False)
    _memos: dict[str, Any] = field(init=False, default_factory=dict)
    _offered: defaultdict[str, list[Increment]] = field(
        init=False, default_factory=lambda: defaultdict(list)
    )

    def __post_init__(self) -> None:
        self.epochs = dict.fromkeys(self.recomputed.units, 0)
        self._connectors = {
            name: {input_: Connector(input_) for input_ in unit.leader.wiring}
            for name, unit in self.recomputed.units.items()
        }
        self.recomputed.create_tables(list(self.recomputed.dataflow.stages.values()))
        if self.begins is None:
            return
        for name, stage in self.begins.position.stages.items():
            self.epochs[name], self._memos[name] = stage.epoch, stage.memo
            self._connectors[name] = dict(stage.connectors)
        self.recomputed.resume(self.begins.unpublished, self.begins.last_ms)

    @property
    def state(self) -> ReplayState:
        """The progress of the replay; valid between two runs."""
        stages = {
            name: StagePosition(epoch, self._memos.get(name), dict(self._connectors[name]))
            for name, epoch in self.epochs.items()
        }
        position = Position(self.recomputed.dataflow.name, stages, ())
        return ReplayState(position, self.recomputed.unpublished, self.recomputed.last_ms)

    @property
    def reached(self) -> bool:
        """Whether every stage has a limit and has reached it."""
        limits = self.limits or {}
        return all(name in limits and epoch >= limits[name] for name, epoch in self.epochs.items())

    def waiting(self, stage: str) -> Mapping[str, Connector]:
        """Return the inputs of a leading stage, with their queued increments."""
        return self._connectors[stage]

    def memo(self, stage: str) -> Any:
        """Return the memo of a stage's Runnable."""
        return self._memos.get(stage)

    def offer(self, increment: Increment) -> None:
        """Enqueue an increment of a source, and close the frames that end after it."""
        if self.history is None:
            self._offered[increment.flow].append(increment)
        self._enqueue(increment)

    def close(self, punctuation: Punctuation) -> None:
        """Close the open frames at the inputs to which a punctuation applies."""
        self._close_inputs(punctuation.flow, [punctuation])

    def run_until_idle(self) -> None:
        """Run stages until none can run."""
        while any([self._run(stage) for stage in self.recomputed.units]):
            pass

    def finish(self) -> None:
        """Run to the end and publish everything; raises like `run_until_idle`."""
        self.run_until_idle()
        self.between(True)
        for stage in self.recomputed.units:
            self.recomputed.publish(stage)

    def _run(self, stage: str) -> bool:
        epoch = self.epochs[stage]
        if self.limits is not None and epoch >= self.limits.get(stage, epoch + 1):
            return False
        node = self.recomputed.units[stage].leader
        waiting = self._connectors[stage]
        decision = call_runnable(stage, node.runnable, waiting, self._memos.get(stage))
        if not decision.runnable:
            return False
        inputs = {name: decision.increments(waiting[name]) for name in node.wiring}
        replaces = any(one.gone for increments in inputs.values() for one in increments)
        before = self._already_read(node, waiting) if replaces else {}
        run, prepared = self.recomputed.prepare(
            self.recomputed.units[stage], epoch, inputs, retained=before
        )
        read, remove, outputs = decision.read, decision.remove, prepared.outputs
        of, changes = self.recomputed.dataflow.name, prepared.changes
        record = Intention(of, stage, epoch, run, 0, read, remove, outputs, changes)
        self.recomputed.note(record)
        self._memos[stage] = decision.memo
        self.epochs[stage] += 1
        for name, connector in waiting.items():
            waiting[name] = connector.after(tuple(read.get(name, ())), tuple(remove.get(name, ())))
        for increment in outputs.values():
            self._enqueue(increment)
        self.between(publishes := self.recomputed.is_due(stage))
        if publishes:
            self.recomputed.publish(stage)
        return True

    def _already_read(
        self, node: StageNode, waiting: Mapping[str, Connector]
    ) -> dict[str, tuple[Increment, ...]]:
        """Return the increments that each input has read from its source."""
        offered = self.history or self._offered.__getitem__
        read = {}
        for name, flow in node.wiring.items():
            unread = {one.index for one in waiting[name].unread}
            known = offered(flow) if flow in self.recomputed.dataflow.sources else ()
            read[name] = tuple(one for one in known if one.index not in unread)
        return read

    def _enqueue(self, increment: Increment) -> None:
        for stage, input_ in self.recomputed.dataflow.receivers(increment):
            if stage not in self._connectors:
                continue  # a fused stage: it runs with the stage that wrote this increment
            node = self.recomputed.units[stage].leader
            spec = node.translator.input(input_)
            if spec.frame_by is None:
                self._append(stage, input_, (increment,))
                continue
            framing = self._connectors[stage][input_].framing or Framing()
            segments, memo = self.recomputed.engine.increments.frame(
                self.recomputed.folder, stage, spec, increment, framing.memo, node.set_aside_max
            )
            self._frame(stage, input_, *framing.take(increment, segments, memo))
        next_one = increment.flow, increment.index + 1
        here = [one for one in self.punctuations if (one.flow, one.at) == next_one]
        self._close_inputs(increment.flow, here)

    def _close_inputs(self, flow: str, here: Sequence[Punctuation]) -> None:
        for stage, input_ in self.recomputed.dataflow.consumers(flow) if here else ():
            meant = any(p.meant_for(stage, input_, flow) for p in here)
            if not meant or stage not in self._connectors:
                continue
            if self.recomputed.units[stage].leader.translator.input(input_).frame_by is not None:
                framing = self._connectors[stage][input_].framing or Framing()
                self._frame(stage, input_, *framing.close())

    def _frame(self, stage: str, input_: str, framing: Framing, done: Iterable[Increment]) -> None:
        """Append the new frames of an input, and set its framing."""
        self._append(stage, input_, done)
        connectors = self._connectors[stage]
        connectors[input_] = replace(connectors[input_], framing=framing)

    def _append(self, stage: str, input_: str, increments: Iterable[Increment]) -> None:
        connectors = self._connectors[stage]
        for increment in increments:
            connectors[input_] = connectors[input_].append(increment)
