"""Small records for tests of the store: everything has a default but the names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from cbp.model.flow.increment import DataFile, Increment
from cbp.model.run.intention import Intention, RunStatus
from controller.store.base import ClaimRecord, DataflowRecord, IncrementRecord, RunRecord, Store

START = datetime(2026, 1, 1, 12, tzinfo=UTC)
CHAIN = {"s": {"i": "a"}, "t": {"j": "s.out", "k": "a"}}
"""Source a -> stage s -> stage t, and a -> t."""


def at(second: float) -> datetime:
    """Return an instant some seconds after the start of every test."""
    return START + timedelta(seconds=second)


def a_dataflow(name: str = "d", **more: Any) -> DataflowRecord:
    """Return a dataflow."""
    defaults: dict[str, Any] = {
        "version": 1,
        "document": {"name": name},
        "folder": f"/tables/{name}",
        "desired": "running",
        "created_at": START,
    }
    return DataflowRecord(name, **{**defaults, **more})


def an_increment(flow: str, index: int, records: int = 1) -> Increment:
    """Return an increment of one file; of none when it has no records."""
    files = (DataFile(f"{flow}/{index}.parquet", records, 10 * records),) if records else ()
    return Increment(flow, index, index, files)


def a_claim(id_: str = "c0", *, dataflow: str = "d", source: str = "a", **more: Any) -> ClaimRecord:
    """Return a claim."""
    defaults: dict[str, Any] = {
        "sequence": 0,
        "path": f"{id_}.jsonl",
        "bytes": 10,
        "status": "claiming",
        "created_at": START,
    }
    return ClaimRecord(id_, dataflow, source, **{**defaults, **more})


def a_run(
    id_: str = "r0",
    *,
    dataflow: str = "d",
    stage: str = "s",
    epoch: int = 0,
    read: Mapping[str, Sequence[int]] | None = None,
    **more: Any,
) -> RunRecord:
    """Return a run that reads, and removes, the increment of its epoch on input `i`."""
    chosen = {"i": (epoch,)} if read is None else read
    defaults: dict[str, Any] = {
        "attempt": 1,
        "status": RunStatus.INTENDED,
        "remove": chosen,
        "started_at": START,
    }
    return RunRecord(id_, dataflow, stage, epoch, read=chosen, **{**defaults, **more})


def an_intention(run: RunRecord, *outputs: Increment, **more: Any) -> Intention:
    """Return the intention of a run; outputs are increments of `stage.output`."""
    return Intention(
        dataflow=run.dataflow,
        stage=run.stage,
        epoch=run.epoch,
        run=run.id,
        prepared_ms=int(START.timestamp() * 1000),
        read={name: tuple(indexes) for name, indexes in run.read.items()},
        remove={name: tuple(indexes) for name, indexes in run.remove.items()},
        outputs={value.flow.partition(".")[2]: value for value in outputs},
        changes=(),
        **more,
    )


def arrive(
    store: Store,
    flow: str = "a",
    *,
    dataflow: str = "d",
    records: int = 1,
    at_time: datetime = START,
) -> Increment:
    """Bring the next increment of a source."""
    increment = an_increment(flow, store.next_index(dataflow, flow), records)
    claim = store.add_claim(
        a_claim(f"{dataflow}{flow}{increment.index}", dataflow=dataflow, source=flow)
    )
    store.accept_all([(claim, IncrementRecord(dataflow, increment, at_time))])
    return increment


def waiting(store: Store, dataflow: str = "d") -> dict[str, dict[str, list[str]]]:
    """Return stage -> input -> names of what waits; a read mark shows as `*`."""
    return {
        stage: {
            name: [q.increment.name + "*" * q.read for q in connector.queue]
            for name, connector in inputs.items()
        }
        for stage, inputs in store.connectors(dataflow).items()
    }


def an_arrival(index: int, *, dataflow: str = "d", records: int = 1) -> IncrementRecord:
    """Return an increment of source `a`, as ingestion hands it in."""
    return IncrementRecord(dataflow, an_increment("a", index, records), at(index), {"n": [index]})
