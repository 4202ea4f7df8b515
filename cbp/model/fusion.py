"""Fusion: which stages of a dataflow run together, as one physical stage.

A physical stage is a leader and the stages behind it, each of which reads one flow that
a stage before it writes. One run of it is one epoch of all its members, under one
intention; every member's output is written and numbered as if it ran by itself, so the
increments of every flow are the same with and without fusion.

    pages -> extract -> count -+-> merge -> score -> threshold     (extract, score and
                '--------------'                                    threshold record-wise)
    [extract count] [merge score threshold]

The rules, each because a member must read exactly what it would read alone:

1. A record-wise stage runs behind the stage that writes its input.
2. A groupwise stage runs behind a record-wise one if that is its only input, if no other
   groupwise stage is in the same physical stage, and if every other reader of what is
   written there has to wait for it anyway. Otherwise those readers would wait for nothing.
3. Apart stay: whatever lies on a cycle, since its increments may not be numbered alike;
   what decides itself when it runs and on what (a Runnable or FrameBy other than the
   default), unless it leads; what has several inputs, unless it leads: a record-wise stage
   too, since it is given all of one input before any of the next; what runs in Spark alone
   (the form `sql`), since its records are in no task of ours; and what the author wants
   apart (`StageNode.fuse`).

What runs together is chosen once, when a dataflow is registered, and kept with it as the
names of the leaders: epochs, queues and intentions go by them. `physical_stages` gives
the rest, since a stage that does not lead runs with the one that writes its input.

Invariants (tests/cbp/model/test_fusion.py): every stage is a member of exactly one
physical stage; all but the leader have one input, from an earlier member.

Source: ours; the idea is Dryad's and FlumeJava's, the limits come from increments.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from cbp.errors import InvariantError
from cbp.model.dataflow import Dataflow, StageNode

__all__ = ["PhysicalStage", "choose_leaders", "keep_leaders", "physical_stages", "split_phases"]


@dataclass(frozen=True, slots=True)
class PhysicalStage:
    """Stages that run together.

    Attributes:
        members: The leader, then the others, each behind the one that writes its input.
    """

    members: tuple[StageNode, ...]

    @property
    def leader(self) -> StageNode:
        """The member that reads the inputs; its name is the physical stage's."""
        return self.members[0]

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the members."""
        return tuple(member.name for member in self.members)


def choose_leaders(dataflow: Dataflow) -> tuple[str, ...]:
    """Return the stages that begin a physical stage, in the order of the stages.

    Args:
        dataflow: Checked.
    """
    apart = _on_cycles(dataflow) | {
        stage.name
        for stage in dataflow.stages.values()
        if not stage.fuse or stage.translator.form == "sql"
    }
    producers = {
        name: flow.partition(".")[0]
        for name, stage in dataflow.stages.items()
        if (flow := _only_input(stage)) and flow.partition(".")[0] in dataflow.stages
    }
    own = {
        name
        for name, stage in dataflow.stages.items()
        if not stage.runnable.default or stage.translator.framed
    }
    behind = {name for name, by in producers.items() if not {name, by} & apart} - own
    record_wise = {n for n, s in dataflow.stages.items() if s.translator.record_wise}
    leaders = dataflow.stages.keys() - (behind & record_wise)
    for unit in physical_stages(dataflow, leaders).values():
        if all(member.translator.record_wise for member in unit.members):
            leaders = leaders - _follower(dataflow, unit, leaders & behind)
    return tuple(name for name in dataflow.stages if name in leaders)


def keep_leaders(
    dataflow: Dataflow,
    units: Mapping[str, str],
    epochs: Mapping[str, int],
    *,
    apart: Collection[str] = (),
) -> tuple[str, ...]:
    """Return the leaders of a new version, so that epochs and records go on by what was.

    A stage goes on behind another one only if it did so before, or if both are new: only then
    have the flows of both as many increments. What could run together now and did not,
    stays apart; what may not any more is led by itself from its old leader's epoch on.

    Args:
        dataflow: The new version, checked.
        units: Stage of the version before to the stage that led it.
        epochs: Stage to its next epoch; that of a follower is its leader's.
        apart: Stages that read what the one before them does not write now: they need a queue.
    """

    def together(name: str) -> bool:
        if name in apart:
            return False
        writer = _only_input(dataflow.stages[name]).partition(".")[0]
        if name in units or writer in units:
            return name in units and units[name] == units.get(writer)
        return epochs.get(name, 0) == epochs.get(writer, 0)

    wanted = choose_leaders(dataflow)
    return tuple(name for name in dataflow.stages if name in wanted or not together(name))


def physical_stages(dataflow: Dataflow, leaders: Collection[str]) -> dict[str, PhysicalStage]:
    """Return the physical stages by their leaders, in the order of the stages.

    Raises:
        InvariantError: If these cannot be the leaders of this dataflow.
    """
    members = {name: [dataflow.stages[name]] for name in dataflow.stages if name in leaders}
    unit_of = {name: name for name in members}
    waiting = [stage for name, stage in dataflow.stages.items() if name not in unit_of]
    while waiting:
        ready = [s for s in waiting if _only_input(s).partition(".")[0] in unit_of]
        if not ready:
            names = ", ".join(stage.name for stage in waiting)
            message = f"{names} of dataflow {dataflow.name!r} run with no other stage"
            raise InvariantError(message, dataflow=dataflow.name)
        for stage in ready:
            unit_of[stage.name] = unit_of[_only_input(stage).partition(".")[0]]
            members[unit_of[stage.name]].append(stage)
        waiting = [stage for stage in waiting if stage.name not in unit_of]
    return {name: PhysicalStage(tuple(stages)) for name, stages in members.items()}


def split_phases(members: Iterable[StageNode]) -> list[tuple[StageNode, ...]]:
    """Return the members in phases, each led by the stage that the others follow.

    A groupwise member that does not lead begins the second phase: what it reads must be
    complete, and put in order by key.
    """
    first: list[StageNode] = []
    second: list[StageNode] = []
    for member in members:
        behind = any(_reads(member, before) for before in second)
        grouped = bool(first) and not member.translator.record_wise
        (second if behind or grouped else first).append(member)
    return [tuple(phase) for phase in (first, second) if phase]


def _follower(
    dataflow: Dataflow, unit: PhysicalStage, candidates: Collection[str]
) -> frozenset[str]:
    """Return the groupwise stage that runs behind a record-wise unit; see rule 2."""
    readers = {
        stage.name
        for stage in dataflow.stages.values()
        if stage.name not in unit.names and any(_reads(stage, member) for member in unit.members)
    }
    for name in sorted(readers & set(candidates)):
        if readers - {name} <= _waiting_for(dataflow, name):
            return frozenset({name})
    return frozenset()


def _waiting_for(dataflow: Dataflow, stage: str) -> set[str]:
    """Return the stages that cannot run before this one has: those behind it."""
    found: set[str] = set()
    edge = {stage}
    while edge:
        edge = {
            reader.name
            for reader in dataflow.stages.values()
            for name in edge
            if reader.name not in found and _reads(reader, dataflow.stages[name])
        }
        found |= edge
    return found


def _on_cycles(dataflow: Dataflow) -> set[str]:
    return {name for name in dataflow.stages if name in _waiting_for(dataflow, name)}


def _only_input(stage: StageNode) -> str:
    """Return the flow that a stage reads if it is the only one; otherwise `""`."""
    flows: Mapping[str, str] = stage.wiring
    return next(iter(flows.values())) if len(flows) == 1 else ""


def _reads(stage: StageNode, producer: StageNode) -> bool:
    return producer.name in _producers(stage)


def _producers(stage: StageNode) -> Iterator[str]:
    """Yield the stages, and sources, that write what a stage reads."""
    return (flow.partition(".")[0] for flow in stage.wiring.values())
