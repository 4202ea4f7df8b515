"""Changes of settings of a node between two versions of a document. Pure.

    {"translator": "sum"}  ->  {"translator": "sum", "on_error": "set_aside", "set_aside_max": 100}
        ("on_error: stop -> set_aside", "set_aside_max: 1000 -> 100")

A setting decides how a stage runs, or how files are taken in; it does not affect the meaning of
tables. So it needs no choice about earlier records, and no input is read again. Changes that affect
the meaning of tables are differences (`cbp.model.version.version_change`).

Invariant: a document that only adds a setting with its default value changes no setting
(tests/cbp/model/version/test_setting_changes.py).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from cbp.model.dataflow.set_aside import ON_ERROR, SET_ASIDE_DEFAULT

OF_STAGES: Mapping[str, Any] = {
    "on_error": ON_ERROR[0],
    "set_aside_max": SET_ASIDE_DEFAULT,
    "run_seconds_max": None,
    "close_idle_seconds": {},
    "limits": {},
    "keep": {},
    "any_order": False,
    "fuse": True,
}
"""The settings of a stage, each with its value where a document leaves it out."""

OF_SOURCES: Mapping[str, Any] = {
    "keep": {},
    "duplicates": "accept",
    "same_name": "quarantine",
    "on_bad_records": None,
    "batch": None,
    "location": "",
    "nested": False,
    "unfinished": None,
}
"""The settings of a source."""


def setting_changes(
    before: Mapping[str, Any], after: Mapping[str, Any], section: str
) -> dict[str, tuple[str, ...]]:
    """Return, in words, the settings that differ between two valid documents, by node of both.

    The section is `stages` or `sources`.
    """
    known = OF_STAGES if section == "stages" else OF_SOURCES
    old, new = before.get(section) or {}, after.get(section) or {}
    changes = {name: tuple(_of_node(old[name], new[name], known)) for name in new if name in old}
    return {name: words for name, words in changes.items() if words}


def _of_node(
    before: Mapping[str, Any], after: Mapping[str, Any], known: Mapping[str, Any]
) -> Iterator[str]:
    for name, default in known.items():
        old, new = before.get(name, default), after.get(name, default)
        if old != new:
            yield f"{name}: {_shown(old)} -> {_shown(new)}"


def _shown(value: Any) -> str:
    if value is None or value == {}:
        return "default"
    return value if isinstance(value, str) and value else json.dumps(value)
