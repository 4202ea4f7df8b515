"""Plans of the Python tasks around a plan in SQL. Their flows are keys, results, or both.

The tasks find the groups from the keys of all inputs; the other columns of the inputs stay in the
JVM.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from cbp.engine.kernel.arrow.kept_tables import kept_key
from cbp.engine.shuffle.layout import shuffle_layout
from cbp.engine.task.task_plan import TaskPlan
from cbp.model.dataflow.stage import InputSpec, OutputSpec, TranslatorSpec


def with_called_keys(task: TaskPlan) -> TaskPlan:
    """Return the plan with every input reduced to its key columns."""
    inputs = tuple(_keys_of(spec) for spec in task.spec.inputs)
    return _laid_out(task, replace(task.spec, inputs=inputs))


def with_results(task: TaskPlan, results: Iterable[str], *, keys: bool) -> TaskPlan:
    """Return the plan whose flows are the results for states and outputs, in this order.

    With `keys`, the key columns of every input are flows too, before the results.
    """
    spec = task.spec
    flows = {
        s.name: InputSpec(result_flow(s.name), s.schema, spec.key_of(s).names) for s in spec.states
    }
    flows |= {
        deletions(s.name): InputSpec(
            result_flow(deletions(s.name)), kept_key(spec, s), spec.key_of(s).names
        )
        for s in spec.kept
    }
    flows |= {o.name: _output_of(spec, o) for o in spec.emitted}
    arriving = (*(map(_keys_of, spec.inputs) if keys else ()), *(flows[name] for name in results))
    return _laid_out(task, replace(spec, inputs=arriving))


def _output_of(spec: TranslatorSpec, output: OutputSpec) -> InputSpec:
    """Return the flow of an output's records, routed by key if a key may have only one record."""
    by_key = output.single and spec.key is not None
    route_by = spec.key.names if by_key and spec.key is not None else ()
    return InputSpec(result_flow(output.name), output.schema, route_by)


def _laid_out(task: TaskPlan, spec: TranslatorSpec) -> TaskPlan:
    return replace(task, spec=spec, layout=shuffle_layout(spec))


def _keys_of(spec: InputSpec) -> InputSpec:
    assert isinstance(spec.route_by, tuple), "routed by columns"
    # One column may occur several times in the key.
    columns = tuple(dict.fromkeys(spec.route_by))
    return InputSpec(spec.name, spec.schema.select(columns), spec.route_by)


def deletions(state: str) -> str:
    """Return the name of a result that deletes records of a kept state; see `TranslateSql`."""
    return f"{state}.delete"


def result_flow(flow: str) -> str:
    """Return the name of a result's flow; no author's name begins with an underscore."""
    return f"_{flow}"
