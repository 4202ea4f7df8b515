"""The interface between a service and an engine: a run is planned, prepared, published.

The steps of a run:

1. `prepare` does the work and writes files. It publishes nothing.
2. The caller puts the intention (`cbp.engine.commit.intention_log`). This is the commit point.
3. `publish` shows the run in the tables, alone or together with other runs. It may happen much
   later. It is an idempotent redo and may be repeated after any crash.

The next runs need not wait for `publish`: their plan names the intentions that the tables do not
show yet. An engine keeps no truth of its own: everything it needs is in the plan, the tables and
the intentions.

Every engine calls the groups of an epoch ordered by (unsigned hash, key). Authors may rely on
the order of the records within a group: records of an input are ordered by (order_by, increment,
position), records of a state by all columns that can be compared, nulls first.

Layout of a dataflow's folder (records hold paths relative to it):

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

from cbp.engine.interface.tables import Contents, Retention, TablePlan, TableRewind, Target
from cbp.model.dataflow.dataflow import StageNode
from cbp.model.dataflow.explain import PhysicalLimits
from cbp.model.dataflow.stage import InputSpec
from cbp.model.flow.framing import Segment
from cbp.model.flow.increment import Increment
from cbp.model.flow.retention import Expiry, KeptFlow
from cbp.model.flow.snapshot import TableVersion
from cbp.model.run.correction import Correction
from cbp.model.run.intention import Intention, TableChange
from cbp.model.verification import Comparison

__all__ = ["Engine", "Page", "Place", "PreparedRun", "RunPlan", "TableVersions"]


@dataclass(frozen=True, slots=True)
class RunPlan:
    """One run, as plain data.

    Attributes:
        folder: The dataflow's folder; a local path or a URI.
        node: The stage: translator, wiring, buckets.
        epoch: Counted from 0, without gaps; names the output increments.
        run: Unique id of this attempt, `[a-z0-9]+`; names its files.
        inputs: Input name to the increments to read, in order.
        fused: Stages that run in the same epoch. Each follows the stage that writes its only
            input; see `cbp.model.dataflow.fusion`.
        unpublished: Intentions of this stage that its tables may not show yet, oldest first,
            without gaps up to `epoch`. Intentions that the tables already show do no harm.
        kept: By flow, the records that must stay, for outputs that are not kept for good.
        own_messages: Loopbacks, by flow, that only their own stage reads. Only the order of each
            group's messages counts there, so a run may put the messages of one bucket together.
        slots_max: Most slots of the engine that the run's tasks take at a time; `None`: all.
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
        """Return how many of an engine's slots the run's tasks take at most."""
        return slots if self.slots_max is None else min(slots, self.slots_max)


@dataclass(frozen=True, slots=True)
class PreparedRun:
    """What a run wrote: durable on disk, not visible to any reader yet.

    Attributes:
        outputs: Output name to its increment of this epoch, empty increments included. Outputs
            of a fused stage are named `stage.output`.
        changes: How the tables change; states first, then outputs.
        figures: `records_in`, `groups`, `records_out`, `state_written`, `state_removed`,
            `records_combined` (records that combiners kept out of the shuffle), `bytes_read`,
            `bytes_shuffled`, `bytes_written` to files, `bytes_dropped` of files that are
            no longer live, and `seconds_*` by step. For messages that are read in place
            (`cbp.engine.task.message_reader`): `messages_local` (written by a task to its own
            buckets), `messages_remote`, and the same two in bytes. For a run of several stages:
            the totals, and `<stage>/<figure>` for each stage.
    """

    outputs: Mapping[str, Increment]
    changes: tuple[TableChange, ...]
    figures: Mapping[str, float] = field(default_factory=dict)


Place = tuple[int, int]
"""Where a page of a table begins; `(0, 0)` is the first record."""

Page = tuple[list[dict[str, Any]], Place | None]
"""Records, and the place of the next page; `None` if there are no more."""


class TableVersions(Protocol):
    """Reads one stage's tables as of any version that is kept.

    Raises:
        VersionGoneError: By every method, if the version's files were collected.
        VersionUnreadableError: By the methods that read a state, if the version was written before
            its stage was changed.
    """

    def look_up(self, state: str, key: Mapping[str, Any], version: int) -> list[dict[str, Any]]:
        """Return the records of one key of a state; empty when there is none."""
        ...

    def state_page(self, state: str, version: int, start: Place, limit: int) -> Page:
        """Return at most `limit` records of a state from `start` on, in any fixed order."""
        ...

    def output_page(self, output: str, version: int, start: Place, limit: int) -> Page:
        """Return at most `limit` records of an output from `start` on, in the flow's order."""
        ...


class Engine(Protocol):
    """Executes single stages; different threads may call it for different stages."""

    def check(self, dataflow: str, nodes: Sequence[StageNode]) -> None:
        """Refuse stages that need what this engine cannot do; touches nothing.

        Called before a dataflow has left any trace; `create_tables` and `prepare` check again.

        Raises:
            DataflowInvalidError: Rule `engine_unsupported`, with stage, input and place.
        """
        ...

    def limits(self) -> PhysicalLimits:
        """Return what decides how a run is executed; for `cbp.model.dataflow.explain`."""
        ...

    def frame(
        self, folder: str, stage: str, spec: InputSpec, increment: Increment, memo: Any
    ) -> tuple[list[Segment], Any]:
        """Find the frames of an output increment for one framed input; only reads.

        Args:
            folder: The dataflow's folder.
            stage: The stage that reads the increment; for errors.
            spec: The input; its `frame_by` is called once per record, in order.
            increment: The whole increment, as its stage wrote it.
            memo: The memo of the input's FrameBy before this increment.

        Returns:
            The increment's segments in order (`cbp.model.flow.framing`), and the memo after it.

        Raises:
            AuthorCodeError: The author's function failed, or returned no framing key.
            IncrementDamagedError: A file is missing or has a different number of rows.
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
        """Create the tables of these stages; does nothing for tables that exist.

        Args:
            folder: The dataflow's folder.
            dataflow: Its name.
            nodes: The stages.
            timestamp_ms: Timestamp of the tables' first log entries, in milliseconds since 1970;
                by default now. Every later entry has a later timestamp. The entries of one
                publication have the same timestamp only if it is later than this one.

        Raises:
            DataflowInvalidError: As in `check`.
            TableForeignError: A folder holds something else.
        """
        ...

    def rewrite(
        self, folder: str, dataflow: str, node: StageNode, *, epoch: int, run: str, anew: bool
    ) -> Sequence[TableChange]:
        """Write the files that a stage's tables need after a change; no reader sees them yet.

        Everything that the stage recorded must be published, and nothing may run. May be called
        again with another `run`: files that are never passed to `alter` are harmless orphans.

        Args:
            folder: The dataflow's folder.
            dataflow: Its name.
            node: The stage after the change.
            epoch: The stage's next epoch.
            run: Unique id of this attempt.
            anew: Whether the stage's state is emptied.

        Returns:
            The changes of each existing table that is not as declared.

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
        """Apply what `rewrite` prepared, one log entry per table; idempotent redo.

        Args:
            folder: The dataflow's folder.
            dataflow: Its name.
            node: The stage after the change.
            changes: What `rewrite` returned.
            epoch: The stage's next epoch.
            version: Version of the dataflow; names the change.
            timestamp_ms: In-commit timestamp of the entries, as in `publish`.
        """
        ...

    def prepare(self, plan: RunPlan) -> PreparedRun:
        """Do the work of one run; blocks until every file is durable.

        May be called again for the same epoch with another `run` id: the files of an
        attempt that is not recorded are harmless orphans.

        Raises:
            AuthorCodeError: The author's code failed.
            IncrementDamagedError: An input file is missing or has a different number of rows.
            OperatingError: Disk full, cancelled, a foreign writer.
        """
        ...

    def correct(
        self, plan: RunPlan, stage: str, state: str, corrections: Sequence[Correction]
    ) -> tuple[PreparedRun, str]:
        """Correct records of a state in an epoch of its own; like `prepare`, publishes nothing.

        Args:
            plan: The epoch; it has no inputs.
            stage: The stage of the plan that has the state.
            state: Name of the state.
            corrections: Corrections that were checked (`cbp.model.run.correction`).

        Returns:
            The prepared run, whose outputs are empty, and the path of the file that holds the
            corrections, relative to the folder.

        Raises:
            CbpError: As in `prepare`.
        """
        ...

    def publish(
        self, folder: str, intentions: Sequence[Intention], *, timestamp_ms: int
    ) -> Mapping[str, int]:
        """Make the tables of one stage show what the stage recorded; idempotent redo.

        Args:
            folder: The dataflow's folder.
            intentions: Intentions of one stage, at least one, oldest first, without gaps from
                the first that is not published. Published intentions do no harm.
            timestamp_ms: In-commit timestamp of the entries: later than every earlier one, and
                the same for all stages that are published together.

        Returns:
            Folder of each changed table, to the version that shows the last epoch.
        """
        ...

    def shown(
        self, folder: str, dataflow: str, node: StageNode, *, at_ms: int | None = None
    ) -> Mapping[str, TableVersion]:
        """Return the newest version of each of a stage's tables, now or as of a time.

        Args:
            folder: The dataflow's folder.
            dataflow: Its name.
            node: The stage.
            at_ms: Only versions whose in-commit timestamp is not later than this; `None`: any.

        Raises:
            NotFoundError: A table has no readable version that is old enough.
        """
        ...

    def first_shown(
        self, folder: str, dataflow: str, node: StageNode, epoch: int, generation: int
    ) -> Mapping[str, TableVersion]:
        """Return, per table of a stage, the oldest version that shows an epoch.

        Tables that do not show the epoch are left out. The version belongs to the generation in
        which the epoch was recorded. A table that the epoch did not change shows the epoch only
        with a later one, in a later version. If the version was collected, the oldest version
        that can still be read is returned instead; its `epoch` tells.
        """
        ...

    def beside(self) -> Engine:
        """Return an engine for recomputations, on the same executor.

        It shares no cached data with this engine, and its index copies of files never evict
        this engine's. It need not be closed: it holds no resources of its own.
        """
        ...

    def take_over(
        self, folder: str, tables: Mapping[str, int], records: Sequence[Intention], into: str
    ) -> tuple[TableChange, ...]:
        """Copy the records of state tables, as of versions, to a recomputation's folder.

        Args:
            folder: The dataflow's folder.
            tables: Folder of each table, relative to `folder`, to the version.
            records: Intentions of the tables' stage, oldest first, including those after the
                versions that count too.
            into: Folder of the recomputation.

        Returns:
            The changes that give the recomputation's empty tables the same records.

        Raises:
            NotFoundError: A version, or a file of it, cannot be read any more.
        """
        ...

    def contents(
        self, folder: str, node: StageNode, comparison: Comparison, *, version: int | None = None
    ) -> Contents:
        """Return the records of one table as of a version; `None`: the newest.

        Raises:
            NotFoundError: The version cannot be read any more.
        """
        ...

    def look_up(
        self, folder: str, node: StageNode, state: str, key: Mapping[str, Any]
    ) -> list[dict[str, Any]]:
        """Return the published state records of one key; empty when there is none."""
        ...

    def versions(self, folder: str, node: StageNode) -> TableVersions:
        """Return a reader of a stage's tables as of any version that is kept."""
        ...

    def read(
        self, folder: str, increments: Sequence[Increment], *, offset: int, limit: int
    ) -> list[dict[str, Any]]:
        """Return at most `limit` records of increments, in order, starting at `offset`."""
        ...

    def recall(self, folder: str, flow: str, index: int) -> Increment:
        """Rebuild an old increment of a stage's flow from its table, when the store was lost.

        The result can be read like the increment that was recorded. Its file is the table
        itself, not a path.

        Raises:
            NotFoundError: The flow belongs to a source: only its log knows its increments.
            IncrementCollectedError: Retention removed the increment from its table.
        """
        ...

    def horizon(self, folder: str, flow: str, *, version: int | None = None) -> int:
        """Return the first increment of a stage's flow that retention has left in the table.

        Args:
            folder: The dataflow's folder.
            flow: `stage.output`.
            version: Version of the table; `None`: the newest.
        """
        ...

    def expired(self, folder: str, kept: Mapping[str, KeptFlow]) -> Mapping[str, Expiry]:
        """Return which records of outputs the next runs would let expire; only reads.

        Args:
            folder: The dataflow's folder.
            kept: By flow, the records that must stay.
        """
        ...

    def locate(self, folder: str, flow: str, increments: Sequence[Increment]) -> list[Increment]:
        """Return old increments of a stage's flow with the files that hold them now.

        If compaction replaced an increment's files, it consists of slices of the merged files. An
        increment that is not there as it was recorded is returned unchanged.
        """
        ...

    def read_state(self, folder: str, node: StageNode, state: str) -> Iterator[dict[str, Any]]:
        """Yield every published state record, bucket by bucket; any order within a bucket."""
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
        """Garbage-collect a stage's tables: remove a bounded part of what nobody needs.

        May be called at any time, also while the stage runs, and repeated after a crash.

        Args:
            folder: The dataflow's folder.
            node: The stage.
            queued: Returns the paths, relative to `folder`, of all files that wait in connectors
                or that unpublished records name. Called after the tables were listed.
            retention: What stays readable.
            dry_run: Remove nothing, only report.

        Returns:
            Table folder to what is removed.
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
        """Roll a stage's tables back to what they showed at an earlier epoch; idempotent redo.

        Args:
            folder: The dataflow's folder.
            node: The stage. None of its runs is under way, and all are published.
            target: The epoch, and the generation that begins after it.
            records: Returns the stage's records after a given epoch, up to the target.
            dry_run: Only report, and check that it can be done.

        Returns:
            Table folder to what was done, or would be done. Tables that are already rolled back
            are left out.

        Raises:
            RollbackImpossibleError: A table's past is no longer there.
            LogConflictError: Another controller wrote at the same moment.
        """
        ...

    def cancel(self, run: str) -> None:
        """Ask a run to stop; its `prepare` then raises `RunCancelledError`. Returns at once."""
        ...

    def starved(self, runs: Collection[str]) -> Collection[str]:
        """Return those of these runs that have tasks waiting at this moment, and none running.

        Raises:
            OperatingError: The engine cannot find out.
        """
        ...

    def forget(self, folder: str) -> None:
        """Drop what is cached about the tables of a folder that was removed."""
        ...

    def close(self) -> None:
        """Release what the engine holds; no run may be under way."""
        ...
