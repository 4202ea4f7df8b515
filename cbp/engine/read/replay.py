"""Replay a dataflow from its source increments, on any engine, in a separate folder.

The service is not needed: queues, memos and epochs are in memory. They are lost with the process,
which leaves the folder useless. The same pure model as in the service decides what runs together,
and when.
How an epoch is prepared and published: `cbp.engine.read.recomputed_epochs`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from cbp.engine.interface.engine import Engine
from cbp.engine.interface.runs import NO_ORIGINS, Origins
from cbp.engine.read.recomputed_epochs import RecomputedEpochs
from cbp.model.dataflow.dataflow import Dataflow
from cbp.model.flow.connector import Connector
from cbp.model.flow.framing import Framing
from cbp.model.flow.increment import Increment
from cbp.model.flow.punctuation import Punctuation
from cbp.model.plan.fusion import PhysicalStage
from cbp.model.run.intention import Intention
from cbp.model.schedule.runnable_call import consult

_Pair = tuple[str, str]


@dataclass
class Replay:
    """One recomputation; the constructor creates the tables.

    Attributes:
        folder: Folder of the tables; increments name their files relative to it.
        id: Prefix of the ids of the runs, `[a-z0-9]+`.
        limits: Leading stage to the number of epochs that it may run; other stages have no limit.
        before_run: Called with the id of each run before it starts; may raise to end the replay.
        punctuations: Punctuations of the flows; each closes frames once all increments of its
            flow before it have arrived. Others can be given one by one (`close`).
        origins: As in `RecomputedEpochs`.
    """

    engine: Engine
    dataflow: Dataflow
    units: Mapping[str, PhysicalStage]
    folder: str
    id: str
    limits: Mapping[str, int] | None = None
    before_run: Callable[[str], None] = lambda run: None
    punctuations: Sequence[Punctuation] = ()
    origins: Callable[[Iterable[Increment]], Origins] = lambda increments: NO_ORIGINS
    epochs: dict[str, int] = field(init=False)
    _connectors: dict[str, dict[str, Connector]] = field(init=False)
    _framings: dict[_Pair, Framing] = field(init=False, default_factory=dict)
    _memos: dict[str, Any] = field(init=False, default_factory=dict)
    _read: dict[str, dict[str, tuple[Increment, ...]]] = field(init=False, default_factory=dict)
    _recomputed: RecomputedEpochs = field(init=False)

    def __post_init__(self) -> None:
        self.epochs = dict.fromkeys(self.units, 0)
        self._connectors = {
            name: {input_: Connector(input_) for input_ in unit.leader.wiring}
            for name, unit in self.units.items()
        }
        self._recomputed = RecomputedEpochs(
            self.engine,
            self.dataflow,
            self.folder,
            self.id,
            self.before_run,
            units=self.units,
            origins=self.origins,
        )
        self._recomputed.create_tables(list(self.dataflow.stages.values()))

    @property
    def reached(self) -> bool:
        """Whether every stage has a limit and has reached it."""
        limits = self.limits or {}
        return all(name in limits and epoch >= limits[name] for name, epoch in self.epochs.items())

    def waiting(self, stage: str) -> Mapping[str, Connector]:
        """Return the inputs of a stage that leads, with what waits there."""
        return self._connectors[stage]

    def memo(self, stage: str) -> Any:
        """Return the memo of a stage's Runnable."""
        return self._memos.get(stage)

    def offer(self, increment: Increment) -> None:
        """Enqueue an increment of a source, and close the frames that end after it."""
        self._enqueue(increment)

    def close(self, punctuation: Punctuation) -> None:
        """Close the frames that are open at the inputs that a punctuation is meant for."""
        self._close_inputs(punctuation.flow, [punctuation])

    def run_until_idle(self) -> None:
        """Run stages until none may run.

        Raises:
            CbpError: See `RunPreparer.prepare`.
        """
        while any([self._run(stage) for stage in self.units]):
            pass

    def finish(self) -> None:
        """Run to the end and publish everything; raises like `run_until_idle`."""
        self.run_until_idle()
        for stage in self.units:
            self._recomputed.publish(stage)

    def _run(self, stage: str) -> bool:
        epoch = self.epochs[stage]
        if self.limits is not None and epoch >= self.limits.get(stage, epoch + 1):
            return False
        node = self.units[stage].leader
        waiting = self._connectors[stage]
        decision = consult(stage, node.runnable, waiting, self._memos.get(stage))
        if not decision.runnable:
            return False
        inputs = {name: decision.increments(waiting[name]) for name in node.wiring}
        read = self._read.setdefault(stage, {name: () for name in node.wiring})
        run, prepared = self._recomputed.prepare(self.units[stage], epoch, inputs, retained=read)
        self._read[stage] = {name: (*read[name], *inputs[name]) for name in node.wiring}
        self._recomputed.record(
            Intention(
                self.dataflow.name,
                stage,
                epoch,
                run,
                0,
                decision.read,
                decision.remove,
                prepared.outputs,
                prepared.changes,
            )
        )
        self._memos[stage] = decision.memo
        self.epochs[stage] += 1
        for name, connector in waiting.items():
            waiting[name] = connector.after(
                tuple(decision.read.get(name, ())), tuple(decision.remove.get(name, ()))
            )
        for increment in prepared.outputs.values():
            self._enqueue(increment)
        return True

    def _enqueue(self, increment: Increment) -> None:
        for stage, input_ in self.dataflow.receivers(increment):
            if stage not in self._connectors:
                continue  # a fused stage: it runs with the stage that wrote this increment
            node = self.units[stage].leader
            spec = node.translator.input(input_)
            if spec.frame_by is None:
                self._append(stage, input_, (increment,))
                continue
            framing = self._framings.get((stage, input_), Framing())
            segments, memo = self.engine.increments.frame(
                self.folder, stage, spec, increment, framing.memo, node.set_aside_max
            )
            self._framings[stage, input_], done = framing.take(increment, segments, memo)
            self._append(stage, input_, done)
            self._show_framing(stage, input_)
        self._close(increment.flow, increment.index + 1)

    def _close(self, flow: str, at: int) -> None:
        """Close the frames that end at a punctuation right before increment `at` of a flow."""
        self._close_inputs(flow, [p for p in self.punctuations if p.flow == flow and p.at == at])

    def _close_inputs(self, flow: str, here: Sequence[Punctuation]) -> None:
        for stage, input_ in self.dataflow.consumers(flow) if here else ():
            if not any(p.meant_for(stage, input_, flow) for p in here):
                continue
            if stage not in self._connectors:
                continue
            if self.units[stage].leader.translator.input(input_).frame_by is not None:
                framing = self._framings.get((stage, input_), Framing())
                self._framings[stage, input_], done = framing.close()
                self._append(stage, input_, done)
                self._show_framing(stage, input_)

    def _show_framing(self, stage: str, input_: str) -> None:
        """Give the connector its framing, since Runnables ask whether the input is closed."""
        of_stage, framing = self._connectors[stage], self._framings[stage, input_]
        of_stage[input_] = replace(of_stage[input_], framing=framing)

    def _append(self, stage: str, input_: str, increments: Iterable[Increment]) -> None:
        connectors = self._connectors[stage]
        for increment in increments:
            connectors[input_] = connectors[input_].append(increment)
