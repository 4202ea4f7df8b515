"""FrameBy: slices of output increments, by key, over any number of them.

Frames are the records of their flow, each once, however increments cut them.
"""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import chain, groupby
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cbp.errors import AuthorCodeError, FramingKeyError, InvariantError, MemoInvalidError
from cbp.model.flow.framing import FrameBy, Framing, Keyed, Refused, framing_keys, segments
from cbp.model.flow.increment import DataFile, Increment

Increments = list[list[list[str]]]
"""Output increments, of files, of the framing keys of their rows."""

INCREMENTS = st.lists(st.lists(st.lists(st.sampled_from("AB"), max_size=6), max_size=3), max_size=5)


def frames(increments: Increments, *, ordered: bool, close: bool = True) -> list[Increment]:
    framing, done = Framing(), list[Increment]()
    for i, files in enumerate(increments):
        keyed = [Keyed.of(DataFile(f"{i}/{j}", len(k), 10), k) for j, k in enumerate(files)]
        framing, more = framing.take(
            Increment("flow", i, i), segments(keyed, ordered=ordered), None
        )
        done += more
        assert Framing.from_json(framing.to_json()) == framing
    return [*done, *framing.close()[1]] if close else done


def rows(frame: Increment) -> list[tuple[str, int]]:
    return [(file.path, row) for file in frame.files for row in range(file.start, file.stop)]


@given(INCREMENTS)
def test_one_ordered_pass_cuts_at_every_change_of_key(increments: Increments) -> None:
    """With a memo: A A B A are three, whichever files and increments they lie in."""
    keys = list(chain.from_iterable(chain.from_iterable(increments)))
    expected = [(key, len(list(run))) for key, run in groupby(keys)]
    actual = frames(increments, ordered=True)
    assert [(frame.framing_key, frame.records) for frame in actual] == expected
    assert [frame.index for frame in actual] == list(range(len(actual)))
    every = [row for frame in actual for row in rows(frame)]
    assert every == [
        (f"{i}/{j}", row)
        for i, files in enumerate(increments)
        for j, file in enumerate(files)
        for row in range(len(file))
    ]


@given(INCREMENTS)
def test_without_memo_an_increment_is_grouped_by_key(increments: Increments) -> None:
    """Each record is in one frame of its key; no key is twice in one output increment."""
    actual = frames(increments, ordered=False)
    per_increment = [sorted(set(chain.from_iterable(files))) for files in increments]
    expected = [key for key, _ in groupby(chain.from_iterable(per_increment))]
    assert [frame.framing_key for frame in actual] == expected
    every = [row for frame in actual for row in rows(frame)]
    assert len(every) == len(set(every)) == sum(len(f) for files in increments for f in files)
    for frame in actual:
        assert rows(frame) == sorted(rows(frame))
        for path, row in rows(frame):
            i, j = map(int, path.split("/"))
            assert increments[i][j][row] == frame.framing_key


def test_a_frame_is_eligible_once_another_key_is_behind_it() -> None:
    """The last one stays open, and grows over increments; a close ends it for good."""
    increments: Increments = [[["A", "A"]], [["A", "B"]], [[]], [["B"]]]
    assert [f.framing_key for f in frames(increments, ordered=True, close=False)] == ["A"]
    framing, (first,) = Framing(open=Increment("flow", 3, "A", ()), next=4).close()
    assert (first.index, framing.close()) == (3, (framing, ()))
    actual = segments([Keyed.of(DataFile("x", 1, 1), "A")], ordered=True)
    behind, done = framing.take(Increment("flow", 9, 9), actual, 0)
    assert behind.last == 9
    assert (done, behind.open and behind.open.index) == ((), 4)


def test_slices_that_touch_are_joined() -> None:
    """A frame over a whole file names it whole, however it was met."""
    (frame,) = frames([[["A", "A", "A"]]], ordered=True)
    assert frame.files == (DataFile("0/0", 3, 10),)
    assert frame.files[0].whole
    a, b = frames([[["A", "B", "A"]]], ordered=False)
    assert [(f.start, f.stop) for f in a.files] == [(0, 1), (2, 3)]
    assert (a.records, a.bytes, b.records) == (2, 6, 1)
    assert Increment.from_json(a.to_json()) == a


@pytest.mark.parametrize("slice_", [(-2, 1), (2, 1), (0, 4)])
def test_a_slice_lies_inside_its_file(slice_: tuple[int, int]) -> None:
    """A slice that reaches further would silently lose or invent records."""
    with pytest.raises(InvariantError):
        DataFile("x", 3, 10, *slice_)


def ask(function: Any, *records: Any, memo: bool = False) -> Any:
    code = function.__code__
    frame_by = FrameBy(function, memo, "", f"{code.co_filename}:{code.co_firstlineno}")
    return framing_keys(records, frame_by, None, stage="diff", input_="a")


def test_a_function_with_memo_passes_once_in_order() -> None:
    """Its memo goes from record to record, and on to the next increment."""
    keys, memo = ask(lambda r, n: ((n or 0) // 2, (n or 0) + 1), "a", "b", "c", memo=True)
    assert (keys, memo) == ([0, 0, 1], 3)


@pytest.mark.parametrize("key", [None, 1.5, True, ("a",), b"x"])
def test_a_key_is_a_number_a_text_or_a_time(key: Any) -> None:
    """Anything else is a coded error with stage, function and place."""
    with pytest.raises(FramingKeyError) as refused:
        ask(lambda record: key, 1)
    details = refused.value.details
    assert (details["stage"], details["function"]) == ("diff", "a.frame_by")
    assert details["place"].startswith(__file__)


def test_other_mistakes_of_the_function_are_coded() -> None:
    """What it raises, and a memo that is not JSON."""
    with pytest.raises(AuthorCodeError) as failed:
        ask(lambda record: record.nothing, 1)
    assert failed.value.code == "author_code_failed"
    with pytest.raises(MemoInvalidError):
        ask(lambda record, memo: ("k", {1}), 1, memo=True)


def test_a_time_with_a_zone_is_a_time_not_what_a_clock_shows() -> None:
    """When clocks go back one hour comes twice: those are two keys, and they ascend.

    One instant is one key in whatever zone it is written, and what has no zone stays as it is.
    """
    berlin = ZoneInfo("Europe/Berlin")
    twice = [datetime(2026, 10, 25, 2, 30, tzinfo=berlin, fold=fold) for fold in (0, 1)]
    keys, _ = ask(lambda record: record, *twice)
    assert keys == ["2026-10-25 00:30:00", "2026-10-25 01:30:00"]
    plain = datetime(2026, 10, 25, 1, 30)  # noqa: DTZ001 - of a column without a zone
    assert ask(lambda record: record, twice[1].astimezone(UTC), plain)[0] == [keys[1]] * 2


def test_records_without_a_key_go_with_the_open_frame_or_alone() -> None:
    """With the first frame that is open after their increment; a frame of their own otherwise."""
    refused = Refused("author_code_failed", "no frame")

    def take(framing: Framing, index: int, *keys: Any) -> tuple[Framing, list[Any]]:
        file = DataFile(f"flows/f/{index}", len(keys), 10)
        cut = segments([Keyed.of(file, keys)], ordered=False)
        framing, done = framing.take(Increment("f", index, index, (file,)), cut, None)
        return framing, [(one.index, one.framing_key, one.records, one.is_refused) for one in done]

    alone, done = take(Framing(), 0, refused, refused)
    assert done == [(0, "", 2, True)]
    assert (alone.open, alone.next) == (None, 1)
    opened, done = take(alone, 1, refused, 7, 8)
    assert done == [(1, 7, 2, False)]
    assert opened.open is not None
    grown, done = take(opened, 2, refused)
    assert done == []
    assert grown.open is not None
    assert grown.open.records == 2
    closed, _ = grown.close()
    _, done = take(closed, 3, refused)
    assert done == [(3, "", 1, True)]


def test_records_without_a_key_that_an_earlier_version_kept_apart_are_an_open_frame() -> None:
    """They keep their number, and the next record with a key ends their frame and opens its own."""
    file = DataFile("flows/f/0", 2, 10, refused=("author_code_failed", "no frame"))
    apart = Increment("f", 3, "", (file,)).to_json()
    framing = Framing.from_json(
        {"memo": None, "next": 3, "open": None, "last": 0, "refused": apart}
    )
    later = DataFile("flows/f/1", 1, 10)
    cut = segments([Keyed.of(later, [7])], ordered=False)
    framing, done = framing.take(Increment("f", 1, 1, (later,)), cut, None)
    assert [(one.index, one.records, one.is_refused) for one in done] == [(3, 2, True)]
    assert framing.open is not None
    assert (framing.open.index, framing.open.framing_key, framing.next) == (4, 7, 5)
