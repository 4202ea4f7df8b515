"""Whether what is installed can go on with what a registered version left. Pure.

A document names translators, and a package may be upgraded under it. Code that only acts
differently is what an upgrade is for: it goes on with the state that there is. Code whose
tables, keys or inputs are others has *drifted*: its files would not be what the tables say,
and its state would be searched by other keys. It does not run until its document is
registered again, where the change is planned, decided and made like any other.

    registered "word STRING, n INT"     installed "word STRING, n BIGINT"     drifted
    registered def translate: a         installed def translate: b            goes on

Invariant (tests/cbp/model/test_drift.py): a version has not drifted from itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from cbp.errors import Mistake
from cbp.model.change import NodeChange, compare_versions
from cbp.model.shape import DataflowShape, StageShape

__all__ = ["drift", "other_code"]


def drift(registered: DataflowShape, installed: DataflowShape) -> tuple[Mistake, ...]:
    """Return what is different, stage by stage; empty: runs may go on."""
    stages = {name: _without_code(stage) for name, stage in registered.stages.items()}
    plan = compare_versions(replace(registered, stages=stages), installed)
    return tuple(
        Mistake("code_drifted", f"stages.{name}", "; ".join(_differences(node)))
        for name, node in plan.stages.items()
        if node.changed
    )


def other_code(registered: DataflowShape, installed: DataflowShape) -> tuple[str, ...]:
    """Return the stages whose class is not the one that was registered, letter by letter."""
    codes = {name: stage.code for name, stage in registered.stages.items()}
    return tuple(
        name
        for name, stage in installed.stages.items()
        if stage.code and codes.get(name) and stage.code != codes[name]
    )


def _without_code(stage: StageShape) -> StageShape:
    inputs = {name: replace(shape, framing_code="") for name, shape in stage.inputs.items()}
    return replace(stage, code="", inputs=inputs)


def _differences(node: NodeChange) -> Iterator[str]:
    yield from node.differences
    for flow, changes in node.columns.items():
        yield from (f"{flow}: {change}" for change in changes)
    if node.buckets is not None:
        yield f"buckets: {node.buckets[0]} -> {node.buckets[1]}"
