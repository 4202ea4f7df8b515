"""`latest_change`: messages in any order, late or twice, give the newest version of each record."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cbp.errors import AuthorCodeError
from cbp.testing import check_any_order, run_epochs
from stages.translators.latest_change import LatestChange
from tests.sampling import examples

STAGE = LatestChange("op STRING, id BIGINT, ts BIGINT, name STRING", "id", "ts")

MESSAGES = st.lists(
    st.tuples(
        st.sampled_from(["c", "u", "r", "d", "D", "insert", "update_postimage", "update_preimage"]),
        st.integers(0, 2),
        st.integers(0, 4),
        st.sampled_from(["x", "y", None]),
    ),
    max_size=6,
)


def newest(messages: list[Any]) -> dict[int, tuple[int, Any]]:
    """Return what is left of each key, computed in a plain way."""
    best: dict[int, tuple[Any, ...]] = {}
    for op, key, ts, name in messages:
        if op == "update_preimage":
            continue
        gone = op.lower() == "d"
        rank = (ts, gone, "" if gone else repr((key, ts, name)), name)
        if key not in best or rank[:3] > best[key][:3]:
            best[key] = rank
    return {key: (ts, name) for key, (ts, gone, _, name) in best.items() if not gone}


@pytest.mark.soak
@settings(max_examples=examples(30), deadline=None)
@given(st.lists(MESSAGES, max_size=4))
def test_the_order_of_messages_does_not_matter(epochs: list[list[Any]]) -> None:
    """Nor how they are split, nor whether they come twice."""
    result = check_any_order(STAGE, epochs)
    messages = [message for epoch in epochs for message in epoch]
    right = newest(messages)
    assert {row.id: (row.ts, row.name) for row in result.view("latest")} == right
    again = run_epochs(STAGE, [*epochs, *epochs])
    assert not result.difference(again)


def test_a_late_message_does_not_bring_a_deleted_record_back() -> None:
    """The deletion's sequence is kept."""
    result = run_epochs(STAGE, [[("c", 1, 1, "x")], [("d", 1, 3, None)], [("u", 1, 2, "y")]])
    assert result.view("latest") == []
    assert [tuple(row) for row in result.state["deleted"]] == [(1, 3)]


@pytest.mark.parametrize("message", [("t", 1, 1, "x"), ("c", 1, None, "x"), (None, 1, 1, "x")])
def test_a_message_that_says_nothing_is_an_error(message: Any) -> None:
    """An operation that is not known, or no sequence, is never guessed."""
    with pytest.raises(AuthorCodeError, match="operation"):
        run_epochs(STAGE, [[message]])
