"""The scheduler on random graphs: nothing starves, nothing deadlocks, everything drains.

A simulated service: runs take random times, limits of every kind are tiny, places are few, rules
are all that there are, and some inputs are framed, whenever that happens. Stages turn what they
read into some increments; inside a cycle each turn loses most of the records, so that it
drains. Everything is drawn from a seed, which a failure prints.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from cbp.model.dataflow.runnable import (
    Align,
    CountWindow,
    KeyWindow,
    Phases,
    Rule,
    RunAll,
    RunAny,
    StaticTable,
)
from cbp.model.dataflow.stage import RunnableSpec
from cbp.model.flow.back_pressure import FlowLimit
from cbp.model.flow.connector import Connector, Queued
from cbp.model.flow.framing import Framing, Segment
from cbp.model.flow.increment import DataFile, Increment
from cbp.model.graph.cycles import cycles, inner_inputs
from cbp.model.schedule.parallel_runs import Places
from cbp.model.schedule.runnable_call import call_runnable
from cbp.model.schedule.scheduler import Schedule, StageView, Start, decide

GRAPHS = 200
DECAY, RECORDS_MAX = 4, 64  # four turns at most, so that a cycle drains whatever its fan-out
ARRIVALS_MAX = 100  # windows of windows need many
BEGIN = datetime(2026, 11, 21, tzinfo=UTC)


@dataclass
class Stage:
    wiring: dict[str, str]
    rule: RunnableSpec
    outputs: list[str]
    epoch: int = 0
    since: datetime = BEGIN
    memo: Any = None
    queues: dict[str, Connector] = field(default_factory=dict)


class Simulation:
    """One dataflow and its service; time moves from one end of a run to the next."""

    def __init__(self, seed: int, *, limited: bool = True) -> None:
        chance = random.Random(seed)
        self.stages = dict(_stages(chance))
        self.inner = inner_inputs({name: s.wiring for name, s in self.stages.items()})
        flows = [flow for stage in self.stages.values() for flow in stage.outputs]
        drawn = {flow: _limit(chance) for flow in flows}
        self.limits = drawn if limited else dict.fromkeys(flows, FlowLimit())
        places = chance.randint(1, 4)
        self.parallel = places if limited else 99
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
                    stage.queues[input_] = _arrived(stage.queues[input_], increment)

    def decide(self) -> Schedule:
        views = (
            StageView(
                "d",
                name,
                stage.epoch,
                stage.queues,
                stage.since,
                memo=stage.memo,
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
            self._frame(one_of=3)
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
                if self._frame(one_of=1):
                    continue
                return runs
            name = min(self.running, key=lambda n: (self.running[n][0], n))
            self.now, start = self.running.pop(name)
            self._end(name, start)

    def _frame(self, *, one_of: int) -> bool:
        """Frame the oldest of what arrived at one framed input of so many; tell whether any was."""
        moved = False
        for stage in self.stages.values():
            for input_, connector in stage.queues.items():
                if connector.arrived and not self.chance.randrange(one_of):
                    stage.queues[input_], moved = _framed(connector), True
        return moved

    def _count_overtaking(self, schedule: Schedule) -> None:
        """A stage that can run and gets no place is overtaken by each other start once."""
        for (_, name), reason in schedule.waiting.items():
            if "free slot" in reason:
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
        stage.epoch, stage.memo = stage.epoch + 1, decision.memo
        for flow in stage.outputs:
            self.put(flow, min(records, RECORDS_MAX))

    def runnable(self) -> list[str]:
        return [
            name
            for name, stage in self.stages.items()
            if call_runnable(name, stage.rule, stage.queues, stage.memo).runnable
        ]

    def behind_cycles_of(self, held: list[str]) -> set[str]:
        """Return the stages in the cycles of held ones, and all that read what those write."""
        names = list(self.stages)
        before = {
            name: frozenset(n for n in names if f"{n}." in " ".join(stage.wiring.values()))
            for name, stage in self.stages.items()
        }
        actual = {mate for name in held for mate in cycles(before).get(name, ())}
        while more := {name for name in names if before[name] & actual} - actual:
            actual |= more
        return actual

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
        rule = _rule(chance, list(wiring))
        name = f"n{number}"
        if any(int(f[1]) >= number for f in wiring.values() if f[0] == "n"):
            rule = RunAny()  # what waits for its own output would never begin
        queues = {
            input_: Connector(input_, framing=Framing() if chance.random() < 0.25 else None)
            for input_ in wiring
        }
        outputs = [f"{name}.o0", f"{name}.o1"]
        yield name, Stage(wiring, RunnableSpec(rule), outputs, queues=queues)


def _rule(chance: random.Random, inputs: list[str]) -> Rule:
    """Draw one of all rules; of those that need two inputs only where there are two."""
    rules: list[Rule] = [RunAny(), RunAny(3), RunAll(), RunAll(4), CountWindow(5)]
    rules += [CountWindow(4, slide=2), Align(), KeyWindow(3)]
    if len(inputs) > 1:
        table, *others = inputs
        moving: list[Rule] = [RunAny(), RunAll()]
        rules += [
            StaticTable((table,), chance.choice(moving)),
            StaticTable((table,), RunAll(), latest=True),
            Phases(tuple(inputs)),  # type: ignore[arg-type]
            Phases(({"reads": others, "until": table},)),  # type: ignore[arg-type]
        ]
    return chance.choice(rules)


def _limit(chance: random.Random) -> FlowLimit:
    """Draw a limit by increments, records or bytes, or by two of them."""
    tiny = {
        "increments": chance.randint(1, 3),
        "records": chance.randint(1, 20),
        "bytes": chance.randint(1, 40),
    }
    return FlowLimit(
        **{kind: tiny[kind] for kind in chance.sample(list(tiny), chance.choice([1, 2]))}
    )


def _arrived(connector: Connector, increment: Increment) -> Connector:
    if connector.framing is None:
        return connector.append(increment)
    return replace(connector, arrived=(*connector.arrived, increment))


def _framed(connector: Connector) -> Connector:
    """Frame the oldest of what arrived: frames begin in the middle of increments and span some."""
    increment, *rest = connector.arrived
    middle = increment.records // 2
    actual = [
        Segment((2 * increment.index + part) // 3, (file.slice(*rows),))
        for file in increment.files
        for part, rows in enumerate(((0, middle), (middle, file.rows)))
        if rows[0] < rows[1]
    ]
    assert connector.framing is not None
    framing, done = connector.framing.take(increment, actual, None)
    queue = (*connector.queue, *map(Queued, done))
    return replace(connector, framing=framing, queue=queue, arrived=tuple(rest))


@pytest.mark.part(every=2)
@pytest.mark.parametrize("first", range(0, GRAPHS, 50))
def test_nothing_starves_or_deadlocks_and_everything_drains(first: int) -> None:
    """In the end only input from outside is missing.

    A stage that can run and does not is held by readers that wait for a source. Without
    limits, therefore, no stage that is not held would run either, but behind one in the held
    one's cycle, whose readers do not count; and a stage that takes whatever comes has empty queues.
    """
    drained = runs = 0
    for seed in range(first, first + 50):
        simulation = Simulation(seed)
        runs += simulation.run() > 0
        held = simulation.runnable()
        drained += not held
        inside = simulation.behind_cycles_of(held)
        idle = {n: s.epoch for n, s in simulation.stages.items() if n not in (*held, *inside)}
        simulation.limits = dict.fromkeys(simulation.limits, FlowLimit())
        simulation.run()
        assert {n: simulation.stages[n].epoch for n in idle} == idle, f"seed {seed}: deadlock"
        assert simulation.runnable() == [], seed
        for name, stage in simulation.stages.items():
            if isinstance(stage.rule.function, RunAny):
                assert not any(c.queue for c in stage.queues.values()), (seed, name)
    assert runs > 45, "where no window is full and no table there, nothing runs"
    assert drained > 25, "most graphs drain without help"


def test_whoever_is_held_goes_on_once_its_readers_get_their_input() -> None:
    """Limits stay as they are, and sources bring more: no stage is held for ever."""
    were_held = 0
    for seed in range(GRAPHS):
        simulation = Simulation(seed)
        simulation.run()
        held = {name: simulation.stages[name].epoch for name in simulation.runnable()}
        were_held += len(held)
        for _ in range(ARRIVALS_MAX):
            held = {n: epoch for n, epoch in held.items() if simulation.stages[n].epoch == epoch}
            if not held:
                break
            for source in ("s0", "s1"):
                simulation.put(source, 3)
            simulation.run()
        assert not held, f"seed {seed}: held for ever"
    assert were_held > 10


def test_limits_change_the_order_only() -> None:
    """Where no rule depends on time, limits and places change nothing once they are lifted."""
    compared = 0
    for seed in range(GRAPHS):
        tight, free = Simulation(seed), Simulation(seed, limited=False)
        timed = (RunAny, StaticTable, Phases)  # what they read depends on what is there
        if any(isinstance(s.rule.function, timed) for s in tight.stages.values()):
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
