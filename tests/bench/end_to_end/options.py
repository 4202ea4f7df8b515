"""The options of `python -m tests.bench run service`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tests.bench.errors import BenchRefusedError

__all__ = ["SERVICE", "ServiceBenchOptions"]

SERVICE = "service"
"""The workload's name on the command line."""

_ENGINES = ("local", "spark")
_FORMS = ("groupwise", "arrow")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceBenchOptions:
    """What to measure.

    Attributes:
        state_keys: Keys in the state before the first file.
        lines: Lines of a file of the idle service.
        files: Number of files that are measured one after the other; none: 0.
        warmup: Files before them. With engine `spark` the first eight runs are Spark jobs, as they
            start the workers that do small runs.
        ingest_seconds: How long ingestion is measured, with its peer; not at all: 0.
        batch_files, batch_lines: Files of one round of ingestion, and lines of each.
        read_seconds: How long REST reads are measured; not at all: 0.
        clients: Connections that read at a time.
        read_rate: Requests a second of all connections; 0 means as many as they can.
        readers: Processes that answer reads; `None` means as the service decides.
        backlog: Files that wait at once in a source that puts them together; not at all: 0.
        backlog_lines: Lines of each.
        backlog_rounds: How often, in turn with the peer.
        form: Of the stages that count a backlog: groupwise or arrow.
        engine: Of the service: `spark`, as by default, or `local`.
        seed: Of the keys.
        root: The working folder is made in this one, and kept.
        json_file: Where the results are written.
    """

    state_keys: int = 100_000
    lines: int = 1_000
    files: int = 20
    warmup: int = 10
    ingest_seconds: float = 10.0
    batch_files: int = 20
    batch_lines: int = 5_000
    read_seconds: float = 10.0
    clients: int = 50
    read_rate: float = 0.0
    readers: int | None = None
    backlog: int = 0
    backlog_lines: int = 100
    backlog_rounds: int = 1
    form: str = "groupwise"
    engine: str = "spark"
    seed: int = 0
    root: Path | None = None
    json_file: Path | None = None

    def check(self) -> None:
        """Refuse what cannot be measured; nothing was started.

        Raises:
            BenchRefusedError: Names the option.
        """
        least = {
            "state-keys": (self.state_keys, 1),
            "increment": (self.lines, 1),
            "files": (self.files, 0),
            "warmup": (self.warmup, 0),
            "ingest": (self.ingest_seconds, 0),
            "reads": (self.read_seconds, 0),
            "clients": (self.clients, 1),
            "read-rate": (self.read_rate, 0),
            "readers": (self.readers or 0, 0),
            "batch-files": (self.batch_files, 1),
            "batch-lines": (self.batch_lines, 1),
            "backlog": (self.backlog, 0),
            "backlog-lines": (self.backlog_lines, 1),
            "backlog-rounds": (self.backlog_rounds, 1),
        }
        for option, (given, low) in least.items():
            if given < low:
                raise BenchRefusedError(option, f"expected at least {low}, got {given}")
        if self.engine not in _ENGINES:
            why = f"expected {' or '.join(_ENGINES)}, got {self.engine!r}"
            raise BenchRefusedError("engine", why)
        if self.form not in _FORMS:
            why = f"expected {' or '.join(_FORMS)}, got {self.form!r}"
            raise BenchRefusedError("form", why)
        if not (self.files or self.ingest_seconds or self.read_seconds or self.backlog):
            why = "nothing is left to measure: give --files, --ingest, --reads or --backlog"
            raise BenchRefusedError("files", why)
