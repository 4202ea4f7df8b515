"""From the descriptors that tasks return to what a run prepared; pure.

Nothing here grows with the data: a descriptor stands for a file.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from cbp.engine.base import PreparedRun, RunPlan, flow_table, state_table
from cbp.engine.delta.actions import AddFile, DeletionVector, RemoveFile
from cbp.errors import IncrementDamagedError, error_from_dict
from cbp.model.increment import DataFile, Increment
from cbp.model.intention import TableChange

__all__ = ["assemble", "empty_outputs", "raise_first_error"]

Descriptor = Mapping[str, Any]
Live = Mapping[str, Mapping[str, AddFile]]
"""State name -> path -> live file of its table before this run."""


def empty_outputs(plan: RunPlan) -> dict[str, Increment]:
    """Return the increments of an epoch that read only empty ones: no files, no job."""
    flows = {
        output.name: f"{plan.node.name}.{output.name}" for output in plan.node.translator.outputs
    }
    fused = [f"{node.name}.{o.name}" for node in plan.fused for o in node.translator.outputs]
    flows.update(zip(fused, fused, strict=True))
    return {key: Increment(flow, plan.epoch, plan.epoch) for key, flow in flows.items()}


def raise_first_error(descriptors: Iterable[Descriptor]) -> None:
    """Raise what a task reported, if any did; the smallest text, so that it is always the same."""
    errors = [d for d in descriptors if d["kind"] == "error"]
    if errors:
        first = min(errors, key=lambda d: str(d["message"]))
        raise error_from_dict(first["type"], first)


def assemble(
    plan: RunPlan, descriptors: Sequence[Descriptor], live: Live, *, now_ms: int
) -> PreparedRun:
    """Put together increments, table changes and figures.

    Raises:
        IncrementDamagedError: Some input arrived with another number of records.
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
        changes.extend(_state_changes(table, mine, live[state.name], now_ms))
    changes.extend(_output_changes(plan, outputs, now_ms))
    written = sum(d["size"] for d in descriptors if "size" in d)
    vectors = {
        (d["vector"]["pathOrInlineDv"], d["vector"].get("offset")): d["vector"]["sizeInBytes"]
        for d in descriptors
        if d["kind"] == "vector"
    }
    figures["bytes_written"] = written + sum(vectors.values())
    figures["bytes_in"] = sum(i.bytes for increments in plan.inputs.values() for i in increments)
    return PreparedRun(outputs, tuple(changes), figures)


def _figures(descriptors: Sequence[Descriptor]) -> dict[str, float]:
    totals: dict[str, float] = defaultdict(float)
    for descriptor in descriptors:
        if descriptor["kind"] == "counts":
            for name, value in descriptor.items():
                if name == "seconds_task":
                    totals[name] = max(totals[name], value)
                elif name != "kind":
                    totals[name] += value
    return dict(totals)


def _outputs(plan: RunPlan, descriptors: Sequence[Descriptor]) -> dict[str, Increment]:
    outputs = empty_outputs(plan)
    for name, increment in outputs.items():
        files = sorted(
            (d["path"], d["rows"], d["size"])
            for d in descriptors
            if d["kind"] == "output" and d["flow"] == increment.flow
        )
        outputs[name] = Increment(
            increment.flow,
            increment.index,
            increment.framing_key,
            tuple(DataFile(path, rows, size) for path, rows, size in files),
        )
    return outputs


def _state_changes(
    table: str, mine: Sequence[Descriptor], live: Mapping[str, AddFile], now_ms: int
) -> list[TableChange]:
    """Return the change of the records, then, apart from it, the change of the layout."""
    adds = [_add(d, now_ms) for d in mine if d["kind"] == "run"]
    removes = []
    vectors: dict[str, AddFile] = {}
    for descriptor in mine:
        if descriptor["kind"] == "vector":
            old = live[descriptor["path"]]
            vectors[old.path] = _marked(old, DeletionVector.from_json(descriptor["vector"]))
            removes.append(_remove(old, now_ms))
            adds.append(vectors[old.path])
        elif descriptor["kind"] == "drop":
            removes.append(_remove(live[descriptor["path"]], now_ms))
    changes = [_change(table, adds, removes, data_change=True)] if adds or removes else []
    merged = [d for d in mine if d["kind"] == "merge"]
    if merged:
        gone = [
            _remove(vectors.get(path, live[path]), now_ms, data_change=False)
            for d in merged
            for path in d["replaces"]
        ]
        made = [_add(d, now_ms, data_change=False) for d in merged]
        changes.append(_change(table, made, gone, data_change=False))
    return changes


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
            changes.append(_change(table, adds, [], data_change=True))
    return changes


def _change(
    table: str, adds: list[AddFile], removes: list[RemoveFile], *, data_change: bool
) -> TableChange:
    return TableChange(
        table,
        tuple(add.to_json() for add in adds),
        tuple(remove.to_json() for remove in removes),
        data_change,
    )


def _add(descriptor: Descriptor, now_ms: int, *, data_change: bool = True) -> AddFile:
    return AddFile(
        path=descriptor["path"],
        partition_values={"_bucket": str(descriptor["bucket"])},
        size=descriptor["size"],
        rows=descriptor["rows"],
        modified_ms=now_ms,
        data_change=data_change,
    )


def _marked(old: AddFile, vector: DeletionVector) -> AddFile:
    return AddFile(
        path=old.path,
        partition_values=old.partition_values,
        size=old.size,
        rows=old.rows,
        modified_ms=old.modified_ms,
        deletion_vector=vector,
    )


def _remove(old: AddFile, now_ms: int, *, data_change: bool = True) -> RemoveFile:
    return RemoveFile.of(old, deletion_ms=now_ms, data_change=data_change)
