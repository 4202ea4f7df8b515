"""Cases: a sound file of a format, and what was done to it; a seed determines everything."""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq

SCHEMA = "id BIGINT, name STRING, x DOUBLE, ok BOOLEAN, d DECIMAL(12,2), at TIMESTAMP"
NAMES = ("id", "name", "x", "ok", "d", "at")
WORDS = ["", "a", "é漢😀", 'q"q', "a,b", "l\nm", "c\r\nd", " s ", "NaN", "null", "1", "x" * 300]
NUMBERS = ["0", "-1", "9223372036854775807", "9223372036854775808", "1e5", "1" * 50, "-0"]
TIMES = [
    "2024-02-29T12:00:00Z",
    "1969-12-31T23:59:59.9Z",
    "2024-02-29T12:00:00",
    "2024-13-01T00:00Z",
]
TOKENS = [
    *(b'"', b'""', b",", b"\n", b"\r", b"\r\n", b"\0", b"\xff", b"\xef\xbb\xbf", b"{", b"}", b"["),
    *(b"null", b"NaN", b"1e999999", b"-", b"1" * 5000, b'"id":', b'"nmae": 1,', b"\\ud800", b";"),
    *(b"\x1f\x8b", b"PAR1", b"[" * 3000, b'"' * 3000, b"a" * 70_000),
]


@dataclass(frozen=True, slots=True)
class Case:
    """One file of a format."""

    format: str
    options: dict[str, str]
    data: bytes
    schema: str = SCHEMA

    @property
    def names(self) -> tuple[str, ...]:
        """The declared columns, in order."""
        return tuple(column.split()[0] for column in self.schema.split(", "))


def rows_of(chance: random.Random) -> list[dict[str, Any]]:
    """Return records whose values are sound, but for a few."""
    rows = []
    for _ in range(chance.choice([0, 1, 1, 2, 3, 8, 40])):
        row: dict[str, Any] = {
            "id": chance.choice([None, 0, 1, -5, 2**63 - 1, chance.randrange(10**6)]),
            "name": chance.choice([*WORDS, None]),
            "x": chance.choice([None, 0.5, -1.25e-7, 3.0]),
            "ok": chance.choice([None, True, False]),
            "d": chance.choice([None, "1.25", "-99.00", "0.01"]),
            "at": chance.choice([None, TIMES[0], TIMES[1]]),
        }
        rows.append(row)
    return rows


def jsonl(chance: random.Random) -> bytes:
    lines = []
    for row in rows_of(chance):
        kept = {name: value for name, value in row.items() if chance.random() < 0.9}
        lines.append(json.dumps(kept, ensure_ascii=chance.random() < 0.5))
    return "".join(line + chance.choice(["\n", "\n", "\r\n", "\n\n"]) for line in lines).encode()


def delimited(chance: random.Random, options: dict[str, str]) -> bytes:
    text = io.StringIO()
    kinds: list[Literal[0, 1]] = [csv.QUOTE_MINIMAL, csv.QUOTE_ALL]
    quoting = chance.choice(kinds)
    end = chance.choice(["\n", "\r\n"])
    columns = list(NAMES)
    if options.get("header") != "false":
        chance.shuffle(columns)
    writer = csv.writer(
        text, delimiter=options.get("delimiter", ","), quoting=quoting, lineterminator=end
    )
    if options.get("header") != "false":
        writer.writerow(columns)
    for row in rows_of(chance):
        cells = {k: "" if v is None else str(v).lower() if k == "ok" else v for k, v in row.items()}
        writer.writerow([cells[name] for name in columns])
    return text.getvalue().encode()


def parquet(chance: random.Random) -> bytes:
    rows = rows_of(chance)
    arrays: dict[str, pa.Array] = {
        "id": pa.array([row["id"] for row in rows], pa.int64()),
        "name": pa.array([row["name"] for row in rows], pa.string()),
        "x": pa.array([row["x"] for row in rows], pa.float64()),
        "ok": pa.array([row["ok"] for row in rows], pa.bool_()),
    }
    if chance.random() < 0.1:
        arrays["id"] = arrays["id"].cast(pa.string())
    if chance.random() < 0.1:
        arrays["other"] = arrays["x"]
    names = [name for name in arrays if chance.random() < 0.95] or ["id"]
    sink = io.BytesIO()
    pq.write_table(
        pa.table({name: arrays[name] for name in names}),
        sink,
        row_group_size=chance.choice([1, 3, 1000]),
        compression=chance.choice(["snappy", "none", "zstd", "gzip"]),
        use_dictionary=chance.random() < 0.7,
        data_page_version=chance.choice(["1.0", "2.0"]),
    )
    return sink.getvalue()


def cut(chance: random.Random, data: bytes) -> bytes:
    return data[: chance.randrange(len(data) + 1)]


def flip(chance: random.Random, data: bytes) -> bytes:
    if not data:
        return data
    at = chance.randrange(len(data))
    return data[:at] + bytes([data[at] ^ (1 << chance.randrange(8))]) + data[at + 1 :]


def insert(chance: random.Random, data: bytes) -> bytes:
    at = chance.randrange(len(data) + 1)
    return data[:at] + chance.choice(TOKENS) * chance.choice([1, 1, 1, 2, 20]) + data[at:]


def replace_number(chance: random.Random, data: bytes) -> bytes:
    """Put another number, or time, in the place of one."""
    for old in (b"-99.00", b"0.5", b"3.0", TIMES[0].encode(), b"1"):
        if old in data and chance.random() < 0.5:
            new = chance.choice([*NUMBERS, *TIMES, "inf", "true"]).encode()
            return data.replace(old, new, 1)
    return data


def drop_part(chance: random.Random, data: bytes) -> bytes:
    first, second = sorted(chance.randrange(len(data) + 1) for _ in range(2))
    return data[:first] + data[min(second, first + chance.choice([1, 4, 30])) :]


def repeat_part(chance: random.Random, data: bytes) -> bytes:
    first, second = sorted(chance.randrange(len(data) + 1) for _ in range(2))
    return data[:second] + data[first:second] * chance.choice([1, 2, 50]) + data[second:]


def damage_footer(chance: random.Random, data: bytes) -> bytes:
    """Change bytes of the last part, where Parquet's footer and gzip's check sum lie."""
    back = min(len(data), chance.choice([4, 8, 40, 400]))
    if not back:
        return data
    at = len(data) - 1 - chance.randrange(back)
    return data[:at] + bytes([chance.randrange(256)]) + data[at + 1 :]


DAMAGE: list[Callable[[random.Random, bytes], bytes]] = [
    *(cut, flip, insert, insert, replace_number, replace_number, drop_part, repeat_part),
    damage_footer,
]


def packed(chance: random.Random, data: bytes) -> bytes:
    """Compress text, in one member or several."""
    kind = chance.random()
    if kind < 0.7:
        return data
    if kind < 0.8:
        return pa.Codec("zstd").compress(data).to_pybytes() if data else data
    if kind < 0.86:
        return bz2.compress(data)
    step = chance.choice([1, 7, 1000, 10**6])
    parts = [data[at : at + step] for at in range(0, len(data), step)][:300]
    return b"".join(gzip.compress(part, 1, mtime=0) for part in parts)


def case_of(seed: int) -> Case:
    """Return the case of a seed."""
    chance = random.Random(seed)
    format_ = chance.choice(["jsonl", "csv", "csv", "parquet"])
    options: dict[str, str] = {}
    if chance.random() < 0.3:
        options["unknown"] = "ignore"
    if chance.random() < 0.3:
        options["timezone"] = "UTC"
    if format_ == "csv":
        if chance.random() < 0.3:
            options["final_newline"] = "optional"
        if chance.random() < 0.2:
            options["header"] = "false"
        if chance.random() < 0.2:
            options["delimiter"] = ";"
        data = delimited(chance, options)
    else:
        data = jsonl(chance) if format_ == "jsonl" else parquet(chance)
    times = chance.choice([0, 1, 1, 1, 2, 4])
    before = chance.random() < 0.7
    if format_ != "parquet" and not before:
        data = packed(chance, data)
    for _ in range(times):
        data = chance.choice(DAMAGE)(chance, data)
    if format_ != "parquet" and before:
        data = packed(chance, data)
    return Case(format_, options, data)
