"""A producer's statement that a set of files is complete: `_MANIFEST.json`.

    {"files": [{"name": "a.jsonl", "bytes": 120, "sha256": "…"}, {"name": "b.jsonl", "bytes": 7}]}

Files that a manifest names wait until all of them are there with their sizes, and
are then taken at once, in its order; `sha256` is optional and checked when given.
A complete manifest is sealed (renamed to a hidden name) before the first of its
files is claimed, so that a crash in between loses neither order nor checksums.

Names are only compared with names in the listing; none is ever joined to a path.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

__all__ = ["MANIFEST_NAME", "Manifest", "Promise", "is_sealed", "read_manifest", "sealed_name"]

MANIFEST_NAME = "_MANIFEST.json"
MANIFEST_BYTES_MAX = 16 << 20
_SEALED = re.compile(r"\.manifest-[a-z0-9]+\.json")
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Promise:
    """One file of a manifest; `sha256` is `""` when the producer gave none."""

    name: str
    bytes: int
    sha256: str = ""


@dataclass(frozen=True, slots=True)
class Manifest:
    """The files that a producer announced, in order."""

    path: Path
    files: tuple[Promise, ...]

    def complete(self, sizes: Mapping[str, int]) -> bool:
        """Whether every file is in a listing (name to size) with its size."""
        return all(sizes.get(file.name) == file.bytes for file in self.files)


def sealed_name(identity: str) -> str:
    """Return the hidden name of a sealed manifest."""
    return f".manifest-{identity}.json"


def is_sealed(name: str) -> bool:
    """Whether a name in `incoming` is that of a sealed manifest."""
    return bool(_SEALED.fullmatch(name))


def read_manifest(path: Path) -> Manifest:
    """Read a manifest.

    Raises:
        ValueError: Saying what is wrong with it.
        OSError: It cannot be read.
    """
    with open(path, "rb") as file:
        data = file.read(MANIFEST_BYTES_MAX + 1)
    if len(data) > MANIFEST_BYTES_MAX:
        message = f"a manifest may have {MANIFEST_BYTES_MAX} bytes at most"
        raise ValueError(message)
    try:
        value = json.loads(data)
    except RecursionError as exc:
        message = "nested too deeply"
        raise ValueError(message) from exc
    listed = value.get("files") if isinstance(value, dict) else None
    if not isinstance(listed, list) or not listed:
        message = 'expected {"files": [{"name": …, "bytes": …}, …]}'
        raise ValueError(message)
    files = tuple(_promise(item, at) for at, item in enumerate(listed))
    if len({file.name for file in files}) != len(files):
        message = "a manifest names a file twice"
        raise ValueError(message)
    return Manifest(path, files)


def _promise(item: object, at: int) -> Promise:
    fields = item if isinstance(item, dict) else {}
    name, size, digest = fields.get("name"), fields.get("bytes"), fields.get("sha256", "")
    if not isinstance(name, str) or not name or name == MANIFEST_NAME or "/" in name:
        message = f"files[{at}].name: expected the name of a file in this folder"
        raise ValueError(message)
    if type(size) is not int or size < 0:
        message = f"files[{at}].bytes: expected the file's size"
        raise ValueError(message)
    digest = digest.lower() if isinstance(digest, str) else "?"
    if digest and not _SHA256.fullmatch(digest):
        message = f"files[{at}].sha256: expected 64 hex digits"
        raise ValueError(message)
    return Promise(name, size, digest)
