"""Increments: immutable, named parts of a flow.

An *output increment* is what one epoch of a stage wrote to one flow; for a
source it is what one accepted arrival brought. It is named by (flow, index)
and never changes. An empty increment has no files: it keeps consumers aligned.

Invariant: `records == sum(file.records)`; checked when it is made, so that a
lost file can never look like a smaller increment.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cbp.errors import InvariantError

__all__ = ["DataFile", "FramingKey", "Increment"]

FramingKey = int | str


@dataclass(frozen=True, slots=True)
class DataFile:
    """One immutable Parquet file.

    Attributes:
        path: Relative to the dataflow's folder; `/` separated; made of ids only.
        records: Number of rows.
        bytes: Size of the file.
    """

    path: str
    records: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Increment:
    """One immutable part of a flow.

    Attributes:
        flow: `source` or `stage.output`.
        index: Position in the flow, from 0 without gaps.
        framing_key: Its label; the upstream epoch by default (FrameByPrior).
        files: In order; the record order is (file, row).
    """

    flow: str
    index: int
    framing_key: FramingKey
    files: tuple[DataFile, ...] = ()

    def __post_init__(self) -> None:
        if any(file.records < 0 or file.bytes < 0 for file in self.files):
            msg = f"increment {self.name} has a file of negative size"
            raise InvariantError(msg)

    @property
    def name(self) -> str:
        """`flow/index`, unique within a dataflow."""
        return f"{self.flow}/{self.index}"

    @property
    def records(self) -> int:
        """Number of records over all files."""
        return sum(file.records for file in self.files)

    @property
    def bytes(self) -> int:
        """Size of all files in bytes."""
        return sum(file.bytes for file in self.files)

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values; `from_json` is the inverse."""
        return {
            "flow": self.flow,
            "index": self.index,
            "framing_key": self.framing_key,
            "files": [[file.path, file.records, file.bytes] for file in self.files],
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Increment:
        """Read what `to_json` wrote."""
        files = tuple(DataFile(path, records, size) for path, records, size in value["files"])
        return cls(value["flow"], value["index"], value["framing_key"], files)
