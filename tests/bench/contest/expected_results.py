"""Computes the right answer of a workload, independently of every candidate.

- `CountTruth`: counts in a NumPy array. It gives exactly the changes that every increment emits,
  and the rows and the sum of the state.
- `CrawlTruth`: the states of the crawl queue and the queue itself, by counting links in NumPy.
- `GraphTruth`: the value of every page, from scratch.

A bound that a wrong answer can meet is no check. So `GraphTruth` measures the error of an answer
that ignores the increments (`stale`), and allows at most `STALE_SHARE` of it: for all values, and
for the changes of the latest increment alone. Both find an answer that is stale, empty or constant
(tests/bench/contest/test_expected_results.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tests.bench.comparison.changed_counts_files import SCHEMA
from tests.bench.comparison.digests import digest_of
from tests.bench.comparison.result_comparison import Digest, Held, Totals, Values
from tests.bench.workloads.crawl_workload import CrawlQueue
from tests.bench.workloads.draws import Ids
from tests.bench.workloads.graph import Edges
from tests.bench.workloads.graph_workloads import GraphWorkload
from tests.bench.workloads.workload import UrlCount, Workload

__all__ = ["STALE_SHARE", "CountTruth", "CrawlTruth", "GraphTruth", "Truth", "truth_of"]

STALE_SHARE = 0.75
"""Largest allowed error, as a share of the error of an answer that ignores the increments."""

_Reals = npt.NDArray[np.float64]


class Truth(Protocol):
    """The right answer, updated with each increment."""

    def take(self, number: int, count: int, *, before: int) -> None:
        """Apply an increment; arguments as in `Workload.records`."""
        ...

    def emitted(self) -> Digest | None:
        """Return the digest of what the latest increment changes; None if that is not compared."""
        ...

    def unlike(self, label: str, held: Held) -> str:
        """Return what is wrong with the answer of candidate `label`; empty if it is right."""
        ...

    def errors(self, held: Held) -> tuple[float | None, float | None]:
        """Return the mean error, and that of ignoring all increments.

        Both are None if answers are exact; the first one also if the answer is not of all pages.
        """
        ...


def truth_of(workload: Workload, loaded: int) -> Truth:
    """Return the truth for candidates that began with so many keys."""
    if isinstance(workload, UrlCount):
        return CountTruth(workload, loaded)
    if isinstance(workload, CrawlQueue):
        return CrawlTruth(workload)
    assert isinstance(workload, GraphWorkload), "no other workload"
    return GraphTruth(workload)


class CountTruth:
    """How often each URL was seen; see the module header."""

    def __init__(self, workload: UrlCount, loaded: int) -> None:
        self._workload = workload
        self._counts = np.zeros(workload.universe, np.int64)
        self._counts[:loaded] = 1
        self._latest: Ids = np.empty(0, np.int64)

    def take(self, number: int, count: int, *, before: int) -> None:
        """Count the URLs of an increment."""
        ids = self._workload.ids(number, count)
        np.add.at(self._counts, ids, 1)
        self._latest = np.unique(ids)

    def emitted(self) -> Digest:
        """Return the digest of the counts that the latest increment changed."""
        urls = pa.array(self._workload.urls(self._latest), pa.string())
        changed = pa.array(self._counts[self._latest])
        batch = pa.RecordBatch.from_arrays([urls, changed], list(SCHEMA.names))
        return digest_of([batch], SCHEMA.fields)

    def unlike(self, label: str, held: Held) -> str:
        """Compare the number of keys and the sum of all counts."""
        assert isinstance(held, Totals), "a count is asked for"
        keys, n = int(np.count_nonzero(self._counts)), int(self._counts.sum())
        if (held.keys, held.n) == (keys, n):
            return ""
        return f"counts {held.n:,} records of {held.keys:,} keys, not {n:,} of {keys:,}"

    def errors(self, held: Held) -> tuple[None, None]:
        """Return None: counts are exact."""
        return None, None


class CrawlTruth:
    """What is known of every URL and site, and the queue; see the module header."""

    def __init__(self, workload: CrawlQueue) -> None:
        self._workload = workload
        self._drawn: list[tuple[Ids, Ids]] = []
        dataflow = workload.dataflow(grouping="inner", form="groupwise", buckets=2)
        self._fields = {
            (stage, state.name): state.schema.fields
            for stage, node in dataflow.stages.items()
            for state in node.translator.states
        }

    def take(self, number: int, count: int, *, before: int) -> None:
        """Apply the pages of an increment."""
        self._drawn.append(self._workload.drawn(number, count, before=before))

    def emitted(self) -> None:
        """Return None: the queue is compared as a whole."""

    def unlike(self, label: str, held: Held) -> str:
        """Compare every record of all states."""
        assert isinstance(held, Totals), "a count is asked for"
        states = {
            f"{stage}.{state}": digest_of(records.to_batches(), self._fields[stage, state])
            for (stage, state), records in self._workload.states(self._drawn).items()
        }
        return Totals(held.states).unlike(Totals(states), than="right")

    def errors(self, held: Held) -> tuple[None, None]:
        """Return None: counts are exact."""
        return None, None


@dataclass
class GraphTruth:
    """The value of every page, from scratch; see the module header."""

    workload: GraphWorkload
    _edges: list[Edges] = field(init=False)
    _known: dict[int, _Reals] = field(init=False, default_factory=dict)
    _came: dict[str, dict[int, _Reals]] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self._edges = [self.workload.graph.first]

    def take(self, number: int, count: int, *, before: int) -> None:
        """Apply new links."""
        self._edges.append(self.workload.graph.more(number, count))

    def emitted(self) -> None:
        """Return None: the values are compared instead."""

    def unlike(self, label: str, held: Held) -> str:
        """Compare all values, and the changes of the latest increment, with their bounds."""
        assert isinstance(held, Values), "values of pages are asked for"
        age = len(self._edges) - 1
        came, expected = _array(held.of), self.after(age)
        if came is None or len(came) != len(expected):
            return f"holds {len(held.of):,} pages, not {len(expected):,}, or other ones"
        bound = self.workload.error_max(STALE_SHARE * _apart(expected, self.after(0)))
        if not (error := _apart(came, expected)) <= bound:
            return f"is {error:.3g} from the truth in the mean, above {bound:.3g}"
        earlier = self._came.setdefault(label, {0: self.after(0)})
        seen = max(one for one in earlier if one < age)
        before, earlier[age] = earlier[seen], came
        moved, right = came - before, expected - self.after(seen)
        bound = self.workload.error_max(STALE_SHARE * float(np.abs(right).mean()))
        if not (error := _apart(moved, right)) <= bound:
            return f"changed by {error:.3g} else than the increment asks, above {bound:.3g}"
        return ""

    def errors(self, held: Held) -> tuple[float | None, float | None]:
        """Return the mean error, and that of the values before the first increment.

        The first one is None if the answer is not of the same pages.
        """
        assert isinstance(held, Values), "values of pages are asked for"
        expected, came = self.after(len(self._edges) - 1), _array(held.of)
        stale = _apart(expected, self.after(0))
        return None if came is None or len(came) != len(expected) else _apart(came, expected), stale

    def after(self, increments: int) -> _Reals:
        """Return the true values after so many increments."""
        if increments not in self._known:
            parts = self._edges[: increments + 1]
            every = Edges(*(np.concatenate([getattr(p, n) for p in parts]) for n in ("src", "dst")))
            self._known[increments] = self.workload.truth(every)
        return self._known[increments]


def _array(values: Mapping[int, float]) -> _Reals | None:
    """Return the values of pages 0 to n in order; None if the pages are not 0 to n."""
    if not values or max(values) != len(values) - 1 or min(values) != 0:
        return None
    return np.array([values[page] for page in range(len(values))], np.float64)


def _apart(one: _Reals, other: _Reals) -> float:
    return float(np.abs(one - other).mean())
