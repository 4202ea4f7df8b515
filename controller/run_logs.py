"""Files of log lines, one for each run: appended to, read from a place on, and removed by age.

    <root>/logs/<dataflow>/<run>.jsonl

Guaranteed: a file, and all of them together, have bounds; a line that a crash cut off is left out
(tests/controller/run_logs/test_files.py).
Not guaranteed: that the last lines before a loss of power are there; nothing is synced. A log is
for people, and no decision depends on it.
"""

from __future__ import annotations

import json
import logging
import os
import re
import shutil
import sys
from collections.abc import Mapping, MutableMapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import structlog

from controller.settings import Settings

FOLDER = "logs"
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,199}")
_APPEND = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class RunLogLimits:
    """Limits of one run's file, beyond which lines are left out, and of all files together."""

    run_bytes_max: int = 1 << 20
    runs_max: int = 10_000
    bytes_max: int = 1 << 30
    seconds_max: float = 7 * 86_400.0


@dataclass(frozen=True, slots=True)
class RunLogPage:
    """Lines of a run, oldest first, and the place after them."""

    lines: list[dict[str, Any]]
    place: int


class RunLogFiles:
    """The files; safe to use from several threads, as each line is one write.

    The folder is made when the first line is written.
    """

    def __init__(self, folder: Path, limits: RunLogLimits | None = None) -> None:
        self._folder, self._limits = folder, limits or RunLogLimits()

    def append(self, dataflow: str, run: str, line: Mapping[str, Any]) -> None:
        """Append a line to the file of a run; a line beyond its bound is left out."""
        path = self._path(dataflow, run)
        if path is None:
            return
        data = _encoded(line)
        file = _opened(path)
        try:
            size = os.fstat(file).st_size
            if size and os.pread(file, 1, size - 1) != b"\n":  # a crash cut the last line off
                data = b"\n" + data
            room = self._limits.run_bytes_max - size
            if room <= 0:
                return
            if len(data) > room:
                # Blanks fill the file up to its bound, so that no later line fits.
                data = _encoded(_truncated(line))[:-1].ljust(room - 1) + b"\n"
            os.write(file, data[:room])
        finally:
            os.close(file)

    def read(self, dataflow: str, run: str, place: int | None, *, limit: int) -> RunLogPage:
        """Return lines of a run; none if its log is not kept.

        They begin at the `place` of an earlier page; `None` means the last `limit` lines (>= 1).
        """
        path, data = self._path(dataflow, run), b""
        begin = place or 0
        if path is not None:
            with suppress(FileNotFoundError), path.open("rb") as file:
                file.seek(begin)
                data = file.read(2 * self._limits.run_bytes_max)
        end = data.rfind(b"\n") + 1  # the rest is being written, or was cut off by a crash
        raw = data[:end].splitlines(keepends=True)
        if place is None:
            return RunLogPage(_decoded(raw[-limit:]), end)
        return RunLogPage(_decoded(raw[:limit]), begin + sum(map(len, raw[:limit])))

    def prune(self, now: float) -> int:
        """Remove the oldest files beyond the bounds; return how many. `now`: seconds since 1970."""
        files = sorted(self._files(), reverse=True)
        kept_bytes = removed = 0
        for number, (changed, size, path) in enumerate(files):
            kept_bytes += size
            old = now - changed > self._limits.seconds_max
            if old or number >= self._limits.runs_max or kept_bytes > self._limits.bytes_max:
                with suppress(OSError):
                    os.unlink(path)
                    removed += 1
                    os.rmdir(os.path.dirname(path))  # fails unless it was the last one
        return removed

    def forget(self, dataflow: str) -> None:
        """Remove the files of all runs of a dataflow; what cannot be removed is left to `prune`."""
        if _NAME.fullmatch(dataflow):
            shutil.rmtree(self._folder / dataflow, ignore_errors=True)

    def _files(self) -> list[tuple[float, int, str]]:
        logs = []
        for folder, _, names in os.walk(self._folder):
            for name in names:
                path = os.path.join(folder, name)
                with suppress(OSError):
                    status = os.stat(path, follow_symlinks=False)
                    logs.append((status.st_mtime, status.st_size, path))
        return logs

    def _path(self, dataflow: str, run: str) -> Path | None:
        if not (_NAME.fullmatch(dataflow) and _NAME.fullmatch(run)):
            return None
        return self._folder / dataflow / f"{run}.jsonl"


def run_logs_of(settings: Settings) -> RunLogFiles:
    """Return the log files of the service with these settings."""
    limits = RunLogLimits(
        runs_max=settings.keep_log_runs,
        bytes_max=settings.keep_log_bytes,
        seconds_max=settings.keep_log_hours * 3600,
    )
    return RunLogFiles(settings.root / FOLDER, limits)


def _opened(path: Path) -> int:
    """Open a file to append to it; makes its folder, which `prune` may remove at any time."""
    for _ in range(2):
        with suppress(FileNotFoundError):
            return os.open(path, _APPEND, 0o666)
        path.parent.mkdir(parents=True, exist_ok=True)
    return os.open(path, _APPEND, 0o666)


def _encoded(line: Mapping[str, Any]) -> bytes:
    return json.dumps(line, default=repr).encode() + b"\n"


def _truncated(line: Mapping[str, Any]) -> dict[str, Any]:
    columns = ("timestamp", "dataflow", "stage", "epoch", "run")
    place = {name: line[name] for name in columns if name in line}
    return {"event": "log.truncated", "level": "warning", **place}


def _decoded(lines: list[bytes]) -> list[dict[str, Any]]:
    decoded = []
    for line in lines:
        with suppress(ValueError):
            value = json.loads(line)
            if isinstance(value, dict):
                decoded.append(value)
    return decoded


Entry = MutableMapping[str, Any]


class RunLogCapture(logging.Handler):
    """Appends each entry of a run to the run's file; a failing disk stops nothing.

    An entry belongs to a run if it has the fields `dataflow` and `run`. The loop binds them, with
    `stage` and `epoch`, to all entries of a run's thread, including those of author's code.
    `before` are processors for entries that structlog did not make; `processors` make an entry a
    dictionary of JSON values.
    """

    def __init__(self, logs: RunLogFiles, before: list[Any], processors: list[Any]) -> None:
        super().__init__()
        self._logs = logs
        self.setFormatter(
            structlog.stdlib.ProcessorFormatter(
                foreign_pre_chain=before,
                processors=[
                    structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                    *processors,
                    self._keep,
                ],
            )
        )

    def emit(self, record: logging.LogRecord) -> None:
        """Keep an entry if it belongs to a run."""
        try:
            self.format(record)
        except Exception:  # a log must not end what it describes
            self.handleError(record)

    def handleError(self, record: logging.LogRecord) -> None:
        """Report a lost line without its text, which could contain secrets."""
        with suppress(OSError, ValueError):
            kind = type(sys.exc_info()[1]).__name__
            sys.stderr.write(
                f"the log of a run could not store a line from {record.name} ({kind}); "
                "the line is lost\n"
            )

    def _keep(self, _logger: Any, _method: str, entry: Entry) -> str:
        if entry.get("dataflow") and entry.get("run"):
            self._logs.append(str(entry["dataflow"]), str(entry["run"]), entry)
        return ""
