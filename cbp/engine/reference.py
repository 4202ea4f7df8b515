"""The reference engine: a dataflow in plain Python, in memory, slow and obvious.

It is the oracle of every other engine, and what the public test kit runs on. For one
epoch of a groupwise stage:

1. Every record is routed to its group; with a state of grouping `outer`, every key of
   that state is a group too. An epoch that reads no record at all calls nobody.
2. Groups are visited in the order (unsigned hash of the key, key).
3. Within group and input, records come in the order (order_by: nulls first, ascending;
   increment; position). A group's state records come ordered by all columns.
4. What a called group emits to its state replaces what the group had there; groups not
   called keep theirs. What is written is seen in the next epoch.
5. Every output gets one increment per epoch, in visiting order, empty ones included.

A record-wise stage is called once per record, in the order of arrival.

Guarantees: deterministic; an epoch that fails changes nothing, so it can be run again.
Absent on purpose: files, Arrow, parallelism, and anything of the physical engines; only
the model, the values and the hash are shared with them (tests/cbp/engine/test_reference.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cbp.engine.hashing import key_hash
from cbp.engine.reference_call import AuthorCall, Emitter, key_type, record_type
from cbp.engine.values import Row, order_key, row_order, typed, typed_row, unify
from cbp.errors import NotFoundError
from cbp.model.connector import Connector, runnable_all
from cbp.model.dataflow import Dataflow
from cbp.model.increment import Increment
from cbp.model.schema import DataType, Schema
from cbp.model.stage import Computed, InputSpec, TranslatorSpec

__all__ = ["ReferenceEngine", "ReferenceStage"]

Key = tuple[Any, ...]
_Order = tuple[Any, ...]
_Group = dict[str, list[tuple[_Order, Row]]]
"""Input name to its records in the order of arrival, each with its order key."""


@dataclass
class ReferenceStage:
    """One stage with its state; `run` executes one epoch.

    Attributes:
        name: Of the stage, for errors.
        spec: What to execute.
        state: State name to key to the records of that key.
    """

    name: str
    spec: TranslatorSpec
    state: dict[str, dict[Key, list[Row]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for state in self.spec.states:
            self.state.setdefault(state.name, {})

    def run(self, inputs: Mapping[str, Sequence[Sequence[Row]]]) -> dict[str, list[Row]]:
        """Execute one epoch.

        Args:
            inputs: Input name to increments to records, as tuples of the input's columns.

        Returns:
            Output name to its records, in the order in which they were emitted.

        Raises:
            AuthorCodeError: The author's code failed; the state is what it was.
        """
        outputs: dict[str, list[Row]] = {output.name: [] for output in self.spec.outputs}
        if any(increment for increments in inputs.values() for increment in increments):
            if self.spec.record_wise:
                self._run_record_wise(inputs, outputs)
            else:
                self._run_groups(inputs, outputs)
        return outputs

    def _run_record_wise(
        self, inputs: Mapping[str, Sequence[Sequence[Row]]], outputs: dict[str, list[Row]]
    ) -> None:
        (input_,) = self.spec.inputs
        make = record_type(input_.name, input_.schema)
        for increment in inputs.get(input_.name, ()):
            for row in increment:
                emitter = Emitter(self.spec)
                with AuthorCall(self.name, self.spec, inputs={input_.name: [row]}):
                    self.spec.translate(make(*row), emitter.out)
                _extend(outputs, emitter.emitted)

    def _run_groups(
        self, inputs: Mapping[str, Sequence[Sequence[Row]]], outputs: dict[str, list[Row]]
    ) -> None:
        groups = self._groups(inputs)
        written: dict[Key, dict[str, list[Row]]] = {}
        for key in sorted(groups, key=self._visiting_order):
            emitter = self._call(key, groups[key])
            written[key] = emitter.emitted
            _extend(outputs, emitter.emitted)
        # Only now, so that an epoch that fails half-way leaves the state as it was.
        for key, emitted in written.items():
            for name, table in self.state.items():
                table.pop(key, None)
                if emitted[name]:
                    table[key] = emitted[name]

    def _groups(self, inputs: Mapping[str, Sequence[Sequence[Row]]]) -> dict[Key, _Group]:
        groups: dict[Key, _Group] = {}
        for input_ in self.spec.inputs:
            for increment in inputs.get(input_.name, ()):
                for row in increment:
                    key, order = self._place(input_, row)
                    group = groups.setdefault(key, {})
                    group.setdefault(input_.name, []).append((order, row))
        for state in self.spec.states:
            if state.grouping == "outer":
                for key in self.state[state.name]:
                    groups.setdefault(key, {})
        return groups

    def _place(self, input_: InputSpec, row: Row) -> tuple[Key, _Order]:
        """Return the group's key of a record, and what orders the record in its group."""
        key = self._values(input_, "route_by", row)
        order = self._values(input_, "order_by", row)
        return unify([value for value, _ in key]), tuple(order_key(*each) for each in order)

    def _values(self, input_: InputSpec, option: str, row: Row) -> list[tuple[Any, DataType]]:
        """Return the values of `route_by` or `order_by` for one record, with their types."""
        by: tuple[str, ...] | Computed | None = getattr(input_, option)
        if not isinstance(by, Computed):
            names = by or ()
            return [(row[input_.schema.index(n)], input_.schema[n].type) for n in names]
        function, inputs = f"{input_.name}.{option}", {input_.name: [row]}
        call = AuthorCall(self.name, self.spec, function=function, place=by.place, inputs=inputs)
        with call:
            value = by.function(record_type(input_.name, input_.schema)(*row))
            values = (value,) if len(by.types) == 1 else value
            return [(typed(v, type_), type_) for v, type_ in zip(values, by.types, strict=True)]

    def _visiting_order(self, key: Key) -> _Order:
        assert self.spec.key is not None, "a record-wise stage has no groups"
        types = [column.type for column in self.spec.key.fields]
        return key_hash(key, types) & (2**64 - 1), row_order(key, types)

    def _call(self, key: Key, group: _Group) -> Emitter:
        """Call the author for one group, and return what was emitted."""
        flows: dict[str, list[Any]] = {}
        for input_ in self.spec.inputs:
            # The sort is stable: equal records stay in the order (increment, position).
            records = sorted(group.get(input_.name, ()), key=lambda record: record[0])
            make = record_type(input_.name, input_.schema)
            flows[input_.name] = [make(*row) for _, row in records]
        for state in self.spec.states:
            make = record_type(state.name, state.schema)
            flows[state.name] = [
                make(*typed_row(row, state.schema))
                for row in _ordered(self.state[state.name].get(key, ()), state.schema)
            ]
        emitter = Emitter(self.spec, key)
        with AuthorCall(self.name, self.spec, key=key, inputs=flows):
            self.spec.translate(key_type(self.spec)(*key), emitter.group(flows), emitter.out)
        return emitter


class ReferenceEngine:
    """Executes a whole dataflow in memory; not thread-safe.

    Example:
        engine = ReferenceEngine(dataflow)
        engine.feed("urls", [{"url": "a"}, {"url": "b"}])
        engine.run_until_idle()
        engine.outputs("count.totals")
    """

    def __init__(self, dataflow: Dataflow) -> None:
        self._dataflow = dataflow
        self._schemas = dataflow.flows()
        self._stages = {n: ReferenceStage(n, s.translator) for n, s in dataflow.stages.items()}
        self._contents: dict[str, list[list[Row]]] = {flow: [] for flow in self._schemas}
        self._connectors = {
            name: {input_.name: Connector(input_.name) for input_ in stage.translator.inputs}
            for name, stage in dataflow.stages.items()
        }
        self._order = _topological_order(dataflow)

    def feed(self, source: str, records: Iterable[Any]) -> None:
        """Add one increment to a source.

        Args:
            source: Its name.
            records: A dict by column name (a missing column is null), a tuple by position,
                or, where the source has one column, its bare value.

        Raises:
            NotFoundError: There is no such source.
            TypeError: A record does not fit the source's schema.
        """
        if source not in self._dataflow.sources:
            raise NotFoundError(kind="source", name=source)
        schema = self._schemas[source]
        self._append(source, [typed_row(_by_position(r, schema), schema) for r in records])

    def run_until_idle(self) -> int:
        """Run every stage that may run, until none may; return the number of epochs.

        Raises:
            AuthorCodeError: The author's code failed; what it read stays queued.
        """
        epochs = 0
        while ran := sum([self._run(name) for name in self._order]):
            epochs += ran
        return epochs

    def outputs(self, flow: str) -> list[list[dict[str, Any]]]:
        """Return a flow's records, per epoch, as dicts; of a source, what was fed.

        Raises:
            NotFoundError: There is no such flow.
        """
        if flow not in self._schemas:
            raise NotFoundError(kind="flow", name=flow)
        schema = self._schemas[flow]
        return [[_as_dict(row, schema) for row in increment] for increment in self._contents[flow]]

    def state(self, stage: str, state: str) -> list[dict[str, Any]]:
        """Return all records of a state as dicts, ordered by all columns, nulls first.

        Raises:
            NotFoundError: There is no such state.
        """
        if stage not in self._stages or state not in self._stages[stage].state:
            raise NotFoundError(kind="state", name=f"{stage}.{state}")
        schema = self._dataflow.stages[stage].translator.state(state).schema
        rows = [row for rows in self._stages[stage].state[state].values() for row in rows]
        return [_as_dict(row, schema) for row in _ordered(rows, schema)]

    def _run(self, name: str) -> bool:
        """Run one epoch of a stage if it may run."""
        connectors, node = self._connectors[name], self._dataflow.stages[name]
        decision = runnable_all(connectors, None)
        if not decision.runnable:
            return False
        inputs = {}
        for input_ in node.translator.inputs:
            flow = node.wiring[input_.name]
            increments = [self._contents[flow][i] for i in decision.read.get(input_.name, ())]
            inputs[input_.name] = [
                _project(i, self._schemas[flow], input_.schema) for i in increments
            ]
        outputs = self._stages[name].run(inputs)
        for input_name, connector in connectors.items():
            connectors[input_name] = connector.after(
                decision.read.get(input_name, ()), decision.remove.get(input_name, ())
            )
        for output, rows in outputs.items():
            self._append(f"{name}.{output}", rows)
        return True

    def _append(self, flow: str, rows: list[Row]) -> None:
        index = len(self._contents[flow])
        self._contents[flow].append(rows)
        for stage, input_ in self._dataflow.consumers(flow):
            connectors = self._connectors[stage]
            connectors[input_] = connectors[input_].append(Increment(flow, index, index))


def _topological_order(dataflow: Dataflow) -> list[str]:
    """Return the stages, each behind those that feed it as far as cycles allow."""
    feeding = {
        name: {flow.partition(".")[0] for flow in stage.wiring.values()} & dataflow.stages.keys()
        for name, stage in dataflow.stages.items()
    }
    order: list[str] = []
    while waiting := [name for name in feeding if name not in order]:
        ready = [name for name in waiting if feeding[name] <= {*order, name}]
        order.append((ready or waiting)[0])
    return order


def _by_position(record: Any, schema: Schema) -> Sequence[Any]:
    if isinstance(record, Mapping):
        if unknown := [name for name in record if name not in schema]:
            message = f"there is no column {unknown[0]!r}; it has {', '.join(schema.names)}"
            raise TypeError(message)
        return [record.get(name) for name in schema.names]
    values = record if isinstance(record, tuple) else (record,)
    if len(values) != len(schema):
        message = f"{record!r} is no record of ({schema})"
        raise TypeError(message)
    return values


def _project(increment: Sequence[Row], flow: Schema, wanted: Schema) -> list[Row]:
    """Return the columns that an input declares; fresh values, since authors may change them."""
    at = [flow.index(name) for name in wanted.names]
    types = [column.type for column in wanted.fields]
    return [tuple(typed(row[i], t) for i, t in zip(at, types, strict=True)) for row in increment]


def _ordered(rows: Iterable[Row], schema: Schema) -> list[Row]:
    types = [column.type for column in schema.fields]
    return sorted(rows, key=lambda row: row_order(row, types))


def _as_dict(row: Row, schema: Schema) -> dict[str, Any]:
    return dict(zip(schema.names, row, strict=True))


def _extend(outputs: dict[str, list[Row]], emitted: Mapping[str, list[Row]]) -> None:
    for name, rows in outputs.items():
        rows.extend(emitted[name])
