"""Role of an engine: to give a verification what it starts from, and what it compares."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from cbp.engine.columnar.row_codec import Row
from cbp.model.dataflow.dataflow import StageNode
from cbp.model.run.intention import Intention, TableChange
from cbp.model.verification import Comparison


class Contents(Protocol):
    """The records of one version of a table.

    Attributes:
        rows: The number of records.
        parts: The number of parts. Two sides with equally many parts are compared part by part.
    """

    @property
    def rows(self) -> int: ...  # noqa: D102 - see above

    @property
    def parts(self) -> int: ...  # noqa: D102 - see above

    def part(self, number: int, *, epochs: bool) -> Iterator[list[Row]]:
        """Yield a part's records in batches; with `epochs`, each record starts with its epoch."""
        ...


class VerificationReader(Protocol):
    """Reads whole tables for a verification; changes none of them."""

    def take_over(
        self, folder: str, tables: Mapping[str, int], records: Sequence[Intention], into: str
    ) -> tuple[TableChange, ...]:
        """Copy the records of state tables, as of versions, to a recomputation's folder.

        Args:
            tables: Folder of each table, relative to `folder`, to the version.
            records: Intentions of the tables' stage, oldest first, including those after the
                versions that count too.
            into: Folder of the recomputation.

        Returns:
            The changes that give the recomputation's empty tables the same records.

        Raises:
            NotFoundError: A version, or a file of it, can no longer be read.
        """
        ...

    def contents(
        self, folder: str, node: StageNode, comparison: Comparison, *, version: int | None = None
    ) -> Contents:
        """Return the records of one table as of a version; `None` means the newest.

        Raises:
            NotFoundError: The version can no longer be read.
        """
        ...
