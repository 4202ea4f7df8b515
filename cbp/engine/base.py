"""The interface between a service and an engine: a run is planned, prepared, published.

A run goes: `prepare` (does the work, writes files, publishes nothing) -> the
caller puts the intention (`cbp.engine.intentions`), the commit point -> sooner or
later `publish`, alone or with other runs (redo: idempotent, may be repeated after any
crash). Runs go on without publishing: the plan names the intentions that the tables do
not show yet. An engine keeps no truth of its own: everything it needs is in the plan,
the tables and the intentions.

Every engine calls the groups of an epoch by (unsigned hash, key), and gives a group's
records in this order, which authors may rely on: of an input by (order_by, increment,
position), of a state by all columns that can be compared, nulls first.

Layout of one dataflow's folder, relative paths in every record:

    state/<stage>.<state>/      Delta table, partitioned by _bucket
    flows/<stage>.<output>/     Delta table with the column _epoch
    sources/<source>/           accepted increments and their log
    _intentions/<stage>/        one record per epoch
    _description/               the dataflow's document, by version
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from cbp.engine.collect import Retention, TablePlan
from cbp.engine.compare import Contents
from cbp.engine.rewind import TableRewind, Target
from cbp.model.correction import Correction
from cbp.model.dataflow import StageNode
from cbp.model.explain import PhysicalLimits
from cbp.model.framing import Segment
from cbp.model.increment import Increment
from cbp.model.intention import Intention, TableChange
from cbp.model.retention import Expiry, KeptFlow
from cbp.model.snapshot import TableVersion
from cbp.model.stage import InputSpec
from cbp.model.verification import Comparison

__all__ = [
    "Engine",
    "Page",
    "Place",
    "PreparedRun",
    "RunPlan",
    "TableVersions",
    "flow_table",
    "source_folder",
    "stage_tables",
    "state_table",
]


def state_table(stage: str, state: str) -> str:
    """Return the folder of a state table, relative to the dataflow's folder."""
    return f"state/{stage}.{state}"


def flow_table(stage: str, output: str) -> str:
    """Return the folder of an output flow's table, relative to the dataflow's folder."""
    return f"flows/{stage}.{output}"


def stage_tables(node: StageNode) -> list[str]:
    """Return the folders of a stage's tables, state first."""
    states = [state_table(node.name, state.name) for state in node.translator.states]
    return states + [flow_table(node.name, output.name) for output in node.translator.outputs]


def source_folder(source: str) -> str:
    """Return the folder of a source's increments, relative to the dataflow's folder."""
    return f"sources/{source}"


@dataclass(frozen=True, slots=True)
class RunPlan:
    """One run, as plain data.

    Attributes:
        folder: The dataflow's folder; a local path or a URI.
        node: The stage: translator, wiring, buckets.
        epoch: From 0, without gaps; names the output increments.
        run: Unique id of this attempt, `[a-z0-9]+`; names its files.
        inputs: Input name to the increments to read, in order.
        fused: Stages that run in the same epoch, each behind the one that writes its only
            input; see `cbp.model.fusion`.
        unpublished: What this stage recorded before and its tables may not show yet, oldest
            first and without gaps up to `epoch`; what they show already does no harm.
        kept: Of outputs that are not kept for good, by flow, what of them must stay.
        own_messages: Loopbacks, by flow, that nobody reads but their own stage. Only the order of
            each group's messages counts there, so a run may put those of one bucket together.
        slots_max: Most slots of the engine that its tasks take at a time; `None`: all of them.
    """

    folder: str
    dataflow: str
    node: StageNode
    epoch: int
    run: str
    inputs: Mapping[str, tuple[Increment, ...]]
    fused: tuple[StageNode, ...] = ()
    unpublished: tuple[Intention, ...] = ()
    kept: Mapping[str, KeptFlow] = field(default_factory=dict)
    own_messages: Collection[str] = frozenset()
    slots_max: int | None = None

    def slots_of(self, slots: int) -> int:
        """Return how many of an engine's slots its tasks take at most."""
        return slots if self.slots_max is None else min(slots, self.slots_max)


@dataclass(frozen=True, slots=True)
class PreparedRun:
    """What a run wrote; durable on disk, visible to nobody yet.

    Attributes:
        outputs: Output name to its increment of this epoch, empty ones included; of a fused
            stage, `stage.output` to its increment.
        changes: How the tables change, state first, then outputs.
        figures: `records_in`, `groups`, `records_out`, `state_written`, `state_removed`,
            `records_combined` (what combiners spared the shuffle), `bytes_read`,
            `bytes_shuffled`, `bytes_written` to files, `bytes_dropped` of files that are
            live no longer, and `seconds_*` by step. Of messages that were read where they lie
            (`cbp.engine.mail`): `messages_local`, which a task wrote to buckets of its own,
            `messages_remote`, and the same of bytes. Of a run of several stages: of all
            together, and `<stage>/<figure>` of each.
    """

    outputs: Mapping[str, Increment]
    changes: tuple[TableChange, ...]
    figures: Mapping[str, float] = field(default_factory=dict)


Place = tuple[int, int]
"""Where a page of a table begins; `(0, 0)`: at the first record."""

Page = tuple[list[dict[str, Any]], Place | None]
"""Records, and the place of the next page; `None`: there are no more."""


class TableVersions(Protocol):
    """What reads one stage's tables as of any version that is kept.

    Every method raises `VersionGoneError`, or of a state `VersionUnreadableError`.
    """

    def look_up(self, state: str, key: Mapping[str, Any], version: int) -> list[dict[str, Any]]:
        """Return the records of one key of a state; empty when there is none."""
        ...

    def state_page(self, state: str, version: int, start: Place, limit: int) -> Page:
        """Return at most `limit` records of a state from a place on; in any fixed order."""
        ...

    def output_page(self, output: str, version: int, start: Place, limit: int) -> Page:
        """Return at most `limit` records of an output from a place on, in the flow's order."""
        ...


class Engine(Protocol):
    """Executes single stages; safe to call from several threads for different stages."""

    def check(self, dataflow: str, nodes: Sequence[StageNode]) -> None:
        """Refuse stages that need what this engine cannot do; touches nothing.

        Called before a dataflow leaves any trace; `create_tables` and `prepare` check again.

        Raises:
            DataflowInvalidError: Rule `engine_unsupported`, naming stage, input and place.
        """
        ...

    def limits(self) -> PhysicalLimits:
        """Return what decides how a run is executed; for `cbp.model.explain`."""
        ...

    def frame(
        self, folder: str, stage: str, spec: InputSpec, increment: Increment, memo: Any
    ) -> tuple[list[Segment], Any]:
        """Find the frames of an output increment for one framed input; reads, writes nothing.

        Args:
            folder: Of the dataflow.
            stage: That reads it, for errors.
            spec: The input; its `frame_by` is called once per record, in order.
            increment: As its stage wrote it, whole.
            memo: Of the input's FrameBy, before this increment.

        Returns:
            The increment's segments in order (`cbp.model.framing`), and the memo behind it.

        Raises:
            AuthorCodeError: The author's function failed, or gave no framing key.
            IncrementDamagedError: A file is missing or has other rows.
        """
        ...

    def create_tables(
        self,
        folder: str,
        dataflow: str,
        nodes: Sequence[StageNode],
        *,
        timestamp_ms: int | None = None,
    ) -> None:
        """Create the tables of these stages; does nothing where they exist already.

        Args:
            folder: The dataflow's folder.
            dataflow: Its name.
            nodes: The stages.
            timestamp_ms: Of the tables' first entries, in milliseconds since 1970; by default now.
                Every later entry has a later one, and entries of one publication have the same
                only if that is later than this.

        Raises:
            DataflowInvalidError: As of `check`.
            TableForeignError: If a folder holds something else.
        """
        ...

    def rewrite(
        self, folder: str, dataflow: str, node: StageNode, *, epoch: int, run: str, anew: bool
    ) -> Sequence[TableChange]:
        """Write the files that the tables of a stage need after a change; nobody sees them.

        Everything that the stage recorded is published, and nothing runs. May be called
        again with another `run`: what is not altered with is an orphan and harms nobody.

        Args:
            folder: The dataflow's folder.
            dataflow: Its name.
            node: The stage as it is to be.
            epoch: The stage's next epoch.
            run: Unique id of this attempt.
            anew: Its state is emptied.

        Returns:
            How each table that is there and not as declared has to change.

        Raises:
            OperatingError: Disk full, a foreign writer.
        """
        ...

    def alter(
        self,
        folder: str,
        dataflow: str,
        node: StageNode,
        changes: Sequence[TableChange],
        *,
        epoch: int,
        version: int,
        timestamp_ms: int,
    ) -> None:
        """Make tables what `rewrite` prepared, each by one entry; idempotent redo.

        Args:
            folder: The dataflow's folder.
            dataflow: Its name.
            node: The stage as it is to be.
            changes: What `rewrite` returned.
            epoch: The stage's next epoch.
            version: Of the dataflow; names the change.
            timestamp_ms: In-commit timestamp of the entries, as of `publish`.
        """
        ...

    def prepare(self, plan: RunPlan) -> PreparedRun:
        """Do the work of one run; blocks until every file is durable.

        May be called again for the same epoch with another `run` id: files of the
        attempt that is not recorded are orphans and harm nobody.

        Raises:
            AuthorCodeError: The author's code failed.
            IncrementDamagedError: An input file is missing or has other rows.
            OperatingError: Disk full, cancelled, a foreign writer.
        """
        ...

    def correct(
        self, plan: RunPlan, stage: str, state: str, corrections: Sequence[Correction]
    ) -> tuple[PreparedRun, str]:
        """Correct records of a state, as one epoch; like `prepare`, it publishes nothing.

        Args:
            plan: The epoch, without inputs.
            stage: Of the plan, that has the state.
            state: Of this stage.
            corrections: That were checked (`cbp.model.correction`).

        Returns:
            What was prepared, outputs empty; and the file that holds the corrections,
            relative to the folder.

        Raises:
            CbpError: As `prepare`.
        """
        ...

    def publish(
        self, folder: str, intentions: Sequence[Intention], *, timestamp_ms: int
    ) -> Mapping[str, int]:
        """Make the tables of one stage show what it recorded; idempotent redo.

        Args:
            folder: The dataflow's folder.
            intentions: Of one stage, oldest first, without gaps from the first one that is
                not published; those that are do no harm. At least one.
            timestamp_ms: In-commit timestamp of the entries, the same for all stages that
                are published together, later than every earlier one.

        Returns:
            Folder of each table that changed, to the version that shows the last epoch.
        """
        ...

    def shown(
        self, folder: str, dataflow: str, node: StageNode, *, at_ms: int | None = None
    ) -> Mapping[str, TableVersion]:
        """Return the newest version of each of a stage's tables, as of a time.

        Args:
            folder: Of the dataflow.
            dataflow: Its name.
            node: The stage.
            at_ms: Only versions whose in-commit timestamp is not later; `None`: any.

        Raises:
            NotFoundError: If no readable version of a table is that old.
        """
        ...

    def first_shown(
        self, folder: str, dataflow: str, node: StageNode, epoch: int, generation: int
    ) -> Mapping[str, TableVersion]:
        """Return, of each of a stage's tables that shows an epoch, the oldest version that does.

        It is of the generation that the epoch was recorded in. A table that the epoch did not
        change shows it with a later one, in a later version. Of what was collected, the oldest
        version that can still be read stands in; its `epoch` then tells.
        """
        ...

    def beside(self) -> Engine:
        """Return an engine for recomputations, on the same executor.

        It remembers nothing that this one does, and its copies of files never make room at
        the cost of this one's. It is not closed: it holds nothing of its own.
        """
        ...

    def contents(
        self, folder: str, node: StageNode, comparison: Comparison, *, version: int | None = None
    ) -> Contents:
        """Return the records of one table as of a version; `None`: the newest.

        Raises:
            NotFoundError: If the version cannot be read any more.
        """
        ...

    def look_up(
        self, folder: str, node: StageNode, state: str, key: Mapping[str, Any]
    ) -> list[dict[str, Any]]:
        """Return the published state records of one key; empty when there is none."""
        ...

    def versions(self, folder: str, node: StageNode) -> TableVersions:
        """Return what reads a stage's tables as of any version that is kept."""
        ...

    def read(
        self, folder: str, increments: Sequence[Increment], *, offset: int, limit: int
    ) -> list[dict[str, Any]]:
        """Return records of increments, in order, from `offset`, at most `limit`."""
        ...

    def recall(self, folder: str, flow: str, index: int) -> Increment:
        """Return an old increment of a stage's flow out of its table; for a lost store.

        It can be read as the one that was recorded; its file is the table, not a path.

        Raises:
            NotFoundError: If the flow is a source's: only its log knows its increments.
            IncrementCollectedError: If retention took it out of its table.
        """
        ...

    def horizon(self, folder: str, flow: str, *, version: int | None = None) -> int:
        """Return the first increment of a stage's flow that retention has left in its table.

        Args:
            folder: The dataflow's folder.
            flow: `stage.output`.
            version: Of the table; `None`: the newest.
        """
        ...

    def expired(self, folder: str, kept: Mapping[str, KeptFlow]) -> Mapping[str, Expiry]:
        """Return what of outputs the next runs would let go; reads only.

        Args:
            folder: The dataflow's folder.
            kept: By flow, what must stay.
        """
        ...

    def locate(self, folder: str, flow: str, increments: Sequence[Increment]) -> list[Increment]:
        """Return old increments of a stage's flow by the files that hold them now.

        One whose own files are gone is slices of files that compaction made of them; what is
        not there as it was recorded is returned as it was given.
        """
        ...

    def read_state(self, folder: str, node: StageNode, state: str) -> Iterator[dict[str, Any]]:
        """Yield every published state record, bucket by bucket; any order within."""
        ...

    def collect(
        self,
        folder: str,
        node: StageNode,
        *,
        queued: Callable[[], Collection[str]],
        retention: Retention,
        dry_run: bool = False,
    ) -> Mapping[str, TablePlan]:
        """Remove what nobody needs of a stage's tables; a bounded part of it.

        May be called at any time, while the stage runs too, and repeated after a crash.

        Args:
            folder: The dataflow's folder.
            node: The stage.
            queued: Returns the paths of all files that wait in connectors, and those that
                unpublished records name, relative to `folder`; called after the tables
                were looked at.
            retention: What stays readable.
            dry_run: Remove nothing, only tell.

        Returns:
            Table folder to what goes.
        """
        ...

    def rewind(
        self,
        folder: str,
        node: StageNode,
        target: Target,
        *,
        records: Callable[[int], Sequence[Intention]],
        dry_run: bool = False,
    ) -> Mapping[str, TableRewind]:
        """Make the tables of a stage show what they showed at an earlier epoch; redo.

        Args:
            folder: The dataflow's folder.
            node: The stage; none of its runs is under way, and all are published.
            target: The epoch, and the generation that begins behind it.
            records: Returns the records of the stage behind an epoch, up to the target.
            dry_run: Only tell, and see that it can be done.

        Returns:
            Table folder to what was done, or would be; tables that were done before are not in it.

        Raises:
            RollbackImpossibleError: If a table's past is no longer there.
            LogConflictError: If another controller wrote at the same moment.
        """
        ...

    def cancel(self, run: str) -> None:
        """Ask a run to stop; its `prepare` then raises `RunCancelledError`. Returns at once."""
        ...

    def starved(self, runs: Collection[str]) -> Collection[str]:
        """Return those of these runs that have tasks to do at this moment, and do none.

        Raises:
            OperatingError: If nobody can tell.
        """
        ...

    def forget(self, folder: str) -> None:
        """Drop what is remembered about the tables of a folder that was removed."""
        ...

    def close(self) -> None:
        """Release what the engine holds; no run may be under way."""
        ...
