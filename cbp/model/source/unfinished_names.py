"""Names of files that are still being written: the policy `unfinished` of a source.

A file whose name has one of these endings stays where it is until its producer renames it. A list
of the source replaces the endings of `UNFINISHED`:

    .part, .tmp, ~       many tools; editors keep a copy under `~`
    .partial             rclone (`a.csv.1a2b3c4d.partial`), pip
    .filepart            WinSCP
    ._COPYING_           hdfs dfs -put
    .crdownload          browsers
    .swp                 vim

A file with a hidden name (one that begins with `.`) is never taken in, whatever the source lists.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

UNFINISHED = (".part", ".partial", ".filepart", ".tmp", "._COPYING_", ".crdownload", ".swp", "~")

ENDINGS_MAX = 50
_CHARACTERS_MAX = 100


def is_unfinished(name: str, endings: Sequence[str] = UNFINISHED) -> bool:
    """Return whether a file's name marks it as hidden or incomplete."""
    return name.startswith(".") or name.endswith(tuple(endings))


def why_left_out(path: str, endings: Sequence[str] = UNFINISHED) -> str:
    """Return why a file with this path is not taken in; `""` if it is."""
    parts = path.split("/")
    if any(part.startswith((".", "_")) for part in parts):
        marks = "which marks unfinished data and marker files"
        return f"a part of its path begins with `.` or `_`, {marks}"
    if not parts[-1]:
        return "its name ends in `/`, like that of a folder"
    if is_unfinished(parts[-1], endings):
        return "its name has the ending of an incomplete file"
    return ""


def parse_endings(value: Any) -> tuple[str, ...]:
    """Read the list of a source, such as `[".part", ".wip"]`; if empty, only hidden names count.

    A `ValueError` says what is allowed.
    """
    if not isinstance(value, list | tuple) or not all(isinstance(one, str) for one in value):
        message = f'expected a list of name endings, such as [".part", "~"], not {value!r}'
        raise ValueError(message)
    if len(value) > ENDINGS_MAX:
        message = f"got {len(value)} name endings, but the limit is {ENDINGS_MAX}"
        raise ValueError(message)
    for one in value:
        if not 0 < len(one) <= _CHARACTERS_MAX or "/" in one or "\0" in one:
            has = f"an ending has 1 to {_CHARACTERS_MAX} characters, and no `/`"
            message = f"{one!r} is not a valid name ending: {has}"
            raise ValueError(message)
    return tuple(value)
