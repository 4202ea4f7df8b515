"""Writer of one task's output files: those of its stage and of the stages fused with it.

    translate -> columns -> file of the flow -> every follower that reads it -> its files

A follower is a record-wise stage. It gets the records as it would read them from the file: in
the file's order, with the values of the columns, and only after they were written. So its
output is the same as if it ran by itself, record by record.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import pyarrow as pa

from cbp.engine.columnar.arrow_types import arrow_schema
from cbp.engine.kernel.author_call import Emitted
from cbp.engine.shuffle.message_index import MessageGroups, Receivers
from cbp.engine.storage.file_names import flow_file
from cbp.engine.storage.parquet_writer import ParquetSink
from cbp.engine.storage.table_names import flow_table
from cbp.engine.task.record_task import RecordRun
from cbp.engine.task.reports import OutputFile
from cbp.engine.task.task_plan import TaskPlan
from cbp.model.dataflow.stage import TranslatorSpec


class TaskOutputs:
    """The output files of one task.

    Args:
        plan: The task's plan, with translator instances of its own.
        part: The task's number.
        attempt: Unique id of the task's attempt; part of the file names.
    """

    def __init__(self, plan: TaskPlan, part: int, attempt: str) -> None:
        self._plan = plan
        self._file = flow_file(plan.epoch, plan.first_number + part, f"{plan.run}-{attempt}")
        self._paths: dict[str, str] = {}
        self._sinks: dict[str, ParquetSink] = {}
        self._columns: dict[str, tuple[str, ...]] = {}
        self._readers: dict[str, list[RecordRun]] = {}
        self._runs: list[RecordRun] = []
        self._open(plan.stage, plan.spec, plan.receivers(part))
        for one in plan.followers:
            self._open(one.stage, one.spec, {})
            write, emitted = partial(self.write, one.stage), Emitted(one.spec)
            run = RecordRun(
                one.stage, one.spec, emitted, write, limits=plan.limits, context=one.context
            )
            self._readers[one.flow].append(run)
            self._runs.append(run)

    def write(self, stage: str, output: str, columns: list[pa.Array]) -> None:
        """Write records of a stage's output, then run its followers on them."""
        flow = f"{stage}.{output}"
        epoch = pa.repeat(pa.scalar(self._plan.epoch, pa.int64()), len(columns[0]))
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
            schema = arrow_schema(output.schema).append(pa.field("_epoch", pa.int64()))
            path = f"{self._plan.folder}/{self._paths[flow]}"
            by_bucket = receivers.get(output.name)
            groups = None if by_bucket is None else MessageGroups(by_bucket, self._plan.limits)
            self._sinks[flow] = ParquetSink(path, schema, faults=self._plan.faults, groups=groups)
            self._columns[flow] = output.schema.names
            self._readers[flow] = []
