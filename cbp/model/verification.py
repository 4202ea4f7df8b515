"""Verification: compare a dataflow's tables with a recomputation from its input. Pure.

A recomputation begins with empty state and reads the retained input again, either increment by
increment or all at once. `cbp.model.dataflow.equality` defines the comparison.

Messages are left out, since they are not a result. Some tables cannot be compared, or only in part,
for example if a stage has not run although input waits for it. They are *undecided*, each with the
reason (`comparisons`), and so is the verification. An output whose old increments were collected is
compared from its first remaining increment on, if epochs are a function of the input.

Increment by increment, a dataflow whose rules wait for their input gives the same epochs, however
its runs were timed. So it can be compared at any snapshot while runs continue: the recomputation
stops each stage at the epoch that the snapshot shows. Any other dataflow is compared once it has
nothing left to do.

Some tables cannot be recomputed from scratch: tables that an earlier version or a correction has
affected; those of a stage whose code reads the time or the number of its runs (`group.run`); and
those of a stage that has set records aside, since the calls that fail depend on how input was cut.
Such tables are repeated from an earlier state (`controller.loop.verification.repetition`), or not
compared. Their records from before the repeated epochs are undecided; a rebuilt stage has none. An
epoch that gave back records is repeated like any other: it reads the records that the repeated
epochs before it set aside.

Invariant: every table of a dataflow is compared, or has a reason why not
(tests/cbp/model/test_verification.py).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType
from typing import Literal

from cbp.model.dataflow.dataflow import Dataflow
from cbp.model.dataflow.equality import in_words
from cbp.model.dataflow.stage import OutputSpec
from cbp.model.graph.cycles import components, predecessors, reached

Split = Literal["increments", "at_once"]

Kind = Literal["state", "view", "records", "history", "changes", "set_aside"]
"""How a table is compared: by all records, the last per key, or the sum of signs of changes.

`set_aside`: the records that a stage has set aside, by epoch, number, group, record and code of the
error.
"""

Status = Literal[
    "waiting",
    "running",
    "equal",
    "undecided",
    "differs",
    "not_deterministic",
    "timed_out",
    "cancelled",
    "failed",
]
"""Results of a verification.

`equal`: everything that readers see was compared, and is equal. `undecided`: nothing that was
compared differs, but a table could not be compared, or not from its first epoch on. `timed_out`:
nothing differed before the time limit. `not_deterministic`: two recomputations of the same input
differ, so no table can be compared with either.
"""

_CHANGED = (
    "the stage or its input is affected by an earlier version, a correction, the time of a run, "
    "or records that are set aside"
)


@dataclass(frozen=True, slots=True)
class Request:
    """The options of a verification.

    Attributes:
        split: How the input is cut for the recomputation.
        engine: `direct` is the service's own engine, on scratch tables; `reference` is the slow
            in-memory engine, for small inputs.
        twice: Whether to recompute twice even if nothing differs.
        seconds_max: Time limit, including waiting.
    """

    split: Split = "increments"
    engine: Literal["direct", "reference"] = "direct"
    twice: bool = False
    seconds_max: float = 600.0


@dataclass(frozen=True, slots=True)
class Comparison:
    """One table, and how it is compared.

    Attributes:
        left_out: Why it is not compared; `""` if it is.
        messages: Whether it holds messages, which are no results.
        within: How closely records must agree, in words; `""` means exactly.
        since: The first epoch that is repeated, from the state before it; `None` means all epochs
            are recomputed from scratch.
        whole: Whether the table has only records of these epochs; false if it has older ones.
        first: The first epoch that retention left in the table; readers see no older ones.
    """

    stage: str
    name: str
    kind: Kind
    left_out: str = ""
    messages: bool = False
    within: str = ""
    since: int | None = None
    whole: bool = True
    first: int = 0

    @property
    def undecided(self) -> bool:
        """Whether readers see records that are not compared."""
        return not self.messages and (bool(self.left_out) or not self.whole)

    @property
    def table(self) -> str:
        """Its folder, relative to the dataflow's."""
        if self.kind == "set_aside":
            return f"set_aside/{self.stage}"
        folder = "state" if self.kind == "state" else "flows"
        return f"{folder}/{self.stage}.{self.name}"

    @property
    def carried(self) -> bool:
        """Whether the stage carries all records of the table from epoch to epoch."""
        return self.kind in ("state", "set_aside")


@dataclass(frozen=True, slots=True)
class Differing:
    """One key (or record, in a table without `TableVerdict.key`) that differs; all as texts.

    Attributes:
        expected: The records that the recomputation has and the table lacks.
        found: The records that the table has and the recomputation lacks.
        key_cells, expected_cells, found_cells: The same, value by value.
    """

    key: str
    expected: tuple[str, ...]
    found: tuple[str, ...]
    key_cells: tuple[str, ...] = ()
    expected_cells: tuple[tuple[str, ...], ...] = ()
    found_cells: tuple[tuple[str, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class TableVerdict:
    """The result for one table.

    Attributes:
        status: `left_out`: it has messages. `undecided`: it was not compared (`because`), or equals
            only from epoch `since` on.
        records: Number of compared records, both sides added up.
        differing: The first keys that differ; there may be more.
        within, since: See `Comparison`.
        columns, key: Names of the columns of a record, and of those that identify a difference.
    """

    table: str
    kind: Kind
    status: Literal["open", "equal", "undecided", "differs", "left_out"]
    records: int = 0
    differing: tuple[Differing, ...] = ()
    because: str = ""
    within: str = ""
    since: int | None = None
    columns: tuple[str, ...] = ()
    key: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Verification:
    """The progress or the result of one verification.

    Attributes:
        step: The current step, in words.
        done, total, unit: Progress of the step; `total` is 0 if unknown.
        epochs: Maps each stage to the last epoch that is compared, once that is known.
        suspect: The first stage, upstream first, with a table that differs.
        error: `{"error_code", "message", "details"}` of a verification that failed.
    """

    id: str
    dataflow: str
    request: Request
    status: Status
    step: str = ""
    done: int = 0
    total: int = 0
    unit: str = ""
    began_at: datetime | None = None
    seconds: float = 0.0
    epochs: dict[str, int] | None = None
    tables: tuple[TableVerdict, ...] = ()
    suspect: str = ""
    error: dict[str, object] | None = None

    @property
    def ended(self) -> bool:
        """Whether the verification has ended."""
        return self.status not in ("waiting", "running")


def timeless(dataflow: Dataflow) -> frozenset[str]:
    """Return the stages whose epochs are a function of the input; none is on a cycle.

    Their rules and those of all upstream stages do not decide by arrival times.
    """
    before, on_cycle = predecessors(dataflow.wiring()), dataflow.cycles()
    found = set[str]()
    for stage in dataflow.upstream_first():
        # Empty increments are not enqueued inside a cycle, so queues there depend on timing.
        is_timeless = stage not in on_cycle and dataflow.stages[stage].runnable.timeless
        if is_timeless and before[stage] <= found:
            found.add(stage)
    return frozenset(found)


def behind(dataflow: Dataflow, stages: Collection[str]) -> frozenset[str]:
    """Return these stages, as far as they exist, and all stages downstream."""
    begin = [stage for stage in dataflow.stages if stage in stages]
    return frozenset(reached(predecessors(dataflow.wiring()), begin))


def reading_runs(dataflow: Dataflow) -> frozenset[str]:
    """Return the stages whose code reads the context of its runs, or that look up tables.

    Their epochs depend on more than the input. Only a repetition gives the same tables: it
    gives each epoch the time, the number and the moments of look-ups from its record.
    """
    specs = ((name, node.translator) for name, node in dataflow.stages.items())
    return frozenset(name for name, spec in specs if spec.reads_run or spec.lookups)


def comparisons(
    dataflow: Dataflow,
    split: Split,
    changed: Collection[str] = (),
    collected: Mapping[str, int] = MappingProxyType({}),
    *,
    built: bool = False,
) -> Iterator[Comparison]:
    """Yield every table with its kind of comparison, upstream first, outputs last.

    Args:
        changed: Stages that were changed by a version, corrected by an operator, or that read
            the context of their runs; and all downstream.
        collected: Maps each output flow to the first increment that retention has kept.
        built: Whether the tables were swapped in, so that their earlier records have no epochs.
    """
    settled, free = timeless(dataflow), _split_free(dataflow)
    timed, at_once = _timed(dataflow, split, settled), split == "at_once"
    for stage in dataflow.upstream_first():
        spec = dataflow.stages[stage].translator
        old = _CHANGED if stage in changed else timed.get(stage, "")
        loopbacks = {loopback.name for loopback in spec.loopbacks}
        for state in spec.states:
            yield Comparison(stage, state.name, "state", old, within=in_words(state))
        if dataflow.stages[stage].sets_aside:
            yield Comparison(stage, "", "set_aside", old)
        for output in spec.outputs:
            kind, messages = _kind(output), output.name in loopbacks
            why, first = old, collected.get(f"{stage}.{output.name}", 0)
            if why:
                pass
            elif messages:
                why = "messages depend on how input is split; only their results are compared"
            elif first and (built or at_once or stage not in settled):
                why = (
                    f"increments before {first} were removed (`keep`), and their records "
                    "depend on the start times of runs or on how input is split"
                )
            elif output.history and built:
                why = "records from before the last swap have no epochs"
            elif output.history and at_once:
                why = "a history has different epochs if all input is read in one batch"
            elif output.history and stage not in settled:
                why = "the epoch of a record of a history depends on when runs start"
            elif kind == "records" and stage not in free and (at_once or stage not in settled):
                why = "the output follows the changes of a view, which "
                why += (
                    "are fewer if all input is read in one batch; declare a key of the output, so "
                    "that only the last record of each key is compared"
                    if at_once
                    else "depend on the start times of runs"
                )
            within = in_words(output)
            yield Comparison(stage, output.name, kind, why, messages, within, first=first)


def _kind(output: OutputSpec) -> Kind:
    if output.signed:
        return "changes"
    return "history" if output.history else "view" if output.key else "records"


def _timed(dataflow: Dataflow, split: Split, settled: Collection[str]) -> dict[str, str]:
    """Return why the state of a stage, or of a stage upstream, is not a function of the input."""
    reason_by_stage: dict[str, str] = {}
    before = predecessors(dataflow.wiring())
    for component in components(before):
        reasons = []
        for stage in component:
            rule = dataflow.stages[stage].runnable
            windows = f"the windows of {rule.name} hold different records if"
            if rule.split_free:
                continue
            if not rule.timeless:
                why = f"the input that {rule.name} gives to a run depends on"
                reasons.append(f"`{stage}`: {why} the start times of runs")
            elif split == "at_once":
                reasons.append(f"`{stage}`: {windows} all input is read in one batch")
            elif stage not in settled:
                reasons.append(f"`{stage}`: {windows} earlier runs start at other times")
        reasons += [
            reason_by_stage[b] for stage in component for b in before[stage] if b in reason_by_stage
        ]
        if reasons:
            reason_by_stage |= dict.fromkeys(component, reasons[0])
    return reason_by_stage


def _split_free(dataflow: Dataflow) -> frozenset[str]:
    """Return the stages that read the same records however the input is split.

    They read only sources, and outputs of such stages that are compared by all their records.
    """
    found, flows = set[str](), set(dataflow.sources)
    for stage in dataflow.upstream_first():
        node = dataflow.stages[stage]
        if flows.issuperset(node.wiring.values()):
            found.add(stage)
            outputs = (one for one in node.translator.outputs if _kind(one) == "records")
            flows |= {f"{stage}.{output.name}" for output in outputs}
    return frozenset(found)


def first_stage(dataflow: Dataflow, differing: Collection[str]) -> str:
    """Return the first stage, upstream first, with a table that differs; `""` if none has."""
    stages = {table.partition("/")[2].partition(".")[0] for table in differing}
    return next((stage for stage in dataflow.upstream_first() if stage in stages), "")


def merged(end: int, breaks: Collection[int], *, most: int) -> list[range]:
    """Return which increments of a source are merged into one if all of its input comes at once.

    No range extends across a break, which is the index of a punctuation.
    """
    ranges, start = [], 0
    while start < end:
        stop = min([end, start + most, *(at for at in breaks if at > start)])
        ranges.append(range(start, stop))
        start = stop
    return ranges
