"""What the benchmark of the service found, as values."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

__all__ = ["PARTS", "Backlog", "Delay", "Ingestion", "Reads", "ServiceFigures", "percentile"]

PARTS = ("claimed", "read", "decided", "run", "published", "readable")
"""The parts of a delay, each by what ends it, in order; together they are all of it."""


def percentile(values: Sequence[float], share: float) -> float:
    """Return the smallest value that at least this share of the values does not exceed."""
    assert values, "no value has no percentile"
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


@dataclass(frozen=True, slots=True)
class Delay:
    """One file: how long until its result could be read, in seconds.

    Attributes:
        seconds: From the rename into `incoming` to the first answer that has the result.
        parts: Part to seconds; see `PARTS`.
        phases: Phase of the run to seconds.
    """

    seconds: float
    parts: Mapping[str, float]
    phases: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Ingestion:
    """Lines per second, round by round; the peer read the same files in the same rounds.

    Attributes:
        ours: Lines that the service applied, per second of each round.
        peer: Lines that Polars read and appended to a Delta table, per second of each round.
    """

    ours: tuple[float, ...]
    peer: tuple[float, ...]

    @property
    def ratio(self) -> float:
        """How many lines ours takes in the time of one of the peer; median of the rounds."""
        return statistics.median(a / b for a, b in zip(self.ours, self.peer, strict=True))


@dataclass(frozen=True, slots=True)
class Backlog:
    """Files that wait at once, counted by two stages; one value for each round.

    Attributes:
        files, lines: Number of files, and lines of each.
        seconds: From the first rename until both stages show all files.
        peer_seconds: How long Polars took to read the same files and append them to a Delta table.
        peak_bytes: Most memory that the processes of the service had together, shared pages
            counted once.
        first_bytes: What they had before the first rename.
        cpu_seconds: Processor time that they took.
        beside: Meanwhile, files of another source of the same dataflow: seconds from the rename
            of each until its result could be read.
        elsewhere: The same of a source of another dataflow.
    """

    files: int
    lines: int
    seconds: tuple[float, ...]
    peer_seconds: tuple[float, ...]
    first_bytes: tuple[int, ...]
    peak_bytes: tuple[int, ...]
    cpu_seconds: tuple[float, ...]
    beside: tuple[float, ...]
    elsewhere: tuple[float, ...]

    @property
    def ratio(self) -> float:
        """How many lines ours applies while the peer takes in one; median of the rounds."""
        pairs = zip(self.peer_seconds, self.seconds, strict=True)
        return statistics.median(peer / ours for peer, ours in pairs)

    @property
    def files_per_second(self) -> float:
        """Median of the rounds."""
        return self.files / statistics.median(self.seconds)

    def to_json(self) -> dict[str, Any]:
        """Return what was measured, with the rates."""
        per_second = self.files_per_second
        rates = {"files_per_second": per_second, "lines_per_second": per_second * self.lines}
        return {**asdict(self), **rates, "ratio": self.ratio}


@dataclass(frozen=True, slots=True)
class Reads:
    """Requests of several connections at a time, while files are applied.

    Attributes:
        clients: Number of connections.
        seconds: How long they asked.
        errors: Status to number of answers other than 200; "broken": connections that broke.
        latencies: Kind of request to the seconds of each.
        runs: Number of files that were applied meanwhile.
        cpu: Kind of process to the seconds of the processor that it took meanwhile: `service` with
            all that it started but its readers, `readers`, `clients`.
        client_limit: Answers per second that the clients read of a server that computes nothing.
    """

    clients: int
    seconds: float
    errors: Mapping[str, int]
    latencies: Mapping[str, Sequence[float]]
    runs: int
    cpu: Mapping[str, float] = field(default_factory=dict)
    client_limit: float = 0.0

    @property
    def per_second(self) -> float:
        """Number of answers per second."""
        return sum(map(len, self.latencies.values())) / self.seconds

    @property
    def cpu_ms(self) -> dict[str, float]:
        """Kind of process to milliseconds of the processor for each answer."""
        answers = max(1, sum(map(len, self.latencies.values())))
        return {kind: 1000 * seconds / answers for kind, seconds in self.cpu.items()}

    def to_json(self) -> dict[str, Any]:
        """Return the figures without each single latency."""
        return {
            "clients": self.clients,
            "seconds": self.seconds,
            "runs": self.runs,
            "per_second": self.per_second,
            "errors": dict(self.errors),
            "cpu_ms_per_request": self.cpu_ms,
            "client_limit": self.client_limit,
            "requests": {
                kind: {
                    "count": len(taken),
                    "p50": percentile(taken, 0.5),
                    "p99": percentile(taken, 0.99),
                }
                for kind, taken in self.latencies.items()
                if taken
            },
        }


@dataclass(slots=True)
class ServiceFigures:
    """All figures; what was not measured is empty, or `None`."""

    state_keys: int
    lines: int
    engine: str
    delays: list[Delay] = field(default_factory=list)
    ingestion: Ingestion | None = None
    reads: Reads | None = None
    backlog: Backlog | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the part `service` of the JSON document."""
        return {
            "state_keys": self.state_keys,
            "lines": self.lines,
            "engine": self.engine,
            "delays": [asdict(one) for one in self.delays],
            "ingestion": None
            if self.ingestion is None
            else {**asdict(self.ingestion), "ratio": self.ingestion.ratio},
            "reads": None if self.reads is None else self.reads.to_json(),
            "backlog": None if self.backlog is None else self.backlog.to_json(),
        }
