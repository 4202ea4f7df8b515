"""Input records of one task of a plan in SQL: read, hashed and sorted once, for all readers.

    files -> arrange -> scratch file -> the records of an input, for the author's plan
                                   '-> the keys of all inputs, for the look-up

All readers within one Spark task are on one machine (`scratch_files`).

Guaranteed: a task's records are those of the groups that it owns, ascending by unsigned hash within
an input, so the records of a group are adjacent. Not guaranteed: an order within a group.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from cbp.engine.columnar.arrow_types import arrow_schema
from cbp.engine.kernel.arrow.type_check import narrow_batches
from cbp.engine.spark.sql.scratch_files import ScratchFile, read_scratch
from cbp.engine.state.cache_eviction import SCRATCH_KINDS
from cbp.engine.state.index_cache import index_cache
from cbp.engine.task.stage_task import arranged_records
from cbp.engine.task.task_plan import TaskPlan

_BATCH_ROWS = 65_536


@dataclass(frozen=True, slots=True)
class TaskInput:
    """The records that one task reads; the run's unique `job` and the part name scratch files."""

    plan: TaskPlan
    part: int
    job: str

    def records(self, input_: str) -> Iterator[pa.RecordBatch]:
        """Yield the records of an input."""
        spec, layout = self.plan.spec, self.plan.layout
        assert layout is not None, "the stage has no key"
        (at,) = (i for i, one in enumerate(spec.inputs) if one.name == input_)
        schema = arrow_schema(spec.inputs[at].schema)
        for table in self._tables():
            start, stop = np.searchsorted(table.column("_flow").to_numpy(), [at, at + 1])
            own = table.select(list(layout.flows[at].columns)).slice(start, stop - start)
            yield from narrow_batches(
                own.rename_columns(schema.names),
                schema,
                rows_max=_BATCH_ROWS,
                bytes_max=self.plan.limits.jvm_batch_bytes,
            )

    def keys(self) -> Iterator[pa.RecordBatch]:
        """Yield the keys of all inputs' records, in the layout of a plan of key columns only."""
        layout = self.plan.layout
        assert layout is not None, "the stage has no key"
        columns = ["_flow", "_bucket", "_hash", *layout.keys, "_seq"]
        for table in self._tables():
            yield from table.select(columns).to_batches()

    def scratch(self, kind: str) -> Path:
        """Return the path of a scratch file of this task."""
        return index_cache(self.plan.cache, self.plan.limits).scratch(
            f"{self.job}-{self.part}.{kind}"
        )

    def forget(self) -> None:
        """Remove the task's scratch files."""
        for kind in SCRATCH_KINDS:
            with contextlib.suppress(OSError):
                self.scratch(kind).unlink()

    def _tables(self) -> Iterator[pa.Table]:
        """Return the records of all inputs in the stage's layout: one table, or none."""
        tables = read_scratch(self.scratch("own"))
        return self._arranged() if tables is None else tables

    def _arranged(self) -> Iterator[pa.Table]:
        table = arranged_records(self.plan, self.part)
        if table is None:
            return
        index_cache(self.plan.cache, self.plan.limits).tidy_scratch()
        file = ScratchFile(self.scratch("own"))
        try:
            file.append(table)
            file.finish()
        finally:
            file.close()
        yield table
