"""Calls the author's function: its arguments `group` and `out`, and how errors are located.

Python's own call checks column names immediately. Types are checked on whole columns, when the
window is encoded. If that fails, the groups of the window are called again with `checked=True`, so
that the error names the author's line: translators are deterministic, so the same record fails
again.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from typing import Any, NoReturn

from cbp.engine.columnar.kept_records import Deletion, KeptShape, kept_shape
from cbp.engine.columnar.row_codec import check_row, emit_function
from cbp.engine.columnar.values import Row, bound_key, typed_row, unify
from cbp.engine.shuffle.multicast_bindings import Binding
from cbp.model.author.read_once import Once
from cbp.model.dataflow import call_rules
from cbp.model.dataflow.routing import checked_address
from cbp.model.dataflow.run_context import HIDDEN, RunContext
from cbp.model.dataflow.stage import TranslatorSpec
from cbp.model.flow.schema import Schema


class _Namespace:
    """The object on which an author calls functions by name; it holds only these functions."""

    @property
    def _flow_names(self) -> tuple[str, ...]:
        return tuple(vars(self))

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise call_rules.nothing_is_kept(name)


_Namespace.__name__ = "out"  # as Python's errors name it, such as "'out' object is not callable"


_YOUNG_OBJECTS_MAX = 10_000


def free_cycles() -> None:
    """Free the author's reference cycles; automatic collection is off (`TaskWriters.report`)."""
    if gc.get_count()[0] > _YOUNG_OBJECTS_MAX:
        gc.collect(0)


@lru_cache(maxsize=1024)
def group_type(flows: tuple[str, ...]) -> type:
    """Return the class of the `group` that a translator is given; one slot per flow."""
    run = {} if "run" in flows else {"run": HIDDEN}
    return type("group", (), {"__slots__": flows, "_flow_names": flows, **run})


def new_group(flows: tuple[str, ...], spec: TranslatorSpec, context: RunContext) -> Any:
    """Return a `group` for the calls of a run; it has the run's context if the code reads it."""
    type_ = group_type(flows)
    if spec.gives_run or context.aggregates:
        names = {"__slots__": (), "_flow_names": (*flows, *context.aggregates)}
        run = {"run": context} if spec.gives_run else {}
        type_ = type("group", (type_,), {**names, **run, **context.aggregates})
    return type_()


@lru_cache(maxsize=1024)
def calling_loop(
    flows: tuple[str, ...],
    states: tuple[str, ...],
    watched: frozenset[str] = frozenset(),
    kept: frozenset[str] = frozenset(),
) -> Callable[..., None]:
    """Return `loop(keys, flows, done, translate, group, out, buffers, ends)`: one call per group.

    It is compiled for the flows' names, which are checked identifiers, as `emit_function` is: so
    the loop costs only a fraction of the author's code. `done` counts up before each group, and so
    identifies the one that fails; `ends` gets the number of emissions after each group. A second
    reading of a `watched` flow is an error (`cbp.model.author.read_once`); groups of `kept` flows
    are objects, passed unchanged.
    """
    groups = [f"g{i}" for i in range(len(flows))]
    marks = [f"m{i}" for i in range(len(states))]
    once = {name: f"w{at}" for at, name in enumerate(flows) if name in watched}
    lines = [
        "def loop(keys, flows, done, translate, group, out, buffers, ends):",
        *(f"    group.{name} = {one} = once((), {name!r})" for name, one in once.items()),
        *(f"    {mark}, b{i} = ends[{i}].append, buffers[{i}]" for i, mark in enumerate(marks)),
        f"    for key, _, {', '.join(groups)} in zip(keys, done, *flows):",
        *(
            f"        {once[name]}._given = {g}"
            if name in once
            else f"        group.{name} = {g if name in kept else f'iter({g})'}"
            for name, g in zip(flows, groups, strict=True)
        ),
        "        given = translate(key, group, out)",
        "        if given is not None:",
        "            refuse(given)",
        *(f"        {mark}(len(b{i}))" for i, mark in enumerate(marks)),
    ]
    scope: dict[str, Any] = {"refuse": call_rules.refuse_returned, "once": Once}
    exec("\n".join(lines), scope)
    compiled_loop: Callable[..., None] = scope["loop"]
    return compiled_loop


class Emitted:
    """The records that the author's calls emitted since the buffers were last cleared.

    `buffers` has them by output or state name, and the deletions of kept states. `remote` has those
    emitted with `.remote`. `key` is the key of the called group, if each emission is checked.
    """

    def __init__(self, spec: TranslatorSpec, *, checked: bool = False) -> None:
        self.schemas: Mapping[str, Schema] = {
            **{output.name: output.schema for output in spec.emitted},
            **{state.name: state.schema for state in spec.states},
        }
        self.buffers: Mapping[str, list[Any]] = {name: [] for name in self.schemas}
        self.remote: Mapping[str, list[Row]] = {state.name: [] for state in spec.replaced}
        self._kept = {state.name: kept_shape(state) for state in spec.kept}
        self.bindings: list[Binding] = []
        self.key: Row | None = None
        self._places = {
            state.name: [state.schema.index(name) for name in spec.key_of(state).names]
            for state in spec.states
        }
        self._views = {
            view.name: [view.schema.index(name) for name in view.second_key]
            for view in spec.keyed_views
        }
        self._single = {one.name: one.key for one in spec.emitted if one.single}
        self._group_key = () if spec.key is None else spec.key.names
        self._seen: dict[str, set[Row]] = {}
        self._of_groups = not spec.record_wise
        self._key = spec.key if spec.multicasts else None
        self.out: Any = self._namespace()
        self._expiring = {state.name for state in spec.states if state.expire_ms}
        hidden = {timers.name for timers in spec.expiries}
        self._names = tuple(name for name in self.schemas if name not in hidden)
        for name in self._names:
            buffer = self.buffers[name]
            if checked:
                self._define(self.out, name, self._checked(name))
            else:
                self._define(self.out, name, buffer.append, buffer.extend)

    def clear(self) -> None:
        """Drop everything that was emitted."""
        for rows in (*self.buffers.values(), *self.remote.values(), self.bindings):
            rows.clear()

    def flushing(self, rows: int, flush: Callable[[], None]) -> Any:
        """Return an object like `out` that calls `flush` once a flow has `rows` records."""
        out = self._namespace()
        for name in self._names:
            buffer = self.buffers[name]
            if name in self._kept:
                self._define(out, name, buffer.append, buffer.extend)
            else:
                self._define(out, name, *_flushing(buffer, rows, flush))
        return out

    def _define(
        self,
        out: Any,
        name: str,
        take: Callable[[Row], None],
        put: Callable[[call_rules.Tuples], None] | None = None,
    ) -> None:
        """Add the function of an output or state to `out`; without `put` each record is checked."""
        schema = self.schemas[name]
        fields = schema.fields
        nested = {f.name: f.type for f in fields if f.type.arguments or f.type.kind == "BINARY"}
        if name in self._views and not self._of_groups:
            take, put = partial(call_rules.refuse_view_row, name), None
        emit: Any = emit_function(name, schema.names, take, nested=nested)
        # Nested values have no `put` for many records: they are copied record by record.
        emit.many = call_rules.emitting_many(name, len(fields), emit, None if nested else put)
        if name in self._views:
            emit.remote = partial(call_rules.refuse_view_row, name)
        elif name in self.remote:
            check = partial(check_row, schema=schema, emit=f"out.{name}.remote")
            far = self.remote[name].append if put is not None else check
            emit.remote = emit_function(f"{name}.remote", schema.names, far, nested=nested)
            put = None if nested or put is None else self.remote[name].extend
            emit.remote.many = call_rules.emitting_many(
                f"{name}.remote", len(fields), emit.remote, put
            )
        if name in self._expiring:
            emit.remote = partial(call_rules.refuse_expiring_remote, name)
        if name in self._kept:
            emit.delete = partial(_delete, self._kept[name], self.buffers[name])
            emit.remote = partial(call_rules.refuse_remote, name)
        vars(out)[name] = emit

    def begin(self, key: Row) -> None:
        """Begin a group whose emissions are checked."""
        self.key = key
        self._seen = {name: set() for name in (*self._views, *self._single)}

    def _namespace(self) -> Any:
        out: Any = _Namespace()
        if self._key is not None:
            vars(out)["associate"] = self.associate
        return out

    def associate(self, key: Any, address: str | int) -> None:
        """Bind a key to an address; checked here, so that an error names the author's line."""
        assert self._key is not None, "only stages with addresses have `associate`"
        self.bindings.append((checked_address(address), bound_key(key, self._key)))

    def _checked(self, name: str) -> Callable[[Row], None]:
        schema = self.schemas[name]

        def check(row: Row) -> None:
            check_row(row, schema, f"out.{name}")
            if self.key is not None and name in self._places:
                typed = typed_row(row, schema)
                key = unify([typed[place] for place in self._places[name]])
                call_rules.refuse_foreign(name, key, unify(self.key))
                if name in self._views and name not in self._kept:
                    second = unify([typed[at] for at in self._views[name]])
                    if second in self._seen[name]:
                        call_rules.refuse_twice(name, (*key, *second))
                    self._seen[name].add(second)
            if self.key is not None and name in self._single:
                self._check_output(name, typed_row(row, schema), schema)

        return check

    def _check_output(self, output: str, row: Row, schema: Schema) -> None:
        group, key = (
            unify([row[schema.index(name)] for name in names])
            for names in (self._group_key, self._single[output])
        )
        if self.key is not None and group != unify(self.key):
            call_rules.refuse_output_foreign(output, group, unify(self.key))
        if key in self._seen[output]:
            call_rules.refuse_output_twice(output, key)
        self._seen[output].add(key)


def _delete(shape: KeptShape, buffer: list[Any], *args: Any, **named: Any) -> None:
    buffer.append(Deletion(shape.given(args, named)))


def _flushing(
    buffer: list[Row], rows: int, flush: Callable[[], None]
) -> tuple[Callable[[Row], None], Callable[[call_rules.Tuples], None]]:

    def take(row: Row) -> None:
        buffer.append(row)
        if len(buffer) >= rows:
            flush()

    def put(some: call_rules.Tuples) -> None:
        buffer.extend(some)
        if len(buffer) >= rows:
            flush()

    return take, put
