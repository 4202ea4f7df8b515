"""JSON records with a checksum: the last member is a digest of all the others.

    {"stage":"count","epoch":7,...,"_name":"_intentions/count/7.json","_digest":"8f0c5d1be1a2c3f4"}

Records of earlier versions have no digest and are read without a check. A record whose digest does
not fit is never used: with one flipped digit in a number or a name it would be a record of
something else. The member `_name` detects an old copy, or the record of another epoch, under a
record's name.

Guaranteed: `parsed` returns what was passed to `digested`, or raises an error that names the file
(tests/cbp/engine/storage/test_checked_json.py).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import xxhash

from cbp.engine.storage.files import Files
from cbp.errors import CbpError, FileDamagedError, own_name

Record = TypeVar("Record")

_NUMBERED = re.compile(r"(\d{20})\.json", re.ASCII)
_MARK = b',"_digest":"'
_DIGITS = 16
_END = len(_MARK) + _DIGITS + 2


def digested(data: bytes, path: str) -> bytes:
    """Return a non-empty JSON object with its name and digest as the last members."""
    if name := own_name(path):
        data = b"".join((data[:-1], b',"_name":', json.dumps(name).encode(), b"}"))
    return b"".join((data[:-1], _MARK, digest_of(data), b'"}'))


def record_numbers(names: Iterable[str]) -> list[int]:
    """Return the numbers of the records in a folder; files with other names are skipped."""
    matches = (_NUMBERED.fullmatch(name) for name in names)
    return [int(match[1]) for match in matches if match]


def read_record(files: Files, path: str, parse: Callable[[Any], Record]) -> Record:
    """Read a record and parse it; see `parsed`."""
    return parsed(files.read(path), path, parse)


def parsed(
    data: bytes, path: str, parse: Callable[[Any], Record], *, written_to: str = ""
) -> Record:
    """Return the record in `data`, which may have a digest.

    `FileDamagedError` if the data is damaged, or `parse` rejects it. `written_to` is the path for
    which the record was written, if it differs from `path`.
    """
    try:
        if data[-_END:].startswith(_MARK):
            digest, data = data[-_END + len(_MARK) : -2], data[:-_END] + b"}"
            if digest != digest_of(data):
                raise FileDamagedError(path, "its content does not match its digest")
        if not any(data):
            raise FileDamagedError(path, f"all of its {len(data)} bytes are zero")
        value = json.loads(data)
        require_name(value.pop("_name", ""), written_to or path, at=path)
        return parse(value)
    except CbpError:
        raise
    except (ValueError, KeyError, TypeError, AttributeError, IndexError) as exc:
        why = f"its content cannot be parsed ({type(exc).__name__}: {exc})"
        raise FileDamagedError(path, why) from exc


def require_name(name: str, path: str, *, at: str = "") -> None:
    """Refuse data that was written under another name; an empty `name` is accepted."""
    expected = own_name(path)
    if name and expected and name != expected:
        raise FileDamagedError(at or path, f"it has the content of another file, {name}")


def digest_of(data: bytes) -> bytes:
    """Return the digest of a record or of a log entry, as 16 hexadecimal digits."""
    return xxhash.xxh3_64_hexdigest(data).encode()
