"""What one task writes to output flows: its stage's, and those of the stages fused behind it.

    translate -> columns -> file of the flow -> every follower that reads it -> its files

A follower is a record-wise stage. It sees the records as it would read them from the
file: in the order of the file, with the values that the columns hold, and never before
they are written. So its output is the same as if it ran by itself, record by record.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any

import pyarrow as pa

from cbp.engine.arrow import arrow_schema
from cbp.engine.base import flow_table
from cbp.engine.call import Emitted
from cbp.engine.faults import Faults
from cbp.engine.layout import flow_file
from cbp.engine.receivers import MessageSink, Receivers
from cbp.engine.records import RecordRun
from cbp.engine.sink import ParquetSink
from cbp.model.stage import TranslatorSpec

__all__ = ["Follower", "TaskOutputs", "output_schema"]


@dataclass(frozen=True, slots=True)
class Follower:
    """A record-wise stage that runs in the task of the stage that it reads.

    Attributes:
        flow: What it reads, `stage.output`.
    """

    stage: str
    spec: TranslatorSpec
    flow: str


def output_schema(schema: pa.Schema) -> pa.Schema:
    """Return the schema of an output's files: its columns, and the epoch."""
    return schema.append(pa.field("_epoch", pa.int64()))


class TaskOutputs:
    """The output files of one task.

    Args:
        folder: The dataflow's folder.
        suffix: Ends the files' names; no other task has it.
        followers: Each behind the one that writes what it reads.
        receivers: Output that lies by bucket to what finds the buckets.
        faults: Told at every file.
    """

    def __init__(
        self,
        stage: str,
        spec: TranslatorSpec,
        followers: Iterable[Follower],
        *,
        folder: str,
        epoch: int,
        part: int,
        suffix: str,
        faults: Faults,
        receivers: Mapping[str, Receivers] = MappingProxyType({}),
    ) -> None:
        self._folder, self._epoch, self._faults = folder, epoch, faults
        self._file = flow_file(epoch, part, suffix)
        self._paths: dict[str, str] = {}
        self._sinks: dict[str, ParquetSink] = {}
        self._columns: dict[str, tuple[str, ...]] = {}
        self._readers: dict[str, list[RecordRun]] = {}
        self._runs: list[RecordRun] = []
        self._open(stage, spec, receivers)
        for follower in followers:
            self._open(follower.stage, follower.spec, {})
            write = partial(self.write, follower.stage)
            run = RecordRun(follower.stage, follower.spec, Emitted(follower.spec), write)
            self._readers[follower.flow].append(run)
            self._runs.append(run)

    def write(self, stage: str, output: str, columns: list[pa.Array]) -> None:
        """Take records of a stage's output, and let its followers work on them."""
        flow = f"{stage}.{output}"
        epoch = pa.repeat(pa.scalar(self._epoch, pa.int64()), len(columns[0]))
        sink = self._sinks[flow]
        sink.write(pa.Table.from_arrays([*columns, epoch], schema=sink.schema))
        if self._readers[flow]:
            table = pa.Table.from_arrays(columns, names=list(self._columns[flow]))
            for run in self._readers[flow]:
                run.take(table)

    def close(self) -> list[dict[str, Any]]:
        """Close the files; return a descriptor of each. They are not synced yet."""
        done: list[dict[str, Any]] = []
        for flow, sink in self._sinks.items():
            file = sink.close()
            if file is not None:
                path = self._paths[flow]
                size = {"rows": file.rows, "size": file.bytes, "buckets": file.buckets}
                done.append({"kind": "output", "flow": flow, "path": path, **size})
        return done

    def counts(self) -> dict[str, float]:
        """Return `records_out` of all flows, and `<stage>/records_in` and so on of followers."""
        counts: dict[str, float] = {"records_out": sum(s.rows for s in self._sinks.values())}
        for run in self._runs:
            flows = [f"{run.stage}.{output.name}" for output in run.spec.outputs]
            records = run.records.total()
            counts[f"{run.stage}/records_in"] = counts[f"{run.stage}/groups"] = records
            counts[f"{run.stage}/records_out"] = sum(self._sinks[flow].rows for flow in flows)
        return counts

    def _open(self, stage: str, spec: TranslatorSpec, receivers: Mapping[str, Receivers]) -> None:
        for output in spec.outputs:
            flow = f"{stage}.{output.name}"
            self._paths[flow] = f"{flow_table(stage, output.name)}/_runs/{self._file}"
            schema = output_schema(arrow_schema(output.schema))
            path = f"{self._folder}/{self._paths[flow]}"
            self._sinks[flow] = (
                MessageSink(path, schema, receivers[output.name], faults=self._faults)
                if output.name in receivers
                else ParquetSink(path, schema, faults=self._faults)
            )
            self._columns[flow] = output.schema.names
            self._readers[flow] = []
