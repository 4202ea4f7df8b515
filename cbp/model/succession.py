"""Where a dataflow stands once a new version has taken over. Pure.

    position of version n  +  ChangePlan  ->  position of version n + 1

The new position is the redo record of a change: it lies in the new version's description,
and whoever finds that description, with a store of the old version or with none at all,
brings the store to it. Epochs of a stage, and indexes of a flow, never go back, by whatever
versions it comes and goes: no record and no increment is ever named twice.

    kept input of a kept stage    its queue, read marks and framing; refused where an
                                  input is framed otherwise now, or not any more, and
                                  something waits there
    memo of a kept stage          as it was, under the same rule; another one begins
                                  without
    input of a rebuilt stage      every retained increment; of a flow that is rebuilt
                                  too, the next ones only
    added or rewired input        the next increments, or the retained ones if chosen

A rebuilt stage that ran behind one which is not rebuilt has to have a queue for what is
retained, so it leads itself from then on.

Invariant (tests/cbp/model/test_succession.py): a plan that keeps everything gives the
position that there was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from cbp.errors import Mistake
from cbp.model.change import ChangePlan, Choice
from cbp.model.connector import Connector, Queued
from cbp.model.dataflow import Dataflow, StageNode
from cbp.model.framing import Framing
from cbp.model.fusion import keep_leaders, physical_stages
from cbp.model.increment import Increment
from cbp.model.position import Position, StagePosition

__all__ = ["Queueing", "Retained", "Succession", "succeed"]

Retained = Callable[[str], Sequence[Increment]]
"""Flow to its increments that can still be read, oldest first and without gaps to the last."""


@dataclass(frozen=True, slots=True)
class Queueing:
    """How the queue of one input differs: increments that it loses, and that it gains."""

    stage: str
    input: str
    dropped: tuple[Increment, ...]
    queued: tuple[Increment, ...]


@dataclass(frozen=True, slots=True)
class Succession:
    """See the module header.

    Attributes:
        leaders: The stages that lead others in the new version, in its order.
        queues: The inputs whose queue is not the one it was, removed ones included.
        refused: Why it cannot be; empty: it can.
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
) -> Succession:
    """Return where the new version begins.

    Args:
        plan: What becomes of every stage.
        choice: What the author said.
        before: Where the old version stands, with nothing under way.
        version: Number of the new version.
        units: Stage of the old version to the stage that led it.
        after: The new version, checked.
        next_epochs: Stage to the epoch behind its newest record, of any version.
        retained: Asked for flows that exist already.
    """
    epochs = _epochs(before, units, after, next_epochs)
    alone = {
        n
        for n in plan.rebuilt
        if not all(_again(after.stages[n], i, plan) for i in after.stages[n].wiring)
    }
    leaders = keep_leaders(after, units, epochs, apart=alone)
    old = {stage: dict(found.connectors) for stage, found in before.stages.items()}
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
                found, mistake = _kept(node, input_, was, recut=input_ in recut)
            elif name in choice.retained | plan.rebuilt and not _again(node, input_, plan):
                came = ends.get(node.wiring[input_], -1) + 1
                found, mistake = _from_retained(node, input_, retained, after, came)
            else:
                found = _empty(node, input_)
            connectors[input_] = found
            refused += [mistake] if mistake else []
        begins_anew = known is None or rebuilt or plan.stages[name].rewired
        memo, turns = (None, 0) if begins_anew or known is None else (known.memo, known.turns)
        if plan.stages[name].other_rule:  # what one rule remembers means nothing to another
            memo = None
        stages[name] = StagePosition(epochs.get(name, 0), memo, connectors, turns)
    # The log of a source that comes back brings its increments back itself.
    newest = tuple(i for i in before.newest if "." in i.flow or i.flow in after.sources)
    position = replace(before, stages=stages, newest=newest, version=version)
    return Succession(position, leaders, tuple(_queues(old, stages)), tuple(refused))


def _epochs(
    before: Position, units: Mapping[str, str], after: Dataflow, next_epochs: Mapping[str, int]
) -> dict[str, int]:
    """Return the next epoch of every stage, such that no record nor increment comes again."""
    epochs = {}
    for name in after.stages:
        if name in units:
            epochs[name] = before.stages[units[name]].epoch
            continue
        written = [i.index + 1 for i in before.newest if i.flow.partition(".")[0] == name]
        epochs[name] = max([0, next_epochs.get(name, 0), *written])
    return epochs


def _again(node: StageNode, input_: str, plan: ChangePlan) -> bool:
    """Tell whether everything on an input comes anew: its writer begins anew, or is itself."""
    writer = node.wiring[input_].partition(".")[0]
    return writer == node.name or writer in plan.rebuilt | plan.of_kind("added")


def _kept(
    node: StageNode, input_: str, was: Connector, *, recut: bool
) -> tuple[Connector, Mistake | None]:
    """Return a queue as it was, unless it is framed now, or otherwise, or not any more."""
    new = _empty(node, input_)
    if (was.framing is None) == (new.framing is None) and not recut:
        return was, None
    if not (was.held or was.closes):
        if was.framing is not None and new.framing is not None:
            # Numbers go on: no frame is named twice.
            new = replace(was, framing=replace(was.framing, memo=None))
        return new, None
    now = "not framed" if new.framing is None else "framed otherwise" if was.framing else "framed"
    message = (
        f"is {now} now, and {len(was.held)} increments or frames wait there as they were cut "
        "before: let the stage read them first (close an open frame), or rebuild it "
        f"(rebuild={node.name})"
    )
    return was, Mistake("framing_changed", f"stages.{node.name}.inputs.{input_}", message)


def _from_retained(
    node: StageNode, input_: str, retained: Retained, after: Dataflow, came: int
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
    # As when they arrived: an empty one goes not round inside a cycle.
    given = tuple(i for i in increments if (node.name, input_) in set(after.receivers(i)))
    if node.translator.input(input_).frame_by is not None:
        return Connector(input_, (), Framing(), given), None
    return Connector(input_, tuple(map(Queued, given))), None


def _empty(node: StageNode, input_: str) -> Connector:
    framed = node.translator.input(input_).frame_by is not None
    return Connector(input_, (), Framing() if framed else None)


def _queues(
    old: Mapping[str, Mapping[str, Connector]], new: Mapping[str, StagePosition]
) -> Iterator[Queueing]:
    inputs = dict.fromkeys((s, i) for s, found in old.items() for i in found)
    inputs |= dict.fromkeys((s, i) for s, found in new.items() for i in found.connectors)
    for stage, input_ in inputs:
        was = old.get(stage, {}).get(input_, Connector(input_))
        now = new[stage].connectors.get(input_, Connector(input_)) if stage in new else None
        had = {i.name: i for i in was.held}
        has = {i.name: i for i in now.held} if now is not None else {}
        dropped = tuple(i for name, i in had.items() if name not in has)
        queued = tuple(i for name, i in has.items() if name not in had)
        if dropped or queued:
            yield Queueing(stage, input_, dropped, queued)
