"""Plays cases, and says what is wrong with how they were read.

python -m tests.fuzz --seed 0 --cases 100000
python -m tests.fuzz --seed 4711 --cases 1 --keep      one seed again; its file is kept
python -m tests.fuzz --structured --cases 10000        seven formats, damaged by their structure
python -m tests.fuzz --service --cases 2000            through `cbp serve`, under odd names
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from cbp.model.dataflow.dataflow import SourceNode
from cbp.model.flow.schema import Schema
from controller.ingest.formats.bad_lines import Notes
from controller.ingest.formats.file_bytes import ClaimedContent
from controller.ingest.formats.format_readers import read_batches
from controller.ingest.limits import IngestLimits
from controller.ingest.reader.reader_process import memory_bytes
from controller.ingest.rejection import FileRejectedError
from tests.fresh import of_tests
from tests.fuzz.cases import TIMES, Case, case_of
from tests.fuzz.oracle import is_same, records
from tests.fuzz.service import play_in_process
from tests.fuzz.structured import structured_case
from tests.growth import thread_seconds

LIMITS = IngestLimits(line_bytes_max=1 << 20, ratio_floor_bytes=16 << 20, fast_block_bytes_min=1)
STRICT_LIMITS = replace(LIMITS, fast_block_bytes_min=1 << 40)
"""Every line is read by itself."""

TIMES_MAX, SOUND_RECORDS = 300.0, 2_000
"""A damaged file of some kilobytes that takes so many times as long as a sound one of so many
records is frozen, not slow."""
MESSAGE_MAX = 2_000
CASES: dict[bool, Callable[[int], Case]] = {False: case_of, True: structured_case}
"""Whether files are damaged by their structure -> what makes the case of a seed."""


def read(case: Case, path: Path, limits: IngestLimits = LIMITS) -> list[dict[str, Any]]:
    """Return what is accepted of a case."""
    path.write_bytes(case.data)
    source = SourceNode("s", Schema.parse(case.schema), case.format, case.options)
    rows: list[dict[str, Any]] = []
    with ClaimedContent(str(path), limits) as content:
        for batch in read_batches(content, source, limits, Notes()):
            rows += batch.to_pylist()
    return rows


def judge(case: Case, path: Path) -> tuple[str, str]:
    """Read a case; return what came of it, and what is wrong with that or `""`."""
    usual = _usual_seconds(path.parent)
    begun = time.thread_time()
    try:
        rows = read(case, path)
    except FileRejectedError as error:
        return error.rule, _wrong_refusal(error) or _too_slow(begun, usual)
    except Exception as error:  # whatever else it is: that is what is looked for
        return "crashed", f"{type(error).__name__}: {error}"
    return "accepted", _too_slow(begun, usual) or _wrong_rows(case, rows)


def _too_slow(begun: float, usual: float) -> str:
    times = (time.thread_time() - begun) / usual
    return f"took {times:.0f} times as long as a sound file" if times > TIMES_MAX else ""


@cache
def _usual_seconds(folder: Path) -> float:
    """Return the processor's time of this thread for a sound file: the least of some tries."""
    line = json.dumps({"id": 1, "name": "a", "x": 0.5, "ok": True, "d": "1.25", "at": TIMES[0]})
    sound = Case("jsonl", {}, f"{line}\n".encode() * SOUND_RECORDS)
    return min(thread_seconds(lambda: read(sound, folder / "sound")) for _ in range(5))


def _wrong_refusal(error: FileRejectedError) -> str:
    reason = error.reason(file="f", claim="c")
    if not reason["code"] or not reason["code"].replace("_", "").isalpha():
        return f"no code: {reason['code']!r}"
    if len(reason["message"]) > MESSAGE_MAX or len(reason["lines"]) > 100:
        return f"a reason of {len(reason['message'])} characters, {len(reason['lines'])} lines"
    reason["message"].encode()
    return ""


def _wrong_rows(case: Case, rows: list[dict[str, Any]]) -> str:
    try:
        expected = records(case)
    except Exception as error:
        return f"accepted, where another reader says {type(error).__name__}: {error}"
    actual = [tuple(row.values()) for row in rows]
    if len(actual) != len(expected):
        return f"{len(actual)} records accepted, another reader finds {len(expected)}"
    for at, (one, other) in enumerate(zip(actual, expected, strict=True)):
        if not is_same(one, other):
            return f"record {at} is {one}, another reader finds {other}"
    return ""


def play(
    seeds: Sequence[int], folder: Path, *, structured: bool = False, keep: bool = False
) -> tuple[Counter[str], list[str]]:
    """Play seeds; return how often what came of them, and what is wrong."""
    outcomes, wrong = Counter[str](), list[str]()
    for seed in seeds:
        case = CASES[structured](seed)
        outcome, told = judge(case, folder / "file")
        outcomes[outcome] += 1
        if told:
            wrong.append(f"seed {seed} ({case.format} {case.options}): {told[:300]}")
            if keep:
                (Path.cwd() / f"fuzz-{seed}.{case.format}").write_bytes(case.data)
    return outcomes, wrong


def play_beside(
    seeds: range,
    folder: Path,
    *,
    structured: bool = False,
    keep: bool = False,
    memory: list[int] | None = None,
) -> tuple[Counter[str], list[str]]:
    """Play seeds in a process that may die: a decoder in C++ ends it on some damaged footers.

    `memory` gets the bytes that the process took after each seed.

    This is no mistake for Parquet: a service reads it in a process for just this reason.
    One that ends by itself before its last seed is reported as wrong, with its last words.
    """
    outcomes, wrong = Counter[str](), list[str]()
    at = seeds.start
    while at < seeds.stop:
        (folder / "told").unlink(missing_ok=True)
        command = [sys.executable, "-m", "tests.fuzz", "--inner", str(folder)]
        command += ["--seed", str(at), "--cases", str(seeds.stop - at)]
        done = subprocess.run(
            [*command, *["--keep"] * keep, *["--structured"] * structured],
            env=of_tests(),
            capture_output=True,
            check=False,
        )
        for line in _told(folder):
            seed, taken, outcome, told = json.loads(line)
            at = seed + 1
            if memory is not None:
                memory.append(taken)
            outcomes[outcome] += 1
            if told:
                wrong.append(told)
        if done.returncode < 0:
            outcomes["ended its process"] += 1
            case = CASES[structured](at)
            if case.format != "parquet":
                wrong.append(f"seed {at} ({case.format}) ended the process: {done.stderr[-200:]!r}")
            at += 1
        elif done.returncode:
            wrong.append(f"ended with {done.returncode} at seed {at}: {done.stderr[-500:]!r}")
            break
        elif at < seeds.stop:
            wrong.append(f"ended at seed {at} without a word")
            break
    return outcomes, wrong


def _told(folder: Path) -> list[str]:
    """Return what the process wrote; nothing where it died before that."""
    try:
        return (folder / "told").read_text().splitlines()
    except FileNotFoundError:
        return []


def _tell(seeds: range, folder: Path, *, structured: bool, keep: bool) -> None:
    with open(folder / "told", "w", buffering=1) as file:
        for seed in seeds:
            outcomes, wrong = play([seed], folder, structured=structured, keep=keep)
            taken = memory_bytes(os.getpid())[1]
            file.write(json.dumps([seed, taken, *outcomes, "".join(wrong)]) + "\n")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="tests.fuzz", description=__doc__)
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--cases", type=int, default=10_000)
    parser.add_argument("--keep", action="store_true", help="keep the files that were found")
    parser.add_argument("--service", action="store_true", help="through `cbp serve`")
    parser.add_argument("--structured", action="store_true", help="well formed but in one place")
    parser.add_argument("--inner", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    seeds = range(given.seed, given.seed + given.cases)
    if given.inner is not None:
        _tell(seeds, given.inner, structured=given.structured, keep=given.keep)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        if given.service:
            outcomes, wrong = play_in_process(seeds, Path(folder), CASES[given.structured])
        else:
            outcomes, wrong = play_beside(
                seeds, Path(folder), structured=given.structured, keep=given.keep
            )
    for outcome, count in outcomes.most_common():
        print(f"{count:8} {outcome}")
    print(*wrong, sep="\n")
    return 1 if wrong else 0
