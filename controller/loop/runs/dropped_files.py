"""Dropped files: finds the file and the line from which a record of a run comes.

The store keeps the names of an increment's files, and on which lines their records begin. For an
increment of very many files, it keeps only the first names.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from cbp.engine.interface.runs import NO_ORIGINS, Dropped, Origins
from cbp.engine.storage.file_names import file_part
from cbp.errors import NotFoundError
from cbp.errors.counts import format_count
from cbp.model.flow.increment import Increment
from controller.loop.records.compiled_dataflows import Catalog
from controller.store.base import RunRecord, Store

_SHOWN_MAX = 3


@dataclass(frozen=True, slots=True)
class DroppedFiles:
    """Finds dropped files in the store; safe to use from several threads."""

    store: Store
    catalog: Catalog

    def origins(self, dataflow: str, increments: Iterable[Increment]) -> Origins:
        """Return the files and lines from which records of sources come."""
        of_sources = {(one.flow, one.index): one for one in increments if "." not in one.flow}
        if not of_sources:
            return NO_ORIGINS
        known = self.store.origins(dataflow, set(of_sources))
        before: dict[str, int] = {}
        for key, one in of_sources.items():
            parts = [file_part(file.path) for file in one.files]
            if parts == list(range(len(parts))):
                before |= _before(one)
            elif (whole := self._whole(dataflow, one)) is not None:
                of_sources[key] = whole  # a frame has only some files of it
                before |= _before(whole)
        files = {key: _files(one, of_sources[key].records) for key, one in known.items()}
        return Origins(files, before)

    def _whole(self, dataflow: str, part: Increment) -> Increment | None:
        try:
            return self.store.increment(dataflow, part.flow, part.index).increment
        except NotFoundError:
            return None

    def words(self, run: RunRecord, details: Mapping[str, Any]) -> str:
        """Return the origin of the records on which a run failed, in words; `""` if unknown."""
        if _of_sources(details):
            return self.words_of(run.dataflow, details)
        keys = set(self._read(run))
        known = self.store.origins(run.dataflow, keys) if keys else {}
        return _named({name for one in known.values() for name in one.get("files", ())})

    def words_of(self, dataflow: str, details: Mapping[str, Any]) -> str:
        """Return the origin of the `records` of an error, in words; `""` if unknown."""
        records = _of_sources(details)
        keys = {(one["flow"], one["increment"]) for one in records}
        known = self.store.origins(dataflow, keys) if keys else {}
        places = []
        for one in records:
            key = one["flow"], one["increment"]
            files = _files(known.get(key, {}), one["record"] + 1)
            place = Origins({key: files}).place(Increment(*key, key[1]), one["record"])
            line = "" if place["line"] is None else f", line {place['line']}"
            places += [f"{place['file']}{line}"] if place["file"] else []
        return f"the record is from {' and '.join(places)}" if places else ""

    def _read(self, run: RunRecord) -> Iterator[tuple[str, int]]:
        """Yield the source increments that a run read, except at framed inputs.

        These are left out since the number of a frame is not that of an increment.
        """
        _, node = self.catalog.stage(run.dataflow, run.stage)
        for input_ in node.translator.inputs:
            flow = node.wiring[input_.name]
            if input_.frame_by is None and "." not in flow:
                yield from ((flow, index) for index in run.read.get(input_.name, ()))


def _before(increment: Increment) -> Iterator[tuple[str, int]]:
    """Yield each data file of an increment, and the number of records in the files before it."""
    records = 0
    for file in increment.files:
        yield file.path, records
        records += file.records


def _of_sources(details: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [one for one in details.get("records", {}).values() if "." not in one["flow"]]


def _named(names: set[str]) -> str:
    if not names:
        return ""
    shown, more = sorted(names)[:_SHOWN_MAX], len(names) - _SHOWN_MAX
    others = f" and {format_count(more, 'more file')}" if more > 0 else ""
    return f"the run reads {', '.join(shown)}{others}"


def _files(origin: Mapping[str, Any], records: int) -> tuple[Dropped, ...]:
    """Return, in order, the files of an increment whose record counts are known."""
    names, lines = [str(name) for name in origin.get("files", ())], origin.get("lines", ())
    if len(names) == 1 and origin.get("file_count", 1) == 1:
        return (Dropped(names[0], records, _pairs(lines)),)
    counts = origin.get("file_records", ())
    every = [*lines, *([()] * (len(names) - len(lines)))]
    return tuple(
        Dropped(name, count, _pairs(of_file))
        for name, count, of_file in zip(names, counts, every, strict=False)
    )


def _pairs(lines: Any) -> tuple[tuple[int, int], ...]:
    return tuple((int(record), int(line)) for record, line in lines)
