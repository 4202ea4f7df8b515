"""Writer of one task's output files: those of its stage and of the stages fused with it.

    translate -> columns -> file of the flow -> every follower that reads it -> its files

A follower is a record-wise stage. It gets the records as it would read them from the file: in
the file's order, with the values of the columns, and only after they were written. So its
output is the same as if it ran by itself, record by record.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType

import pyarrow as pa

from cbp.engine.columnar.arrow_types import arrow_schema
from cbp.engine.kernel.author_call import Emitted
from cbp.engine.shuffle.message_index import MessageGroups, Receivers
from cbp.engine.storage.engine_limits import EngineLimits
from cbp.engine.storage.failpoints import Faults
from cbp.engine.storage.file_names import flow_file
from cbp.engine.storage.parquet_writer import ParquetSink
from cbp.engine.storage.table_names import flow_table
from cbp.engine.task.record_task import RecordRun
from cbp.engine.task.reports import OutputFile
from cbp.model.dataflow.run_context import NO_RUN, RunContext
from cbp.model.dataflow.stage import TranslatorSpec


@dataclass(frozen=True, slots=True)
class Follower:
    """A record-wise stage that runs in the task of the stage whose output it reads.

    Attributes:
        flow: The flow that it reads, as `stage.output`.
    """

    stage: str
    spec: TranslatorSpec
    flow: str
    context: RunContext = NO_RUN


def output_schema(schema: pa.Schema) -> pa.Schema:
    """Return the schema of an output's files: the output's columns and `_epoch`."""
    return schema.append(pa.field("_epoch", pa.int64()))


class TaskOutputs:
    """The output files of one task.

    Args:
        suffix: End of the files' names; unique to this task.
        followers: Fused stages; each comes after the stage that it reads.
        receivers: Maps an output that is sorted by bucket to what computes the buckets.
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
        limits: EngineLimits,
        receivers: Mapping[str, Receivers] = MappingProxyType({}),
    ) -> None:
        self._folder, self._epoch = folder, epoch
        self._faults, self._limits = faults, limits
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
            emitted = Emitted(follower.spec)
            run = RecordRun(
                follower.stage,
                follower.spec,
                emitted,
                write,
                limits=limits,
                context=follower.context,
            )
            self._readers[follower.flow].append(run)
            self._runs.append(run)

    def write(self, stage: str, output: str, columns: list[pa.Array]) -> None:
        """Write records of a stage's output, then run its followers on them."""
        flow = f"{stage}.{output}"
        epoch = pa.repeat(pa.scalar(self._epoch, pa.int64()), len(columns[0]))
        sink = self._sinks[flow]
        sink.write(pa.Table.from_arrays([*columns, epoch], schema=sink.schema))
        if self._readers[flow]:
            table = pa.Table.from_arrays(columns, names=list(self._columns[flow]))
            for run in self._readers[flow]:
                run.take(table)

    def close(self) -> list[OutputFile]:
        """Close the files and return a report of each; the files are not synced yet."""
        done: list[OutputFile] = []
        for flow, sink in self._sinks.items():
            file = sink.close()
            if file is not None:
                path = self._paths[flow]
                done.append(OutputFile(flow, path, file.rows, file.bytes, file.buckets))
        return done

    def counts(self) -> dict[str, float]:
        """Return `records_out` over all flows, and per follower `<stage>/records_in` and so on."""
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
            by_bucket = receivers.get(output.name)
            groups = None if by_bucket is None else MessageGroups(by_bucket, self._limits)
            self._sinks[flow] = ParquetSink(path, schema, faults=self._faults, groups=groups)
            self._columns[flow] = output.schema.names
            self._readers[flow] = []
