"""Result of a test run: outputs by epoch, final state, figures; and how two results differ."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any

from cbp.engine.reference.call import record_type
from cbp.engine.reference.engine import ReferenceEngine
from cbp.errors import NotFoundError
from cbp.errors.counts import format_count
from cbp.model.dataflow.dataflow import Dataflow
from cbp.model.dataflow.equality import (
    closeness,
    output_view,
    record_rank,
    state_view,
    view_difference,
)
from cbp.model.dataflow.stage import OutputSpec, StateSpec
from cbp.model.flow.schema import Schema

_SHOWN_MAX = 20


@dataclass(frozen=True)
class Result:
    """The outputs, the state and the figures of a test run.

    Attributes:
        outputs: Maps each output to a list of epochs. An epoch is a list of records, as named
            tuples in the order of emission. The output of a view has its changes.
        state: Maps each state to its records after the last epoch, ordered by all columns.
        figures: Maps each stage to one dict of counts per epoch; see `ReferenceStage`.
    """

    outputs: Mapping[str, Sequence[Sequence[Any]]]
    state: Mapping[str, Sequence[Any]]
    figures: Mapping[str, Sequence[Mapping[str, int]]]
    _specs: Mapping[str, OutputSpec] = field(repr=False, default_factory=dict)
    _states: Mapping[str, tuple[StateSpec, Schema]] = field(repr=False, default_factory=dict)

    def last(self, output: str) -> dict[Any, Any]:
        """Return the last record per declared key, as an updated view shows it.

        With `latest_by` it is the greatest record. Keys and values are tuples of their columns,
        or the bare value if there is one column. `ValueError`: the output has no key, or is a view.
        """
        if output not in self.outputs:
            raise NotFoundError(kind="output", name=output)
        if output in self._specs and self._specs[output].view:
            message = f'{output!r} is a view: read its records with result.view("{output}")'
            raise ValueError(message)
        if output not in self._specs or not (keys := self._specs[output].key):
            message = f'output {output!r} declares no key; declare Output(..., key="...")'
            raise ValueError(message)
        rest = [n for n in self._specs[output].schema.names if n not in keys]
        numbered = [(n, row) for n, epoch in enumerate(self.outputs[output]) for row in epoch]
        if self._specs[output].latest_by:
            numbered.sort(key=record_rank(self._specs[output]))
        return {_columns(row, keys): _columns(row, rest) for _, row in numbered}

    def view(self, name: str) -> list[Any]:
        """Return the current records of a view, as named tuples ordered by all columns."""
        if name not in self._states or not self._states[name][0].changes:
            raise NotFoundError(kind="view", name=name)
        return list(self.state[name])

    def _repr_html_(self) -> str:
        """Return the HTML for a notebook: the last records of each output and of each state."""
        outputs = (
            _html_table(f"{name}, epoch {len(epochs) - 1}", epochs[-1] if epochs else ())
            for name, epochs in self.outputs.items()
        )
        return "".join([*outputs, *(_html_table(*state) for state in self.state.items())])

    def of_stage(self, stage: str) -> Result:
        """Return the part of one stage, by the names that its translator declares."""
        prefix = f"{stage}."

        def own(named: Mapping[str, Any]) -> dict[str, Any]:
            pairs = ((name, value) for name, value in named.items() if name.startswith(prefix))
            return {name.removeprefix(prefix): value for name, value in pairs}

        return Result(
            own(self.outputs),
            own(self.state),
            {stage: self.figures[stage]},
            own(self._specs),
            own(self._states),
        )

    def difference(self, other: Result, *, without: Collection[str] = ()) -> str:
        """Describe the first difference from another result; `""` if they are equal.

        `cbp.model.dataflow.equality` defines equality. States and outputs in `without` are not
        compared; one that the other result lacks is a `NotFoundError`.
        """
        for name, (state_spec, key) in self._states.items():
            if name in without:
                continue
            close = closeness(state_spec, key.names)
            mine, its = (state_view(_of(of.state, name), close) for of in (self, other))
            if difference := view_difference(mine, its, close):
                return f"state {name}, {difference}"
        for name, spec in self._specs.items():
            if name in without:
                continue
            close = closeness(spec, spec.key)
            mine, its = (output_view(spec, _of(of.outputs, name), close) for of in (self, other))
            if difference := view_difference(mine, its, close):
                return f"output {name}, {difference}"
        return ""


def result_of(dataflow: Dataflow, engine: ReferenceEngine) -> Result:
    """Return the result of the runs of an engine."""
    outputs: dict[str, list[list[Any]]] = {}
    state: dict[str, list[Any]] = {}
    specs: dict[str, OutputSpec] = {}
    states: dict[str, tuple[StateSpec, Schema]] = {}
    for name, node in dataflow.stages.items():
        for output in node.translator.outputs:
            flow = f"{name}.{output.name}"
            epochs = engine.outputs(flow)
            outputs[flow] = [_named(epoch, output.name, output.schema) for epoch in epochs]
            if output.name not in {loopback.name for loopback in node.translator.loopbacks}:
                specs[flow] = output
        for state_spec in node.translator.states:
            records = engine.state(name, state_spec.name)
            state[f"{name}.{state_spec.name}"] = _named(records, state_spec.name, state_spec.schema)
            states[f"{name}.{state_spec.name}"] = state_spec, node.translator.key_of(state_spec)
    figures = {name: engine.figures(name) for name in dataflow.stages}
    return Result(outputs, state, figures, specs, states)


def _named(records: Iterable[Mapping[str, Any]], flow: str, schema: Schema) -> list[Any]:
    make = record_type(flow, schema)._make
    return [make(map(record.__getitem__, schema.names)) for record in records]


def _of(flows: Mapping[str, Any], name: str) -> Any:
    if name not in flows:
        raise NotFoundError(kind="flow", name=name)
    return flows[name]


def _columns(row: Any, names: Sequence[str]) -> Any:
    values = tuple(getattr(row, name) for name in names)
    return values[0] if len(values) == 1 else values


def _html_table(title: str, records: Sequence[Any]) -> str:
    """Return a table of the first `_SHOWN_MAX` records, and how many there are."""
    shown = records[:_SHOWN_MAX]
    head = "".join(f"<th>{escape(name)}</th>" for name in (shown[0]._fields if shown else ()))
    rows = "".join(
        f"<tr>{''.join(f'<td>{escape(str(value))}</td>' for value in record)}</tr>"
        for record in shown
    )
    count = f"{len(shown)} of {format_count(len(records), 'record')}"
    return f"<table><caption>{escape(title)}: {count}</caption><tr>{head}</tr>{rows}</table>"
