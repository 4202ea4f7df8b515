"""Structured Streaming: a count with state in RocksDB, changed counts appended to Delta.

One query runs all the time; an increment is a file that appears in its folder, and is one
micro-batch. Three forms of the same query:

- `streaming`: `groupBy().count()`, in the JVM alone.
- `streaming-python-apply`: `applyInPandasWithState`.
- `streaming-python-tws`: `transformWithStateInPandas`.

Best settings found: RocksDB with changelog checkpoints and without counting its rows; a
trigger without pause, polling every 10 ms; one state partition per slot, the fewest that
use all of them; no metrics. What is appended is what the query gives and no more: a batch is known
by the time of its files. The Python forms get at most `PYTHON_KEYS_MAX` keys, since
each key costs them a call when state is loaded.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from controller.bench.candidate import Figures, Place
from controller.bench.candidates.counts import initial_urls, totals_of
from controller.bench.errors import BenchRefusedError
from controller.bench.held import Totals
from controller.bench.workload import Arrival

__all__ = ["PYTHON_KEYS_MAX", "StreamingCandidate", "require_packages", "tws_runs"]

PYTHON_KEYS_MAX = 200_000
_STORE = "spark.sql.streaming.stateStore"
_PROVIDER = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
_SHAPE = "url STRING, n BIGINT"
_CAME = "_came"
_TWS = "streaming-python-tws"
_TWS_NEEDS = ("google.protobuf",)


class StreamingCandidate:
    """One running query; see `controller.bench.candidate`."""

    def __init__(self, place: Place, name: str = "streaming") -> None:
        self.name, self.state_keys = name, 0
        self.form = "sql" if name == "streaming" else "groupwise"
        self._form = _FORMS[name]
        self._checkpoint = str(place.folder / "checkpoint")
        self._loaded_ms = 0
        self._place, self._table = place, str(place.folder / "totals")
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
                "spark.databricks.delta.stats.collect": "false",
            }
        )

    def load(self, state_keys: int) -> None:
        """Let the first micro-batch see every key once."""
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
        writer = writer.foreachBatch(self._append).trigger(processingTime="0 seconds")
        self._query = writer.option("checkpointLocation", self._checkpoint).start()
        self._query.processAllAvailable()
        files = Path(self._table).glob("*.parquet")
        self._loaded_ms = max(file.stat().st_mtime_ns for file in files) // 1_000_000

    def run(self, arrival: Arrival) -> Figures:
        """Let one file appear, and wait until it is processed."""
        os.link(arrival.path, self._incoming / arrival.path.name)
        self._query.processAllAvailable()
        return Figures()

    def held(self) -> Totals:
        """Read the state store of the last batch, and what was appended after the load."""
        stored = self._session.read.format("statestore").options(**self._form.options)
        state = stored.load(self._checkpoint).selectExpr("key.url", f"{self._form.value} AS n")
        appended = self._session.read.format("delta").load(self._table)
        dated = appended.selectExpr(
            "*", f"unix_millis(_metadata.file_modification_time) AS {_CAME}"
        )
        return totals_of(state, dated.where(f"{_CAME} > {self._loaded_ms}"), order=_CAME)

    def close(self) -> None:
        """Stop the query."""
        if self._query is not None:
            self._query.stop()

    def _append(self, frame: Any, _batch: int) -> None:
        frame.write.format("delta").mode("append").save(self._table)


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
    """Raise BenchRefusedError when a candidate lacks a package."""
    if name == _TWS and not tws_runs():
        why = f"{_TWS} needs a further package: pip install 'cbp[bench]'"
        raise BenchRefusedError("against", f"{why}, or name streaming-python-apply alone")


def tws_runs() -> bool:
    """Tell whether the packages that `streaming-python-tws` needs are installed."""
    try:
        return all(importlib.util.find_spec(name) is not None for name in _TWS_NEEDS)
    except ModuleNotFoundError:
        return False


@dataclass(frozen=True, slots=True)
class _Form:
    """A form of the query.

    Attributes:
        query: From the stream `(url)` to `(url, n)`.
        value: Where a count stands in the records of the state store.
        options: That reading the state store takes.
    """

    query: Callable[[Any], Any]
    value: str
    options: Mapping[str, str] = field(default_factory=dict)


_FORMS = {
    "streaming": _Form(_by_sql, "value.count"),
    "streaming-python-apply": _Form(_by_pandas_state, "value.groupState.n"),
    _TWS: _Form(_by_processor, "value.n", {"stateVarName": "n"}),
}
