"""The stages of the crawl queue, one by one."""

from __future__ import annotations

from collections import Counter
from itertools import chain
from math import log2
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cbp.errors import AuthorCodeError, DefinitionError
from cbp.testing import run_epochs
from stages.translators.count_in_links import CountInLinks
from stages.translators.count_in_links_arrow import CountInLinksArrow
from stages.translators.count_in_links_kept import CountInLinksKept
from stages.translators.extract_links import ExtractLinks
from stages.translators.merge import Merge
from stages.translators.merge_arrow import MergeArrow
from stages.translators.score import Score
from stages.translators.threshold import Threshold
from tests.stages.crawl import URLS, arrivals, crawl_state, site_of, sites_of

LINKS = st.sampled_from(URLS).map(lambda url: (url, site_of(url)))
GROUPINGS = st.sampled_from(["inner", "outer"])


class CountKept(CountInLinksKept):
    """The form with kept state; it calls no site for its state alone, whatever the grouping."""

    def __init__(self, grouping: Any = "inner") -> None:
        """Take the grouping as the other forms do."""


COUNTS = pytest.mark.parametrize("count", [CountInLinks, CountInLinksArrow, CountKept])
MERGES = pytest.mark.parametrize("merge", [Merge, MergeArrow])
"""All forms of a stage: they hold, emit and refuse the same."""


# --- extract links --------------------------------------------------------------------


def test_extract_links_over_two_epochs() -> None:
    """A page gives one link per distinct target, and itself as crawled."""
    pages = [[("a.x", ["b.y", "b.y", "", None, "c"])], [("b.y", None)]]
    result = run_epochs(ExtractLinks, pages)
    assert result.outputs["links"] == [[("a.x", "b.y", "b"), ("a.x", "c", "c")], []]
    assert result.outputs["crawled"] == [[("a.x", "a")], [("b.y", "b")]]


@pytest.mark.parametrize(
    ("rule", "url", "site"),
    [
        ("first_label", "numpy.linalg.core", "numpy"),
        ("first_label", "numpy", "numpy"),
        ("host", "https://User@Example.ORG:8080/a?b#c", "example.org"),
        ("host", "//example.org/x", "example.org"),
        ("host", "mailto:somebody", ""),
        ("host", "http://[broken", ""),
    ],
)
def test_the_site_follows_from_the_url_alone(rule: str, url: str, site: str) -> None:
    """A page and the links to it have the same site, by the rule that was chosen."""
    result = run_epochs(ExtractLinks(rule), [[(url, [url])]])
    assert result.outputs["links"] == [[(url, url, site)]]
    assert result.outputs["crawled"] == [[(url, site)]]


@given(st.lists(st.lists(st.tuples(st.sampled_from(URLS), st.lists(st.text(), max_size=3)))))
def test_extract_links_of_any_split_gives_the_batch_answer(epochs: list[list[Any]]) -> None:
    """Record-wise work does not know of epochs: the outputs together are those of one."""
    split = run_epochs(ExtractLinks, epochs).outputs
    (batch,) = run_epochs(ExtractLinks, [list(chain.from_iterable(epochs))]).outputs["links"]
    assert list(chain.from_iterable(split["links"])) == batch


def test_a_page_without_url_fails_the_run() -> None:
    """No record is skipped: the error shows the page."""
    with pytest.raises(AuthorCodeError, match="STRING NOT NULL, got None") as caught:
        run_epochs(ExtractLinks, [[(None, ["a"])]])
    assert "extract_links.py:" in caught.value.details["place"]


def test_an_unknown_site_rule_is_refused() -> None:
    """The message lists the rules."""
    with pytest.raises(ValueError, match="first_label or host"):
        ExtractLinks("domain")


# --- count in-links --------------------------------------------------------------------


@COUNTS
def test_count_in_links_over_two_epochs(count: Any) -> None:
    """Only URLs and sites with new links come out; the state has both kinds of counts."""
    epochs = [[("a.x", "a"), ("a.y", "a"), ("b", "b")], [("a.y", "a")]]
    result = run_epochs(count, epochs)
    assert result.outputs["url_counts"][1] == [("a", "a.y", 2)]
    assert result.outputs["site_counts"][1] == [("a", 3)]
    assert result.state["counts"] == [
        ("a", None, 3),
        ("a", "a.x", 1),
        ("a", "a.y", 2),
        ("b", None, 1),
        ("b", "b", 1),
    ]


@COUNTS
@given(st.lists(st.lists(LINKS, max_size=4), max_size=5), GROUPINGS)
def test_count_in_links_of_any_split_gives_the_batch_answer(
    count: Any, epochs: list[list[tuple[str, str]]], grouping: Any
) -> None:
    """State and last counts equal Counters over all links; both groupings agree."""
    result = run_epochs(count(grouping), epochs)
    urls = Counter(url for url, _ in chain.from_iterable(epochs))
    sites = sites_of(urls)
    assert result.last("url_counts") == {(site_of(url), url): n for url, n in urls.items()}
    assert result.last("site_counts") == sites
    expected: dict[tuple[str, str | None], int] = {(site, None): n for site, n in sites.items()}
    expected.update(((site_of(url), url), n) for url, n in urls.items())
    assert {(row.site, row.url): row.n for row in result.state["counts"]} == expected


@COUNTS
@given(st.lists(st.lists(LINKS, max_size=4), max_size=5))
def test_outer_grouping_emits_what_inner_emits(
    count: Any, epochs: list[list[tuple[str, str]]]
) -> None:
    """A site that is called without links keeps its state and emits nothing."""
    inner, outer = (
        run_epochs(count("inner"), epochs),
        run_epochs(count("outer"), epochs),
    )
    assert (outer.outputs, outer.state) == (inner.outputs, inner.state)


@pytest.mark.parametrize("count", [CountInLinks, CountKept])
def test_a_link_without_url_fails_the_run(count: Any) -> None:
    """It would be taken for the record of the site itself."""
    with pytest.raises(AuthorCodeError) as caught:
        run_epochs(count, [[(None, "a")]])
    assert caught.value.details["key"] == "('a',)"


def test_a_link_without_url_fails_the_run_on_columns() -> None:
    """The error names the line that refuses it."""
    with pytest.raises(AuthorCodeError, match="a link has no URL") as caught:
        run_epochs(CountInLinksArrow, [[(None, "a")]])
    assert "count_in_links_arrow.py:" in caught.value.details["place"]


def test_an_unknown_grouping_is_refused() -> None:
    """At registration, for all stages that have the parameter."""
    for stage in (CountInLinks, CountInLinksArrow, Merge, MergeArrow):
        with pytest.raises(DefinitionError, match="'inner' or 'outer'"):
            stage("left").spec()  # type: ignore[arg-type]


# --- merge -----------------------------------------------------------------------------


@MERGES
def test_merge_over_two_epochs(merge: Any) -> None:
    """New and changed URLs come out; a crawled one leaves once, and stays silent then."""
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
        [
            ("a", "a.x", 1, 3, False),
            ("a", "a.y", 2, 3, False),
            ("a", "a.z", None, None, True),
        ],
        [("a", "a.x", None, None, True), ("a", "a.y", 3, 8, False)],
    ]
    assert result.state["known"] == [
        ("a", None, 8, False),
        ("a", "a.x", 4, True),
        ("a", "a.y", 3, False),
        ("a", "a.z", 1, True),
    ]


@MERGES
@given(arrivals(), GROUPINGS)
def test_merge_of_any_split_gives_the_batch_answer(
    merge: Any, epochs: list[dict[str, list[Any]]], grouping: Any
) -> None:
    """State, and the last count or crawled mark per URL, do not depend on what came when."""
    result = run_epochs(merge(grouping), epochs)
    urls, crawled = crawl_state(epochs)
    sites = {site: n for epoch in epochs for site, n in epoch["site_counts"]}
    known = {row.url: (row.n, row.crawled) for row in result.state["known"] if row.url is not None}
    assert known == {url: (urls.get(url, 0), url in crawled) for url in {*urls, *crawled}}
    of_site = {row.site: row.n for row in result.state["known"] if row.url is None}
    assert of_site == {site_of(url): sites.get(site_of(url), 0) for url in {*urls, *crawled}}
    last = {url: (n, done) for (_, url), (n, _, done) in result.last("candidates").items()}
    assert last == {
        url: (None, True) if url in crawled else (urls[url], False) for url in {*urls, *crawled}
    }


@MERGES
@given(arrivals())
def test_merge_emits_what_changed_and_nothing_else(
    merge: Any, epochs: list[dict[str, list[Any]]]
) -> None:
    """Per epoch: changed counts of pages not crawled, with the site's count, and first crawls."""
    result = run_epochs(merge, epochs)
    sites: dict[str, int] = {}
    for number, emitted in enumerate(result.outputs["candidates"]):
        urls_before, crawled_before = crawl_state(epochs[:number])
        urls, crawled = crawl_state(epochs[: number + 1])
        sites.update(epochs[number]["site_counts"])
        changed = {url for url, n in urls.items() if urls_before.get(url) != n}
        expected: list[Any] = [
            (site_of(url), url, urls[url], sites.get(site_of(url), 0), False)
            for url in changed - crawled
        ]
        expected += [(site_of(url), url, None, None, True) for url in crawled - crawled_before]
        assert sorted(emitted, key=lambda row: row.url) == sorted(expected, key=lambda row: row[1])


@MERGES
@pytest.mark.parametrize(
    "arrived",
    [{"url_counts": [("a", None, 1)]}, {"crawled": [(None, "a")]}],
    ids=["count", "crawl"],
)
def test_what_has_no_url_fails_the_run(merge: Any, arrived: dict[str, list[Any]]) -> None:
    """It would be taken for the record of the site itself."""
    with pytest.raises(AuthorCodeError) as caught:
        run_epochs(merge, [arrived])
    assert f"{merge.__module__.rpartition('.')[2]}.py:" in caught.value.details["place"]


# --- score and threshold ---------------------------------------------------------------


def test_score_over_two_epochs() -> None:
    """Counts of the URL and of its site both raise the score; a crawled page has none."""
    rows = [
        [("a", "a.x", 1, 3, False)],
        [("a", "a.x", 3, 7, False), ("a", "a.y", None, None, True)],
    ]
    result = run_epochs(Score(site_weight=0.5), rows)
    assert result.outputs["scored"] == [
        [("a", "a.x", log2(2) + 0.5 * log2(4))],
        [("a", "a.x", log2(4) + 0.5 * log2(8)), ("a", "a.y", None)],
    ]


@given(
    st.tuples(st.integers(0, 9), st.integers(0, 9)), st.tuples(st.integers(0, 9), st.integers(0, 9))
)
def test_a_score_never_falls_while_counts_grow(
    start: tuple[int, int], growth: tuple[int, int]
) -> None:
    """So a URL that entered the queue is not below the threshold later."""
    end = (start[0] + growth[0], start[1] + growth[1])
    rows = [("a", "a.x", n, site_n, False) for n, site_n in (start, end)]
    ((before, after),) = run_epochs(Score, [rows]).outputs["scored"]
    assert after.score >= before.score


@pytest.mark.parametrize("weight", [-0.1, float("nan")])
def test_a_negative_site_weight_is_refused(weight: float) -> None:
    """It would let scores fall."""
    with pytest.raises(ValueError, match="site_weight"):
        Score(weight)


def test_a_candidate_without_count_fails_the_run() -> None:
    """A score cannot be guessed."""
    with pytest.raises(AuthorCodeError) as caught:
        run_epochs(Score, [[("a", "a.x", None, 1, False)]])
    assert "score.py:" in caught.value.details["place"]


SCORED = st.lists(st.lists(st.none() | st.integers(0, 4), max_size=4), max_size=4)


def test_threshold_over_two_epochs() -> None:
    """The minimum passes, less does not; a page that was crawled leaves the queue."""
    result = run_epochs(Threshold(2), [[("a", "x", 2.0), ("a", "y", 1.9)], [("a", "x", None)]])
    assert result.outputs["queue"] == [[("a", "x", 2.0)], [("a", "x", None)]]


@given(SCORED)
def test_threshold_of_any_split_gives_the_batch_answer(epochs: list[list[float | None]]) -> None:
    """The records that pass do not depend on the epochs."""
    rows = [[("a", "x", score) for score in epoch] for epoch in epochs]
    queue = run_epochs(Threshold(2), rows).outputs["queue"]
    passed = [score for score in chain.from_iterable(epochs) if score is None or score >= 2]
    assert [row.score for row in chain.from_iterable(queue)] == passed


def test_a_minimum_that_is_no_number_fails_the_run() -> None:
    """The error names the stage's line and the record."""
    with pytest.raises(AuthorCodeError) as caught:
        run_epochs(Threshold("high"), [[("a", "x", 1.0)]])  # type: ignore[arg-type]
    assert "threshold.py:" in caught.value.details["place"]
    assert caught.value.details["inputs"] == {"scored": ["('a', 'x', 1.0)"]}
