"""The progress of an increment: which stages applied it or its downstream output. Pure.

An increment of a source is read by runs of some stages. Each of these runs writes increments of its
stage's flows, which other stages read. This *wave* is followed once through the graph, upstream
first, so a cell shows the first round of a loop.

    upstream    a stage before it has not applied the increment yet
    waiting     it is in the queue of the stage
    running     a run under way reads it
    failed      the last run that read it failed, and no run has succeeded since
    applied     a run applied it; `run` is `None` if that run is no longer known
    unknown     whether it was applied is unknown: the input is framed, or the run that applied it
                upstream is no longer known
    none        the stage does not get it
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

CellStatus = Literal["none", "unknown", "applied", "upstream", "waiting", "running", "failed"]

_WORST_LAST = ("none", "applied", "unknown", "upstream", "waiting", "running", "failed")


@dataclass(frozen=True, slots=True)
class StageProgress:
    """The known runs and queues of one leading stage.

    Attributes:
        inputs: Maps each input to its flow.
        outputs: The flows that its runs write, including those of stages that run with it.
        waiting, running, failed: Map inputs to the indexes that wait there, unread; that a run
            under way reads; and that the last failed run read.
        applied: Input to index to (run, epoch) of the known run that applied it.
        framed: Inputs whose queue holds frames, not increments of the flow.
    """

    inputs: Mapping[str, str]
    outputs: tuple[str, ...]
    waiting: Mapping[str, frozenset[int]] = field(default_factory=dict)
    running: Mapping[str, frozenset[int]] = field(default_factory=dict)
    failed: Mapping[str, frozenset[int]] = field(default_factory=dict)
    applied: Mapping[str, Mapping[int, tuple[str, int]]] = field(default_factory=dict)
    framed: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Cell:
    """The progress of one stage on an increment."""

    status: CellStatus
    run: str | None = None
    epoch: int | None = None


@dataclass(slots=True)
class _Wave:
    """The increments made from one increment, by flow; `None` if those of a flow are unknown."""

    indexes: dict[str, set[int] | None]
    pending: set[str] = field(default_factory=set)


def follow(
    flow: str, index: int, order: Sequence[str], stages: Mapping[str, StageProgress]
) -> dict[str, Cell]:
    """Return the cell of each leading stage for one increment; `order` is upstream first."""
    wave = _Wave({flow: {index}})
    return {name: _cell(stages[name], wave) for name in order}


def _cell(stage: StageProgress, wave: _Wave) -> Cell:
    """Return a stage's cell, and add the output of its runs to the wave."""
    cells = [
        _at_input(stage, name, index)
        for name, flow in stage.inputs.items()
        for index in sorted(wave.indexes.get(flow) or ())
    ]
    flows = set(stage.inputs.values())
    if any(wave.indexes.get(flow, ()) is None for flow in flows):
        cells.append(Cell("unknown"))
    if flows & wave.pending:
        cells.append(Cell("upstream"))
    if not cells:
        return Cell("none")
    worst = max(cells, key=lambda one: (_WORST_LAST.index(one.status), one.epoch or 0))
    unknown = any(one.status != "none" and one.epoch is None for one in cells)
    epochs = {one.epoch for one in cells if one.epoch is not None}
    for output in stage.outputs:
        if worst.status not in ("applied", "unknown"):
            wave.pending.add(output)
        if unknown and worst.status in ("applied", "unknown"):
            wave.indexes.setdefault(output, None)
        elif epochs and output not in wave.indexes:
            wave.indexes[output] = epochs
    return worst


def _at_input(stage: StageProgress, name: str, index: int) -> Cell:
    if name in stage.framed:
        waits = index in stage.waiting.get(name, ())
        return Cell("waiting" if waits else "unknown")
    if index in stage.running.get(name, ()):
        return Cell("running")
    if index in stage.waiting.get(name, ()):
        return Cell("failed" if index in stage.failed.get(name, ()) else "waiting")
    run, epoch = stage.applied.get(name, {}).get(index, (None, None))
    return Cell("applied", run, epoch)
