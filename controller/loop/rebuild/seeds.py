"""Seeds: records of an operator's own files, in place of removed increments of a source.

    --seed clicks=/archive/clicks       a Parquet file, a folder of them, or a Delta table

A build reads them before the oldest kept increment. Nothing can check that they are the records of
the removed increments: that is the operator's claim. Columns are found by name, and cast if no
value changes.

Guaranteed: a path outside of the allowed folders, and columns that do not fit, are refused before
anything is built (tests/controller/loop/rebuild/test_seeds.py).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from cbp.engine.columnar.arrow_types import arrow_schema
from cbp.engine.delta.live_records import live_batches
from cbp.engine.delta.log import DeltaLog
from cbp.engine.storage.engine_limits import DEFAULT_LIMITS
from cbp.engine.storage.failpoints import Faults
from cbp.engine.storage.files import Files
from cbp.engine.storage.parquet_writer import ParquetSink, sync_files
from cbp.errors import CbpError, ChangeRefusedError, Mistake
from cbp.model.dataflow.dataflow import Dataflow
from cbp.model.flow.increment import DataFile, Increment
from cbp.model.flow.schema import Schema
from controller.allowed_folders import AllowedFolders

_LOG = "_delta_log"


@dataclass(frozen=True, slots=True)
class Seeds:
    """The seeds of one build."""

    paths: Mapping[str, str]
    allowed: AllowedFolders
    files: Files

    def mistakes(self, dataflow: Dataflow, firsts: Mapping[str, int]) -> Iterator[Mistake]:
        """Yield the mistakes in the seeds; reads no records."""
        for source, path in self.paths.items():
            if source not in dataflow.sources:
                known = ", ".join(dataflow.sources)
                yield _mistake(source, f"there is no such source; the sources are {known}")
            elif not firsts.get(source):
                yield _mistake(source, "all of its input is kept, so leave out its seed")
            else:
                schema = dataflow.sources[source].schema
                why = self.allowed.refusal(path) or self._misfit(path, schema)
                yield from [_mistake(source, why)] if why else []

    def _misfit(self, path: str, schema: Schema) -> str:
        """Return why the columns of a seed cannot be those of its source; `""` if they can."""
        try:
            first = next(self._tables(self.allowed.locate(path)), None)
            if first is None:
                return f"{path} is neither a Parquet file, nor a folder of them, nor a Delta table"
            lacking = [name for name in schema.names if name not in first.schema.names]
            if lacking:
                return f"{path} has no column {', '.join(lacking)}"
            _cast(first.slice(0, 1), schema)
        except (pa.ArrowException, OSError, ValueError, CbpError) as error:
            return f"{path} cannot be read as {schema}: {error}"
        return ""

    def write(
        self,
        dataflow: Dataflow,
        source: str,
        folder: str,
        *,
        first: int,
        faults: Faults,
        each: Callable[[], object] = lambda: None,
    ) -> Increment:
        """Write the records of a seed as an increment, into the folder of a build.

        Args:
            first: The oldest kept increment; the seed comes before it.

        Raises `ChangeRefusedError`.
        """
        schema, path = dataflow.sources[source].schema, self.paths[source]
        name = f"seeds/{source}.parquet"
        self.files.make_dirs(f"{folder}/seeds")
        sink = ParquetSink(f"{folder}/{name}", arrow_schema(schema), faults=faults)
        try:
            for table in self._tables(self.allowed.locate(path)):
                sink.write(_cast(table, schema))
                each()
        except (pa.ArrowException, OSError, ValueError) as error:
            message = f"{path} cannot be read as {schema}: {error}"
            raise ChangeRefusedError(dataflow.name, [_mistake(source, message)]) from error
        done = sink.close()
        if done is None:
            return Increment(source, first - 1, first - 1, ())
        sync_files([f"{folder}/{name}"], faults=faults)
        return Increment(source, first - 1, first - 1, (DataFile(name, done.rows, done.bytes),))

    def _tables(self, path: str) -> Iterator[pa.Table]:
        """Yield the records of a file, of a folder's files by name, or of a Delta table."""
        if os.path.isdir(f"{path}/{_LOG}"):
            for _, file in sorted(DeltaLog(path, self.files).snapshot(None).live.items()):
                for batch in live_batches(path, file, limits=DEFAULT_LIMITS):
                    yield pa.Table.from_batches([batch])
            return
        names = [path] if os.path.isfile(path) else sorted(map(str, Path(path).glob("*.parquet")))
        for name in names:
            with pq.ParquetFile(name) as file:
                empty = file.schema_arrow.empty_table()
                yield from (pa.Table.from_batches([batch]) for batch in file.iter_batches())
            yield empty


def _cast(table: pa.Table, schema: Schema) -> pa.Table:
    return table.select(schema.names).cast(arrow_schema(schema))


def _mistake(source: str, message: str) -> Mistake:
    return Mistake("seed_invalid", f"rebuild.seed.{source}", message)
