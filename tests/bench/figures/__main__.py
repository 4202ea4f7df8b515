"""Measures what tables of results, look-ups, kept state and timers cost, against peers.

    python -m tests.bench.figures                       small sizes, some two minutes
    python -m tests.bench.figures --full --json FILE    the table of tests/bench/README.md

All candidates of a figure read the same increments in turn, and each answer is compared with the
right one: a wrong one ends the call. Results are written behind each figure.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from tests.bench.figures.figures import FIGURES, Call
from tests.bench.figures.lines import Line, document, markdown
from tests.bench.figures.sizes import FULL, SMALL
from tests.bench.measurements.cpu_time import cpu_seconds

__all__ = ["main", "measure"]

_SIZES = ("keys", "records", "rounds", "warmup", "epochs", "read_rounds", "crawl_rounds")
"""Sizes that have an option; see `tests.bench.figures.sizes.Sizes`."""


def measure(call: Call, names: Sequence[str], json_file: Path | None) -> list[Line]:
    """Measure some figures; return their lines."""
    lines: list[Line] = []
    started = time.monotonic()
    for name in names:
        lines += FIGURES[name](call)
        minutes = (time.monotonic() - started) / 60
        busy = cpu_seconds() or 0.0
        call.tell(f"{name} is done after {minutes:.1f} minutes, {busy:.0f} s of the processor")
        if json_file is not None:
            _write(json_file, document(lines, minutes=minutes, complete=name == names[-1]))
    return lines


def main() -> None:
    """Measure, and print the table."""
    options = _parsed()
    folder = Path(tempfile.mkdtemp(prefix="cbp-figures-", dir=options.root)).resolve()
    started = time.monotonic()

    def tell(text: str) -> None:
        print(f"{time.monotonic() - started:7.1f} s  {text}", file=sys.stderr, flush=True)

    given = {name: value for name in _SIZES if (value := getattr(options, name)) is not None}
    call = Call(
        dataclasses.replace(FULL if options.full else SMALL, **given),
        folder,
        spark=not options.without_spark,
        own_process=not options.one_process,
        more=options.more,
        tell=tell,
    )
    try:
        lines = measure(call, options.only, options.json)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(markdown(lines, day=datetime.now(UTC).date()))


def _parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--full", action="store_true", help="the sizes of the table")
    parser.add_argument("--only", default=",".join(FIGURES), help="parts, by commas")
    parser.add_argument("--without-spark", action="store_true", help="leave out peers on Spark")
    parser.add_argument("--more", action="store_true", help="forms of peers that were slower, too")
    parser.add_argument("--one-process", action="store_true", help="all candidates in this process")
    parser.add_argument("--json", type=Path, help="file for the results")
    parser.add_argument("--root", type=Path, help="folder in which all files lie meanwhile")
    for name in _SIZES:
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, help="instead of the usual")
    options = parser.parse_args()
    options.only = options.only.split(",")
    if unknown := set(options.only) - set(FIGURES):
        parser.error(f"--only: unknown {', '.join(sorted(unknown))}; use {', '.join(FIGURES)}")
    return options


def _write(path: Path, content: object) -> None:
    after = path.with_name(f"{path.name}.next")
    after.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    os.replace(after, path)


if __name__ == "__main__":
    main()
