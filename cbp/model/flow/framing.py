"""Framing (FrameBy): how one consumer cuts a flow into its own input increments, the frames.

A *frame* is an input increment whose records all have one *framing key*. It is a list of slices of
output increments (`DataFile.start`, `stop`).

- A FrameBy function with a memo is called once per record, in order: the keys `A A B A` give
  three frames. A function without a memo, or a column, groups each output increment by key, since
  its records may have been written in parallel. The keys then ascend, numbers before texts.
- A frame continues into the next output increment if that one begins with its key. The frame is
  *eligible*, and enters the connector, once a record with another key follows or a *punctuation*
  closes it. Later records with the same key begin a new frame.
- Records without a key (`Refused`) join the frame that is open when they arrive, or that their
  output increment opens. If there is none, they are a frame of their own, which is eligible
  immediately.
- Keys need no order, except for alignment (`cbp.model.dataflow.runnable.Align`).

`Framing` is the state that a connector keeps between output increments. It depends only on the flow
and its punctuations (`cbp.model.flow.punctuation`), so it can be computed again after a loss.

Invariant: the eligible frames and the open frame together hold each record of the flow once, in
order within a file (tests/cbp/model/flow/test_framing.py).

Source: CBP (SoCC'10), sections 2.2 and 4.1; punctuations: its footnote 3.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime
from itertools import groupby
from typing import Any, Self

from cbp.errors import (
    AuthorCodeError,
    AuthorStateError,
    DecisionInvalidError,
    FramingKeyError,
    author_cause,
    author_line,
    is_authors,
)
from cbp.model.author.code_fingerprint import UNKNOWN_CODE, Code
from cbp.model.author.decimals import author_decimals
from cbp.model.author.memo import json_memo
from cbp.model.author.translator_state import StateWatch
from cbp.model.flow.increment import DataFile, FramingKey, Increment
from cbp.model.json_fields import ADDED, LEFT_OUT, JsonArray, JsonFields


@dataclass(frozen=True, slots=True)
class FrameBy:
    """How to compute a record's framing key.

    Attributes:
        function: `record -> key`; with memo, `(record, memo) -> (key, memo)`. A key is a
            number, a text, a date or a time. A memo is JSON and begins as `None`.
        column: Name of the column, if the key is a column and not computed by a function.
        code: Fingerprint of the author's function; unknown for a column.
    """

    function: Callable[..., Any]
    memo: bool = False
    column: str = ""
    place: str = ""
    code: Code = field(default=UNKNOWN_CODE, compare=False)


@dataclass(frozen=True, slots=True)
class Refused:
    """In place of a framing key: why a record has none. A run of its stage sets it aside."""

    code: str
    message: str


KEYLESS = ""
"""The framing key of a frame whose records have none (`Increment.is_refused`)."""


@dataclass(frozen=True, slots=True)
class Keyed:
    """A file of an output increment; a run is a framing key with a number of successive rows."""

    file: DataFile
    runs: Sequence[tuple[FramingKey | Refused, int]]

    @classmethod
    def of(cls, file: DataFile, keys: Iterable[FramingKey | Refused]) -> Keyed:
        """Return a file with one key per row."""
        runs: list[tuple[FramingKey | Refused, int]] = []
        extend_runs(runs, keys)
        return cls(file, runs)


@dataclass(frozen=True, slots=True)
class Segment:
    """Successive records with one framing key (`None`: refused records), as slices of files."""

    key: FramingKey | None
    files: tuple[DataFile, ...]


@dataclass(frozen=True, slots=True)
class FrameNote(JsonArray):
    """A note on a consumed frame; unlike an increment of a flow, the frame itself is not kept."""

    index: int
    framing_key: FramingKey
    records: int
    bytes: int

    @classmethod
    def of(cls, frame: Increment) -> FrameNote:
        """Return the note on a frame."""
        return cls(frame.index, frame.framing_key, frame.records, frame.bytes)


@dataclass(frozen=True, slots=True)
class Framing(JsonFields):
    """The state of one connector's framing.

    Attributes:
        open: The frame that can still grow; it is not eligible.
        last: Index of the output increment that brought the last record; -1 before the first.
        closed: Whether the last arrival was a punctuation, so that no frame is open.
    """

    memo: Any = None
    next: int = 0
    open: Increment | None = None
    last: int = field(default=-1, metadata=ADDED)
    closed: bool = field(default=False, metadata=LEFT_OUT)

    def take(
        self, increment: Increment, segments: Iterable[Segment], memo: Any
    ) -> tuple[Framing, tuple[Increment, ...]]:
        """Frame one output increment, and return the frames that became eligible, in order.

        Args:
            segments: Its segments, in order.
            memo: The memo of the FrameBy function after this increment.
        """
        done: list[Increment] = []
        open_, number, last = self.open, self.next, self.last
        refused: tuple[DataFile, ...] = ()
        for segment in segments:
            last = increment.index
            if open_ is None and segment.key is None:
                refused += segment.files
                continue
            if open_ is not None and segment.key in (None, open_.framing_key):
                open_ = replace(open_, files=_joined((*open_.files, *segment.files)))
                continue
            if open_ is not None:
                done.append(open_)
            assert segment.key is not None, "a segment without a key cannot open a frame"
            files, refused = (*refused, *segment.files), ()
            open_ = Increment(increment.flow, number, segment.key, files)
            number += 1
        if refused:
            done.append(Increment(increment.flow, number, KEYLESS, refused))
            number += 1
        closed = self.closed and open_ is None
        return Framing(memo, number, open_, last, closed), tuple(done)

    def close(self) -> tuple[Framing, tuple[Increment, ...]]:
        """Apply a punctuation: make the open frame eligible, if there is one."""
        return replace(self, open=None, closed=True), () if self.open is None else (self.open,)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """Read the output of `to_json`.

        An earlier version kept records without a key in `refused`, with the number of the next
        frame, while no frame was open. They are read as an open frame that any record ends.
        """
        if value["open"] is None and value.get("refused") is not None:
            value = {**value, "open": value["refused"], "next": value["next"] + 1}
        return super(Framing, cls).from_json(value)


def framing_keys(
    records: Iterable[Any],
    frame_by: FrameBy,
    memo: Any,
    *,
    stage: str,
    input_: str,
    refuses: bool = False,
) -> tuple[list[FramingKey | Refused], Any]:
    """Return the framing key of every record, and the memo after the last one.

    Args:
        refuses: Whether a record on which the function fails gets a `Refused` instead of a key;
            the memo then stays unchanged.

    Raises:
        AuthorCodeError: The function failed.
        FramingKeyError: It returned something other than a number, a text, a date or a time.
        MemoInvalidError: Its memo is not JSON.
    """
    if refuses:
        records = list(records)
        try:
            return framing_keys(records, frame_by, memo, stage=stage, input_=input_)
        except AuthorStateError:
            raise
        except (AuthorCodeError, FramingKeyError):
            return _refusing(records, frame_by, memo, stage=stage, input_=input_)
    function = f"{input_}.frame_by"
    keys: list[FramingKey | Refused] = []
    try:
        memo = json_memo(memo)
        watch = StateWatch(frame_by.function, stage=stage, name=function, place=frame_by.place)
        with author_decimals(), watch as fresh:
            call = fresh.function
            for record in records:
                key, memo = call(record, memo) if frame_by.memo else (call(record), memo)
                keys.append(_framing_key(key))
        return keys, json_memo(memo)
    except AuthorStateError:
        raise
    except DecisionInvalidError as error:
        placed: AuthorCodeError = error.at(stage=stage, function=function, place=frame_by.place)
        if isinstance(error, FramingKeyError):
            placed.places = {input_: len(keys)}
        raise placed from error
    except BaseException as error:  # author's code may raise anything
        if not is_authors(error):
            raise
        failed = AuthorCodeError(
            stage=stage,
            function=function,
            place=author_line(error, frame_by.place),
            cause=author_cause(error, frame_by.place),
        )
        failed.places = {input_: len(keys)}
        raise failed from error


def _refusing(
    records: Iterable[Any], frame_by: FrameBy, memo: Any, *, stage: str, input_: str
) -> tuple[list[FramingKey | Refused], Any]:
    """Return the result of `framing_keys`, record by record: a failed call has no effect."""
    keys: list[FramingKey | Refused] = []
    for record in records:
        try:
            one, memo = framing_keys([record], frame_by, memo, stage=stage, input_=input_)
            keys += one
        except AuthorStateError:
            raise
        except AuthorCodeError as error:
            keys.append(Refused(error.code, error.message))
    return keys, memo


def segments(files: Iterable[Keyed], *, ordered: bool) -> list[Segment]:
    """Cut one output increment into segments; records without a key come first.

    Args:
        ordered: Whether to keep the order of the records (FrameBy with memo) instead of
            grouping them by key.
    """
    refused: list[DataFile] = []
    runs: list[tuple[FramingKey, DataFile]] = []
    for key, file in (run for keyed in files for run in _runs(keyed)):
        if isinstance(key, Refused):
            refused.append(replace(file, refused=(key.code, key.message)))
        else:
            runs.append((key, file))
    if not ordered:
        # Stable: slices of one key stay in the order of the records.
        runs.sort(key=lambda run: (isinstance(run[0], str), run[0]))
    keyless = [Segment(None, tuple(refused))] if refused else []
    return keyless + [
        Segment(key, _joined(tuple(file for _, file in run)))
        for key, run in groupby(runs, key=lambda run: run[0])
    ]


def extend_runs(
    runs: list[tuple[FramingKey | Refused, int]], keys: Iterable[FramingKey | Refused]
) -> None:
    """Add keys, one per row, to the end of a list of runs."""
    for key, same in groupby(keys):
        rows = sum(1 for _ in same)
        if runs and runs[-1][0] == key:
            rows += runs.pop()[1]
        runs.append((key, rows))


def _runs(keyed: Keyed) -> Iterable[tuple[FramingKey | Refused, DataFile]]:
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
        same = last is not None and (last.path, last.refused) == (file.path, file.refused)
        if last is not None and same and last.stop == file.start:
            joined[-1] = replace(last, stop=file.stop)
        else:
            joined.append(file)
    return tuple(joined)


def _framing_key(value: Any) -> FramingKey:
    """Return a key as it is stored; dates and times become texts that sort alike."""
    if type(value) is int or type(value) is str:
        return value
    if isinstance(value, datetime):
        # A local time occurs twice when clocks go back. In UTC, each instant is one key.
        utc = value if value.tzinfo is None else value.astimezone(UTC).replace(tzinfo=None)
        return utc.isoformat(" ", "auto")
    if isinstance(value, date):
        return value.isoformat()
    raise FramingKeyError(value)
