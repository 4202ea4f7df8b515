"""The stages of the crawl queue behind the counts, one by one, up to the view."""

from __future__ import annotations

from itertools import chain
from math import log2
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cbp.errors import AuthorCodeError, DefinitionError
from cbp.testing import check_split, run_epochs
from stages.translators.merge import Merge
from stages.translators.merge_counts import MergeCounts
from stages.translators.merge_counts_arrow import MergeCountsArrow
from stages.translators.score_candidates import ScoreCandidates
from stages.translators.threshold_view import ThresholdView
from stages.translators.threshold_view_arrow import ThresholdViewArrow
from tests.stages.crawl import arrivals, crawl_state, site_of

GROUPINGS = st.sampled_from(["inner", "outer"])


class MergeKept(MergeCounts):
    """The form with kept state; it calls no site for its state alone, whatever the grouping."""

    def __init__(self, grouping: Any = "inner") -> None:
        super().__init__(keep=True)


MERGES = pytest.mark.parametrize("merge", [MergeCounts, MergeCountsArrow, MergeKept])
VIEWS = pytest.mark.parametrize("view", [ThresholdView, ThresholdViewArrow])
"""All forms of a stage: they hold, emit and refuse the same."""


# --- merge -----------------------------------------------------------------------------


@MERGES
def test_merge_over_two_epochs(merge: Any) -> None:
    """New and changed URLs come out; a candidate that is crawled is done once, and silent then."""
    result = run_epochs(
        merge,
        [
            {
                "url_counts": [("a", "a.x", 1), ("a", "a.y", 2)],
                "site_counts": [("a", 3)],
                "crawled": [("a.z", "a")],
            },
            {
                "url_counts": [("a", "a.x", 4), ("a", "a.y", 3), ("a", "a.z", 1)],
                "site_counts": [("a", 8)],
                "crawled": [("a.x", "a"), ("a.z", "a")],
            },
        ],
    )
    assert result.outputs["candidates"] == [
        [("a", "a.x", 1, 3), ("a", "a.y", 2, 3)],
        [("a", "a.y", 3, 8)],
    ]
    assert result.outputs["done"] == [[], [("a", "a.x")]]
    assert result.state["known"] == [
        ("a", None, 8, False),
        ("a", "a.x", 4, True),
        ("a", "a.y", 3, False),
        ("a", "a.z", 1, True),
    ]


@MERGES
@given(arrivals(), GROUPINGS)
def test_merge_of_any_split_leaves_the_same_candidates(
    merge: Any, epochs: list[dict[str, list[Any]]], grouping: Any
) -> None:
    """State, and what is a candidate and not done, do not depend on what came when."""
    result = run_epochs(merge(grouping), epochs)
    urls, crawled = crawl_state(epochs)
    sites = {site: n for epoch in epochs for site, n in epoch["site_counts"]}
    known = {row.url: (row.n, row.crawled) for row in result.state["known"] if row.url is not None}
    assert known == {url: (urls.get(url, 0), url in crawled) for url in {*urls, *crawled}}
    of_site = {row.site: row.n for row in result.state["known"] if row.url is None}
    assert of_site == {site_of(url): sites.get(site_of(url), 0) for url in {*urls, *crawled}}
    left: dict[str, int] = {}
    for candidates, done in zip(*map(result.outputs.get, ("candidates", "done")), strict=True):
        for row in done:
            del left[row.url]  # it was one in an earlier epoch, and is done once
        left |= {row.url: row.n for row in candidates}
    assert left == {url: n for url, n in urls.items() if url not in crawled}


@MERGES
@given(arrivals())
def test_merge_tells_what_the_former_merge_told(
    merge: Any, epochs: list[dict[str, list[Any]]]
) -> None:
    """Epoch by epoch, but for pages that were crawled before anything linked to them."""
    result, former = run_epochs(merge, epochs), run_epochs(Merge, epochs)
    assert result.state == former.state
    linked: set[str] = set()
    for number, rows in enumerate(former.outputs["candidates"]):
        candidates = [tuple(row)[:-1] for row in rows if not row.crawled]
        assert [tuple(row) for row in result.outputs["candidates"][number]] == candidates
        done = [(row.site, row.url) for row in rows if row.crawled and row.url in linked]
        assert [tuple(row) for row in result.outputs["done"][number]] == done
        linked |= {row[1] for row in candidates}


@MERGES
@pytest.mark.parametrize(
    "arrived",
    [{"url_counts": [("a", None, 1)]}, {"crawled": [(None, "a")]}],
    ids=["count", "crawl"],
)
def test_what_has_no_url_fails_the_run(merge: Any, arrived: dict[str, list[Any]]) -> None:
    """It would be taken for the record of the site itself."""
    with pytest.raises(AuthorCodeError) as caught:
        run_epochs(merge, [{"url_counts": [("a", "a.x", 1)]}, arrived])
    module = MergeCounts.__module__ if merge is MergeKept else merge.__module__
    assert f"{module.rpartition('.')[2]}.py:" in caught.value.details["place"]


def test_an_unknown_grouping_is_refused() -> None:
    """At registration."""
    for stage in (MergeCounts, MergeCountsArrow):
        with pytest.raises(DefinitionError, match="'inner' or 'outer'"):
            stage("left").spec()  # type: ignore[arg-type]


def test_kept_state_has_no_outer_grouping() -> None:
    """A site that no record names has nothing to do, and is not called for its state."""
    with pytest.raises(DefinitionError) as caught:
        MergeCounts("outer", keep=True).spec()
    assert caught.value.mistake.code == "keep_unsupported"


# --- score -----------------------------------------------------------------------------


def test_score_over_two_epochs() -> None:
    """Counts of the URL and of its site both raise the score."""
    result = run_epochs(ScoreCandidates(site_weight=0.5), [[("a", "x", 1, 3)], [("a", "x", 3, 7)]])
    assert result.outputs["scored"] == [
        [("a", "x", log2(2) + 0.5 * log2(4))],
        [("a", "x", log2(4) + 0.5 * log2(8))],
    ]


@given(
    st.tuples(st.integers(0, 9), st.integers(0, 9)), st.tuples(st.integers(0, 9), st.integers(0, 9))
)
def test_a_score_never_falls_while_counts_grow(
    start: tuple[int, int], growth: tuple[int, int]
) -> None:
    """So a URL that entered the queue is not below the threshold later."""
    end = (start[0] + growth[0], start[1] + growth[1])
    rows = [("a", "a.x", n, site_n) for n, site_n in (start, end)]
    ((before, after),) = run_epochs(ScoreCandidates, [rows]).outputs["scored"]
    assert after.score >= before.score


@pytest.mark.parametrize("weight", [-0.1, float("nan")])
def test_a_negative_site_weight_is_refused(weight: float) -> None:
    """It would let scores fall."""
    with pytest.raises(ValueError, match="site_weight"):
        ScoreCandidates(weight)


def test_a_candidate_without_count_fails_the_run() -> None:
    """A score cannot be guessed."""
    with pytest.raises(AuthorCodeError) as caught:
        run_epochs(ScoreCandidates, [[("a", "a.x", None, 1)]])
    assert "score_candidates.py:" in caught.value.details["place"]


# --- threshold --------------------------------------------------------------------------

URL = st.tuples(st.sampled_from(["a", None]), st.sampled_from("xyz"))
SCORED = st.lists(st.lists(st.tuples(URL, st.integers(0, 4)), max_size=5), max_size=4)


@VIEWS
def test_threshold_over_three_epochs(view: Any) -> None:
    """The minimum is in the queue, less is not; what is done is deleted, the rest stays."""
    epochs: list[Any] = [
        {"scored": [("a", "x", 2.0), ("a", "y", 1.9), ("b", "x", 3.0)]},
        {"scored": [("a", "y", 2.5), ("b", "x", 4.0)], "done": [("a", "x")]},
        {"done": [("a", "x"), ("a", "never")]},
    ]
    result = run_epochs(view(2), epochs)
    changes = [[tuple(row)[:4] for row in epoch] for epoch in result.outputs["queue"]]
    assert [sorted(epoch, key=repr) for epoch in changes] == [
        [("a", "x", 2.0, "insert"), ("b", "x", 3.0, "insert")],
        [
            ("a", "x", 2.0, "delete"),
            ("a", "y", 2.5, "insert"),
            ("b", "x", 3.0, "update_before"),
            ("b", "x", 4.0, "update_after"),
        ],
        [],
    ]
    assert result.view("queue") == [("a", "y", 2.5), ("b", "x", 4.0)]


@VIEWS
@given(SCORED, st.lists(URL, max_size=3))
def test_threshold_of_any_split_gives_the_batch_answer(
    view: Any, epochs: list[list[tuple[tuple[str | None, str], int]]], done: list[Any]
) -> None:
    """The last score of each URL decides, however they are split; what is done last is gone."""
    scored = [{"scored": [(*url, float(score)) for url, score in epoch]} for epoch in epochs]
    result = check_split(view(2), [*scored, {"done": done}])
    last = dict(chain.from_iterable(epochs))
    assert {((row.site, row.url), row.score) for row in result.view("queue")} == {
        (url, score) for url, score in last.items() if score >= 2 and url not in done
    }


@VIEWS
def test_a_minimum_that_is_no_number_fails_the_run(view: Any) -> None:
    """The error names the stage's line."""
    with pytest.raises(AuthorCodeError) as caught:
        run_epochs(view("high"), [{"scored": [("a", "x", 1.0)]}])
    assert f"{view.__module__.rpartition('.')[2]}.py:" in caught.value.details["place"]
