"""The workload `crawl-queue`: pages with ten links each, seven to their own site, others Zipf.

The number of pages crawled before the first increment is a tenth of the requested keys. They name
some 55 % of all URLs; `loaded_keys` gives the exact number. Their state is written as files, as if
the dataflow had run (`states`). Every page of an increment is new: no earlier increment had it.
Once all URLs are crawled, the next pages are ones that no page named.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import log2
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cbp.model.dataflow.dataflow import Dataflow
from tests.bench.workloads.dataflows import arranged, compiled, ready
from tests.bench.workloads.draws import Ids, scattered, zipf

__all__ = ["KEPT", "LINKS_PER_PAGE", "CrawlQueue"]

KEPT = "kept"
"""The form in which the state of groupwise translators is kept."""

LINKS_PER_PAGE = 10
_LINKS_WITHIN_SITE = 7
_URLS_PER_SITE = 200
_PAGES_AT_ONCE = 50_000
_TEXTS_AT_ONCE = 1 << 20


@dataclass(frozen=True, slots=True)
class _Known:
    """What pages say about each URL that they are or name, ascending by `ids`.

    Attributes:
        n: Number of pages that link to it.
        site_n: The sum of `n` over its site, as of the last increment that links to it.
    """

    ids: Ids
    n: Ids
    site_n: Ids
    crawled: npt.NDArray[np.bool_]

    @property
    def waiting(self) -> npt.NDArray[np.bool_]:
        """Which URLs are in the queue: linked to, and not crawled; each of them scores enough."""
        return (self.n > 0) & ~self.crawled


@dataclass(frozen=True)
class CrawlQueue:
    """Decide what to crawl.

    Attributes:
        state_keys: Number of URLs; the first pages name a part of them.
        from_empty: There are no first pages.
    """

    state_keys: int
    seed: int = 0
    from_empty: bool = False
    source: str = "pages"
    last_phase: str = ""

    @property
    def loaded_keys(self) -> int:
        """Number of URLs that the first pages are or name."""
        return len(self._known.ids)

    @cached_property
    def state_records(self) -> int:
        """A record per URL and per site in each of two states, and one per URL of the queue."""
        known, sites = self._known, self._sites
        linked = known.ids[known.n > 0]
        named = len(linked) + len(known.ids)
        named += len(np.unique(linked % sites)) + len(np.unique(known.ids % sites))
        return named + int(np.count_nonzero(known.waiting))

    def dataflow(self, *, grouping: str, form: str, buckets: int) -> Dataflow:
        """Return the dataflow `crawl_queue`; its stages with state use this form."""
        document = dict(ready("crawl_queue"))
        document["stages"] = {
            name: _in_form(name, stage, form) for name, stage in document["stages"].items()
        }
        return arranged(compiled(document), grouping, buckets)

    def records(self, number: int, count: int, *, before: int) -> pa.Table:
        """Return `(url STRING, site STRING, links ARRAY<STRING>)` of pages never seen before."""
        return self._table(*self.drawn(number, count, before=before))

    def drawn(self, number: int, count: int, *, before: int) -> tuple[Ids, Ids]:
        """Return the pages of an increment, and the links of each: `(count,)`, `(count, 10)`."""
        chance = np.random.default_rng([1, number])
        return self._drawn(self._loaded + before, count, chance)

    def states(self, more: Iterable[tuple[Ids, Ids]] = ()) -> dict[tuple[str, str], pa.Table]:
        """Return the states of the stages: a record per URL and per site, and the queue.

        Args:
            more: Increments of pages after the first ones, and their links.
        """
        more = list(more)
        known, sites = (self._known_by(more) if more else self._known), self._sites
        linked = known.n > 0
        named = known.ids[linked] % sites
        total = np.bincount(named, known.n[linked], minlength=sites).astype(np.int64)
        linked_sites, every_site = np.unique(named), np.unique(known.ids % sites)
        counts = {
            "site": _joined(self._site_names(linked_sites), self._site_names(named)),
            "url": _joined(_nulls(len(linked_sites)), self._urls(known.ids[linked])),
            "n": np.concatenate([total[linked_sites], known.n[linked]]),
        }
        merged = {
            "site": _joined(self._site_names(every_site), self._site_names(known.ids % sites)),
            "url": _joined(_nulls(len(every_site)), self._urls(known.ids)),
            "n": np.concatenate([total[every_site], known.n]),
            "crawled": np.concatenate([np.zeros(len(every_site), np.bool_), known.crawled]),
        }
        waiting = known.waiting
        queue = {
            "site": self._site_names(known.ids[waiting] % sites),
            "url": self._urls(known.ids[waiting]),
            "score": _scores(known.n[waiting], known.site_n[waiting]),
        }
        return {
            ("count_in_links", "counts"): pa.table(counts),
            ("merge", "known"): pa.table(merged),
            ("threshold", "queue"): pa.table(queue),
        }

    @property
    def _loaded(self) -> int:
        return 0 if self.from_empty else -(-self.state_keys // LINKS_PER_PAGE)

    @property
    def _universe(self) -> int:
        return max(self.state_keys, LINKS_PER_PAGE)

    @property
    def _sites(self) -> int:
        return -(-self._universe // _URLS_PER_SITE)

    @cached_property
    def _known(self) -> _Known:
        return self._known_by(())

    def _known_by(self, more: Sequence[tuple[Ids, Ids]]) -> _Known:
        last = max((int(pages.max()) + 1 for pages, _ in more), default=0)
        size = max(self._universe, self._sites * _URLS_PER_SITE, last)
        n, site_n = np.zeros(size, np.int64), np.zeros(size, np.int64)
        crawled, total = np.zeros(size, np.bool_), np.zeros(self._sites, np.int64)
        for pages, links in (*self._first(), *more):
            crawled[pages] = True
            ordered = np.sort(links, axis=1)
            first = np.ones(ordered.shape, np.bool_)  # repeated links count once
            first[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
            named = ordered[first]
            np.add.at(n, named, 1)
            np.add.at(total, named % self._sites, 1)
            site_n[named] = total[named % self._sites]
        ids = np.flatnonzero((n > 0) | crawled)
        return _Known(ids, n[ids], site_n[ids], crawled[ids])

    def _first(self) -> Iterator[tuple[Ids, Ids]]:
        for part, first in enumerate(range(0, self._loaded, _PAGES_AT_ONCE)):
            count = min(_PAGES_AT_ONCE, self._loaded - first)
            yield self._drawn(first, count, np.random.default_rng([0, part]))

    def _drawn(self, first: int, count: int, chance: np.random.Generator) -> tuple[Ids, Ids]:
        """Return pages, and the links of each: `(count,)` and `(count, 10)`."""
        universe, sites = self._universe, self._sites
        chance = np.random.default_rng([self.seed, int(chance.integers(1 << 62))])
        ranks = np.arange(first, first + count)
        pages = np.where(ranks < universe, scattered(ranks, universe), ranks)
        near = chance.integers(0, _URLS_PER_SITE, (count, _LINKS_WITHIN_SITE)) * sites
        near += (pages % sites)[:, None]
        shape = (count, LINKS_PER_PAGE - _LINKS_WITHIN_SITE)
        far = scattered(zipf(chance, universe, shape[0] * shape[1]), universe).reshape(shape)
        return pages, np.hstack([near, far])

    def _table(self, pages: Ids, links: Ids) -> pa.Table:
        ends = pa.array(np.arange(0, links.size + 1, LINKS_PER_PAGE).astype(np.int32))
        named = self._urls(links.ravel()).combine_chunks()
        return pa.table(
            {
                "url": self._urls(pages),
                "site": self._site_names(pages % self._sites),
                "links": pa.ListArray.from_arrays(ends, named),
            }
        )

    def _urls(self, ids: Ids) -> pa.ChunkedArray:
        sites = self._sites
        parts = (
            ids[at : at + _TEXTS_AT_ONCE].tolist() for at in range(0, len(ids), _TEXTS_AT_ONCE)
        )
        return pa.chunked_array(
            [
                pa.array([f"http://site{i % sites}.example.com/page/{i:X}" for i in part])
                for part in parts
            ],
            pa.string(),
        )

    def _site_names(self, sites: Ids) -> pa.ChunkedArray:
        unique_sites, places = np.unique(sites, return_inverse=True)
        names = pa.array([f"http://site{i}" for i in unique_sites.tolist()], pa.string())
        return pa.chunked_array([names.take(pa.array(places))])


def _in_form(name: str, stage: Mapping[str, Any], form: str) -> Mapping[str, Any]:
    """Return a stage with its translator in a form, if it has state; the queue keeps its own."""
    has_form = {"arrow": ("count_in_links", "merge", "threshold"), KEPT: ("count_in_links",)}
    if name in has_form.get(form, ()):
        return {**stage, "translator": f"{stage['translator']}_{form}"}
    if form == KEPT and name == "merge":
        return {**stage, "parameters": {"keep": True}}
    return stage


def _scores(n: Ids, site_n: Ids) -> npt.NDArray[np.float64]:
    """Return the scores of URLs, by the formula of the stage `score`."""
    most = int(site_n.max(initial=0)) + 1
    pairs, places = np.unique(n * most + site_n, return_inverse=True)
    counts = zip((pairs // most).tolist(), (pairs % most).tolist(), strict=True)
    scores = [round(log2(1 + own) + 0.5 * log2(1 + all_), 6) for own, all_ in counts]
    return np.array(scores, np.float64)[places]


def _nulls(count: int) -> pa.ChunkedArray:
    return pa.chunked_array([pa.nulls(count, pa.string())])


def _joined(*columns: pa.ChunkedArray) -> pa.ChunkedArray:
    return pa.chunked_array([chunk for column in columns for chunk in column.chunks], pa.string())
