"""What reading large sound files takes, by part; and the same for another version, in turn.

    python -m tests.bench.large_files --files 20 --lines 200000 --rounds 7
    python -m tests.bench.large_files --against ../earlier --rounds 7

Seconds of the processor for all files, by what is done to them: `read` reads and hashes the bytes,
`parse` makes checked columns of them, `write` writes Parquet. Each round is a process of its own.
`--against` names a checkout of another version, whose rounds alternate with ours; `times` is the
median of its total by ours.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from statistics import median
from typing import Any
from unittest.mock import patch

from cbp.model.dataflow.nodes import SourceNode
from cbp.model.flow.schema import Schema
from controller.ingest.formats.file_bytes import ClaimedContent
from controller.ingest.limits import IngestLimits
from controller.ingest.reader.file_reader import ClaimedFile, ReadRequest, read_files
from controller.ingest.reader.increment_parts import PartWriter

REPO = Path(__file__).resolve().parents[2]
PARTS = ("read", "parse", "write")
SCHEMAS = {
    "url": "url STRING",
    "order": "id BIGINT, name STRING, price DECIMAL(12,2), weight DOUBLE, paid BOOLEAN, "
    "day DATE, at TIMESTAMP",
}


def row(kind: str, number: int) -> dict[str, Any]:
    """Return one record."""
    if kind == "url":
        return {"url": f"https://example.org/pages/{number * 7919 % 1_000_003}"}
    minutes, second = divmod(number, 60)
    hours, minute = divmod(minutes, 60)
    return {
        "id": number,
        "name": f"article {number * 7919 % 100_003}",
        "price": f"{number % 100_000}.{number % 100:02d}",
        "weight": number % 1000 / 8,
        "paid": "true" if number % 3 == 0 else "false",
        "day": f"2026-{number % 12 + 1:02d}-{number % 28 + 1:02d}",
        "at": f"2026-03-{hours // 24 % 28 + 1:02d}T{hours % 24:02d}:{minute:02d}:{second:02d}Z",
    }


def content(kind: str, format_: str, numbers: Iterable[int]) -> bytes:
    """Return a sound file."""
    rows = [row(kind, number) for number in numbers]
    if format_ == "jsonl":
        paid = [one | {"paid": one["paid"] == "true"} if "paid" in one else one for one in rows]
        return "".join(json.dumps(one) + "\n" for one in paid).encode()
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().encode()


def clocked(method: Callable[..., Any], spent: list[float]) -> Callable[..., Any]:
    """Return a method that adds the processor time of its calls to `spent`."""

    def call(*arguments: Any) -> Any:
        begun = time.process_time()
        try:
            return method(*arguments)
        finally:
            spent.append(time.process_time() - begun)

    return call


def seconds_of(path: Path, kind: str, target: Path) -> dict[str, float]:
    """Return what each part takes for one file."""
    request = ReadRequest(
        files=(ClaimedFile(str(path), path.stat().st_size, "c", path.name),),
        source=SourceNode("s", Schema.parse(SCHEMAS[kind]), path.suffix[1:], {}),
        folder=str(target),
        index=0,
        limits=IngestLimits(),
    )
    read, write = list[float](), list[float]()
    with (
        patch.object(ClaimedContent, "read", clocked(ClaimedContent.read, read)),
        patch.object(PartWriter, "_write_row_group", clocked(PartWriter._write_row_group, write)),
        patch.object(PartWriter, "_close_part", clocked(PartWriter._close_part, write)),
    ):
        begun = time.process_time()
        read_files(request)
        whole = time.process_time() - begun
    return {"read": sum(read), "parse": whole - sum(read) - sum(write), "write": sum(write)}


def measure(folder: Path) -> dict[str, dict[str, float]]:
    """Return kind and format -> the seconds of each part, for all files of a folder."""
    figures: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as target:
        for files in sorted(folder.iterdir()):
            kind = files.name.partition("-")[0]
            paths = sorted(files.iterdir())
            seconds_of(paths[0], kind, Path(target))  # what is imported, and made once
            every = [seconds_of(path, kind, Path(target)) for path in paths]
            figures[files.name] = {part: sum(one[part] for one in every) for part in PARTS}
    return figures


def measure_beside(folder: Path, checkout: Path) -> dict[str, dict[str, float]]:
    """Measure in a process that has the modules of a checkout."""
    done = subprocess.run(
        [sys.executable, "-P", str(Path(__file__).resolve()), "--inner", str(folder)],
        env={**os.environ, "PYTHONPATH": str(checkout)},
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
    )
    figures: dict[str, dict[str, float]] = json.loads(done.stdout)
    return figures


def table(rounds: Sequence[dict[str, dict[str, float]]], lines: int) -> dict[str, Any]:
    """Return the medians by kind and format, and the lines a second of the processor."""
    figures: dict[str, Any] = {}
    for name in rounds[0]:
        parts = {part: median(one[name][part] for one in rounds) for part in PARTS}
        total = median(sum(one[name].values()) for one in rounds)
        shown = {part: round(seconds, 3) for part, seconds in parts.items()}
        figures[name] = {**shown, "total": round(total, 3), "lines_a_second": round(lines / total)}
    return figures


def main() -> None:
    """Measure, and print the figures as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=20)
    parser.add_argument("--lines", type=int, default=200_000, help="of each file")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--against", type=Path, help="a checkout of another version")
    parser.add_argument("--inner", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inner:
        print(json.dumps(measure(options.inner)))
        return
    with tempfile.TemporaryDirectory(prefix="cbp-large-") as folder:
        for kind in SCHEMAS:
            for format_ in ("jsonl", "csv"):
                files = Path(folder) / f"{kind}-{format_}"
                files.mkdir()
                for at in range(options.files):
                    numbers = range(at * options.lines, (at + 1) * options.lines)
                    (files / f"f{at:03d}.{format_}").write_bytes(content(kind, format_, numbers))
        ours, theirs = list[Any](), list[Any]()
        for _ in range(options.rounds):
            ours.append(measure_beside(Path(folder), REPO))
            if options.against:
                theirs.append(measure_beside(Path(folder), options.against.resolve()))
    figures: dict[str, Any] = {"ours": table(ours, options.files * options.lines)}
    if theirs:
        figures["against"] = table(theirs, options.files * options.lines)
        pairs = list(zip(ours, theirs, strict=True))
        figures["times"] = {
            name: round(median(sum(b[name].values()) / sum(a[name].values()) for a, b in pairs), 2)
            for name in ours[0]
        }
    print(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()
