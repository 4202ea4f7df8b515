"""Tasks around a plan of Spark: state records on their way in, results on their way out.

    called keys -> LookUpTask -> state records of the called groups -> the author's plan
    called groups, results by flow -> SettleTask -> state settled, outputs written

Both work on groups by the keys of all inputs alone; the records of the inputs stay in the
JVM. What the plan gave for a state is settled like what a vectorised translator emits, by
the same code, and written to the same files.

Where a plan is of one task, that task reads its records once (`own`) and finds the called groups
once (`called`), and all read what it wrote down. Where Spark shuffles, the keys come to both with
their records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cbp.engine.arrow import arrow_schema
from cbp.engine.bucket import BucketRun
from cbp.engine.call import author_error
from cbp.engine.deliveries import Deliveries
from cbp.engine.groups import FlowRun, Int64s
from cbp.engine.layout import shuffle_layout
from cbp.engine.shared import Shared
from cbp.engine.spool import Spool
from cbp.engine.state.bucket import BucketState
from cbp.engine.task import StageTask
from cbp.engine.taskplan import TaskPlan
from cbp.engine.vectorised.bucket import VectorisedRun
from cbp.engine.vectorised.called import Called, CallsFile, read_called
from cbp.engine.vectorised.conform import narrow_batches
from cbp.engine.vectorised.emission import Emission
from cbp.engine.vectorised.groups import author_schema
from cbp.engine.vectorised.own import OwnRecords
from cbp.engine.vectorised.reader import Call, read_calls
from cbp.model.stage import InputSpec, TranslatorSpec

__all__ = ["LookUpTask", "SettleTask", "with_called_keys", "with_results"]


def with_called_keys(task: TaskPlan) -> TaskPlan:
    """Return the plan with the key's columns alone of every input."""
    inputs = tuple(_keys_of(spec) for spec in task.spec.inputs)
    return _laid_out(task, replace(task.spec, inputs=inputs))


def with_results(task: TaskPlan, results: Iterable[str], *, keys: bool) -> TaskPlan:
    """Return the plan whose flows are results: what states and outputs are given.

    Args:
        task: Of the stage.
        results: States and outputs, in the order of the flows.
        keys: Whether the key's columns of every input are flows before them.
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
    # One column may stand in several places of the key.
    columns = tuple(dict.fromkeys(spec.route_by))
    return InputSpec(spec.name, spec.schema.select(columns), spec.route_by)


def _result(flow: str) -> str:
    """Name the flow of a result; no author's name begins with an underscore."""
    return f"_{flow}"


@dataclass
class LookUpTask(StageTask):
    """Finds state records of called groups; its plan is `with_called_keys`.

    Attributes:
        own: The records of a plan of one task; `None`: their keys arrive.
    """

    own: OwnRecords | None = None

    @classmethod
    def of(cls, own: OwnRecords, attempt: str) -> LookUpTask:
        """Return what looks up for the records of a plan of one task."""
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
        """Remove what was written down."""
        assert self.own is not None, "a plan of one task"
        self.own.forget()

    @property
    def _path(self) -> Path:
        assert self.own is not None, "a plan of one task"
        return self.own.scratch("called")

    def _arranged(self) -> Iterator[pa.RecordBatch]:
        return super()._arranged() if self.own is None else self.own.keys()

    def _kept(self) -> Called:
        """Look up once more, into memory: nothing can be written down, or a twin removed it."""
        self.counts.update(dict.fromkeys(self.counts, 0))
        calls: dict[tuple[int, ...], list[Call]] = {}
        for buckets, call in self._calls(self._arranged()):
            calls.setdefault(buckets, []).append(call)
        return Called(calls, self.counts)

    def _found(self) -> Called | None:
        return read_called(self._path, list(self.plan.states))

    def _noted(self) -> Iterator[Call]:
        """Yield the calls of this part's keys, and write them down."""
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
        """Yield the calls of all keys, each with the buckets that are worked on together."""
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
    """Settles and writes what the author's plan gave; its plan is `with_results`.

    Attributes:
        given: State or output to the flow that holds its records: its own, or that of one
            which is given the same.
        look_up: Finds the called groups of a plan of one task; `None`: their keys arrive.
    """

    given: Mapping[str, str] = field(default_factory=dict)
    look_up: LookUpTask | None = None
    _called: Called | None = field(init=False, default=None)

    def _spool(self, spool: Spool, batches: Iterable[pa.RecordBatch]) -> None:
        # The results of a plan of one task come as they are; sorting them here costs less.
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
        # Files are numbered among the buckets that were looked up together.
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
    """Buckets whose results are there already, by the names of states and outputs."""

    results: dict[str, FlowRun]
    buckets: tuple[int, ...]
    called: Called | None

    def read(self) -> tuple[Int64s, Iterable[Call]]:
        """Return what was found before, if it was."""
        if self.called is None:
            return super().read()
        return self.called.hashes(self.buckets), self.called.calls.get(self.buckets, ())

    def begin(self, hashes: Int64s) -> None:
        """Write the outputs, and see to it that all state is for called groups."""
        nobody = Emission(self.spec, self._no_keys(), self._write)
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
        """Hand over the state that the plan gave for the groups of a call."""
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
    """Tell which of some hashes are among `hashes`; both ascend, so nothing is sorted for it."""
    places = np.searchsorted(hashes, wanted)
    found: npt.NDArray[np.bool_] = places < len(hashes)
    found[found] = hashes[places[found]] == wanted[found]
    return found
