"""State that is kept unless it is changed: declared, used, and misused."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cbp import Input, Loopback, Output, State, Translate, TranslateSql, route
from cbp.errors import DefinitionError
from cbp.testing import check_split, run_epochs
from tests import flows
from tests.cbp.sdk.mistakes import Run, failure

THIS = Path(__file__).name


class Orders(Translate):
    """The open orders of a customer: placed, paid, and the sum of what is open."""

    events = Input("customer STRING, id BIGINT, total DOUBLE", route_by="customer")
    orders = State("customer STRING, id BIGINT, total DOUBLE", keep=True, key="customer, id")
    known = Output("customer STRING, id BIGINT, before DOUBLE")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        for event in group.events:
            before = group.orders.get(id=event.id)
            out.known(*event[:2], before.total if before else None)
            if event.total is None:
                out.orders.delete(id=event.id)
            else:
                out.orders(*event)


def test_records_stay_until_they_are_put_or_deleted() -> None:
    """A call reads what was before it; records that it does not name stay."""
    result = run_epochs(
        Orders,
        [
            [("c", 1, 10.0), ("c", 2, 20.0), ("d", 1, 1.0)],
            [("c", 1, 11.0), ("c", 3, 30.0), ("c", 3, 31.0)],
            [("c", 2, None), ("c", 9, None)],
        ],
    )
    assert list(map(tuple, result.state["orders"])) == [
        ("c", 1, 11.0),
        ("c", 3, 31.0),
        ("d", 1, 1.0),
    ]
    assert [row.before for row in result.outputs["known"][1]] == [10.0, None, None]
    assert [row.before for row in result.outputs["known"][2]] == [20.0, None]


_EVENT = st.tuples(
    st.sampled_from("ab"), st.integers(0, 3), st.one_of(st.none(), st.sampled_from([1.0, 2.0]))
)


class Open(Orders):
    """The same, without what depends on the split."""

    known = Output("customer STRING, n INT")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        for event in group.events:
            if event.total is None:
                out.orders.delete(event.id)
            else:
                out.orders(*event)


@given(epochs=st.lists(st.lists(_EVENT, max_size=5), max_size=4))
def test_any_split_gives_the_answer_of_one_batch(epochs: list[list[Any]]) -> None:
    """The last put or delete of a key counts, in one call or over several epochs."""
    wanted: dict[Any, Any] = {}
    for epoch in epochs:
        for event in epoch:
            wanted[event[:2]] = event
    records = check_split(Open, epochs).state["orders"]
    assert sorted(map(tuple, records)) == sorted(
        event for event in wanted.values() if event[2] is not None
    )


class Ranges(Translate):
    """The records between two bounds, from the last to the first, as far as is asked."""

    asked = Input("site STRING, low DOUBLE, high DOUBLE, n INT", route_by="site")
    pages = Input("site STRING, score DOUBLE, url STRING", route_by="site")
    known = State("site STRING, score DOUBLE, url STRING", keep=True, key="site, score, url")
    found = Output("score DOUBLE, url STRING")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        for page in group.pages:
            out.known(*page)
        for asked in group.asked:
            bounds = (asked.low, asked.high)
            for page in islice(group.known.range(score=bounds, reverse=True), asked.n):
                out.found(page.score, page.url)


_SCORE = st.sampled_from([0.0, 1.0, 1.5, 2.0, 7.0])
_PAGE = st.tuples(st.just("a"), _SCORE, st.sampled_from("xyz"))


@given(
    epochs=st.lists(st.lists(_PAGE, max_size=9), min_size=1, max_size=3),
    low=st.none() | _SCORE,
    high=st.none() | _SCORE,
    n=st.integers(0, 9),
)
def test_a_range_goes_from_its_last_record_to_its_first(
    epochs: list[list[Any]], low: float | None, high: float | None, n: int
) -> None:
    """It has the records of the sorted list between the bounds, the last ones first."""
    pages = [{"pages": epoch} for epoch in epochs]
    result = run_epochs(Ranges, [*pages, {"asked": [("a", low, high, n)]}])
    between = [
        (score, url)
        for _, score, url in sorted({page for epoch in epochs for page in epoch})
        if (low is None or low <= score) and (high is None or score < high)
    ]
    assert list(map(tuple, result.outputs["found"][-1])) == between[::-1][:n]


class Flags(Translate):
    """A column that is named like the argument."""

    asked = Input("k STRING, reverse BOOLEAN", route_by="k")
    known = State("k STRING, reverse BOOLEAN", keep=True, key="k, reverse")
    found = Output("reverse BOOLEAN")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        for row in group.asked:
            for old in group.known.range(reverse=row.reverse):
                out.found(old.reverse)
            out.known(*row)


def test_a_column_named_reverse_is_a_column() -> None:
    """A dataflow that has such a column reads as it did before the argument was there."""
    result = run_epochs(Flags, [[("k", True), ("k", False)], [("k", True)]])
    assert list(map(tuple, result.outputs["found"][1])) == [(True,)]


def declared(**more: Any) -> type[Translate]:
    class Made(Translate):
        urls = Input("url STRING, n BIGINT, tags ARRAY<INT>", route_by="url")
        totals = Output("url STRING")

        def translate(self, key: Any, group: Any, out: Any) -> None: ...

    for name, value in more.items():
        setattr(Made, name, value)
    return Made


SCHEMA = "url STRING, n BIGINT, tags ARRAY<INT>"


@pytest.mark.parametrize(
    ("rule", "more"),
    [
        ("keep_key_missing", {"seen": State(SCHEMA, keep=True)}),
        ("key_without_keep", {"seen": State(SCHEMA, key="url, n")}),
        ("keep_key_invalid", {"seen": State(SCHEMA, keep=True, key="n")}),
        ("keep_key_invalid", {"seen": State(SCHEMA, keep=True, key="url, n, n")}),
        ("keep_key_invalid", {"seen": State(SCHEMA, keep=True, key="url, tags")}),
        ("key_unknown", {"seen": State(SCHEMA, keep=True, key="url, m")}),
        ("keep_unsupported", {"seen": State(SCHEMA, "outer", keep=True, key="url, n")}),
        ("keep_unsupported", {"seen": State(SCHEMA, keep=True, key="url, n", order_by="n")}),
        (
            "keep_unsupported",
            {
                "seen": State(SCHEMA, keep=True, key="url, n"),
                "mail": Loopback("url STRING", route_by=route(lambda r: [r.url], "STRING")),
            },
        ),
        (
            "keep_unsupported",
            {"seen": State(SCHEMA, keep=True, key="url, n"), "notes": Input("n BIGINT")},
        ),
    ],
)
def test_a_declaration_that_cannot_be_kept_is_refused(rule: str, more: dict[str, Any]) -> None:
    """Each mistake has a code, and names the declaration."""
    with pytest.raises(DefinitionError) as caught:
        declared(**more)().spec()
    assert caught.value.mistake.code == rule
    assert caught.value.mistake.where.partition(".")[2] in more


class InSql(TranslateSql):
    """Deletes from a state, which is kept or not."""

    urls = Input("url STRING, n BIGINT", route_by="url")
    queries = {  # noqa: RUF012 - of the class
        "seen": "SELECT url, n FROM urls",
        "seen.delete": "SELECT url, n FROM urls",
    }

    def __init__(self, *, keep: bool) -> None:
        more: Any = {"keep": True, "key": "url, n"} if keep else {}
        self.seen = State("url STRING, n BIGINT", **more)


def test_only_from_kept_state_a_query_deletes() -> None:
    """What is not emitted again is gone from any other state."""
    assert InSql(keep=True).spec().kept
    with pytest.raises(DefinitionError) as caught:
        InSql(keep=False).spec()
    assert caught.value.mistake.code == "query_name"


class Misuses(Translate):
    """Keeps state, and changes it as its input says."""

    urls = Input("url STRING", route_by="url")
    seen = State("url STRING, n BIGINT, note STRING", keep=True, key="url, n, note")
    totals = Output("url STRING")

    def __init__(self, act: Callable[[Any, Any], Any]) -> None:
        self.act = act

    def translate(self, key: Any, group: Any, out: Any) -> None:
        self.act(group.seen, out.seen)


@pytest.mark.parametrize(
    ("code", "told", "act"),
    [
        ("state_kept_remote", "Loopback", lambda seen, out: out.remote("b", 1, "")),
        ("state_key_foreign", "'z'", lambda seen, out: out("z", 1, "")),
        ("author_code_failed", "'n' is declared BIGINT", lambda seen, out: out("a", 0.5, "")),
        ("author_code_failed", "'n' is declared BIGINT", lambda seen, out: seen.get("1", "")),
        ("author_code_failed", "'n' is declared BIGINT", lambda seen, out: out.delete(0.5, "")),
        ("author_code_failed", "'note'", lambda seen, out: seen.get(n=1)),
        ("author_code_failed", "'m'", lambda seen, out: out.delete(m=1)),
        ("author_code_failed", "(n, note)", lambda seen, out: seen.range(note="")),
        ("author_code_failed", "(low, high)", lambda seen, out: seen.range(n=(1, 2), note="")),
        ("author_code_failed", "(low, high)", lambda seen, out: seen.range(n=(1, 2, 3))),
        ("author_code_failed", "True or False", lambda seen, out: seen.range(reverse=1)),
        ("author_code_failed", "is not None", lambda seen, out: bool(seen)),
        ("author_code_failed", "cannot be compared", lambda seen, out: seen == []),
    ],
)
def test_what_is_wrong_names_the_authors_line(run: Run, code: str, told: str, act: Any) -> None:
    """The kit and the engine say the same of a wrong argument, and of what would lose records."""
    error = failure(run, Misuses(act))
    assert error.code == code
    assert told in error.details["cause"]
    assert THIS in error.details["place"]


def test_a_group_may_keep_one_record() -> None:
    """Without columns of its own, the key of the group names the record."""
    result = run_epochs(flows.Single, [[("a", 1)], [("a", 2)], [("b", 5)], [("a", None)]])
    assert [[row.n for row in epoch] for epoch in result.outputs["before"]] == [
        [None],
        [1, 1],
        [None],
        [2, 2],
    ]
    assert list(map(tuple, result.state["seen"])) == [("b", 5)]
