"""The dataflows and the runs that a request is about, of those that its caller may touch.

Routes of runs do not name the dataflow, but each run has one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends

from controller.api.routing.dependencies import ExchangeDep, StoreDep
from controller.api.routing.scopes import require_granted, require_touchable
from controller.api.security.exchange import Exchange
from controller.store.base import DataflowRecord, RunRecord, Store


@dataclass(frozen=True, slots=True)
class GrantedRuns:
    """Looks up runs for a request that names many, perhaps of several dataflows."""

    store: Store
    exchange: Exchange

    def of(self, run: str) -> RunRecord:
        """Return a run. Raises `DataflowNotGrantedError`, `NotFoundError`."""
        record = self.store.run(run)
        require_touchable(self.exchange, record.dataflow)
        return record


def _granted_run(run: str, store: StoreDep, exchange: ExchangeDep) -> RunRecord:
    record = store.run(run)
    require_granted(exchange, record.dataflow)
    return record


async def _granted_runs(store: StoreDep, exchange: ExchangeDep) -> GrantedRuns:
    return GrantedRuns(store, exchange)


GrantedRunDep = Annotated[RunRecord, Depends(_granted_run)]
"""The run that the path names, by `{run}`."""
GrantedRunsDep = Annotated[GrantedRuns, Depends(_granted_runs)]


def granted_dataflows(
    store: Store, exchange: Exchange, dataflow: str | None
) -> list[DataflowRecord]:
    """Return the named dataflow; without a name, every one that the caller may touch.

    Raises `DataflowNotGrantedError`, `NotFoundError`.
    """
    if dataflow is not None:
        require_granted(exchange, dataflow)
        return [store.dataflow(dataflow)]
    caller = exchange.caller
    assert caller is not None, "a route that is not public has a caller"
    return [record for record in store.dataflows() if caller.may_touch(record.name)]
