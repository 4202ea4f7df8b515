"""Finds the demo's dataflow by the name under which an installed package offers it."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Mapping
from typing import Any

from cbp.model.dataflow.dataflow import Dataflow
from controller.demo.errors import DataflowMissingError
from controller.registry import Registry
from controller.settings import Settings

__all__ = ["GROUP", "NAME", "QUEUE", "compiled", "document"]

GROUP = "cbp.dataflows"
NAME = "crawl_queue"
QUEUE = "threshold.queue"


def document() -> Mapping[str, Any]:
    """Return the document to register, as JSON values.

    Raises:
        DataflowMissingError: If no installed package offers it.
    """
    for point in importlib.metadata.entry_points(group=GROUP):
        if point.name == NAME:
            found = point.load()
            made: Mapping[str, Any] = found() if callable(found) else found
            return made
    raise DataflowMissingError(NAME)


def compiled(found: Mapping[str, Any], settings: Settings) -> Dataflow:
    """Return the dataflow of a document, with the translators that the service would use."""
    return Registry(settings.allowed_packages).compile(found)
