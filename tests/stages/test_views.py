"""The ready translators with views: the last record per key, and the top k of changes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cbp import DataflowBuilder
from cbp.errors import DefinitionError
from cbp.model.dataflow.dataflow import Dataflow
from cbp.testing import check_split, run_dataflow
from stages.translators.latest import Latest
from stages.translators.latest_arrow import LatestArrow
from stages.translators.top_k import TopK
from stages.translators.top_k_arrow import TopKArrow
from tests.sampling import examples

PAGES = "site STRING, url STRING, score DOUBLE"
Page = tuple[str | None, str | None, float | None]

PAGE = st.tuples(
    st.sampled_from(["a", "b", None]),
    st.sampled_from(["x", "y", "z", "ß", None]),
    st.sampled_from([None, 0.0, -0.0, 1.0, 2.0, 2.0, 3.5, float("inf"), float("nan")]),
)
DAYS = st.lists(st.lists(PAGE, max_size=6), max_size=6)


FORMS: list[tuple[type[Latest], type[TopK]]] = [(Latest, TopK), (LatestArrow, TopKArrow)]


def top_pages(k: int, forms: tuple[type[Latest], type[TopK]] = FORMS[0]) -> Dataflow:
    """Return the current pages, and the k highest of each site."""
    flow = DataflowBuilder("top_pages")
    latest = forms[0](PAGES, "site, url", gone="score")
    current = flow.stage("pages", latest, rows=flow.source("scores", PAGES))
    best = forms[1](PAGES, "site", key="site, url", by="score", k=k)
    flow.stage("best", best, rows=current.latest)
    return flow.build()


def current(days: Sequence[Sequence[Page]]) -> dict[tuple[str | None, str | None], float]:
    """Return the score of each page that has one, by brute force."""
    last = {(site, url): score for site, url, score in chain.from_iterable(days)}
    return {page: score for page, score in last.items() if score is not None}


def best(days: Sequence[Sequence[Page]], k: int) -> set[tuple[str | None, int, str | None, float]]:
    """Return the top k of each site, by sorting all."""
    pages = [(s, u, score) for (s, u), score in current(days).items() if score == score]
    pages.sort(key=lambda page: (-page[2], page[1] is not None, page[1]))
    sites = {page[0] for page in pages}
    ranked = ((s, [page for page in pages if page[0] == s][:k]) for s in sites)
    return {(s, at, u, score) for s, top in ranked for at, (_, u, score) in enumerate(top, 1)}


@settings(max_examples=examples(20))
@given(DAYS, st.integers(1, 3), st.sampled_from(FORMS))
def test_the_top_is_that_of_sorting_all_after_every_increment(
    days: list[list[Page]], k: int, forms: tuple[type[Latest], type[TopK]]
) -> None:
    """Inserts, updates, removals, equal scores, nulls and NaN: the view is the brute force's."""
    for end in range(len(days) + 1):
        result = run_dataflow(top_pages(k, forms), {"scores": days[:end]})
        pages = {(row.site, row.url): row.score for row in result.view("pages.latest")}
        expected = current(days[:end])
        assert {page: repr(score + 0.0) for page, score in pages.items()} == {
            page: repr(score + 0.0) for page, score in expected.items()
        }
        top = {(row.site, row.rank, row.url, row.score) for row in result.view("best.top")}
        assert top == best(days[:end], k)


@settings(max_examples=examples(15))
@given(DAYS, st.sampled_from([Latest, LatestArrow]))
def test_the_last_record_does_not_depend_on_the_split(
    days: list[list[Page]], form: type[Latest]
) -> None:
    """Any split of the input gives the view of one batch."""
    check_split(form(PAGES, "site, url", gone="score"), days)


def changes(days: Sequence[Sequence[Page]]) -> Iterator[list[tuple[Any, ...]]]:
    """Yield what becomes of the pages on each day, with signs."""
    known: dict[Any, Page] = {}
    for day in days:
        signed: list[tuple[Any, ...]] = []
        for page in day:
            if before := known.pop(page[:2], None):
                signed.append((*before, -1))
            if page[2] is not None:
                known[page[:2]] = page
                signed.append((*page, 1))
        yield signed


@settings(max_examples=examples(10))
@given(DAYS, st.integers(1, 3), st.sampled_from([TopK, TopKArrow]))
def test_the_top_does_not_depend_on_the_split(
    days: list[list[Page]], k: int, form: type[TopK]
) -> None:
    """Any split of the changes gives the top of one batch, which is that of sorting all."""
    stage = form(PAGES, "site", key="site, url", by="score", k=k)
    view = check_split(stage, list(changes(days))).view("top")
    assert {(row.site, row.rank, row.url, row.score) for row in view} == best(days, k)


@pytest.mark.parametrize("form", [TopK, TopKArrow])
def test_among_equal_values_nan_in_the_key_is_the_last(form: type[TopK]) -> None:
    """Nulls first, ascending, NaN last, in whatever order they come."""
    stage = form("part DOUBLE, n INT", "n", key="n, part", by="n", k=4)
    parts = (2.0, float("nan"), None, 1.0)
    for order in (parts, parts[::-1]):
        view = check_split(stage, [[(part, 7, 1)] for part in order]).view("top")
        assert [row.part for row in view[:3]] == [None, 1.0, 2.0]
        assert [row.rank for row in view] == [1, 2, 3, 4]


def test_one_that_left_the_top_is_followed_by_the_next() -> None:
    """When the first is gone, the others move up, and only what changed is a change."""
    days: list[list[Page]] = [
        [("a", "x", 3.0), ("a", "y", 2.0), ("a", "z", 1.0)],
        [("a", "x", None)],
        [("a", "z", 1.0)],
    ]
    result = run_dataflow(top_pages(2), {"scores": days})
    assert [tuple(row) for row in result.view("best.top")] == [
        (1, "a", "y", 2.0),
        (2, "a", "z", 1.0),
    ]
    changes = [
        [(row.change_type, row.rank, row.url) for row in epoch]
        for epoch in result.outputs["best.top"]
    ]
    assert changes == [
        [("insert", 1, "x"), ("insert", 2, "y")],
        [
            ("update_before", 1, "x"),
            ("update_after", 1, "y"),
            ("update_before", 2, "y"),
            ("update_after", 2, "z"),
        ],
        [],
    ]


def test_a_top_of_none_is_refused() -> None:
    """k is at least 1."""
    with pytest.raises(DefinitionError) as error:
        TopK(PAGES, "site", key="site, url", by="score", k=0)
    assert error.value.mistake.code == "parameter_invalid"
