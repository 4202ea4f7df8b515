"""Account of one run: its reason, its input, and its output; pure.

It is made from what is recorded: the decision of the Runnable, and the intention as long as the log
keeps it. Nothing is guessed: values that the log no longer has are shown as unknown.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from cbp.errors.counts import format_count
from cbp.errors.message_limits import quoted
from cbp.model.dataflow.dataflow import StageNode
from cbp.model.flow.framing import FrameNote
from cbp.model.flow.increment import FramingKey, Increment
from cbp.model.run.correction import CorrectionNote
from cbp.model.run.intention import Intention

RECALLED = "recalled"
"""Figure: 1 if the call of a whole run got the value that the previous run kept in memory."""

LOOP_WORTH = "loop_worth"
"""Figure: how many tasks a loop would have had if slots had been free; absent if they were."""

WAY, READ = "way.", "read."
"""Prefixes of figures: the algorithm that the call of a whole run chose (`way.anew`), and its reads
of each state (`read.links.whole`, `read.links.keys`, `read.links.records`)."""

SHOWN_MAX = 10
"""Maximum number of increments that a sentence lists."""


@dataclass(frozen=True, slots=True)
class Consumed:
    """An increment that a run read, removed, or both.

    Attributes:
        frame: Whether `index` counts the frames of the input instead of the flow's increments.
        framing_key, records, bytes: `None` if no longer known.
        file: Name of the file that brought it; `""` for a stage's increment, for a frame, or if
            no longer known.
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
    file: str = ""


@dataclass(frozen=True, slots=True)
class LookedUpTable:
    """A table that a run looked up.

    Attributes:
        table: The view or state, as `stage.state`; `""` if no current stage looks it up.
        epoch: The newest epoch of the table that was read; -1 if it had none.
    """

    stage: str
    lookup: str
    table: str
    epoch: int
    version: int


@dataclass(frozen=True, slots=True)
class Change:
    """How a run changed one table.

    Attributes:
        rows_added: Rows in new files, including files of a compaction.
        rows_deleted: Rows deleted from files that stay.
    """

    table: str
    files_added: int
    files_dropped: int
    rows_added: int
    rows_deleted: int
    compaction: bool


@dataclass(frozen=True, slots=True)
class Account:
    """The known facts about one run.

    Attributes:
        why: The decision of the Runnable, in words.
        produced: The increments of its epoch, of all stages that ran.
        lookups, changes: Tables that it looked up and changed; empty if it is not `recorded`.
        versions: Maps each table to the oldest readable version that shows the epoch, if any.
        recorded: Whether the log still holds the run's record.
        version: The version of the dataflow that ran.
        codes: Maps each stage that ran to the fingerprint of its code, if recorded.
    """

    run: str
    why: str
    consumed: tuple[Consumed, ...]
    produced: tuple[Increment, ...]
    lookups: tuple[LookedUpTable, ...]
    changes: tuple[Change, ...]
    versions: Mapping[str, int]
    recorded: bool
    version: int
    codes: Mapping[str, str]


def looked_up(
    intention: Intention, stages: Mapping[str, StageNode], only: str = ""
) -> tuple[LookedUpTable, ...]:
    """Return the tables that a run looked up, or only those of one stage of it."""
    tables = []
    for name, moment in intention.lookups.items():
        stage, _, lookup = name.partition(".")
        table = stages[stage].lookups.get(lookup, "") if stage in stages else ""
        if only in ("", stage):
            tables.append(LookedUpTable(stage, lookup, table, moment.epoch, moment.version))
    return tuple(tables)


def reason(
    node: StageNode,
    read: Mapping[str, Sequence[int]],
    remove: Mapping[str, Sequence[int]],
    correction: CorrectionNote | None = None,
    frames: Mapping[str, Sequence[FrameNote]] = {},
    files: Mapping[tuple[str, int], str] = {},
) -> str:
    """Return why a run ran: its Runnable decided so, a state was corrected, or a timer was due.

    Args:
        node: The stage as it is now: a later version can have changed its rule and its inputs.
        read, remove: Map inputs to the indexes that were read, and removed from the queues.
        frames: Maps framed inputs to notes on the frames that the run took.
        files: Maps (flow, index) to the file of a source's increment, as far as known.
    """
    if correction is not None:
        who, stage = correction.who or "an unknown user", correction.stage
        if correction.gives_back:
            what = format_count(correction.keys, "record")
            return f"{who} gave back {what} that {stage} had set aside: {correction.why}"
        keys = format_count(correction.keys, "key")
        return f"{who} corrected {keys} of {stage}.{correction.state}: {correction.why}"
    if not any(read.values()):
        return (
            "a timer was due: the run read no input, called the groups with a due timer, and "
            "removed expired records"
        )
    rule = node.runnable
    at = f" ({rule.place})" if rule.place and not rule.default else ""
    read_indexes = {name: tuple(indexes) for name, indexes in read.items() if indexes}
    gone = {name: tuple(indexes) for name, indexes in remove.items() if indexes}
    wiring, framed = node.wiring, {spec.name for spec in node.translator.framed}
    notes = {
        name: {note.index: f"key {note.framing_key}" for note in frames.get(name, ())}
        if name in framed
        else {i: file for i in indexes if (file := files.get((wiring.get(name, ""), i), ""))}
        for name, indexes in {**gone, **read_indexes}.items()
    }
    listed = partial(_listed, framed=framed, notes=notes)
    said = [f"{rule.name}{at} decided to read {listed(read_indexes)}"]
    if gone == read_indexes:
        said[0] += ", and to remove these from the queues"
    else:
        if unread := _without(gone, read_indexes):
            said.append(f"to remove {listed(unread)} unread")
        if remaining := _without(read_indexes, gone):
            said.append(f"to keep {listed(remaining)} for later runs")
    if idle := [spec.name for spec in node.translator.inputs if spec.name not in read_indexes]:
        said.append(f"nothing was read from {quoted(idle)}")
    return "; ".join(said)


def ways(figures: Mapping[str, float]) -> list[str]:
    """Return how a loop or a whole run proceeded, and its reads of states, in words."""
    said = [name.removeprefix(WAY) for name in figures if name.startswith(WAY)]
    if "supersteps" in figures:
        tasks, worth = int(figures.get("tasks", 1)), int(figures.get(LOOP_WORTH, 0))
        if worth:
            had = format_count(tasks, "task")
            said.append(
                f"in {had} instead of the {worth:,} that its size calls for, since too few slots "
                "were free"
            )
        elif tasks > 1:
            said.append(f"in {tasks:,} tasks that exchanged their messages")
        if alone := int(figures.get("microsteps", 0)):
            steps = format_count(int(figures["supersteps"]), "superstep")
            said.append(f"{steps}, in which tasks did {format_count(alone, 'microstep')}")
    if before := int(figures.get("supersteps_before", 0)):
        many = format_count(int(figures.get("supersteps", before)), "superstep")
        said.append(f"{many}; an earlier, interrupted attempt did the first {before:,}")
    if "notes_before" in figures:
        said.append("continued from the notes that an earlier, interrupted attempt had saved")
    if figures.get(RECALLED):
        said.append("continued from records that the previous run kept in memory")
    states = sorted({name.split(".")[1] for name in figures if name.startswith(READ)})
    for state in states:
        whole, keys, records = (
            int(figures.get(f"{READ}{state}.{what}", 0)) for what in ("whole", "keys", "records")
        )
        how = [f"by {format_count(keys, 'key')}"] if keys else []
        how += ["as a whole"] if whole else []
        if records:
            said.append(f"read {format_count(records, 'record')} of {state} {' and '.join(how)}")
    return said


def consumed(
    node: StageNode,
    read: Mapping[str, Sequence[int]],
    remove: Mapping[str, Sequence[int]],
    known: Mapping[tuple[str, int], Increment],
    frames: Mapping[str, Sequence[FrameNote]],
    files: Mapping[tuple[str, int], str] = {},
) -> list[Consumed]:
    """Return the increments that a run read or removed, by input and index; see `reason`.

    `known` maps (flow, index) to the increments that are still known. Inputs that the stage no
    longer has are left out.
    """
    found = []
    for spec in node.translator.inputs:
        flow, frame = node.wiring[spec.name], spec.frame_by is not None
        notes = {note.index: note for note in frames.get(spec.name, ())}
        reads, removes = set(read.get(spec.name, ())), set(remove.get(spec.name, ()))
        for index in sorted(reads | removes):
            increment = notes.get(index) if frame else known.get((flow, index))
            one = Consumed(spec.name, flow, index, index in reads, index in removes, frame)
            if increment is not None:
                key, records = increment.framing_key, increment.records
                one = replace(one, framing_key=key, records=records, bytes=increment.bytes)
            found.append(replace(one, file="" if frame else files.get((flow, index), "")))
    return found


def changes_of(intention: Intention) -> list[Change]:
    """Return how a recorded run changed its tables, in order."""
    changes = []
    for one in intention.changes:
        stats = (json.loads(add.get("stats") or "{}") for add in one.adds)
        added = sum(int(each.get("numRecords", 0)) for each in stats)
        deleted = sum(int(deletes["rows"]) for deletes in one.deletes.values())
        files = len(one.adds), len(one.drops)
        changes.append(Change(one.table, *files, added, deleted, compaction=not one.data_change))
    return changes


def _listed(
    chosen: Mapping[str, Sequence[int]],
    *,
    framed: Collection[str],
    notes: Mapping[str, Mapping[int, str]],
) -> str:
    return ", ".join(
        f"{_span(indexes, 'frame' if name in framed else 'increment', notes[name])} of `{name}`"
        for name, indexes in chosen.items()
    )


def _span(indexes: Sequence[int], one: str, notes: Mapping[int, str]) -> str:
    """Return indexes as words, with their notes: `3 (a.csv)`, `3 to 7`, `3, 5 and 9`."""
    ordered = sorted(indexes)
    texts = [f"{i} ({notes[i]})" if i in notes else str(i) for i in ordered]
    if len(ordered) == 1:
        return f"{one} {texts[0]}"
    if ordered[-1] - ordered[0] == len(ordered) - 1:
        return f"{one}s {texts[0]} to {texts[-1]}"
    if len(ordered) > SHOWN_MAX:
        return f"{one}s {', '.join(texts[:SHOWN_MAX])} and {len(ordered) - SHOWN_MAX} more"
    return f"{one}s {', '.join(texts[:-1])} and {texts[-1]}"


def _without(
    some: Mapping[str, tuple[int, ...]], others: Mapping[str, tuple[int, ...]]
) -> dict[str, tuple[int, ...]]:
    left = {n: tuple(i for i in many if i not in others.get(n, ())) for n, many in some.items()}
    return {name: many for name, many in left.items() if many}
