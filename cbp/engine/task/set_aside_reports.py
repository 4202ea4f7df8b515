"""Collects the records that a task sets aside, in memory, up to the limit of the stage."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import TypeVar

import numpy as np
import pyarrow as pa

from cbp.engine.columnar.arrow_types import Int64s
from cbp.engine.columnar.file_slices import Share
from cbp.engine.columnar.json_records import record_text
from cbp.engine.columnar.row_codec import decode_table
from cbp.engine.shuffle.layout import SEQUENCE_BITS
from cbp.engine.task.reports import Failed, SetAside
from cbp.errors import AuthorCodeError, SetAsideFullError
from cbp.model.dataflow.stage import InputSpec, TranslatorSpec

BYTES_MAX = 64 << 20
"""Maximum number of characters of JSON that a task sets aside in one run."""


@dataclass
class SetAsideReports:
    """The records that a task sets aside: at most `most`, and one more to show an excess."""

    stage: str
    spec: TranslatorSpec
    most: int
    report: Callable[[SetAside], None]
    _records: int = field(init=False, default=0)
    _characters: int = field(init=False, default=0)

    @property
    def room(self) -> int:
        """How many more records are reported; the rest is left out, since the run fails anyway."""
        return max(0, self.most + 1 - self._records)

    def add(self, one: SetAside) -> None:
        """Set one record aside."""
        if not self.room:
            return
        self._records += 1
        self._characters += len(one.record)
        if self._characters > BYTES_MAX:
            raise SetAsideFullError(
                stage=self.stage,
                function=f"{self.spec.name}.translate",
                place=self.spec.place,
                cause=f"this run has more than {BYTES_MAX >> 20} MiB of records to set aside: fix "
                "the code that fails on them",
            )
        self.report(one)

    def add_record(
        self, input_: InputSpec, record: pa.Table, place: int, error: AuthorCodeError
    ) -> None:
        """Set aside a record without a group, given as a table of one row, by its place."""
        (row,) = decode_table(record, input_.schema)
        text = record_text(row, input_.schema)
        self.add(SetAside(input_.name, place, None, text, Failed.of(error)))

    def without_failing(
        self, records: pa.Table, call: Callable[[pa.Table], object]
    ) -> tuple[pa.Table, list[tuple[int, AuthorCodeError]]]:
        """Return records on which a call succeeds, and the rows of the others with their errors.

        If more records fail than can be set aside, the search ends, and no records are returned:
        others may fail too, and the driver refuses the run.
        """

        def attempt(rows: Sequence[int]) -> AuthorCodeError | None:
            try:
                call(records.take(pa.array(rows)))
            except AuthorCodeError as error:
                return error
            return None

        failing = find_failing(range(records.num_rows), attempt, most=self.most)
        if len(failing) > self.most:
            return records.slice(0, 0), failing
        kept = np.ones(records.num_rows, np.bool_)
        kept[[row for row, _ in failing]] = False
        return records.filter(pa.array(kept)), failing


_T = TypeVar("_T")


def find_failing(
    items: Sequence[_T], attempt: Callable[[Sequence[_T]], AuthorCodeError | None], *, most: int
) -> list[tuple[_T, AuthorCodeError]]:
    """Return the items that fail, each with its error, in order; at most `most` + 1 of them.

    `attempt` calls the author's code for some of them, and returns its error.
    """
    found: list[tuple[_T, AuthorCodeError]] = []
    parts = [items]
    while parts and len(found) <= most:
        part = parts.pop()
        if not part or (error := attempt(part)) is None:
            continue
        if len(part) == 1:
            found.append((part[0], error))
        else:
            half = len(part) // 2
            parts += [part[half:], part[:half]]
    return found


def arrivals(sequences: Int64s, files: Sequence[Share], *, packed: bool) -> Int64s:
    """Return the positions of records within their input, from 0.

    Spark's numbers (`packed`: increment, file, row) are converted if every file is read completely;
    other numbers are returned unchanged.
    """
    if not packed or any(file.start or file.stop != file.rows for file in files):
        return sequences
    rows, parts = SEQUENCE_BITS
    names = [file.path.rpartition("/")[2] for file in files]
    first = min(int(name[:12]) for name in names)
    packs = [(int(n[:12]) - first) << (rows + parts) | int(n[13:18]) << rows for n in names]
    before = list(accumulate((file.rows for file in files), initial=0))
    start_of = dict(zip(packs, before, strict=False))
    low = np.int64((1 << rows) - 1)
    starts = [start_of[pack] for pack in (sequences & ~low).tolist()]
    return np.array(starts, np.int64) + (sequences & low)


def first_arrivals(
    error: AuthorCodeError, files: Mapping[str, Sequence[Share]], *, packed: bool
) -> dict[str, int]:
    """Return the `arrivals` of the first records of a call that failed, by input."""
    return {
        name: int(arrivals(np.array([place], np.int64), files[name], packed=packed)[0])
        for name, place in error.places.items()
        if name in files
    }


def with_places(error: AuthorCodeError, places: Mapping[str, int]) -> AuthorCodeError:
    """Return an error with the places of the records, as a detail that outlives the process."""
    if places:
        error.details = {**error.details, "records": dict(places)}
    return error
