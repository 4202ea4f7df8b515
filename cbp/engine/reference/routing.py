"""Routing in the reference engine: which groups the records of an epoch reach.

It follows the rules of `cbp.model.dataflow.routing` in their order: first keys and addresses, which
find groups; then `outer` states; then `ALL`, which reaches the groups found so far.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cbp.engine.columnar.values import Row, order_key, typed_key, unify
from cbp.engine.reference.call import AuthorCall, author_record
from cbp.errors import AuthorCodeError
from cbp.model.dataflow.call_rules import Watches
from cbp.model.dataflow.routing import All, Targets, one_key, targets
from cbp.model.dataflow.stage import Computed, InputSpec, TranslatorSpec

Key = tuple[Any, ...]
Order = tuple[Any, ...]

Failed = Callable[[str, Row, int, AuthorCodeError], None]

Bindings = Mapping[str | int, Collection[Key]]
"""Address to the keys that one epoch bound to it."""

Group = dict[str, list[tuple[Order, Row]]]
"""Input name to the records that reach a group, each with its sort key."""


@dataclass(frozen=True, slots=True)
class Part:
    """Records of one increment, as tuples of the input's columns."""

    rows: Sequence[Row]
    bindings: Bindings = field(default_factory=dict)


@dataclass
class Routed:
    """The groups of one epoch.

    Attributes:
        groups: Every group to call, with its records.
        deliveries: Pairs of a record and a group that it reaches.
        dead_letters: Number of destinations that reached no group.
    """

    groups: dict[Key, Group] = field(default_factory=dict)
    deliveries: int = 0
    dead_letters: int = 0


@dataclass(frozen=True, slots=True)
class _Broadcast:
    input: str
    order: Order
    row: Row
    named: set[Key]
    alls: tuple[All, ...]


def route_records(
    stage: str,
    spec: TranslatorSpec,
    inputs: Mapping[str, Sequence[Part]],
    state: Mapping[str, Mapping[Key, Any]],
    failed: Failed | None,
) -> Routed:
    """Route every record of an epoch, given by input as increments in order.

    `failed` takes a record on which a route or order function fails, with its input, its place in
    that input, and the error; without `failed` the error is raised.
    """
    return _Router(stage, spec, state).route(inputs, failed)


def key_of(stage: str, spec: TranslatorSpec, input_: InputSpec, row: Row) -> list[Key]:
    """Return the keys that a record of an input names."""
    return _Router(stage, spec, {}).keys_of(input_, row)


class _Router:
    def __init__(
        self, stage: str, spec: TranslatorSpec, state: Mapping[str, Mapping[Key, Any]]
    ) -> None:
        self._stage, self._spec, self._state = stage, spec, state
        self._routed = Routed()
        self._keys_by_flow: dict[str, set[Key]] = {input_.name: set() for input_ in spec.inputs}
        self._keys_by_flow.update((name, set(keys)) for name, keys in state.items())
        self._broadcasts: list[_Broadcast] = []
        self._watches = Watches(spec, stage=stage)

    def route(self, inputs: Mapping[str, Sequence[Part]], failed: Failed | None) -> Routed:
        for input_ in self._spec.inputs:
            arrival = 0
            for part in inputs.get(input_.name, ()):
                for row in part.rows:
                    try:
                        self._name(input_, row, arrival, part.bindings)
                    except AuthorCodeError as error:
                        if failed is None:
                            raise
                        failed(input_.name, row, arrival, error)
                    arrival += 1
        for state in self._spec.states:
            if state.grouping == "outer":
                for key in self._state[state.name]:
                    self._routed.groups.setdefault(key, {})
        for broadcast in self._broadcasts:
            self._broadcast(broadcast)
        self._watches.check()
        return self._routed

    def keys_of(self, input_: InputSpec, row: Row) -> list[Key]:
        return [unify(key) for key in self._targets(input_, row).keys]

    def _name(self, input_: InputSpec, row: Row, arrival: int, bindings: Bindings) -> None:
        went = self._targets(input_, row)
        named = {unify(key) for key in went.keys}
        for address in went.addresses:
            bound = bindings.get(address, ())
            self._routed.dead_letters += not bound
            named.update(bound)
        # The arrival makes the order total: ties are ordered by (increment, position).
        order = (*self._order(input_, row), arrival)
        for key in named:
            self._deliver(key, input_.name, order, row)
        self._keys_by_flow[input_.name] |= named
        if went.alls:
            self._broadcasts.append(_Broadcast(input_.name, order, row, named, went.alls))

    def _broadcast(self, broadcast: _Broadcast) -> None:
        reached: set[Key] = set()
        for destination in broadcast.alls:
            flows = destination.flows or tuple(self._keys_by_flow)
            receivers = set().union(*(self._keys_by_flow[flow] for flow in flows))
            self._routed.dead_letters += not receivers
            reached |= receivers
        for key in reached - broadcast.named:
            self._deliver(key, broadcast.input, broadcast.order, broadcast.row)

    def _deliver(self, key: Key, flow: str, order: Order, row: Row) -> None:
        group = self._routed.groups.setdefault(key, {})
        group.setdefault(flow, []).append((order, row))
        self._routed.deliveries += 1

    def _targets(self, input_: InputSpec, row: Row) -> Targets:
        by = input_.route_by
        if not isinstance(by, Computed):
            return Targets(keys=(tuple(row[input_.schema.index(name)] for name in by or ()),))
        with self._author(input_, "route_by", row, by):
            given = self._ask(input_, "route_by", row, by)
            if by.many:
                went = targets(given, self._keys_by_flow, messages=input_.loopback)
            else:
                went = Targets(keys=(one_key(given),))
            keys = tuple(typed_key(key, by.types) for key in went.keys)
        return Targets(keys, went.addresses, went.alls)

    def _order(self, input_: InputSpec, row: Row) -> Order:
        by = input_.order_by
        if not isinstance(by, Computed):
            columns = [(row[input_.schema.index(n)], input_.schema[n].type) for n in by or ()]
            return tuple(order_key(value, type_) for value, type_ in columns)
        with self._author(input_, "order_by", row, by):
            values = typed_key(self._ask(input_, "order_by", row, by), by.types)
        return tuple(order_key(value, t) for value, t in zip(values, by.types, strict=True))

    def _ask(self, input_: InputSpec, option: str, row: Row, by: Computed) -> Any:
        function = self._watches.fresh(by.function, f"{input_.name}.{option}", by.place)
        return function(author_record(input_.name, input_.schema, row))

    def _author(self, input_: InputSpec, option: str, row: Row, by: Computed) -> AuthorCall:
        function, rows = f"{input_.name}.{option}", {input_.name: [row]}
        return AuthorCall(self._stage, self._spec, function=function, place=by.place, inputs=rows)
