"""The dataflow `clicks`: its document, its translator, and a registry that knows only this one."""

from __future__ import annotations

from datetime import UTC, datetime
from importlib.metadata import EntryPoint
from typing import Any

from cbp import Input, Output, State, Translate
from controller.registry import Registry

__all__ = ["DOCUMENT", "NOON", "UrlCount", "registry"]

NOON = datetime(2026, 11, 1, 12, tzinfo=UTC)

DOCUMENT: dict[str, Any] = {
    "name": "clicks",
    "sources": {"urls": {"schema": "url STRING, site BIGINT"}},
    "stages": {
        "count": {
            "translator": "url_count",
            "inputs": {"urls": "urls"},
            "buckets": 2,
            "keep": {"totals": {"hours": 72}},
        }
    },
}


class UrlCount(Translate):
    """Count how often each URL was seen."""

    urls = Input("url STRING, site BIGINT", route_by="url, site")
    counts = State("url STRING, site BIGINT, n BIGINT", grouping="inner")
    totals = Output("url STRING, n BIGINT")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        """Is never called here."""


class _Distribution:
    name = "cbp"


def registry(translator: type[Translate] = UrlCount) -> Registry:
    """Return a registry that knows one translator, under the name `url_count`."""
    target = f"{translator.__module__}:{translator.__qualname__}"
    point = EntryPoint("url_count", target, "cbp.translators")
    vars(point).update(dist=_Distribution())
    return Registry(["cbp"], entry_points=lambda: [point])
