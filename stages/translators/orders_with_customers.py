"""Orders with what is known of their customers, looked up when an order comes."""

from __future__ import annotations

from typing import Any

from cbp import Input, Lookup, Output, Translate

__all__ = ["OrdersWithCustomers"]


class OrdersWithCustomers(Translate):
    """Adds the customer's name and country to each order; null if the customer is unknown."""

    orders = Input("order BIGINT, customer STRING, total DOUBLE", route_by="customer")
    customers = Lookup("customer STRING, name STRING, country STRING", by="customer")
    enriched = Output("order BIGINT, customer STRING, total DOUBLE, name STRING, country STRING")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        """Look the customer up once, and write its orders."""
        customer = group.customers.one()
        about = (customer.name, customer.country) if customer else (None, None)
        for order in group.orders:
            out.enriched(*order, *about)
