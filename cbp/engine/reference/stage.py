"""One stage of the reference engine: runs one epoch of groups or of single records.

`cbp.engine.reference.routing` finds the groups; this module calls them in order and settles their
state. Every output gets one increment per epoch, in visiting order, even if it is empty. After the
groups, the records of inputs without `route_by` follow, one call for each, in the order of arrival.
A vectorised stage is called once, with the tables of all groups in their order.

Guarantee: an epoch that fails changes nothing, so it can be run again
(tests/cbp/engine/reference/test_engine.py).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from itertools import chain
from types import MappingProxyType
from typing import Any

from cbp.engine.columnar.kept_records import Deletion, KeptRecords, changes_of, kept_shape
from cbp.engine.columnar.key_hash import key_hash
from cbp.engine.columnar.looked_up import LookedUp
from cbp.engine.columnar.values import Row, row_order, typed_row
from cbp.engine.interface.runs import require_no_spark
from cbp.engine.reference.arrow import call_arrow
from cbp.engine.reference.call import (
    AuthorCall,
    Emitter,
    ListedRecords,
    author_record,
    put_and_delete,
    record_type,
)
from cbp.engine.reference.routing import Bindings, Group, Key, Part, Routed, key_of, route_records
from cbp.engine.reference.set_aside import Aside, SetAside, by_input
from cbp.engine.reference.supersteps import Aggregates, Superstep, run_supersteps
from cbp.engine.reference.views import group_changes
from cbp.engine.reference.whole_run import call_run
from cbp.engine.shuffle.merged_records import merge_records
from cbp.errors import AuthorCodeError
from cbp.model.dataflow.call_rules import Fresh, Watches, refuse_returned
from cbp.model.dataflow.equality import identity
from cbp.model.dataflow.expiry import authored, expires_at
from cbp.model.dataflow.run_context import NO_RUN, RunContext
from cbp.model.dataflow.stage import TIMER_COLUMN, InputSpec, StateSpec, TranslatorSpec
from cbp.model.flow.schema import Schema

_Order = tuple[Any, ...]
_COUNTED = ("groups", "deliveries", "dead_letters")


@dataclass
class ReferenceStage:
    """One stage with its state; `run` executes one epoch.

    Attributes:
        state: State name to key to the records of that key.
        bindings: Per epoch, its bindings to multicast addresses; the length is the next epoch.
        parts_of: Cuts the records of a group into the lists that its combiner is called with.
        set_aside_max: As in `StageNode`.
        aside: The set-aside records, in the order in which they are given back.
        figures: Counts of the last epoch: `records_in`, `deliveries` (pairs of record and group),
            `groups`, `records_out`, `state_remote` (remote writes), `bindings`, `dead_letters`.
    """

    name: str
    spec: TranslatorSpec
    state: dict[str, dict[Key, list[Row]]] = field(default_factory=dict)
    bindings: list[Bindings] = field(default_factory=list)
    figures: Mapping[str, int] = field(default_factory=dict)
    parts_of: Callable[[list[Any]], list[list[Any]]] = field(default_factory=lambda: whole)
    set_aside_max: int | None = None
    aside: list[Aside] = field(default_factory=list)
    _translate: Callable[..., object] = field(init=False)
    _fresh: Fresh = field(init=False)
    _watches: Watches = field(init=False)
    _bound: Bindings = field(init=False)
    _context: RunContext = field(init=False)
    _anew: Collection[Key] | None = field(init=False, default=None)
    _lookups: Mapping[str, Mapping[Key, Sequence[Row]]] = field(init=False)
    _aside: SetAside = field(init=False)

    def __post_init__(self) -> None:
        for state in self.spec.states:
            self.state.setdefault(state.name, {})

    def run(
        self,
        inputs: Mapping[str, Sequence[Sequence[Row]]],
        *,
        epochs: Mapping[str, Sequence[int]] | None = None,
        context: RunContext = NO_RUN,
        lookups: Mapping[str, Mapping[Key, Sequence[Row]]] = MappingProxyType({}),
        anew: Collection[Key] | None = None,
        gives_back: bool = False,
        refused: Mapping[str, Sequence[tuple[Row, tuple[str, str]] | None]] = MappingProxyType({}),
    ) -> dict[str, list[Row]]:
        """Execute one epoch; return the records of each output, in the order of emission.

        Args:
            inputs: Input name to increments to records, as tuples of the input's columns.
            epochs: Loopback name to the epochs of this stage that wrote its increments.
            lookups: Look-up name to key to the records of that key, as tuples of its columns.
            anew: The keys of groups that are recomputed: each gets no state, and a group
                without records has no state afterwards. `None` means an ordinary epoch.
            gives_back: Whether the inputs are the set-aside records (`aside`).
            refused: Framed input to one entry per record: code and message if it has no framing
                key, and so is not among `inputs`; otherwise `None`.
        """
        require_no_spark(self.name, self.spec)
        self._fresh = Fresh(self.spec, stage=self.name)
        self._translate = self._fresh.function
        self._watches = Watches(self.spec, stage=self.name)
        self._context, self._lookups, self._anew = context, lookups, anew
        before = () if gives_back else self.aside
        given = by_input(self.aside) if gives_back else {}
        epoch = len(self.bindings)
        self._aside = SetAside(self.spec, self.set_aside_max, epoch, before, given)
        for name, every in refused.items():
            self._aside.take_refused(self.name, name, every)
        run = partial(self._superstep, epochs or {})
        if self.spec.supersteps > 1:
            done = run_supersteps(self.spec, self.state, inputs, run, self._visiting_order)
        else:
            done = run(inputs, True, {})
        self.bindings.append(self._bound)
        self.figures = done.figures
        return done.outputs

    def _superstep(
        self,
        epochs: Mapping[str, Sequence[int]],
        inputs: Mapping[str, Sequence[Sequence[Row]]],
        first: bool,
        aggregates: Aggregates,
    ) -> Superstep:
        self._context = replace(self._context, aggregates=aggregates)
        done = _Epoch(self._no_outputs(), timers=first)
        done.figures["records_in"] = sum(len(rows) for many in inputs.values() for rows in many)
        woken = first and self._woken(self._context.time, self._aside.left_out)
        if done.figures["records_in"] or woken:
            for part in self.spec.parts():
                if part.record_wise:
                    self._run_records(part, inputs, done)
                else:
                    self._run_groups(part, self._parts(inputs, epochs if first else {}), done)
        self._fresh.check()
        self._watches.check()
        for state in self.spec.replaced if self._anew is not None else ():
            written = done.local.get(state.name, {})
            keys = sorted(self._anew or (), key=self._visiting_order)
            done.local[state.name] = {key: written.get(key, []) for key in keys}
        # State changes only now, so that an epoch that fails half-way changes nothing.
        self.aside = self._aside.after()
        self._bound = done.bindings
        self._settle_states(done)
        figures = {
            **done.figures,
            "state_remote": sum(len(each) for each in done.remote.values()),
            "bindings": sum(map(len, done.bindings.values())),
            "records_out": sum(map(len, done.outputs.values())),
        }
        return Superstep(done.outputs, done.keys, figures)

    def _no_outputs(self) -> dict[str, list[Row]]:
        aggregates = (one.output for one in self.spec.aggregates)
        return {one.name: [] for one in (*self.spec.outputs, *aggregates)}

    def _settle_states(self, done: _Epoch) -> None:
        for view in self.spec.views:
            records = self.state[view.name]
            for key, rows in done.local.get(view.name, {}).items():
                done.outputs[view.changes] += group_changes(view, records.get(key, ()), rows)
        for state in self.spec.replaced:
            _settle(self.state[state.name], state.name, done)
        for state in self.spec.kept:
            records, shape = self.state[state.name], kept_shape(state)
            for key, operations in done.kept.get(state.name, {}).items():
                before = records.get(key, ())
                put_and_delete(records, key, shape, changes_of(shape, operations))
                if state.changes:
                    after = records.get(key, ())
                    done.outputs[state.changes] += group_changes(state, before, after)

    def woken(self, until: datetime) -> list[Key]:
        """Return the keys with a due timer, except groups whose records are set aside."""
        return self._woken(until, {one.key for one in self.aside})

    def _woken(self, until: datetime, waiting: Collection[Key | None]) -> list[Key]:
        due = (key for spec in self.spec.timers for key in self._due(spec, until))
        return [key for key in due if key not in waiting]

    def _due(self, timers: StateSpec, until: datetime) -> list[Key]:
        at = timers.schema.index(TIMER_COLUMN)
        records = self.state[timers.name].items()
        return [key for key, rows in records if any(row[at] <= until for row in rows)]

    def _parts(
        self, inputs: Mapping[str, Sequence[Sequence[Row]]], epochs: Mapping[str, Sequence[int]]
    ) -> dict[str, list[Part]]:
        """Return the increments by input; for loopbacks, with the bindings of their epochs."""
        parts = {name: [Part(rows) for rows in many] for name, many in inputs.items()}
        for name, wrote in epochs.items():
            pairs = zip(inputs[name], wrote, strict=True)
            parts[name] = [Part(rows, self.bindings[epoch]) for rows, epoch in pairs]
        return parts

    def _run_records(
        self, part: TranslatorSpec, inputs: Mapping[str, Sequence[Sequence[Row]]], done: _Epoch
    ) -> None:
        for input_ in part.inputs:
            for arrival, row in enumerate(chain(*inputs.get(input_.name, ()))):
                done.figures["groups"] += 1
                done.figures["deliveries"] += 1
                try:
                    done.take(self._call_for(input_, row))
                except AuthorCodeError as error:
                    self._aside.take_record(input_.name, row, arrival, error)

    def _call_for(self, input_: InputSpec, row: Row) -> Emitter:
        record = author_record(input_.name, input_.schema, row)
        flows: dict[str, list[Row]] = {each.name: [] for each in self.spec.inputs}
        flows |= {state.name: [] for state in self.spec.states}
        emitter = Emitter(self.spec)
        with AuthorCall(self.name, self.spec, inputs={input_.name: [row]}):
            if self.spec.takes_record:
                refuse_returned(self._translate(record, emitter.out))
            else:
                group = emitter.group({**flows, input_.name: [record]}, self._context)
                refuse_returned(self._translate(None, group, emitter.out))
        return emitter

    def _run_groups(
        self, part: TranslatorSpec, parts: Mapping[str, Sequence[Part]], done: _Epoch
    ) -> None:
        failed = None if self.set_aside_max is None else self._aside.take_record
        routed = route_records(self.name, part, parts, self.state, failed)
        time = self._context.time
        for timers in authored(self.spec).timers if done.timers else ():
            for key in self._due(timers, time):
                routed.groups.setdefault(key, {})
        expired = {timers.expires: set(self._due(timers, time)) for timers in self.spec.expiries}
        for key in self._aside.left_out:
            self._aside.take_group(key, self._without(key, routed.groups, expired))
        for key, error in self._failing(sorted(routed.groups, key=self._visiting_order), routed):
            self._aside.take_group(key, self._without(key, routed.groups, expired), error)
        visited = sorted({*routed.groups}.union(*expired.values()), key=self._visiting_order)
        done.keys += visited
        if self.spec.form == "run":
            self._call_run(routed.groups, visited, done)
        elif self.spec.form == "arrow":
            if called := [key for key in visited if key in routed.groups]:
                given = {key: self._flows(key, routed.groups[key]) for key in called}
                self._call_vectorised(given, done)
        else:
            for key in visited:
                if key in routed.groups:
                    done.take(self._call(key, routed.groups[key]), key)
        self._expire(visited, routed.groups, expired, done)
        done.figures.update(
            groups=1 if self.spec.form == "run" else len(routed.groups),
            deliveries=routed.deliveries,
            dead_letters=routed.dead_letters,
        )

    @staticmethod
    def _without(key: Key, groups: dict[Key, Group], expired: Mapping[str, set[Key]]) -> Group:
        for keys in expired.values():
            keys.discard(key)
        return groups.pop(key, {})

    def _failing(
        self, keys: Sequence[Key], routed: Routed
    ) -> Iterator[tuple[Key, AuthorCodeError]]:
        """Yield the groups on which the author's code fails, if such groups are set aside."""
        if self.set_aside_max is None:
            return
        for key in keys:
            trial = _Epoch(self._no_outputs())
            try:
                if self.spec.form == "arrow":
                    self._call_vectorised({key: self._flows(key, routed.groups[key])}, trial)
                else:
                    trial.take(self._call(key, routed.groups[key]), key)
            except AuthorCodeError as error:
                yield key, error

    def _expire(
        self,
        visited: Sequence[Key],
        called: Collection[Key],
        expired: Mapping[str, Collection[Key]],
        done: _Epoch,
    ) -> None:
        """Drop expired records of uncalled groups, and set the timers of called groups.

        `visited` has all keys that are called, or for which a state has `expired` records.
        """
        for timers in self.spec.expiries:
            state = self.spec.state(timers.expires)
            emitted = done.kept if state.keep else done.local
            by_key = emitted.get(state.name, {})
            emitted[state.name] = written = {}
            new = done.local[timers.name] = {}
            at = expires_at(self._context.time, state.expire_ms)
            for key in visited:
                if key in called:
                    written[key] = rows = by_key.get(key, [])
                    had = state.keep and key in self.state[timers.name]
                    new[key] = [(*key, at)] if rows or had else []
                elif key in expired[state.name]:
                    known = self.state[state.name].get(key, ()) if state.keep else ()
                    gone: list[Any] = [Deletion(kept_shape(state).second_of(row)) for row in known]
                    written[key] = gone
                    new[key] = []

    def _visiting_order(self, key: Key) -> _Order:
        assert self.spec.key is not None, "a record-wise stage has no groups"
        types = [column.type for column in self.spec.key.fields]
        return key_hash(key, types) & (2**64 - 1), row_order(key, types)

    def _call(self, key: Key, group: Group) -> Emitter:
        flows = self._flows(key, group)
        emitter = Emitter(self.spec, key)
        assert self.spec.key is not None, "a record-wise translator has no key"
        with AuthorCall(self.name, self.spec, key=key, inputs=flows):
            group = emitter.group(flows, self._context)
            key_class = record_type("key", self.spec.key)
            refuse_returned(self._translate(key_class(*key), group, emitter.out))
        return emitter

    def _call_vectorised(self, groups: Mapping[Key, dict[str, list[Any]]], done: _Epoch) -> None:
        spec = authored(self.spec)
        spec_now = replace(spec, translate=self._translate)
        emitted, written = call_arrow(self.name, spec_now, groups, self._context)
        for output in self.spec.emitted:
            done.outputs[output.name].extend(emitted[output.name])
        for state in spec.states:
            by_key = {key: rows[state.name] for key, rows in written.items()}
            (done.kept if state.keep else done.local)[state.name] = by_key

    def _call_run(self, groups: Mapping[Key, Group], visited: Sequence[Key], done: _Epoch) -> None:
        records = {
            one.name: [
                row
                for key in visited
                for _, row in sorted(groups[key].get(one.name, ()), key=lambda pair: pair[0])
            ]
            for one in self.spec.inputs
        }
        spec = replace(self.spec, translate=self._translate)
        changed = call_run(self.name, spec, records, self.state, self._context)
        for name, by_key in changed.items():
            keys = sorted(by_key, key=self._visiting_order)
            done.kept[name] = {key: by_key[key] for key in keys}

    def _flows(self, key: Key, group: Group) -> dict[str, Any]:
        flows: dict[str, Any] = {}
        for input_ in self.spec.inputs:
            records = sorted(group.get(input_.name, ()), key=lambda record: record[0])
            rows = [author_record(input_.name, input_.schema, row) for _, row in records]
            flows[input_.name] = self._combined(input_, rows, key)
        for state in authored(self.spec).replaced:
            known = () if self._anew is not None else self.state[state.name].get(key, ())
            rows = _in_order(state, known)
            flows[state.name] = [author_record(state.name, state.schema, row) for row in rows]
        for state in self.spec.kept:
            rows = self.state[state.name].get(key, [])
            flows[state.name] = KeptRecords(kept_shape(state), ListedRecords(state, rows))
        return flows | self._looked_up(key)

    def _looked_up(self, key: Key) -> dict[str, Any]:
        flows: dict[str, Any] = {}
        for one in self.spec.lookups:
            table, records = self._lookups[one.name], one.records
            rows = table.get(key, ()) if one.by else chain.from_iterable(table.values())
            if one.key:
                reader = ListedRecords(records, list(rows))
                flows[one.name] = KeptRecords(kept_shape(records), reader)
            else:
                made = [author_record(one.name, one.schema, r) for r in _in_order(records, rows)]
                flows[one.name] = LookedUp(made, one.name)
        return flows

    def _combined(self, input_: InputSpec, rows: list[Any], key: Key) -> list[Any]:
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
                combine: Callable[[list[Any]], Iterable[Any]]
                combine = partial(merge_records, input_=input_)
                if input_.combine.function is not None:
                    combine = self._watches.fresh(input_.combine.function, function, place)
                fewer = list(combine(list(part)))
                if not 0 < len(fewer) <= len(part):
                    message = f"returned {len(fewer)} records when combining {len(part)}"
                    message += f"; expected 1 to {len(part)}"
                    raise ValueError(message)
                made = [make(*typed_row(tuple(row), input_.schema)) for row in fewer]
                for row in made:
                    (own_key,) = key_of(self.name, self.spec, input_, row)
                    if own_key != key:
                        message = f"returned key {own_key!r} when combining records of key {key!r}"
                        raise ValueError(message)
                combined += made
        return combined


def whole(rows: list[Any]) -> list[list[Any]]:
    """Give a combiner all records of a group in one call."""
    return [rows]


@dataclass
class _Epoch:
    """The records that the calls of one epoch emitted.

    Attributes:
        timers: Whether groups are called for timers that are due.
        keys: The keys of the groups, in the order in which they were visited.
        local: State name to called key to the records that the group emitted for itself.
        remote: State name to (key, record) pairs, written by other groups.
        kept: Kept state to called key to what the group put and deleted.
        bindings: Address to keys.
    """

    outputs: dict[str, list[Row]]
    timers: bool = True
    keys: list[Key] = field(default_factory=list)
    local: dict[str, dict[Key, list[Row]]] = field(default_factory=dict)
    remote: dict[str, list[tuple[Key, Row]]] = field(default_factory=dict)
    kept: dict[str, dict[Key, list[Row | Deletion]]] = field(default_factory=dict)
    bindings: dict[str | int, dict[Key, None]] = field(default_factory=dict)
    figures: dict[str, int] = field(default_factory=lambda: dict.fromkeys(_COUNTED, 0))

    def take(self, emitter: Emitter, key: Key | None = None) -> None:
        for name, rows in emitter.outputs.items():
            self.outputs[name].extend(rows)
        for name, rows in emitter.states.items():
            if key is not None:
                self.local.setdefault(name, {})[key] = rows
            self.remote.setdefault(name, []).extend(emitter.remote[name])
        for name, operations in emitter.kept.items():
            if key is not None:
                self.kept.setdefault(name, {})[key] = operations
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
    at = [state.schema.index(name) for name in (*state.order_by, *state.second_key)]
    types = [state.schema.fields[place].type for place in at]
    every = ordered_rows(rows, state.schema)
    return sorted(every, key=lambda row: row_order([row[place] for place in at], types))


def ordered_rows(rows: Iterable[Row], schema: Schema) -> list[Row]:
    """Return records ordered by all columns, nulls first."""
    types = [column.type for column in schema.fields]
    return sorted(rows, key=lambda row: row_order(row, types))
