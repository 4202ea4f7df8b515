"""The options of a benchmark, and the combinations that are refused.

Guaranteed: `BenchOptions.check` refuses before anything is started or written.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from cbp.model.dataflow.dataflow import EPOCHS_MAX
from tests.bench.errors import BenchRefusedError

__all__ = [
    "CANDIDATES",
    "CLUSTERING",
    "CRAWL_QUEUE",
    "GRAPHS",
    "NO_SPARK",
    "OURS",
    "PAGERANK",
    "PAPER",
    "URL_COUNT",
    "VARIANTS",
    "VIEW",
    "BenchOptions",
    "Candidates",
    "edges_of",
    "groups_all",
    "needs_spark",
    "peers_by_default",
    "runs_dataflow",
    "sizes_by_default",
]

OURS = "cbp"
NO_SPARK = "none"
"""Value of `master`: run only candidates that need no Spark, in this process."""

CLUSTERING = "clustering"
CRAWL_QUEUE = "crawl-queue"
PAGERANK = "pagerank"
URL_COUNT = "url-count"
GRAPHS = (CLUSTERING, PAGERANK)
VARIANTS = {"plain": CLUSTERING, "broadcast": PAGERANK}
"""Variants of `cbp` that express the same dataflow in another way, each with its workload."""
PAPER = ("paper-a", "paper-b")
"""The first two of the paper's three bars; the third, inner look-ups, is `cbp`."""

SOAK_SHARE_MAX = 100
"""Maximum number of epochs at each end of a soak that are compared."""

Candidates = tuple[str, ...]

CANDIDATES: dict[str, str] = {
    OURS: "this product",
    "jobs": "this product, every run a Spark job: no resident workers",
    "service": "this product, end to end: a file is dropped into a running service",
    "blackbox": "this product's translator, state shuffled and rewritten every epoch",
    "scan": "this product, every look-up a scan of the state's files",
    "plain": "this product, a message to each neighbour instead of a multicast",
    "broadcast": "this product, ALL pages told instead of a multicast",
    "paper-a": "the paper's bar (a): one copy of ALL per task; state shuffled, outer, every epoch",
    "paper-b": "the paper's bar (b): state stays where it is; outer, read as a whole every epoch",
    "merge-files": "Delta MERGE in a batch, files rewritten",
    "merge-vectors": "Delta MERGE in a batch, deletion vectors",
    "rewrite": "Spark SQL join of state and increment, table rewritten every epoch",
    "streaming": "Structured Streaming with RocksDB, in the JVM",
    "streaming-python-apply": "Structured Streaming, applyInPandasWithState",
    "streaming-python-tws": "Structured Streaming, transformWithStateInPandas",
    "duckdb-key": "DuckDB, primary key, changes by a join, INSERT ... ON CONFLICT",
    "duckdb-update": "DuckDB, no index, changes by a join, UPDATE and INSERT",
    "duckdb-parquet": "DuckDB, a Parquet file rewritten every epoch",
    "polars": "Polars, a Parquet file rewritten every epoch",
    "recompute": "Spark SQL, from scratch",
    "scratch": "NumPy (pagerank) or Polars (clustering) in one process, from scratch",
    "warm": "NumPy (pagerank) or Python (clustering) in one process, from the last result",
}
_TOGETHER: dict[str, Candidates] = {
    "streaming-python": ("streaming-python-apply", "streaming-python-tws"),
    "merge": ("merge-files", "merge-vectors"),
    "duckdb": ("duckdb-key", "duckdb-update", "duckdb-parquet"),
    "paper": PAPER,
}
"""Names that stand for several candidates."""

_ANY_DATAFLOW = (OURS, "blackbox", "scan", "jobs")
_OF_GRAPHS = ("scratch", "warm")
_IN_ONE_PROCESS = ("duckdb-key", "duckdb-update", "duckdb-parquet", "polars", *_OF_GRAPHS)
"""Candidates that need no Spark, whatever the master; the service starts its own."""
_WITHOUT_SPARK = (OURS, "blackbox", "scan", *VARIANTS, *PAPER, *_IN_ONE_PROCESS, "service")
_RUNNING: dict[str, Candidates] = {
    URL_COUNT: tuple(n for n in CANDIDATES if n not in (*VARIANTS, *PAPER, *_OF_GRAPHS)),
    CRAWL_QUEUE: _ANY_DATAFLOW,
    CLUSTERING: (*_ANY_DATAFLOW, "plain", "recompute", *_OF_GRAPHS),
    PAGERANK: (*_ANY_DATAFLOW, "broadcast", *PAPER, "recompute", *_OF_GRAPHS),
}
_PEERS: dict[str, Candidates] = {
    URL_COUNT: ("jobs", "streaming", "duckdb", "polars"),
    CRAWL_QUEUE: ("blackbox",),
    CLUSTERING: ("plain", "blackbox", *_OF_GRAPHS),
    PAGERANK: ("broadcast", "paper", *_OF_GRAPHS),
}
_SIZES: dict[str, tuple[int, int]] = {CLUSTERING: (20_000, 100), PAGERANK: (100_000, 100)}
_SIZES_USUAL = (1_000_000, 10_000)
_THRESHOLD = 0.01
_ERROR = 1e-4
_EDGES, _EDGES_CLUSTERING = 10, 5
NODES_MIN = 100
DENSITY = 8
"""A graph has at most one in `DENSITY` of the links that its nodes could have."""
_IN_SQL = "sql"
_IN_ROWS, _IN_COLUMNS, _KEPT = "groupwise", "arrow", "kept"
VIEW = "view"
"""The form of a groupwise translator that gives a view instead of a state and an output."""
_FORMS = (_IN_ROWS, _IN_COLUMNS, _IN_SQL, _KEPT, VIEW)
_WRITTEN: dict[str, tuple[str, ...]] = {
    URL_COUNT: (_IN_ROWS, _IN_COLUMNS, _IN_SQL, VIEW),
    CRAWL_QUEUE: (_IN_ROWS, _IN_COLUMNS, _KEPT),
}
"""The forms of a workload's translators; other workloads have only the first."""


@dataclass(frozen=True, slots=True)
class BenchOptions:
    """Options of one call.

    Attributes:
        workload: `url-count`, `crawl-queue`, `clustering` or `pagerank`.
        against: Candidates besides `cbp`; those that run our translators also as `name/form`;
            `streaming-python`, `merge`, `duckdb` and `paper` are several each.
        keys: How `url-count` draws its keys: `uniform`, `zipf`, or `distinct`: every record has
            another key that is in state.
        forms: Forms of our translator; each is measured as a separate candidate.
        state_keys: Sizes of the state before the first increment; for graphs, in nodes.
        increment: Sizes of increments, in records (pages for `crawl-queue`, links for graphs).
        edges: Edges of a graph; 0 means ten per node, five for `clustering`.
        threshold: Change of a rank that affects a page; the mean rank is 1.
        error: For `pagerank`: mean error at which peers that iterate over the whole graph stop.
        from_empty: For `crawl-queue`: nothing is known before the first increment.
        hit_rates: Instead of sizes: shares of the keys in state that an increment touches.
        age: Increments that every candidate reads before any is measured.
        rounds: Measured runs of each candidate: one number for all sizes, or one for each.
        warmup: Runs before them, given in the same way.
        candidate_seconds: After this total time of its runs of one size, a peer sits out the other
            rounds of that size; one round is always measured; 0 means no limit.
        minutes: After this time no further round begins; 0 means all are run.
        grouping: Grouping of the state, for `cbp` and the black box.
        master: Spark master, or `none`.
        driver_memory: Memory of each candidate's own Spark driver.
        isolated: Each candidate has its own process; else all share this one.
        root: Folder in which this call creates a new one that stays; `None` means a temporary one.
        prepared: Folder of first states that several calls share; missing states are made.
            `None` means that only the candidates of this call share them.
        json_file, picture: Where results are written, if anywhere.
        epochs: For a soak: number of consecutive epochs, of `cbp` alone.
        publish_epochs: For a soak: number of epochs that are published together.
    """

    workload: str = URL_COUNT
    against: Candidates = ()
    keys: str = "uniform"
    forms: tuple[str, ...] = ("groupwise",)
    state_keys: tuple[int, ...] = (1_000_000,)
    increment: tuple[int, ...] = (10_000,)
    edges: int = 0
    threshold: float = _THRESHOLD
    error: float = _ERROR
    from_empty: bool = False
    hit_rates: tuple[float, ...] = ()
    age: int = 0
    rounds: tuple[int, ...] = (7,)
    warmup: tuple[int, ...] = (2,)
    candidate_seconds: float = 120.0
    minutes: float = 0.0
    seed: int = 0
    grouping: str = "inner"
    master: str = "local[2]"
    driver_memory: str = "6g"
    isolated: bool = True
    root: Path | None = None
    prepared: Path | None = None
    json_file: Path | None = None
    picture: Path | None = None
    epochs: int = 1000
    soak: bool = False
    publish_epochs: int = 1

    @property
    def label(self) -> str:
        """The workload's name in results, with all options that differ from the default."""
        parts = [self.workload]
        if self.workload == URL_COUNT and self.keys != "uniform":
            parts.append(self.keys)
        if self.edges:
            parts.append(f"edges-{self.edges}")
        if self.threshold != _THRESHOLD:
            parts.append(f"threshold-{self.threshold:g}")
        if self.error != _ERROR:
            parts.append(f"error-{self.error:g}")
        if self.from_empty:
            parts.append("from-empty")
        if self.grouping != "inner":
            parts.append(self.grouping)
        if self.age:
            parts.append(f"age-{self.age}")
        return "/".join(parts)

    @property
    def entrants(self) -> Candidates:
        """All candidates: `cbp`, once per further form as `cbp/form`, then its peers."""
        return (OURS, *(f"{OURS}/{form}" for form in self.forms[1:]), *self.peers)

    @property
    def peers(self) -> Candidates:
        """Candidates named by `against`, each once."""
        named = (label for name in self.against for label in _TOGETHER.get(name, (name,)))
        return tuple(dict.fromkeys(named))

    def sizes(self, state_keys: int) -> tuple[int, ...]:
        """Return the increments' sizes for a state of so many keys, in records."""
        if not self.hit_rates:
            return self.increment
        return tuple(dict.fromkeys(max(1, round(rate * state_keys)) for rate in self.hit_rates))

    def rounds_of(self, at: int) -> int:
        """Return the measured rounds of the increment size at index `at`."""
        return self.rounds[min(at, len(self.rounds) - 1)]

    def warmup_of(self, at: int) -> int:
        """Return the warm-up runs of the increment size at index `at`."""
        return self.warmup[min(at, len(self.warmup) - 1)]

    def check(self) -> None:
        """Raise BenchRefusedError for the first option that cannot be run."""
        _one_of("workload", self.workload, tuple(_RUNNING))
        _one_of("keys", self.keys, ("uniform", "zipf", "distinct"))
        _one_of("grouping", self.grouping, ("inner", "outer"))
        self._check_forms()
        for name in self.peers:
            self._check_candidate(name)
        for option, values in (("state-keys", self.state_keys), ("increment", self.increment)):
            if not values or min(values) < 1:
                raise BenchRefusedError(option, "name at least one size, each 1 or more")
        self._check_hit_rates()
        self._check_graph()
        if self.age < 0:
            raise BenchRefusedError("age", "must be 0 or more")
        if min(self.rounds, default=0) < 1 or min(self.warmup, default=-1) < 0:
            raise BenchRefusedError("rounds", "must be at least 1, and --warmup 0 or more")
        if min(self.candidate_seconds, self.minutes) < 0:
            raise BenchRefusedError("minutes", "seconds and minutes must be 0 (no limit) or more")
        if self.soak:
            self._check_soak()

    def _check_forms(self) -> None:
        if not self.forms:
            raise BenchRefusedError("form", f"name one of {', '.join(_FORMS)}")
        for form in self.forms:
            _one_of("form", form, (*_FORMS, VIEW))
            self._check_written(form)
            if form == _IN_SQL and self.master == NO_SPARK:
                raise BenchRefusedError("form", f"{form} needs Spark; give a --master")

    def _check_written(self, form: str) -> None:
        written = _WRITTEN.get(self.workload, _FORMS[:1])
        if form not in written:
            forms = " or ".join(written)
            raise BenchRefusedError("form", f"{self.workload} exists only in the form {forms}")

    def _check_hit_rates(self) -> None:
        if not self.hit_rates:
            return
        if min(self.hit_rates) <= 0 or max(self.hit_rates) > 1:
            raise BenchRefusedError("hit-rates", "must be shares of the keys, above 0 and up to 1")
        if self.workload != URL_COUNT or self.keys != "distinct":
            raise BenchRefusedError("hit-rates", f"works only with {URL_COUNT} and --keys distinct")

    def _check_graph(self) -> None:
        if self.workload not in GRAPHS:
            if self.edges:
                raise BenchRefusedError("edges", f"works only with {' and '.join(GRAPHS)}")
        elif self.edges < 0:
            raise BenchRefusedError("edges", "must be 1 or more")
        else:
            self._check_density()
        if self.threshold != _THRESHOLD and self.workload != PAGERANK:
            raise BenchRefusedError("threshold", f"works only with {PAGERANK}")
        if self.error != _ERROR and self.workload != PAGERANK:
            raise BenchRefusedError("error", f"works only with {PAGERANK}")
        if self.error <= 0:
            raise BenchRefusedError("error", "must be above 0; it is the mean error of ranks")
        if self.from_empty and self.workload != CRAWL_QUEUE:
            raise BenchRefusedError("from-empty", f"works only with {CRAWL_QUEUE}")
        if self.threshold < 0:
            raise BenchRefusedError("threshold", "must be 0 or more; it is a change of a rank")

    def _check_density(self) -> None:
        """Refuse a graph without room for its links: drawing them would not end."""
        for nodes in self.state_keys:
            edges = self.edges or edges_of(self.workload, nodes)
            if nodes < NODES_MIN:
                raise BenchRefusedError("nodes", f"must be at least {NODES_MIN}")
            if edges < nodes:
                raise BenchRefusedError("edges", f"must be at least the number of nodes, {nodes:,}")
            if (edges + max(self.increment)) * DENSITY > nodes * nodes:
                raise BenchRefusedError(
                    "edges", f"must be at most {nodes * nodes // DENSITY:,} for {nodes:,} nodes"
                )

    def _check_candidate(self, label: str) -> None:
        name, _, form = label.partition("/")
        others = tuple(candidate for candidate in CANDIDATES if candidate != OURS)
        if name == OURS:
            raise BenchRefusedError("against", f"{OURS} is always measured; name only its peers")
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
            raise BenchRefusedError("soak", f"a soak measures only {OURS}; leave --against out")
        if max(map(len, (self.state_keys, self.increment, self.forms))) > 1:
            raise BenchRefusedError("soak", "takes only one --state-keys, --increment and --form")
        if self.epochs < 2:
            raise BenchRefusedError("epochs", "must be at least 2 for a soak")
        if not 1 <= self.publish_epochs <= EPOCHS_MAX:
            raise BenchRefusedError("publish-epochs", f"must be from 1 to {EPOCHS_MAX}")


def edges_of(workload: str, nodes: int) -> int:
    """Return the default number of edges of a graph of so many nodes."""
    return nodes * (_EDGES_CLUSTERING if workload == CLUSTERING else _EDGES)


def runs_dataflow(label: str) -> bool:
    """Return whether a candidate runs our dataflow, in any mode."""
    return label.partition("/")[0] in (*_ANY_DATAFLOW, *VARIANTS, *PAPER, "service")


def groups_all(label: str, options: BenchOptions) -> bool:
    """Return whether a candidate calls every group in every epoch, and so emits for all of them."""
    name = label.partition("/")[0]
    return name in PAPER or (options.grouping == "outer" and runs_dataflow(label))


def needs_spark(label: str, options: BenchOptions) -> bool:
    """Return whether a candidate uses its own Spark session."""
    name = label.partition("/")[0]
    return options.master != NO_SPARK and name not in (*_IN_ONE_PROCESS, "service")


def peers_by_default(workload: str) -> Candidates:
    """Return the default peers of a workload."""
    return _PEERS.get(workload, ())


def sizes_by_default(workload: str) -> tuple[int, int]:
    """Return the default number of keys in state, and of records of an increment."""
    return _SIZES.get(workload, _SIZES_USUAL)


def _one_of(option: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise BenchRefusedError(option, f"{value!r} is unknown; use one of {', '.join(allowed)}")
