"""What an author in SQL may know of a run: the table `run` of one record.

    epoch BIGINT, time TIMESTAMP, frames MAP<STRING, ARRAY<STRING>>

The values are those of `cbp.model.dataflow.run_context`; labels of frames are texts.
"""

from __future__ import annotations

import pyarrow as pa

from cbp.model.dataflow.run_context import RunContext
from cbp.model.dataflow.stage import TranslatorSpec

RUN_COLUMNS = "epoch BIGINT, time TIMESTAMP, frames MAP<STRING, ARRAY<STRING>>"

_TYPES = pa.schema(
    {
        "epoch": pa.int64(),
        "time": pa.timestamp("us", tz="UTC"),
        "frames": pa.map_(pa.string(), pa.list_(pa.string())),
    }
)


def run_record(spec: TranslatorSpec, context: RunContext) -> pa.RecordBatch:
    """Return a run as one record; inputs without `frame_by` have no labels."""
    frames = [(one.name, [*map(str, context.frames(one.name))]) for one in spec.inputs]
    record = {"epoch": context.epoch, "time": context.time, "frames": frames}
    return pa.RecordBatch.from_pylist([record], schema=_TYPES)
