"""Tasks around a plan of Spark: state records on their way in, results on their way out.

    called keys -> LookUpTask -> state records of the called groups -> the author's plan
    called keys, results by flow -> SettleTask -> state settled, outputs written

Both put groups together out of the keys of all inputs alone; the records of the inputs
stay in the JVM. What the plan gave for a state is settled like what a vectorised
translator emits, by the same code, and written to the same files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from cbp.engine.arrow import arrow_schema
from cbp.engine.bucket import BucketRun
from cbp.engine.call import author_error
from cbp.engine.deliveries import Deliveries
from cbp.engine.groups import FlowRun, Int64s
from cbp.engine.layout import shuffle_layout
from cbp.engine.spool import Spool
from cbp.engine.state.bucket import BucketState
from cbp.engine.state.index import index_cache
from cbp.engine.task import StageTask
from cbp.engine.taskplan import TaskPlan
from cbp.engine.vectorised.bucket import VectorisedRun
from cbp.engine.vectorised.conform import narrow
from cbp.engine.vectorised.emission import Emission
from cbp.engine.vectorised.groups import author_schema
from cbp.engine.vectorised.reader import Call, read_calls
from cbp.model.stage import InputSpec, TranslatorSpec

__all__ = ["LookUpTask", "SettleTask", "with_called_keys", "with_results"]


def with_called_keys(task: TaskPlan) -> TaskPlan:
    """Return the plan with the key's columns alone of every input."""
    inputs = tuple(_keys_of(spec) for spec in task.spec.inputs)
    return _laid_out(task, replace(task.spec, inputs=inputs))


def with_results(task: TaskPlan) -> TaskPlan:
    """Return the plan with a further flow per state and output: what it was given."""
    spec = task.spec
    assert spec.key is not None, "a stage of this form has a key"
    states = (InputSpec(_result(s.name), s.schema, spec.key.names) for s in spec.states)
    outputs = (InputSpec(_result(o.name), o.schema, ()) for o in spec.outputs)
    inputs = (*map(_keys_of, spec.inputs), *states, *outputs)
    return _laid_out(task, replace(spec, inputs=inputs))


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


class LookUpTask(StageTask):
    """Finds state records of called groups; writes nothing."""

    def records(self, state: str, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the records of one state that belong to the groups whose keys arrived."""
        layout, spec = self.plan.layout, self.plan.spec
        assert layout is not None, "keys are laid out"
        schema = arrow_schema(spec.state(state).schema)
        cache = index_cache(self.plan.cache)
        with Spool(layout) as spool:
            spool.take(batches)
            for bucket in sorted(self._sizes(spool)):
                runs = [self._flow_run(i, spool.bucket(i, bucket)) for i in range(len(spec.inputs))]
                tables = self.plan.states.items()
                states = {name: BucketState(table, cache, (bucket,)) for name, table in tables}
                for call in read_calls(spec, runs, states)[1]:
                    for part in narrow(getattr(call.groups, state), schema):
                        yield from part.to_batches()


class SettleTask(StageTask):
    """Settles and writes what the author's plan gave; its plan is `with_results`."""

    def _run_groups(self, batches: Iterable[pa.RecordBatch]) -> None:
        super()._run_groups(batches)
        spec = self.plan.spec
        for flow in (*(s.name for s in spec.states), *(o.name for o in spec.outputs)):
            del self.counts[f"records_in.{_result(flow)}"]

    def _bucket_run(
        self,
        spec: TranslatorSpec,
        runs: list[FlowRun],
        states: dict[str, BucketState],
        write_state: Callable[[str, pa.Table], None],
        deliveries: Deliveries | None = None,
    ) -> BucketRun | VectorisedRun:
        many = len(spec.inputs) - len(spec.states) - len(spec.outputs)
        narrow_spec = replace(spec, inputs=spec.inputs[:many])
        results = {run.name: run for run in runs[many:]}
        return _ArrivedRun(
            self.plan.stage,
            narrow_spec,
            runs[:many],
            states,
            self._write_output,
            write_state,
            results,
        )


@dataclass
class _ArrivedRun(VectorisedRun):
    """A bucket whose results are there already, by the names of their flows."""

    results: dict[str, FlowRun]

    def begin(self, hashes: Int64s) -> None:
        """Write the outputs, and see to it that all state is for called groups."""
        nobody = Emission(self.spec, self._no_keys(), self._write)
        for output in self.spec.outputs:
            run = self.results[_result(output.name)]
            if run.table.num_rows:
                self._emit(nobody, output.name, run, 0, run.table.num_rows)
        for state in self.spec.states:
            run = self.results[_result(state.name)]
            for row in np.flatnonzero(~np.isin(run.hashes, hashes))[:1].tolist():
                self._emit(nobody, state.name, run, row, row + 1)

    def emit(self, call: Call, emission: Emission) -> None:
        """Hand over the state that the plan gave for the groups of a call."""
        for state in self.spec.states:
            run = self.results[_result(state.name)]
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
