"""How the records of one run are laid out on their way to the tasks, and in files.

One shuffle carries all flows of a stage. Its columns are *slots*: the key's columns
first, then columns that order records, then all other columns, shared between flows
of the same type. A flow uses some slots and leaves the others null:

    _flow _bucket _hash | k0 .. kn | o0 .. on | p0 .. pn | _to _made | _seq

A record that several groups share (`ALL`, multicast) comes once per task, not per group: as
a record of a flow of its own behind the inputs (`ShuffleLayout.shared`), without a key, in
the task's first bucket, with its destinations (`_to`) and the epoch that wrote it (`_made`).

Sorting by everything left of `p0`, then by `_seq`, gives each flow as one run in the
order (bucket, hash, key, order_by, increment, file, row), which is total: the same
records come in the same order whatever the number of tasks and files.

File names carry that order: `<increment:012d>-<part:05d>-<run>.parquet`. They also tell
which epoch wrote a file, and so do those of deletion vectors: a collector that knows
which epochs are published needs no other record of what a failed attempt left.
"""

from __future__ import annotations

import hashlib
import re
import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from cbp.model.schema import DataType
from cbp.model.stage import Computed, InputSpec, TranslatorSpec

__all__ = [
    "COUNT",
    "MADE",
    "TO",
    "FlowLayout",
    "ShuffleLayout",
    "bucket_file",
    "bucket_shift",
    "file_epoch",
    "first_bucket",
    "flow_file",
    "merged_file",
    "rewritten_file",
    "shuffle_layout",
    "vectors_id",
]

COUNT = "_count"
"""How many records of the increment one stands for: several if combined, none if a copy."""

TO = "_to"
"""Destinations of a record that groups share, as text (`cbp.engine.destinations`)."""

MADE = "_made"
"""Epoch of the stage that wrote a message."""

SEQUENCE_BITS = (36, 16)
"""Bits of the row and of the file in `_seq`; the increment has the 11 bits left of them."""


def flow_file(index: int, part: int, run: str) -> str:
    """Return the name of a file of an increment; fixed positions, see the header."""
    return f"{index:012d}-{part:05d}-{run}.parquet"


def merged_file(epoch: int, run: str) -> str:
    """Return the file of an output table into which a run merges others, relative to its table."""
    return f"_runs/{flow_file(epoch, 0, f'{run}-merged')}"


def rewritten_file(epoch: int, number: int, run: str) -> str:
    """Return a file of an output table that a change of version wrote, relative to its table."""
    return f"_runs/{flow_file(epoch, number, f'{run}-change')}"


def bucket_file(bucket: int, epoch: int, run: str, number: int) -> str:
    """Return a run file of state, relative to its table."""
    return f"_runs/_bucket={bucket}/{epoch:012d}-{number:05d}-{run}.parquet"


def vectors_id(epoch: int, content: bytes) -> uuid.UUID:
    """Return the id of a file of deletion vectors: 48 bits of epoch, then 80 of its content.

    Whoever publishes again writes the same bytes under the same name, and other bytes
    under another one.
    """
    digest = hashlib.sha256(content).digest()[: _CONTENT_BITS // 8]
    return uuid.UUID(int=epoch << _CONTENT_BITS | int.from_bytes(digest))


def file_epoch(path: str) -> int | None:
    """Return the epoch whose run wrote a data file, or what it deleted, or the last one of vectors.

    `None` for names that no run gives.
    """
    match = _WRITTEN.search(path)
    if match is None:
        return None
    return int(match["data"]) if match["data"] else int(match["high"] + match["low"], 16)


def bucket_shift(buckets: int) -> int:
    """Return by how many bits an unsigned hash is shifted to give its bucket."""
    return 64 - (buckets.bit_length() - 1)


def first_bucket(part: int, *, tasks: int, buckets: int) -> int:
    """Return the first bucket of a task."""
    return -(-part * buckets // tasks)


_CONTENT_BITS = 80
_WRITTEN = re.compile(
    r"(?:^|/)(?:(?P<data>\d{12})-\d{5}-[^/]*\.(?:parquet|deletes)"
    r"|deletion_vector_(?P<high>[0-9a-f]{8})-(?P<low>[0-9a-f]{4})-[^/]*\.bin)\Z"
)


@dataclass(frozen=True, slots=True)
class FlowLayout:
    """Where one input flow's values lie in the slots.

    Attributes:
        key: Source of each key slot: a column, or the position of a computed value.
        order: Slot and source of each ordering value.
        columns: Slot of each column of the input's schema, in order.
        payload: Slot and column of every value that lies in no key or order slot.
    """

    name: str
    key: tuple[str | int, ...]
    order: tuple[tuple[str, str | int], ...]
    columns: tuple[str, ...]
    payload: tuple[tuple[str, str], ...]

    def sources(self) -> dict[str, str | int]:
        """Return slot -> source for every slot that this flow fills."""
        filled: dict[str, str | int] = {f"k{i}": source for i, source in enumerate(self.key)}
        filled.update(self.order)
        filled.update(self.payload)
        return filled


@dataclass(frozen=True, slots=True)
class ShuffleLayout:
    """The slots of one stage.

    Attributes:
        slots: Every slot with its type: key, order, payload.
        keys: Names of the key slots.
        orders: Names of the order slots.
        shared: Inputs whose records may have several destinations, by their position. What
            their groups share is the flow `len(flows) + n` of the n-th of them.

    The slot `COUNT` is there when some flow is combined or has copies; null stands for one
    record. `TO` and `MADE` are there when `shared` is not empty.
    """

    slots: tuple[tuple[str, DataType], ...]
    keys: tuple[str, ...]
    orders: tuple[str, ...]
    flows: tuple[FlowLayout, ...]
    shared: tuple[int, ...] = ()

    @property
    def tags(self) -> int:
        """How many values `_flow` has."""
        return len(self.flows) + len(self.shared)

    def tag(self, flow: int) -> int:
        """Return `_flow` of the records of an input that groups share."""
        return len(self.flows) + self.shared.index(flow)

    @property
    def sort_columns(self) -> tuple[str, ...]:
        """Columns that give the order of the header."""
        return ("_flow", "_bucket", "_hash", *self.keys, *self.orders, "_seq")


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
    """Place one flow; grows the shared slots where none of the right type is free."""
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
    taken: set[int] = set()
    payload = []
    for column in input_.schema.fields:
        if column.name not in placed:
            slot = f"p{_take(column.type, payloads, taken)}"
            payload.append((slot, column.name))
            placed[column.name] = slot
    columns = tuple(placed[name] for name in input_.schema.names)
    return FlowLayout(input_.name, key, order, columns, tuple(payload))


def _order(
    input_: InputSpec, orders: list[DataType], computed: int
) -> tuple[tuple[str, str | int], ...]:
    """Place the ordering values of a flow in ascending slots, so that the sort respects them."""
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


def _take(type_: DataType, slots: list[DataType], taken: set[int]) -> int:
    """Return the first slot of this type that the flow does not use yet."""
    for at, slot in enumerate(slots):
        if slot == type_ and at not in taken:
            taken.add(at)
            return at
    slots.append(type_)
    taken.add(len(slots) - 1)
    return len(slots) - 1
