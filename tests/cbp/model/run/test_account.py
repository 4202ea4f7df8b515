"""The account of a run: only what is recorded, in words that name it."""

from __future__ import annotations

import json
from dataclasses import replace

from cbp.model.flow.framing import FrameNote
from cbp.model.flow.increment import DataFile, Increment
from cbp.model.run.account import changes_of, consumed, reason
from cbp.model.run.intention import Intention, TableChange
from stages.flows.set_diff import set_diff
from tests.chains import sums

NODE = sums().stages["sums"]
DIFF = set_diff().stages["diff"]


def test_the_reason_names_the_rule_and_the_increments():
    """Spans are shown as such, what stays is separate, and what looked empty is named."""
    assert reason(NODE, {"items": (3,), "plain": (4,)}, {"items": (3,), "plain": (4,)}) == (
        "RunAll decided to read increment 3 of `items`, increment 4 of `plain`, and to remove "
        "these from the queues"
    )
    assert reason(NODE, {"items": (3, 4, 5)}, {"items": (3,), "plain": (0, 2)}) == (
        "RunAll decided to read increments 3 to 5 of `items`; "
        "to remove increments 0 and 2 of `plain` unread; "
        "to keep increments 4 to 5 of `items` for later runs; "
        "nothing was read from `plain`"
    )


def test_the_reason_names_the_files():
    """As far as they are known: a file says more than the number that it got."""
    node = replace(NODE, wiring={"items": "a", "plain": "b"})
    files = {("a", 3): "monday.csv", ("a", 5): "friday.csv"}
    read = {"items": (3, 4, 5), "plain": (3,)}
    assert reason(node, read, read, files=files) == (
        "RunAll decided to read increments 3 (monday.csv) to 5 (friday.csv) of `items`, "
        "increment 3 of `plain`, and to remove these from the queues"
    )
    shown = consumed(node, read, read, {}, {}, files)
    assert [one.file for one in shown] == ["monday.csv", "", "friday.csv", ""]


def test_a_run_before_a_change_of_inputs_is_explained() -> None:
    """It may have read an input that the stage no longer has, whose flow is not known."""
    read = {"items": (3,), "former": (7,)}
    said = reason(NODE, read, read, files={("items", 3): "monday.csv"})
    assert "read increment 3 (monday.csv) of `items`, increment 7 of `former`" in said
    assert [one.index for one in consumed(NODE, read, read, {}, {})] == [3]


def test_a_run_that_read_nothing_was_started_by_a_timer() -> None:
    """It does not say that the Runnable let it run."""
    assert reason(NODE, {}, {}).startswith("a timer was due")
    assert reason(NODE, {"items": (), "plain": ()}, {}).startswith("a timer was due")


def test_a_long_list_is_cut():
    """A run of thousands of increments that are no span still has a short reason."""
    said = reason(NODE, {"items": tuple(range(0, 4000, 2))}, {})
    assert "and 1990 more" in said
    assert len(said) < 400


def test_what_a_run_took_is_told_by_increment():
    """Read and removed are separate; what nothing knows any more has no size."""
    known = {("items", 3): Increment("items", 3, "x", (DataFile("f", 5, 70),))}
    first, second = consumed(NODE, {"items": (3,)}, {"items": (2,)}, known, {})
    assert (first.index, first.read, first.removed, first.records) == (2, False, True, None)
    assert (second.index, second.read, second.removed) == (3, True, False)
    assert (second.framing_key, second.records, second.bytes) == ("x", 5, 70)


def test_a_frame_is_no_increment_of_its_flow():
    """Its number is the input's own: the flow's increment of that number is not shown for it."""
    known = {("a", 0): Increment("a", 0, 0, (DataFile("f", 5, 70),))}
    (unknown,) = consumed(DIFF, {"a": (0,)}, {"a": (0,)}, known, {})
    assert (unknown.frame, unknown.framing_key, unknown.records) == (True, None, None)
    notes = {"a": (FrameNote(0, "2026-11", 3, 42),), "b": (FrameNote(0, "other", 9, 9),)}
    (frame,) = consumed(DIFF, {"a": (0,)}, {"a": (0,)}, known, notes)
    assert (frame.framing_key, frame.records, frame.bytes) == ("2026-11", 3, 42)


def test_the_reason_names_frames_by_their_keys():
    """Frames are not called increments; the key of one that nothing knows any more is left out."""
    notes = {"a": tuple(FrameNote(n, f"day {n}", 1, 1) for n in (1, 2, 3, 5))}
    said = reason(DIFF, {"a": (1, 2, 3), "b": (0,)}, {"a": (1, 5)}, None, notes)
    assert "read frames 1 (key day 1) to 3 (key day 3) of `a`, frame 0 of `b`;" in said
    assert "remove frame 5 (key day 5) of `a` unread" in said
    assert "keep frames 2 (key day 2) to 3 (key day 3) of `a`, frame 0 of `b` for" in said


def test_changes_are_counted_from_the_record():
    """Files, rows of new files, and rows deleted from files that stay."""
    adds = tuple({"path": p, "stats": json.dumps({"numRecords": 4})} for p in "ab")
    change = TableChange("state/s.t", adds, ("c",), {"d": {"rows": 3}}, data_change=False)
    record = Intention("f", "s", 0, "r", 1, {}, {}, {}, (change,))
    (told,) = changes_of(record)
    assert (told.files_added, told.files_dropped, told.rows_added, told.rows_deleted) == (
        2,
        1,
        8,
        3,
    )
    assert told.compaction
