"""Compile a translator's declarations to a `TranslatorSpec`, and check them.

Every mistake that can be found without data is found here. Its message names the class, the
attribute, the place (`file.py:12`), and what to do instead.

Several groups could emit records of one key of an output in one epoch. Groups are called in the
order of their hashes, which must not decide which record counts. So an output with a key either

    has all columns of the stage's key in its own: a group emits a key at most once in an epoch;
    or declares `latest_by`: the greatest record counts, whichever group emitted it;
    or declares `history`: all records of an epoch count.

In the first case, engines check that a group emits only its own key, and each key once.
"""

from __future__ import annotations

import inspect
import keyword
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, NoReturn, TypeVar

from cbp.errors import DefinitionError, Mistake
from cbp.model.author.code_fingerprint import Code, fingerprint, held_by
from cbp.model.dataflow.expiry import hidden_timers
from cbp.model.dataflow.runnable import RunAll, RunAny
from cbp.model.dataflow.stage import (
    AggregateSpec,
    Computed,
    Form,
    InputSpec,
    LookupSpec,
    OutputSpec,
    RunnableSpec,
    StateSpec,
    TranslatorSpec,
)
from cbp.model.flow.schema import Schema, is_name
from cbp.model.flow.signed_changes import changes_schema
from cbp.sdk.code_reads import names_attribute, reads_run, reads_run_table
from cbp.sdk.declare import Aggregate, Input, Loopback, Output, State, View, place_of
from cbp.sdk.form_mistakes import (
    FormMistake,
    aggregate_mistakes,
    microsteps_mistakes,
    nesting_mistakes,
    parameters_mistake,
    record_wise_mistakes,
    run_mistakes,
    sql_mistakes,
    supersteps_mistakes,
    unemitted_states,
)
from cbp.sdk.input_compiler import input_spec
from cbp.sdk.lookups import Lookup, changes_input, lookup_mistakes, lookup_spec
from cbp.sdk.option_reader import OptionReader
from cbp.sdk.state_compiler import StateCompiler, expiry_mistakes, outer_mistakes


def shared_key_mistakes(
    outputs: Sequence[OutputSpec], inputs: Sequence[InputSpec], key: Schema | None
) -> Iterator[FormMistake]:
    """Yield a mistake for each output in which several groups may emit one key."""
    single = next((one.name for one in inputs if one.route_by is None), None)
    steps = max((one.supersteps for one in inputs), default=1)
    for output in outputs:
        if not output.single:
            continue
        lacking = [
            str(field)
            for field in (() if key is None else key.fields)
            if field.name not in output.key or output.schema[field.name].type != field.type
        ]
        if single is not None or key is None:
            why = (
                f"each record of {single!r} is a group of its own, so two groups may emit the "
                "same key"
            )
        elif lacking:
            why = (
                f"the key ({', '.join(output.key)}) lacks {', '.join(lacking)} of the stage's key "
                f"({key}), so two groups may emit the same key in one epoch"
            )
        elif steps > 1:
            why = "with supersteps, a group can emit the same key several times in an epoch"
        else:
            continue
        message = (
            f"{why}, and the result would depend on the order of these records. Choose one record "
            "by a column such as a time or a version (latest_by=...), declare a View, or remove "
            "the key"
        )
        yield output.name, "output_key_shared", message


_T = TypeVar("_T")

Declaration = Input | Loopback | Output | State | Lookup | Aggregate

_RESERVED = ("associate", "form", "key", "record_wise", "runnable", "spec", "reserved", "translate")
"""Attributes of every translator or of `out`, which a flow of the same name would hide."""


class Compiler:
    """Compiles the declarations of one instance to a `TranslatorSpec`; call `spec` once.

    `without` are codes of rules to ignore; see `cbp.sdk.document.LATER_RULES`.
    """

    def __init__(self, stage: Any, without: Collection[str] = ()) -> None:
        self._refuse_hidden(stage)
        self._stage, self._without = stage, without
        self._form: Form = stage.form
        self._record_wise: bool = stage.record_wise
        self._name = type(stage).__name__
        self._translate: Callable[..., object] = stage.translate
        function = type(stage).translate
        ours = inspect.unwrap(function).__module__.startswith(__package__)
        self._place = place_of(type(stage) if ours else function)
        self._declared = ours and self._form == "sql"
        self._options = OptionReader(type(stage), self._place)
        self._found: list[Mistake] = []

    @staticmethod
    def _refuse_hidden(stage: Any) -> None:
        """Refuse a declaration that hides an attribute of all translators, such as `spec`."""
        for name in _RESERVED:
            if isinstance(getattr(stage, name, None), Declaration):
                message = f"the name {name!r} is reserved in every translator; use another name"
                class_ = type(stage)
                where = f"{class_.__name__}.{name}"
                raise DefinitionError(Mistake("name_invalid", where, message, place_of(class_)))

    def spec(self) -> TranslatorSpec:
        """Return the plain values.

        Raises:
            DefinitionError: For every mistake that is not caused by another one.
        """
        with self._noting():
            self._check_function()
        declarations = self._declarations()
        inputs = self._read(declarations, Input | Loopback, partial(input_spec, self._options))
        outputs = self._read(declarations, Output | Loopback | View, self._output)
        if not any(isinstance(declared, Input) for declared in self._attributes().values()):
            message = "the translator has no input from outside; declare at least one Input"
            self._note("input_missing", "", message)
        if self._found:  # without all inputs there is no key, which states and look-ups need
            self._read(declarations, State | Lookup, lambda n, d: self._options.schema(n, d.schema))
        self._require_none()
        self._check_form(inputs, declarations)
        self._require_none()
        key = None if self._record_wise else self._key(inputs, declarations)
        lookups = self._lookups(inputs, declarations, key)
        inputs = (*inputs, *(changes_input(spec) for spec in lookups if spec.wake))
        states: tuple[StateSpec, ...] = ()
        if key:
            compiler = StateCompiler(self._options, key)
            states = self._read(declarations, State, compiler.spec)
        self._check_kept_inputs(inputs, states)
        wrong_steps = [*supersteps_mistakes(inputs, states), *nesting_mistakes(inputs)]
        self._note_all(wrong_steps or shared_key_mistakes(outputs, inputs, key))
        aggregates = {n: d for n, d in declarations.items() if isinstance(d, Aggregate)}
        loops = any(spec.loopback and spec.supersteps != 1 for spec in inputs)
        remote = names_attribute(self._stage, "remote")
        self._note_all(aggregate_mistakes(aggregates, inputs, loops=loops))
        self._note_all(
            microsteps_mistakes(inputs, outputs, states, aggregates, writes_remote=remote)
        )
        if self._form == "groupwise":
            self._check_emitted(states)
        self._note_all(outer_mistakes(states))
        if key:
            states += self._hidden_timers(states, inputs, key, declarations)
        runnable = self._runnable(inputs)
        self._require_none()
        return TranslatorSpec(
            self._name,
            key,
            inputs,
            outputs,
            states,
            self._translate,
            self._place,
            runnable,
            self._form,
            self._code(),
            self._declared,
            self._record_wise,
            reads_run=self._reads_run(declarations, states),
            lookups=lookups,
            ways=ways if isinstance(ways := getattr(self._stage, "ways", ""), str) else "",
            writes_remote=remote,
            aggregates=tuple(_aggregate(name, one) for name, one in aggregates.items()),
            notes=self._form == "run" and names_attribute(self._stage, "note"),
        )

    def _lookups(
        self, inputs: Sequence[InputSpec], declarations: Mapping[str, Any], key: Schema | None
    ) -> tuple[LookupSpec, ...]:
        lookups = {n: d for n, d in declarations.items() if isinstance(d, Lookup)}
        single = any(spec.route_by is None for spec in inputs)
        specs = []
        for name, declared in lookups.items():
            with self._noting():
                schema = self._options.schema(name, declared.schema)
                for code, message in lookup_mistakes(declared, schema, None if single else key):
                    if code not in self._without:
                        self._fail(code, name, message)
                spec = lookup_spec(name, declared, schema)
                if spec.wake and (changes := changes_input(spec).name) in declarations:
                    message = (
                        f"this name is taken by the changes of look-up {name!r} (wake=True); use "
                        "another name"
                    )
                    self._fail("name_invalid", changes, message)
                specs.append(spec)
        return tuple(specs)

    def _reads_run(self, declarations: Collection[str], states: Sequence[StateSpec]) -> bool:
        """Return whether the translator is given its run, as `group.run`."""
        if any(state.timers for state in states):
            return True
        if self._record_wise or "run" in declarations:
            return False
        if self._form == "sql":
            return reads_run_table(self._stage, self._stage.queries.values())
        return reads_run(self._stage)

    def _code(self) -> Code:
        """Fingerprint the class, the functions on its instance, and the function that made it."""
        code = held_by(vars(self._stage), type(self._stage))
        made_by = self._stage.made_by
        return code if made_by is None else code + fingerprint(made_by)

    def _runnable(self, inputs: tuple[InputSpec, ...]) -> RunnableSpec:
        rule = getattr(self._stage, "runnable", None)
        if rule is None:
            # A stage that waited for its own messages before its first run would never run.
            # A stage also does not wait for changes of a looked-up table, which may never come.
            lookups = (d for d in self._attributes().values() if isinstance(d, Lookup))
            waits = not any(spec.loopback for spec in inputs) and not any(d.wake for d in lookups)
            return RunnableSpec(RunAll() if waits else RunAny())
        if isinstance(rule, type) or not callable(rule):
            message = (
                f"{rule!r} is not a rule; give an instance such as RunAny(), or define "
                "runnable(self, connectors, memo) -> Decision"
            )
            self._note("runnable_invalid", "runnable", message)
            return RunnableSpec()
        place = place_of(rule) if inspect.isroutine(rule) else place_of(type(self._stage))
        return RunnableSpec(rule, place)

    def _check_function(self) -> None:
        function = inspect.unwrap(type(self._stage).translate)
        if getattr(function, "__isabstractmethod__", False):
            message = "the translator has no method translate; define it"
            self._fail("translate_missing", "translate", message)
        if (
            inspect.isgeneratorfunction(function)
            or inspect.iscoroutinefunction(function)
            or inspect.isasyncgenfunction(function)
        ):
            message = "translate must be a plain function, without yield and await"
            advice = "emit records with out.<output>(...)"
            self._fail("translate_kind", "translate", f"{message}; {advice}")
        form = "record" if self._record_wise else self._form
        if message := parameters_mistake(self._stage, form):
            self._fail("translate_parameters", "translate", message)

    def _check_emitted(self, states: Sequence[StateSpec]) -> None:
        """Refuse a state that groups read and never emit: it would always be empty."""
        replaced = [one.name for one in states if not one.keep and not one.timers]
        function = inspect.unwrap(type(self._stage).translate)
        for name in unemitted_states(function, replaced):
            message = (
                "this state is read but never emitted, so it is always empty. A group keeps only "
                f"state records that it emits again: write out.{name}(...), or declare keep=True "
                "to keep all records"
            )
            self._note("state_unemitted", name, message)

    def _attributes(self) -> dict[str, Declaration]:
        """Collect attributes in definition order: base classes, the class, then the instance."""
        values: dict[str, Any] = {}
        for class_ in reversed(type(self._stage).__mro__):
            values.update(vars(class_))
        values.update(vars(self._stage))
        return {n: v for n, v in values.items() if isinstance(v, Declaration)}

    def _declarations(self) -> dict[str, Declaration]:
        """Return the valid attributes; note the mistakes in the others."""
        declarations = {}
        for name, declared in self._attributes().items():
            reserved = (
                _RESERVED if isinstance(declared, Output) else (*_RESERVED, *self._stage.reserved)
            )
            if not is_name(name) or name in reserved or keyword.iskeyword(name):
                message = (
                    "this name is not allowed: use a-z, 0-9 and '_', begin with a letter, and use "
                    f"no keyword of Python and no reserved name ({', '.join(reserved)})"
                )
                self._note("name_invalid", name, message)
                continue
            declarations[name] = declared
        return declarations

    def _output(self, name: str, declared: Output | Loopback | View) -> OutputSpec:
        schema = self._options.schema(name, declared.schema)
        if isinstance(declared, Loopback):
            return OutputSpec(name, schema)
        if isinstance(declared, View):
            tolerance, not_compared = self._options.closeness(name, declared, schema, ())
            changes = changes_schema(schema)
            return OutputSpec(
                name, changes, tolerance=tolerance, not_compared=not_compared, view=name
            )
        key = self._options.plain(name, "key", declared.key, schema)
        latest_by = self._options.plain(name, "latest_by", declared.latest_by, schema)
        if declared.latest_by is not None:
            self._check_latest_by(name, declared, schema, key, latest_by)
        tolerance, not_compared = self._options.closeness(name, declared, schema, key)
        return OutputSpec(
            name, schema, key, declared.history, tolerance, not_compared, latest_by=latest_by
        )

    def _check_latest_by(
        self, name: str, declared: Output, schema: Schema, key: Sequence[str], by: Sequence[str]
    ) -> None:
        if not key or declared.history:
            why = "a history" if declared.history else "an output without a key"
            message = f"latest_by chooses one record of a key, but in {why} every record counts"
            self._fail("latest_by_invalid", name, f"{message}; remove latest_by")
        for column in by:
            if column in key:
                message = (
                    f"latest_by names {column!r}, which is part of the key, so all records of a "
                    "key have the same value; name another column"
                )
                self._fail("latest_by_invalid", name, message)
            elif schema[column].type.arguments:
                message = (
                    f"latest_by names {column!r}, which is {schema[column].type}, and such values "
                    "have no order; name another column"
                )
                self._fail("latest_by_invalid", name, message)

    def _hidden_timers(
        self,
        states: tuple[StateSpec, ...],
        inputs: tuple[InputSpec, ...],
        key: Schema,
        names: Collection[str],
    ) -> tuple[StateSpec, ...]:
        if wrong := [*expiry_mistakes(states, inputs, key=key, names=names)]:
            self._note_all(wrong)
            return ()
        return tuple(hidden_timers(state, key) for state in states if state.expire_ms)

    def _check_form(self, inputs: Sequence[InputSpec], declarations: Mapping[str, Any]) -> None:
        if self._record_wise:
            self._note_all(record_wise_mistakes(inputs, declarations))
        if self._form == "run":
            self._note_all(run_mistakes(inputs, declarations))
        if self._form == "sql":
            queries: Mapping[str, Any] | None = getattr(self._stage, "queries", {})
            if not queries and self._place == place_of(type(self._stage)):
                queries = None
            self._note_all(sql_mistakes(inputs, declarations, queries))

    def _check_kept_inputs(
        self, inputs: tuple[InputSpec, ...], states: tuple[StateSpec, ...]
    ) -> None:
        kept_state = next((spec.name for spec in states if spec.keep), None)
        for spec in inputs if kept_state else ():
            if spec.route_by is None or spec.has_several:
                message = (
                    f"the state {kept_state!r} is kept (keep=True), so each record of this input "
                    "must belong to one group: declare route_by with columns or by(...), not "
                    "route(...)"
                )
                self._note("keep_unsupported", spec.name, message)

    def _key(self, inputs: tuple[InputSpec, ...], declarations: dict[str, Any]) -> Schema | None:
        """Return the stage's key: as declared, or the columns by which the first input routes.

        `None` if no input has groups.
        """
        grouped = [spec for spec in inputs if spec.route_by is not None]
        if self._form != "groupwise" and len(grouped) < len(inputs):
            message = (
                "this form of translator works on groups, so every input needs route_by. To handle "
                "records one by one, derive from Translate or TranslateRecords"
            )
            single = next(spec.name for spec in inputs if spec.route_by is None)
            self._fail("route_by_missing", single, message)
        if not grouped:
            self._check_without_groups(declarations)
            self._require_none()
            return None
        first = next((spec for spec in grouped if not spec.loopback), grouped[0])
        if self._stage.key is not None:
            key = self._options.schema("key", self._stage.key)
        elif isinstance(first.route_by, tuple):
            key = first.schema.select(first.route_by)
        else:
            message = (
                "route_by is computed, so it does not name the key's columns: declare them, as in "
                '`key = "site STRING"`'
            )
            self._fail("key_missing", "key", message)
        for column in key.fields:
            if not column.type.can_be_key:
                message = f"a column of the key cannot be {column.type}"
                advice = "use a type such as STRING, BIGINT or TIMESTAMP"
                self._note("key_type", column.name, f"{message}; {advice}")
        for spec in grouped:
            with self._noting():
                self._check_route(spec, key)
        self._require_none()
        return key

    def _check_without_groups(self, declarations: dict[str, Any]) -> None:
        for name, declared in declarations.items():
            if isinstance(declared, State):
                message = (
                    "a state belongs to groups, but no input has route_by: declare route_by with "
                    "the columns by which records are grouped"
                )
                self._note("route_by_missing", name, message)
        if self._stage.key is not None:
            message = (
                f"key is {self._stage.key!r}, but no input has route_by, which gives the values "
                "of the key: declare route_by, or remove key"
            )
            self._note("route_by_missing", "key", message)

    def _check_route(self, spec: InputSpec, key: Schema) -> None:
        route = spec.route_by
        if isinstance(route, Computed):
            types = route.types
        else:
            types = tuple(spec.schema[column].type for column in route or ())
        self._options.check_types(spec.name, types, key)

    def _read(
        self, declarations: Mapping[str, Any], kind: Any, read: Callable[[str, Any], _T]
    ) -> tuple[_T, ...]:
        """Return the compiled declarations of a kind; note the mistakes in the others."""
        made = []
        for name, declared in declarations.items():
            if isinstance(declared, kind):
                with self._noting():
                    made.append(read(name, declared))
        return tuple(made)

    @contextmanager
    def _noting(self) -> Iterator[None]:
        """Note the mistakes of an error, each once, and continue."""
        try:
            yield
        except DefinitionError as error:
            self._found += [one for one in error.mistakes if one not in self._found]

    def _require_none(self) -> None:
        if self._found:
            raise DefinitionError(*self._found)

    def _note_all(self, mistakes: Iterable[FormMistake]) -> None:
        for name, code, message in mistakes:
            self._note(code, name, message)

    def _note(self, code: str, name: str, message: str) -> None:
        with self._noting():
            self._fail(code, name, message)

    def _fail(self, code: str, name: str, message: str) -> NoReturn:
        self._options.fail(code, name, message)


def _aggregate(name: str, declared: Aggregate) -> AggregateSpec:
    least = None if declared.ends_below is None else float(declared.ends_below)
    return AggregateSpec(name, declared.how, least, declared.ends or "")
