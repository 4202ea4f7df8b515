"""Which objects below a location are data, and what their files are called.

    orders/2026/a.jsonl             data; its file is called `2026/a.jsonl`
    orders/, orders/2026_$folder$   empty: a mark for a folder, passed over
    orders/_SUCCESS, orders/.x      left out, and shown: what jobs write beside their data
    orders/_temporary/0/a.jsonl     left out: it is renamed when it is whole
    orders/a.jsonl.part             left out, as in a drop folder

A name is evidence and part of the identity of a file, and never becomes a path. It is short enough
to fit into the name of a claimed copy, which alone has it while the database is lost. So a longer
one is cut, and begins with a digest of the key.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from cbp.model.dataflow.unfinished_names import UNFINISHED, is_unfinished
from controller.ingest.folder.source_place import evidence, name_fits_copy
from controller.ingest.folder.stored_object import StoredObject

__all__ = ["file_name", "is_folder_mark", "why_left_out"]

_MARK = "_$folder$"
_DIGEST_CHARACTERS = 32
_KEPT_CHARACTERS = 200


def is_folder_mark(one: StoredObject) -> bool:
    """Return whether an object only says that there is a folder, as tools leave them."""
    return not one.size and one.key.endswith(("/", _MARK))


def why_left_out(name: str, unfinished: Sequence[str] = UNFINISHED) -> str:
    """Return why an object is not taken in, by its key behind the location; `""` if it is."""
    parts = name.split("/")
    if any(part.startswith((".", "_")) for part in parts):
        return "a part of its name begins with `.` or `_`, as that of unfinished data and of marks"
    if not parts[-1]:
        return "its name ends in `/`, as that of a folder"
    if is_unfinished(parts[-1], unfinished):
        return "its name says that it is not whole yet"
    return ""


def file_name(name: str) -> str:
    """Return the name of an object's file; names that differ give names that differ."""
    shown = evidence(name)
    if name_fits_copy(shown):
        return shown
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGEST_CHARACTERS]
    rest = shown[-_KEPT_CHARACTERS:]
    while not name_fits_copy(made := f"{digest}~{rest}"):
        rest = rest[1:]
    return made
