"""Mistakes of a translator's form: single records, whole runs, SQL; pure."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from types import FunctionType
from typing import Any

from cbp.model.author.bytecode import attributes_of_a_local
from cbp.model.dataflow.stage import Computed, InputSpec, OutputSpec, StateSpec
from cbp.model.flow.schema import is_name
from cbp.model.graph.loop_nesting import Nesting
from cbp.sdk.declare import Aggregate, Input, Loopback, Output, State, Timers
from cbp.sdk.lookups import Lookup

FormMistake = tuple[str, str, str]
"""The name of the declaration, the code, and the message."""


def record_wise_mistakes(
    inputs: Sequence[InputSpec], declarations: Mapping[str, Any]
) -> Iterator[FormMistake]:
    """Yield a mistake for each declaration that a record-wise translator cannot have."""
    if any(isinstance(declared, Loopback) for declared in declarations.values()):
        message = "TranslateRecords cannot have a Loopback; derive from Translate"
        yield "", "record_wise_shape", message
    if len(inputs) != 1 or inputs[0].route_by is not None:
        message = (
            "TranslateRecords needs exactly one Input, without route_by. For several inputs derive "
            "from Translate, which handles the records of inputs without route_by one by one"
        )
        yield "", "record_wise_shape", message
    if any(isinstance(declared, State) for declared in declarations.values()):
        message = "TranslateRecords cannot have a State; derive from Translate"
        yield "", "record_wise_shape", message
    why = "single records have neither groups nor a loop; derive from Translate"
    yield from _no_aggregates(declarations, "record_wise_shape", why)


def run_mistakes(
    inputs: Sequence[InputSpec], declarations: Mapping[str, Any]
) -> Iterator[FormMistake]:
    """Yield a mistake for each declaration that a translator of whole runs cannot have."""
    for spec in inputs:
        if spec.loopback or spec.has_several or spec.in_sql or spec.combine is not None:
            message = (
                "an input of TranslateRun needs route_by with columns, and cannot be a Loopback or "
                "have combine. Instead of sending messages, loop inside translate"
            )
            yield spec.name, "run_shape", message
    for name, declared in declarations.items():
        if isinstance(declared, Lookup):
            message = "TranslateRun cannot have look-ups: read the changes of the table as an Input"
            yield name, "run_shape", message
        elif isinstance(declared, Output):
            message = (
                "TranslateRun cannot have an Output: declare a View with keep=True, whose changes "
                "other stages can read"
            )
            yield name, "run_shape", message
        elif isinstance(declared, Timers) or (
            isinstance(declared, State) and not (declared.keep and declared.expire is None)
        ):
            message = (
                "a state of TranslateRun keeps its records until they are deleted: declare "
                "keep=True and a key, without expire, and declare no Timers"
            )
            yield name, "run_shape", message
    why = "TranslateRun has no such loop: compute the number in translate, which sees all records"
    yield from _no_aggregates(declarations, "run_shape", why)


def _no_aggregates(declarations: Mapping[str, Any], code: str, why: str) -> Iterator[FormMistake]:
    """Yield a mistake for each aggregate, in a form that has no loop of messages."""
    for name, declared in declarations.items():
        if isinstance(declared, Aggregate):
            yield name, code, f"an Aggregate is a number over the groups of a loop, but {why}"


def sql_mistakes(
    inputs: Sequence[InputSpec], declarations: Mapping[str, Any], queries: Mapping[str, Any] | None
) -> Iterator[FormMistake]:
    """Yield a mistake for each declaration that does not fit in a translator made of queries.

    `queries` is empty if it has a `translate` instead, `None` if it has neither.
    """
    has_state = any(isinstance(declared, State) for declared in declarations.values())
    if has_state and isinstance(declarations.get("keys"), Input | State):
        # Without state no groups are looked up, so an input of this name hides nothing.
        message = (
            "in a stage in SQL with state, the name 'keys' is reserved for the table of the "
            "groups' keys; use another name"
        )
        yield "keys", "name_invalid", message
    for spec in inputs:
        in_python = isinstance(spec.route_by, Computed) or spec.combine is not None
        if spec.loopback or spec.order_by is not None or in_python:
            message = (
                "an input of a stage in SQL must be routed by columns, and cannot be a Loopback or "
                "have order_by or combine. Compute the key in an earlier stage, or derive from "
                "Translate"
            )
            yield spec.name, "sql_shape", message
    why = "a stage in SQL has no loop: compute the number in a query, or derive from Translate"
    yield from _no_aggregates(declarations, "sql_shape", why)
    for name, declared in declarations.items():
        if isinstance(declared, State) and declared.order_by is not None:
            message = (
                "a query gets its records in no particular order: remove order_by and sort in the "
                "query, or derive from Translate"
            )
            yield name, "sql_shape", message
    read = {name for name, one in declarations.items() if isinstance(one, Input | Lookup)}
    if queries is None:
        message = "the translator has neither queries nor translate; define one of them"
        yield "queries", "translate_missing", message
    if not queries:
        return
    for name in declarations:
        if name not in read and name not in queries:
            message = f"there is no query for {name!r}; add a SELECT as queries[{name!r}]"
            yield name, "query_missing", message
    kept = (name for name, one in declarations.items() if isinstance(one, State) and one.keep)
    deletes = {f"{name}.delete" for name in kept}
    for name in queries:
        if name not in deletes and (name in read or not is_name(name)):
            message = (
                f"a query cannot have the name {name!r}, which is the name of an input or not a "
                "valid name; rename the query"
            )
            yield "queries", "query_name", message


_PARAMETERS: Mapping[str, tuple[str, ...]] = {
    "groupwise": ("key", "group", "out"),
    "record": ("record", "out"),
    "arrow": ("groups", "out"),
    "run": ("tables", "out"),
    "sql": ("frames", "out"),
}
"""The arguments of `translate`, by form."""


def parameters_mistake(stage: Any, form: str) -> str:
    """Return why a `translate` cannot be called; empty if it can."""
    names = _PARAMETERS[form]
    try:
        inspect.signature(stage.translate).bind(*names)
    except TypeError:
        given = inspect.signature(type(stage).translate)
        return f"expected translate(self, {', '.join(names)}), got translate{given}"
    return ""


def unemitted_states(translate: Callable[..., Any], states: Collection[str]) -> Iterator[str]:
    """Yield which of some states a groupwise `translate` reads, but certainly never emits.

    None if `out` or `group` is passed to another function.
    """
    if not isinstance(translate, FunctionType) or translate.__code__.co_argcount != 4:
        return
    _, _, group, out = translate.__code__.co_varnames[:4]
    read = attributes_of_a_local(translate.__code__, group)
    emitted = attributes_of_a_local(translate.__code__, out)
    if read is not None and emitted is not None:
        yield from (name for name in states if name in read - emitted)


SUPERSTEPS_MAX = 1_000_000
"""Maximum number of supersteps of a run; a loop that never ends continues in another run."""


def supersteps_mistakes(
    inputs: Sequence[InputSpec], states: Sequence[StateSpec]
) -> Iterator[FormMistake]:
    """Yield the mistakes in the supersteps of a translator."""
    loopbacks = [spec for spec in inputs if spec.loopback]
    for spec in loopbacks:
        number = spec.supersteps
        whole = isinstance(number, int) and not isinstance(number, bool)
        if not whole or not 1 <= number <= SUPERSTEPS_MAX:
            message = (
                f"got supersteps={number!r}; expected a whole number from 1 to {SUPERSTEPS_MAX}"
            )
            yield spec.name, "supersteps_invalid", message
            return
    first = loopbacks[0] if loopbacks else None
    for spec in loopbacks:
        if first is not None and spec.supersteps != first.supersteps:
            message = (
                f"got supersteps={spec.supersteps}, but supersteps={first.supersteps} for "
                f"{first.name!r}; give all loopbacks the same number"
            )
            yield spec.name, "supersteps_differ", message
    if not any(spec.supersteps > 1 for spec in loopbacks):
        return
    code = "supersteps_unsupported"
    for spec in inputs:
        if spec.loopback and (spec.route_by is None or spec.has_several or spec.in_sql):
            message = (
                "with supersteps, a message has one receiver, which Python computes: declare "
                "route_by with columns or by(...), not route(...) or by_sql(...), or use "
                "supersteps=1"
            )
            yield spec.name, code, message
        elif spec.route_by is None:
            message = (
                "with supersteps, each record must belong to a group, but the records of an input "
                "without route_by have no group: declare route_by, or use supersteps=1"
            )
            yield spec.name, code, message
    for state in states:
        if state.expire_ms:
            message = "records cannot expire between supersteps: remove expire, or use supersteps=1"
            yield state.name, code, message


def nesting_mistakes(inputs: Sequence[InputSpec]) -> Iterator[FormMistake]:
    """Yield the mistakes in the option `inside` of loopbacks."""
    loopbacks = {spec.name: spec for spec in inputs if spec.loopback}
    inside: dict[str, object] = {name: spec.inside for name, spec in loopbacks.items()}
    known = {name: one for name, one in inside.items() if isinstance(one, str) and one in loopbacks}
    loops = Nesting(known)
    for name, one in inside.items():
        if not one:
            continue
        if name not in known:
            given = repr(one) if isinstance(one, str) else f"a {type(one).__name__}"
            others = ", ".join(other for other in loopbacks if other != name)
            message = (
                f"got inside={given}; give the name of another Loopback of this translator as a "
                f"string ({others or 'there is none'}), or remove inside"
            )
            yield name, "inside_unknown", message
        elif loops.is_cyclic(name):
            chain = " inside ".join([name, *loops.around(name)])
            message = (
                f"a loop cannot be inside itself ({chain}): remove inside from the outermost of "
                "these loops"
            )
            yield name, "inside_cycle", message
        elif loopbacks[name].supersteps == 1:
            message = (
                "loops can be nested only within one run, but a later epoch reads the messages of "
                "this Loopback: give all loopbacks supersteps, such as supersteps=1000, or remove "
                "inside"
            )
            yield name, "inside_without_supersteps", message


def aggregate_mistakes(
    aggregates: Mapping[str, Aggregate], inputs: Sequence[InputSpec], *, loops: bool
) -> Iterator[FormMistake]:
    """Yield the mistakes in aggregates; `loops` says whether a loopback has supersteps."""
    loopbacks = [spec.name for spec in inputs if spec.loopback]
    for name, declared in aggregates.items():
        if declared.how not in ("sum", "min", "max"):
            message = f"got how={declared.how!r}; expected 'sum', 'min' or 'max'"
            yield name, "aggregate_invalid", message
        least: object = declared.ends_below
        if least is not None and not _is_float(least):
            message = f"got ends_below={least!r}; expected a number, or no ends_below"
            yield name, "aggregate_invalid", message
        if declared.ends is not None and declared.ends not in loopbacks:
            message = (
                f"got ends={declared.ends!r}; expected the name of a Loopback: "
                f"{', '.join(loopbacks) or 'there is none'}"
            )
            yield name, "aggregate_invalid", message
        elif declared.ends is not None and least is None:
            message = (
                f"ends={declared.ends!r} has no effect without ends_below, the number below which "
                "that loop ends: declare ends_below, too, or remove ends"
            )
            yield name, "aggregate_invalid", message
        if not loops:
            message = (
                "an Aggregate is a number over the groups of a superstep, so it needs a Loopback "
                "with supersteps, such as Loopback(..., supersteps=100)"
            )
            yield name, "aggregate_without_loop", message


def _is_float(value: object) -> bool:
    """Return whether a value is a number, other than NaN, that a float can hold."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    try:
        return float(value) == float(value)
    except OverflowError:
        return False


def microsteps_mistakes(
    inputs: Sequence[InputSpec],
    outputs: Sequence[OutputSpec],
    states: Sequence[StateSpec],
    aggregates: Collection[str],
    *,
    writes_remote: bool,
) -> Iterator[FormMistake]:
    """Yield the mistakes in a loop with microsteps, where the order of messages does not matter.

    `writes_remote` says whether the translator's code names `.remote`.
    """
    loopbacks = {spec.name: spec for spec in inputs if spec.loopback}
    given: dict[str, object] = {name: spec.microsteps for name, spec in loopbacks.items()}
    for name, value in given.items():
        if not isinstance(value, bool):
            message = f"got microsteps={value!r}; expected True or False"
            yield name, "microsteps_invalid", message
            return
    if not any(given.values()):
        return
    for name, spec in loopbacks.items():
        if not spec.microsteps:
            message = "other loopbacks have microsteps=True: give all of them the same value"
            yield name, "microsteps_differ", message
        elif spec.supersteps == 1:
            message = (
                "microsteps are possible only within one run, but a later epoch reads the messages "
                "of this Loopback: give supersteps, such as supersteps=1000, or remove microsteps"
            )
            yield name, "microsteps_without_supersteps", message
    # Each of the following needs all groups of a loop to take each superstep together.
    code = "microsteps_unsupported"
    for name, spec in loopbacks.items():
        if spec.order_by is not None:
            message = (
                "with microsteps, messages come in any order, so order_by has no effect: remove "
                "order_by or microsteps"
            )
            yield name, code, message
        if spec.inside:
            message = (
                f"messages of the outer loop {spec.inside!r} wait until no task has a message of "
                "this loop, but with microsteps no task knows that: remove inside or microsteps"
            )
            yield name, code, message
    for name in aggregates:
        message = (
            "an Aggregate is a number over all groups of a superstep, but with microsteps groups "
            "do not wait for each other: remove the Aggregate or microsteps"
        )
        yield name, code, message
    for output in outputs:
        if not output.view and output.name not in loopbacks:
            message = (
                "an Output gets a record for each call that emits one, but with microsteps the "
                "number of calls depends on the number of tasks: declare a View of the result, or "
                "remove microsteps"
            )
            yield output.name, code, message
    for state in states:
        if state.grouping == "outer":
            message = (
                "grouping='outer' calls every group in each superstep, but microsteps call only "
                "groups with messages: remove grouping='outer' or microsteps"
            )
            yield state.name, code, message
    if writes_remote and states:
        message = (
            "the code uses .remote, but with microsteps a group can change only records of its own "
            "key: send the other group a message, or remove microsteps"
        )
        yield "", code, message
