"""Runs an entrant in a separate process, with its own memory, Spark and children.

Each call is one message there and one back. The process ends with `close`, or when the process
that started it is gone. Times are measured inside it (`tests.bench.contest.entrant`).
"""

from __future__ import annotations

import multiprocessing
import signal
import sys
import traceback
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from tests.bench.comparison.result_comparison import Digest, Held
from tests.bench.contest.entrant import LocalEntrant
from tests.bench.errors import BenchFailedError, BenchRefusedError
from tests.bench.measurements.result import Sample
from tests.bench.options import BenchOptions, needs_spark
from tests.bench.spark_session import slots_of, start_spark
from tests.bench.workloads.workload import Arrival, Workload

__all__ = ["OwnProcess"]

_END_SECONDS = 10.0


class OwnProcess:
    """A candidate in a separate process; see `tests.bench.contest.entrant.Entrant`."""

    def __init__(
        self, label: str, workload: Workload, folder: Path, *, options: BenchOptions
    ) -> None:
        self.label, self.state_keys = label, 0
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        arguments = (theirs, label, workload, folder, options)
        self._process = context.Process(target=_serve, args=arguments, name=f"bench {label}")
        self._process.start()
        theirs.close()
        try:
            self.name, self.form = self._answer()
        except BaseException:
            self.close()
            raise

    def load(self, state_keys: int) -> None:
        """Make the state before the first increment."""
        self._ask("load", state_keys)
        self.state_keys = self._ask("state_keys")

    def run(self, arrival: Arrival) -> Sample:
        """Apply one increment, and measure it."""
        sample: Sample = self._ask("run", arrival)
        return sample

    def floor(self) -> float | None:
        """Return the seconds that an empty Spark job takes; None without Spark.

        It has as many tasks as the latest run had.
        """
        seconds: float | None = self._ask("floor")
        return seconds

    def emitted(self) -> Digest | None:
        """Return the digest of the latest run's output; None if it is not compared."""
        digest: Digest | None = self._ask("emitted")
        return digest

    def held(self) -> Held:
        """Return the contents that are compared."""
        held: Held = self._ask("held")
        return held

    def kept_bytes(self) -> int:
        """Return the bytes of copies on disk that can be rebuilt, such as index copies."""
        size: int = self._ask("kept_bytes")
        return size

    def close(self) -> None:
        """End the process; kill it if it does not end by itself."""
        self._pipe.close()
        for end in (self._process.terminate, self._process.kill):
            self._process.join(_END_SECONDS)
            if not self._process.is_alive():
                return
            end()
        self._process.join()

    def _ask(self, name: str, *arguments: Any) -> Any:
        try:
            self._pipe.send((name, arguments))
        except OSError as exc:
            raise BenchFailedError(self.label, self._ended()) from exc
        return self._answer()

    def _answer(self) -> Any:
        try:
            kind, content = self._pipe.recv()
        except (EOFError, OSError) as exc:
            raise BenchFailedError(self.label, self._ended()) from exc
        if kind == "refused":
            raise BenchRefusedError(*content)
        if kind == "failed":
            raise BenchFailedError(self.label, content)
        return content

    def _ended(self) -> str:
        self._process.join(_END_SECONDS)
        status = self._process.exitcode
        if status is None or status >= 0:
            return f"its process ended with status {status}"
        return (
            f"its process was killed by {signal.Signals(-status).name}; if its memory was "
            "exhausted, the system's log says so: use smaller sizes, or a larger machine"
        )


def _serve(
    pipe: Connection, label: str, workload: Workload, folder: Path, options: BenchOptions
) -> None:
    """Answer calls until the other end is closed."""
    # Ctrl-C reaches all processes of a terminal; the first process handles it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    with suppress(EOFError, BrokenPipeError, ConnectionResetError):
        try:
            _attend(pipe, label, workload, folder, options)
        except BenchRefusedError as exc:
            pipe.send(("refused", (exc.details["option"], exc.why)))
        except Exception:
            pipe.send(("failed", traceback.format_exc()))


def _attend(
    pipe: Connection, label: str, workload: Workload, folder: Path, options: BenchOptions
) -> None:
    spark = start_spark(options, folder) if needs_spark(label, options) else None
    entrant = None
    try:
        slots = slots_of(options, spark)
        entrant = LocalEntrant(label, workload, folder, options=options, spark=spark, slots=slots)
        pipe.send(("done", (entrant.name, entrant.form)))
        while True:
            name, arguments = pipe.recv()
            attribute = getattr(entrant, name)
            pipe.send(("done", attribute(*arguments) if callable(attribute) else attribute))
    finally:
        if entrant is not None:
            entrant.close()
        if spark is not None:
            spark.stop()
