"""Succession: the position at which a new version of a dataflow begins. Pure.

    position of version n  +  ChangePlan  ->  position of version n + 1

The new position is the redo record of a change. It is stored in the new version's description. A
controller that finds the description brings its store to that position, whether the store still
holds the old version or nothing at all. The epochs of a stage and the indexes of a flow never go
back, even if versions remove it and add it again. So no record and no increment is named twice.

    kept input of a kept stage    its queue, read marks and framing; refused if the input
                                  is now framed differently and frames wait there, or is
                                  no longer framed and anything waits there
    memo of a kept stage          kept with the same rule; another rule begins without
    input of a rebuilt stage      every retained increment that no roll-back dropped; if
                                  its flow is rebuilt too, only the next increments
    added or rewired input        the next increments, or the retained ones if chosen

A rebuilt stage that ran behind a stage which is not rebuilt needs a queue for the retained
increments, so it becomes a leader.

Invariant (tests/cbp/model/version/test_succession.py): a plan that keeps everything gives the old
position.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from cbp.errors import Mistake
from cbp.model.dataflow.dataflow import Dataflow, StageNode
from cbp.model.dataflow.fusion import keep_leaders, physical_stages
from cbp.model.flow.connector import Connector, Queued
from cbp.model.flow.framing import Framing
from cbp.model.flow.increment import Increment
from cbp.model.flow.position import Position, StagePosition
from cbp.model.version.version_change import ChangePlan, Choice

__all__ = ["Queueing", "Retained", "Succession", "succeed"]

Retained = Callable[[str], Sequence[Increment]]
"""Returns the increments of a flow that can still be read, oldest first, without gaps."""


@dataclass(frozen=True, slots=True)
class Queueing:
    """How the queue of one input changes: the increments that it loses and gains."""

    stage: str
    input: str
    dropped: tuple[Increment, ...]
    queued: tuple[Increment, ...]


@dataclass(frozen=True, slots=True)
class Succession:
    """The beginning of a new version; see the module header.

    Attributes:
        leaders: The leaders of the new version's physical stages, in its order.
        queues: The inputs whose queue changes, removed inputs included.
        refused: Why the new version cannot take over; empty if it can.
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
) -> Succession:
    """Return the position at which the new version begins.

    Args:
        plan: The change of every stage.
        choice: The author's choices.
        before: Position of the old version, with no run under way.
        version: Number of the new version.
        units: Maps each stage of the old version to the stage that led it.
        after: The new version, checked.
        next_epochs: Maps each stage to the epoch after its newest record, of any version.
        retained: Returns the readable increments of an existing flow.
        dropped: Maps each source to the increments that roll-backs took out of the queues; they
            are not queued again.
    """
    epochs = _epochs(before, units, after, next_epochs)
    alone = {
        n
        for n in plan.rebuilt
        if not all(_again(after.stages[n], i, plan) for i in after.stages[n].wiring)
    }
    leaders = keep_leaders(after, units, epochs, apart=alone)
    old = {stage: dict(queueing.connectors) for stage, queueing in before.stages.items()}
    ends = {increment.flow: increment.index for increment in before.newest}
    refused: list[Mistake] = []
    stages: dict[str, StagePosition] = {}
    for name, unit in physical_stages(after, leaders).items():
        node, known = unit.leader, before.stages.get(name)
        rebuilt = name in plan.rebuilt or plan.stages[name].kind == "added"
        connectors = {}
        for input_ in node.wiring:
            kept = None if rebuilt or input_ in plan.stages[name].rewired else old.get(name, {})
            mistake = None
            if kept is not None:
                was, recut = kept.get(input_, _empty(node, input_)), plan.stages[name].reframed
                queueing, mistake = _kept(node, input_, was, recut=input_ in recut)
            elif name in choice.retained | plan.rebuilt and not _again(node, input_, plan):
                came = ends.get(node.wiring[input_], -1) + 1
                gone = dropped.get(node.wiring[input_], ())
                queueing, mistake = _from_retained(node, input_, retained, after, came, gone)
            else:
                queueing = _empty(node, input_)
            connectors[input_] = queueing
            refused += [mistake] if mistake else []
        begins_anew = known is None or rebuilt or plan.stages[name].rewired
        memo, turns = (None, 0) if begins_anew or known is None else (known.memo, known.turns)
        if plan.stages[name].other_rule:  # the memo of one rule means nothing to another
            memo = None
        stages[name] = StagePosition(epochs.get(name, 0), memo, connectors, turns)
    # For a source that comes back later, its own log brings back its increments.
    newest = tuple(i for i in before.newest if "." in i.flow or i.flow in after.sources)
    position = replace(before, stages=stages, newest=newest, version=version)
    return Succession(position, leaders, tuple(_queues(old, stages)), tuple(refused))


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
    """Tell whether the writer of an input is rebuilt, added, or the stage itself."""
    writer = node.wiring[input_].partition(".")[0]
    return writer == node.name or writer in plan.rebuilt | plan.of_kind("added")


def _kept(
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
    now = "not framed" if new.framing is None else "framed otherwise" if was.framing else "framed"
    message = (
        f"is {now} now, and {len(was.held)} increments or frames wait there as they were cut "
        "before: let the stage read them first (close an open frame), or rebuild it "
        f"(--rebuild {node.name}; REST: rebuild={node.name})"
    )
    return was, Mistake("framing_changed", f"stages.{node.name}.inputs.{input_}", message)


def _from_retained(
    node: StageNode,
    input_: str,
    retained: Retained,
    after: Dataflow,
    came: int,
    dropped: Sequence[range],
) -> tuple[Connector, Mistake | None]:
    flow = node.wiring[input_]
    increments = tuple(retained(flow))
    oldest = increments[0].index if increments else came
    if oldest:
        left = f"those from {oldest} on" if increments else "none of them"
        message = (
            f"{came} increments of {flow!r} came, and {left} can still be read: from what is left "
            "the state would be another one; keep it, or begin with the next increment"
        )
        return _empty(node, input_), Mistake(
            "input_not_retained", f"stages.{node.name}.inputs.{input_}", message
        )
    # As on arrival: an empty increment is not enqueued inside a cycle.
    given = tuple(
        i
        for i in increments
        if (node.name, input_) in set(after.receivers(i))
        and not any(i.index in part for part in dropped)
    )
    if node.translator.input(input_).frame_by is not None:
        return Connector(input_, (), Framing(), given), None
    return Connector(input_, tuple(map(Queued, given))), None


def _empty(node: StageNode, input_: str) -> Connector:
    framed = node.translator.input(input_).frame_by is not None
    return Connector(input_, (), Framing() if framed else None)


def _queues(
    old: Mapping[str, Mapping[str, Connector]], new: Mapping[str, StagePosition]
) -> Iterator[Queueing]:
    inputs = dict.fromkeys((s, i) for s, stage_queues in old.items() for i in stage_queues)
    inputs |= dict.fromkeys(
        (s, i) for s, stage_queues in new.items() for i in stage_queues.connectors
    )
    for stage, input_ in inputs:
        was = old.get(stage, {}).get(input_, Connector(input_))
        now = new[stage].connectors.get(input_, Connector(input_)) if stage in new else None
        had = {i.name: i for i in was.held}
        has = {i.name: i for i in now.held} if now is not None else {}
        dropped = tuple(i for name, i in had.items() if name not in has)
        queued = tuple(i for name, i in has.items() if name not in had)
        if dropped or queued:
            yield Queueing(stage, input_, dropped, queued)
