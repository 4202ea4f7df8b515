"""Workloads: seeded increments of records, and the dataflow that reads them.

The same seed gives the same bytes. An increment is drawn from the seed, its number and the number
of records before it, so every candidate reads the same increments.

- `UrlCount`: URLs, drawn in one of three ways. `uniform` draws from 1.05 times the keys in state,
  so that some are new. `zipf` draws from the same keys with exponent 1; the popular ones are spread
  over all buckets. `distinct` draws different keys that are all in state, as far as there are
  enough.
- `CrawlQueue`: pages with links to pages (`tests.bench.workloads.crawl_workload`).
- `Clustering`, `PageRank`: new links of a graph (`tests.bench.workloads.graph_workloads`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from cbp.model.dataflow.dataflow import Dataflow
from tests.bench.options import CLUSTERING, CRAWL_QUEUE, PAGERANK, BenchOptions, edges_of
from tests.bench.workloads.crawl_workload import CrawlQueue
from tests.bench.workloads.dataflows import arranged, compiled
from tests.bench.workloads.draws import Ids, scattered, zipf
from tests.bench.workloads.graph_workloads import Clustering, GraphWorkload, PageRank

__all__ = [
    "Arrival",
    "CrawlQueue",
    "UrlCount",
    "Workload",
    "variant_of",
    "workload_of",
    "write_arrival",
]

SITES = 50_000
NEW_SHARE = 0.05


@dataclass(frozen=True, slots=True)
class Arrival:
    """One increment in the form that every candidate gets: a Parquet file."""

    path: Path
    records: int
    bytes: int


class Workload(Protocol):
    """A dataflow with one source, and its input."""

    @property
    def source(self) -> str:
        """Name of the source."""
        ...

    def dataflow(self, *, grouping: str, form: str, buckets: int) -> Dataflow:
        """Return the dataflow of `cbp` and the black box, with its translators in this form."""
        ...

    def records(self, number: int, count: int, *, before: int) -> pa.Table:
        """Return an increment's records.

        Args:
            number: Number of the increment, from 0.
            count: Number of its records.
            before: Number of records of all earlier increments.
        """
        ...

    def states(self) -> Mapping[tuple[str, str], pa.Table]:
        """Return the first records of (stage, state), to be written as files."""
        ...

    @property
    def loaded_keys(self) -> int:
        """Number of keys in state before the first increment, counted."""
        ...

    @property
    def state_records(self) -> int:
        """Number of records in state before the first increment."""
        ...

    @property
    def last_phase(self) -> str:
        """The input that is read in the epochs whose state updates are reported; "" means all."""
        ...


@dataclass(frozen=True, slots=True)
class UrlCount:
    """Count URLs; the state holds the keys from 0 up to `state_keys` - 1, each seen once."""

    state_keys: int
    seed: int = 0
    keys: str = "uniform"
    source: str = "urls"
    last_phase: str = ""

    KEY_SQL = "concat('http://site', id % 50000, '.example.com/page/', hex(id))"
    """The URL of key `id`, as a Spark SQL expression."""

    @property
    def loaded_keys(self) -> int:
        """Number of keys in state before the first increment: `state_keys`."""
        return self.state_keys

    @property
    def state_records(self) -> int:
        """One record per key."""
        return self.state_keys

    def dataflow(self, *, grouping: str, form: str, buckets: int) -> Dataflow:
        """Return the dataflow of one stage."""
        return arranged(compiled(self.document(form)), grouping, buckets)

    def document(self, form: str) -> dict[str, Any]:
        """Return the same dataflow as the document that users register."""
        translator = "url_count" if form == "groupwise" else f"url_count_{form}"
        return {
            "name": "bench_url_count",
            "sources": {"urls": {"schema": "url STRING", "format": "parquet"}},
            "stages": {"count": {"translator": translator, "inputs": {"urls": "urls"}}},
        }

    def records(self, number: int, count: int, *, before: int) -> pa.Table:
        """Return `(url STRING)`."""
        return pa.table({"url": pa.array(self.urls(self.ids(number, count)), pa.string())})

    @property
    def universe(self) -> int:
        """Exclusive upper bound of the URL numbers."""
        return int(self.state_keys * (1 + NEW_SHARE)) + 1

    def ids(self, number: int, count: int) -> Ids:
        """Return the numbers of an increment's URLs."""
        chance = np.random.default_rng([self.seed, number])
        if self.keys == "distinct":
            first = int(chance.integers(0, self.state_keys))
            return scattered(np.arange(first, first + count), self.state_keys)
        if self.keys == "zipf":
            return scattered(zipf(chance, self.universe, count), self.universe)
        return chance.integers(0, self.universe, count)

    def states(self) -> dict[tuple[str, str], pa.Table]:
        """Return nothing: `initial_state.load_counts` writes this state."""
        return {}

    @staticmethod
    def urls(ids: Ids) -> list[str]:
        """Return the URLs of keys."""
        return [f"http://site{i % SITES}.example.com/page/{i:X}" for i in ids.tolist()]


def workload_of(options: BenchOptions, state_keys: int) -> Workload:
    """Return the workload that the options select."""
    if options.workload == CRAWL_QUEUE:
        return CrawlQueue(state_keys, options.seed, options.from_empty)
    edges = options.edges or edges_of(options.workload, state_keys)
    if options.workload == CLUSTERING:
        return Clustering(state_keys, edges, options.seed)
    if options.workload == PAGERANK:
        return PageRank(state_keys, edges, options.seed, options.threshold, options.error)
    return UrlCount(state_keys, options.seed, options.keys)


def variant_of(workload: Workload, variant: str) -> Workload:
    """Return the same workload with another variant of its dataflow."""
    assert isinstance(workload, GraphWorkload), "only graphs have variants"
    return replace(workload, variant=variant)


def write_arrival(table: pa.Table, path: Path) -> Arrival:
    """Write records as an increment."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path, compression="zstd")
    return Arrival(path, table.num_rows, path.stat().st_size)
