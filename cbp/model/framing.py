"""FrameBy: how one consumer cuts a flow into its own input increments.

A *framing key* is computed from every record; a *frame*, the input increment, is what has
one key. It is a list of slices of output increments (`DataFile.start`, `stop`): nothing is
copied, and another consumer may frame the same flow in another way.

- A function with a memo goes over the records in order, one pass: `A A B A` are three
  frames. A function without memo, or a column, groups each output increment by key, since
  its records may have been written in parallel: keys ascending, numbers before texts.
- A frame goes on over output increments while the next one begins with its key. It is
  *eligible*, and enters the connector, once another key is seen behind it, or a
  *punctuation* closes it. Records of its key behind that are a new frame.
- Keys need no order; only alignment does (`cbp.model.runnable.Align`).

`Framing` is what a connector remembers between output increments: plain JSON, a function
of the flow and its punctuations (`cbp.model.punctuation`) alone, so that it can be computed
again after a loss.

Invariant: the frames and the open one, put together, are the records of the flow, each
once, and in order within a file (tests/cbp/model/test_framing.py).

Source: CBP (SoCC'10), sections 2.2 and 4.1; punctuations: its footnote 3.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime
from itertools import groupby
from typing import Any

from cbp.errors import AuthorCodeError, DecisionInvalidError, FramingKeyError
from cbp.model.increment import DataFile, FramingKey, Increment
from cbp.model.memo import json_memo

__all__ = [
    "FrameBy",
    "FrameNote",
    "Framing",
    "Keyed",
    "Segment",
    "extend_runs",
    "framing_keys",
    "segments",
]


@dataclass(frozen=True, slots=True)
class FrameBy:
    """What gives a record's framing key.

    Attributes:
        function: `record -> key`; with memo, `(record, memo) -> (key, memo)`. A key is a
            number, a text, a date or a time; one with a zone counts in UTC.
        memo: Whether it remembers; its memo is JSON and `None` at first.
        column: The column that it reads, where it is no function of the author's.
        place: `file.py:12` of the function.
        code: Fingerprint of the author's function; `""`: not known, or none of the author's.
    """

    function: Callable[..., Any]
    memo: bool = False
    column: str = ""
    place: str = ""
    code: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class Keyed:
    """A file of an output increment with the framing keys of its rows.

    Attributes:
        runs: Framing key and number of rows that follow each other with it, in order.
    """

    file: DataFile
    runs: Sequence[tuple[FramingKey, int]]

    @classmethod
    def of(cls, file: DataFile, keys: Iterable[FramingKey]) -> Keyed:
        """Return a file with one key per row."""
        runs: list[tuple[FramingKey, int]] = []
        extend_runs(runs, keys)
        return cls(file, runs)


@dataclass(frozen=True, slots=True)
class Segment:
    """Records of one framing key that lie together, as slices of files."""

    key: FramingKey
    files: tuple[DataFile, ...]


@dataclass(frozen=True, slots=True)
class FrameNote:
    """What is told of a frame once it is consumed: unlike an increment of a flow, it is gone then.

    Attributes:
        index: Its number among the frames of its input.
        bytes: Of slices, their share of their files.
    """

    index: int
    framing_key: FramingKey
    records: int
    bytes: int

    @classmethod
    def of(cls, frame: Increment) -> FrameNote:
        """Return what is told of a frame."""
        return cls(frame.index, frame.framing_key, frame.records, frame.bytes)

    def to_json(self) -> list[Any]:
        """Return plain JSON values: `[index, framing key, records, bytes]`."""
        return [self.index, self.framing_key, self.records, self.bytes]


@dataclass(frozen=True, slots=True)
class Framing:
    """Where the framing of one connector stands.

    Attributes:
        memo: Of the FrameBy function.
        next: Number of the next frame.
        open: The frame that may still grow; not eligible.
        last: Index of the output increment that brought the last record; -1: none did.
    """

    memo: Any = None
    next: int = 0
    open: Increment | None = None
    last: int = -1

    def take(
        self, increment: Increment, found: Iterable[Segment], memo: Any
    ) -> tuple[Framing, tuple[Increment, ...]]:
        """Go over one output increment.

        Args:
            increment: The next one of the flow.
            found: Its segments, in order.
            memo: What the function remembers behind it.

        Returns:
            The framing behind it, and the frames that became eligible, in order.
        """
        done: list[Increment] = []
        open_, number, last = self.open, self.next, self.last
        for segment in found:
            last = increment.index
            if open_ is not None and open_.framing_key == segment.key:
                open_ = replace(open_, files=_joined((*open_.files, *segment.files)))
                continue
            if open_ is not None:
                done.append(open_)
            open_ = Increment(increment.flow, number, segment.key, segment.files)
            number += 1
        return Framing(memo, number, open_, last), tuple(done)

    def close(self) -> tuple[Framing, tuple[Increment, ...]]:
        """Make the open frame eligible, if there is one: a punctuation."""
        return replace(self, open=None), () if self.open is None else (self.open,)

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values; `from_json` is the inverse."""
        open_ = None if self.open is None else self.open.to_json()
        return {"memo": self.memo, "next": self.next, "open": open_, "last": self.last}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Framing:
        """Read what `to_json` wrote."""
        open_ = None if value["open"] is None else Increment.from_json(value["open"])
        return cls(value["memo"], value["next"], open_, value.get("last", -1))


def framing_keys(
    records: Iterable[Any], frame_by: FrameBy, memo: Any, *, stage: str, input_: str
) -> tuple[list[FramingKey], Any]:
    """Return the framing key of every record, and the memo behind them.

    Raises:
        AuthorCodeError: The function failed.
        FramingKeyError: It gave something else than a number, a text, a date or a time.
        MemoInvalidError: Its memo is not JSON.
    """
    function, keys = f"{input_}.frame_by", []
    try:
        memo = json_memo(memo)
        for record in records:
            if frame_by.memo:
                key, memo = frame_by.function(record, memo)
            else:
                key = frame_by.function(record)
            keys.append(_framing_key(key))
        return keys, json_memo(memo)
    except DecisionInvalidError as error:
        raise error.at(stage=stage, function=function, place=frame_by.place) from error
    except Exception as error:  # author's code may raise anything
        file = frame_by.place.rpartition(":")[0]
        trace = traceback.extract_tb(error.__traceback__)
        lines = [frame.lineno for frame in trace if frame.filename == file]
        raise AuthorCodeError(
            stage=stage,
            function=function,
            place=f"{file}:{lines[-1]}" if lines else frame_by.place,
            cause=f"{type(error).__name__}: {error}",
        ) from error


def segments(files: Iterable[Keyed], *, ordered: bool) -> list[Segment]:
    """Cut one output increment; pure.

    Args:
        files: In order; a file without rows gives nothing.
        ordered: Keep the order of the records (FrameBy with memo), else group by key.
    """
    runs = [run for file in files for run in _runs(file)]
    if not ordered:
        # Stable: slices of one key stay in the order of the records.
        runs.sort(key=lambda run: (isinstance(run[0], str), run[0]))
    return [
        Segment(key, _joined(tuple(file for _, file in run)))
        for key, run in groupby(runs, key=lambda run: run[0])
    ]


def extend_runs(runs: list[tuple[FramingKey, int]], keys: Iterable[FramingKey]) -> None:
    """Add keys, one per row, to the end of a list of runs."""
    for key, same in groupby(keys):
        rows = sum(1 for _ in same)
        if runs and runs[-1][0] == key:
            rows += runs.pop()[1]
        runs.append((key, rows))


def _runs(keyed: Keyed) -> Iterable[tuple[FramingKey, DataFile]]:
    """Yield the slices of one file whose rows have one key each, in order."""
    start = 0
    for key, rows in keyed.runs:
        stop = start + rows
        yield key, keyed.file.slice(start, stop)
        start = stop


def _joined(files: Sequence[DataFile]) -> tuple[DataFile, ...]:
    """Join slices that follow each other in one file."""
    joined: list[DataFile] = []
    for file in files:
        last = joined[-1] if joined else None
        if last is not None and last.path == file.path and last.stop == file.start:
            joined[-1] = replace(last, stop=file.stop)
        else:
            joined.append(file)
    return tuple(joined)


def _framing_key(value: Any) -> FramingKey:
    """Return a key as it is kept: times, in UTC if they have a zone, and dates become texts.

    Those sort like what they stand for.
    """
    if type(value) in (int, str):
        key: FramingKey = value
        return key
    if isinstance(value, datetime):
        # A local time comes twice when clocks go back: one time is one key, in UTC.
        utc = value if value.tzinfo is None else value.astimezone(UTC).replace(tzinfo=None)
        return utc.isoformat(" ", "auto")
    if isinstance(value, date):
        return value.isoformat()
    raise FramingKeyError(value)
