"""One bucket of a run of a vectorised translator: some calls, each of many whole groups.

    flows (sorted) ---\
                       group ranges -> one call per CALL_ROWS -> outputs
    state (look-up) --/                                     '-> state: kept, died, new

The counterpart of `cbp.engine.bucket` without a record in Python anywhere: grouping, the
check of keys and types, settling and encoding are operations on columns.

Invariant: state and outputs are those of a groupwise translator that does the same
(tests/cbp/engine/vectorised/test_forms.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from cbp.engine.arrow import arrow_schema
from cbp.engine.bucket import state_file_schema
from cbp.engine.call import author_error
from cbp.engine.deliveries import Deliveries
from cbp.engine.groups import FlowRun, Int64s
from cbp.engine.state.bucket import BucketState
from cbp.engine.vectorised.conform import narrow
from cbp.engine.vectorised.emission import Emission
from cbp.engine.vectorised.reader import Call, read_calls
from cbp.engine.vectorised.settle import settle_tables
from cbp.model.stage import StateSpec, TranslatorSpec

__all__ = ["VectorisedRun"]

_SHOWN_ROWS = 3


@dataclass
class VectorisedRun:
    """See the module header; `run` is called once.

    Attributes:
        write_state: Takes new records of a state, as tables that ascend by hash.
        deliveries: What the groups share, if anything.
        groups: Number of groups that were called.
    """

    stage: str
    spec: TranslatorSpec
    runs: Sequence[FlowRun]
    states: dict[str, BucketState]
    write_output: Callable[[str, list[pa.Array]], None]
    write_state: Callable[[str, pa.Table], None]
    deliveries: Deliveries | None = field(default=None, kw_only=True)
    groups: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        self._files = {o.name: arrow_schema(o.schema) for o in self.spec.outputs}

    def run(self) -> None:
        """Call the author for all groups of this bucket."""
        hashes, calls = self.read()
        self.begin(hashes)
        for call in calls:
            self._work(call)

    def read(self) -> tuple[Int64s, Iterable[Call]]:
        """Return the hashes that are called, ascending, and the calls for them."""
        return read_calls(self.spec, self.runs, self.states, deliveries=self.deliveries)

    def begin(self, hashes: Int64s) -> None:
        """Take notice of the hashes that are called, before any of them is."""

    def emit(self, call: Call, emission: Emission) -> None:
        """Let the author's code emit what becomes of the groups of a call."""
        try:
            self.spec.translate(call.groups, emission.out)
        except Exception as exc:
            names = [*(i.name for i in self.spec.inputs), *(s.name for s in self.spec.states)]
            inputs = {name: _first(getattr(call.groups, name)) for name in names}
            raise author_error(exc, self.spec, stage=self.stage, inputs=inputs) from exc

    def _work(self, call: Call) -> None:
        if not len(call.groups):
            return
        emission = Emission(self.spec, call.groups.keys, self._write)
        self.emit(call, emission)
        self.groups += len(call.groups)
        for state in self.spec.states:
            self._settle(state, call, emission)

    def _settle(self, state: StateSpec, call: Call, emission: Emission) -> None:
        found, ids = getattr(call.groups, state.name), call.groups.ids(state.name)
        emitted, emitted_ids = emission.state(state.name)
        key = self.spec.key_of(state)
        rest = [name for name in state.schema.names if name not in key]
        died, born = settle_tables(
            found.select(rest), ids, emitted.select(rest), emitted_ids, groups=len(call.groups)
        )
        self.states[state.name].kill(call.origins[state.name].at(died))
        if len(born):
            hashes = call.hashes[emitted_ids[born]]
            for rows in _rows(emitted, born, hashes, state):
                self.write_state(state.name, rows)

    def _write(self, output: str, table: pa.Table) -> None:
        for part in narrow(table, self._files[output]):
            self.write_output(output, part.columns)


def _rows(emitted: pa.Table, born: Int64s, hashes: Int64s, state: StateSpec) -> Iterator[pa.Table]:
    """Return new records as the tables of a run file."""
    everything = len(born) == emitted.num_rows and np.array_equal(born, np.arange(len(born)))
    table = emitted if everything else emitted.take(pa.array(born))
    table = table.append_column("_hash", pa.array(hashes, pa.int64()))
    return narrow(table, state_file_schema(state))


def _first(table: pa.Table) -> list[tuple[object, ...]]:
    return [tuple(row.values()) for row in table.slice(0, _SHOWN_ROWS).to_pylist()]
