"""The product from end to end: a whole service in this process; files are dropped into its folder.

The timed span begins with the rename of the file into `incoming` and ends with the run's record in
the store. It covers noticing the file, claiming it, checking every record, writing the increment,
scheduling, the run itself, publication and the store's commit. The service's background work
(ticks, listing, housekeeping) runs meanwhile.

Settings: the defaults, except `settle_seconds`, which is 0: the file appears by a rename, so there
is nothing to wait for. With the default a file waits for one second more.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from controller.app import Service, configure_logging
from controller.settings import Settings
from tests.bench.candidates.candidate import Figures, Place
from tests.bench.candidates.ours.direct import buckets_of
from tests.bench.candidates.ours.initial_state import load_counts
from tests.bench.candidates.ours.tables import latest_emitted, totals_of_tables
from tests.bench.comparison.result_comparison import Totals
from tests.bench.options import NO_SPARK, BenchOptions
from tests.bench.workloads.workload import Arrival, UrlCount, Workload

__all__ = ["ServiceCandidate"]

_LOOK_SECONDS = 0.002
_RUN_SECONDS_MAX = 600.0


class ServiceCandidate:
    """One running service; see `tests.bench.candidates.candidate`."""

    name = "service"

    def __init__(self, place: Place, workload: Workload, options: BenchOptions) -> None:
        assert isinstance(workload, UrlCount), "the options were checked"
        self.form, self.state_keys = options.forms[0], 0
        self._place, self._runs = place, 0
        self._spark: Any = None
        settings = _settings(place, options)
        configure_logging(settings)
        self._service = Service(settings)
        try:
            self._begin(workload, options.grouping, settings)
        except BaseException:
            self._service.stop()
            raise

    def _begin(self, workload: UrlCount, grouping: str, settings: Settings) -> None:
        if settings.engine == "spark":
            from pyspark.sql import SparkSession

            self._spark = SparkSession.builder.getOrCreate()
        document = workload.document(self.form)
        document["stages"]["count"]["buckets"] = buckets_of(self._place.slots)
        self._service.start()
        record = self._service.controller.register(document)
        self._folder, self._name = Path(record.folder), record.name
        self.dataflow = self._service.controller.dataflow(record.name)
        self._incoming = settings.drop_root / record.name / workload.source / "incoming"
        self._incoming.mkdir(parents=True, exist_ok=True)

    def load(self, state_keys: int) -> None:
        """Write the state as files, before the first file is dropped."""
        self.state_keys = state_keys
        (node,) = self.dataflow.stages.values()
        shared = self._place.shared
        load_counts(self._folder, node, state_keys, spark=self._spark, shared=shared)

    def run(self, arrival: Arrival) -> Figures:
        """Drop one file, and wait until its run is recorded."""
        self._runs += 1
        staged = self._incoming.parent / f"{arrival.path.name}.next"
        _copy(arrival.path, staged)
        started = time.perf_counter()
        staged.rename(self._incoming / arrival.path.name)
        while self._service.store.epochs()[self._name] < self._runs:
            if time.perf_counter() - started > _RUN_SECONDS_MAX:
                message = f"{arrival.path.name} was not applied within {_RUN_SECONDS_MAX:g} s"
                raise TimeoutError(message)
            time.sleep(_LOOK_SECONDS)
        return Figures(seconds=time.perf_counter() - started)

    def emitted(self) -> Iterator[pa.RecordBatch]:
        """Yield what the latest run emitted."""
        return latest_emitted(self._folder, self.dataflow, self._runs - 1)

    def held(self) -> Totals:
        """Digest the records of the state and the output."""
        return totals_of_tables(self._folder, self.dataflow, spark=self._spark)

    def close(self) -> None:
        """Stop the service."""
        self._service.stop()


def _settings(place: Place, options: BenchOptions) -> Settings:
    return Settings(
        root=place.folder / "service",
        cache=place.scratch / "cache",
        engine="local" if options.master == NO_SPARK else "spark",
        spark_master="local[*]" if options.master == NO_SPARK else options.master,
        spark_driver_memory=options.driver_memory,
        spark_conf={"spark.local.dir": str(place.scratch / "spark")},
        settle_seconds=0,
        log_level="ERROR",
    )


def _copy(path: Path, target: Path) -> None:
    """Make a durable copy, as a producer has before the rename."""
    target.write_bytes(path.read_bytes())
    handle = os.open(target, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
