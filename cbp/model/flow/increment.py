"""Increments: immutable, named parts of a flow.

An *output increment* holds the records that one epoch of a stage wrote to one flow. For a source,
it holds the records of one accepted file, or of several that its `batch` put together. It is named
by (flow, index). An empty increment has no files; it keeps consumers aligned.

An *input increment* that a consumer's framing made (`cbp.model.flow.framing`) is an `Increment`
too: its index counts the consumer's frames, and its files are slices.

Invariant: `records == sum(file.rows)`; slices lie inside their files.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from cbp.errors import InvariantError

FramingKey = int | str


@dataclass(frozen=True, slots=True)
class DataFile:
    """One immutable Parquet file, or a slice of its rows.

    Attributes:
        path: Relative to the dataflow's folder; `/` separated; made of ids only.
        records, bytes: Rows and size of the entire file.
        start, stop: The selected rows, `start <= row < stop`; all by default.
        buckets: For messages that were written by the bucket of their receiver: the number of
            buckets. 0 means that the rows are in the order of emission.
        refused: Code and message of the error of the author's framing function, if it failed on
            the selected rows. Their frame is set aside, not read.
    """

    path: str
    records: int
    bytes: int
    start: int = 0
    stop: int = -1
    buckets: int = 0
    refused: tuple[str, str] | None = None

    def __post_init__(self) -> None:
        if self.stop == -1:
            object.__setattr__(self, "stop", self.records)
        if self.refused is not None:
            object.__setattr__(self, "refused", tuple(self.refused))
        if self.records < 0 or self.bytes < 0 or not 0 <= self.start <= self.stop <= self.records:
            msg = (
                f"file {self.path} has {self.records} records, so a slice of it cannot go from "
                f"{self.start} to {self.stop}"
            )
            raise InvariantError(msg)

    @property
    def rows(self) -> int:
        """Number of selected rows."""
        return self.stop - self.start

    @property
    def whole(self) -> bool:
        """Whether all rows are selected."""
        return self.rows == self.records

    @property
    def share_bytes(self) -> int:
        """Bytes of the selected rows; for a slice, its share of the file."""
        return self.bytes if self.whole else self.bytes * self.rows // self.records

    def slice(self, start: int, stop: int) -> DataFile:
        """Return a slice of the selected rows, counted from 0."""
        return DataFile(self.path, self.records, self.bytes, self.start + start, self.start + stop)

    def to_json(self) -> list[Any]:
        """Return the fields as a JSON array, without final defaults; `DataFile(*json)` reads it."""
        parts: list[Any] = []
        if self.refused is not None:
            parts = [self.start, self.stop, self.buckets, list(self.refused)]
        elif self.buckets:
            parts = [self.start, self.stop, self.buckets]
        elif not self.whole:
            parts = [self.start, self.stop]
        return [self.path, self.records, self.bytes, *parts]


@dataclass(frozen=True, slots=True)
class Increment:
    """One immutable part of a flow.

    Attributes:
        flow: `source` or `stage.output`.
        index: Position in the flow, from 0 without gaps.
        framing_key: Its label; the upstream epoch by default (FrameByPrior).
        files: In order; records are ordered by (file, row).
        bindings: For messages: files that map addresses to keys (`cbp.model.dataflow.routing`).
        gone: For a source: files with the records that it takes back from earlier increments
            (`cbp.model.dataflow.replacement_obstacles`).
    """

    flow: str
    index: int
    framing_key: FramingKey
    files: tuple[DataFile, ...] = ()
    bindings: tuple[DataFile, ...] = ()
    gone: tuple[DataFile, ...] = ()

    @property
    def kept(self) -> tuple[DataFile, ...]:
        """All files that must be kept while the increment waits."""
        return (*self.files, *self.bindings, *self.gone)

    @property
    def name(self) -> str:
        """`flow/index`, unique within a dataflow."""
        return f"{self.flow}/{self.index}"

    @property
    def records(self) -> int:
        """Number of selected records over all files."""
        return sum(file.rows for file in self.files)

    @property
    def is_refused(self) -> bool:
        """Whether it is a frame of records without a framing key, about which no rule decides."""
        return bool(self.files) and all(file.refused is not None for file in self.files)

    def without_refused(self) -> Increment:
        """Return the increment without refused rows."""
        return replace(self, files=tuple(file for file in self.files if file.refused is None))

    @property
    def bytes(self) -> int:
        """Size of all files in bytes; slices count their share."""
        return sum(file.share_bytes for file in self.files)

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values; `from_json` is the inverse."""
        return {
            "flow": self.flow,
            "index": self.index,
            "framing_key": self.framing_key,
            "files": [file.to_json() for file in self.files],
            **({"bindings": [f.to_json() for f in self.bindings]} if self.bindings else {}),
            **({"gone": [f.to_json() for f in self.gone]} if self.gone else {}),
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Increment:
        """Read the output of `to_json`."""
        kinds = ("files", "bindings", "gone")
        files = (tuple(DataFile(*file) for file in value.get(name, ())) for name in kinds)
        return cls(value["flow"], value["index"], value["framing_key"], *files)
