"""One stage of the reference engine: runs one epoch of groups or of single records.

A groupwise stage does what `cbp.model.dataflow.routing` specifies: `cbp.engine.reference.routing`
finds the groups; this module calls them in order and settles their state. Every output gets one
increment per epoch, in visiting order, even if it is empty.

After the groups, the records of inputs without `route_by` follow, one call for each, in the order
of arrival. A vectorised stage is called once, with the tables of all groups in their order.

Guarantee: an epoch that fails changes nothing, so it can be run again
(tests/cbp/engine/reference/test_engine.py).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from cbp.engine.columnar.key_hash import key_hash
from cbp.engine.columnar.values import Row, own_row, row_order, typed_row
from cbp.engine.interface.form_checks import require_no_spark
from cbp.engine.reference.arrow import call_vectorised
from cbp.engine.reference.call import AuthorCall, Emitter, key_type, record_type
from cbp.engine.reference.routing import Bindings, Group, Key, Part, key_of, route_records
from cbp.model.dataflow.call_rules import Fresh, Watches, refuse_returned
from cbp.model.dataflow.equality import identity
from cbp.model.dataflow.stage import InputSpec, StateSpec, TranslatorSpec
from cbp.model.flow.schema import Schema

__all__ = ["ReferenceStage", "ordered_rows", "whole"]

_Order = tuple[Any, ...]
_COUNTED = ("groups", "deliveries", "dead_letters")


@dataclass
class ReferenceStage:
    """One stage with its state; `run` executes one epoch.

    Attributes:
        name: Name of the stage, for errors.
        spec: The translator to execute.
        state: State name to key to the records of that key.
        bindings: Per epoch, its bindings to multicast addresses; the length is the next epoch.
        parts_of: Cuts the records of a group into the lists that its combiner is called with.
        figures: Counts of the last epoch: `records_in`, `deliveries` (pairs of record and group),
            `groups`, `records_out`, `state_remote` (remote writes), `bindings`, `dead_letters`.
    """

    name: str
    spec: TranslatorSpec
    state: dict[str, dict[Key, list[Row]]] = field(default_factory=dict)
    bindings: list[Bindings] = field(default_factory=list)
    figures: Mapping[str, int] = field(default_factory=dict)
    parts_of: Callable[[list[Any]], list[list[Any]]] = field(default_factory=lambda: whole)
    _translate: Callable[..., object] = field(init=False)
    _watches: Watches = field(init=False)

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
            AuthorCodeError: If the author's code failed; state and bindings are unchanged.
        """
        require_no_spark(self.name, self.spec)
        fresh = Fresh(self.spec, stage=self.name)
        self._translate = fresh.function
        self._watches = Watches(self.spec, stage=self.name)
        done = _Epoch({output.name: [] for output in self.spec.outputs})
        done.figures["records_in"] = sum(len(rows) for many in inputs.values() for rows in many)
        if done.figures["records_in"]:
            for part in self.spec.parts():
                if part.record_wise:
                    self._run_records(part, inputs, done)
                else:
                    self._run_groups(part, self._parts(inputs, epochs or {}), done)
        fresh.check()
        self._watches.check()
        # State changes only now, so that an epoch that fails half-way changes nothing.
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
        # A copy, as for a group: an author may change a list.
        record = record_type(input_.name, input_.schema)(*own_row(row, input_.schema))
        flows: dict[str, list[Row]] = {each.name: [] for each in self.spec.inputs}
        flows |= {state.name: [] for state in self.spec.states}
        emitter = Emitter(self.spec)
        with AuthorCall(self.name, self.spec, inputs={input_.name: [row]}):
            if self.spec.takes_record:
                refuse_returned(self._translate(record, emitter.out))
            else:
                group = emitter.group({**flows, input_.name: [record]})
                refuse_returned(self._translate(None, group, emitter.out))
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
        emitter = Emitter(self.spec, key)
        with AuthorCall(self.name, self.spec, key=key, inputs=flows):
            group = emitter.group(flows)
            refuse_returned(self._translate(key_type(self.spec)(*key), group, emitter.out))
        return emitter

    def _call_vectorised(self, groups: Mapping[Key, dict[str, list[Any]]], done: _Epoch) -> None:
        """Call the author once for all groups."""
        emitted, written = call_vectorised(
            self.name, replace(self.spec, translate=self._translate), groups
        )
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
            # A copy for every group: an author may change a list.
            rows = [make(*own_row(row, input_.schema)) for _, row in records]
            flows[input_.name] = self._combined(input_, rows, key)
        for state in self.spec.states:
            make = record_type(state.name, state.schema)
            flows[state.name] = [
                make(*own_row(row, state.schema))
                for row in _in_order(state, self.state[state.name].get(key, ()))
            ]
        return flows

    def _combined(self, input_: InputSpec, rows: list[Any], key: Key) -> list[Any]:
        """Return the records of a group after its combiner, part by part."""
        if input_.combine is None:
            return rows
        make, combined = record_type(input_.name, input_.schema), []
        function, place = f"{input_.name}.combine", input_.combine.place
        for part in self.parts_of(rows):
            if len(part) < 2:
                combined += part
                continue
            given = {input_.name: part}
            with AuthorCall(self.name, self.spec, function=function, place=place, inputs=given):
                combine = self._watches.fresh(input_.combine.function, function, place)
                fewer = list(combine(list(part)))
                if not 0 < len(fewer) <= len(part):
                    message = f"gave {len(fewer)} records for {len(part)}; give 1 to {len(part)}"
                    raise ValueError(message)
                made = [make(*typed_row(tuple(row), input_.schema)) for row in fewer]
                self._require_key(input_, key, made)
                combined += made
        return combined

    def _require_key(self, input_: InputSpec, key: Key, rows: Sequence[Row]) -> None:
        """Refuse records that a combiner returned for another group."""
        for row in rows:
            (own_key,) = key_of(self.name, self.spec, input_, row)
            if own_key != key:
                message = f"gave a record of the key {own_key!r} for records of {key!r}"
                raise ValueError(message)


def whole(rows: list[Any]) -> list[list[Any]]:
    """Give a combiner all records of a group at once."""
    return [rows]


@dataclass
class _Epoch:
    """What the calls of one epoch emitted.

    Attributes:
        local: State name to called key to the records that the group emitted for itself.
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
        for name, rows in emitter.states.items():
            if key is not None:
                self.local.setdefault(name, {})[key] = rows
            self.remote.setdefault(name, []).extend(emitter.remote[name])
        for address, to in emitter.bindings:
            self.bindings.setdefault(address, {})[to] = None


def _settle(table: dict[Key, list[Row]], name: str, done: _Epoch) -> None:
    """Replace the records of called keys, then append the remote writes.

    A record that was kept before is not replaced by an equal one: 0.0 and -0.0 are equal, and
    the old spelling stays.
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
