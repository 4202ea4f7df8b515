"""Code drift: the loaded translators differ from those that a version was registered with. Pure.

A document only names translators, so a package can be upgraded without a new registration. But one
version always runs the same code. A stage has *drifted* if its loaded tables, keys, inputs or code
(`cbp.model.author.code_fingerprint`) differ from the registered ones. It does not run until the
document is registered again, where the change is planned and decided like any other.

    registered "word STRING, n INT"     loaded "word STRING, n BIGINT"     drifted
    registered def translate: a         loaded def translate: b            drifted
    registered def translate: a         loaded the same, with a comment    continues
    registered by an earlier release with another fingerprint scheme               adopted

Invariant (tests/cbp/model/version/test_code_drift.py): a version has not drifted from itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from cbp.errors import Mistake
from cbp.model.author.code_fingerprint import UNKNOWN_CODE
from cbp.model.dataflow.dataflow import Dataflow
from cbp.model.version.dataflow_shape import DataflowShape, StageShape, shape_of
from cbp.model.version.version_change import NodeChange, compare_versions


def drift(
    registered: DataflowShape, loaded: DataflowShape, *, code: bool = True
) -> tuple[Mistake, ...]:
    """Return the differences, one mistake per stage; empty if runs can continue."""
    plan = compare_versions(registered if code else without_codes(registered), loaded)
    return tuple(
        Mistake("code_drifted", f"stages.{name}", "; ".join(_differences(node)))
        for name, node in plan.stages.items()
        if node.changed
    )


def is_code_of(registered: DataflowShape | None, loaded: Dataflow) -> bool:
    """Return whether a version runs with the loaded code; true if its shape is not known."""
    return registered is None or not drift(registered, shape_of(loaded))


def unfingerprinted(registered: DataflowShape) -> bool:
    """Return whether some stage was registered with another fingerprint scheme."""
    return not all(stage.code for stage in registered.stages.values())


def without_codes(shape: DataflowShape) -> DataflowShape:
    """Return a shape without fingerprints, so that code is not compared."""
    stages = {}
    for name, stage in shape.stages.items():
        inputs = {n: replace(i, framing_code=UNKNOWN_CODE) for n, i in stage.inputs.items()}
        stages[name] = replace(stage, code=UNKNOWN_CODE, inputs=inputs)
    return replace(shape, stages=stages)


def with_codes(registered: DataflowShape, loaded: DataflowShape) -> DataflowShape:
    """Return a shape with the loaded fingerprints instead of those of an older scheme."""
    stages = dict(registered.stages)
    for name in stages.keys() & loaded.stages.keys():
        stages[name] = _with_codes(stages[name], loaded.stages[name])
    return replace(registered, stages=stages)


def _with_codes(stage: StageShape, loaded: StageShape) -> StageShape:
    inputs = dict(stage.inputs)
    for name in inputs.keys() & loaded.inputs.keys():
        code = inputs[name].framing_code or loaded.inputs[name].framing_code
        inputs[name] = replace(inputs[name], framing_code=code)
    return replace(stage, code=stage.code or loaded.code, inputs=inputs)


def _differences(node: NodeChange) -> Iterator[str]:
    yield from node.differences
    for flow, changes in node.columns.items():
        yield from (f"{flow}: {change}" for change in changes)
    if node.buckets is not None:
        yield f"buckets: {node.buckets[0]} -> {node.buckets[1]}"
