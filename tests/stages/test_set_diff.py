"""Set difference by hours, against Python's sets."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cbp import dataflow_from_document
from cbp.engine.direct import LocalEngine
from cbp.errors import AlignmentError
from cbp.testing import Result, run_epochs
from stages.flows.set_diff import document, set_diff
from stages.translators.set_diff import SetDiff
from tests.driver import Driver
from tests.stages.reference_set_diff import Crawl, diffs, oracle

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)


def at(hour: float, *urls: str) -> Crawl:
    return [(url, NOON + timedelta(hours=hour)) for url in urls]


def cut(crawl: Crawl, places: list[int]) -> list[Crawl]:
    """Cut a crawl into increments at these places."""
    edges = [0, *sorted({min(place, len(crawl)) for place in places}), len(crawl)]
    return [crawl[i:j] for i, j in pairwise(edges)]


def run(a: list[Crawl], b: list[Crawl], *, at_once: bool = False) -> Result:
    """Run over increments of both sides; of one that is exhausted, empty ones come."""
    empty: list[Crawl] = [[]]
    count = max(len(a), len(b))
    a, b = a + empty * (count - len(a)), b + empty * (count - len(b))
    epochs = [{"a": left, "b": right} for left, right in zip(a, b, strict=True)]
    return run_epochs(SetDiff, epochs, at_once=at_once, close=True)


def test_set_diff_over_two_hours() -> None:
    """Found by one side in an hour: reported; by both, or seen before: not."""
    a = at(0, "x", "y") + at(1, "z", "y")
    b = at(0.5, "x", "w") + at(1, "y", "w", "v")
    assert diffs(run([a], [b])) == {"a": [{"y"}, {"z"}], "b": [{"w"}, {"v"}]}


def test_a_silent_hour_keeps_nobody_waiting() -> None:
    """The side with the smaller hour is read alone."""
    assert diffs(run([at(0, "x") + at(2, "y")], [at(1, "x") + at(2, "y")])) == {
        "a": [{"x"}, set(), set()],
        "b": [set(), set(), set()],
    }


def test_an_hour_is_read_once_both_sides_have_ended_it() -> None:
    """Without a later record, or a close, an hour may still grow."""
    epochs = [{"a": at(0, "x") + at(1, "y"), "b": at(0, "x")}]
    assert run_epochs(SetDiff, epochs).outputs["a_diff"] == []
    epochs.append({"b": at(1, "z")})
    assert len(run_epochs(SetDiff, epochs).outputs["a_diff"]) == 1


def test_hours_never_go_back() -> None:
    """A record of an hour that was read already is an error, not a wrong answer."""
    with pytest.raises(AlignmentError):
        run([at(1, "x"), at(2, "x"), at(0, "y"), at(3, "y")], [at(1, "x"), at(4, "x")])


CRAWLS = st.lists(st.tuples(st.sampled_from("uvwxyz"), st.integers(0, 20)), max_size=20).map(
    lambda found: [
        (url, NOON + timedelta(minutes=20 * slot))
        for url, slot in sorted(found, key=lambda r: r[1] // 3)
    ]
)
PLACES = st.lists(st.integers(0, 20), max_size=4)


@given(CRAWLS, CRAWLS, PLACES, PLACES, st.booleans())
def test_any_split_into_increments_gives_the_sets_of_each_hour(
    a: Crawl, b: Crawl, cuts_a: list[int], cuts_b: list[int], at_once: bool
) -> None:
    """However arrivals cut the hours, in any order within one: the oracle's sets.

    Up to the end of one side: behind its last hour, the other one waits for it.
    """
    differences = diffs(run(cut(a, cuts_a), cut(b, cuts_b), at_once=at_once))
    expected = oracle(a, b)
    for side in "ab":
        assert differences[side] == expected[side][: len(differences[side])]
    if a and b:
        ends = min(a[-1][1], b[-1][1]).replace(minute=0)
        hours = {at_.replace(minute=0) for _, at_ in a + b}
        assert len(differences["a"]) >= sum(hour <= ends for hour in hours)


def test_the_document_and_the_builder_give_the_same_dataflow() -> None:
    """What is registered is what the Python text says."""
    registered, built = dataflow_from_document(document(), lambda *_: SetDiff()), set_diff()
    assert (registered.name, registered.sources) == (built.name, built.sources)
    assert {n: dict(s.wiring) for n, s in registered.stages.items()} == {
        n: dict(s.wiring) for n, s in built.stages.items()
    }


def test_the_direct_engine_reads_the_same_hours(tmp_path: Path) -> None:
    """Hours as slices of files: the oracle's sets, up to the end of one side."""
    a = at(0, "x", "y") + at(1, "z", "y") + at(2, "q")
    b = at(0.5, "x", "w") + at(1, "y", "w", "v") + at(3, "q")
    driver = Driver(LocalEngine(cache=str(tmp_path / "cache")), set_diff(), tmp_path / "t")
    for left, right in zip(cut(a, [1, 4]), cut(b, [3, 5]), strict=True):
        driver.feed("a", [{"url": url, "time": time} for url, time in left])
        driver.feed("b", [{"url": url, "time": time} for url, time in right])
        driver.run_until_idle()
    for side in "ab":
        actual = [{row["url"] for row in epoch} for epoch in driver.outputs(f"diff.{side}_diff")]
        assert actual == oracle(a, b)[side][:2]


def test_hours_that_the_other_side_closed_without_are_read() -> None:
    """Both sides are closed: what only one of them has is its difference, hour by hour."""
    a, b = at(1, "x") + at(2, "y") + at(3, "z"), at(1, "x")
    assert diffs(run([a], [b])) == oracle(a, b) == {"a": [set(), {"y"}, {"z"}], "b": [set()] * 3}
    assert diffs(run([a], [[]])) == oracle(a, [])
