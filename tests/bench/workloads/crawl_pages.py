"""The first pages of a crawl as records; the benchmark itself starts from their state."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from tests.bench.workloads.crawl_workload import CrawlQueue


def first_pages(workload: CrawlQueue) -> Iterator[pa.Table]:
    """Yield the first pages, whose state `CrawlQueue.states` returns."""
    return (workload._table(pages, links) for pages, links in workload._first())
