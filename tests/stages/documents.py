"""Documents of ready dataflows, read with the translators that pyproject.toml names."""

from __future__ import annotations

import importlib
import tomllib
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from cbp import Translate, TranslateRecords, dataflow_from_document
from cbp.model.dataflow.dataflow import Dataflow

_PROJECT = Path(__file__).resolve().parents[2] / "pyproject.toml"


@cache
def _named(group: str) -> dict[str, str]:
    entry_points = tomllib.loads(_PROJECT.read_text(encoding="utf-8"))["project"]["entry-points"]
    named: dict[str, str] = entry_points[group]
    return named


def _load(group: str, name: str) -> Any:
    module, _, attribute = _named(group)[name].partition(":")
    return getattr(importlib.import_module(module), attribute)


def _resolve(name: str, parameters: Mapping[str, Any]) -> Translate | TranslateRecords:
    made: Translate | TranslateRecords = _load("cbp.translators", name)(**parameters)
    return made


def _without_references(flow: Dataflow) -> dict[str, Any]:
    return {n: replace(s, reference="", parameters={}) for n, s in flow.stages.items()}


def same_graph(name: str, built: Dataflow) -> None:
    """Assert that a ready dataflow's document says what the Python text says."""
    registered = dataflow_from_document(_load("cbp.dataflows", name)(), _resolve)
    assert (registered.name, registered.sources) == (built.name, built.sources)
    assert _without_references(registered) == _without_references(built)
