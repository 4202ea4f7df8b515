"""Every reader takes time in proportion to the file, whatever its author put together.

And every file takes the same time, however many wait behind it.

No absolute times: `tests/growth.py` says what is measured.
"""

from __future__ import annotations

import gzip
import io
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cbp.model.dataflow.dataflow import SourceNode
from cbp.model.flow.schema import Schema
from controller.ingest.formats.bad_lines import Notes
from controller.ingest.formats.file_bytes import ClaimedContent
from controller.ingest.formats.format_readers import read_batches
from controller.ingest.limits import IngestLimits
from controller.ingest.rejection import FileRejectedError
from tests.controller.ingest.harness import Drop
from tests.growth import GROWTH_MAX, WORTH_SECONDS, assert_linear

WAITING = (200, 5_000)

Make = Callable[[int], bytes]


def _doubled(n: int) -> bytes:
    return b"url\n" + b'"' * n + b"x"


def _reopened(n: int) -> bytes:
    """Lines that each close a quote and open the next one."""
    return b'url,n\n"a' + b'\n","b' * n + b'"\n'


def _reopened_in_one_line(n: int) -> bytes:
    return b'url\n"' + b'a","' * n + b"\n"


def _alternating(n: int) -> bytes:
    return b"url\n" + b'"a",b,' * n + b"\n"


def _never_closed(n: int) -> bytes:
    return b'url\n"' + b'a""\n' * n


def _wide_header(n: int) -> bytes:
    return b",".join(b"c%d" % at for at in range(n)) + b"\n"


def _same_header(n: int) -> bytes:
    return b",".join(b"c%d" % (at % (n - 1)) for at in range(n)) + b"\n"


def _keys(n: int) -> bytes:
    pairs = ", ".join(f'"k{at}": 0' for at in (*range(n), n - 1))
    return f'{{"url": "a", {pairs}}}\n'.encode()


def _nested_keys(n: int) -> bytes:
    return b'{"url": "a", "x": ' + _keys(n).strip() + b"}\n"


def _deep(n: int) -> bytes:
    return b'{"url": ' + b"[" * n + b"]" * n + b"}\n"


def _digits(n: int) -> bytes:
    return b'{"n": ' + b"1" * n + b"}\n"


def _places(n: int) -> bytes:
    return b'{"d": 0.' + b"1" * n + b'e-3, "n": 1}\n'


def _decimal_text(n: int) -> bytes:
    return json.dumps({"d": "1" * n + "." + "2" * n + "x"}).encode() + b"\n"


def _csv_digits(n: int) -> bytes:
    return b"n\n" + b"1" * n + b"\n"


def _long_key(n: int) -> bytes:
    return b'{"' + b"k" * n + b'": 1, "' + b"k" * n + b'": 2}\n'


def _members(n: int) -> bytes:
    return gzip.compress(b'{"url": "a"}\n', 1) * n


def _empty_members(n: int) -> bytes:
    return gzip.compress(b"", 1) * n


def _blank(n: int) -> bytes:
    return b"\r\n" * n


SCHEMA = "url STRING, n BIGINT, d DECIMAL(30,2)"
CASES: list[tuple[Make, str, int]] = [
    (_doubled, "csv", 60_000),
    (_reopened, "csv", 10_000),
    (_reopened_in_one_line, "csv", 4_000),
    (_alternating, "csv", 8_000),
    (_never_closed, "csv", 20_000),
    (_wide_header, "csv", 20_000),
    (_same_header, "csv", 4_000),
    (_csv_digits, "csv", 100_000),
    (_blank, "csv", 20_000),
    (_keys, "jsonl", 20_000),
    (_nested_keys, "jsonl", 20_000),
    (_deep, "jsonl", 50_000),
    (_digits, "jsonl", 100_000),
    (_places, "jsonl", 200_000),
    (_decimal_text, "jsonl", 100_000),
    (_long_key, "jsonl", 200_000),
    (_members, "jsonl", 2_000),
    (_empty_members, "jsonl", 4_000),
    (_blank, "jsonl", 50_000),
]


def seconds(data: bytes, format_: str, path: Any) -> float:
    """Return what reading takes, whatever comes of it."""
    path.write_bytes(data)
    options = {"unknown": "ignore"} | ({"final_newline": "optional"} if format_ == "csv" else {})
    source = SourceNode("s", Schema.parse(SCHEMA), format_, options)
    limits = IngestLimits()
    begun = time.thread_time()
    try:
        with ClaimedContent(str(path), limits) as content:
            for _ in read_batches(content, source, limits, Notes()):
                pass
    except FileRejectedError:
        pass
    return time.thread_time() - begun


@pytest.mark.part(every=3)
@pytest.mark.parametrize(
    ("make", "format_", "count"), CASES, ids=[f"{f}{m.__name__}" for m, f, _ in CASES]
)
def test_time_grows_with_the_size(make: Make, format_: str, count: int, tmp_path: Any) -> None:
    """Four times the size takes about four times as long, and never sixteen."""
    assert_linear(lambda size: seconds(make(size), format_, tmp_path / "file"), count)


def test_the_measurement_sees_quadratic_work(tmp_path: Any) -> None:
    """Work that is quadratic fails it: otherwise the tests above hold nothing."""
    data = io.BytesIO()

    def work(count: int) -> float:
        begun = time.thread_time()
        text = "x" * count
        actual = sum(text.count("y", 0, at) for at in range(0, count, 16))
        data.write(b"%d" % actual)
        return time.thread_time() - begun

    few, many = min(work(20_000) for _ in range(3)), min(work(80_000) for _ in range(2))
    assert many > WORTH_SECONDS
    assert many > GROWTH_MAX * few


def test_a_file_costs_the_same_however_many_wait(tmp_path: Path) -> None:
    """A group out of 5,000 waiting files costs less than four times one out of 200, with listing.

    A listing for each file would cost 25 times as much.
    """
    group = IngestLimits().group_files
    limits = IngestLimits(claims_per_scan=group)
    few, many = (Drop(tmp_path / str(count), "n BIGINT", limits=limits) for count in WAITING)
    for drop, count in zip((few, many), WAITING, strict=True):
        for number in range(count):
            drop.put(f"f{number:04d}", b'{"n": %d}\n' % number)

    def of_a_pass(drop: Drop) -> float:
        begun = time.thread_time()
        assert drop.scan().accepted == group
        return time.thread_time() - begun

    rounds = [(of_a_pass(few), of_a_pass(many)) for _ in range(3)]
    least_few, least_many = (min(seconds) for seconds in zip(*rounds, strict=True))
    assert least_many < 4 * least_few
