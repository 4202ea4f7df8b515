"""A task of a record-wise stage (each record is a group): read, call the author, write.

Nothing is shuffled. The files of all inputs, in the order of declaration, are cut into
contiguous shares, one per task. The task's part of the output has the number of its share, so
the output has the order of the inputs, whatever the number of tasks.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count, repeat
from typing import Any

import pyarrow as pa

from cbp.engine.columnar.author_errors import author_error, not_deterministic
from cbp.engine.columnar.file_slices import InputShare, Share, records_read, share_of, windows
from cbp.engine.columnar.row_codec import ENCODE_ERRORS, decode_table, encode_rows, rows_maker
from cbp.engine.columnar.values import Row
from cbp.engine.interface.runs import RunPlan
from cbp.engine.kernel.author_call import Emitted, calling_loop, free_cycles, new_group
from cbp.engine.shuffle.multicast_bindings import Binding
from cbp.engine.storage.engine_limits import EngineLimits
from cbp.engine.task.set_aside_reports import SetAsideReports
from cbp.errors import AuthorCodeError, CbpError, is_authors
from cbp.model.author.read_once import read_freely
from cbp.model.dataflow.call_rules import refuse_returned
from cbp.model.dataflow.run_context import NO_RUN, RunContext
from cbp.model.dataflow.stage import InputSpec, TranslatorSpec


def shares(
    files: Sequence[InputShare], tasks_max: int, limits: EngineLimits
) -> list[list[InputShare]]:
    """Cut files, or slices of them, into contiguous shares of about equal size, one per task."""
    total = sum(file.share.stop - file.share.start for file in files)
    tasks = max(1, min(tasks_max, math.ceil(total / limits.rows_per_record_task)))
    size = math.ceil(total / tasks)
    cut: list[list[InputShare]] = [[] for _ in range(tasks)]
    done = 0
    for each in files:
        file = each.share
        start = file.start
        while start < file.stop:
            task = done // size
            stop = min(file.stop, start + (task + 1) * size - done)
            cut[task].append(InputShare(each.input, Share(file.path, file.rows, start, stop)))
            done += stop - start
            start = stop
    return [part for part in cut if part]


def record_shares(plan: RunPlan, tasks_max: int, limits: EngineLimits) -> list[list[InputShare]]:
    """Return the shares of a record-wise stage's inputs, one list per task."""
    files = [
        InputShare(input_.name, share_of(plan.folder, file))
        for input_ in plan.node.translator.inputs
        for increment in plan.inputs.get(input_.name, ())
        for file in increment.files
    ]
    return shares(files, tasks_max, limits)


def _place_of(files: Sequence[Share], path: str, row: int) -> int:
    """Return the place of a row of a file among the records of an input."""
    place = 0
    for file in files:
        if file.path == path and file.start <= row < file.stop:
            return place + row - file.start
        place += file.stop - file.start
    return place


@dataclass
class RecordRun:
    """Calls a translator once per record, in order: each record is a group of its own.

    Attributes:
        write_output: Takes an output's name and the columns of records, a window at a time.
        write_remote: Takes a state's name and the columns of records, all for other groups.
        files: Maps each input to its files, in order.
        set_aside: Takes the records on which the author's code fails; `None` if the run fails then.
        records: Maps each input to the number of its records read so far.
    """

    stage: str
    spec: TranslatorSpec
    emitted: Emitted
    write_output: Callable[[str, list[pa.Array]], None]
    write_remote: Callable[[str, list[pa.Array]], None] | None = None
    write_bindings: Callable[[list[Binding]], None] | None = None
    limits: EngineLimits = field(kw_only=True)
    context: RunContext = field(default=NO_RUN, kw_only=True)
    files: Mapping[str, Sequence[Share]] = field(default_factory=dict, kw_only=True)
    set_aside: SetAsideReports | None = field(default=None, kw_only=True)
    records: Counter[str] = field(init=False, default_factory=Counter)

    def run(self, work: Iterable[InputShare]) -> None:
        """Call the author for every record of the given files, in order."""
        for each in work:
            input_, row = self.spec.input(each.input), each.share.start
            for window in windows(each.share, input_, self.limits.window_rows):
                place = _place_of(self.files.get(input_.name, ()), each.share.path, row)
                self._work(input_, window, place)
                row += window.num_rows

    def take(self, table: pa.Table) -> None:
        """Call the author for every row of a flow, in order; the stage has a single input."""
        (input_,) = self.spec.inputs
        table = records_read(table, input_)
        most = self.limits.window_rows
        for start in range(0, table.num_rows, most):
            self._work(input_, table.slice(start, most))

    def _work(self, input_: InputSpec, window: pa.Table, place: int = 0) -> None:
        """Call the author for records of an input; `place` is the position of the first one."""
        self.records[input_.name] += window.num_rows
        try:
            self._run(input_, window)
        except AuthorCodeError as error:
            if self.set_aside is None:
                error.places = {name: place + row for name, row in error.places.items()}
                raise
            self.emitted.clear()
            self._run(input_, self._without_failing(self.set_aside, input_, window, place))
        free_cycles()

    def _run(self, input_: InputSpec, window: pa.Table) -> None:
        self._call(input_, window, self.emitted.out)
        try:
            self._write()
        except ENCODE_ERRORS as exc:
            raise self._explain(input_, window, exc) from exc

    def _without_failing(
        self, aside: SetAsideReports, input_: InputSpec, window: pa.Table, place: int
    ) -> pa.Table:
        def call(some: pa.Table) -> None:
            self._call(input_, some, Emitted(self.spec, checked=True).out)

        others, failing = aside.without_failing(window, call)
        for row, error in failing:
            aside.add_record(input_, window.slice(row, 1), place + row, error)
        return others

    def _call(self, input_: InputSpec, window: pa.Table, out: Any) -> None:
        translate, done, rows = self.spec.translate, count(), _rows(input_, window)
        try:
            if self.spec.takes_record:
                for row, _ in zip(rows, done, strict=False):
                    given = translate(row, out)
                    if given is not None:
                        refuse_returned(given)
            else:
                watched = read_freely(translate, (input_.name,))
                loop = calling_loop((input_.name,), (), watched)
                values = [zip(rows, strict=True)]
                loop(repeat(None), values, done, translate, self._group(), out, (), ())
        except BaseException as exc:
            if not is_authors(exc):
                raise
            # Read the record again: the author may have changed the object that was passed.
            at = next(done) - 1
            inputs = {input_.name: _rows(input_, window.slice(at, 1))}
            places, stage = {input_.name: at}, self.stage
            raise author_error(exc, self.spec, stage=stage, inputs=inputs, places=places) from exc

    def _group(self) -> Any:
        spec = self.spec
        inputs = (*spec.inputs, *spec.absent)
        names = (*(each.name for each in inputs), *(state.name for state in spec.states))
        group = new_group(names, spec, self.context)
        for name in names:
            setattr(group, name, iter(()))
        return group

    def _write(self) -> None:
        """Write all emissions, or none if some do not fit."""
        emitted = [*self.emitted.buffers.items(), *self.emitted.remote.items()]
        encoded = [
            (name, encode_rows(rows, self.emitted.schemas[name])) for name, rows in emitted if rows
        ]
        states = {state.name for state in self.spec.states}
        for name, columns in encoded:
            write = self.write_remote if name in states else self.write_output
            assert write is not None, "a stage with states needs write_remote"
            write(name, columns)
        if self.emitted.bindings:
            assert self.write_bindings is not None, "a stage with addresses needs write_bindings"
            self.write_bindings(self.emitted.bindings)
        self.emitted.clear()

    def _explain(self, input_: InputSpec, window: pa.Table, exc: Exception) -> Exception:
        """Call the author for the window again to find the record whose emission does not fit."""
        try:
            self._call(input_, window, Emitted(self.spec, checked=True).out)
        except CbpError as again:
            return again
        return not_deterministic(self.stage, self.spec, exc)


def _rows(input_: InputSpec, window: pa.Table) -> list[Row]:
    return rows_maker(input_.name, input_.schema.names)(decode_table(window, input_.schema))
