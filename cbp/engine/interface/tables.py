"""Roles of an engine: to create and change a stage's tables, and to switch their contents."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Protocol

from cbp.model.dataflow.dataflow import StageNode
from cbp.model.run.intention import Intention, TableChange


class TableAdministration(Protocol):
    """Creates and changes tables as a dataflow's versions declare them."""

    def create_tables(
        self,
        folder: str,
        dataflow: str,
        nodes: Sequence[StageNode],
        *,
        timestamp_ms: int | None = None,
    ) -> None:
        """Create the tables of these stages; does nothing for tables that exist.

        `timestamp_ms` is the time of the tables' first log entries, in milliseconds since 1970; by
        default now. It must be earlier than the time of the first publication: otherwise the
        entries of that publication get different times. Raises as `RunControl.refuse`, and
        `TableForeignError` if a folder holds something else.
        """

    def rewrite(
        self,
        folder: str,
        dataflow: str,
        node: StageNode,
        *,
        epoch: int,
        run: str,
        anew: bool,
        filled: Mapping[str, int] = MappingProxyType({}),
    ) -> Sequence[TableChange]:
        """Write the files that a stage's tables need after a change; no reader sees them yet.

        Everything that the stage recorded must be published, and nothing may run. May be called
        again with another `run`: files that are never passed to `alter` are harmless orphans.

        Args:
            anew: Whether the stage begins with nothing: its states and its outputs are emptied.
            filled: Maps each view that begins with the last record of each key of its flow to the
                first increment that counts; the flow has all increments from there on.

        Returns:
            The changes of each existing table that differs from its declaration, and of each
            filled view.

        Raises:
            OperatingError: Disk full, a foreign writer.
        """

    def show_built(
        self, folder: str, dataflow: str, node: StageNode, *, built: str, epoch: int, run: str
    ) -> Sequence[TableChange]:
        """Write tables that were built in another folder, `built`; no reader sees them yet.

        All their runs are published. Messages are left out, since all of them were read. Otherwise
        like `rewrite`.
        """

    def show_again(
        self, folder: str, node: StageNode, versions: Mapping[str, int], *, epoch: int
    ) -> Sequence[TableChange]:
        """Return the changes that restore the earlier contents of a stage's tables; reads only.

        `versions` maps the folder of each table to an earlier version. Raises `NotFoundError` if
        it, or one of its files, no longer exists.
        """

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
        """Apply the changes that `rewrite` prepared, one log entry per table; idempotent redo.

        The table of a filled view is created, if it does not exist. `timestamp_ms` is as in
        `publish`.
        """

    def forget(self, folder: str) -> None:
        """Drop cached data about the tables of a removed folder."""


@dataclass(frozen=True, slots=True)
class Target:
    """The point to which a roll-back takes a table; `epoch` is -1 if it shows none afterwards."""

    dataflow: str
    epoch: int
    generation: int
    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class TableRewind:
    """The effect of a roll-back on one table.

    It then shows the version `shows`, with the epochs recorded after that version.
    """

    shows: int
    files_removed: int
    files_added: int
    records_now: int
    records_then: int
    bytes_now: int
    bytes_then: int


class TablePublisher(Protocol):
    """Publishes and rolls back; different threads may call it for different stages."""

    def publish(
        self, folder: str, intentions: Sequence[Intention], *, timestamp_ms: int
    ) -> Mapping[str, int]:
        """Make the tables of one stage show the recorded content; an idempotent redo.

        Returns the folder of each changed table, with the version that shows the last epoch.

        Args:
            intentions: Intentions of one stage, at least one, oldest first, without gaps from
                the first that is not published. Published intentions do no harm.
            timestamp_ms: In-commit timestamp of the entries: later than every earlier one, and
                the same for all stages that are published together.
        """

    def rewind(
        self,
        folder: str,
        node: StageNode,
        target: Target,
        *,
        records: Callable[[int], Sequence[Intention]],
        dry_run: bool = False,
    ) -> Mapping[str, TableRewind]:
        """Roll a stage's tables back to their contents at an earlier epoch; idempotent redo.

        Args:
            node: The stage. None of its runs is under way, and all are published.
            records: Returns the stage's intentions after a given epoch, up to the target.

        Returns:
            Table folder to what was done, or would be done. Tables that are already rolled back
            are left out.

        Raises:
            RollbackImpossibleError: The earlier contents of a table are no longer kept.
            LogConflictError: Another controller wrote at the same moment.
        """
