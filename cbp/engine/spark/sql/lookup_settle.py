"""Look-up and settle tasks around a Spark plan: they read state for it and write its results.

    called keys -> LookUpTask -> state records of the called groups -> the author's plan
    called groups, results by flow -> SettleTask -> state settled, outputs written

Both find the groups from the keys of all inputs; the other columns of the inputs stay in the JVM.
The plan's results for a state are settled by the same code as the emissions of a vectorised
translator, and written to the same files.

In a plan of one task, the task reads its records once (`own`) and finds the called groups once
(`called`); later readers use its scratch files. If Spark shuffles, both tasks get the keys by the
shuffle.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cbp.engine.columnar.arrow_types import arrow_schema
from cbp.engine.columnar.author_errors import author_error
from cbp.engine.columnar.groups import FlowRun, Int64s
from cbp.engine.kernel.arrow.emission import Emission
from cbp.engine.kernel.arrow.groups import author_schema
from cbp.engine.kernel.arrow.reader import Call, read_calls
from cbp.engine.kernel.arrow.run import VectorisedRun
from cbp.engine.kernel.arrow.type_check import narrow_batches
from cbp.engine.kernel.groupwise import BucketRun
from cbp.engine.shuffle.broadcast import Shared
from cbp.engine.shuffle.delivery import Deliveries
from cbp.engine.shuffle.layout import shuffle_layout
from cbp.engine.shuffle.spool import Spool
from cbp.engine.spark.sql.called_groups import Called, CallsFile, read_called
from cbp.engine.spark.sql.task_input import OwnRecords
from cbp.engine.state.bucket_state import BucketState
from cbp.engine.task.plan import TaskPlan
from cbp.engine.task.stage_task import StageTask
from cbp.model.dataflow.stage import InputSpec, TranslatorSpec

__all__ = ["LookUpTask", "SettleTask", "with_called_keys", "with_results"]


def with_called_keys(task: TaskPlan) -> TaskPlan:
    """Return the plan with every input reduced to its key columns."""
    inputs = tuple(_keys_of(spec) for spec in task.spec.inputs)
    return _laid_out(task, replace(task.spec, inputs=inputs))


def with_results(task: TaskPlan, results: Iterable[str], *, keys: bool) -> TaskPlan:
    """Return the plan whose flows are the results for states and outputs.

    Args:
        task: The stage's plan.
        results: Names of states and outputs, in the order of the flows.
        keys: Whether the key columns of every input are flows too, before the results.
    """
    spec = task.spec
    flows = {
        s.name: InputSpec(_result(s.name), s.schema, spec.key_of(s).names) for s in spec.states
    }
    flows |= {o.name: InputSpec(_result(o.name), o.schema, ()) for o in spec.outputs}
    arriving = (*(map(_keys_of, spec.inputs) if keys else ()), *(flows[name] for name in results))
    return _laid_out(task, replace(spec, inputs=arriving))


def _laid_out(task: TaskPlan, spec: TranslatorSpec) -> TaskPlan:
    return replace(task, spec=spec, layout=shuffle_layout(spec))


def _keys_of(spec: InputSpec) -> InputSpec:
    assert isinstance(spec.route_by, tuple), "routed by columns"
    # One column may occur several times in the key.
    columns = tuple(dict.fromkeys(spec.route_by))
    return InputSpec(spec.name, spec.schema.select(columns), spec.route_by)


def _result(flow: str) -> str:
    """Name the flow of a result; no author's name begins with an underscore."""
    return f"_{flow}"


@dataclass
class LookUpTask(StageTask):
    """Finds the state records of called groups; its plan is `with_called_keys`.

    Attributes:
        own: The records of a plan of one task; `None`: keys arrive by the shuffle.
    """

    own: OwnRecords | None = None

    @classmethod
    def of(cls, own: OwnRecords, attempt: str) -> LookUpTask:
        """Return the look-up task for the records of a plan of one task."""
        return cls(with_called_keys(own.plan), own.part, attempt, own)

    def records(self, state: str, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the records of one state that belong to the groups whose keys arrived."""
        yield from self._narrowed(state, (call for _, call in self._calls(batches)))

    def own_records(self, state: str) -> Iterator[pa.RecordBatch]:
        """Yield the records of one state that belong to the groups of this part's keys."""
        found = self._found()
        calls = self._noted() if found is None else _in_order(found)
        yield from self._narrowed(state, calls)

    def called(self) -> Called:
        """Return the called groups of this part's keys."""
        found = self._found()
        if found is None:
            for _ in self._noted():
                pass
            found = self._found()
        return found or self._kept()

    def forget(self) -> None:
        """Remove the task's scratch files."""
        assert self.own is not None, "a plan of one task"
        self.own.forget()

    @property
    def _path(self) -> Path:
        assert self.own is not None, "a plan of one task"
        return self.own.scratch("called")

    def _arranged(self) -> Iterator[pa.RecordBatch]:
        return super()._arranged() if self.own is None else self.own.keys()

    def _kept(self) -> Called:
        """Look up once more, into memory: the file could not be written, or a twin removed it."""
        self.counts.update(dict.fromkeys(self.counts, 0))
        calls: dict[tuple[int, ...], list[Call]] = {}
        for buckets, call in self._calls(self._arranged()):
            calls.setdefault(buckets, []).append(call)
        return Called(calls, self.counts)

    def _found(self) -> Called | None:
        return read_called(self._path, list(self.plan.states))

    def _noted(self) -> Iterator[Call]:
        """Yield the calls of this part's keys, and write them to the scratch file."""
        self.open_cache().tidy_scratch()
        file = CallsFile(self._path, list(self.plan.states))
        try:
            for buckets, call in self._calls(self._arranged()):
                file.write(buckets, call)
                yield call
            file.finish(self.counts)
        finally:
            file.close()

    def _narrowed(self, state: str, calls: Iterable[Call]) -> Iterator[pa.RecordBatch]:
        schema = arrow_schema(self.plan.spec.state(state).schema)
        for call in calls:
            table = getattr(call.groups, state)
            yield from narrow_batches(table, schema, rows_max=table.num_rows)

    def _calls(self, batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[tuple[int, ...], Call]]:
        """Yield the calls of all keys, each with the buckets that run together."""
        layout, spec = self.plan.layout, self.plan.spec
        assert layout is not None, "keys are laid out"
        cache = self.open_cache()
        with Spool(layout) as spool:
            spool.take(batches)
            for at, input_ in enumerate(spec.inputs):
                self.counts[f"records_in.{input_.name}"] = spool.records(at)
            for some in self._worked(spool):
                runs = [
                    self._flow_run(i, spool.between(i, some[0], some[-1]), spool.row_bytes(i))
                    for i in range(len(spec.inputs))
                ]
                states = {
                    name: BucketState(table, cache, some, self.plan.buckets)
                    for name, table in self.plan.states.items()
                }
                for call in read_calls(spec, runs, states)[1]:
                    yield some, call
                for state in states.values():
                    self.count_look_ups(state)


def _in_order(called: Called) -> Iterator[Call]:
    for buckets in sorted(called.calls):
        yield from called.calls[buckets]


@dataclass
class SettleTask(StageTask):
    """Settles and writes the results of the author's plan; its plan is `with_results`.

    Attributes:
        given: State or output to the flow that holds its records: its own flow, or that of another
            one with the same result.
        look_up: Finds the called groups of a plan of one task; `None`: keys arrive by the shuffle.
    """

    given: Mapping[str, str] = field(default_factory=dict)
    look_up: LookUpTask | None = None
    _called: Called | None = field(init=False, default=None)

    def _spool(self, spool: Spool, batches: Iterable[pa.RecordBatch]) -> None:
        # The results of a plan of one task come unsorted; sorting them here costs less.
        spool.take(batches, ordered=self.look_up is None)

    def _run_groups(self, batches: Iterable[pa.RecordBatch]) -> None:
        try:
            super()._run_groups(batches)
        finally:
            if self.look_up is not None:
                self.look_up.forget()
        if self._called is not None:
            for figure, value in self._called.figures.items():
                self.counts[figure] = self.counts.get(figure, 0) + value
        for flow in set(self.given.values()):
            del self.counts[f"records_in.{_result(flow)}"]

    def _worked(self, spool: Spool, shared: Shared | None = None) -> list[tuple[int, ...]]:
        if self.look_up is None:
            return super()._worked(spool, shared)
        self._called = self.look_up.called()
        # File numbers in the calls are relative to the buckets that were looked up together.
        found = list(self._called.calls)
        others = [
            (bucket,)
            for bucket in spool.buckets()
            if not any(some[0] <= bucket <= some[-1] for some in found)
        ]
        return sorted([*found, *others])

    def _bucket_run(
        self,
        buckets: tuple[int, ...],
        spec: TranslatorSpec,
        runs: list[FlowRun],
        states: dict[str, BucketState],
        write_state: Callable[[str, pa.Table], None],
        deliveries: Deliveries | None = None,
    ) -> BucketRun | VectorisedRun:
        by_name = {run.name: run for run in runs}
        results = {name: by_name[_result(flow)] for name, flow in self.given.items()}
        keys = [run for run in runs if not run.name.startswith("_")]
        return _ArrivedRun(
            self.plan.stage,
            replace(spec, inputs=spec.inputs[: len(keys)]),
            keys,
            states,
            self._write_output,
            write_state,
            results,
            buckets,
            self._called,
        )


@dataclass
class _ArrivedRun(VectorisedRun):
    """A run of buckets whose results have arrived already, by name of state or output."""

    called_here: ClassVar[bool] = False

    results: dict[str, FlowRun]
    buckets: tuple[int, ...]
    called: Called | None

    def read(self) -> tuple[Int64s, Iterable[Call]]:
        """Return the calls that were looked up before; otherwise look them up."""
        if self.called is None:
            return super().read()
        return self.called.hashes(self.buckets), self.called.calls.get(self.buckets, ())

    def begin(self, hashes: Int64s) -> None:
        """Write the outputs, and raise if state was given for a group that is not called."""
        nobody = Emission(self.spec, self._no_keys(), self._write, copies=False)
        for output in self.spec.outputs:
            run = self.results.get(output.name)
            if run is not None and run.table.num_rows:
                self._emit(nobody, output.name, run, 0, run.table.num_rows)
        for state in self.spec.states:
            run = self.results.get(state.name)
            if run is not None:
                for row in np.flatnonzero(~_found(run.hashes, hashes))[:1].tolist():
                    self._emit(nobody, state.name, run, row, row + 1)

    def emit(self, call: Call, emission: Emission) -> None:
        """Emit the state that the plan gave for the groups of a call."""
        for state in self.spec.states:
            run = self.results.get(state.name)
            if run is None:
                continue
            start = int(np.searchsorted(run.hashes, call.hashes[0], "left"))
            stop = int(np.searchsorted(run.hashes, call.hashes[-1], "right"))
            if stop > start:
                self._emit(emission, state.name, run, start, stop)

    def _emit(self, emission: Emission, flow: str, run: FlowRun, start: int, stop: int) -> None:
        schemas = {f.name: f.schema for f in self.spec.outputs}
        schemas |= {f.name: f.schema for f in self.spec.states}
        part = run.table.select(list(run.columns)).slice(start, stop - start)
        try:
            getattr(emission.out, flow)(part.rename_columns(list(schemas[flow].names)))
        except Exception as exc:
            raise author_error(exc, self.spec, stage=self.stage) from exc

    def _no_keys(self) -> pa.Table:
        assert self.spec.key is not None, "a stage of this form has a key"
        return author_schema(self.spec.key).empty_table()


def _found(wanted: Int64s, hashes: Int64s) -> npt.NDArray[np.bool_]:
    """Return a mask of the `wanted` hashes that are in `hashes`; both must be ascending."""
    places = np.searchsorted(hashes, wanted)
    found: npt.NDArray[np.bool_] = places < len(hashes)
    found[found] = hashes[places[found]] == wanted[found]
    return found
