"""Fusion: which stages of a dataflow run together, as one physical stage.

A physical stage is a leader and the stages after it, each of which reads one flow of an earlier
member. One run of a physical stage is one epoch of all its members, under one intention. Every
member's output is written and numbered as if the member ran alone.

    pages -> extract -> count -+-> merge -> score -+-> threshold     (extract and score
                '--------------'     '-------------'                  record-wise)
    [extract count] [merge score] [threshold]

The rules ensure that a member reads exactly what it would read alone:

1. A record-wise stage runs after the stage that writes its input.
2. A groupwise stage runs after a record-wise stage if that is its only input, if no other
   groupwise stage is in the same physical stage, and if every other reader of the flows written
   there has to wait for the groupwise stage anyway. Otherwise fusion would delay those readers.
3. These stages stay apart: stages on a cycle, since their increments may be numbered differently;
   stages of the form `sql`, since their records are in none of our tasks; stages of the form `run`,
   which have one task; stages that set records aside; and stages that the author wants apart
   (`StageNode.fuse`).
4. These stages can only lead: stages with a Runnable or FrameBy other than the default, since they
   decide themselves when they run and on what; and stages with several inputs, since they read all
   of one input before any of the next.

The leaders own the epochs, queues and intentions. They are chosen once, when a dataflow is
registered, and stored with it; a stage that does not lead runs with the writer of its input.

Invariants (tests/cbp/model/plan/test_fusion.py): every stage is a member of exactly one
physical stage; all but the leader have one input, from an earlier member.

Source: ours; the idea is from Dryad and FlumeJava, the limits come from increments.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from cbp.errors import InvariantError
from cbp.model.dataflow.dataflow import Dataflow, StageNode
from cbp.model.graph.cycles import predecessors, reached


@dataclass(frozen=True, slots=True)
class PhysicalStage:
    """Stages that run together: the leader, then the others, each after its input's writer."""

    members: tuple[StageNode, ...]

    @property
    def leader(self) -> StageNode:
        """The member that reads the inputs; the physical stage has its name."""
        return self.members[0]

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the members."""
        return tuple(member.name for member in self.members)


def choose_leaders(dataflow: Dataflow) -> tuple[str, ...]:
    """Return the leaders of the physical stages, in the order of the stages."""
    apart = {*dataflow.cycles()} | {
        stage.name
        for stage in dataflow.stages.values()
        if not stage.fuse or stage.translator.form in ("run", "sql") or stage.sets_aside
    }
    producers = {
        name: writer
        for name, stage in dataflow.stages.items()
        if (writer := _only_writer(stage)) in dataflow.stages
    }
    own = {
        name
        for name, stage in dataflow.stages.items()
        if not stage.declared_rule.default or stage.translator.framed
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
    """Return the leaders of a new version, so that its epochs continue those of the old version.

    A stage can run after another one only if it did so before, or if both are new. Only then do
    the flows of both have equally many increments. A stage that can no longer run in its leader's
    run becomes a leader, and continues at the epoch of its old leader.

    Args:
        units: Maps each stage of the old version to the stage that led it.
        epochs: Maps each stage to its next epoch; a follower has its leader's.
        apart: Stages that need a queue, since they must read increments that are not written in
            the same run.
    """

    def together(name: str) -> bool:
        if name in apart:
            return False
        writer = _only_writer(dataflow.stages[name])
        if name in units or writer in units:
            return name in units and units[name] == units.get(writer)
        return epochs.get(name, 0) == epochs.get(writer, 0)

    wanted = choose_leaders(dataflow)
    return tuple(name for name in dataflow.stages if name in wanted or not together(name))


def physical_stages(dataflow: Dataflow, leaders: Collection[str]) -> dict[str, PhysicalStage]:
    """Return the physical stages by their leaders, in the order of the stages.

    Raises `InvariantError` if these cannot be the leaders.
    """
    members = {name: [dataflow.stages[name]] for name in dataflow.stages if name in leaders}
    unit_of = {name: name for name in members}
    waiting = [stage for name, stage in dataflow.stages.items() if name not in unit_of]
    while waiting:
        ready = [stage for stage in waiting if _only_writer(stage) in unit_of]
        if not ready:
            names = ", ".join(stage.name for stage in waiting)
            message = (
                f"stages {names} of dataflow {dataflow.name!r} must be leaders, since they cannot "
                "run together with another stage"
            )
            raise InvariantError(message, dataflow=dataflow.name)
        for stage in ready:
            unit_of[stage.name] = unit_of[_only_writer(stage)]
            members[unit_of[stage.name]].append(stage)
        waiting = [stage for stage in waiting if stage.name not in unit_of]
    return {name: PhysicalStage(tuple(stages)) for name, stages in members.items()}


def split_phases(members: Iterable[StageNode]) -> list[tuple[StageNode, ...]]:
    """Return the members in one or two phases, each led by its first stage.

    A groupwise member that does not lead begins the second: its input must be complete and ordered.
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
    """Return the groupwise stage that runs after a record-wise unit; see rule 2."""
    readers = {
        stage.name
        for stage in dataflow.stages.values()
        if stage.name not in unit.names and any(_reads(stage, member) for member in unit.members)
    }
    before = predecessors(dataflow.wiring())
    for name in sorted(readers & set(candidates)):
        if readers <= set(reached(before, [name])):  # the others cannot run before it has run
            return frozenset({name})
    return frozenset()


def _only_writer(stage: StageNode) -> str:
    """Return the stage or source that writes the only input of a stage; `""` if it has several."""
    flows = [*stage.wiring.values()]
    return flows[0].partition(".")[0] if len(flows) == 1 else ""


def _reads(stage: StageNode, producer: StageNode) -> bool:
    return any(flow.partition(".")[0] == producer.name for flow in stage.wiring.values())
