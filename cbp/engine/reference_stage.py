"""One stage of the reference engine: one epoch of groups or of single records.

A groupwise stage does what `cbp.model.routing` specifies: `cbp.engine.reference_route` finds
the groups, here they are called in order and their state is settled. Every output gets one
increment per epoch, in visiting order, empty ones included.

Behind the groups come the records of inputs without `route_by`, one call for each, in the order
of arrival. A vectorised stage is called once, with the tables of all groups in their order.

Guarantee: an epoch that fails changes nothing, so it can be run again
(tests/cbp/engine/test_reference.py).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cbp.engine.hashing import key_hash
from cbp.engine.limits import require_no_spark
from cbp.engine.reference_call import AuthorCall, Emitter, key_type, record_type
from cbp.engine.reference_route import Bindings, Group, Key, Part, route_records
from cbp.engine.reference_vectorised import call_vectorised
from cbp.engine.values import Row, own_row, row_order
from cbp.model.equality import identity
from cbp.model.schema import Schema
from cbp.model.stage import InputSpec, StateSpec, TranslatorSpec

__all__ = ["ReferenceStage", "ordered_rows"]

_Order = tuple[Any, ...]
_COUNTED = ("groups", "deliveries", "dead_letters")


@dataclass
class ReferenceStage:
    """One stage with its state; `run` executes one epoch.

    Attributes:
        name: Of the stage, for errors.
        spec: What to execute.
        state: State name to key to the records of that key.
        bindings: What each epoch bound to multicast addresses; its length is the next epoch.
        figures: Of the last epoch: `records_in`, `deliveries` (pairs of a record and a group),
            `groups`, `records_out`, `state_remote` (remote writes), `bindings`, `dead_letters`.
    """

    name: str
    spec: TranslatorSpec
    state: dict[str, dict[Key, list[Row]]] = field(default_factory=dict)
    bindings: list[Bindings] = field(default_factory=list)
    figures: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for state in self.spec.states:
            self.state.setdefault(state.name, {})

    def run(
        self,
        inputs: Mapping[str, Sequence[Sequence[Row]]],
        *,
        epochs: Mapping[str, Sequence[int]] | None = None,
    ) -> dict[str, list[Row]]:
        """Execute one epoch.

        Args:
            inputs: Input name to increments to records, as tuples of the input's columns.
            epochs: Loopback name to the epochs of this stage that wrote its increments.

        Returns:
            Output name to its records, in the order in which they were emitted.

        Raises:
            AuthorCodeError: The author's code failed; state and bindings are what they were.
        """
        require_no_spark(self.name, self.spec)
        done = _Epoch({output.name: [] for output in self.spec.outputs})
        done.figures["records_in"] = sum(len(rows) for many in inputs.values() for rows in many)
        if done.figures["records_in"]:
            for part in self.spec.parts():
                if part.record_wise:
                    self._run_records(part, inputs, done)
                else:
                    self._run_groups(part, self._parts(inputs, epochs or {}), done)
        # Only now, so that an epoch that fails half-way leaves everything as it was.
        self.bindings.append(done.bindings)
        for name, table in self.state.items():
            _settle(table, name, done)
        self.figures = {
            **done.figures,
            "state_remote": sum(len(each) for each in done.remote.values()),
            "bindings": sum(map(len, done.bindings.values())),
            "records_out": sum(map(len, done.outputs.values())),
        }
        return done.outputs

    def _parts(
        self, inputs: Mapping[str, Sequence[Sequence[Row]]], epochs: Mapping[str, Sequence[int]]
    ) -> dict[str, list[Part]]:
        """Give each increment of a loopback the bindings of the epoch that wrote it."""
        parts = {name: [Part(rows) for rows in many] for name, many in inputs.items()}
        for name, wrote in epochs.items():
            pairs = zip(inputs[name], wrote, strict=True)
            parts[name] = [Part(rows, self.bindings[epoch]) for rows, epoch in pairs]
        return parts

    def _run_records(
        self,
        part: TranslatorSpec,
        inputs: Mapping[str, Sequence[Sequence[Row]]],
        done: _Epoch,
    ) -> None:
        for input_ in part.inputs:
            for increment in inputs.get(input_.name, ()):
                for row in increment:
                    done.take(self._call_for(input_, row))
                    done.figures["groups"] += 1
                    done.figures["deliveries"] += 1

    def _call_for(self, input_: InputSpec, row: Row) -> Emitter:
        """Call the author for one record, and return what was emitted."""
        record = record_type(input_.name, input_.schema)(*row)
        flows: dict[str, list[Row]] = {each.name: [] for each in self.spec.inputs}
        flows |= {state.name: [] for state in self.spec.states}
        emitter = Emitter(self.spec)
        with AuthorCall(self.name, self.spec, inputs={input_.name: [row]}):
            if self.spec.takes_record:
                self.spec.translate(record, emitter.out)
            else:
                group = emitter.group({**flows, input_.name: [record]})
                self.spec.translate(None, group, emitter.out)
        return emitter

    def _run_groups(
        self, part: TranslatorSpec, parts: Mapping[str, Sequence[Part]], done: _Epoch
    ) -> None:
        routed = route_records(self.name, part, parts, self.state)
        called = sorted(routed.groups, key=self._visiting_order)
        if self.spec.form == "arrow":
            self._call_vectorised(
                {key: self._flows(key, routed.groups[key]) for key in called}, done
            )
        else:
            for key in called:
                done.take(self._call(key, routed.groups[key]), key)
        done.figures.update(
            groups=len(routed.groups),
            deliveries=routed.deliveries,
            dead_letters=routed.dead_letters,
        )

    def _visiting_order(self, key: Key) -> _Order:
        assert self.spec.key is not None, "a record-wise stage has no groups"
        types = [column.type for column in self.spec.key.fields]
        return key_hash(key, types) & (2**64 - 1), row_order(key, types)

    def _call(self, key: Key, group: Group) -> Emitter:
        """Call the author for one group, and return what was emitted."""
        flows = self._flows(key, group)
        emitter = Emitter(self.spec)
        with AuthorCall(self.name, self.spec, key=key, inputs=flows):
            self.spec.translate(key_type(self.spec)(*key), emitter.group(flows), emitter.out)
        return emitter

    def _call_vectorised(self, groups: Mapping[Key, dict[str, list[Any]]], done: _Epoch) -> None:
        """Call the author once for all groups."""
        emitted, written = call_vectorised(self.name, self.spec, groups)
        for output in done.outputs:
            done.outputs[output].extend(emitted[output])
        for state in self.state:
            done.local[state] = {key: rows[state] for key, rows in written.items()}

    def _flows(self, key: Key, group: Group) -> dict[str, list[Any]]:
        """Return the records of one group, in the order in which the author reads them."""
        flows: dict[str, list[Any]] = {}
        for input_ in self.spec.inputs:
            records = sorted(group.get(input_.name, ()), key=lambda record: record[0])
            make = record_type(input_.name, input_.schema)
            # Values of its own for every group: an author may change a list.
            flows[input_.name] = [make(*own_row(row, input_.schema)) for _, row in records]
        for state in self.spec.states:
            make = record_type(state.name, state.schema)
            flows[state.name] = [
                make(*own_row(row, state.schema))
                for row in _in_order(state, self.state[state.name].get(key, ()))
            ]
        return flows


@dataclass
class _Epoch:
    """What the calls of one epoch emitted.

    Attributes:
        local: State name to called key to what that group keeps.
        remote: State name to (key, record) pairs, written by other groups.
        bindings: Address to keys.
    """

    outputs: dict[str, list[Row]]
    local: dict[str, dict[Key, list[Row]]] = field(default_factory=dict)
    remote: dict[str, list[tuple[Key, Row]]] = field(default_factory=dict)
    bindings: dict[str | int, dict[Key, None]] = field(default_factory=dict)
    figures: dict[str, int] = field(default_factory=lambda: dict.fromkeys(_COUNTED, 0))

    def take(self, emitter: Emitter, key: Key | None = None) -> None:
        """Add what one call emitted; a record that is a group of its own has no key."""
        for name, rows in emitter.outputs.items():
            self.outputs[name].extend(rows)
        for name, written in emitter.states.items():
            if key is not None:
                own = [row for to, row in written if to == key]
                self.local.setdefault(name, {})[key] = own
            self.remote.setdefault(name, []).extend(each for each in written if each[0] != key)
        for address, to in emitter.bindings:
            self.bindings.setdefault(address, {})[to] = None


def _settle(table: dict[Key, list[Row]], name: str, done: _Epoch) -> None:
    """Replace the records of called keys, then append those that others wrote for a key.

    A record that was there before stays as it is spelled: 0.0 and -0.0 are one value.
    """
    for key, rows in done.local.get(name, {}).items():
        before: dict[Hashable, list[Row]] = {}
        for row in reversed(table.pop(key, ())):
            before.setdefault(identity(row), []).append(row)
        if rows:
            table[key] = [same.pop() if (same := before.get(identity(r))) else r for r in rows]
    for key, row in done.remote.get(name, ()):
        table.setdefault(key, []).append(row)


def _in_order(state: StateSpec, rows: Iterable[Row]) -> list[Row]:
    """Return a group's records by `order_by`, then by all columns."""
    at = [state.schema.index(name) for name in state.order_by]
    types = [state.schema.fields[place].type for place in at]
    every = ordered_rows(rows, state.schema)
    return sorted(every, key=lambda row: row_order([row[place] for place in at], types))


def ordered_rows(rows: Iterable[Row], schema: Schema) -> list[Row]:
    """Return records ordered by all columns, nulls first."""
    types = [column.type for column in schema.fields]
    return sorted(rows, key=lambda row: row_order(row, types))
