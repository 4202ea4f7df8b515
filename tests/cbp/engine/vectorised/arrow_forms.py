"""Groupwise translators in their Arrow form."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from types import MappingProxyType

from cbp.model.dataflow.dataflow import Dataflow
from tests.forms import arrow_form


def in_arrow(dataflow: Dataflow, only: Collection[str] | None = None) -> Dataflow:
    """Return a dataflow with groupwise stages vectorised: these, or all that it has."""
    stages = {
        name: replace(node, translator=arrow_form(node.translator))
        if only is None or name in only
        else node
        for name, node in dataflow.stages.items()
    }
    return replace(dataflow, stages=MappingProxyType(stages))
