"""The demo's dataflow, and its queue as any reader of the Delta tables sees it.

The dataflow is found by the name under which an installed package offers it. Its queue is a view:
a table of exactly the URLs to crawl.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl

from cbp.model.dataflow.dataflow import Dataflow
from controller.demo.errors import DataflowMissingError
from controller.demo.results.tables import TableRef, frame
from controller.registry import Registry
from controller.settings import Settings

__all__ = [
    "GROUP",
    "NAME",
    "QUEUE",
    "QueueEntry",
    "SiteLinks",
    "compiled",
    "document",
    "links_per_site",
    "top_of_queue",
]

GROUP = "cbp.dataflows"
NAME = "crawl_queue"
QUEUE = "threshold.queue"


@dataclass(frozen=True, slots=True)
class QueueEntry:
    """One URL to crawl."""

    url: str
    site: str
    score: float
    in_links: int


@dataclass(frozen=True, slots=True)
class SiteLinks:
    """One site.

    Attributes:
        in_links: Links to any of its URLs.
        crawled, waiting: URLs that were crawled; URLs that are known only by links.
    """

    site: str
    in_links: int
    crawled: int
    waiting: int


def top_of_queue(tables: Mapping[str, TableRef], count: int) -> tuple[list[QueueEntry], int]:
    """Return the best entries by score, ties by URL, and the length of the whole queue."""
    queue = frame(tables[QUEUE]).sort(["score", "url"], descending=[True, False])
    counts = frame(tables["count_in_links.counts"])
    best = queue.head(count).join(counts, on=["site", "url"], how="left", maintain_order="left")
    rows = best.select("url", "site", "score", "n").iter_rows()
    return [QueueEntry(*row) for row in rows], queue.height


def links_per_site(tables: Mapping[str, TableRef], count: int) -> list[SiteLinks]:
    """Return the sites that receive the most links, ties by name."""
    known = frame(tables["merge.known"])
    # The record with a null `url` holds the total of the site.
    per_site = known.group_by("site").agg(
        pl.col("n").filter(pl.col("url").is_null()).sum(),
        pl.col("crawled").filter(pl.col("url").is_not_null()).sum(),
        (~pl.col("crawled")).filter(pl.col("url").is_not_null()).sum().alias("waiting"),
    )
    best = per_site.sort(["n", "site"], descending=[True, False]).head(count)
    return [SiteLinks(*row) for row in best.iter_rows()]


def document() -> Mapping[str, Any]:
    """Return the document to register, as JSON values.

    Raises:
        DataflowMissingError: If no installed package offers it.
    """
    for point in importlib.metadata.entry_points(group=GROUP):
        if point.name == NAME:
            entry = point.load()
            made: Mapping[str, Any] = entry() if callable(entry) else entry
            return made
    raise DataflowMissingError(NAME)


def compiled(document: Mapping[str, Any], settings: Settings) -> Dataflow:
    """Return the dataflow of a document, with the translators that the service would use."""
    return Registry(settings.allowed_packages).compile(document)
