"""Errors about damaged or lost files: the file, its owner, and its repair.

    FileDamagedError             a file is not what was written
    |- FileLostError             a file is missing, though something refers to it
    '- IncrementDamagedError     an increment's file is missing, damaged or has other records

Guaranteed: the message names the file and the next step. `details` holds the dataflow, the table
and the stage, if the path names them. No error here is retryable: a run that meets one stops its
stage, since a disk that returned wrong data once will do so again, and no record is guessed.
Absent on purpose: how damage is found (`cbp.engine.read.scrub`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from cbp.errors.base import InvariantError
from cbp.errors.counts import format_count

_LOG_FOLDERS = ("_intentions", "_corrections", "_punctuations", "_description")
_AREAS = re.compile(
    r"/?(?P<dataflow>[^/_.][^/]*)/(?:"
    r"(?P<area>state|flows)/(?P<name>[A-Za-z_]\w*\.[A-Za-z_]\w*)(?P<below>/.*)?"
    r"|(?P<aside>set_aside)/(?P<by>[A-Za-z_]\w*)(?P<under>/.*)?"
    r"|(?P<source>sources)/(?P<of>[^/]+)(?P<part>/(?:_(?:log|objects)(?:/.*)?|\d[^/]*))?"
    rf"|(?P<log>{'|'.join(_LOG_FOLDERS)})(?:/(?P<rest>.*))?)$"
)
_PARTS = {"state", "flows", "set_aside", "sources", *_LOG_FOLDERS}
_NO_FILE = "the file does not exist"


@dataclass(frozen=True, slots=True)
class Place:
    """The owner of a path in a dataflow's folder; a field is `""` if there is none.

    Attributes:
        kind: `state`, `output`, `set aside`, `source`, `source log`, `source objects`,
            `table log`, `record`, `position`, `generation`, `correction`, `punctuation`,
            `description` or `priorities`.
        name: The table (`stage.state` or `stage.output`), the source or the stage.
        stage: The stage that owns it.
    """

    kind: str
    dataflow: str = ""
    name: str = ""
    stage: str = ""

    @property
    def next_step(self) -> str:
        """How to repair damage at this place, as a sentence; `cbp help damage` has details."""
        stage = f"{self.dataflow} {self.stage}".strip() or "DATAFLOW STAGE"
        dataflow = self.dataflow or "DATAFLOW"
        backup = "restore the file from a backup"
        again = f"{backup}, or recompute the state from retained input with `cbp backfill {stage}`"
        back = (
            f"{backup}, or run `cbp rollback {dataflow} --to POINT` with a point before the file "
            "was written: runs then write the file again"
        )
        from_files = (
            f"{backup}, or delete the dataflow with `cbp delete {dataflow} --purge`, register it "
            "again, and drop its files again"
        )
        steps = {
            "state": again,
            "record": again,
            "output": back,
            "set aside": back,
            "source": f"{backup}, or undo the increment with `cbp rollback {dataflow} --to POINT "
            "--drop-later`, and drop the original files from the folder `finished` again",
            "table log": from_files,
            "description": from_files,
            "generation": from_files,
            "source log": from_files,
            "source objects": f"{backup}, or remove the folder `_objects`: the service still knows "
            "the source's objects by their claims, and applies none of them twice",
            "priorities": (
                f"{backup}, or remove the file and set each priority again with `cbp priority "
                f"{dataflow} STAGE PRIORITY`"
            ),
            "position": (
                f"{backup}, or remove the file: the service then uses an older position or the "
                "database"
            ),
        }
        step = steps.get(self.kind, backup)
        return f"{step}. To look for more damage, run `cbp doctor`"


def place_of(path: str) -> Place:
    """Return the owner of a path; folders above the dataflow's can have any names."""
    match = _area_match(path)
    if match is None:
        return Place("")
    dataflow = match["dataflow"]
    if (area := match["area"]) is not None:
        name = match["name"]
        kind = "state" if area == "state" else "output"
        kind = "table log" if (match["below"] or "").startswith("/_delta_log/") else kind
        return Place(kind, dataflow, name, name.partition(".")[0])
    if (stage := match["by"]) is not None:
        is_log = (match["under"] or "").startswith("/_delta_log/")
        return Place("table log" if is_log else "set aside", dataflow, stage, stage)
    if match["of"] is not None:
        part = match["part"] or ""
        kinds = {"/_log": "source log", "/_objects": "source objects"}
        kind = next((kinds[one] for one in kinds if part.startswith(one)), "source")
        return Place(kind, dataflow, match["of"])
    kind, rest = match["log"].removeprefix("_").removesuffix("s"), match["rest"] or ""
    if kind == "description" and rest.startswith("priorities/"):
        return Place("priorities", dataflow)
    return _record_place(dataflow, rest) if kind == "intention" else Place(kind, dataflow)


def own_name(path: str) -> str:
    """Return a file's path relative to its dataflow's folder; `""` if it is in no such folder.

    A file that was written under one relative path, but is read under another, is the wrong file:
    an old copy, or a file of another table. A copy of a dataflow's entire folder keeps these paths.
    """
    folder, _, name = path.rpartition("/")
    if name.startswith(".") and name.endswith(".tmp"):
        path = f"{folder}/{name[1:-4]}"
    match = _area_match(path)
    return "" if match is None else path[match.end("dataflow") + 1 :]


def _area_match(path: str) -> re.Match[str] | None:
    """Return the last match in the path, since a folder above can also be named `state`."""
    parts = path.split("/")
    at = len(path)
    for dataflow, area in zip(reversed(parts[:-1]), reversed(parts[1:]), strict=True):
        at -= len(area) + 1
        if area in _PARTS and (area_match := _AREAS.match(path, max(0, at - len(dataflow) - 1))):
            return area_match
    return None


def _record_place(dataflow: str, rest: str) -> Place:
    """Return the owner of a path below `_intentions`."""
    first, *more = rest.split("/")
    if first == "_generations" and more:
        if len(more) == 1:
            return Place("generation", dataflow)
        first = more[1]
    if first == "_positions":
        return Place("position", dataflow)
    return Place("record", dataflow, first, first)


class FileDamagedError(InvariantError, code="file_damaged"):
    """A file's content differs from what was written."""

    def __init__(self, path: str, why: str) -> None:
        super().__init__(f"{path} is damaged: {why}. {_next(path)}", **_details(path, why))


class FileLostError(FileDamagedError, code="file_lost"):
    """A file is missing, although something still refers to it."""

    def __init__(self, path: str, why: str = _NO_FILE) -> None:
        because = "" if why == _NO_FILE else f": {why}"
        message = f"{path} is missing, but still needed{because}. {_next(path)}"
        InvariantError.__init__(self, message, **_details(path, why))


class IncrementDamagedError(FileDamagedError, code="increment_damaged"):
    """An increment's file is missing, damaged or has another number of rows."""

    def __init__(self, increment: str, *, expected: int, found: int | str) -> None:
        has = f"but has {found}" if isinstance(found, int) else f"but cannot be read: {found}"
        InvariantError.__init__(
            self,
            f"increment {increment} should have {format_count(expected, 'record')}, {has}. "
            f"{_next(increment)}",
            **_details(increment, str(found)),
            increment=increment,
            expected=expected,
            found=found,
        )


def _next(path: str) -> str:
    step = place_of(path).next_step
    return f"{step[0].upper()}{step[1:]}"


def _details(path: str, why: str) -> dict[str, str]:
    place = place_of(path)
    parts = {"dataflow": place.dataflow, "table": place.name, "stage": place.stage}
    kind = {"kind": place.kind} if place.kind else {}
    return {"path": path, "why": why, **kind, **{k: v for k, v in parts.items() if v}}
