"""Orders that expire by a timer, against plain Python; and on the direct engine."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from cbp import DataflowBuilder
from cbp.engine.direct import LocalEngine
from cbp.model.dataflow.run_context import microseconds
from cbp.testing import run_epochs
from stages.translators.unpaid_orders import UnpaidOrders
from tests.driver import Driver
from tests.sampling import examples

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
_AMOUNTS = [1.0, 2.0, 5.0]


def _records(amounts: list[float]) -> st.SearchStrategy[list[tuple[int, float]]]:
    return st.lists(st.tuples(st.integers(0, 3), st.sampled_from(amounts)), max_size=4)


_CAME = {"orders": _records(_AMOUNTS), "payments": _records([*_AMOUNTS, -1.0, -2.0])}
DAYS = st.lists(
    st.tuples(st.integers(0, 40), st.fixed_dictionaries(_CAME)),
    min_size=1,
    max_size=6,
)
"""Days that pass, and what comes then; payments are also taken back."""


def oracle(days: list[tuple[int, dict[str, Any]]], patience: int) -> list[tuple[Any, ...]]:
    """Return the outcomes day by day, from a dict of what waits: order to total, paid, due day."""
    waiting: dict[int, list[float]] = {}
    outcomes, today = [], 0
    for passed, came in days:
        today += passed
        for name, place in (("orders", 0), ("payments", 1)):
            for order, amount in came[name]:
                waiting.setdefault(order, [0.0, 0.0, today + patience])[place] += amount
        for order, (total, paid, due) in sorted(waiting.items()):
            outcome = "expired" if total else "unclaimed"
            if paid >= total > 0:
                outcomes.append((today, order, "paid", total, paid))
            elif due <= today:
                outcomes.append((today, order, outcome, total, paid))
            else:
                continue
            del waiting[order]
    return outcomes


@settings(max_examples=examples(30), deadline=None)
@given(days=DAYS)
def test_each_order_has_the_outcome_of_its_day(days: list[tuple[int, dict[str, Any]]]) -> None:
    """Paid, expired or unclaimed, with its amounts, on the day that it is decided."""
    times, today = [], BEGIN
    for passed, _ in days:
        today += timedelta(days=passed)
        times.append(today)
    result = run_epochs(UnpaidOrders(30), [came for _, came in days], times=times)
    rows = sorted(tuple(row) for epoch in result.outputs["outcomes"] for row in epoch)
    assert rows == sorted(row[1:] for row in oracle(days, 30))


def test_an_order_expires_on_tables_when_its_time_has_come(tmp_path: Path) -> None:
    """No record comes any more: the timer alone starts the run."""
    builder = DataflowBuilder("shop")
    orders = builder.source("orders", "order_id BIGINT, total DOUBLE")
    payments = builder.source("payments", "order_id BIGINT, paid DOUBLE")
    builder.stage("unpaid", UnpaidOrders(30), orders=orders, payments=payments)
    driver = Driver(LocalEngine(cache=str(tmp_path / "c")), builder.build(), tmp_path / "t")
    told = []
    for day in (0, 29, 30, 31):
        driver.time_ms = microseconds(BEGIN + timedelta(days=day)) // 1000
        if not day:
            driver.feed("orders", [{"order_id": n, "total": 3.0} for n in (1, 2)])
            driver.feed("payments", [{"order_id": 1, "paid": 3.0}, {"order_id": 2, "paid": 1.0}])
        driver.run_until_idle()
        rows = [row for epoch in driver.outputs("unpaid.outcomes") for row in epoch]
        told.append([(row["order_id"], row["outcome"]) for row in rows])
    assert told == [[(1, "paid")], [(1, "paid")], [(1, "paid"), (2, "expired")], told[2]]
    assert driver.state("unpaid", "wake") == driver.state("unpaid", "waiting") == []
