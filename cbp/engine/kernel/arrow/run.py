"""Runs a vectorised translator on one bucket: a few calls, each of many whole groups.

    flows (sorted) ---\
                       group ranges -> calls of many groups -> outputs
    state (look-up) --/                                     '-> state: kept, died, new

The counterpart of `cbp.engine.kernel.groupwise`, without any record in Python: grouping, the
check of keys and types, the state diff and encoding are operations on columns.

Invariant: state and outputs equal those of a groupwise translator that does the same
(tests/cbp/engine/vectorised/test_forms.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from cbp.engine.columnar.arrow_types import arrow_schema
from cbp.engine.columnar.author_errors import author_error
from cbp.engine.columnar.groups import FlowRun, Int64s
from cbp.engine.kernel.arrow.emission import Emission
from cbp.engine.kernel.arrow.reader import Call, read_calls
from cbp.engine.kernel.arrow.state_diff import settle_tables
from cbp.engine.kernel.arrow.type_check import narrow
from cbp.engine.kernel.groupwise import state_file_schema
from cbp.engine.shuffle.delivery import Deliveries
from cbp.engine.state.bucket_state import BucketState
from cbp.engine.storage.engine_limits import EngineLimits
from cbp.errors import is_authors
from cbp.model.dataflow.call_rules import refuse_returned
from cbp.model.dataflow.stage import StateSpec, TranslatorSpec

__all__ = ["CallSettler", "VectorisedRun"]

_SHOWN_ROWS = 3


@dataclass
class CallSettler:
    """Writes what was emitted for calls: outputs at once, states as their difference.

    Attributes:
        write_state: Called with new records of a state, as tables that ascend by hash.
        groups: Number of groups that were called.
    """

    spec: TranslatorSpec
    states: Mapping[str, BucketState]
    write_output: Callable[[str, list[pa.Array]], None]
    write_state: Callable[[str, pa.Table], None]
    groups: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        self._files = {o.name: arrow_schema(o.schema) for o in self.spec.outputs}

    def emission(self, keys: pa.Table, *, copies: bool = True) -> Emission:
        """Return what takes the emissions of groups with these keys.

        Args:
            keys: Keys of the groups, one row each.
            copies: Whether emitted records are copied; see `Emission`.
        """
        return Emission(self.spec, keys, self._write, copies=copies)

    def settle(self, call: Call, emission: Emission) -> None:
        """Write the states of a call's groups, and count the groups."""
        self.groups += len(call.groups)
        for state in self.spec.states:
            self._settle(state, call, emission)

    def _settle(self, state: StateSpec, call: Call, emission: Emission) -> None:
        state_rows, ids = getattr(call.groups, state.name), call.groups.ids(state.name)
        emitted, emitted_ids = emission.state(state.name)
        key = self.spec.key_of(state)
        rest = [name for name in state.schema.names if name not in key]
        died, born = settle_tables(
            state_rows.select(rest), ids, emitted.select(rest), emitted_ids, groups=len(call.groups)
        )
        self.states[state.name].kill(call.origins[state.name].at(died))
        if len(born):
            hashes = call.hashes[emitted_ids[born]]
            for rows in _rows(emitted, born, hashes, state):
                self.write_state(state.name, rows)

    def _write(self, output: str, table: pa.Table) -> None:
        for part in narrow(table, self._files[output]):
            self.write_output(output, part.columns)


@dataclass
class VectorisedRun:
    """One bucket of a run; see the module header. `run` is called once.

    Attributes:
        write_state: Called with new records of a state, as tables that ascend by hash.
        limits: Tell how many records come in a call.
        deliveries: Records that the groups share, if any.
        groups: Number of groups that were called.
    """

    stage: str
    spec: TranslatorSpec
    runs: Sequence[FlowRun]
    states: dict[str, BucketState]
    write_output: Callable[[str, list[pa.Array]], None]
    write_state: Callable[[str, pa.Table], None]
    limits: EngineLimits = field(kw_only=True)
    deliveries: Deliveries | None = field(default=None, kw_only=True)
    groups: int = field(init=False, default=0)

    def run(self) -> None:
        """Call the author for all groups of this bucket."""
        settler = CallSettler(self.spec, self.states, self.write_output, self.write_state)
        _, calls = read_calls(
            self.spec, self.runs, self.states, limits=self.limits, deliveries=self.deliveries
        )
        for call in calls:
            if not len(call.groups):
                continue
            emission = settler.emission(call.groups.keys)
            self._emit(call, emission)
            settler.settle(call, emission)
        self.groups = settler.groups

    def _emit(self, call: Call, emission: Emission) -> None:
        """Call the author's code for the groups of a call; it emits into `emission`."""
        try:
            refuse_returned(self.spec.translate(call.groups, emission.out))
        except BaseException as exc:
            if not is_authors(exc):
                raise
            names = [*(i.name for i in self.spec.inputs), *(s.name for s in self.spec.states)]
            inputs = {name: _first(getattr(call.groups, name)) for name in names}
            raise author_error(exc, self.spec, stage=self.stage, inputs=inputs) from exc


def _rows(emitted: pa.Table, born: Int64s, hashes: Int64s, state: StateSpec) -> Iterator[pa.Table]:
    """Return new records as tables in the schema of a run file."""
    everything = len(born) == emitted.num_rows and np.array_equal(born, np.arange(len(born)))
    table = emitted if everything else emitted.take(pa.array(born))
    table = table.append_column("_hash", pa.array(hashes, pa.int64()))
    return narrow(table, state_file_schema(state))


def _first(table: pa.Table) -> list[tuple[object, ...]]:
    return [tuple(row.values()) for row in table.slice(0, _SHOWN_ROWS).to_pylist()]
