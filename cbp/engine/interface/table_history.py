"""Role of an engine: to tell which version of a table shows which epoch, and since when."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from cbp.model.dataflow.dataflow import StageNode
from cbp.model.flow.snapshot import TableVersion


class TableHistory(Protocol):
    """Finds versions of a stage's tables; reads only their logs."""

    def shown(
        self, folder: str, dataflow: str, node: StageNode, *, at_ms: int | None = None
    ) -> Mapping[str, TableVersion]:
        """Return the newest version of each of a stage's tables, now or as of a time.

        Args:
            at_ms: Only versions whose in-commit timestamp is not later than this; `None` means any.

        Raises:
            NotFoundError: A table has no readable version that is old enough.
        """
        ...

    def shown_by(self, folder: str, node: StageNode, state: str, version: int) -> int | None:
        """Return the last epoch that a version of a state's table shows; -1 if it shows none.

        `None` if the version can no longer be read.
        """
        ...

    def first_shown(
        self, folder: str, dataflow: str, node: StageNode, epoch: int, generation: int
    ) -> Mapping[str, TableVersion]:
        """Return, per table of a stage, the oldest version that shows an epoch.

        Tables that do not show the epoch are left out. The version belongs to the generation in
        which the epoch was recorded. A table that the epoch did not change shows the epoch only
        with a later one, in a later version. If the version was collected, the oldest version
        that can still be read is returned instead; see its `epoch`.
        """
        ...
