"""Translators and ready dataflows in plain JSON values, as REST and the commands show them.

`document_text` gives a document as YAML text for people: for the page's editor, and for differences
of versions. `parse_document` reads the text back as the same values
(tests/controller/registry/test_document_text.py). The text that an author sent is not kept, so
comments are lost.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any

import yaml

from cbp.errors import CbpError
from cbp.model.dataflow.stage import Computed, TranslatorSpec
from cbp.model.flow.schema import Schema
from controller.registry.ready_dataflows import ReadyDataflow
from controller.registry.text import is_plain_text
from controller.registry.translators import Registry

LINES_MAX = 5_000
"""Longest document, in lines, whose versions are compared; the time is quadratic."""

_FIRST = (
    "name", "description", "publish", "sources", "stages", "schema", "format", "options",
    "translator", "parameters", "inputs",
)  # fmt: skip


class _Dumper(yaml.SafeDumper):
    """Writes YAML 1.2: text that would not be read back as text is quoted."""

    def ignore_aliases(self, data: Any) -> bool:
        """Write equal parts twice, since anchors are hard to read."""
        return True


def _text_node(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    # PyYAML writes some line breaks of YAML 1.1 unquoted, and reads them back as other ones.
    sound = is_plain_text(value) and all(c.isprintable() or c == "\n" for c in value)
    style = None if sound else '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)


_Dumper.add_representer(str, _text_node)


def document_text(document: Mapping[str, Any]) -> str:
    """Return a document as YAML, with its fields in the order in which people write them.

    Descriptions are stored with sorted names, so the author's own order is unknown.
    """
    nodes = {
        kind: {name: _ordered(node) for name, node in value.items()}
        if kind in ("sources", "stages") and isinstance(value, Mapping)
        else value
        for kind, value in _ordered(document).items()
    }
    return yaml.dump(nodes, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100)


def _ordered(fields: Any) -> Any:
    """Return a mapping with known fields first; return other values unchanged."""
    if not isinstance(fields, Mapping):
        return fields
    return {name: fields[name] for name in (*_FIRST, *fields) if name in fields}


def difference(before: str, after: str) -> list[str] | None:
    """Return the lines that differ, as `diff -u` prints them; `None` if there are too many."""
    old, new = before.splitlines(), after.splitlines()
    if max(len(old), len(new)) > LINES_MAX:
        return None
    return list(difflib.unified_diff(old, new, lineterm="", n=3))[2:]


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
    inputs = [one for one in spec.inputs if not one.loopback]
    return {
        "inputs": [_port(one.name, one.schema, _key(one.route_by)) for one in inputs],
        "outputs": [_port(one.name, one.schema, ", ".join(one.key)) for one in spec.outputs],
        "states": [_port(one.name, one.schema, str(spec.key_of(one))) for one in spec.states],
    }


def _port(name: str, schema: Schema, key: str) -> dict[str, str]:
    return {"name": name, "columns": str(schema), "key": key}


def _key(route_by: tuple[str, ...] | Computed | None) -> str:
    return ", ".join(route_by) if isinstance(route_by, tuple) else ""
