"""What a user may choose about a benchmark, and which choices are refused.

Guaranteed: `BenchOptions.check` refuses before anything is started or written.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from cbp.model.publication import EPOCHS_MAX
from controller.bench.errors import BenchRefusedError

__all__ = [
    "CANDIDATES",
    "CLUSTERING",
    "CRAWL_QUEUE",
    "GRAPHS",
    "NO_SPARK",
    "OURS",
    "PAGERANK",
    "URL_COUNT",
    "VARIANTS",
    "BenchOptions",
    "Candidates",
    "edges_of",
    "peers_by_default",
    "runs_dataflow",
    "sizes_by_default",
]

OURS = "cbp"
NO_SPARK = "none"
"""As `master`: run what needs no Spark, in this process."""

CLUSTERING = "clustering"
CRAWL_QUEUE = "crawl-queue"
PAGERANK = "pagerank"
URL_COUNT = "url-count"
GRAPHS = (CLUSTERING, PAGERANK)
VARIANTS = {"plain": CLUSTERING, "broadcast": PAGERANK}
"""Ours again, the same dataflow told in another way, and the workload that has it."""

SOAK_SHARE_MAX = 100
"""Epochs at each end of a soak that are compared."""

Candidates = tuple[str, ...]

CANDIDATES: dict[str, str] = {
    OURS: "this product",
    "merge": "Delta MERGE in a batch",
    "blackbox": "this product's translator, state shuffled and rewritten every epoch",
    "scan": "this product, every look-up a scan of the state's files",
    "jobs": "this product, every run a Spark job: no resident workers",
    "plain": "this product, a message to each neighbour instead of a multicast",
    "broadcast": "this product, ALL pages told instead of a multicast",
    "rewrite": "Spark SQL full outer join, table rewritten every epoch",
    "streaming": "Structured Streaming with RocksDB, in the JVM",
    "streaming-python-apply": "Structured Streaming, applyInPandasWithState",
    "streaming-python-tws": "Structured Streaming, transformWithStateInPandas",
    "duckdb": "DuckDB, INSERT ... ON CONFLICT in one process",
    "recompute": "Spark SQL, from scratch",
}
_TOGETHER: dict[str, Candidates] = {
    "streaming-python": ("streaming-python-apply", "streaming-python-tws")
}
"""Names that stand for several candidates."""

_ANY_DATAFLOW = (OURS, "blackbox", "scan", "jobs")
_WITHOUT_SPARK = (OURS, "blackbox", "scan", *VARIANTS, "duckdb")
_RUNNING: dict[str, Candidates] = {
    URL_COUNT: tuple(name for name in CANDIDATES if name not in VARIANTS),
    CRAWL_QUEUE: _ANY_DATAFLOW,
    CLUSTERING: (*_ANY_DATAFLOW, "plain", "recompute"),
    PAGERANK: (*_ANY_DATAFLOW, "broadcast", "recompute"),
}
_PEERS: dict[str, Candidates] = {
    URL_COUNT: ("merge", "blackbox", "streaming"),
    CRAWL_QUEUE: ("blackbox",),
    CLUSTERING: ("plain", "blackbox", "recompute"),
    PAGERANK: ("broadcast", "blackbox", "recompute"),
}
_SIZES: dict[str, tuple[int, int]] = {CLUSTERING: (20_000, 100), PAGERANK: (100_000, 100)}
_SIZES_USUAL = (1_000_000, 10_000)
_THRESHOLD = 0.01
_EDGES, _EDGES_CLUSTERING = 10, 5
NODES_MIN = 100
DENSITY = 8
"""A graph has at most one in so many of the links that its nodes could have."""
_IN_SQL = "sql"
_FORMS = ("groupwise", "arrow", _IN_SQL)
_WRITTEN: dict[str, tuple[str, ...]] = {URL_COUNT: _FORMS, CRAWL_QUEUE: _FORMS[:2]}
"""The forms of a workload's translators; of the others, the first."""


@dataclass(frozen=True, slots=True)
class BenchOptions:
    """Choices of one call.

    Attributes:
        workload: `url-count`, `crawl-queue`, `clustering` or `pagerank`.
        against: Candidates besides ours; those that run our translators also as `name/form`;
            `streaming-python` is two, `streaming-python-apply` and `streaming-python-tws`.
        keys: How `url-count` draws its keys: `uniform`, `zipf`, or `distinct`: every record
            another key that is in state.
        forms: Of our translator, each measured as a candidate of its own.
        state_keys: Sizes of the state before the first increment; of graphs, in nodes.
        increment: Sizes of increments, in records (pages for `crawl-queue`, links for graphs).
        edges: Of a graph; 0: ten per node, five for `clustering`.
        threshold: Change of a rank that affects a page; the mean rank is 1.
        hit_rates: Instead of sizes: shares of the keys in state that an increment touches.
        age: Increments that every state has behind it before any is measured.
        rounds: Measured runs of each candidate; `warmup` more come before them.
        grouping: Of the state, ours and the black box's.
        master: Of Spark, or `none`.
        root: Folder in which this call makes a new one that stays; `None`: a temporary one.
        json_file, picture: Where results are written, if anywhere.
        epochs: Of a soak: that many in a row, ours alone.
        publish_epochs: Of a soak: so many epochs are published together.
    """

    workload: str = URL_COUNT
    against: Candidates = ()
    keys: str = "uniform"
    forms: tuple[str, ...] = ("groupwise",)
    state_keys: tuple[int, ...] = (1_000_000,)
    increment: tuple[int, ...] = (10_000,)
    edges: int = 0
    threshold: float = _THRESHOLD
    hit_rates: tuple[float, ...] = ()
    age: int = 0
    rounds: int = 5
    warmup: int = 2
    seed: int = 0
    grouping: str = "inner"
    master: str = "local[2]"
    driver_memory: str = "4g"
    root: Path | None = None
    json_file: Path | None = None
    picture: Path | None = None
    epochs: int = 1000
    soak: bool = False
    publish_epochs: int = 1

    @property
    def label(self) -> str:
        """The workload's name in results; what is not the default shows."""
        parts = [self.workload]
        if self.workload == URL_COUNT and self.keys != "uniform":
            parts.append(self.keys)
        if self.edges:
            parts.append(f"edges-{self.edges}")
        if self.threshold != _THRESHOLD:
            parts.append(f"threshold-{self.threshold:g}")
        if self.grouping != "inner":
            parts.append(self.grouping)
        if self.age:
            parts.append(f"age-{self.age}")
        return "/".join(parts)

    @property
    def entrants(self) -> Candidates:
        """Who takes part: ours, once per form after the first as `cbp/form`, then its peers."""
        return (OURS, *(f"{OURS}/{form}" for form in self.forms[1:]), *self.peers)

    @property
    def peers(self) -> Candidates:
        """Who is named by `against`, each once."""
        named = (label for name in self.against for label in _TOGETHER.get(name, (name,)))
        return tuple(dict.fromkeys(named))

    def sizes(self, state_keys: int) -> tuple[int, ...]:
        """Return the increments' sizes on a state of so many keys, in records."""
        if not self.hit_rates:
            return self.increment
        return tuple(dict.fromkeys(max(1, round(rate * state_keys)) for rate in self.hit_rates))

    def check(self) -> None:
        """Raise BenchRefusedError for the first choice that cannot be run."""
        _one_of("workload", self.workload, tuple(_RUNNING))
        _one_of("keys", self.keys, ("uniform", "zipf", "distinct"))
        _one_of("grouping", self.grouping, ("inner", "outer"))
        self._check_forms()
        for name in self.peers:
            self._check_candidate(name)
        for option, values in (("state-keys", self.state_keys), ("increment", self.increment)):
            if not values or min(values) < 1:
                raise BenchRefusedError(option, "sizes begin at 1")
        self._check_hit_rates()
        self._check_graph()
        if self.age < 0:
            raise BenchRefusedError("age", "a number of increments, 0 or more")
        if self.rounds < 1 or self.warmup < 0:
            raise BenchRefusedError("rounds", "at least 1, after a warm-up of 0 or more")
        if self.soak:
            self._check_soak()

    def _check_forms(self) -> None:
        if not self.forms:
            raise BenchRefusedError("form", f"name one of {', '.join(_FORMS)}")
        for form in self.forms:
            _one_of("form", form, _FORMS)
            self._check_written(form)
            if form == _IN_SQL and self.master == NO_SPARK:
                raise BenchRefusedError("form", f"{form} needs Spark; give a --master")

    def _check_written(self, form: str) -> None:
        written = _WRITTEN.get(self.workload, _FORMS[:1])
        if form not in written:
            forms = " or ".join(written)
            raise BenchRefusedError("form", f"{self.workload} is written {forms} only")

    def _check_hit_rates(self) -> None:
        if not self.hit_rates:
            return
        if min(self.hit_rates) <= 0 or max(self.hit_rates) > 1:
            raise BenchRefusedError("hit-rates", "shares of the keys, above 0 and up to 1")
        if self.workload != URL_COUNT or self.keys != "distinct":
            raise BenchRefusedError("hit-rates", f"of {URL_COUNT} with --keys distinct")

    def _check_graph(self) -> None:
        if self.workload not in GRAPHS:
            if self.edges:
                raise BenchRefusedError("edges", f"of {' and '.join(GRAPHS)} only")
        elif self.edges < 0:
            raise BenchRefusedError("edges", "a number of links, 1 or more")
        else:
            self._check_density()
        if self.threshold != _THRESHOLD and self.workload != PAGERANK:
            raise BenchRefusedError("threshold", f"of {PAGERANK} only")
        if self.threshold < 0:
            raise BenchRefusedError("threshold", "a change of a rank, 0 or more")

    def _check_density(self) -> None:
        """Refuse a graph that has no room for its links: drawing them would not end."""
        for nodes in self.state_keys:
            edges = self.edges or edges_of(self.workload, nodes)
            if nodes < NODES_MIN:
                raise BenchRefusedError("nodes", f"a graph has at least {NODES_MIN}")
            if edges < nodes:
                raise BenchRefusedError("edges", f"at least as many as nodes, {nodes:,}")
            if (edges + max(self.increment)) * DENSITY > nodes * nodes:
                raise BenchRefusedError(
                    "edges", f"at most {nodes * nodes // DENSITY:,} for {nodes:,} nodes"
                )

    def _check_candidate(self, label: str) -> None:
        name, _, form = label.partition("/")
        others = tuple(candidate for candidate in CANDIDATES if candidate != OURS)
        if name == OURS:
            raise BenchRefusedError("against", f"{OURS} takes part anyway; name its peers")
        _one_of("against", name, others)
        running = _RUNNING[self.workload]
        if name not in running:
            peers = ", ".join(one for one in running if one != OURS)
            raise BenchRefusedError("against", f"{name} has no {self.workload}; name {peers}")
        if self.master == NO_SPARK and name not in _WITHOUT_SPARK:
            raise BenchRefusedError("against", f"{name} needs Spark; give a --master")
        if form:
            if name not in _ANY_DATAFLOW:
                raise BenchRefusedError("against", f"{name} has no form of our translators")
            self._check_written(form)
        if form == _IN_SQL:
            why = f"{name} does not run SQL, as {OURS} alone does (--form {_IN_SQL})"
            raise BenchRefusedError("against", f"{why}; name {name} or {name}/arrow")

    def _check_soak(self) -> None:
        if self.against:
            raise BenchRefusedError("soak", "measures ours alone; leave --against out")
        if max(map(len, (self.state_keys, self.increment, self.forms))) > 1:
            raise BenchRefusedError("soak", "takes one --state-keys, --increment and --form")
        if self.epochs < 2:
            raise BenchRefusedError("epochs", "a soak takes at least 2")
        if not 1 <= self.publish_epochs <= EPOCHS_MAX:
            raise BenchRefusedError("publish-epochs", f"use 1 to {EPOCHS_MAX}")


def edges_of(workload: str, nodes: int) -> int:
    """Return how many edges a graph of so many nodes has, unless it is said."""
    return nodes * (_EDGES_CLUSTERING if workload == CLUSTERING else _EDGES)


def runs_dataflow(label: str) -> bool:
    """Tell whether a candidate runs our dataflow, in whatever mode."""
    return label.partition("/")[0] in (*_ANY_DATAFLOW, *VARIANTS)


def peers_by_default(workload: str) -> Candidates:
    """Return whom a workload is measured against, unless it is said."""
    return _PEERS.get(workload, ())


def sizes_by_default(workload: str) -> tuple[int, int]:
    """Return keys in state and records of an increment, unless they are said."""
    return _SIZES.get(workload, _SIZES_USUAL)


def _one_of(option: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise BenchRefusedError(option, f"{value!r} is none of {', '.join(allowed)}")
