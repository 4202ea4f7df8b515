"""Roles of an engine: to prepare a run, and to control the runs that are being prepared.

The steps of a run:

1. `RunPreparer.prepare` does the work and writes files. It publishes nothing. The way from a
   `RunPlan` to files is drawn in cbp/engine/README.md.
2. The caller puts the intention (`cbp.engine.commit.intention_log`). This is the commit point.
3. `publish` (`cbp.engine.interface.tables`) shows the run in the tables, alone or together with
   other runs. It may happen much later. It is an idempotent redo and can be repeated after any
   crash.

The next runs do not wait for the third step: their plan names the intentions that the tables do not
show yet.

Every engine calls the groups of an epoch ordered by (unsigned hash, key). Authors may rely on
the order of the records within a group: records of an input are ordered by (order_by, increment,
position), records of a state by all columns that can be compared, nulls first.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Protocol

from cbp.errors import DefinitionError, Mistake
from cbp.model.dataflow.dataflow import Dataflow, StageNode
from cbp.model.dataflow.run_context import RunContext, context_of, time_of
from cbp.model.dataflow.stage import TranslatorSpec
from cbp.model.flow.increment import Increment
from cbp.model.flow.retention import KeptFlow
from cbp.model.plan.explain import PhysicalLimits
from cbp.model.run.correction import Correction
from cbp.model.run.intention import Intention, LookupMoment, TableChange


def needs_spark(nodes: Iterable[StageNode]) -> bool:
    """Return whether these stages use SQL that only Spark can check and run."""
    specs = [node.translator for node in nodes]
    return any(spec.form == "sql" or any(one.in_sql for one in spec.inputs) for spec in specs)


def require_no_spark(stage: str, spec: TranslatorSpec) -> None:
    """Refuse a translator in Spark SQL for an engine without Spark, by the rule `spark_needed`."""
    if spec.form == "sql":
        message = (
            f"{spec.name} is written in Spark SQL: use the Spark engine, or rewrite the "
            "translator as Translate or TranslateArrow to run it without Spark"
        )
        raise DefinitionError(Mistake("spark_needed", f"stages.{stage}", message, spec.place))


def enter_unseen(phase: str) -> None:
    """Do nothing; for a run whose phases are not recorded."""


@dataclass(frozen=True, slots=True)
class LookedUp:
    """A table of another stage that a run looks up, as plain data.

    It is read as of a `moment` (`None`: the newest), with `unpublished` epochs (see `RunPlan`).
    """

    folder: str
    node: StageNode
    state: str
    moment: LookupMoment | None = None
    unpublished: tuple[Intention, ...] = ()


@dataclass(frozen=True, slots=True)
class Dropped:
    """A dropped file of an increment; its records follow those of the previous file.

    `lines` are pairs of a record's number, from 0, and the line on which it begins, from 1 (0 if
    unknown). Records up to the next pair begin on the following lines.
    """

    name: str
    records: int
    lines: tuple[tuple[int, int], ...] = ()

    def line(self, record: int) -> int | None:
        """Return the line on which a record begins; `None` if unknown."""
        at = bisect_right(self.lines, record, key=lambda pair: pair[0]) - 1
        if at < 0 or not self.lines[at][1]:
            return None
        return self.lines[at][1] + record - self.lines[at][0]


@dataclass(frozen=True, slots=True)
class Origins:
    """Where the records of sources come from, as plain data.

    `files` maps (source, index) of an increment to its files, in the order of its records. For
    increments that are cut into frames, `before` maps each data file, but the first, to the number
    of records in the increment's earlier files.
    """

    files: Mapping[tuple[str, int], tuple[Dropped, ...]] = field(default_factory=dict)
    before: Mapping[str, int] = field(default_factory=dict)

    def place(self, increment: Increment, record: int) -> dict[str, Any]:
        """Return `file` and `line` of a record of an increment; null where they are not known."""
        for file in self.files.get((increment.flow, increment.index), ()):
            if record < file.records:
                return {"file": file.name, "line": file.line(record)}
            record -= file.records
        return {"file": None, "line": None}


NO_ORIGINS = Origins()


@dataclass(frozen=True, slots=True)
class RunPlan:
    """One run, as plain data.

    Attributes:
        folder: The dataflow's folder; a local path or a URI.
        epoch: Counted from 0, without gaps; names the output increments.
        run: Unique id of this attempt, `[a-z0-9]+`; names its files.
        inputs: Maps each input to the increments to read, in order.
        fused: Stages that run in the same epoch. Each follows the stage that writes its only
            input; see `cbp.model.plan.fusion`.
        unpublished: Intentions of this stage that its tables may not show yet, oldest first,
            without gaps up to `epoch`. Intentions that the tables already show do no harm.
        kept: By flow, the records that must stay, for outputs that are not kept forever; `None`
            if the run does not maintain its outputs.
        own_messages: Flows of loopbacks that only their own stage reads. Such a stage depends
            only on the order of messages within a group, so a run may sort messages by bucket.
        slots_max: Maximum number of the engine's slots that the run's tasks take at a time; `None`
            means all.
        time_ms: The time that author's code reads in the run, in milliseconds since 1970; 0 for
            a run that calls no such code.
        due_ms: A time before which no timer of the stages is due, in milliseconds since 1970; 0 if
            it is not known, `None` if no timer is pending.
        lookups: The tables that the stages look up, by `stage.lookup`.
        retained: If the run reads a replacement, maps each input to the increments that it read
            before and that still count, oldest first.
        origins: The files from which the records come, as far as known.
        recomputes: Whether the run is compared with another one. Its tasks then run in
            processes that no run of a dataflow has used.
    """

    folder: str
    dataflow: str
    node: StageNode
    epoch: int
    run: str
    inputs: Mapping[str, tuple[Increment, ...]]
    fused: tuple[StageNode, ...] = ()
    unpublished: tuple[Intention, ...] = ()
    kept: Mapping[str, KeptFlow] | None = None
    own_messages: Collection[str] = frozenset()
    slots_max: int | None = None
    time_ms: int = 0
    due_ms: int | None = 0
    lookups: Mapping[str, LookedUp] = field(default_factory=dict)
    retained: Mapping[str, tuple[Increment, ...]] = field(default_factory=dict)
    origins: Origins = NO_ORIGINS
    recomputes: bool = False

    @property
    def replaces(self) -> bool:
        """Whether the run reads an increment that takes records back (`Increment.gone`)."""
        return any(one.gone for increments in self.inputs.values() for one in increments)

    @property
    def wakes(self) -> bool:
        """Whether the run looks for timers of its stage that are due."""
        if not self.node.translator.timers or self.due_ms is None:
            return False
        return self.time_ms > 0 and self.due_ms <= self.time_ms

    def context(self) -> RunContext:
        """Return the facts about the run that author's code can read."""
        return context_of(
            self.node.translator, epoch=self.epoch, time=time_of(self.time_ms), inputs=self.inputs
        )

    def slots_of(self, slots: int) -> int:
        """Return how many of an engine's slots the run's tasks take at most."""
        return slots if self.slots_max is None else min(slots, self.slots_max)


@dataclass(frozen=True, slots=True)
class PreparedRun:
    """The results of a run: durable on disk, not visible to any reader yet.

    Attributes:
        outputs: Maps each output to its increment of this epoch, empty increments included. Outputs
            of a fused stage are named `stage.output`.
        changes: How the tables change; states first, then outputs.
        figures: `records_in`, `groups`, `records_out`, `state_written`, `state_removed`,
            `records_combined` (records that combiners kept out of the shuffle), `bytes_read`,
            `bytes_shuffled`, `bytes_written` to files, `bytes_dropped` of files that are
            no longer live, and `seconds_*` by step. For messages that are read in place
            (`cbp.engine.task.message_reader`): `messages_local` (written by a task to its own
            buckets), `messages_remote`, and the same two in bytes. For a run of several stages:
            the totals, and `<stage>/<figure>` for each stage.
        due_ms: A time before which no timer of the stages is due after this run; as in `RunPlan`.
        lookups: The moment as of which each table was looked up, by `stage.lookup`.
    """

    outputs: Mapping[str, Increment]
    changes: tuple[TableChange, ...]
    figures: Mapping[str, float] = field(default_factory=dict)
    due_ms: int | None = None
    lookups: Mapping[str, LookupMoment] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StackCall:
    """One call that a process is in: file, line and function, as Python names them."""

    file: str
    line: int
    function: str


@dataclass(frozen=True, slots=True)
class ProcessStack:
    """Where a process that executes a run is now.

    `calls` are those that its main thread is in, outermost first, without values; empty if it did
    not answer: it is starting, stopped, or waits in the system for a device; or its code handles
    SIGURG.
    """

    pid: int
    calls: tuple[StackCall, ...]


class RunPreparer(Protocol):
    """Prepares runs; different threads may call it for different stages."""

    def limits(self) -> PhysicalLimits:
        """Return the limits and slots that decide how a run is executed."""

    def maintains_outputs(self, epoch: int) -> bool:
        """Return whether the run of an epoch should also maintain its outputs.

        Maintenance compacts outputs and drops old records. The plan of such a run says what
        must be `kept`.
        """

    def prepare(self, plan: RunPlan, enter: Callable[[str], object] = enter_unseen) -> PreparedRun:
        """Do the work of one run; blocks until every file is durable.

        May be called again for the same epoch with another `run` id: the files of an attempt that
        is not recorded are harmless orphans. `enter` is called with each phase that begins
        (`cbp.model.run.timeline`).

        Raises:
            AuthorCodeError: The author's code failed.
            IncrementDamagedError: An input file is missing or has a different number of rows.
            OperatingError: Disk full, cancelled, a foreign writer.
        """

    def correct(
        self, plan: RunPlan, stage: str, state: str, corrections: Sequence[Correction]
    ) -> tuple[PreparedRun, str]:
        """Correct records of a state in a separate epoch without inputs; publishes nothing.

        Returns the prepared run, whose outputs are empty, and the path of the file that holds the
        corrections, relative to the folder.
        """

    def give_back(
        self, plan: RunPlan, enter: Callable[[str], object] = enter_unseen
    ) -> PreparedRun:
        """Read the set-aside records of a stage again; like `prepare`, publishes nothing.

        Records that fail again stay set aside. Groups whose timers are due are called, too. If
        the run is not recorded, nothing changes; so a dry run is the same call.

        Args:
            plan: The epoch; it has no inputs.
            enter: Also called with `again` each time the code is called without the groups that
                failed.

        Raises:
            DefinitionError: A record no longer fits its input.
            CbpError: As in `prepare`.
        """


class RunControl(Protocol):
    """Refuses stages that cannot run; stops and watches runs that other threads prepare."""

    def refuse(self, dataflow: str, nodes: Sequence[StageNode]) -> None:
        """Refuse stages that this engine cannot run; touches nothing.

        Called before a dataflow has left any trace; `create_tables` and `prepare` check again:
        repeated calls are cheap.

        Raises:
            DataflowInvalidError: Rule `engine_unsupported`, with stage, input and place.
        """

    def warm(self) -> None:
        """Prepare resources that runs would wait for, such as processes; end ones idle for long.

        A service calls it at its start and from time to time. It blocks for a second or so if there
        is something to start, and costs nothing otherwise.
        """

    def waits_for(self) -> str:
        """Return why the engine cannot run anything yet, in words; `""` if it can.

        Until then a run waits, and `refuse` does not check stages in SQL: their runs do.
        """

    def cancel(self, run: str) -> None:
        """Ask a run to stop; its `prepare` then raises `RunCancelledError`. Returns immediately."""

    def stacks(self, run: str) -> Sequence[ProcessStack]:
        """Return where the processes that execute a run are now; none if no process does.

        The run goes on; see `cbp.engine.workers.process_stack`. Blocks for a moment, and for
        seconds if a process does not answer. Raises `RunStackUnseenError` if the engine cannot ask
        them.
        """

    def starved(self, runs: Collection[str]) -> Collection[str]:
        """Return the runs that have waiting tasks now, but none running.

        `OperatingError` if the engine cannot find out.
        """


Unpublished = Callable[[str], Iterable[Intention]]
"""Stage -> its intentions that its tables may not show yet, oldest first."""


def nothing_unpublished(stage: str) -> tuple[Intention, ...]:
    """Return no intentions: the tables show every epoch."""
    return ()


def looked_up_tables(
    dataflow: Dataflow,
    folder: str,
    stages: Iterable[StageNode],
    *,
    unpublished: Unpublished = nothing_unpublished,
    reads_all: bool = False,
    moments: Mapping[str, LookupMoment] = MappingProxyType({}),
) -> dict[str, LookedUp]:
    """Return the tables that stages look up, by `stage.lookup`.

    A look-up with `wake=True` calls groups for changes, so it must not read a table that is older
    than these changes. Only such a look-up reads epochs that are recorded, but not published;
    other look-ups do so only in a recomputation (`reads_all`), which publishes less often than the
    service. `moments` are known already, from the record of the run.
    """
    tables = {}
    for node in stages:
        for spec in node.translator.lookups:
            writer, _, state = node.lookups[spec.name].partition(".")
            name = f"{node.name}.{spec.name}"
            intentions = tuple(unpublished(writer)) if reads_all or spec.wake else ()
            tables[name] = LookedUp(
                folder, dataflow.stages[writer], state, moments.get(name), intentions
            )
    return tables
