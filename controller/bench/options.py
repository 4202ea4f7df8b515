"""What a user may choose about a benchmark, and which choices are refused.

Guaranteed: `BenchOptions.check` refuses before anything is started or written.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from cbp.model.publication import EPOCHS_MAX
from controller.bench.errors import BenchRefusedError

__all__ = ["CANDIDATES", "NO_SPARK", "OURS", "BenchOptions", "Candidates"]

OURS = "cbp"
NO_SPARK = "none"
"""As `master`: run what needs no Spark, in this process."""

CRAWL_QUEUE = "crawl-queue"
URL_COUNT = "url-count"
SOAK_SHARE_MAX = 100
"""Epochs at each end of a soak that are compared."""

Candidates = tuple[str, ...]

CANDIDATES: dict[str, str] = {
    OURS: "this product",
    "merge": "Delta MERGE in a batch",
    "blackbox": "this product's translator, state shuffled and rewritten every epoch",
    "scan": "this product, every look-up a scan of the state's files",
    "rewrite": "Spark SQL full outer join, table rewritten every epoch",
    "streaming": "Structured Streaming with RocksDB, in the JVM",
    "streaming-python": "Structured Streaming, applyInPandasWithState",
    "streaming-python-tws": "Structured Streaming, transformWithStateInPandas",
    "duckdb": "DuckDB, INSERT ... ON CONFLICT in one process",
    "recompute": "Spark SQL, from scratch",
}
_ANY_DATAFLOW = (OURS, "blackbox", "scan")
_WITHOUT_SPARK = (OURS, "blackbox", "scan", "duckdb")
_FORMS = ("groupwise", "arrow", "sql")


@dataclass(frozen=True, slots=True)
class BenchOptions:
    """Choices of one call.

    Attributes:
        workload: `url-count` or `crawl-queue`.
        against: Candidates besides ours.
        keys: How `url-count` draws its keys: `uniform`, `zipf`, or `distinct`: every record
            another key that is in state.
        forms: Of our translator, each measured as a candidate of its own.
        state_keys: Sizes of the state before the first increment.
        increment: Sizes of increments, in records (pages for `crawl-queue`).
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
        if self.grouping != "inner":
            parts.append(self.grouping)
        if self.age:
            parts.append(f"age-{self.age}")
        return "/".join(parts)

    @property
    def entrants(self) -> Candidates:
        """Who takes part: ours, once per form after the first as `cbp/form`, then its peers."""
        return (OURS, *(f"{OURS}/{form}" for form in self.forms[1:]), *self.against)

    def sizes(self, state_keys: int) -> tuple[int, ...]:
        """Return the increments' sizes on a state of so many keys, in records."""
        if not self.hit_rates:
            return self.increment
        return tuple(dict.fromkeys(max(1, round(rate * state_keys)) for rate in self.hit_rates))

    def check(self) -> None:
        """Raise BenchRefusedError for the first choice that cannot be run."""
        _one_of("workload", self.workload, (URL_COUNT, CRAWL_QUEUE))
        _one_of("keys", self.keys, ("uniform", "zipf", "distinct"))
        _one_of("grouping", self.grouping, ("inner", "outer"))
        self._check_forms()
        for name in self.against:
            self._check_candidate(name)
        for option, values in (("state-keys", self.state_keys), ("increment", self.increment)):
            if not values or min(values) < 1:
                raise BenchRefusedError(option, "sizes begin at 1")
        self._check_hit_rates()
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
            if self.workload == CRAWL_QUEUE and form != _FORMS[0]:
                raise BenchRefusedError("form", f"{CRAWL_QUEUE} is written {_FORMS[0]} only")

    def _check_hit_rates(self) -> None:
        if not self.hit_rates:
            return
        if min(self.hit_rates) <= 0 or max(self.hit_rates) > 1:
            raise BenchRefusedError("hit-rates", "shares of the keys, above 0 and up to 1")
        if self.workload != URL_COUNT or self.keys != "distinct":
            raise BenchRefusedError("hit-rates", f"of {URL_COUNT} with --keys distinct")

    def _check_candidate(self, name: str) -> None:
        others = tuple(candidate for candidate in CANDIDATES if candidate != OURS)
        if name == OURS:
            raise BenchRefusedError("against", f"{OURS} takes part anyway; name its peers")
        _one_of("against", name, others)
        if self.workload == CRAWL_QUEUE and name not in _ANY_DATAFLOW:
            raise BenchRefusedError(
                "against",
                f"{name} has no {CRAWL_QUEUE}; only blackbox and scan run whole dataflows",
            )
        if self.master == NO_SPARK and name not in _WITHOUT_SPARK:
            raise BenchRefusedError("against", f"{name} needs Spark; give a --master")

    def _check_soak(self) -> None:
        if self.against:
            raise BenchRefusedError("soak", "measures ours alone; leave --against out")
        if max(map(len, (self.state_keys, self.increment, self.forms))) > 1:
            raise BenchRefusedError("soak", "takes one --state-keys, --increment and --form")
        if self.epochs < 2:
            raise BenchRefusedError("epochs", "a soak takes at least 2")
        if not 1 <= self.publish_epochs <= EPOCHS_MAX:
            raise BenchRefusedError("publish-epochs", f"use 1 to {EPOCHS_MAX}")


def _one_of(option: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise BenchRefusedError(option, f"{value!r} is none of {', '.join(allowed)}")
