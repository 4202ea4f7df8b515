"""Role of an engine: to create, change and forget a stage's tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Protocol

from cbp.model.dataflow.dataflow import StageNode
from cbp.model.run.intention import TableChange


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

        Args:
            timestamp_ms: Timestamp of the tables' first log entries, in milliseconds since 1970;
                by default now. Every later entry has a later timestamp. The entries of one
                publication have the same timestamp only if it is later than this one.

        Raises:
            DataflowInvalidError: As in `check`.
            TableForeignError: A folder holds something else.
        """
        ...

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
            node: The stage after the change.
            epoch: The stage's next epoch.
            run: Unique id of this attempt.
            anew: Whether the stage begins with nothing: its states and its outputs are emptied.
            filled: Maps each view that begins with the last record of each key of its flow to the
                first increment that counts; the flow has all increments from there on.

        Returns:
            The changes of each existing table that is not as declared, and of each filled view.

        Raises:
            OperatingError: Disk full, a foreign writer.
        """
        ...

    def show_built(
        self, folder: str, dataflow: str, node: StageNode, *, built: str, epoch: int, run: str
    ) -> Sequence[TableChange]:
        """Write what a stage's tables were built as in another folder; no reader sees it yet.

        Messages are left out, since all of them were read. As `rewrite` in everything else.

        Args:
            node: The stage after the change.
            built: The folder with the tables that were built; all their runs are published.
            epoch: The stage's next epoch.
            run: Unique id of this attempt.

        Returns:
            A change of every table of the stage.
        """
        ...

    def show_again(
        self, folder: str, node: StageNode, versions: Mapping[str, int], *, epoch: int
    ) -> Sequence[TableChange]:
        """Return the changes that make a stage's tables show what they showed before; reads only.

        Args:
            versions: Folder of each of its tables, relative to `folder`, to an earlier version.
            epoch: The stage's next epoch.

        Raises:
            NotFoundError: If a version, or a file of it, is gone.
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

        The table of a filled view is created, if it does not exist.

        Args:
            node: The stage after the change.
            changes: What `rewrite` returned.
            epoch: The stage's next epoch.
            version: Version of the dataflow; names the change.
            timestamp_ms: In-commit timestamp of the entries, as in `publish`.
        """
        ...

    def forget(self, folder: str) -> None:
        """Drop what is cached about the tables of a folder that was removed."""
        ...
