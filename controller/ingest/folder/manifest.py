"""Reads `_MANIFEST.json`, a producer's statement that a set of files is complete.

    {"files": [{"name": "a.jsonl", "bytes": 120, "sha256": "…"}, {"name": "b.jsonl", "bytes": 7}]}

Files that a manifest names wait until all of them are there with their sizes. They then become one
increment, in the manifest's order, or none. `sha256` is optional and checked when given. A complete
manifest is sealed (renamed to a hidden name) before the first of its files is claimed, and moved
away when all of them are settled. So a crash in between loses neither the set, nor its order, nor
its checksums. Names are only compared with names in the listing; none is ever joined to a path.
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from cbp.model.source.unfinished_names import UNFINISHED, is_unfinished
from controller.ingest.folder.source_place import evidence
from controller.ingest.formats.file_bytes import read_regular
from controller.ingest.rejection import FileRejectedError
from controller.value_conversion import excerpt

MANIFEST_NAME = "_MANIFEST.json"
MANIFEST_BYTES_MAX = 16 << 20
NAME_BYTES_MAX = 255
"""Longest name in a folder, on every file system in use."""

_NAMES_SHOWN_MAX = 20
_NAMES_BYTES_MAX = 1 << 16
_NAMED = re.compile(r'"name"\s{0,9}:\s{0,9}("(?:[^"\\]|\\.){1,255}")')
_SEALED = re.compile(r"\.manifest-[a-z0-9]+\.json")
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Promise:
    """One file of a manifest; `sha256` is `""` if the producer gave none."""

    name: str
    bytes: int
    sha256: str = ""


@dataclass(frozen=True, slots=True)
class Manifest:
    """The files that a producer announced, in order."""

    path: Path
    files: tuple[Promise, ...]

    def complete(self, sizes: Mapping[str, int]) -> bool:
        """Return whether a listing (name to size) has every file with its size."""
        return all(sizes.get(file.name) == file.bytes for file in self.files)

    @property
    def promises(self) -> dict[str, Promise]:
        """The files in order, by their names as evidence."""
        return {evidence(file.name): file for file in self.files}


def sealed_name(identity: str) -> str:
    """Return the hidden name of a sealed manifest."""
    return f".manifest-{identity}.json"


def is_sealed(name: str) -> bool:
    """Return whether a name in `incoming` belongs to a sealed manifest."""
    return bool(_SEALED.fullmatch(name))


def read_manifest(path: Path, unfinished: Sequence[str] = UNFINISHED) -> Manifest:
    """Read a manifest, which cannot announce files with the endings `unfinished`.

    Raises `FileRejectedError` as `manifest_mismatch`, naming the files that the manifest seems to
    name, or as `read_regular`.
    """
    advice = "; announce fewer files in each manifest"
    data = read_regular(path, bytes_max=MANIFEST_BYTES_MAX, advice=advice)
    try:
        return _parsed(path, data, unfinished)
    except (ValueError, RecursionError) as exc:
        cause = "nested too deeply" if isinstance(exc, RecursionError) else str(exc)
        message = f"not a manifest: {cause}{_named_files(data)}"
        raise FileRejectedError("manifest_mismatch", message, cause=cause) from exc


def _parsed(path: Path, data: bytes, unfinished: Sequence[str]) -> Manifest:
    value = json.loads(data)
    listed = value.get("files") if isinstance(value, dict) else None
    if not isinstance(listed, list) or not listed:
        message = 'expected {"files": [{"name": …, "bytes": …}, …]}'
        raise ValueError(message)
    files = tuple(_promise(item, at, unfinished) for at, item in enumerate(listed))
    name, times = Counter(file.name for file in files).most_common(1)[0]
    if times > 1:
        message = f"the file {excerpt(name)} is named {times} times"
        raise ValueError(message)
    return Manifest(path, files)


def _named_files(data: bytes) -> str:
    text = data[:_NAMES_BYTES_MAX].decode(errors="replace")
    names = [excerpt(match[1]) for match in islice(_NAMED.finditer(text), _NAMES_SHOWN_MAX)]
    if not names:
        return ""
    return (
        f". The manifest seems to name {', '.join(names)}: these files are taken in one by one "
        "once they stop changing, without the order and the checksums of the manifest"
    )


def _promise(item: object, at: int, unfinished: Sequence[str]) -> Promise:
    fields = item if isinstance(item, dict) else {}
    name, size, digest = fields.get("name"), fields.get("bytes"), fields.get("sha256", "")
    if not isinstance(name, str) or not _may_be_listed(name, unfinished):
        got = excerpt(name)
        message = f"files[{at}].name: expected the name of a file in this folder, got {got}"
        raise ValueError(message)
    if type(size) is not int or size < 0:
        message = f"files[{at}].bytes: expected the file's size, got {excerpt(size)}"
        raise ValueError(message)
    digest = digest.lower() if isinstance(digest, str) else "?"
    if digest and not _SHA256.fullmatch(digest):
        message = f"files[{at}].sha256: expected 64 hex digits"
        raise ValueError(message)
    return Promise(name, size, digest)


def _may_be_listed(name: str, unfinished: Sequence[str]) -> bool:
    """Return whether a listing can ever have a file of this name; if not, none is taken in."""
    if not name or name == MANIFEST_NAME or "/" in name or "\0" in name:
        return False
    if is_unfinished(name, unfinished):
        return False
    try:
        return len(os.fsencode(name)) <= NAME_BYTES_MAX
    except UnicodeEncodeError:
        return False
