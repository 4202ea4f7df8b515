"""A candidate of a figure, in a process of its own or in this one, with measurements around it.

    load -> (run -> answer), (run -> answer), ... -> close

Only `run` is measured: seconds, processor seconds of the process and all that it started, and the
greatest memory since `load`. Before each run, pending writes of others are flushed to the disk.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any, Protocol

from tests.bench.errors import BenchFailedError
from tests.bench.figures.memory import forget_peak, peak_bytes
from tests.bench.figures.records import Digest
from tests.bench.measurements.cpu_time import cpu_seconds

__all__ = ["Candidate", "Entrant", "Sample"]

_END_SECONDS = 5.0


class Candidate(Protocol):
    """What takes part in a contest; only `run` is measured."""

    def load(self) -> None:
        """Make all that is there before the first round."""
        ...

    def run(self, round_: int) -> None:
        """Do the work of a round; returns once its result is there for others to read."""
        ...

    def answer(self, round_: int) -> Digest:
        """Return the digest of what the round gave, as another reader finds it."""
        ...

    def close(self) -> None:
        """Release everything."""
        ...


@dataclass(frozen=True, slots=True)
class Sample:
    """One measured round.

    Attributes:
        cpu_seconds: Of the process and all that it started; 0 where unknown.
        peak_bytes: Greatest memory since the loading.
    """

    seconds: float
    cpu_seconds: float
    peak_bytes: int


class Entrant:
    """A candidate, measured.

    Args:
        label: Its name in the results.
        kind: What its answers are compared with.
        make: Makes the candidate; can be pickled.
        own_process: Whether it gets a process of its own.
        fresh: Whether each round gets a new process, since the candidate keeps nothing.
    """

    def __init__(
        self,
        label: str,
        kind: str,
        make: Callable[[], Candidate],
        *,
        own_process: bool,
        fresh: bool = False,
    ) -> None:
        self.label, self.kind, self._make = label, kind, make
        self.own_process, self._fresh = own_process, fresh and own_process
        self._measured: _Measured | _Remote | None = None

    def load(self) -> None:
        """Start the candidate, and let it load; a fresh one loads before each round."""
        if not self._fresh:
            self._measured = self._started()

    def run(self, round_: int) -> tuple[Sample, Digest]:
        """Let it run a round; return its figures and its answer."""
        measured = self._started() if self._fresh else self._measured
        assert measured is not None, "load comes first"
        sample = measured.run(round_)
        answer = measured.answer(round_)
        if self._fresh:
            self.close()
        return sample, answer

    def close(self) -> None:
        """End the candidate, and its process if it has one."""
        measured, self._measured = self._measured, None
        if measured is not None:
            measured.close()

    def _started(self) -> _Measured | _Remote:
        own = self.own_process
        self._measured = _Remote(self.label, self._make) if own else _Measured(self._make())
        self._measured.load()
        return self._measured


class _Measured:
    """A candidate in this process."""

    def __init__(self, candidate: Candidate) -> None:
        self._candidate = candidate

    def load(self) -> None:
        self._candidate.load()
        forget_peak()

    def run(self, round_: int) -> Sample:
        os.sync()
        busy, started = cpu_seconds(), time.perf_counter()
        self._candidate.run(round_)
        seconds, after = time.perf_counter() - started, cpu_seconds()
        return Sample(seconds, (after or 0.0) - (busy or 0.0), peak_bytes())

    def answer(self, round_: int) -> Digest:
        return self._candidate.answer(round_)

    def close(self) -> None:
        self._candidate.close()


class _Remote:
    """A candidate in a process of its own; a call is one message there, and one back."""

    def __init__(self, label: str, make: Callable[[], Candidate]) -> None:
        self._label = label
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, make), name=label)
        self._process.start()
        theirs.close()

    def load(self) -> None:
        self._ask("load")

    def run(self, round_: int) -> Sample:
        sample: Sample = self._ask("run", round_)
        return sample

    def answer(self, round_: int) -> Digest:
        answer: Digest = self._ask("answer", round_)
        return answer

    def close(self) -> None:
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
            kind, content = self._pipe.recv()
        except (EOFError, OSError) as exc:
            self._process.join(_END_SECONDS)
            why = f"its process ended with status {self._process.exitcode}"
            raise BenchFailedError(self._label, why) from exc
        if kind == "failed":
            raise BenchFailedError(self._label, content)
        return content


def _serve(pipe: Connection, make: Callable[[], Candidate]) -> None:
    """Answer calls until the other end is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the first process handles it
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    measured: _Measured | None = None
    with suppress(EOFError, BrokenPipeError, ConnectionResetError):
        try:
            while True:
                name, arguments = pipe.recv()
                measured = measured or _Measured(make())
                pipe.send(("done", getattr(measured, name)(*arguments)))
        except EOFError:
            raise
        except Exception:
            pipe.send(("failed", traceback.format_exc()))
        finally:
            if measured is not None:
                measured.close()
