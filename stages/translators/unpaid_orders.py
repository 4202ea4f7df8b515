"""Orders with their payments; those that are not paid in time expire by a timer."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from cbp import Input, Output, RunAny, State, Timers, Translate

__all__ = ["UnpaidOrders"]


class UnpaidOrders(Translate):
    """Report the outcome of each order: `paid`, or `expired` after some days.

    The time runs from the first record of an order. Payments may come before their order; if the
    order never comes, they are `unclaimed`. An order is forgotten with its outcome, so later
    records for it begin a new one.

    Shape:
        orders: `(order_id, total DOUBLE)`.
        payments: `(order_id, paid DOUBLE)`, in parts.
        outcomes: `(order_id, outcome, total, paid)`.

    Args:
        days: How long an order waits for its payments.
    """

    orders = Input("order_id BIGINT, total DOUBLE", route_by="order_id")
    payments = Input("order_id BIGINT, paid DOUBLE", route_by="order_id")
    waiting = State("order_id BIGINT, total DOUBLE, paid DOUBLE")
    wake = Timers()
    outcomes = Output("order_id BIGINT, outcome STRING, total DOUBLE, paid DOUBLE")
    runnable = RunAny()

    def __init__(self, days: float = 30.0) -> None:
        self._patience = timedelta(days=days)

    def translate(self, key: Any, group: Any, out: Any) -> None:
        """Add the input, and decide whether the order still waits."""
        now, rows = group.run.time, list(group.waiting)
        total = sum(row.total for row in (*rows, *group.orders))
        paid = sum(row.paid for row in (*rows, *group.payments))
        due = next((timer.at for timer in group.wake), now + self._patience)
        if paid >= total > 0:
            out.outcomes(key.order_id, "paid", total, paid)
        elif due <= now:
            out.outcomes(key.order_id, "expired" if total else "unclaimed", total, paid)
        else:
            out.waiting(key.order_id, total, paid)
            out.wake(key.order_id, due)
