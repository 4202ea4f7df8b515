"""Layout of the shuffle: the columns of a run's records, and the names of its files.

One shuffle carries all flows of a stage. Its columns are *slots*: the key's columns
first, then columns that order records, then all other columns, shared between flows
of the same type. A flow uses some slots and leaves the others null:

    _flow _bucket _hash | k0 .. kn | o0 .. on | p0 .. pn | _to _made | _seq

A record that several groups share (`ALL`, multicast) comes once per task, not per group. It
belongs to a flow of its own, numbered after the inputs (`ShuffleLayout.shared`). It has no key,
is in the task's first bucket, and carries its destinations (`_to`) and the epoch that wrote it
(`_made`).

Sorting by everything left of `p0`, then by `_seq`, gives each flow as one run in the
order (bucket, hash, key, order_by, increment, file, row). This order is total: the same
records come in the same order whatever the number of tasks and files.

File names carry that order: `<increment:012d>-<part:05d>-<run>.parquet`. They also name
the epoch that wrote a file, as do the names of deletion vectors. A garbage collector that knows
which epochs are published needs nothing else to find the files of a failed attempt.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cbp.model.dataflow.stage import Computed, InputSpec, TranslatorSpec
from cbp.model.flow.schema import DataType

COUNT = "_count"
"""How many records of the increment a row represents: several if combined, 0 if it is a copy."""

TO = "_to"
"""Destinations of a shared record, as text (`cbp.engine.shuffle.several_destinations`)."""

MADE = "_made"
"""The stage's epoch that wrote a message."""

SEQUENCE_BITS = (36, 16)
"""Bits of the row and of the file in `_seq`; the increment has the remaining 11 bits."""


@dataclass(frozen=True, slots=True)
class FlowLayout:
    """The slots that hold one input flow's values; `columns` are the slots of its schema's columns.

    `key` and `order` have the source of each key and ordering value: a column, or the position of a
    computed value.
    """

    name: str
    key: tuple[str | int, ...]
    order: tuple[tuple[str, str | int], ...]
    columns: tuple[str, ...]
    payload: tuple[tuple[str, str], ...]

    def sources(self) -> dict[str, str | int]:
        """Return slot -> source for every slot that this flow fills."""
        keys = {f"k{i}": source for i, source in enumerate(self.key)}
        return {**keys, **dict(self.order), **dict(self.payload)}


@dataclass(frozen=True, slots=True)
class ShuffleLayout:
    """The slots of one stage.

    `shared` are the positions of the inputs whose records may have several destinations. The shared
    records of the n-th of them are the flow `len(flows) + n`.

    The slot `COUNT` exists if some flow is combined or has copies; null means one record. `TO` and
    `MADE` exist if `shared` is not empty.
    """

    slots: tuple[tuple[str, DataType], ...]
    keys: tuple[str, ...]
    orders: tuple[str, ...]
    flows: tuple[FlowLayout, ...]
    shared: tuple[int, ...] = ()

    @property
    def tags(self) -> int:
        """The number of values of `_flow`."""
        return len(self.flows) + len(self.shared)

    def tag(self, flow: int) -> int:
        """Return the value of `_flow` for the shared records of an input."""
        return len(self.flows) + self.shared.index(flow)

    @property
    def sort_columns(self) -> tuple[str, ...]:
        """Columns that give the order described in the module header."""
        return ("_flow", "_bucket", "_hash", *self.keys, *self.orders, "_seq")


@dataclass(frozen=True, slots=True)
class FlowRoute:
    """How the records of the input number `flow` of a stage come to its tasks.

    Strings of tables larger than `narrow_bytes` have offsets of 64 bits.
    """

    stage: str
    spec: TranslatorSpec
    layout: ShuffleLayout
    flow: int
    buckets: int
    hash_mask: int
    narrow_bytes: int

    @property
    def input(self) -> InputSpec:
        """The input."""
        return self.spec.inputs[self.flow]

    @property
    def key_types(self) -> list[DataType]:
        """Types of the columns of the stage's key."""
        assert self.spec.key is not None, "a record-wise translator is not routed"
        return [column.type for column in self.spec.key.fields]


def shuffle_layout(spec: TranslatorSpec) -> ShuffleLayout:
    """Lay out the inputs of a groupwise translator; pure."""
    assert spec.key is not None, "a record-wise translator is not shuffled"
    keys = tuple((f"k{i}", column.type) for i, column in enumerate(spec.key.fields))
    orders: list[DataType] = []
    payloads: list[DataType] = []
    flows = tuple(_flow(input_, orders, payloads) for input_ in spec.inputs)
    order_slots = tuple((f"o{i}", type_) for i, type_ in enumerate(orders))
    payload_slots = tuple((f"p{i}", type_) for i, type_ in enumerate(payloads))
    shared = tuple(at for at, input_ in enumerate(spec.inputs) if input_.has_several)
    counted = shared or any(input_.combine is not None for input_ in spec.inputs)
    counts = ((COUNT, DataType("BIGINT")),) if counted else ()
    shares = ((TO, DataType("STRING")), (MADE, DataType("BIGINT"))) if shared else ()
    return ShuffleLayout(
        (*keys, *order_slots, *payload_slots, *counts, *shares),
        tuple(name for name, _ in keys),
        tuple(name for name, _ in order_slots),
        flows,
        shared,
    )


def _flow(input_: InputSpec, orders: list[DataType], payloads: list[DataType]) -> FlowLayout:
    """Assign the slots of one flow; adds slots if none of the right type is free."""
    placed: dict[str, str] = {}
    route = input_.route_by
    assert route is not None, "every input of a groupwise translator has route_by"
    computed = 0
    key: tuple[str | int, ...]
    if isinstance(route, Computed):
        key, computed = tuple(range(len(route.types))), len(route.types)
    else:
        key = route
        placed.update((column, f"k{i}") for i, column in enumerate(route))
    order = _order(input_, orders, computed)
    placed.update((s, slot) for slot, s in order if isinstance(s, str) and s not in placed)
    used_slots: set[int] = set()
    payload = []
    for column in input_.schema.fields:
        if column.name not in placed:
            slot = f"p{_take(column.type, payloads, used_slots)}"
            payload.append((slot, column.name))
            placed[column.name] = slot
    columns = tuple(placed[name] for name in input_.schema.names)
    return FlowLayout(input_.name, key, order, columns, tuple(payload))


def _order(
    input_: InputSpec, orders: list[DataType], computed: int
) -> tuple[tuple[str, str | int], ...]:
    """Assign ascending slots to the ordering values of a flow, so that the sort respects them."""
    order = input_.order_by
    if order is None:
        return ()
    wanted: Sequence[tuple[str | int, DataType]]
    if isinstance(order, Computed):
        wanted = [(computed + i, type_) for i, type_ in enumerate(order.types)]
    else:
        wanted = [(column, input_.schema[column].type) for column in order]
    placed, at = [], 0
    for source, type_ in wanted:
        while at < len(orders) and orders[at] != type_:
            at += 1
        if at == len(orders):
            orders.append(type_)
        placed.append((f"o{at}", source))
        at += 1
    return tuple(placed)


def _take(type_: DataType, slots: list[DataType], used_slots: set[int]) -> int:
    """Return the first slot of this type that the flow does not use yet."""
    for at, slot in enumerate(slots):
        if slot == type_ and at not in used_slots:
            used_slots.add(at)
            return at
    slots.append(type_)
    used_slots.add(len(slots) - 1)
    return len(slots) - 1
