"""What is measured on: seeded increments of records, and the dataflow that reads them.

The same seed gives the same bytes. An increment is drawn from (seed, number) alone, so
every candidate reads the same ones, whatever ran before.

- `UrlCount`: URLs, uniform over 1.05 times the keys in state (so that some are new), or
  Zipf with exponent 1 over the same keys, the popular ones spread over all buckets;
  or distinct ones that are all in state, as far as there are so many.
- `CrawlQueue`: pages with ten links each, seven to their own site, the others Zipf.
- `Clustering`, `PageRank`: new links of a graph (`controller.bench.graph_workloads`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from cbp.model.dataflow import Dataflow
from controller.bench.dataflows import arranged, compiled, ready
from controller.bench.graph_workloads import Clustering, GraphWorkload, PageRank
from controller.bench.options import CLUSTERING, CRAWL_QUEUE, PAGERANK, BenchOptions, edges_of

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
LINKS_PER_PAGE = 10
LINKS_WITHIN_SITE = 7
URLS_PER_SITE = 200
LOAD_PAGES = 50_000
_SCATTER = 2_654_435_761  # a prime above any number of keys: popular ranks lie apart

Ids = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Arrival:
    """One increment as every candidate gets it: a Parquet file."""

    path: Path
    records: int
    bytes: int


class Workload(Protocol):
    """A dataflow with one source, and what arrives there."""

    @property
    def source(self) -> str:
        """Name of the source."""
        ...

    def dataflow(self, *, grouping: str, form: str, buckets: int) -> Dataflow:
        """Return the dataflow that ours and the black box run, its translators in this form."""
        ...

    def records(self, number: int, count: int) -> pa.Table:
        """Return an increment's records."""
        ...

    def initial(self) -> Iterator[pa.Table]:
        """Yield what a dataflow reads to get its first state; nothing if it is loaded."""
        ...

    def states(self) -> Mapping[tuple[str, str], pa.Table]:
        """Return the first records of (stage, state), to be written as files; if they are."""
        ...

    @property
    def state_records(self) -> int | None:
        """Records in state before the first increment; None where nobody knows."""
        ...

    @property
    def last_phase(self) -> str:
        """The input that is read in the epochs whose state updates are told; "": in all."""
        ...

    def within(self, candidate: str, increments: int) -> float:
        """Return how far from ours a candidate may be after so many increments."""
        ...


@dataclass(frozen=True, slots=True)
class UrlCount:
    """Count URLs; the state holds the keys 0 to `state_keys`, each seen once."""

    state_keys: int
    seed: int = 0
    keys: str = "uniform"
    source: str = "urls"
    last_phase: str = ""

    KEY_SQL = "concat('http://site', id % 50000, '.example.com/page/', hex(id))"
    """The URL of key `id`, in Spark."""

    @property
    def state_records(self) -> int:
        """One record per key."""
        return self.state_keys

    def dataflow(self, *, grouping: str, form: str, buckets: int) -> Dataflow:
        """Return the dataflow of one stage."""
        translator = "url_count" if form == "groupwise" else f"url_count_{form}"
        document = {
            "name": "bench_url_count",
            "sources": {"urls": {"schema": "url STRING", "format": "parquet"}},
            "stages": {"count": {"translator": translator, "inputs": {"urls": "urls"}}},
        }
        return arranged(compiled(document), grouping, buckets)

    def records(self, number: int, count: int) -> pa.Table:
        """Return `(url STRING)`."""
        chance = np.random.default_rng([self.seed, number])
        universe = int(self.state_keys * (1 + NEW_SHARE)) + 1
        if self.keys == "distinct":
            first = int(chance.integers(0, self.state_keys))
            ids = _scattered(np.arange(first, first + count), self.state_keys)
        elif self.keys == "zipf":
            ids = _scattered(_zipf(chance, universe, count), universe)
        else:
            ids = chance.integers(0, universe, count)
        return pa.table({"url": pa.array(self.urls(ids), pa.string())})

    def initial(self) -> Iterator[pa.Table]:
        """Yield nothing: the state is written as files (`controller.bench.load`)."""
        return iter(())

    def states(self) -> dict[tuple[str, str], pa.Table]:
        """Return nothing: there are too many, see `load_counts`."""
        return {}

    def within(self, candidate: str, increments: int) -> float:
        """Return 0: counts are exact."""
        return 0.0

    @staticmethod
    def urls(ids: Ids) -> list[str]:
        """Return the URLs of keys."""
        return [f"http://site{i % SITES}.example.com/page/{i:X}" for i in ids.tolist()]


@dataclass(frozen=True, slots=True)
class CrawlQueue:
    """Decide what to crawl; the first pages name about `state_keys` URLs."""

    state_keys: int
    seed: int = 0
    source: str = "pages"
    last_phase: str = ""

    @property
    def state_records(self) -> None:
        """It follows from the pages."""
        return None

    def dataflow(self, *, grouping: str, form: str, buckets: int) -> Dataflow:
        """Return the ready dataflow `crawl_queue`, its stages with state in this form."""
        document = dict(ready("crawl_queue"))
        if form != "groupwise":
            document["stages"] = {
                name: {**stage, "translator": f"{stage['translator']}_{form}"}
                if name in ("count_in_links", "merge")
                else stage
                for name, stage in document["stages"].items()
            }
        return arranged(compiled(document), grouping, buckets)

    def records(self, number: int, count: int) -> pa.Table:
        """Return `(url STRING, site STRING, links ARRAY<STRING>)`, pages never seen before."""
        return self._pages(self._loaded + number * count, count, np.random.default_rng([1, number]))

    def initial(self) -> Iterator[pa.Table]:
        """Yield the first pages."""
        for part, first in enumerate(range(0, self._loaded, LOAD_PAGES)):
            count = min(LOAD_PAGES, self._loaded - first)
            yield self._pages(first, count, np.random.default_rng([0, part]))

    def states(self) -> dict[tuple[str, str], pa.Table]:
        """Return nothing: the first pages are read."""
        return {}

    def within(self, candidate: str, increments: int) -> float:
        """Return 0: counts are exact."""
        return 0.0

    @property
    def _loaded(self) -> int:
        return -(-self.state_keys // LINKS_PER_PAGE)

    def _pages(self, first: int, count: int, chance: np.random.Generator) -> pa.Table:
        universe = max(self.state_keys, LINKS_PER_PAGE)
        sites = -(-universe // URLS_PER_SITE)
        chance = np.random.default_rng([self.seed, int(chance.integers(1 << 62))])
        pages = _scattered(np.arange(first, first + count), universe)
        near = chance.integers(0, URLS_PER_SITE, (count, LINKS_WITHIN_SITE)) * sites
        near += (pages % sites)[:, None]
        shape = (count, LINKS_PER_PAGE - LINKS_WITHIN_SITE)
        far = _scattered(_zipf(chance, universe, shape[0] * shape[1]), universe).reshape(shape)
        links = [_page_urls(row, sites) for row in np.hstack([near, far])]
        urls = _page_urls(pages, sites)
        return pa.table(
            {
                "url": pa.array(urls, pa.string()),
                "site": pa.array([url.partition(".")[0] for url in urls], pa.string()),
                "links": pa.array(links, pa.list_(pa.string())),
            }
        )


def workload_of(options: BenchOptions, state_keys: int) -> Workload:
    """Return the workload that the options name."""
    if options.workload == CRAWL_QUEUE:
        return CrawlQueue(state_keys, options.seed)
    edges = options.edges or edges_of(options.workload, state_keys)
    if options.workload == CLUSTERING:
        return Clustering(state_keys, edges, options.seed)
    if options.workload == PAGERANK:
        return PageRank(state_keys, edges, options.seed, options.threshold)
    return UrlCount(state_keys, options.seed, options.keys)


def variant_of(workload: Workload, variant: str) -> Workload:
    """Return the same graph for another variant of its dataflow."""
    assert isinstance(workload, GraphWorkload), "only graphs have variants"
    return replace(workload, variant=variant)


def write_arrival(table: pa.Table, path: Path) -> Arrival:
    """Write records as an increment."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path, compression="zstd")
    return Arrival(path, table.num_rows, path.stat().st_size)


def _page_urls(ids: Ids, sites: int) -> list[str]:
    return [f"http://site{i % sites}.example.com/page/{i:X}" for i in ids.tolist()]


def _zipf(chance: np.random.Generator, universe: int, count: int) -> Ids:
    """Draw ranks from 0 with probability about 1 / (rank + 1)."""
    drawn: Ids = np.power(float(universe), chance.random(count)).astype(np.int64) - 1
    return drawn


def _scattered(ranks: Ids, universe: int) -> Ids:
    """Permute 0 .. universe - 1."""
    spread: Ids = ranks % universe * _SCATTER % universe
    return spread
