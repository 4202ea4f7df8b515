"""What a user may choose about the demo."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

__all__ = ["INCREMENTS", "DemoOptions", "Engine"]

INCREMENTS = 5

Engine = Literal["spark", "local"]


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """Choices of one call.

    Attributes:
        keep: Leave the service running, and its folder where it is.
        root: Folder in which this call makes a new one that stays; `None`: a temporary one.
        as_json: Print one JSON document at the end and nothing else.
        increments: Increments before the last one.
        engine: `local` runs the same files and tables without Spark.
        limit: Most modules to take, spread evenly; `None`: all.
        stdlib: Take the standard library too, as further sites.
        port: Of the service, if it is free; else any other one.
    """

    keep: bool = False
    root: Path | None = None
    as_json: bool = False
    increments: int = INCREMENTS
    engine: Engine = "spark"
    limit: int | None = None
    stdlib: bool = False
    port: int = 8420
