"""Role of an engine: to move what a stage's tables show, forward and back."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from cbp.model.dataflow.dataflow import StageNode
from cbp.model.run.intention import Intention


@dataclass(frozen=True, slots=True)
class Target:
    """The point to which a roll-back takes a table.

    Attributes:
        epoch: The last epoch that the table shows afterwards; -1 if none.
        generation: The generation that begins there.
        timestamp_ms: Timestamp of the log entry, the same for all tables.
    """

    dataflow: str
    epoch: int
    generation: int
    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class TableRewind:
    """The effect of a roll-back on one table.

    Attributes:
        shows: The version that the table then shows, with the epochs recorded after that version.
        files_removed, files_added: Number of live files.
        records_now, records_then: Number of live records.
        bytes_now, bytes_then: Size of the live files.
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
        """Make the tables of one stage show what the stage recorded; idempotent redo.

        Args:
            intentions: Intentions of one stage, at least one, oldest first, without gaps from
                the first that is not published. Published intentions do no harm.
            timestamp_ms: In-commit timestamp of the entries: later than every earlier one, and
                the same for all stages that are published together.

        Returns:
            Folder of each changed table, to the version that shows the last epoch.
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
