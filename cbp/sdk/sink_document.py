"""Reads the sinks of a dataflow document.

    sinks:
      totals: {flow: count.totals, to: parquet, path: exports/totals}
      counts: {view: count.counts, to: delta, path: /data/warehouse/counts}
      calls: {flow: count.totals, to: webhook, url: "https://hooks.example.com/cbp", secret: hook}

Options: `begin: now` publishes only what comes from now on; `paused: true` begins paused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from cbp.errors import Mistake
from cbp.model.dataflow.sinks import SinkNode

__all__ = ["SINK_FIELDS", "read_sink"]

_TEXTS = ("to", "flow", "view", "path", "url", "secret", "begin")
SINK_FIELDS = {*_TEXTS, "paused"}


def read_sink(name: str, given: Mapping[str, Any]) -> tuple[SinkNode | None, list[Mistake]]:
    """Return the sink that a document says, and what is wrong with its values.

    Args:
        name: The sink.
        given: Its fields; those that are no `SINK_FIELDS` were reported already.
    """
    mistakes = list(_value_mistakes(name, given))
    if mistakes:
        return None, mistakes
    texts = {field: given[field] for field in _TEXTS if field in given}
    return SinkNode(name, paused=given.get("paused", False), **{"to": "", **texts}), []


def _value_mistakes(name: str, given: Mapping[str, Any]) -> Iterator[Mistake]:
    for field, value in given.items():
        if field in _TEXTS and not isinstance(value, str):
            yield Mistake("sink_invalid", f"sinks.{name}.{field}", f"expected text, got {value!r}")
    if not isinstance(given.get("paused", False), bool):
        message = f"expected true or false, got {given['paused']!r}"
        yield Mistake("sink_invalid", f"sinks.{name}.paused", message)
