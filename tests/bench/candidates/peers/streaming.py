"""Structured Streaming: a count with state in RocksDB; each micro-batch writes the changed counts.

One query runs all the time. An increment is a file that appears in its folder, and becomes one
micro-batch. Three forms of the same query:

- `streaming`: `groupBy().count()`, in the JVM alone.
- `streaming-python-apply`: `applyInPandasWithState`.
- `streaming-python-tws`: `transformWithStateInPandas`.

Best settings found: RocksDB with changelog checkpoints and without counting its rows; a trigger
without pause, polling every 10 ms; one state partition per slot, the smallest number that uses all
slots; no metrics. Each batch writes only the query's output, into its own folder. This costs less
than an append to a Delta table and is as exact: a repeated batch replaces its folder. The output
of the first batch, the load, is not written. The Python forms get at most `PYTHON_KEYS_MAX` keys,
since the load calls Python once per key.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from tests.bench.candidates.candidate import Figures, Place
from tests.bench.candidates.peers.counts import initial_urls, totals_of
from tests.bench.comparison.changed_counts_files import Changes
from tests.bench.comparison.result_comparison import Totals
from tests.bench.errors import BenchRefusedError
from tests.bench.workloads.workload import Arrival

__all__ = ["PYTHON_KEYS_MAX", "StreamingCandidate", "require_packages", "tws_runs"]

PYTHON_KEYS_MAX = 200_000
_STORE = "spark.sql.streaming.stateStore"
_PROVIDER = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
_SHAPE = "url STRING, n BIGINT"
_TWS = "streaming-python-tws"
_TWS_NEEDS = ("google.protobuf",)


class StreamingCandidate:
    """One running query; see `tests.bench.candidates.candidate`."""

    def __init__(self, place: Place, name: str = "streaming") -> None:
        self.name, self.state_keys = name, 0
        self.form = "sql" if name == "streaming" else "groupwise"
        self._form = _FORMS[name]
        self._checkpoint = str(place.folder / "checkpoint")
        self._place, self._changes = place, Changes(place.folder, "")
        self._path: Path | None = None
        self._incoming = place.scratch / "incoming"
        self._query: Any = None
        self._session = place.session(
            {
                "spark.sql.shuffle.partitions": str(place.slots),
                f"{_STORE}.providerClass": _PROVIDER,
                f"{_STORE}.rocksdb.changelogCheckpointing.enabled": "true",
                f"{_STORE}.rocksdb.trackTotalNumberOfRows": "false",
                "spark.sql.streaming.noDataMicroBatches.enabled": "false",
                "spark.sql.streaming.pollingDelay": "10ms",
            }
        )

    def load(self, state_keys: int) -> None:
        """Run the first micro-batch, which sees every key once."""
        if self.name != "streaming":
            state_keys = min(state_keys, PYTHON_KEYS_MAX)
        self.state_keys = state_keys
        initial = self._place.scratch / "initial"
        initial_urls(self._session, state_keys, self._place.slots).write.parquet(str(initial))
        self._incoming.mkdir(parents=True)
        for part in sorted(initial.glob("part-*.parquet")):
            part.rename(self._incoming / part.name)
        stream = self._session.readStream.schema("url STRING").parquet(str(self._incoming))
        writer = self._form.query(stream).writeStream.outputMode("update")
        writer = writer.foreachBatch(self._write).trigger(processingTime="0 seconds")
        self._query = writer.option("checkpointLocation", self._checkpoint).start()
        self._query.processAllAvailable()

    def run(self, arrival: Arrival) -> Figures:
        """Add one file, and wait until it is processed."""
        self._path = self._changes.next()
        os.link(arrival.path, self._incoming / arrival.path.name)
        self._query.processAllAvailable()
        self._changes.sync()
        return Figures()

    def emitted(self) -> Iterator[pa.RecordBatch]:
        """Yield the changes of the latest batch."""
        return self._changes.latest()

    def held(self) -> Totals:
        """Read the state store of the last batch, and the output written after the load."""
        stored = self._session.read.format("statestore").options(**self._form.options)
        state = stored.load(self._checkpoint).selectExpr("key.url", f"{self._form.value} AS n")
        return totals_of(state, self._changes)

    def close(self) -> None:
        """Stop the query."""
        if self._query is not None:
            self._query.stop()

    def _write(self, frame: Any, _batch: int) -> None:
        if self._path is None:
            frame.write.format("noop").mode("overwrite").save()
        else:
            frame.write.mode("overwrite").parquet(str(self._path))


def _by_sql(stream: Any) -> Any:
    return stream.groupBy("url").count().withColumnRenamed("count", "n")


def _by_pandas_state(stream: Any) -> Any:
    import pandas as pd  # type: ignore[import-untyped, unused-ignore]
    from pyspark.sql.streaming.state import GroupState

    def count(key: Any, frames: Iterable[pd.DataFrame], state: GroupState) -> Iterator[Any]:
        n = sum(len(frame) for frame in frames) + (state.get[0] if state.exists else 0)
        state.update((n,))
        yield pd.DataFrame({"url": [key[0]], "n": [n]})

    return stream.groupBy("url").applyInPandasWithState(
        count, _SHAPE, "n BIGINT", "update", "NoTimeout"
    )


def _by_processor(stream: Any) -> Any:
    import pandas as pd
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor

    class Count(StatefulProcessor):  # type: ignore[misc, unused-ignore]
        """Count the rows of each URL."""

        def init(self, handle: Any) -> None:
            self._n = handle.getValueState("n", "n BIGINT")

        def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:
            n = sum(len(frame) for frame in rows) + (self._n.get()[0] if self._n.exists() else 0)
            self._n.update((n,))
            yield pd.DataFrame({"url": [key[0]], "n": [n]})

    return stream.groupBy("url").transformWithStateInPandas(Count(), _SHAPE, "Update", "None")


def require_packages(name: str) -> None:
    """Raise BenchRefusedError if a candidate lacks a package."""
    if name == _TWS and not tws_runs():
        why = f"{_TWS} needs a further package: pip install 'cbp[bench]'"
        raise BenchRefusedError("against", f"{why}, or name streaming-python-apply alone")


def tws_runs() -> bool:
    """Return whether the packages that `streaming-python-tws` needs are installed."""
    try:
        return all(importlib.util.find_spec(name) is not None for name in _TWS_NEEDS)
    except ModuleNotFoundError:
        return False


@dataclass(frozen=True, slots=True)
class _Form:
    """One form of the query.

    Attributes:
        query: Turns the stream `(url)` into `(url, n)`.
        value: The position of a count in the records of the state store.
        options: Options for reading the state store.
    """

    query: Callable[[Any], Any]
    value: str
    options: Mapping[str, str] = field(default_factory=dict)


_FORMS = {
    "streaming": _Form(_by_sql, "value.count"),
    "streaming-python-apply": _Form(_by_pandas_state, "value.groupState.n"),
    _TWS: _Form(_by_processor, "value.n", {"stateVarName": "n"}),
}
