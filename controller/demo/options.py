"""The options of the demo."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

__all__ = ["INCREMENTS", "DemoOptions", "Engine"]

INCREMENTS = 5

Engine = Literal["spark", "local"]


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """Options of one call.

    Attributes:
        keep: Leave the service running, and keep its folder.
        root: Folder in which this call creates a new one that stays; `None` means a temporary one.
        as_json: Print one JSON document at the end and nothing else.
        increments: Number of increments before the last one.
        engine: `local` runs the same files and tables without Spark.
        limit: Maximum number of modules to read, spread evenly; `None` means all.
        stdlib: Read the standard library too, as further sites.
        port: Port of the service, if it is free; else another one.
    """

    keep: bool = False
    root: Path | None = None
    as_json: bool = False
    increments: int = INCREMENTS
    engine: Engine = "spark"
    limit: int | None = None
    stdlib: bool = False
    port: int = 8420
