"""Loops inside each other: whose messages come next, and what an end of a loop takes along."""

from __future__ import annotations

import pytest

from cbp.model.graph.loop_nesting import Nesting

LOOPS = Nesting({"years": "", "months": "years", "days": "months", "weeks": "years", "tides": ""})


@pytest.mark.parametrize(
    ("waiting", "comes"),
    [
        ("", ""),
        ("years", "years"),
        ("years months", "months"),
        ("years days", "days"),
        ("years months days weeks", "days weeks"),
        ("months weeks tides", "months weeks tides"),
        ("years tides", "years tides"),
    ],
)
def test_the_innermost_loops_with_messages_come_next(waiting: str, comes: str) -> None:
    """Those that are not inside each other come together, at whatever depths they are."""
    assert LOOPS.next_of(waiting.split()) == set(comes.split())


@pytest.mark.parametrize(
    ("ends", "read", "gone"),
    [
        ([], "days", ""),
        (["months"], "days", "months days"),
        (["months"], "months", "months days"),
        (["months"], "years weeks tides", ""),
        (["days", "weeks"], "weeks", "weeks"),
        ([""], "tides", "years months days weeks tides"),
        ([""], "", ""),
        (["years"], "weeks", "years months days weeks"),
    ],
)
def test_a_loop_ends_with_all_inside_it(ends: list[str], read: str, gone: str) -> None:
    """But only after a step that was part of it: one that starts a loop does not end it."""
    assert LOOPS.ended(ends, read.split()) == set(gone.split())


def test_only_messages_of_loops_around_others_wait() -> None:
    """Where there are none, all loops are as one."""
    assert LOOPS.around_others == {"years", "months"}
    flat = Nesting({"a": "", "b": ""})
    assert not flat.around_others
    assert flat.next_of({"a", "b"}) == {"a", "b"}


def test_a_cycle_is_found() -> None:
    """Its length does not matter; a loop that is only inside of a cycle is not on it."""
    loops = Nesting({"a": "b", "b": "a", "c": "a", "d": "d"})
    assert [loop for loop in loops.outer if loops.is_cyclic(loop)] == ["a", "b", "d"]
