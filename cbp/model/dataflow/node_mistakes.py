"""Mistakes of sources, stages, look-ups and cycles of a dataflow, each with its place; pure.

A look-up is not an input: it brings no increments, so nothing waits for it, and it closes no cycle.
So its table and its key have checks of their own. A look-up with `wake` also has an input: the
changes of its table, which call groups (`cbp.model.dataflow.nodes` wires it).

The format of a source limits its columns:

csv, xml     any, but no nested types and no BINARY: a cell is text
text         one STRING column for the line, and the columns named by options
access_log   some of `ACCESS_LOG`, and the columns named by options
delta        those of the table, and the columns named by options
others       any
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from cbp.errors import Mistake
from cbp.errors.message_limits import listed, quoted
from cbp.model.dataflow.nodes import (
    BATCH_FILES_MAX,
    BATCH_SECONDS_MAX,
    BUCKETS_MAX,
    DUPLICATES,
    FORMATS,
    SAME_NAME,
    SourceNode,
    StageNode,
)
from cbp.model.dataflow.runnable import StaticTable
from cbp.model.dataflow.set_aside import set_aside_mistakes
from cbp.model.dataflow.stage import LookupSpec, RunnableSpec, StateSpec, TranslatorSpec
from cbp.model.flow.schema import Field, Schema, is_name
from cbp.model.flow.signed_changes import CHANGE_TYPE, SIGN, SIGN_TYPES, ChangesRead, has_sign
from cbp.model.graph.cycles import cycles, predecessors, readers, shortest_cycle
from cbp.model.source.bucket_prefix import BucketPrefix
from cbp.model.source.options import DeltaOptions, LineOptions, ReadOptions
from cbp.model.source.unfinished_names import parse_endings

_BATCH_BYTES_MAX = 1 << 30


def name_mistake(where: str, name: str) -> Iterator[Mistake]:
    """Yield a mistake if a name in a document is not valid."""
    if not is_name(name):
        message = (
            f"{name!r} is not a valid name: a name has only a-z, 0-9 and '_', begins with a "
            "letter, and has at most 63 characters"
        )
        yield Mistake("name_invalid", where, message)


def choice_mistake(
    code: str, where: str, given: object, allowed: Sequence[str]
) -> Iterator[Mistake]:
    """Yield a mistake if a value is not allowed."""
    if given not in allowed:
        yield Mistake(code, where, f"got {given!r}; use one of {', '.join(allowed)}")


def source_mistakes(source: SourceNode, *, columns: bool = True) -> Iterator[Mistake]:
    """Find mistakes in the settings of a source, and in its columns, if these are known."""
    where = f"sources.{source.name}"
    yield from choice_mistake("format_unknown", f"{where}.format", source.format, FORMATS)
    if source.format in FORMATS:
        try:
            options = ReadOptions.parse(source.format, source.options)
        except ValueError as exc:
            yield Mistake("option_invalid", f"{where}.options", str(exc))
        else:
            yield from column_mistakes(source, options) if columns else ()
    at = f"{where}.location"
    if source.location and source.format == "delta":
        message = "`options: {table: ...}` already names the Delta table; remove `location`"
        yield Mistake("location_invalid", at, message)
    elif source.location:
        try:
            BucketPrefix.parse(source.location)
        except ValueError as exc:
            yield Mistake("location_invalid", at, str(exc))
    yield from choice_mistake(
        "duplicates_invalid", f"{where}.duplicates", source.duplicates, DUPLICATES
    )
    yield from choice_mistake(
        "same_name_invalid", f"{where}.same_name", source.same_name, SAME_NAME
    )
    try:
        parse_endings(source.unfinished)
    except ValueError as exc:
        yield Mistake("unfinished_invalid", f"{where}.unfinished", str(exc))
    for name, given, least, most in (
        ("files", source.batch.files, 1, BATCH_FILES_MAX),
        ("bytes", source.batch.bytes, 1, _BATCH_BYTES_MAX),
        ("seconds", source.batch.seconds, 0, BATCH_SECONDS_MAX),
    ):
        if not least <= given <= most:  # also true for NaN
            message = f"got {given} {name}; expected a number from {least} to {most}"
            yield Mistake("batch_invalid", f"{where}.batch.{name}", message)


def stage_mistakes(stage: StageNode, flows: Mapping[str, Schema]) -> Iterator[Mistake]:
    """Find names in a stage that do not exist or do not fit; `flows` maps names to schemas."""
    where, spec = f"stages.{stage.name}", stage.translator
    buckets: object = stage.buckets
    if type(buckets) is not int or buckets.bit_count() != 1 or not 2 <= buckets <= BUCKETS_MAX:
        message = f"got {buckets!r} buckets; expected a power of two from 2 to {BUCKETS_MAX}"
        yield Mistake("buckets_invalid", f"{where}.buckets", message)
    yield from _rule_mistakes(stage)
    if stage.sets_aside:
        yield from set_aside_mistakes(stage.name, spec)
    outputs = [output.name for output in spec.outputs]
    for code, field, named in (
        ("limit_output_unknown", "limits", {*stage.limits}),
        ("keep_output_unknown", "keep", {*stage.keep}),
    ):
        for name in named.difference(outputs):
            message = f"{spec.name} has no output {name!r}; it has {', '.join(outputs) or 'none'}"
            yield Mistake(code, f"{where}.{field}.{name}", message, spec.place)
    framed = [input_.name for input_ in spec.framed]
    for name in stage.idle.keys() - set(framed):
        message = (
            f"{spec.name} has no input {name!r} with frame_by; inputs with frame_by: "
            f"{', '.join(framed) or 'none'}"
        )
        at = f"{where}.close_idle_seconds.{name}"
        yield Mistake("idle_input_unframed", at, message, spec.place)
    declared = {input_.name for input_ in spec.inputs}
    for name in declared - stage.wiring.keys():
        message = f"input {name!r} of {spec.name} is not wired: name the flow that it reads"
        yield Mistake("input_unwired", f"{where}.inputs.{name}", message, spec.place)
    for name, flow in stage.wiring.items():
        at = f"{where}.inputs.{name}"
        if name not in declared:
            message = f"{spec.name} has no input {name!r}; it has {', '.join(sorted(declared))}"
            yield Mistake("input_unknown", at, message, spec.place)
        elif spec.input(name).loopback and flow != f"{stage.name}.{name}":
            why = "is a Loopback, which is wired automatically; remove this line"
            yield Mistake("loopback_wired", at, f"{spec.name}.{name} {why}", spec.place)
        elif flow not in flows:
            yield _unknown_flow(at, flow, flows)
        elif mismatch := _schema_mismatch(flows[flow], spec.input(name).schema):
            message = f"flow {flow!r} does not fit {spec.name}.{name}: {mismatch}"
            yield Mistake("schema_mismatch", at, message, spec.place)


def changes_mistakes(
    stage: StageNode,
    flows: Collection[str],
    changes: Collection[str],
    sources: Mapping[str, SourceNode],
) -> Iterator[Mistake]:
    """Find inputs that read a view's changes without `changes=`, or declare `changes=` needlessly.

    A source that follows a table, or has a column `sign`, can be read either way.
    """
    for spec in stage.translator.inputs:
        flow = stage.wiring.get(spec.name, "")
        where, place = f"stages.{stage.name}.inputs.{spec.name}", stage.translator.place
        if flow in changes and not spec.changes:
            message = (
                f"{flow!r} carries the changes of a view: declare Input(..., changes='signed') to "
                "read all changes, or changes='after' to read only new records"
            )
            yield Mistake("changes_undeclared", where, message, place)
        elif flow in sources and spec.changes in source_changes(sources[flow]):
            continue
        elif flow in flows and flow not in changes and spec.changes:
            message = (
                f"{stage.translator.name}.{spec.name} declares changes={spec.changes!r}, but "
                f"{flow!r} does not carry changes of a view: wire a view, or remove changes="
            )
            yield Mistake("changes_without_view", where, message, place)


def _rule_mistakes(stage: StageNode) -> Iterator[Mistake]:
    has, rule = [input_.name for input_ in stage.translator.inputs], stage.runnable
    where = f"stages.{stage.name}.runnable"
    for name in rule.named:
        if name not in has:
            message = (
                f"{rule.name} names the input {name!r}, which is not declared; use one of "
                f"{', '.join(has)}"
            )
            yield Mistake("runnable_input_unknown", where, message, rule.place)
    if why := unfit_rule(rule.function, has):
        yield Mistake("runnable_invalid", where, why, rule.place)


def unfit_rule(rule: Any, inputs: Sequence[str]) -> str:
    """Return why a rule can never start a run of a stage with these inputs; `""` if it can.

    Args:
        inputs: All inputs of the stage, in order; for an inner rule, the inputs about which it
            decides.
    """
    if not isinstance(rule, StaticTable):
        return ""
    moving = [name for name in inputs if name not in rule.tables]
    if not moving:
        return (
            f"every input is a static table ({quoted(rule.tables)}), whose increments start no "
            "run, so the stage would never run. Remove an input from `tables`, or use another rule"
        )
    if both := [name for name in getattr(rule.rule, "named", ()) if name in rule.tables]:
        return (
            f"the inner rule must not name static tables ({quoted(both)}): it can name only the "
            f"other inputs, {quoted(moving)}"
        )
    return unfit_rule(rule.rule, moving)


def _unknown_flow(at: str, flow: str, flows: Mapping[str, Schema]) -> Mistake:
    stage = flow.partition(".")[0]
    near = sorted(name for name in flows if name.partition(".")[0] == stage) or sorted(flows)
    message = f"no source or stage has the flow {flow!r}; use one of {listed(near)}"
    return Mistake("flow_unknown", at, message)


def _schema_mismatch(flow: Schema, expected: Schema) -> str:
    """Return how the schema of a flow or table does not fit its reader's; `""` if it fits.

    Columns are matched by name. The flow or table can have more columns.
    """
    wrong = []
    for column in expected.fields:
        if column.name not in flow:
            wrong.append(f"column {column.name!r} ({column.type}) is missing")
        elif (type_ := flow[column.name].type) != column.type:
            wrong.append(f"column {column.name!r} is {type_}, expected {column.type}")
    return "; ".join(wrong)


Tables = Mapping[str, tuple[TranslatorSpec, StateSpec]]
"""Every state that can be looked up, with its translator, by `stage.state`."""


def lookup_mistakes(
    stage: str, spec: TranslatorSpec, wired: Mapping[str, str], tables: Tables
) -> Iterator[Mistake]:
    """Yield the mistakes in the look-ups of a stage, wired to tables."""
    for one in spec.lookups:
        if mistake := _mistake(spec, one, wired.get(one.name), tables):
            code, message = mistake
            yield Mistake(code, f"stages.{stage}.inputs.{one.name}", message, spec.place)


def _mistake(
    spec: TranslatorSpec, lookup: LookupSpec, table: str | None, tables: Tables
) -> tuple[str, str] | None:
    if table is None:
        message = (
            f"look-up {lookup.name!r} of {spec.name} is not wired: name the view or state that it "
            "reads"
        )
        return "input_unwired", message
    if table not in tables:
        message = (
            f"a look-up reads a view or a state of a stage, but {table!r} is neither; views and "
            f"states: {listed(sorted(tables)) or 'none'}. To look up a static table, wire its "
            "source to a stage that keeps its records, such as `latest`, and read that stage's "
            "state"
        )
        return "lookup_table_unknown", message
    writer, state = tables[table]
    if lookup.by and (difference := _key_difference(spec, lookup, table, writer, state)):
        return "lookup_key_mismatch", difference
    if wrong := _schema_mismatch(state.schema, lookup.schema):
        return "schema_mismatch", f"table {table!r} does not fit {spec.name}.{lookup.name}: {wrong}"
    if lookup.wake and not state.changes:
        message = (
            f"wake=True calls groups when records of the table change, but {table!r} has no flow "
            "of its changes: declare it as a View"
        )
        return "lookup_wake_needs_view", message
    return None


def _key_difference(
    spec: TranslatorSpec, lookup: LookupSpec, table: str, writer: TranslatorSpec, state: StateSpec
) -> str:
    """Return how a table's key does not fit a look-up or its stage, in words; `""` if it fits."""
    assert spec.key is not None, "a stage with look-ups has groups"
    route = writer.key_of(state)
    if [one.type for one in route.fields] != [one.type for one in spec.key.fields]:
        return (
            f"the groups of {spec.name} have the key ({spec.key}), but the records of {table!r} "
            f"are grouped by ({route})"
        )
    if route.names != lookup.by:
        return (
            f"by={', '.join(lookup.by)!r}, but the records of {table!r} are grouped by "
            f"({', '.join(route.names)}): write by={', '.join(route.names)!r}"
        )
    key = (*route.names, *state.second_key)
    if lookup.key and (state.bag or not (state.keep or state.changes)):
        return (
            f"key={', '.join(lookup.key)!r}, but no key identifies the records of {table!r}: "
            "remove key="
        )
    if lookup.key and lookup.records.second_key != state.second_key:
        return (
            f"key={', '.join(lookup.key)!r}, but the records of {table!r} have the key "
            f"({', '.join(key)}): write key={', '.join(key)!r}"
        )
    return ""


Wiring = Mapping[str, Mapping[str, str]]
"""Stage -> input -> flow."""


def never_run(
    runnables: Mapping[str, RunnableSpec], wiring: Wiring, flows: Collection[str]
) -> Iterator[Mistake]:
    """Yield a mistake for each stage that can never run, since its first run needs its own output.

    A stage can run if every input that its rule waits for can get an increment, from a source or
    from a stage that can run. Every other stage waits for itself around a cycle, or waits for a
    stage that does. A cycle of such stages can be part of a larger cycle that runs.
    """
    stuck = _stuck(runnables, wiring, flows)
    waits_for = predecessors({name: wiring[name] for name in stuck})
    on_cycle = cycles(waits_for)
    inner_of = {
        name: [i for i, flow in wiring[name].items() if flow.partition(".")[0] in cycle]
        for name, cycle in on_cycle.items()
    }
    outside = {name for name, inner in inner_of.items() if len(inner) < len(wiring[name])}
    for name, runnable in stuck.items():
        if name not in on_cycle:
            continue  # it waits for a stage that is reported
        if name not in outside and outside.intersection(on_cycle[name]):
            continue  # it waits for the stage at which the cycle begins
        inner = inner_of[name]
        hint = (
            "use RunAny(), or Phases(...) if the order matters (in a document: `runnable: run_any`)"
        )
        if name not in outside:
            hint = "no input comes from outside the cycle: wire an input to a source"
        message = (
            f"this stage can never run: its rule {runnable.name} waits for records of "
            f"{', '.join(inner)}, which come only after a run of this stage (the cycle "
            f"{' -> '.join((*shortest_cycle(waits_for, name), name))}); {hint}"
        )
        yield Mistake("cycle_never_runs", f"stages.{name}.runnable", message, runnable.place)


def _stuck(
    runnables: Mapping[str, RunnableSpec], wiring: Wiring, flows: Collection[str]
) -> dict[str, RunnableSpec]:
    """Return the stages without a first run: they wait for themselves, or for such a stage."""
    after = readers(predecessors(wiring))
    stuck, changed = dict(runnables), list(runnables)
    while changed:
        more = [name for name in changed if _can_run(stuck[name], wiring[name], stuck, flows)]
        for name in more:
            del stuck[name]
        fed = (reader for name in more for reader in after[name] if reader in stuck)
        changed = list(dict.fromkeys(fed))
    return stuck


def _can_run(
    runnable: RunnableSpec,
    inputs: Mapping[str, str],
    stuck: Collection[str],
    flows: Collection[str],
) -> bool:
    """Return whether a stage can have a first run while the stages in `stuck` have none.

    An input that is wired to an unknown flow counts as fed: that mistake is reported elsewhere.
    """
    fed = {
        name
        for name, flow in inputs.items()
        if flow not in flows or "." not in flow or flow.partition(".")[0] not in stuck
    }
    return runnable.can_start(fed, tuple(inputs))


_INTEGERS, _TEXT = ("BIGINT", "INT"), ("STRING",)
ACCESS_LOG: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        **dict.fromkeys(("host", "identity", "user"), _TEXT),
        "time": ("TIMESTAMP",),
        **dict.fromkeys(("request", "method", "path", "protocol"), _TEXT),
        "status": ("SMALLINT", *_INTEGERS),
        "bytes": ("BIGINT",),
        **dict.fromkeys(("referer", "user_agent"), _TEXT),
    }
)
"""Maps each column of an access log to the types that it can have."""

COMBINED_ONLY = ("referer", "user_agent")
"""Columns that only the combined layout has."""


def column_mistakes(source: SourceNode, options: ReadOptions) -> Iterator[Mistake]:
    """Find columns that files of the source's format cannot fill."""
    where = f"sources.{source.name}"
    if source.format in ("csv", "xml"):
        name = source.format.upper()
        for column in source.schema.fields:
            if column.type.arguments or column.type.kind == "BINARY":
                why = f"{name} cannot hold {column.type}; use jsonl, parquet or avro"
                message = f"column {column.name!r}: {why}"
                yield Mistake("format_type", f"{where}.schema", message)
    if source.format == "delta":
        yield from _delta_mistakes(source, options.delta)
    if source.format not in ("text", "access_log"):
        return
    yield from _named_mistakes(source, options.lines)
    named = options.lines.file_name, options.lines.line_number
    rest = [field for field in source.schema.fields if field.name not in named]
    if source.format == "text":
        if len(rest) != 1 or rest[0].type.kind != "STRING":
            listed = ", ".join(f"{field.name} {field.type}" for field in rest) or "none"
            message = (
                "the format text needs exactly one STRING column for the line, in addition to "
                f"columns named by the options file_name and line_number; got {listed}"
            )
            yield Mistake("format_type", f"{where}.schema", message)
        return
    for column in rest:
        if problem := _access_log_problem(column, combined=options.combined):
            yield Mistake("format_type", f"{where}.schema", f"column {column.name!r}: {problem}")


def source_changes(source: SourceNode) -> Iterator[ChangesRead]:
    """Yield the values of `changes=` with which inputs can read a source, given its columns."""
    if source.format != "delta" and has_sign(source.schema):
        yield "signed"  # each record has its sign, as its producer wrote it
    if source.format == "delta" and source.options.get("sign", SIGN) == SIGN:
        yield "signed"
        if source.options.get("change_type") == CHANGE_TYPE:
            yield "after"


def _delta_mistakes(source: SourceNode, options: DeltaOptions) -> Iterator[Mistake]:
    named = {"sign": (options.sign, SIGN_TYPES), "change_type": (options.change_type, ("STRING",))}
    yield from _option_mistakes(source, named)
    names = {options.sign, options.change_type}
    if options.sign == options.change_type or names.issuperset(source.schema.names):
        beside = "in addition to the columns named by the options sign and change_type"
        message = f"the schema needs a column of the table, {beside}"
        yield Mistake("format_type", f"sources.{source.name}.schema", message)
    if source.batch.seconds:
        why = "each version of a table is read without waiting for later ones"
        message = f"{why}, so `seconds` has no effect: remove it"
        yield Mistake("batch_invalid", f"sources.{source.name}.batch.seconds", message)


def _option_mistakes(
    source: SourceNode, named: Mapping[str, tuple[str, Sequence[str]]]
) -> Iterator[Mistake]:
    where = f"sources.{source.name}.options"
    types = {field.name: field.type.kind for field in source.schema.fields}
    for option, (name, allowed) in named.items():
        if name and types.get(name) not in allowed:
            has = f"is {types[name]}" if name in types else "is not in the schema"
            message = f"{option}: column {name!r} {has}; declare it as {' or '.join(allowed)}"
            yield Mistake("option_invalid", where, message)


def _named_mistakes(source: SourceNode, options: LineOptions) -> Iterator[Mistake]:
    where = f"sources.{source.name}.options"
    named = {
        "file_name": (options.file_name, _TEXT),
        "line_number": (options.line_number, _INTEGERS),
    }
    yield from _option_mistakes(source, named)
    if options.file_name and options.file_name == options.line_number:
        same = f"file_name and line_number name the same column {options.file_name!r}"
        yield Mistake("option_invalid", where, f"{same}; name two different columns")


def _access_log_problem(column: Field, *, combined: bool) -> str:
    if column.name not in ACCESS_LOG:
        return f"an access log has no such column; the columns are {', '.join(ACCESS_LOG)}"
    if column.name in COMBINED_ONLY and not combined:
        return "the common layout does not have this column; use options: {layout: combined}"
    allowed = ACCESS_LOG[column.name]
    if column.type.kind in allowed:
        return ""
    return f"got the type {column.type}; use {' or '.join(allowed)}"
