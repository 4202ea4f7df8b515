"""Cases that are damaged by their structure: a writer that is wrong, not a disk that fails.

A random byte rarely gets behind a magic number or a check sum. So these files are put together from
parts, and the parts are changed before the whole is written: counts, sizes, types, nesting, pages,
encodings, names, members. Most of what comes out is well formed in all places but one.
"""

from __future__ import annotations

import bz2
import gzip
import io
import json
import random
import struct
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tests.controller.ingest.formats import avro_files
from tests.fuzz.cases import DAMAGE, TIMES, Case, delimited, jsonl, parquet, rows_of

__all__ = ["FORMATS", "LOG_SCHEMA", "structured_case"]

FORMATS = ("jsonl", "csv", "text", "access_log", "xml", "avro", "parquet")
NUMBERS = (0, 1, -1, 2, 63, 64, 127, 128, 1 << 20, 1 << 31, (1 << 63) - 1, -(1 << 63), 1 << 64)
ODD = (
    *("", " ", "a", "é", "漢😀", "\u202e", "\ufeff", "\u2028", "\x85", "a\tb", "\x1f", "\x7f"),
    *("'", '"', "&amp;", "<b>", "]]>", "\\", "\\u0000", "%00", "..", "NaN", "1e400", "0x1", "1_0"),
    *("٣", "\u00a01", "+1", "1.", ".5", "TRUE", "t", "2024-02-30T00:00:00Z", "24:00"),
)
COMBINED = (
    '1.2.3.4 - bob [10/Oct/2026:13:55:36 +0200] "GET /a?b HTTP/1.1" 200 12 "-" "curl \\"x\\""'
)
LOG_SCHEMA = "host STRING, time TIMESTAMP, request STRING, status INT, bytes BIGINT"


def structured_case(seed: int) -> Case:
    """Return the case of a seed."""
    chance = random.Random(f"structured {seed}")
    format_ = FORMATS[seed % len(FORMATS)]
    case = _CASES[format_](chance)
    if format_ in ("avro", "parquet"):
        return case
    return Case(format_, case.options, _packed(chance, case.data), case.schema)


def _times(chance: random.Random) -> int:
    return chance.choice([0, 1, 1, 1, 2, 3])


def _odd(chance: random.Random) -> str:
    return chance.choice([*ODD, chance.choice(ODD) * chance.choice([2, 100, 3000])])


# --- JSON lines ---


def _jsonl(chance: random.Random) -> Case:
    lines = [line for line in jsonl(chance).decode().split("\n") if line.strip()]
    for _ in range(_times(chance)):
        if lines:
            at = chance.randrange(len(lines))
            lines[at] = chance.choice(_JSON)(chance, lines[at])
    options = {"unknown": "ignore"} if chance.random() < 0.5 else {}
    text = chance.choice(["\n", "\n", "\r\n", "\n \n", "\r"]).join(lines)
    end = chance.choice(["\n", "\n", "", " ", "\x00", "\n\n\n"])
    return Case("jsonl", options, _encoded(chance, text + end))


def _json_value(chance: random.Random, line: str) -> str:
    """Put another kind of value in a place; a line that is none any more stays as it is."""
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return line
    if not isinstance(row, dict):
        return line
    deep: Any = []
    for _ in range(chance.choice([1, 5, 60])):
        deep = chance.choice([[deep], {"a": deep}])
    odd = [[], {}, [1], deep, True, None, 1.0, 10**400, _odd(chance), chance.choice(NUMBERS)]
    row[chance.choice(["id", "name", "x", "ok", "d", "at", _odd(chance)])] = chance.choice(odd)
    return json.dumps(row, ensure_ascii=chance.random() < 0.5)


def _json_text(chance: random.Random, line: str) -> str:
    """Spell the line in another way, or in a wrong one."""
    return chance.choice(
        [
            line.replace("{", '{"id": 1, "id": 2, ', 1),
            line.replace("}", ",}", 1),
            line.replace(":", " : \t"),
            line.replace('"', "'"),
            line.replace("e", "\\u0065"),
            line + line,
            f"[{line}]",
            json.dumps(line),
            "\ufeff" + line,
            line.replace("{", '{"name": "\\ud800", ', 1),
            line.replace("{", '{"name": "\\ud83d\\ude00", ', 1),
            line.replace("{", '{"\\u0069d": 7, ', 1),
            line.replace("{", "{" + f'"x": {"9" * chance.choice([20, 400, 5000])}, ', 1),
            line.replace("{", f'{{"x": 1{"0" * 400}e-400, ', 1),
            line.replace("{", '{"x": -0.0, "id": -0, ', 1),
            line.replace("{", '{"id": 1.0, ', 1),
            line.replace("{", '{"id": 01, ', 1),
            line[: chance.randrange(len(line) + 1)],
            "[" * chance.choice([10, 2000]) + line,
        ]
    )


_JSON: list[Callable[[random.Random, str], str]] = [_json_value, _json_text]


# --- CSV ---


def _csv(chance: random.Random) -> Case:
    options: dict[str, str] = {}
    for name, values in (
        ("unknown", ["ignore"]),
        ("final_newline", ["optional"]),
        ("header", ["false"]),
        ("delimiter", [";", "\t", "|"]),
    ):
        if chance.random() < 0.25:
            options[name] = chance.choice(values)
    text = delimited(chance, options).decode()
    delimiter = options.get("delimiter", ",")
    lines = text.splitlines(keepends=True)
    for _ in range(_times(chance)):
        if not lines:
            break
        at = chance.randrange(len(lines)) if chance.random() < 0.6 else 0
        lines[at] = chance.choice(
            [
                lines[at].replace(delimiter, delimiter * 2, 1),
                lines[at].replace(delimiter, "", 1),
                lines[at].replace(delimiter, f'{delimiter}"{_odd(chance)}', 1),
                lines[at].replace(delimiter, f'{delimiter}"{_odd(chance)}"', 1),
                lines[at].replace(delimiter, f"{delimiter}{_odd(chance)}", 1),
                lines[at].replace(delimiter, f'{delimiter} "x" ', 1),
                lines[at].replace("\n", '"\n'),
                lines[at].replace("name", "id"),
                lines[at].replace("id", f"{_odd(chance)}id"),
                lines[at].replace("\n", f"{delimiter}\n"),
                lines[at].upper(),
                lines[at] * chance.choice([2, 50]),
                delimiter * chance.choice([1, 5, 3000]) + "\n",
                "\n",
                "",
            ]
        )
    return Case("csv", options, _encoded(chance, "".join(lines)))


# --- text and access logs ---


def _text(chance: random.Random) -> Case:
    options: dict[str, str] = {}
    schema = "line STRING"
    if chance.random() < 0.3:
        options["final_newline"] = "optional"
    if chance.random() < 0.3:
        options["encoding"] = chance.choice(["latin-1", "windows-1252", "iso-8859-15"])
    if chance.random() < 0.3:
        options["line_number"], schema = "n", "line STRING, n BIGINT"
    lines = [_odd(chance) for _ in range(chance.choice([0, 1, 2, 9, 300]))]
    text = "".join(line + chance.choice(["\n", "\n", "\r\n", "\r", "\x0b"]) for line in lines)
    codec = options.get("encoding", "utf-8")
    data = text.encode(codec, "replace") if chance.random() < 0.8 else _encoded(chance, text)
    for _ in range(chance.choice([0, 0, 1])):
        data = chance.choice(DAMAGE)(chance, data)
    return Case("text", options, data, schema)


def _access_log(chance: random.Random) -> Case:
    options = {"layout": "common"} if chance.random() < 0.3 else {}
    line = COMBINED if not options else COMBINED.split(' "-"')[0]
    lines = [line] * chance.choice([0, 1, 3, 40])
    for _ in range(_times(chance)):
        if lines:
            at = chance.randrange(len(lines))
            lines[at] = chance.choice(
                [
                    lines[at].replace("1.2.3.4", _odd(chance), 1),
                    lines[at].replace("bob", chance.choice(["bob b", "[x", "", _odd(chance)]), 1),
                    lines[at].replace("Oct", chance.choice(["Okt", "oct", "Feb", "Dec"])),
                    lines[at].replace("10/", chance.choice(["31/", "00/", "1/"]), 1),
                    lines[at].replace("+0200", chance.choice(["-9999", "+2400", "Z", "+0000"])),
                    lines[at].replace("2026", chance.choice(["0000", "9999", "0001"])),
                    lines[at].replace("200", chance.choice(["-", "2000", "20", "٢٠٠", "099"])),
                    lines[at].replace(" 12", chance.choice([" -", " " + "9" * 19, " -1", " 1.0"])),
                    lines[at].replace("GET", _odd(chance)),
                    lines[at].replace('"', "", 1),
                    lines[at].replace('"', '\\"', 1),
                    lines[at] + '"',
                    " " + lines[at],
                    lines[at] + " ",
                    '"' * chance.choice([2, 3000]),
                ]
            )
    end = chance.choice(["\n", "\r\n", "\n\n"])
    data = _encoded(chance, "".join(f"{line}{end}" for line in lines))
    return Case("access_log", options, data, LOG_SCHEMA)


# --- XML ---


def _xml(chance: random.Random) -> Case:
    options = {"unknown": "ignore"} if chance.random() < 0.4 else {}
    if chance.random() < 0.3:
        options["record"] = "row"
    records = [_element(chance, row) for row in rows_of(chance)]
    for _ in range(_times(chance)):
        if records:
            at = chance.randrange(len(records))
            records[at] = chance.choice(_XML)(chance, records[at])
    inside = "\n".join(records)
    for _ in range(chance.choice([0, 0, 0, 1, 5, 70]) if "record" in options else 0):
        inside = f"<deep>{inside}</deep>"
    head = chance.choice(
        [
            *("", "", "", "<?xml version='1.0'?>", "<?xml version='1.0' encoding='UTF-8'?>"),
            *("<?xml version='1.0' encoding='latin-1'?>", "<?xml version='1.1'?>", "\n\n"),
            *("<?xml version='1.0' encoding='utf-16'?>", "<!-- c -->", "<?p <a> ?>"),
            '<!DOCTYPE r [<!ENTITY a "aa"><!ENTITY b "&a;&a;">]>',
            '<!DOCTYPE r SYSTEM "file:///etc/passwd">',
            "<?xml version='1.0' encoding='x-unknown'?>",
        ]
    )
    root = chance.choice(["r", "r", "r", "x:r xmlns:x='u'", "r xmlns='u'", "r a='1'", "row"])
    end = root.split()[0]
    tail = chance.choice(["", "", "\n", "<!-- c -->", "<r/>", "text", f"</{end}>", "\x00"])
    return Case("xml", options, _encoded(chance, f"{head}<{root}>{inside}</{end}>{tail}"))


def _element(chance: random.Random, row: dict[str, Any]) -> str:
    attributes, children = "", ""
    for name, value in row.items():
        if value is None or (isinstance(value, str) and not value.isprintable()):
            continue
        text = str(value).lower() if isinstance(value, bool) else str(value)
        escaped = text.replace("&", "&amp;").replace("<", "&lt;").replace('"', "&quot;")
        if chance.random() < 0.5:
            attributes += f' {name}="{escaped}"'
        else:
            children += f"<{name}>{escaped}</{name}>"
    return f"<row{attributes}>{children}</row>"


_XML: list[Callable[[random.Random, str], str]] = [
    lambda chance, one: one.replace("</row>", f"<id>{chance.choice(NUMBERS)}</id></row>"),
    lambda chance, one: one.replace("<row", f'<row name="{chance.choice(NUMBERS)}"', 1),
    lambda chance, one: one.replace("</row>", f"{_odd(chance)}</row>"),
    lambda chance, one: one.replace("</row>", f"<name>{_odd(chance)}</name></row>"),
    lambda chance, one: one.replace("</row>", f"<name><![CDATA[{_odd(chance)}]]></name></row>"),
    lambda _, one: one.replace("</row>", "<name>a<b/>c</name></row>"),
    lambda _, one: one.replace("</row>", "<name>a<!-- c -->b<?p?>c</name></row>"),
    lambda chance, one: "<name>" * chance.choice([2, 70, 3000]) + one,
    lambda _, one: one.replace("<row", "<x:row", 1),
    lambda _, one: one.replace("<row", "<row xmlns:n='u' n:id='3'", 1),
    lambda _, one: one.replace("</row>", "<name xmlns:x='u' x:nil='true'/></row>"),
    lambda _, one: one.replace("</row>", "<name>&#0;</name></row>"),
    lambda _, one: one.replace("</row>", "<name>&#x10FFFF;&#13;&#10;</name></row>"),
    lambda _, one: one.replace("</row>", "<name>&undefined;</name></row>"),
    lambda _, one: one.replace("</row>", "<é>1</é></row>"),
    lambda _, one: one.replace("row>", "ROW>"),
    lambda _, one: one.replace("</row>", ""),
    lambda _, one: f"<other>{one}</other>",
    lambda _, one: one.replace("<row", "<row a='1' a='2'", 1),
    lambda _, one: one + one,
]


# --- Avro ---

_AVRO: dict[str, Any] = {
    "id": "long",
    "name": "string",
    "x": "double",
    "ok": "boolean",
    "d": {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2},
    "at": {"type": "long", "logicalType": "timestamp-micros"},
}
_LIES: dict[str, list[Any]] = {
    "id": ["int", "string", "double", {"type": "long", "logicalType": "timestamp-micros"}],
    "name": ["bytes", "long", {"type": "enum", "name": "e", "symbols": ["a", "b"]}],
    "x": ["float", "long", {"type": "fixed", "name": "f", "size": 8}],
    "ok": ["int", "null"],
    "d": ["bytes", {"type": "bytes", "logicalType": "decimal", "precision": 40, "scale": 2}],
    "at": [
        {"type": "long", "logicalType": "timestamp-millis"},
        {"type": "long", "logicalType": "local-timestamp-micros"},
        {"type": "map", "values": "long"},
    ],
}


def _avro(chance: random.Random) -> Case:
    fields: dict[str, Any] = {name: ["null", type_] for name, type_ in _AVRO.items()}
    rows = [_avro_row(row) for row in rows_of(chance)]
    codec = chance.choice(["null", "deflate", "bzip2", "zstandard", "snappy"])
    blocks = _avro_blocks(chance, rows)
    lies = _times(chance)
    if lies and chance.random() < 0.4:
        name = chance.choice(list(fields))
        lying: list[Any] = [*_LIES[name], ["null", *_LIES[name]], [], "nothing"]
        fields[name] = chance.choice(lying)
    schema: Any = avro_files.record(fields)
    if lies and chance.random() < 0.2:
        schema = _avro_schema(chance, schema)
    parts = [avro_files.header(schema, codec)]
    for number, (count, data) in enumerate(blocks):
        if lies and number == len(blocks) - 1 and chance.random() < 0.5:
            count, data = chance.choice(_AVRO_BLOCK)(chance, count, data)
        parts.append(avro_files.block(count, data, codec))
    data = b"".join(parts)
    if lies and chance.random() < 0.3:
        data = chance.choice(_AVRO_FILE)(chance, data)
    options = {"unknown": "ignore"} if chance.random() < 0.3 else {}
    return Case("avro", options, data)


def _avro_row(row: dict[str, Any]) -> bytes:
    number, text = avro_files.number, avro_files.text
    micros = {TIMES[0]: 1_709_208_000_000_000, TIMES[1]: -100_000}
    encoded: dict[str, Callable[[Any], bytes]] = {
        "id": number,
        "name": text,
        "x": lambda value: struct.pack("<d", value),
        "ok": lambda value: bytes([value]),
        "d": lambda value: text(round(float(value) * 100).to_bytes(3, "big", signed=True)),
        "at": lambda value: number(micros[value]),
    }
    return b"".join(
        number(0) if row[name] is None else number(1) + encoded[name](row[name]) for name in _AVRO
    )


def _avro_blocks(chance: random.Random, rows: list[bytes]) -> list[tuple[int, bytes]]:
    step = chance.choice([1, 2, 1000])
    parts = [rows[at : at + step] for at in range(0, len(rows), step)]
    return [(len(part), b"".join(part)) for part in parts]


def _avro_schema(chance: random.Random, schema: dict[str, Any]) -> Any:
    fields = schema["fields"]
    deep: Any = "long"
    for _ in range(chance.choice([3, 40, 900])):
        deep = chance.choice([{"type": "array", "items": deep}, ["null", deep], {"type": deep}])
    more: list[Any] = [
        {"name": "id", "type": "long"},
        {"name": _odd(chance), "type": ["null", "long"]},
        {"name": "more", "type": deep},
        {"name": "more", "type": "row"},
        {"name": "more", "type": {"type": "array", "items": "null"}},
        {"name": 7, "type": "long"},
        {"type": "long"},
        {},
        None,
    ]
    fields.append(chance.choice(more))
    schemas: list[Any] = [
        schema,
        schema,
        [schema],
        {"type": schema},
        {**schema, "fields": fields[1:]},
        {**schema, "fields": fields[::-1]},
        {**schema, "fields": {}},
        {**schema, "type": "error"},
        *(b"{", b"\xff", b"[" * 5000, b""),
    ]
    return chance.choice(schemas)


_AVRO_BLOCK: list[Callable[[random.Random, int, bytes], tuple[int, bytes]]] = [
    lambda chance, count, data: (chance.choice(NUMBERS), data),
    lambda _, count, data: (count + 1, data),
    lambda _, count, data: (count - 1, data),
    lambda chance, count, data: (count, data + bytes(chance.choice([1, 9]))),
    lambda _, count, data: (count, data[:-1]),
    lambda chance, count, data: (count, avro_files.number(chance.choice(NUMBERS)) + data),
    lambda chance, count, data: (count, chance.choice(DAMAGE)(chance, data)),
    lambda _, count, data: (
        count,
        b"\x82\x80\x00" + data[1:],
    ),  # a number that is longer than need be
    lambda _, count, data: (count, data.replace(b"\x02", b"\x04", 1)),  # a branch that is not there
    lambda _, count, data: (count, data.replace(b"a", b"\xff", 1)),
    lambda _, count, data: (count + 1, data + b"\x00" * 6),
]
_AVRO_FILE: list[Callable[[random.Random, bytes], bytes]] = [
    lambda _, data: data.replace(avro_files.SYNC, b"x" * 16, 1),
    lambda _, data: data[: -len(avro_files.SYNC)],
    lambda _, data: data + b"\0",
    lambda _, data: data + data,
    lambda _, data: data + avro_files.block(0, b""),
    lambda _, data: data + avro_files.number(-1) + avro_files.number(0) + avro_files.SYNC,
    lambda chance, data: data.replace(b"avro.codec", chance.choice([b"avro.codes", b"avro.schem"])),
    lambda chance, data: data.replace(b"Obj\x01\x04", b"Obj\x01" + bytes([chance.choice([3, 6])])),
    lambda _, data: data.replace(b"Obj\x01", b"Obj\x02", 1),
    lambda chance, data: chance.choice(DAMAGE)(chance, data),
]


# --- Parquet ---


def _parquet(chance: random.Random) -> Case:
    options = {"unknown": "ignore"} if chance.random() < 0.4 else {}
    if chance.random() < 0.3:
        options["timezone"] = "UTC"
    data = parquet(chance) if chance.random() < 0.4 else _typed_parquet(chance)
    for _ in range(_times(chance)):
        data = chance.choice(_PARQUET)(chance, data)
    return Case("parquet", options, data)


def _typed_parquet(chance: random.Random) -> bytes:
    """Write columns in types that are near the declared ones, or not."""
    rows = rows_of(chance)
    few = [row["id"] if row["id"] is None or row["id"] < 2**31 else 7 for row in rows]
    columns: dict[str, list[pa.Array]] = {
        "id": [
            pa.array(few, chance.choice([pa.int32(), pa.int64(), pa.float64()])),
            pa.array([None if v is None else str(v) for v in few]),
            pa.array(few, pa.int64()).dictionary_encode(),
            pa.array([[v] for v in few], pa.list_(pa.int64())),
        ],
        "name": [
            pa.array([row["name"] for row in rows], pa.string()).dictionary_encode(),
            pa.array([row["name"] for row in rows], pa.large_string()),
            pa.array([(row["name"] or "").encode() for row in rows], pa.binary()),
            pa.array([{"a": row["name"]} for row in rows], pa.struct([("a", pa.string())])),
        ],
        "x": [pa.array([row["x"] for row in rows], chance.choice([pa.float32(), pa.float64()]))],
        "ok": [pa.array([row["ok"] for row in rows], chance.choice([pa.bool_(), pa.bool_()]))],
        "at": [
            pa.array(
                [None if row["at"] is None else chance.choice([0, -1, 10**15]) for row in rows],
                pa.timestamp(chance.choice(["ms", "us", "ns"]), chance.choice(["UTC", None])),
            )
        ],
    }
    chosen = {name: chance.choice(arrays) for name, arrays in columns.items()}
    if chance.random() < 0.2:
        chosen[_odd(chance)[:100]] = chosen["x"]
    sink = io.BytesIO()
    pq.write_table(
        pa.table(chosen),
        sink,
        row_group_size=chance.choice([1, 3, 1000]),
        compression=chance.choice(["snappy", "none", "zstd", "gzip", "brotli", "lz4"]),
        use_dictionary=chance.random() < 0.6,
        data_page_version=chance.choice(["1.0", "2.0"]),
        data_page_size=chance.choice([1, 100, 1 << 20]),
        store_schema=chance.random() < 0.5,
        write_statistics=chance.random() < 0.5,
        write_page_checksum=chance.random() < 0.2,
    )
    return sink.getvalue()


def _chunk(chance: random.Random, data: bytes) -> tuple[int, int, int]:
    """Return where a column's pages begin, how long they are, and where its dictionary's end."""
    try:
        metadata = pq.read_metadata(io.BytesIO(data))
        group = metadata.row_group(chance.randrange(metadata.num_row_groups))
        column = group.column(chance.randrange(group.num_columns))
    except (OSError, ValueError, pa.ArrowException):
        return 4, max(1, len(data) - 12), 4
    first = column.dictionary_page_offset or column.data_page_offset
    return first, max(1, column.total_compressed_size), column.data_page_offset


def _page_header(chance: random.Random, data: bytes) -> bytes:
    """Change a number of a page's header: its type, sizes, counts, encodings."""
    first, _, second = _chunk(chance, data)
    at = chance.choice([first, second]) + chance.randrange(24)
    return data[:at] + bytes([chance.choice([0, 1, 2, 0x7F, 0x80, 0xFF, 0x15])]) + data[at + 1 :]


def _page_body(chance: random.Random, data: bytes) -> bytes:
    """Change levels, indices of a dictionary, lengths of texts."""
    first, size, _ = _chunk(chance, data)
    at = first + min(size - 1, 16 + chance.randrange(max(1, size - 15)))
    return data[:at] + bytes([chance.choice([0, 1, 0xFE, 0xFF])]) + data[at + 1 :]


def _other_chunk(chance: random.Random, data: bytes) -> bytes:
    """Put the pages of a column in place of those of another, as far as there is room."""
    first, size, _ = _chunk(chance, data)
    other, many, _ = _chunk(chance, data)
    taken = data[other : other + min(size, many)]
    return data[:first] + taken + data[first + len(taken) :]


def _footer(chance: random.Random, data: bytes) -> bytes:
    """Change a byte of the description, or how long it says to be."""
    size = int.from_bytes(data[-8:-4], "little")
    if chance.random() < 0.2 or not 0 < size < len(data) - 8:
        lie = chance.choice([0, 1, size - 1, size + 1, len(data), (1 << 31) - 1, (1 << 32) - 1])
        return data[:-8] + (lie & 0xFFFFFFFF).to_bytes(4, "little") + data[-4:]
    at = len(data) - 8 - size + chance.randrange(size)
    value = chance.choice([data[at] ^ (1 << chance.randrange(8)), 0, 0xFF, data[at] + 2 & 0xFF])
    return data[:at] + bytes([value]) + data[at + 1 :]


def _renamed(chance: random.Random, data: bytes) -> bytes:
    """Give a column another name of the same length."""
    old, new = chance.choice(
        [(b"name", b"nam\xff"), (b"name", "é漢"[:2].encode()[:4]), (b"id", b"x\0")]
    )
    return data.replace(old, new)


_PARQUET: list[Callable[[random.Random, bytes], bytes]] = [
    *(_page_header, _page_header, _page_body, _page_body, _other_chunk, _footer, _footer, _renamed),
    lambda _, data: data + data,
    lambda _, data: data[:4] + data[8:],
    lambda chance, data: chance.choice(DAMAGE)(chance, data),
]


# --- what is around a text ---


def _encoded(chance: random.Random, text: str) -> bytes:
    kind = chance.random()
    if kind < 0.85:
        return text.encode("utf-8", "surrogatepass")
    codec = chance.choice(["utf-8-sig", "utf-16", "utf-16-be", "latin-1", "utf-32", "cp1252"])
    return text.encode(codec, "replace")


def _packed(chance: random.Random, data: bytes) -> bytes:
    """Compress text; lie about it now and then."""
    kind = chance.choice(["none", "none", "gzip", "bzip2", "zstd"])
    if kind == "none" or not data:
        return data
    pack: Callable[[bytes], bytes] = {
        "gzip": lambda part: gzip.compress(part, 1, mtime=0),
        "bzip2": bz2.compress,
        "zstd": lambda part: bytes(pa.Codec("zstd").compress(part)),
    }[kind]
    step = chance.choice([len(data), max(1, len(data) // 3)])
    members = [pack(data[at : at + step]) for at in range(0, len(data), step)]
    if chance.random() < 0.6:
        return b"".join(members)
    return chance.choice(_PACKED)(chance, members, pack)


_PACKED: list[Callable[[random.Random, list[bytes], Callable[[bytes], bytes]], bytes]] = [
    lambda chance, members, _: b"".join(members) + chance.choice([b"\0", b"x" * 9, b"\x1f\x8b"]),
    lambda chance, members, _: b"".join(members)[: -chance.choice([1, 4, 8])],
    lambda _, members, pack: pack(b"".join(members)),
    lambda _, members, pack: b"".join(members) + pack(b""),
    lambda _, members, __: b"".join(members[::-1]),
    lambda _, members, __: b"".join(members) + gzip.compress(b"", mtime=0),
    lambda _, members, __: b"".join(members) + bz2.compress(b"\n"),
    lambda _, members, __: members[0][:3] + b"\xff" + members[0][4:],
    lambda _, members, __: members[0][:-4] + bytes(4),
    lambda chance, members, _: chance.choice(DAMAGE)(chance, b"".join(members)),
    lambda _, members, pack: b"".join(members) + pack(b"\n" * 3_000_000),
]

_CASES: dict[str, Callable[[random.Random], Case]] = {
    "jsonl": _jsonl,
    "csv": _csv,
    "text": _text,
    "access_log": _access_log,
    "xml": _xml,
    "avro": _avro,
    "parquet": _parquet,
}
