"""How fast many small waiting files are taken in and applied, by a whole service in this process.

    python -m tests.bench.waiting_files --files 20000
    python -m tests.bench.waiting_files --files 20000 --together --engine spark
    python -m tests.bench.waiting_files --files 5000 --profile /tmp/intake.txt
    python -m tests.bench.waiting_files --files 200000 --lines 100 --batch-files 1000 --batch 1
    python -m tests.bench.waiting_files --files 20 --lines 200000 --batch 1 --keys 1000000

Each file has one line of JSON, or `--lines`. By default the dataflow is paused until all files are
increments, so that intake and application are timed apart; `--together` times both at once, as a
service meets them. What was measured is printed as JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import sqlite3
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from controller.app import Service, configure_logging
from controller.settings import Settings

NAME, SOURCE = "waiting", "urls"


def document(batch: int, batch_files: int) -> dict[str, Any]:
    """Return a dataflow that counts addresses; `batch_files` of them are one increment."""
    together = {"batch": {"files": batch_files}} if batch_files > 1 else {}
    stage = {"translator": "url_count", "inputs": {"urls": SOURCE}}
    return {
        "name": NAME,
        "sources": {SOURCE: {"schema": "url STRING", "format": "jsonl", **together}},
        "stages": {"count": stage | {"runnable": {"run_all": {"batch": batch}}}},
    }


def measure(folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Take in and apply the files; return figures."""
    settings = Settings(root=folder, engine=options.engine, log_level="ERROR", tick_seconds=1.0)
    configure_logging(settings)
    service = Service(settings)
    service.start()
    service.controller.register(document(options.batch, options.batch_files))
    if not options.together:
        service.controller.pause(NAME)
    service.stop()
    incoming = folder / "drop" / NAME / SOURCE / "incoming"
    for number in range(options.files):
        first = number * options.lines
        keys = (n % options.keys for n in range(first, first + options.lines))
        data = b"".join(b'{"url": "/k%d"}\n' % key for key in keys)
        (incoming / f"f{number:07d}.jsonl").write_bytes(data)
    service = Service(settings)
    figures: dict[str, Any] = {
        "files": options.files,
        "lines": options.lines,
        "load": os.getloadavg()[0],
    }
    database = folder / "cbp.db"
    try:
        with sampled(options.profile):
            service.start()
            begun = time.monotonic()
            seconds = until(lambda: count(database, _TAKEN) >= options.files, begun, options)
            figures["intake"] = told(seconds, count(database, _TAKEN))
            if not options.together:
                begun = time.monotonic()
                service.controller.resume(NAME)
            seconds = until(lambda: count(database, _QUEUED) == 0, begun, options)
            left = count(database, _WAITING)
            figures["applied"] = told(seconds, count(database, _TAKEN) - left)
            figures["epochs"] = count(database, _EPOCHS)
            figures["megabytes_max"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    finally:
        service.stop()
    return figures


_TAKEN = "SELECT count(*) FROM claims WHERE status = 'accepted'"
_QUEUED = "SELECT count(*) FROM queue"
_WAITING = (
    "SELECT count(*) FROM claims JOIN queue"
    " ON queue.flow = claims.source AND queue.idx = claims.idx"
)
_EPOCHS = "SELECT sum(epoch) FROM stages"


def count(database: Path, query: str) -> int:
    """Return what a query counts, beside the service."""
    with closing(sqlite3.connect(database)) as connection:
        return int(connection.execute(query).fetchone()[0])


def told(seconds: float, files: int) -> dict[str, float]:
    """Return seconds and files per second."""
    return {"seconds": round(seconds, 1), "per_second": round(files / seconds, 1)}


def until(done: Callable[[], bool], begun: float, options: argparse.Namespace) -> float:
    """Wait; return the seconds since `begun`, at most those that the options allow."""
    while not done() and time.monotonic() - begun < options.seconds_max:
        time.sleep(0.1)
    return time.monotonic() - begun


@contextmanager
def sampled(target: Path | None) -> Iterator[None]:
    """Sample the stacks of all threads 100 times a second, and write how often each was seen."""
    if target is None:
        yield
        return
    seen: Counter[str] = Counter()
    ended = threading.Event()

    def sample() -> None:
        names = {thread.ident: thread.name for thread in threading.enumerate()}
        while not ended.wait(0.01):
            for ident, top in sys._current_frames().items():
                if ident == threading.get_ident():
                    continue
                if ident not in names:
                    names = {thread.ident: thread.name for thread in threading.enumerate()}
                name = names.get(ident, "?").rstrip("0123456789-_")
                codes = [frame.f_code for frame, _ in traceback.walk_stack(top)]
                calls = [f"{Path(code.co_filename).stem}.{code.co_name}" for code in codes]
                seen[";".join((name, *calls[::-1]))] += 1

    thread = threading.Thread(target=sample, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        target.write_text("\n".join(f"{stack} {times}" for stack, times in seen.most_common()))


def main() -> None:
    """Measure, and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=20_000)
    parser.add_argument("--engine", choices=("local", "spark"), default="local")
    parser.add_argument("--lines", type=int, default=1, help="of each file")
    parser.add_argument("--keys", type=int, default=500)
    parser.add_argument("--batch", type=int, default=1000, help="increments that a run reads")
    parser.add_argument("--batch-files", type=int, default=1, help="files of an increment")
    parser.add_argument("--together", action="store_true")
    parser.add_argument("--seconds-max", type=float, default=3600.0)
    parser.add_argument("--profile", type=Path, help="write sampled stacks here, in folded form")
    parser.add_argument("--folder", type=Path, help="where to work; removed afterwards")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="cbp-waiting-", dir=options.folder))
    try:
        print(json.dumps(measure(folder, options)))
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
