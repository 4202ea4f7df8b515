"""The measured dataflows: the ones that ship with the product, configured for a benchmark."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Literal, cast

from cbp.model.dataflow.dataflow import Dataflow, StageNode
from controller.registry import Registry
from tests.bench.errors import BenchRefusedError

__all__ = ["arranged", "compiled", "ready"]

_PACKAGE = "cbp"


def compiled(document: Mapping[str, Any]) -> Dataflow:
    """Return the dataflow of a document."""
    return Registry([_PACKAGE]).compile(document)


def ready(name: str) -> Mapping[str, Any]:
    """Return the document of a shipped dataflow.

    Raises:
        BenchRefusedError: No installed package offers it.
    """
    for point in importlib.metadata.entry_points(group="cbp.dataflows"):
        if point.name == name:
            document: Mapping[str, Any] = point.load()()
            return document
    raise BenchRefusedError(
        "workload", f"no installed package offers {name!r}; install this checkout: pip install -e ."
    )


def arranged(dataflow: Dataflow, grouping: str, buckets: int) -> Dataflow:
    """Return the dataflow with this grouping for all states, and this number of buckets.

    State that is kept stays `"inner"`: it has no other grouping.
    """
    kind = cast(Literal["inner", "outer"], grouping)
    stages: dict[str, StageNode] = {}
    for name, node in dataflow.stages.items():
        spec = node.translator
        states = tuple(
            state if state.keep else replace(state, grouping=kind) for state in spec.states
        )
        stages[name] = replace(node, translator=replace(spec, states=states), buckets=buckets)
    return replace(dataflow, stages=MappingProxyType(stages))
