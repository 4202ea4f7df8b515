"""The scheduler on random graphs: nothing starves, nothing deadlocks, everything drains.

A simulated service: runs take random times, limits are tiny, places are few. Stages
turn what they read into some increments; inside a cycle each turn loses most of the records, so
that it drains. Everything is drawn from a seed, which a failure prints.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from cbp.model.connector import Connector
from cbp.model.consult import consult
from cbp.model.graph import inner_inputs
from cbp.model.increment import DataFile, Increment
from cbp.model.places import Places
from cbp.model.pressure import FlowLimit
from cbp.model.runnable import CountWindow, RunAll, RunAny
from cbp.model.schedule import Schedule, StageView, Start, decide
from cbp.model.stage import RunnableSpec

GRAPHS = 200
DECAY, RECORDS_MAX = 4, 64  # four turns at most, so that a cycle drains whatever its fan-out
BEGIN = datetime(2026, 11, 21, tzinfo=UTC)


@dataclass
class Stage:
    wiring: dict[str, str]
    rule: RunnableSpec
    outputs: list[str]
    epoch: int = 0
    since: datetime = BEGIN
    queues: dict[str, Connector] = field(default_factory=dict)


class Simulation:
    """One dataflow and its service; time moves from one end of a run to the next."""

    def __init__(self, seed: int, *, limited: bool = True) -> None:
        chance = random.Random(seed)
        self.stages = dict(_stages(chance))
        self.inner = inner_inputs({name: s.wiring for name, s in self.stages.items()})
        limit = FlowLimit(increments=chance.randint(1, 3)) if limited else FlowLimit()
        self.limits = {f: limit for name, s in self.stages.items() for f in s.outputs}
        self.parallel = chance.randint(1, 4) if limited else 99
        self.now, self.running = BEGIN, {}  # type: datetime, dict[str, tuple[datetime, Start]]
        self.chance, self.indexes = chance, dict[str, int]()
        self.overtaken = dict.fromkeys(self.stages, 0)
        for _ in range(6):
            for source in ("s0", "s1"):
                self.put(source, chance.randint(0, 8))

    def put(self, flow: str, records: int) -> None:
        index = self.indexes[flow] = self.indexes.get(flow, -1) + 1
        files = (DataFile(f"{flow}/{index}", records, records),) if records else ()
        for name, stage in self.stages.items():
            for input_, wired in stage.wiring.items():
                if wired == flow and (records or (name, input_) not in self.inner):
                    increment = Increment(flow, index, index, files)
                    stage.queues[input_] = stage.queues[input_].append(increment)

    def decide(self) -> Schedule:
        views = (
            StageView(
                "d",
                name,
                stage.epoch,
                stage.queues,
                stage.since,
                running=name in self.running,
                runnable=stage.rule,
                wiring=stage.wiring,
                limits={flow: self.limits[flow] for flow in stage.outputs},
            )
            for name, stage in self.stages.items()
        )
        return decide(views, now=self.now, places=Places(self.parallel))

    def run(self) -> int:
        """Go on until nothing moves; return the number of runs."""
        runs = 0
        while True:
            schedule = self.decide()
            for start in schedule.starts:
                ends = self.now + timedelta(seconds=self.chance.randint(1, 9))
                self.running[start.stage] = ends, start
                self.stages[start.stage].since = self.now
                runs += 1
            self._count_overtaking(schedule)
            assert len(self.running) <= self.parallel
            assert runs < 5000, "does not come to an end"
            if not self.running:
                return runs
            name = min(self.running, key=lambda n: (self.running[n][0], n))
            self.now, start = self.running.pop(name)
            self._end(name, start)

    def _count_overtaking(self, schedule: Schedule) -> None:
        """A stage that can run and gets no place is overtaken by each other start once."""
        for (_, name), reason in schedule.waiting.items():
            if "places for runs" in reason:
                self.overtaken[name] += len(schedule.starts)
            else:
                self.overtaken[name] = 0
            assert self.overtaken[name] <= len(self.stages), f"{name} starves"
        for start in schedule.starts:
            self.overtaken[start.stage] = 0

    def _end(self, name: str, start: Start) -> None:
        stage, decision = self.stages[name], start.decision
        records = 0
        for input_, connector in stage.queues.items():
            read, remove = decision.read.get(input_, ()), decision.remove.get(input_, ())
            count = sum(connector.find(i).records for i in read)
            records += count // DECAY if (name, input_) in self.inner else count
            stage.queues[input_] = connector.after(read, remove)
        stage.epoch += 1
        for flow in stage.outputs:
            self.put(flow, min(records, RECORDS_MAX))

    def runnable(self) -> list[str]:
        return [
            name
            for name, stage in self.stages.items()
            if consult(name, stage.rule, stage.queues, None).runnable
        ]

    def left(self) -> dict[tuple[str, str], int]:
        return {
            (name, input_): len(connector.queue)
            for name, stage in self.stages.items()
            for input_, connector in stage.queues.items()
        }


def _stages(chance: random.Random) -> Iterator[tuple[str, Stage]]:
    """Draw a graph: mostly forward edges, some back; several flows between two stages."""
    count = chance.randint(2, 8)
    for number in range(count):
        wiring = {}
        for slot in range(chance.randint(1, 3)):
            before = chance.randrange(-2, number) if number else chance.randrange(-2, 0)
            if slot and chance.random() < 0.25:
                before = chance.randrange(number, count)  # a way back, or to itself
            output = chance.randrange(2)
            wiring[f"i{slot}"] = f"s{-before - 1}" if before < 0 else f"n{before}.o{output}"
        rule: Any = chance.choice([RunAny(), RunAny(3), RunAll(), CountWindow(5), RunAll(4)])
        name = f"n{number}"
        if any(int(f[1]) >= number for f in wiring.values() if f[0] == "n"):
            rule = RunAny()  # what waits for its own output would never begin
        queues = {input_: Connector(input_) for input_ in wiring}
        outputs = [f"{name}.o0", f"{name}.o1"]
        yield name, Stage(wiring, RunnableSpec(rule), outputs, queues=queues)


@pytest.mark.parametrize("first", range(0, GRAPHS, 50))
def test_nothing_starves_or_deadlocks_and_everything_drains(first: int) -> None:
    """In the end only input from outside is missing.

    A stage that can run and does not is held by readers that wait for a source. Without
    limits, therefore, no stage that is not held would run either, and whoever takes
    whatever comes has empty queues.
    """
    drained = 0
    for seed in range(first, first + 50):
        simulation = Simulation(seed)
        assert simulation.run() > 0, seed
        held = simulation.runnable()
        drained += not held
        idle = {n: s.epoch for n, s in simulation.stages.items() if n not in held}
        simulation.limits = dict.fromkeys(simulation.limits, FlowLimit())
        simulation.run()
        assert {n: simulation.stages[n].epoch for n in idle} == idle, f"seed {seed}: deadlock"
        assert simulation.runnable() == [], seed
        for name, stage in simulation.stages.items():
            if isinstance(stage.rule.function, RunAny):
                assert not any(c.queue for c in stage.queues.values()), (seed, name)
    assert drained > 25, "most graphs drain without help"


def test_limits_change_the_order_only() -> None:
    """Where no rule depends on time, limits and places change nothing once they are lifted."""
    compared = 0
    for seed in range(GRAPHS):
        tight, free = Simulation(seed), Simulation(seed, limited=False)
        if any(isinstance(s.rule.function, RunAny) for s in tight.stages.values()):
            continue
        for simulation in (tight, free):
            for stage in simulation.stages.values():
                if isinstance(stage.rule.function, RunAll):
                    stage.rule = RunnableSpec(RunAll())  # a batch depends on what is there
            simulation.run()
            simulation.limits = dict.fromkeys(simulation.limits, FlowLimit())
            simulation.run()  # now those that waited for readers of a missing source
        epochs = [{n: s.epoch for n, s in one.stages.items()} for one in (tight, free)]
        assert epochs[0] == epochs[1], seed
        assert tight.left() == free.left(), seed
        compared += 1
    assert compared > 10
