"""Records that a run sets aside: the groups that it leaves out, and the changes of the table.

    groups whose records wait -> left out from the start -.
    groups that fail          -> the job is repeated    --+-> their new records -> the table

If groups fail, the results of the job are discarded. It is repeated without these groups, under
another name, until none fails. Tasks find all groups that fail, so one repetition is the rule.

The table is small (`SET_ASIDE_MAX`), and is read completely at the start of every run of its stage.
A run adds a file. A run that gives back drops all files, and adds one with what failed again. Both
are changes of the run's record, so the table is published, rolled back and redone like states.

Invariant: at any epoch, the table has exactly the records of the stage's input that no call has
seen, in the order in which they came (tests/cbp/engine/test_set_aside.py).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from cbp.engine.columnar.arrow_types import arrow_schema
from cbp.engine.columnar.file_slices import share_of, windows
from cbp.engine.columnar.json_records import read_record, record_text
from cbp.engine.columnar.row_codec import decode_columns, encode_rows
from cbp.engine.commit.table_entries import live_adds
from cbp.engine.delta.actions import AddFile
from cbp.engine.interface.runs import RunPlan
from cbp.engine.run.framing import brought_by
from cbp.engine.run.table_cache import OpenTables
from cbp.engine.storage.checked_parquet import open_parquet, parquet_file
from cbp.engine.storage.file_names import flow_file
from cbp.engine.storage.files import Files
from cbp.engine.storage.table_names import set_aside_table
from cbp.engine.task.reports import Failed, GroupFailed, SetAside
from cbp.engine.task.task_plan import LeftOut
from cbp.errors import SetAsideFullError
from cbp.model.dataflow.set_aside import BEHIND_CODE, SET_ASIDE
from cbp.model.flow.increment import DataFile, Increment
from cbp.model.run.intention import TableChange

GIVEN_BACK = "_given_back"
"""The folder of records that are given back, while a run reads them."""

_WINDOW_ROWS = 1_000
_FILES_MAX = 16
"""If the table has this many files, a run merges them into its own file."""

Record = dict[str, Any]
"""A record of the table, by column (`SET_ASIDE`)."""


def read_set_aside(path: str, live: Iterable[AddFile]) -> list[Record]:
    """Return the records in the live files of a table, in the order of their arrival."""
    records: list[Record] = []
    for file in live:
        with open_parquet(f"{path}/{file.path}") as opened:
            records += opened.read().to_pylist()
    return sorted(records, key=lambda record: (record["epoch"], record["number"]))


def refused_records(plan: RunPlan) -> Iterator[SetAside]:
    """Yield a run's records without a framing key, up to one beyond the limit of the stage."""
    left = (plan.node.set_aside_max or 0) + 1
    for input_ in plan.node.translator.framed:
        types = [column.type for column in input_.schema.fields]
        details = {"stage": plan.node.name, "function": f"{input_.name}.frame_by"}
        details["place"] = input_.frame_by.place if input_.frame_by is not None else ""
        place = 0
        for file in (file for one in plan.inputs.get(input_.name, ()) for file in one.files):
            if file.refused is not None and left > 0:
                code, message = file.refused
                error = Failed("AuthorCodeError", message, {**details, "code": code})
                at = place
                for table in windows(share_of(plan.folder, file), input_, _WINDOW_ROWS):
                    for row in decode_columns(table, input_.schema.names, types):
                        text = record_text(row, input_.schema)
                        yield SetAside(input_.name, at, None, text, error)
                        at, left = at + 1, left - 1
            place += file.rows


@dataclass(frozen=True, slots=True)
class SetAsideTable:
    """The set-aside records of a stage at the start of a run, in the order of arrival."""

    path: str
    live: tuple[AddFile, ...]
    records: tuple[Record, ...]

    @classmethod
    def of(cls, plan: RunPlan, tables: OpenTables) -> SetAsideTable:
        """Read the table of the stage that leads a run."""
        name = set_aside_table(plan.node.name)
        path = f"{plan.folder}/{name}"
        live = live_adds(tables.table(path).snapshot, name, plan.unpublished)
        return cls(path, tuple(live), tuple(read_set_aside(path, live)))

    def given_back(self, plan: RunPlan, files: Files) -> dict[str, tuple[Increment, ...]]:
        """Write the records as increments of the stage's inputs, in their order; durable.

        `TypeError`, `ValueError` or `ArithmeticError` if a record no longer fits its input. Files
        that a killed run of the stage left are removed.
        """
        names = [input_.name for input_ in plan.node.translator.inputs]
        if gone := [one["input"] for one in self.records if one["input"] not in (None, *names)]:
            message = (
                f"records of the input {gone[0]!r} are set aside, but the stage no longer has this "
                "input: register a version that has it"
            )
            raise ValueError(message)
        # All are read before any is written, since the caller leaves a failed call's files.
        rows_by_input = [
            [
                read_record(one["record"], input_.schema)
                for one in self.records
                if one["input"] == input_.name
            ]
            for input_ in plan.node.translator.inputs
        ]
        folder = f"{GIVEN_BACK}/{plan.node.name}"
        for left in files.list_files(f"{plan.folder}/{folder}"):
            files.remove(f"{plan.folder}/{folder}/{left.path}")
        increments: dict[str, tuple[Increment, ...]] = dict.fromkeys(names, ())
        for input_, rows in zip(plan.node.translator.inputs, rows_by_input, strict=True):
            if not rows:
                continue
            name = flow_file(plan.epoch, 0, f"{plan.run}-{input_.name}")
            path = f"{folder}/{name}"
            data = _encoded(rows, input_.schema, f"{plan.folder}/{path}")
            files.write_durable(f"{plan.folder}/{path}", data, what="given_back")
            file = DataFile(path, len(rows), len(data))
            flow = plan.node.wiring[input_.name]
            increments[input_.name] = (Increment(flow, plan.epoch, plan.epoch, (file,)),)
        return increments


@dataclass
class SettingAside:
    """The records that one run sets aside.

    Attributes:
        gives_back: Whether the run reads the records of the table instead of new ones.
        refused: Records without a framing key, which no task reads.
        again: Called when the job is repeated without the groups that failed.
        failed: Maps the key of each group that failed in this run to its error.
    """

    plan: RunPlan
    table: SetAsideTable
    gives_back: bool = False
    refused: tuple[SetAside, ...] = ()
    again: Callable[[], object] = field(default=lambda: None)
    failed: dict[str, Failed] = field(default_factory=dict)
    _read: dict[str, list[tuple[int, int]]] = field(init=False, default_factory=dict)

    @property
    def left_out(self) -> LeftOut:
        """The groups that the next attempt of the job leaves out."""
        waiting = () if self.gives_back else (one["key"] for one in self.table.records)
        keys = dict.fromkeys(key for key in (*waiting, *self.failed) if key is not None)
        # All records that are given back can fail again, even if a version lowered the limit.
        most = max(self._most, len(self.table.records)) if self.gives_back else self._most
        return LeftOut(tuple(keys), most)

    @property
    def _most(self) -> int:
        most = self.plan.node.set_aside_max
        assert most is not None, "the stage does not set records aside"
        return most

    def leave_out(self, groups: Sequence[GroupFailed]) -> None:
        """Leave out groups that failed."""
        self.failed.update((one.key, one.error) for one in groups)
        self._require_room(len(self.failed))
        self.again()

    def change(
        self, reports: Sequence[SetAside], *, files: Files, now_ms: int
    ) -> tuple[TableChange | None, dict[str, float]]:
        """Return the change of the table (its file is durable), and figures.

        `SetAsideFullError` if there are more records than can be set aside.
        """
        reports = [replace(one, sequence=self._place(one)) for one in reports]
        names = [input_.name for input_ in self.plan.node.translator.inputs]
        ordered = sorted(
            [*self.refused, *reports], key=lambda one: (names.index(one.input), one.sequence)
        )
        again = self._given_again(ordered) if self.gives_back else []
        new = [*again, *self._new([] if self.gives_back else ordered, again, now_ms)]
        before = () if self.gives_back else self.table.records
        self._require_room(len(before) + len(new), ordered)
        figures = {"set_aside": float(len(new)), "set_aside_now": float(len(before) + len(new))}
        if self.gives_back:
            figures["given_back"] = float(len(self.table.records) - len(again))
        if not new and not (self.gives_back and self.table.live):
            return None, figures
        drops: tuple[str, ...] = ()
        if self.gives_back or len(self.table.live) >= _FILES_MAX:
            drops, new = tuple(file.path for file in self.table.live), [*before, *new]
        adds = [self._write(new, files, now_ms)] if new else []
        name = set_aside_table(self.plan.node.name)
        return TableChange(name, tuple(add.to_json() for add in adds), drops), figures

    def _new(
        self, reports: Sequence[SetAside], again: Sequence[Record], now_ms: int
    ) -> list[Record]:
        """Return rows of new records, and of calls without a record, by timers, that failed."""
        at = datetime.fromtimestamp(now_ms / 1000, UTC)
        records: list[Record] = []
        for one in reports:
            values = {"input": one.input, "key": one.key, "record": one.record}
            records.append({**values, **self._error_of(one.key, one.error), **self._origin(one)})
        with_rows = {one["key"] for one in (*records, *again)}
        records += [
            {"input": None, "key": key, "record": None, **self._error_of(key), **_NO_ORIGIN}
            for key in sorted(self.failed.keys() - with_rows)
        ]
        return [
            {"epoch": self.plan.epoch, "number": number, "set_aside_at": at, **record}
            for number, record in enumerate(records)
        ]

    def _given_again(self, reports: Sequence[SetAside]) -> list[Record]:
        """Return the rows that failed again, with errors; they may have a group by now."""
        of_input: dict[str, list[Record]] = {}
        for record in self.table.records:
            of_input.setdefault(record["input"], []).append(record)
        again = []
        for one in reports:
            record = {**of_input[one.input][one.sequence], "key": one.key}
            again.append(record | self._error_of(one.key, one.error))
        without_record = self.failed.keys() - {one.key for one in reports}
        calls = [one for one in self.table.records if one["input"] is None]
        again += [one | self._error_of(one["key"]) for one in calls if one["key"] in without_record]
        return sorted(again, key=lambda record: (record["epoch"], record["number"]))

    def _error_of(self, key: str | None, own: Failed | None = None) -> dict[str, str]:
        error = own or (None if key is None else self.failed.get(key))
        if error is None:
            message = (
                "earlier records of its group are set aside, so this record is given back after "
                "them"
            )
            return {"code": BEHIND_CODE, "message": message}
        code = error.details.get("code") or error.error().code
        return {"code": code, "message": error.message}

    def _place(self, one: SetAside) -> int:
        """Return a record's place in its input, counting also records that no task read."""
        if one.input not in self._read:
            files = [f for i in self.plan.inputs.get(one.input, ()) for f in i.files]
            whole, read = 0, 0
            places: list[tuple[int, int]] = []
            for file in files:
                if file.refused is None:
                    places.append((read, whole))
                    read += file.rows
                whole += file.rows
            self._read[one.input] = places
        places = self._read[one.input]
        at = bisect_right(places, one.sequence, key=lambda pair: pair[0]) - 1
        if at < 0:
            return one.sequence
        read, whole = places[at]
        return whole + one.sequence - read

    def _origin(self, one: SetAside) -> dict[str, Any]:
        where = brought_by(self.plan, one.input, one.sequence)
        if where is None:
            return dict(_NO_ORIGIN)
        return {"increment": where[0].index, **self.plan.origins.place(*where)}

    def _require_room(self, records: int, reports: Sequence[SetAside] = ()) -> None:
        if records <= self._most or self.gives_back:
            return
        spec = self.plan.node.translator
        errors = [*self.failed.values(), *(one.error for one in reports if one.error)]
        first = min(errors, key=lambda error: error.message, default=None)
        details: Mapping[str, Any] = {} if first is None else first.details
        cause = f"there are more records to set aside than set_aside_max allows ({self._most})"
        if first is None:
            cause += (
                ", because earlier records of their groups are set aside: fix the code, then give "
                "the earlier records back"
            )
        else:
            cause += f". One of the errors: {details.get('cause', first.message)}"
        raise SetAsideFullError(
            stage=self.plan.node.name,
            function=str(details.get("function", f"{spec.name}.translate")),
            place=str(details.get("place", spec.place)),
            cause=cause,
            **{name: details[name] for name in ("key", "inputs") if name in details},
        )

    def _write(self, records: Sequence[Record], files: Files, now_ms: int) -> AddFile:
        path = f"_runs/{flow_file(self.plan.epoch, 0, self.plan.run)}"
        rows = [tuple(record[name] for name in SET_ASIDE.names) for record in records]
        data = _encoded(rows, SET_ASIDE, f"{self.table.path}/{path}")
        files.write_durable(f"{self.table.path}/{path}", data, what="set_aside")
        return AddFile(path, {}, len(data), len(rows), now_ms)


_NO_ORIGIN = {"increment": None, "file": None, "line": None}


def _encoded(rows: Sequence[tuple[Any, ...]], schema: Any, path: str) -> bytes:
    return parquet_file(pa.table(encode_rows(rows, schema), schema=arrow_schema(schema)), path)
