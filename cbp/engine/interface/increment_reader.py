"""Role of an engine: to read increments of flows, also after their files were merged or dropped."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import pyarrow as pa

from cbp.model.dataflow.stage import InputSpec
from cbp.model.flow.framing import Segment
from cbp.model.flow.increment import Increment
from cbp.model.flow.schema import Schema


class IncrementReader(Protocol):
    """Reads increments; writes nothing."""

    def read(
        self, folder: str, increments: Sequence[Increment], *, offset: int, limit: int
    ) -> list[dict[str, Any]]:
        """Return at most `limit` records of increments, in order, starting at `offset`."""
        ...

    def batches(
        self, folder: str, increment: Increment, schema: Schema
    ) -> Iterator[pa.RecordBatch]:
        """Yield all records of an increment in order, as columns of the flow's schema.

        Memory holds one batch, however large the increment is.

        Raises:
            IncrementDamagedError: The increment has a different number of records.
            FileLostError: A file is gone, and its table does not have the records either.
        """
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

    def locate(self, folder: str, flow: str, increments: Sequence[Increment]) -> list[Increment]:
        """Return old increments of a stage's flow with the files that hold them now.

        If compaction replaced an increment's files, it consists of slices of the merged files. An
        increment that is not there as it was recorded is returned unchanged.
        """
        ...

    def horizon(self, folder: str, flow: str, *, version: int | None = None) -> int:
        """Return the first increment of a stage's flow that retention has left in the table.

        Args:
            flow: `stage.output`.
            version: Version of the table; `None` means the newest.
        """
        ...

    def frame(
        self,
        folder: str,
        stage: str,
        spec: InputSpec,
        increment: Increment,
        memo: Any,
        set_aside_max: int | None = None,
    ) -> tuple[list[Segment], Any]:
        """Find the frames of an output increment for one framed input; only reads.

        Args:
            stage: The stage that reads the increment; for errors.
            spec: The input; its `frame_by` is called once per record, in order.
            increment: The whole increment, as its stage wrote it.
            memo: The memo of the input's FrameBy before this increment.
            set_aside_max: As in `StageNode`: records on which the function fails get no key, and
                are set aside; `None`: it must not fail.

        Returns:
            The increment's segments in order (`cbp.model.flow.framing`), and the memo after it.

        Raises:
            AuthorCodeError: The author's function failed, or returned no framing key.
            SetAsideFullError: It failed on more records than can be set aside.
            IncrementDamagedError: A file is missing or has a different number of rows.
        """
        ...
