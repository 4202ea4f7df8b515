"""Translators and ready dataflows in plain JSON values, as REST and the commands show them."""

from __future__ import annotations

from typing import Any

from cbp.errors import CbpError
from cbp.model.dataflow.stage import Computed, TranslatorSpec
from controller.registry.document_text import document_text
from controller.registry.ready_dataflows import ReadyDataflow
from controller.registry.translators import Registry


def describe_example(one: ReadyDataflow) -> dict[str, Any]:
    """Return a ready dataflow with its document as YAML; empty if it cannot be loaded."""
    return {
        "name": one.name,
        "package": one.package,
        "summary": one.summary,
        "text": "" if one.document is None else document_text(one.document),
        "problem": one.problem,
    }


def describe_translator(registry: Registry, name: str) -> dict[str, Any]:
    """Return a translator's inputs, outputs and parameters, or why it cannot be loaded."""
    try:
        info = registry.describe(name)
    except CbpError as error:  # one broken package must not hide the others
        nothing: dict[str, Any] = {"package": "", "summary": "", "description": ""}
        nothing |= {"parameters": {}, "ports": None}
        return {"name": name, **nothing, "problem": error.message}
    return {
        "name": info.name,
        "package": info.package,
        "summary": info.summary,
        "description": info.description,
        "parameters": dict(info.parameters),
        "ports": None if info.spec is None else _ports(info.spec),
        "problem": None,
    }


def _ports(spec: TranslatorSpec) -> dict[str, list[dict[str, str]]]:
    return {
        "inputs": [
            {"name": one.name, "columns": str(one.schema), "key": _key(one.route_by)}
            for one in spec.inputs
            if not one.loopback
        ],
        "outputs": [
            {"name": one.name, "columns": str(one.schema), "key": ", ".join(one.key)}
            for one in spec.outputs
        ],
        "states": [
            {"name": one.name, "columns": str(one.schema), "key": str(spec.key_of(one))}
            for one in spec.states
        ],
    }


def _key(route_by: tuple[str, ...] | Computed | None) -> str:
    return ", ".join(route_by) if isinstance(route_by, tuple) else ""
