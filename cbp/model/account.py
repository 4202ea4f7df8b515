"""An account of one run: why it ran, on what, and what it produced; pure.

Made of what is recorded: the decision of the stage's Runnable, as the run read and removed;
the increments that it names; and the intention, as long as the log holds it. Nothing is
guessed: what the log holds no more is told as such.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cbp.model.correction import CorrectionNote
from cbp.model.dataflow import StageNode
from cbp.model.framing import FrameNote
from cbp.model.increment import FramingKey, Increment
from cbp.model.intention import Intention

__all__ = ["Account", "Change", "Consumed", "changes_of", "consumed", "reason"]

SHOWN_MAX = 10
"""Numbers of increments that a sentence lists."""


@dataclass(frozen=True, slots=True)
class Consumed:
    """An increment that a run read, removed, or both.

    Attributes:
        frame: Whether its number counts the frames of the input, not those of the flow.
        framing_key, records, bytes: `None`: nothing knows it any more.
    """

    input: str
    flow: str
    index: int
    read: bool
    removed: bool
    frame: bool = False
    framing_key: FramingKey | None = None
    records: int | None = None
    bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Change:
    """What a run did to one table.

    Attributes:
        rows_added: Rows in new files, those of a compaction included.
        rows_deleted: Rows of files that stay.
        compaction: Whether only the layout changed.
    """

    table: str
    files_added: int
    files_dropped: int
    rows_added: int
    rows_deleted: int
    compaction: bool


@dataclass(frozen=True, slots=True)
class Account:
    """What is known of one run.

    Attributes:
        why: What the Runnable answered, in words.
        produced: The increments of its epoch, of all stages that ran.
        changes: How its tables changed; empty when `recorded` is false.
        versions: Table to the oldest readable version that shows the epoch; a table that
            does not show it yet is left out.
        recorded: Whether the log still holds the run's record.
    """

    run: str
    why: str
    consumed: tuple[Consumed, ...]
    produced: tuple[Increment, ...]
    changes: tuple[Change, ...]
    versions: Mapping[str, int]
    recorded: bool


def reason(
    node: StageNode,
    read: Mapping[str, Sequence[int]],
    remove: Mapping[str, Sequence[int]],
    correction: CorrectionNote | None = None,
    frames: Mapping[str, Sequence[FrameNote]] = {},
) -> str:
    """Say in words what a stage's Runnable answered, or who corrected its state.

    Args:
        node: The stage that leads the run.
        read: Input to increment indexes, as decided.
        remove: The same, of what left the queues.
        correction: Of a run that is one.
        frames: Framed input to what is known of the frames that the run took.
    """
    if correction is not None:
        where = f"{correction.keys} key(s) of {correction.stage}.{correction.state}"
        return f"{correction.who or 'somebody'} corrected {where}: {correction.why}"
    rule = node.runnable
    at = f" ({rule.place})" if rule.place and not rule.default else ""
    taken = {name: tuple(indexes) for name, indexes in read.items() if indexes}
    gone = {name: tuple(indexes) for name, indexes in remove.items() if indexes}
    keys = {
        spec.name: {note.index: note.framing_key for note in frames.get(spec.name, ())}
        for spec in node.translator.framed
    }
    said = [f"{rule.name}{at} answered: read {_listed(taken, keys) or 'nothing'}"]
    if gone == taken:
        said[0] += ", and remove what was read"
    else:
        if unread := _without(gone, taken):
            said.append(f"remove {_listed(unread, keys)} without reading it in this run")
        if kept := _without(taken, gone):
            said.append(f"keep {_listed(kept, keys)} for later runs")
    if idle := [spec.name for spec in node.translator.inputs if spec.name not in taken]:
        said.append(f"to the groups, {_names(idle)} looked empty")
    return "; ".join(said)


def consumed(
    node: StageNode,
    read: Mapping[str, Sequence[int]],
    remove: Mapping[str, Sequence[int]],
    known: Mapping[tuple[str, int], Increment],
    frames: Mapping[str, Sequence[FrameNote]],
) -> list[Consumed]:
    """Return what a run took, by input and index.

    Args:
        node: The stage that leads the run.
        read: Input to increment indexes, as decided.
        remove: The same, of what left the queues.
        known: (flow, index) to increments that are known still.
        frames: Framed input to what is known of the frames that the run took: the number of
            a frame names no increment of its flow.
    """
    taken = []
    for spec in node.translator.inputs:
        flow, frame = node.wiring[spec.name], spec.frame_by is not None
        notes = {note.index: note for note in frames.get(spec.name, ())}
        reads, removes = set(read.get(spec.name, ())), set(remove.get(spec.name, ()))
        for index in sorted(reads | removes):
            found = notes.get(index) if frame else known.get((flow, index))
            taken.append(
                Consumed(
                    input=spec.name,
                    flow=flow,
                    index=index,
                    read=index in reads,
                    removed=index in removes,
                    frame=frame,
                    framing_key=None if found is None else found.framing_key,
                    records=None if found is None else found.records,
                    bytes=None if found is None else found.bytes,
                )
            )
    return taken


def changes_of(intention: Intention) -> list[Change]:
    """Return how a recorded run changed its tables, in order."""
    return [
        Change(
            table=change.table,
            files_added=len(change.adds),
            files_dropped=len(change.drops),
            rows_added=sum(_rows(add) for add in change.adds),
            rows_deleted=sum(int(deletes["rows"]) for deletes in change.deletes.values()),
            compaction=not change.data_change,
        )
        for change in intention.changes
    ]


def _rows(add: Mapping[str, Any]) -> int:
    """Return the rows of a new file, which its statistics tell."""
    found = json.loads(add.get("stats") or "{}").get("numRecords", 0)
    return int(found)


def _listed(
    chosen: Mapping[str, Sequence[int]], keys: Mapping[str, Mapping[int, FramingKey]]
) -> str:
    """Return what was chosen of each input; `keys` are those of frames, by framed input."""
    return ", ".join(
        f"{_span(indexes, keys.get(name))} of `{name}`" for name, indexes in chosen.items()
    )


def _span(indexes: Sequence[int], keys: Mapping[int, FramingKey] | None) -> str:
    """Return numbers as a person says them: `3`, `3 to 7`, `3, 5 and 9`; of frames, with keys."""
    found, one = sorted(indexes), "increment" if keys is None else "frame"
    told = [_with_key(index, keys or {}) for index in found]
    if len(found) == 1:
        return f"{one} {told[0]}"
    if found[-1] - found[0] == len(found) - 1:
        return f"{one}s {told[0]} to {told[-1]}"
    if len(found) > SHOWN_MAX:
        return f"{one}s {', '.join(told[:SHOWN_MAX])} and {len(found) - SHOWN_MAX} more"
    return f"{one}s {', '.join(told[:-1])} and {told[-1]}"


def _with_key(index: int, keys: Mapping[int, FramingKey]) -> str:
    return f"{index} (key {keys[index]})" if index in keys else str(index)


def _without(
    some: Mapping[str, tuple[int, ...]], others: Mapping[str, tuple[int, ...]]
) -> dict[str, tuple[int, ...]]:
    left = {n: tuple(i for i in many if i not in others.get(n, ())) for n, many in some.items()}
    return {name: many for name, many in left.items() if many}


def _names(inputs: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in inputs)
