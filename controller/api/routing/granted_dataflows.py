"""The dataflows that a request is about, of those that its token may touch."""

from __future__ import annotations

from controller.api.routing.scopes import require_granted
from controller.api.security.exchange import Exchange
from controller.store.base import DataflowRecord, Store


def granted_dataflows(
    store: Store, exchange: Exchange, dataflow: str | None
) -> list[DataflowRecord]:
    """Return the named dataflow; without a name, every one that the caller may touch.

    Raises:
        DataflowNotGrantedError: If the caller may not touch the named one.
        NotFoundError: If there is none of this name.
    """
    if dataflow is not None:
        require_granted(exchange, dataflow)
        return [store.dataflow(dataflow)]
    caller = exchange.caller
    assert caller is not None, "a route that is not public has a caller"
    return [record for record in store.dataflows() if caller.may_touch(record.name)]
