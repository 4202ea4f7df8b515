"""Assembly of a prepared run from the descriptors that its tasks return; pure.

Not guaranteed: that the descriptors stay few. There is one per file, and the driver collects all
of a run's. So their number grows with the files that the run writes and touches, that is, with
the buckets and bytes that it changes. For more than some ten thousand files, tasks should write
shards of actions beside the tables instead; that does not exist.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from cbp.engine.delta.actions import AddFile
from cbp.engine.interface.runs import PreparedRun, RunPlan
from cbp.engine.run.executor import LANE
from cbp.engine.shuffle.broadcast import ALL_FOUND, ALL_NAMED
from cbp.engine.storage.table_names import flow_table, state_table
from cbp.errors import IncrementDamagedError, error_from_dict
from cbp.model.dataflow.lanes import Lane, lane_figure
from cbp.model.flow.increment import DataFile, Increment
from cbp.model.run.intention import TableChange

__all__ = ["assemble", "empty_outputs", "raise_first_error"]

Descriptor = Mapping[str, Any]


def empty_outputs(plan: RunPlan) -> dict[str, Increment]:
    """Return the empty increments of an epoch whose inputs are all empty: no files, no job."""
    flows = {
        output.name: f"{plan.node.name}.{output.name}" for output in plan.node.translator.outputs
    }
    fused = [f"{node.name}.{o.name}" for node in plan.fused for o in node.translator.outputs]
    flows.update(zip(fused, fused, strict=True))
    return {key: Increment(flow, plan.epoch, plan.epoch) for key, flow in flows.items()}


def raise_first_error(descriptors: Iterable[Descriptor]) -> None:
    """Raise the error that a task reported, if any.

    Of several errors, the one with the smallest text is raised, so that it is always the same.
    """
    errors = [d for d in descriptors if d["kind"] == "error"]
    if errors:
        first = min(errors, key=lambda d: str(d["message"]))
        raise error_from_dict(first["type"], first)


def assemble(plan: RunPlan, descriptors: Sequence[Descriptor], *, now_ms: int) -> PreparedRun:
    """Put together increments, table changes and figures.

    Raises:
        IncrementDamagedError: If an input arrived with another number of records.
    """
    figures = _figures(descriptors)
    for name, increments in plan.inputs.items():
        expected = sum(increment.records for increment in increments)
        found = int(figures.pop(f"records_in.{name}", 0))
        if expected != found:
            names = ", ".join(increment.name for increment in increments)
            raise IncrementDamagedError(names, expected=expected, found=found)
        figures["records_in"] = figures.get("records_in", 0) + found
    outputs = _outputs(plan, descriptors)
    changes: list[TableChange] = []
    for state in plan.node.translator.states:
        mine = [d for d in descriptors if d.get("state") == state.name]
        table = state_table(plan.node.name, state.name)
        changes.extend(_state_changes(table, mine, now_ms))
    changes.extend(_output_changes(plan, outputs, now_ms))
    _count_dead_letters(figures)
    figures["bytes_written"] = _bytes_written(descriptors)
    figures["bytes_dropped"] = sum(d.get("bytes_dropped", 0) for d in descriptors)
    figures["bytes_in"] = sum(i.bytes for increments in plan.inputs.values() for i in increments)
    return PreparedRun(outputs, tuple(changes), figures)


def _count_dead_letters(figures: dict[str, float]) -> None:
    """Count records to `ALL` that found no group in any task as dead letters.

    See `Shared.counts`.
    """
    for name in [name for name in figures if name.startswith(ALL_NAMED)]:
        named = figures.pop(name)
        if not figures.pop(ALL_FOUND + name.removeprefix(ALL_NAMED)):
            figures["dead_letters"] += named


def _bytes_written(descriptors: Sequence[Descriptor]) -> int:
    """Return the bytes of all files, without data that is stored inside the intention."""
    deletes = [d["deletes"] for d in descriptors if d["kind"] == "deletes"]
    return sum(d.get("size", 0) for d in [*descriptors, *deletes])


def _figures(descriptors: Sequence[Descriptor]) -> dict[str, float]:
    totals: dict[str, float] = defaultdict(float)
    for descriptor in descriptors:
        if descriptor["kind"] == "counts":
            for name, value in descriptor.items():
                if name == "seconds_task":
                    totals[name] = max(totals[name], value)
                elif name != "kind":
                    totals[name] += value
        elif descriptor["kind"] == LANE:
            totals[lane_figure(Lane(descriptor["lane"]))] += 1
    return dict(totals)


def _outputs(plan: RunPlan, descriptors: Sequence[Descriptor]) -> dict[str, Increment]:
    outputs = empty_outputs(plan)
    addressed = [spec.name for spec in plan.node.translator.addressed]
    for name, increment in outputs.items():
        files = sorted(
            (d["path"], d["rows"], d["size"], d.get("buckets", 0))
            for d in descriptors
            if d["kind"] == "output" and d["flow"] == increment.flow
        )
        outputs[name] = Increment(
            increment.flow,
            increment.index,
            increment.framing_key,
            tuple(
                DataFile(path, rows, size, buckets=buckets) for path, rows, size, buckets in files
            ),
            _bindings(plan, descriptors) if files and name in addressed else (),
        )
    return outputs


def _bindings(plan: RunPlan, descriptors: Sequence[Descriptor]) -> tuple[DataFile, ...]:
    """Return the files of bindings, which say which groups get the messages of this epoch."""
    found = sorted(
        (d["path"], d["rows"], d["size"]) for d in descriptors if d["kind"] == "bindings"
    )
    return tuple(DataFile(path, rows, size) for path, rows, size in found)


def _state_changes(table: str, mine: Sequence[Descriptor], now_ms: int) -> list[TableChange]:
    """Return the change of the records and, as a separate change, that of the layout."""
    records = TableChange(
        table,
        adds=tuple(_add(d, now_ms) for d in mine if d["kind"] == "run"),
        drops=tuple(d["path"] for d in mine if d["kind"] == "drop"),
        deletes={d["path"]: d["deletes"] for d in mine if d["kind"] == "deletes"},
    )
    merged = [d for d in mine if d["kind"] == "merge"]
    layout = TableChange(
        table,
        adds=tuple(_add(d, now_ms) for d in merged),
        drops=tuple(path for d in merged for path in d["replaces"]),
        data_change=False,
    )
    return [change for change in (records, layout) if change.adds or change.drops or change.deletes]


def _output_changes(
    plan: RunPlan, outputs: Mapping[str, Increment], now_ms: int
) -> list[TableChange]:
    changes = []
    for increment in outputs.values():
        stage, _, output = increment.flow.partition(".")
        table = flow_table(stage, output)
        adds = [
            AddFile(
                path=file.path.removeprefix(f"{table}/"),
                partition_values={},
                size=file.bytes,
                rows=file.records,
                modified_ms=now_ms,
                min_values={"_epoch": plan.epoch},
                max_values={"_epoch": plan.epoch},
            )
            for file in increment.files
        ]
        if adds:
            changes.append(TableChange(table, tuple(add.to_json() for add in adds)))
    return changes


def _add(descriptor: Descriptor, now_ms: int) -> dict[str, Any]:
    return AddFile(
        path=descriptor["path"],
        partition_values={"_bucket": str(descriptor["bucket"])},
        size=descriptor["size"],
        rows=descriptor["rows"],
        modified_ms=now_ms,
    ).to_json()
