"""Candidates on the product's direct engine: `cbp`, its variants, the black box and the scan.

They share one kind of table and differ in the kind of task. Settings, for all: the service's Spark
session, four buckets per slot. Every commit is made: output increment, vectors, intention, log
entries, all synced. State is loaded as files. Resident workers are there from the first run, as in
a service that has already run; `jobs` has none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from statistics import fmean
from typing import Any

import pyarrow as pa

from cbp.engine.direct import DirectEngine
from cbp.engine.run.executor import Executor, LocalExecutor
from cbp.engine.task.stage_task import StageTask
from controller.settings import Settings
from tests.bench.candidates.candidate import Figures, Place
from tests.bench.candidates.ours.blackbox import LocalBlackboxExecutor
from tests.bench.candidates.ours.engine_driver import STEPS, DataflowDrive, StageRun
from tests.bench.candidates.ours.initial_state import load_counts, load_state
from tests.bench.candidates.ours.scan import ScanTask
from tests.bench.candidates.ours.tables import latest_emitted, totals_of_tables
from tests.bench.comparison.result_comparison import Held
from tests.bench.options import VARIANTS
from tests.bench.workloads.graph_workloads import GraphWorkload
from tests.bench.workloads.workload import Arrival, UrlCount, Workload, variant_of

__all__ = ["DirectCandidate", "buckets_of"]

BUCKETS_PER_SLOT = 4


class DirectCandidate:
    """One dataflow of the product; see `tests.bench.candidates.candidate`."""

    def __init__(
        self, place: Place, workload: Workload, *, grouping: str, form: str, name: str
    ) -> None:
        self.form, self.name = form, name
        self.state_keys = 0
        if name in VARIANTS:
            workload = variant_of(workload, name)
        self._place, self._workload = place, workload
        self.dataflow = workload.dataflow(
            grouping=grouping, form=form, buckets=buckets_of(place.slots)
        )
        self._executor = _executor(place, name)
        engine = DirectEngine(self._executor, cache=str(place.scratch / "cache"))
        self.drive = DataflowDrive(engine, self.dataflow, place.folder)

    def load(self, state_keys: int) -> None:
        """Write the state as files."""
        self.state_keys = self._workload.loaded_keys
        if isinstance(self._workload, UrlCount):
            (node,) = self.dataflow.stages.values()
            place = self._place
            load_counts(place.folder, node, state_keys, spark=place.spark, shared=place.shared)
            return
        for (stage, state), records in self._workload.states().items():
            load_state(self._place.folder, self.dataflow.stages[stage], state, records)

    def run(self, arrival: Arrival) -> Figures:
        """Apply one increment, with as many runs as the dataflow has physical stages."""
        self.drive.offer(self._workload.source, arrival)
        runs = self.drive.run_until_idle()
        figures = figures_of(runs, self._workload.last_phase)
        if self.name not in ("blackbox", "paper-a"):
            return figures
        return replace(figures, bytes_read=sum(map(_rewritten, runs)))

    def emitted(self) -> Iterator[pa.RecordBatch] | None:
        """Yield the output of the latest epoch of URL count; None for other workloads."""
        if not isinstance(self._workload, UrlCount):
            return None
        return latest_emitted(self._place.folder, self.dataflow, self.drive.epoch("count") - 1)

    def held(self) -> Held:
        """Read the values of a graph, or digest the records of every state and output."""
        if isinstance(self._workload, GraphWorkload):
            return self._workload.held(self._rows)
        return totals_of_tables(self._place.folder, self.dataflow, spark=self._place.spark)

    def close(self) -> None:
        """Stop the processes of this candidate; the session stays."""
        if self._place.spark is not None:
            from cbp.engine.spark import SparkExecutor

            assert isinstance(self._executor, SparkExecutor)
            self._executor.residents.close()

    def _rows(self, stage: str, state: str) -> Iterable[Mapping[str, Any]]:
        node = self.dataflow.stages[stage]
        return self.drive.engine.records.read_state(str(self._place.folder), node, state)


def figures_of(runs: list[StageRun], last_phase: str = "") -> Figures:
    """Sum the runs of one increment.

    Args:
        last_phase: The input that is read in the epochs whose updates are reported; "" means all.
    """
    last = [run for run in runs if not last_phase or run.intention.read.get(last_phase)]
    updates = [run.figures.get("state_written", 0) for run in last]
    steps = {step: sum(run.steps[step] for run in runs) for step in STEPS}
    totals = (name for run in runs for name in run.figures if "/" not in name)
    names = {name for name in totals if not name.startswith("seconds_")}
    counts = {name: sum(run.figures.get(name, 0) for run in runs) for name in sorted(names)}
    read = sum(run.figures.get("bytes_read", 0) + run.figures.get("bytes_in", 0) for run in runs)
    tasks = tuple(run.tasks for run in runs if run.tasks)
    return Figures(
        tasks,
        steps,
        bytes_read=int(read),
        bytes_broadcast=int(counts.get("bytes_broadcast", 0)),
        epochs=len(runs),
        updated=fmean(updates) if updates else 0.0,
        counts=counts,
    )


def _rewritten(run: StageRun) -> int:
    """Return the bytes that a black-box run read: its input, and all files that it replaced."""
    return int(run.figures.get("bytes_in", 0) + run.figures.get("bytes_dropped", 0))


def buckets_of(slots: int) -> int:
    """Return the smallest power of two that gives at least four buckets per slot."""
    return max(2, 1 << (slots * BUCKETS_PER_SLOT - 1).bit_length())


def _executor(place: Place, name: str) -> Executor:
    kind = ScanTask if name == "scan" else StageTask
    rewrites, replicates = name in ("blackbox", "paper-a"), name == "blackbox"
    if place.spark is None:
        return LocalBlackboxExecutor(replicates=replicates) if rewrites else LocalExecutor(kind)
    from cbp.engine.spark import SparkExecutor
    from tests.bench.candidates.ours.blackbox_on_spark import SparkBlackboxExecutor

    if rewrites:
        return SparkBlackboxExecutor(place.spark, replicates=replicates)
    workers = 0 if name == "jobs" else Settings.model_fields["resident_workers"].default
    executor = SparkExecutor(place.spark, kind=kind, resident_workers=workers)
    executor.residents.start()
    return executor
