"""One stage of the reference engine: one epoch of groups or of single records.

For one epoch of a groupwise stage:

1. Every record is routed to its group; with a state of grouping `outer`, every key of
   that state is a group too. An epoch that reads no record at all calls nobody.
2. Groups are visited in the order (unsigned hash of the key, key).
3. Within group and input, records come in the order (order_by: nulls first, ascending;
   increment; position). A group's state records come ordered by all columns.
4. What a called group emits to its state replaces what the group had there; groups not
   called keep theirs. What is written is seen in the next epoch.
5. Every output gets one increment per epoch, in visiting order, empty ones included.

A record-wise stage is called once per record, in the order of arrival.

Guarantee: an epoch that fails changes nothing, so it can be run again
(tests/cbp/engine/test_reference.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cbp.engine.hashing import key_hash
from cbp.engine.reference_call import AuthorCall, Emitter, key_type, record_type
from cbp.engine.values import Row, order_key, row_order, typed, typed_row, unify
from cbp.model.schema import DataType, Schema
from cbp.model.stage import Computed, InputSpec, TranslatorSpec

__all__ = ["ReferenceStage", "ordered_rows"]

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
                for row in ordered_rows(self.state[state.name].get(key, ()), state.schema)
            ]
        emitter = Emitter(self.spec, key)
        with AuthorCall(self.name, self.spec, key=key, inputs=flows):
            self.spec.translate(key_type(self.spec)(*key), emitter.group(flows), emitter.out)
        return emitter


def ordered_rows(rows: Iterable[Row], schema: Schema) -> list[Row]:
    """Return records ordered by all columns, nulls first."""
    types = [column.type for column in schema.fields]
    return sorted(rows, key=lambda row: row_order(row, types))


def _extend(outputs: dict[str, list[Row]], emitted: Mapping[str, list[Row]]) -> None:
    for name, rows in outputs.items():
        rows.extend(emitted[name])
