"""Assembly of a prepared run (`PreparedRun`) from the reports of its tasks (`TaskReport`); pure.

Not guaranteed: that the reports stay few. There is one per file, and the driver collects all
reports of a run. For more than some ten thousand files, tasks should write shards of actions beside
the tables instead, which is not implemented.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace
from operator import attrgetter
from typing import Any, TypeVar

from cbp.engine.columnar.file_slices import records_expected, share_of
from cbp.engine.delta.actions import AddFile
from cbp.engine.interface.runs import PreparedRun, RunPlan
from cbp.engine.run.framing import brought_by, named_record
from cbp.engine.shuffle.broadcast import ALL_NAMED, ALL_REACHED
from cbp.engine.storage.table_names import flow_table, state_table
from cbp.engine.task.reports import (
    BindingsFile,
    Counts,
    DeletedRows,
    DroppedFile,
    Failed,
    JobLane,
    MergedFile,
    MessageMisplaced,
    NewStateFile,
    NextPhase,
    NextTimer,
    OutputFile,
    ProcessChanged,
    TaskReport,
)
from cbp.errors import AuthorCodeError, IncrementDamagedError
from cbp.model.flow.increment import DataFile, Increment
from cbp.model.plan.spark_or_worker import lane_figure
from cbp.model.run.intention import TableChange


def empty_outputs(plan: RunPlan) -> dict[str, Increment]:
    """Return the empty increments of an epoch whose inputs are all empty: no files, no job."""
    node = plan.node
    flows = {one.name: f"{node.name}.{one.name}" for one in node.translator.outputs}
    fused = [f"{node.name}.{o.name}" for node in plan.fused for o in node.translator.outputs]
    flows |= dict(zip(fused, fused, strict=True))
    return {key: Increment(flow, plan.epoch, plan.epoch) for key, flow in flows.items()}


_OF_BOTH_PHASES = (Failed, ProcessChanged, MessageMisplaced)
"""Kinds of reports that cover both phases if a task also runs the next phase."""

T = TypeVar("T")


class Reported:
    """The reports of a phase's tasks, by kind, and of the next phase, if tasks also ran it."""

    def __init__(self, reports: Iterable[TaskReport]) -> None:
        self._by_kind: dict[type, list[Any]] = defaultdict(list)
        self.next_phase: list[TaskReport] = []
        for report in reports:
            if isinstance(report, NextPhase):
                self.next_phase += report.reports
                behind = Reported(report.reports)
                for kind in _OF_BOTH_PHASES:
                    self._by_kind[kind] += behind.all(kind)
            else:
                self._by_kind[type(report)].append(report)

    def all(self, kind: type[T]) -> list[T]:
        """Return all reports of a kind; for errors and process changes, also of the next phase."""
        return self._by_kind[kind]

    @property
    def misplaced(self) -> bool:
        """Whether a task found a message in a wrong bucket, also in the next phase."""
        return bool(self.all(MessageMisplaced))

    @property
    def groups(self) -> int:
        """Number of groups that were called, without those of the next phase."""
        return sum(int(counts.figures["groups"]) for counts in self.all(Counts))


def raise_first_error(reported: Reported) -> None:
    """Raise the error that tasks reported, if any; if several, the one with the smallest text."""
    if failed := reported.all(Failed):
        raise min(failed, key=lambda one: one.message).error()


def located(error: AuthorCodeError, plan: RunPlan) -> AuthorCodeError:
    """Return the error, with the increments that brought the records of the failed call."""
    records = {}
    for name, place in error.details.get("records", {}).items():
        if (where := brought_by(plan, name, place)) is not None:
            records[name] = named_record(*where)
    error.details = {key: value for key, value in error.details.items() if key != "records"}
    if records:
        error.details = {**error.details, "records": records}
    return error


def assemble(plan: RunPlan, reported: Reported, *, now_ms: int) -> PreparedRun:
    """Assemble what a run did; `IncrementDamagedError` if an input's count of records differs."""
    figures = _figures(reported)
    figures.setdefault("records_in", 0)
    for name, increments in plan.inputs.items():
        input_ = plan.node.translator.input(name)
        expected = sum(
            records_expected(share_of(plan.folder, file), input_)
            for increment in increments
            for file in increment.files
        )
        received = int(figures.pop(f"records_in.{name}", 0))
        if expected != received:
            names = ", ".join(increment.name for increment in increments)
            raise IncrementDamagedError(names, expected=expected, found=received)
        figures["records_in"] = figures.get("records_in", 0) + received
    outputs = _outputs(plan, reported)
    changes: list[TableChange] = []
    for state in plan.node.translator.states:
        table = state_table(plan.node.name, state.name)
        changes += _state_changes(table, state.name, reported, now_ms)
    changes += _output_changes(plan, outputs, now_ms)
    # Records to `ALL` that found no group in any task are dead letters; see `Shared.counts`.
    for name in [name for name in figures if name.startswith(ALL_NAMED)]:
        named = figures.pop(name)
        if not figures.pop(ALL_REACHED + name.removeprefix(ALL_NAMED)):
            figures["dead_letters"] += named
    figures["bytes_written"] = _bytes_written(reported)
    figures["bytes_dropped"] = sum(file.bytes_dropped for file in reported.all(DroppedFile))
    figures["bytes_dropped"] += sum(file.bytes_dropped for file in reported.all(MergedFile))
    figures["bytes_in"] = sum(i.bytes for increments in plan.inputs.values() for i in increments)
    return PreparedRun(outputs, tuple(changes), figures, next_timer(plan, reported.all(NextTimer)))


def next_timer(plan: RunPlan, reported: Iterable[NextTimer]) -> int | None:
    """Return a time before which no timer of a stage is due after a run; see `PreparedRun`.

    A run that read all timers knows this time; any other run keeps the earlier value.
    """
    if not plan.node.translator.timers:
        return None
    times = [-(-one.at_us // 1000) for one in reported]
    if plan.due_ms is not None and not plan.wakes:
        times.append(plan.due_ms)
    return min(times, default=None)


def _bytes_written(reported: Reported) -> int:
    """Return the bytes of all files, without data that is stored inside the intention."""
    kinds = (
        reported.all(OutputFile),
        reported.all(BindingsFile),
        reported.all(NewStateFile),
        reported.all(MergedFile),
    )
    files = sum(file.size for files in kinds for file in files)
    return files + sum(rows.deletes.size for rows in reported.all(DeletedRows))


def _figures(reported: Reported) -> dict[str, float]:
    totals: dict[str, float] = defaultdict(float)
    for counts in reported.all(Counts):
        for name, value in counts.figures.items():
            if name == "seconds_task":
                totals[name] = max(totals[name], value)
            else:
                totals[name] += value
    for job in reported.all(JobLane):
        totals[lane_figure(job.lane)] += 1
    return dict(totals)


def _outputs(plan: RunPlan, reported: Reported) -> dict[str, Increment]:
    outputs = empty_outputs(plan)
    addressed = [spec.name for spec in plan.node.translator.addressed]
    # Bindings decide which groups get this epoch's messages.
    bindings = tuple(
        DataFile(file.path, file.rows, file.size)
        for file in sorted(reported.all(BindingsFile), key=attrgetter("path"))
    )
    for name, increment in outputs.items():
        mine = [file for file in reported.all(OutputFile) if file.flow == increment.flow]
        files = tuple(
            DataFile(file.path, file.rows, file.size, buckets=file.buckets)
            for file in sorted(mine, key=attrgetter("path"))
        )
        bound = bindings if files and name in addressed else ()
        outputs[name] = replace(increment, files=files, bindings=bound)
    return outputs


def _state_changes(table: str, state: str, reported: Reported, now_ms: int) -> list[TableChange]:
    """Return the change of the records and, separately, the change of the layout."""
    records = TableChange(
        table,
        adds=tuple(_add(new, now_ms) for new in reported.all(NewStateFile) if new.state == state),
        drops=tuple(file.path for file in reported.all(DroppedFile) if file.state == state),
        deletes={
            rows.path: rows.deletes.to_json()
            for rows in reported.all(DeletedRows)
            if rows.state == state
        },
    )
    merged = [file for file in reported.all(MergedFile) if file.state == state]
    layout = TableChange(
        table,
        adds=tuple(_add(file, now_ms) for file in merged),
        drops=tuple(path for file in merged for path in file.replaces),
        data_change=False,
    )
    return [change for change in (records, layout) if change.adds or change.drops or change.deletes]


def _output_changes(
    plan: RunPlan, outputs: Mapping[str, Increment], now_ms: int
) -> list[TableChange]:
    changes = []
    epoch = {"_epoch": plan.epoch}
    for increment in outputs.values():
        table = flow_table(*increment.flow.split(".", 1))
        adds = []
        for file in increment.files:
            path = file.path.removeprefix(f"{table}/")
            add = AddFile(
                path, {}, file.bytes, file.records, now_ms, min_values=epoch, max_values=epoch
            )
            adds.append(add.to_json())
        if adds:
            changes.append(TableChange(table, tuple(adds)))
    return changes


def _add(file: NewStateFile | MergedFile, now_ms: int) -> dict[str, Any]:
    partition = {"_bucket": str(file.bucket)}
    return AddFile(file.path, partition, file.size, file.rows, now_ms).to_json()
