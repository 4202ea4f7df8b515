"""Runs a vectorised translator on one bucket: a few calls, each of many complete groups.

    flows (sorted) ---\
                       group ranges -> calls of many groups -> outputs
    state (look-up) --/                                     '-> state: kept, died, new

The counterpart of `cbp.engine.kernel.groupwise`, without any record in Python: grouping, the
check of keys and types, the state diff and encoding are operations on columns.

Invariant: state and outputs equal those of a groupwise translator that does the same
(tests/cbp/engine/vectorised/test_forms.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from cbp.engine.columnar.arrow_types import arrow_schema
from cbp.engine.columnar.author_errors import author_error
from cbp.engine.columnar.groups import FlowRun
from cbp.engine.columnar.values import Row, typed_row, unify
from cbp.engine.kernel.arrow.emission import Emission
from cbp.engine.kernel.arrow.expiry import CallExpiry
from cbp.engine.kernel.arrow.groups import Groups, first_rows
from cbp.engine.kernel.arrow.kept_state import CalledRecords, KeptCall, write_rows
from cbp.engine.kernel.arrow.kept_tables import kept_tables
from cbp.engine.kernel.arrow.reader import Call, read_calls
from cbp.engine.kernel.arrow.state_diff import settle_tables, take_rows
from cbp.engine.kernel.arrow.type_check import narrow
from cbp.engine.kernel.expiry import Timers
from cbp.engine.kernel.view_changes import ViewChanges
from cbp.engine.shuffle.delivery import Deliveries
from cbp.engine.state.bucket_state import BucketState
from cbp.engine.state.due_groups import Woken
from cbp.engine.storage.engine_limits import EngineLimits
from cbp.errors import is_authors
from cbp.model.dataflow.call_rules import refuse_returned
from cbp.model.dataflow.run_context import NO_RUN, RunContext
from cbp.model.dataflow.stage import TIMER_COLUMN, StateSpec, TranslatorSpec


@dataclass
class CallSettler:
    """Writes the emissions of calls: outputs immediately, states as their difference."""

    spec: TranslatorSpec
    states: Mapping[str, BucketState]
    write_output: Callable[[str, list[pa.Array]], None]
    write_state: Callable[[str, pa.Table], None]
    context: RunContext = NO_RUN
    groups: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        self._files = {o.name: arrow_schema(o.schema) for o in self.spec.emitted}
        self._call: Call | None = None
        self._kept: dict[str, KeptCall] = {}

    def emission(self, keys: pa.Table, *, copies: bool = True) -> Emission:
        """Return the collector for emissions of groups with these keys; the caller closes it."""
        return Emission(self.spec, keys, self._write, copies=copies)

    def settle(self, call: Call, emission: Emission) -> None:
        """Write the states of a call's groups, and count the groups that were called."""
        self.groups += len(call.groups) if call.called is None else len(call.called)
        timers: Mapping[str, Timers] = {}
        if call.called is not None:
            emission.of_groups(call.called)
        if call.called is not None and self.spec.expiries:
            expiry = CallExpiry(self.spec, call.groups, self.context.time, call.called)
            timers = expiry.complete(emission)
        for state in self.spec.replaced:
            if state.name in timers:
                self._settle_timers(state, call, timers[state.name])
            else:
                self._settle(state, call, emission)
        for state in self.spec.kept:
            operations, dropped = emission.operations(state.name)
            if operations or len(dropped):
                kept = self.kept(state, call)
                kept.settle(operations, dropped, self.write_output, self.write_state)

    def kept(self, state: StateSpec, call: Call) -> KeptCall:
        """Return a kept state for the groups of a call; its records are read when they are used."""
        if self._call is not call:
            self._call, self._kept = call, {}
        if state.name not in self._kept:
            files, keys = self.states[state.name], call.groups.keys
            self._kept[state.name] = KeptCall(
                state, self.spec, files, keys=keys, hashes=call.hashes
            )
        return self._kept[state.name]

    def _settle_timers(self, state: StateSpec, call: Call, timers: Timers) -> None:
        self.states[state.name].kill(call.origins[state.name].at(timers.died))
        groups = timers.groups
        if len(groups):
            type_ = arrow_schema(state.schema).field(TIMER_COLUMN).type
            at = pa.repeat(pa.scalar(timers.at, type_), len(groups))
            keys = call.groups.keys.take(pa.array(groups)).append_column(TIMER_COLUMN, at)
            records = keys.select(list(state.schema.names))
            write_rows(self.write_state, state, records, call.hashes[groups])

    def _settle(self, state: StateSpec, call: Call, emission: Emission) -> None:
        state_rows, ids = getattr(call.groups, state.name), Groups.ids(call.groups, state.name)
        emitted, emitted_ids = emission.state(state.name)
        key = self.spec.key_of(state)
        rest = [name for name in state.schema.names if name not in key]
        died, born = settle_tables(
            state_rows.select(rest), ids, emitted.select(rest), emitted_ids, groups=len(call.groups)
        )
        self.states[state.name].kill(call.origins[state.name].at(died))
        if state.changes:
            gone, new = take_rows(state_rows, died), take_rows(emitted, born)
            ViewChanges(state, self.write_output).write(gone, ids[died], new, emitted_ids[born])
        if len(born):
            hashes = call.hashes[emitted_ids[born]]
            write_rows(self.write_state, state, take_rows(emitted, born), hashes)

    def _write(self, output: str, table: pa.Table) -> None:
        for part in narrow(table, self._files[output]):
            self.write_output(output, part.columns)


@dataclass
class VectorisedRun:
    """One bucket of a run; see the module header. `run` is called once."""

    stage: str
    spec: TranslatorSpec
    runs: Sequence[FlowRun]
    states: dict[str, BucketState]
    write_output: Callable[[str, list[pa.Array]], None]
    write_state: Callable[[str, pa.Table], None]
    limits: EngineLimits = field(kw_only=True)
    deliveries: Deliveries | None = field(default=None, kw_only=True)
    context: RunContext = field(default=NO_RUN, kw_only=True)
    woken: Woken | None = field(default=None, kw_only=True)
    lookups: Mapping[str, BucketState] = field(default_factory=dict, kw_only=True)
    whole_tables: Mapping[str, pa.Table] = field(default_factory=dict, kw_only=True)
    groups: int = field(init=False, default=0)

    def run(self) -> None:
        """Call the author for all groups of this bucket."""
        settler = CallSettler(
            self.spec, self.states, self.write_output, self.write_state, self.context
        )
        _, calls = read_calls(
            self.spec,
            self.runs,
            {**self.states, **self.lookups},
            limits=self.limits,
            deliveries=self.deliveries,
            woken=self.woken,
            whole_tables=self.whole_tables,
        )
        for call in calls:
            if not len(call.groups):
                continue
            if self.spec.anew:
                sizes = Groups.sizes(call.groups, self.spec.anew)
                call = replace(call, called=np.flatnonzero(sizes == 0))
            given = self._given(call, settler)
            with closing(settler.emission(given.keys)) as emission:
                if len(given):
                    self._emit(given, emission)
                settler.settle(call, emission)
        self.groups = settler.groups

    def _given(self, call: Call, settler: CallSettler) -> Groups:
        """Return the author's arguments: groups that are not idle, without hidden timers."""
        groups, numbers = call.groups, np.arange(len(call.groups))
        if call.called is not None:
            hidden, numbers = {timers.name for timers in self.spec.expiries}, call.called
            groups = Groups.only(groups, numbers, hidden={*hidden, self.spec.anew})
        if self.spec.anew:
            groups = Groups.without_records(groups, [one.name for one in self.spec.replaced])
        if not self.spec.kept:
            return groups
        readers = {
            one.name: CalledRecords(settler.kept(one, call), numbers) for one in self.spec.kept
        }
        return Groups.with_kept(groups, kept_tables(self.spec, readers))

    def _emit(self, given: Groups, emission: Emission) -> None:
        try:
            groups = Groups.of_run(given, self.context, self.spec)
            refuse_returned(self.spec.translate(groups, emission.out))
            emission.check_views()
        except BaseException as exc:
            if not is_authors(exc):
                raise
            kept = {state.name for state in self.spec.kept}
            states = (*self.spec.authored, *self.spec.looked_up)
            names = [i.name for i in self.spec.inputs if i.name != self.spec.anew]
            names += [s.name for s in states if s.name not in kept]
            inputs = {name: first_rows(getattr(given, name)) for name in names}
            key = self._only_key(given)
            raise author_error(exc, self.spec, stage=self.stage, key=key, inputs=inputs) from exc

    def _only_key(self, given: Groups) -> Row | None:
        """Return the key of the group that failed; `None` if it is one of several."""
        assert self.spec.key is not None, "a vectorised translator has a key"
        if len(given) != 1:
            return None
        (values,) = given.keys.to_pylist()
        return unify(typed_row(tuple(values.values()), self.spec.key))
