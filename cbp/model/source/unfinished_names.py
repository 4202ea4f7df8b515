"""Names under which tools write a file that is not whole yet: the policy `unfinished` of a source.

A file whose name ends so stays where it is until its producer renames it. The names of `UNFINISHED`
count unless a source gives its own list, which then takes their place:

    .part, .tmp, ~       many tools; editors keep a copy under `~`
    .partial             rclone (`a.csv.1a2b3c4d.partial`), pip
    .filepart            WinSCP
    ._COPYING_           hdfs dfs -put
    .crdownload          browsers
    .swp                 vim

A hidden name (one that begins with `.`) is never taken, whatever a source says.
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
        return f"a part of its name begins with `.` or `_`, {marks}"
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
