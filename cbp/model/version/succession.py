"""Succession: the position at which a new version of a dataflow begins. Pure.

    position of version n  +  ChangePlan  ->  position of version n + 1

The new position is the redo record of a change. It is stored in the new version's description, and
a controller brings its store to it, whether the store still holds the old version or nothing at
all. Epochs of a stage and indexes of a flow never go back, even if it was removed meanwhile.

    kept input of a kept stage    its queue, read marks and framing; refused if the input
                                  is now framed differently and frames wait there, or is
                                  no longer framed and anything waits there
    memo of a kept stage          kept if the rule is the same; another rule begins without a memo
    input of a rebuilt stage      every retained increment that no roll-back dropped, since the
                                  stage that writes it began with nothing; if its flow is rebuilt
                                  too, only the next increments
    added or rewired input        the next increments, or the retained ones if chosen

A rebuilt stage that ran after a stage which is not rebuilt needs a queue for the retained
increments, so it becomes a leader.

Where an output becomes a view and is filled, earlier increments of its flow have no signs. They may
not wait at a reader of signed records (`changes_waiting`), and such a reader cannot begin with them
(`changes_not_retained`).

Invariant (tests/cbp/model/version/test_succession.py): a plan that keeps everything gives the old
position.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from cbp.errors import Mistake
from cbp.errors.counts import format_count
from cbp.model.dataflow.dataflow import Dataflow, StageNode
from cbp.model.dataflow.replacement_obstacles import obstacles
from cbp.model.flow.connector import Connector, Queued
from cbp.model.flow.framing import Framing
from cbp.model.flow.increment import Increment
from cbp.model.flow.position import Position, StagePosition
from cbp.model.graph.cycles import inner_inputs
from cbp.model.plan.fusion import PhysicalStage, keep_leaders, physical_stages
from cbp.model.version.flow_life import NEW_LIFE, FlowLife
from cbp.model.version.version_change import ChangePlan, Choice

Retained = Callable[[str], Sequence[Increment]]
"""Returns the increments of a flow that can still be read, oldest first, without gaps."""


@dataclass(frozen=True, slots=True)
class Queueing:
    """How the queue of one input changes.

    Attributes:
        skipped: Number of earlier increments of the flow, if the input begins with the next one.
    """

    stage: str
    input: str
    dropped: tuple[Increment, ...]
    queued: tuple[Increment, ...]
    skipped: int = 0


@dataclass(frozen=True, slots=True)
class Succession:
    """The beginning of a new version; see the module header.

    Attributes:
        position: Where the new version begins; only valid if `refused` is empty.
        leaders: The leaders of the new version's physical stages, in the order of its stages.
        queues: The inputs whose queues lose, gain or skip increments, including removed inputs.
        refused: Why the new version cannot take over.
    """

    position: Position
    leaders: tuple[str, ...]
    queues: tuple[Queueing, ...]
    refused: tuple[Mistake, ...]


def succeed(
    plan: ChangePlan,
    choice: Choice,
    *,
    before: Position,
    version: int,
    units: Mapping[str, str],
    after: Dataflow,
    next_epochs: Mapping[str, int],
    retained: Retained,
    dropped: Mapping[str, Sequence[range]] = MappingProxyType({}),
    lives: Mapping[str, FlowLife] = MappingProxyType({}),
) -> Succession:
    """Return the position at which the new version begins.

    Args:
        before: Position of the old version, with no run under way.
        version: Number of the new version.
        units: Maps each stage of the old version to the stage that led it.
        next_epochs: Maps each stage to the epoch after its newest record, of any version.
        dropped: Maps each source to the increments that roll-backs removed from the queues;
            they are not queued again.
        lives: The lives of flows up to the old version, from `lives_of_flows`.
    """
    epochs = _epochs(before, units, after, next_epochs)
    lives = {**lives, **dict(_filled_now(plan, epochs, lives))}
    nodes = [after.stages[name] for name in plan.rebuilt]
    apart = {one.name for one in nodes if not all(_again(one, i, plan) for i in one.wiring)}
    leaders = keep_leaders(after, units, epochs, apart=apart)
    old = {stage: dict(queueing.connectors) for stage, queueing in before.stages.items()}
    ends = {increment.flow: increment.index for increment in before.newest}
    refused: list[Mistake] = []
    stages: dict[str, StagePosition] = {}
    skipped: dict[tuple[str, str], int] = {}
    for name, unit in physical_stages(after, leaders).items():
        node, known, change = unit.leader, before.stages.get(name), plan.stages[name]
        rebuilt = name in plan.emptied
        connectors = {}
        for input_, flow in node.wiring.items():
            mistake = None
            came, gone = ends.get(flow, -1) + 1, dropped.get(flow, ())
            life = lives.get(flow, NEW_LIFE)
            if not (rebuilt or input_ in change.rewired):
                was = old.get(name, {}).get(input_, _empty(node, input_))
                queueing, mistake = _queue_of(node, input_, was, recut=input_ in change.reframed)
                mistake = mistake or _unsigned_waiting(node, input_, was, life)
            elif name in choice.retained | plan.rebuilt and not _again(node, input_, plan):
                queueing, mistake = _from_retained(node, input_, retained, after, came, gone, life)
            else:
                queueing = _empty(node, input_)
                if not _again(node, input_, plan):
                    skipped[name, input_] = _count_before(came, gone, life)
            connectors[input_] = queueing
            refused += [mistake] if mistake else []
        memo, turns = (None, 0)
        if known is not None and not (rebuilt or change.rewired):
            # The memo of one rule means nothing to another.
            memo, turns = None if change.other_rule else known.memo, known.turns
        due_ms = None if rebuilt else _due(unit, known)
        stages[name] = StagePosition(epochs.get(name, 0), memo, connectors, turns, due_ms)
    # The increments of a source that is added again later are in its own log.
    newest = tuple(i for i in before.newest if "." in i.flow or i.flow in after.sources)
    position = replace(before, stages=stages, newest=newest, version=version)
    return Succession(position, leaders, tuple(_queues(old, stages, skipped)), tuple(refused))


def _due(unit: PhysicalStage, known: StagePosition | None) -> int | None:
    """Return the due time of kept timers, `None` if there are no timers.

    It is 0 if the time is unknown; then a run determines it.
    """
    if not any(node.translator.timers for node in unit.members):
        return None
    return 0 if known is None or known.due_ms is None else known.due_ms


def _epochs(
    before: Position, units: Mapping[str, str], after: Dataflow, next_epochs: Mapping[str, int]
) -> dict[str, int]:
    """Return the next epoch of every stage, such that no record or increment is named twice."""
    epochs = {}
    for name in after.stages:
        if name in units:
            epochs[name] = before.stages[units[name]].epoch
            continue
        written = [i.index + 1 for i in before.newest if i.flow.partition(".")[0] == name]
        epochs[name] = max([0, next_epochs.get(name, 0), *written])
    return epochs


def _again(node: StageNode, input_: str, plan: ChangePlan) -> bool:
    """Return whether the writer of an input is rebuilt, added, or the stage itself."""
    writer = node.wiring[input_].partition(".")[0]
    return writer == node.name or writer in plan.emptied


def _filled_now(
    plan: ChangePlan, epochs: Mapping[str, int], lives: Mapping[str, FlowLife]
) -> Iterator[tuple[str, FlowLife]]:
    """Yield each flow whose output becomes a view that this change fills, with its new life."""
    for name, stage in plan.stages.items():
        for view, fate in stage.views.items():
            if fate == "filled":
                flow = f"{name}.{view}"
                yield flow, replace(lives.get(flow, NEW_LIFE), signed=epochs[name])


def _unsigned_waiting(
    node: StageNode, input_: str, was: Connector, life: FlowLife
) -> Mistake | None:
    """Return a mistake if records without signs wait at a reader of signed records."""
    if node.translator.input(input_).changes != "signed":
        return None
    unsigned = sum(increment.index < life.signed for increment in was.held)
    if not unsigned:
        return None
    waiting = format_count(unsigned, "waiting increment has", "waiting increments have")
    message = (
        f"this input now reads signed records, but {waiting} records that "
        f"{node.wiring[input_]!r} wrote without signs. Let the stage read all waiting input before "
        "you change it, or read only new records (changes='after')"
    )
    return Mistake("changes_waiting", f"stages.{node.name}.inputs.{input_}", message)


def _queue_of(
    node: StageNode, input_: str, was: Connector, *, recut: bool
) -> tuple[Connector, Mistake | None]:
    """Return an input's queue unchanged, or a mistake if its framing changed and it is in use."""
    new = _empty(node, input_)
    if (was.framing is None) == (new.framing is None) and not recut:
        return was, None
    if was.framing is not None and new.framing is not None:
        if not was.waiting and was.framing.open is None:
            # The new function frames what is not framed yet. Numbers continue, so that no frame
            # is named twice.
            return replace(was, framing=replace(was.framing, memo=None)), None
    elif not (was.held or was.closes):
        return new, None
    now = "no longer framed" if new.framing is None else "framed differently now"
    now = now if was.framing else "framed now"
    waiting = format_count(
        len(was.held) or len(was.closes),
        "increment or frame of the earlier version waits" if was.held else "close waits",
        "increments or frames of the earlier version wait" if was.held else "closes wait",
    )
    message = (
        f"this input is {now}, but {waiting} at it. Let the stage read "
        "all waiting input before you change the framing (`cbp close` ends an open frame), or "
        f"rebuild the stage (--rebuild {node.name}; REST: rebuild={node.name})"
    )
    return was, Mistake("framing_changed", f"stages.{node.name}.inputs.{input_}", message)


def _from_retained(
    node: StageNode,
    input_: str,
    retained: Retained,
    after: Dataflow,
    came: int,
    dropped: Sequence[range],
    life: FlowLife,
) -> tuple[Connector, Mistake | None]:
    flow, spec = node.wiring[input_], node.translator.input(input_)
    writer, where = flow.partition(".")[0], f"stages.{node.name}.inputs.{input_}"
    if life.built:
        message = (
            f"the records that {flow!r} had before increment {life.first} came with a swap of "
            f"rebuilt tables, so no increment has them. Also rebuild stage {writer!r}, or begin "
            "with the next increment"
        )
        return _empty(node, input_), Mistake("input_not_retained", where, message)
    if spec.changes == "signed" and not life.adds_up:
        message = (
            f"{flow!r} was not a view before increment {life.signed}, so its changes do not add up "
            f"to all of its records. Also rebuild stage {writer!r}, or read only new records "
            "(changes='after')"
        )
        return _empty(node, input_), Mistake("changes_not_retained", where, message)
    increments = tuple(i for i in retained(flow) if i.index >= life.first)
    oldest = increments[0].index if increments else came
    if oldest > life.first:
        left = f"only those from {oldest} on" if increments else "none of them"
        message = (
            f"{format_count(came, 'increment')} of {flow!r} arrived, but {left} can still be "
            "read, so a rebuilt state would differ. Keep the state, or begin with the next "
            "increment"
        )
        return _empty(node, input_), Mistake("input_not_retained", where, message)
    if any(i.gone for i in increments):
        read_by = {node.name: node}
        for one in obstacles(after.sources[flow], after.sources, read_by, taken_back=True):
            message = (
                f"files of {flow!r} were replaced, so some retained increments remove records, but "
                f"{one.why}. Begin with the next increment, or rebuild all tables from the current "
                f"files (`cbp rebuild {after.name} FILE`; REST: beside=true)"
            )
            return _empty(node, input_), Mistake("replacement_unfollowed", where, message)
    # As on arrival: an empty increment is not enqueued inside a cycle.
    on_cycle = (node.name, input_) in inner_inputs(after.wiring())
    given = tuple(
        i
        for i in increments
        if (i.records or not on_cycle) and not any(i.index in part for part in dropped)
    )
    if spec.frame_by is not None:
        return Connector(input_, (), Framing(), given), None
    return Connector(input_, tuple(map(Queued, given))), None


def _count_before(came: int, dropped: Sequence[range], life: FlowLife) -> int:
    gone = {index for part in dropped for index in part}
    return max(0, came - life.first) - sum(life.first <= index < came for index in gone)


def _empty(node: StageNode, input_: str) -> Connector:
    framed = node.translator.input(input_).frame_by is not None
    return Connector(input_, (), Framing() if framed else None)


def _queues(
    old: Mapping[str, Mapping[str, Connector]],
    new: Mapping[str, StagePosition],
    skipped: Mapping[tuple[str, str], int],
) -> Iterator[Queueing]:
    news = {stage: one.connectors for stage, one in new.items()}
    inputs = [(stage, input_) for all_ in (old, news) for stage in all_ for input_ in all_[stage]]
    for stage, input_ in dict.fromkeys(inputs):
        was, now = (all_.get(stage, {}).get(input_, Connector(input_)) for all_ in (old, news))
        had, has = ({i.name: i for i in one.held} for one in (was, now))
        dropped = tuple(i for name, i in had.items() if name not in has)
        queued = tuple(i for name, i in has.items() if name not in had)
        before = skipped.get((stage, input_), 0)
        if dropped or queued or before:
            yield Queueing(stage, input_, dropped, queued, before)
