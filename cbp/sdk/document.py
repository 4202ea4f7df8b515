"""Parse a dataflow document, the form in which dataflows are registered over REST and stored.

    {"name": "word_counts",
     "sources": {"lines": {"schema": "text STRING", "format": "jsonl"}},
     "stages": {"count": {"translator": "count_per_key", "parameters": {"key": "word STRING"},
                          "inputs": {"items": "split.words"}, "buckets": 8}},
     "sinks": {"totals": {"flow": "count.totals", "to": "parquet", "path": "exports/totals"}}}

A document only *names* translators; `resolve` turns a name and parameters into an instance. One
pass finds all mistakes of a document; it ends once there are more than `MISTAKES_MAX`. A mapping
cannot hold a key twice, so the parser passes the paths of duplicate keys in `duplicates`.

Options of a stage:

- `runnable: run_any` or `runnable: {align: {inputs: [a, b]}}`: a rule that says when it runs, in
  place of its translator's (`cbp.model.dataflow.runnable.RULES`).
- `close_idle_seconds: {pages: 300}` closes the open frame of the input `pages` after 300 seconds
  without a record; `run_seconds_max: 600` is the time limit of its runs.
- `any_order: true` declares that the answer of a group depends only on its records, so that the
  stage can apply a replaced file (`cbp.model.dataflow.replacement_obstacles`).
- `on_error: set_aside` sets aside records on which the author's code fails, up to
  `set_aside_max: 1000` (`cbp.model.dataflow.set_aside`). Without it the stage stops.
- `keep: {totals: {hours: 48}}` sets how long increments of the output `totals` are kept once all
  readers have read them. Outputs without `keep` are kept forever; messages that only their own
  stage reads are removed once they are read.

Options of a source:

- `keep: {hours: 48, bytes: 10000000000}` sets the same for the source, and the maximum size of all
  kept increments (0 means no limit). The service's settings replace values that are left out.
  `keep: {until: snapshot}` keeps an increment only until a kept position, to which a roll-back can
  return, replaces it. Files from before that position cannot be replaced, and stages cannot be
  rebuilt from them.
- `batch: {files: 1000, bytes: 1000000}` puts waiting files into one increment, up to these numbers;
  `batch: {}` means up to 1,000 files or 64 MiB. With `seconds: 5` the first file waits this long
  for more. Without `batch`, every file is an increment, and so an epoch of the stages that read it.
  But a backlog (32 waiting files or more) is taken together if only the final state counts for its
  stages. `batch: {files: 1}` keeps every file apart.
- `location: "s3://bucket/orders/"` takes in the objects below a prefix of a bucket, as if they were
  dropped; `nested: true` also takes in files in folders below the drop folder.
- `same_name: add` takes in a file that has the name of an accepted file but other content, which
  otherwise goes to quarantine; with `replace`, it replaces the earlier file.
- `unfinished: [".part", ".wip"]` lists the endings of the names of files that are being written.

Option of the dataflow: `publish: {epochs: 8, seconds: 60}` makes several epochs visible together
(`cbp.model.run.publication`). Without it, each epoch becomes visible separately.

A sink publishes a `flow` or a `view` to `parquet`, `csv`, `delta` (a `path`) or a `webhook` (a
`url`, and the name of a `secret`). `begin: now` publishes only later increments; `paused: true`
begins paused.
"""

from __future__ import annotations

import difflib
import inspect
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Any, NoReturn, TypeVar

from cbp.errors import CbpError, DataflowInvalidError, DefinitionError, Mistake
from cbp.errors.message_limits import MISTAKES_MAX, listed
from cbp.model.dataflow.dataflow import (
    EPOCHS_MAX,
    SECONDS_DEFAULT,
    Dataflow,
    PublishPolicy,
    name_mistakes,
    too_many,
)
from cbp.model.dataflow.node_mistakes import source_mistakes
from cbp.model.dataflow.nodes import BUCKETS_DEFAULT, UNSAID, FileBatch, SourceNode, StageNode
from cbp.model.dataflow.runnable import RULES, Rule
from cbp.model.dataflow.set_aside import read_on_error
from cbp.model.dataflow.sinks import SinkNode
from cbp.model.dataflow.stage import SECONDS_MAX, RunnableSpec
from cbp.model.flow.back_pressure import FlowLimit
from cbp.model.flow.retention import NO_WISH, RetentionWish
from cbp.model.flow.schema import Schema
from cbp.model.source.bad_records import QUARANTINE_FILE, BadRecords
from cbp.model.source.unfinished_names import UNFINISHED, parse_endings
from cbp.sdk.translate import Declared, spec_of

Resolve = Callable[[str, Mapping[str, Any]], Declared]

_T = TypeVar("_T")

_ANY_STAGE = ""
"""Means any stage, among the unread names, if the document has stages and none could be read."""

_SINK_TEXTS = ("to", "flow", "view", "path", "url", "secret", "begin")
_TOP = {"name", "sources", "stages", "sinks", "publish", "description"}
_PUBLISH = {"epochs", "seconds"}
_SOURCE = {"schema", "format", "options", "keep", "duplicates", "on_bad_records", "batch"}
_SOURCE |= {"location", "same_name", "unfinished", "nested"}
_BATCH = {"files", "bytes", "seconds"}
_KEEP, _KEEP_INPUTS = {"hours", "bytes"}, {"hours", "bytes", "increments", "until"}
_UNTIL_SNAPSHOT = RetentionWish(0.0, 0, 0)
"""The retention `until: snapshot`: only while a queue or the oldest kept position needs it."""

_KEEP_HOURS_MAX = 24 * 3660
_BYTES_MAX = 1 << 62
"""Largest limit of bytes or increments: it fits into an integer column of the store and of
readers."""

_POLICIES = {"close_idle_seconds", "run_seconds_max", "any_order", "on_error", "set_aside_max"}
_STAGE = {"translator", "parameters", "inputs", "buckets", "fuse", "runnable", "limits", "keep"}
_STAGE |= _POLICIES

LATER_RULES = frozenset({"cycle_never_runs", "lookup_key_invalid", "sink_path_twice"})
"""Stricter rules: a document that was registered before may break them, and is still loaded."""


def dataflow_from_document(
    document: Any,
    resolve: Resolve,
    *,
    duplicates: Iterable[str] = (),
    without: Collection[str] = (),
) -> Dataflow:
    """Read and check a document: JSON values in the form that the module header describes.

    `resolve` returns a translator, or raises a `CbpError` with the reason. `duplicates` are paths
    of keys that occur twice in the text, such as `stages.count`; `without` are codes of rules to
    ignore, such as `LATER_RULES`.

    Raises:
        DataflowInvalidError: With the first `MISTAKES_MAX` mistakes and their places.
    """
    reader = _Reader(resolve, without)
    try:
        reader.note(_twice(path) for path in duplicates)
        dataflow = reader.dataflow(document)
    except _EnoughError:
        dataflow = None
    if dataflow is None or reader.mistakes:
        name = document.get("name") if isinstance(document, Mapping) else None
        raise DataflowInvalidError(name if isinstance(name, str) else "", reader.mistakes)
    return dataflow


class _EnoughError(Exception):
    """There are more mistakes than an error reports; reading on would only cost time."""


class _Reader:
    def __init__(self, resolve: Resolve, without: Collection[str]) -> None:
        self._resolve, self._without = resolve, without
        self.mistakes: list[Mistake] = []

    def dataflow(self, document: Any) -> Dataflow:
        top = self._mapping("document", document, _TOP)
        name = top.get("name")
        if not isinstance(name, str):
            self._note("name_invalid", "name", f"expected a string, got {name!r}")
            name = ""
        sources = self._mapping("sources", top.get("sources", {}))
        stages = self._mapping("stages", top.get("stages", {}))
        if excess := [*too_many(sources, stages)]:
            self.note(excess)
            raise _EnoughError
        dataflow = Dataflow(
            name,
            MappingProxyType(self._all(sources, self._source)),
            MappingProxyType(self._all(stages, self._stage)),
            self._publish(top.get("publish", {})),
            MappingProxyType(self._all(self._mapping("sinks", top.get("sinks", {})), self._sink)),
        )
        unread = {*sources, *stages} - {*dataflow.sources, *dataflow.stages}
        if stages.keys() <= unread and stages:
            unread.add(_ANY_STAGE)
        self.note(_mistakes_of_unread(dataflow, sources, stages))
        try:
            dataflow.check()
        except DataflowInvalidError as error:
            self.note(m for m in error.mistakes if not _follows(m, dataflow, unread))
        return dataflow

    def note(self, mistakes: Iterable[Mistake]) -> None:
        """Collect mistakes; raise `_EnoughError` once there are more than `MISTAKES_MAX`."""
        for mistake in mistakes:
            if mistake.code in self._without:
                continue
            self.mistakes.append(mistake)
            if len(self.mistakes) > MISTAKES_MAX:
                raise _EnoughError

    def _all(
        self, nodes: Mapping[str, Any], read: Callable[[str, Any], _T | None]
    ) -> dict[str, _T]:
        made = ((name, read(name, value)) for name, value in nodes.items())
        return {name: node for name, node in made if node is not None}

    def _publish(self, value: Any) -> PublishPolicy:
        """Read the publish policy; if only `seconds` is given, `epochs` is `EPOCHS_MAX`."""
        given = self._mapping("publish", value, _PUBLISH)
        epochs = given.get("epochs", EPOCHS_MAX if "seconds" in given else 1)
        seconds = given.get("seconds", SECONDS_DEFAULT)
        epochs = self._number("publish_invalid", "publish.epochs", epochs, 1)
        seconds = self._number(
            "publish_invalid", "publish.seconds", seconds, SECONDS_DEFAULT, float
        )
        return PublishPolicy(epochs, float(seconds))

    def _source(self, name: str, value: Any) -> SourceNode | None:
        where = f"sources.{name}"
        node = self._mapping(where, value, _SOURCE)
        schema, parsed = node.get("schema"), None
        if isinstance(schema, str):
            parsed = self._noted(lambda: Schema.parse(schema, where=f"{where}.schema"))
        else:
            message = f"expected DDL text, such as 'url STRING', got {schema!r}"
            self._note("schema_invalid", f"{where}.schema", message)
        options = self._options(f"{where}.options", node.get("options", {}))
        source = SourceNode(
            name,
            parsed or Schema(()),
            str(node.get("format", "jsonl")),
            MappingProxyType(options),
            self._keep(f"{where}.keep", node.get("keep", {}), _KEEP_INPUTS),
            str(node.get("duplicates", "accept")),
            on_bad_records=self._on_bad_records(where, node.get("on_bad_records")),
            batch=self._batch(f"{where}.batch", node["batch"]) if "batch" in node else UNSAID,
            location=self._location(f"{where}.location", node.get("location", "")),
            same_name=str(node.get("same_name", "quarantine")),
            unfinished=self._unfinished(f"{where}.unfinished", node.get("unfinished")),
            nested=self._truth("nested_invalid", f"{where}.nested", node.get("nested", False)),
        )
        if parsed is None:  # the dataflow is checked without it
            self.note(source_mistakes(source, columns=False))
            return None
        return source

    def _sink(self, name: str, value: Any) -> SinkNode | None:
        where = f"sinks.{name}"
        given = self._mapping(where, value, {*_SINK_TEXTS, "paused"})
        texts = {field: given[field] for field in given if field in _SINK_TEXTS}
        wrong = [field for field, text in texts.items() if not isinstance(text, str)]
        for field in wrong:
            expected = f"expected a string, got {texts[field]!r}"
            self._note("sink_invalid", f"{where}.{field}", expected)
        paused = given.get("paused", False)
        self._truth("sink_invalid", f"{where}.paused", paused)
        if wrong or type(paused) is not bool:
            return None
        return SinkNode(name, paused=paused, **{"to": "", **texts})

    def _read(self, code: str, where: str, read: Callable[[], _T], default: _T) -> _T:
        """Return the result of `read`; note its `ValueError`, and return the default."""
        try:
            return read()
        except ValueError as exc:
            self._note(code, where, str(exc))
            return default

    def _on_bad_records(self, where: str, value: Any) -> BadRecords:
        if value is None:
            return QUARANTINE_FILE
        at, policy = f"{where}.on_bad_records", QUARANTINE_FILE
        return self._read("on_bad_records_invalid", at, lambda: BadRecords.parse(value), policy)

    def _unfinished(self, where: str, value: Any) -> tuple[str, ...]:
        """Read the endings of the names of unfinished files: `[".part", "~"]`."""
        if value is None:
            return UNFINISHED
        return self._read("unfinished_invalid", where, lambda: parse_endings(value), UNFINISHED)

    def _truth(self, code: str, where: str, value: Any, *, default: bool = False) -> bool:
        if type(value) is bool:
            return value
        self._note(code, where, f"expected true or false, got {value!r}")
        return default

    def _number(self, code: str, where: str, value: Any, default: float, type_: type = int) -> Any:
        if _is_number(value) if type_ is float else type(value) is int:
            return value
        self._note(code, where, f"expected a number, got {value!r}")
        return default

    def _location(self, where: str, value: Any) -> str:
        if isinstance(value, str):
            return value
        expected = f"expected a string such as s3://bucket/orders/, got {type(value).__name__}"
        self._note("location_invalid", where, expected)
        return ""

    def _options(self, where: str, value: Any) -> dict[str, str]:
        """Read options: texts, and the booleans that YAML makes of `true` and `false`."""
        options: dict[str, str] = {}
        for name, given in self._mapping(where, value).items():
            if isinstance(given, bool):
                options[name] = "true" if given else "false"
            elif isinstance(given, str):
                options[name] = given
            else:
                message = f"expected a string, got {given!r}; write it in quotes"
                self._note("option_invalid", f"{where}.{name}", message)
        return options

    def _batch(self, where: str, value: Any) -> FileBatch:
        """Read how many files become one increment: `{files: 1000, bytes: 1000000, seconds: 5}`."""
        numbers = dict[str, Any]()
        for name, number in self._mapping(where, value, _BATCH).items():
            if name not in _BATCH:
                continue  # `_mapping` has noted it
            if type(number) is int or (name == "seconds" and type(number) is float):
                numbers[name] = number
            else:
                self._note("batch_invalid", f"{where}.{name}", f"expected a number, got {number!r}")
        return FileBatch(**numbers)

    def _keep(self, where: str, value: Any, names: set[str] = _KEEP) -> RetentionWish:
        """Read the retention of a flow: `{hours: 48, bytes: 10000000000}`, some or all."""
        given = self._mapping(where, value, names)
        if "until" in given:
            return self._until(where, given)
        hours = self._amount(where, given, "hours", _KEEP_HOURS_MAX)
        size = self._amount(where, given, "bytes", _BYTES_MAX)
        count = self._amount(where, given, "increments", _BYTES_MAX)
        return RetentionWish(None if hours is None else hours * 3600.0, size, count)

    def _amount(self, where: str, given: Mapping[str, Any], name: str, most: int) -> Any:
        """Read one limit; hours can be fractions, and 0 bytes or increments mean no limit."""
        value = given.get(name)
        is_hours = name == "hours"
        is_number = _is_number(value) if is_hours else type(value) is int
        if value is None or (is_number and 0 <= value <= most):
            return value
        least = "0" if is_hours else "0 (no limit)"
        expected = f"expected a number of {name} from {least} to {most}, got {value!r}"
        self._note("keep_invalid", f"{where}.{name}", expected)
        return None

    def _until(self, where: str, given: Mapping[str, Any]) -> RetentionWish:
        """Read `{until: snapshot}`, which excludes all other options."""
        if given["until"] != "snapshot":
            expected = f"expected 'snapshot', got {given['until']!r}"
            self._note("keep_invalid", f"{where}.until", expected)
        if len(given) > 1:
            message = "`until: snapshot` excludes hours, bytes and increments; remove these"
            self._note("keep_invalid", where, message)
        return _UNTIL_SNAPSHOT

    def _stage(self, name: str, value: Any) -> StageNode | None:
        where = f"stages.{name}"
        node = self._mapping(where, value, _STAGE)
        reference = node.get("translator")
        parameters = self._mapping(f"{where}.parameters", node.get("parameters", {}))
        wiring = self._mapping(f"{where}.inputs", node.get("inputs", {}))
        buckets = node.get("buckets", BUCKETS_DEFAULT)
        buckets = self._number("buckets_invalid", f"{where}.buckets", buckets, BUCKETS_DEFAULT)
        fuse = self._truth("fuse_invalid", f"{where}.fuse", node.get("fuse", True), default=True)
        any_order = node.get("any_order", False)
        any_order = self._truth("any_order_invalid", f"{where}.any_order", any_order)
        rule = self._noted(lambda: read_rule(node.get("runnable"), f"{where}.runnable"))
        for input_, flow in wiring.items():
            if not isinstance(flow, str):
                expected = f"expected the name of a flow, got {flow!r}"
                self._note("flow_unknown", f"{where}.inputs.{input_}", expected)
        wiring = {input_: flow for input_, flow in wiring.items() if isinstance(flow, str)}
        if not isinstance(reference, str):
            message = f"expected the name of a translator, got {reference!r}"
            self._note("translator_unknown", f"{where}.translator", message)
            return None
        try:
            spec = spec_of(self._resolve(reference, parameters), self._without)
        except DefinitionError as error:
            self.note(
                Mistake(one.code, f"{where}.translator", f"{one.where}: {one.message}", one.place)
                for one in error.mistakes
            )
            return None
        except CbpError as error:
            self._note(error.code, f"{where}.translator", error.message)
            return None
        if rule is not None:
            rule = replace(rule, place=f"{spec.place} ({rule.place})")
        return StageNode(
            name,
            spec,
            MappingProxyType(wiring),
            reference,
            MappingProxyType(dict(parameters)),
            buckets,
            fuse,
            rule,
            self._limits(f"{where}.limits", node.get("limits", {})),
            self._idle(f"{where}.close_idle_seconds", node.get("close_idle_seconds", {})),
            self._seconds(f"{where}.run_seconds_max", node.get("run_seconds_max")),
            self._retention_wishes(f"{where}.keep", node.get("keep", {})),
            any_order=any_order,
            set_aside_max=self._read(
                "on_error_invalid",
                f"{where}.on_error",
                lambda: read_on_error(node.get("on_error", "stop"), node.get("set_aside_max")),
                None,
            ),
        )

    def _retention_wishes(self, where: str, value: Any) -> Mapping[str, RetentionWish]:
        given = self._mapping(where, value)
        wishes = {name: self._keep(f"{where}.{name}", given[name]) for name in given}
        return MappingProxyType({name: wish for name, wish in wishes.items() if wish != NO_WISH})

    def _limits(self, where: str, value: Any) -> Mapping[str, FlowLimit]:
        """Read how much of each output may wait at a reader: `{totals: {increments: 100}}`."""
        limits = {}
        for output, given in self._mapping(where, value).items():
            at = f"{where}.{output}"
            allowed = {"increments", "records", "bytes"}
            numbers = self._mapping(at, given, allowed)
            known = {name: numbers[name] for name in allowed & numbers.keys()}
            limits[output] = self._read(
                "limit_invalid", at, partial(FlowLimit, **known), FlowLimit()
            )
        return MappingProxyType(limits)

    def _idle(self, where: str, value: Any) -> Mapping[str, float]:
        """Read after how many idle seconds a framed input is closed: `{pages: 300}`."""
        given = self._mapping(where, value)
        read = {name: self._seconds(f"{where}.{name}", given[name]) for name in given}
        return MappingProxyType({name: s for name, s in read.items() if s is not None})

    def _seconds(self, where: str, value: Any) -> float | None:
        """Return a number of seconds, or `None` if it is left out or invalid."""
        if value is None:
            return None
        if not _is_number(value) or not 0 <= value <= SECONDS_MAX:
            expected = f"expected seconds from 0 (never) to {SECONDS_MAX}, got {value!r}"
            self._note("seconds_invalid", where, expected)
            return None
        return float(value)

    def _noted(self, read: Callable[[], _T]) -> _T | None:
        try:
            return read()
        except DefinitionError as error:
            self.note(error.mistakes)
            return None

    def _mapping(
        self, where: str, value: Any, allowed: set[str] | None = None
    ) -> Mapping[str, Any]:
        if not isinstance(value, Mapping):
            self._note("document_invalid", where, f"expected a mapping, got {type(value).__name__}")
            return {}
        for key in value:
            if not isinstance(key, str):
                message = f"expected a string as the name of an entry, got {key!r}"
                self._note("document_invalid", where, message)
            elif allowed is not None and key not in allowed:
                message = f"there is no such field; use one of {', '.join(sorted(allowed))}"
                self._note("field_unknown", f"{where}.{key}", message)
        return {key: item for key, item in value.items() if isinstance(key, str)}

    def _note(self, code: str, where: str, message: str) -> None:
        self.note([Mistake(code, where, message)])


def _is_number(value: Any) -> bool:
    """Return whether a value is a finite number that a float can hold."""
    return type(value) in (int, float) and abs(value) <= sys.float_info.max


def _twice(path: str) -> Mistake:
    if path.count(".") == 3 and path.split(".")[2] == "inputs":
        message = "this input is wired twice, but an input can read only one flow"
        return Mistake("input_twice", path, message)
    return Mistake("name_twice", path, "this name is declared twice; rename one of them")


def _mistakes_of_unread(
    dataflow: Dataflow, sources: Mapping[str, Any], stages: Mapping[str, Any]
) -> Iterator[Mistake]:
    """Yield the mistakes of nodes that could not be read, in their names and inputs.

    The check of the dataflow does not see these nodes, so their other mistakes would be reported
    only at the next attempt.
    """
    read = {
        mistake.where for mistake in name_mistakes(dataflow.name, dataflow.sources, dataflow.stages)
    }
    for mistake in name_mistakes(dataflow.name, sources, stages):
        if mistake.where not in read and mistake.where != "name":
            yield mistake
    for name in stages.keys() - dataflow.stages.keys():
        wiring = stages[name].get("inputs") if isinstance(stages[name], Mapping) else None
        for input_, flow in wiring.items() if isinstance(wiring, Mapping) else ():
            writer = flow.partition(".")[0] if isinstance(flow, str) else ""
            if isinstance(flow, str) and writer not in {*sources, *stages}:
                known = listed(sorted({*sources, *stages}))
                message = (
                    f"this input reads {flow!r}, but there is no source or stage {writer!r}; use "
                    f"one of {known}"
                )
                yield Mistake("flow_unknown", f"stages.{name}.inputs.{input_}", message)


def _follows(mistake: Mistake, dataflow: Dataflow, unread: set[str]) -> bool:
    """Return whether a mistake is only a consequence of a node that could not be read."""
    if mistake.code == "stages_missing":
        return _ANY_STAGE in unread
    if mistake.where.startswith("sinks."):
        sink = dataflow.sinks.get(mistake.where.split(".")[1])
        unknown = mistake.code in ("flow_unknown", "sink_view_unknown")
        return unknown and sink is not None and sink.reads.partition(".")[0] in unread
    if mistake.code not in ("flow_unknown", "lookup_table_unknown"):
        return False
    # A wrong name of a stage can have dots.
    stage, _, input_ = mistake.where.removeprefix("stages.").rpartition(".inputs.")
    node = dataflow.stages[stage]
    return {**node.wiring, **node.lookups}[input_].partition(".")[0] in unread


def read_rule(value: Any, where: str) -> RunnableSpec | None:
    """Return the rule in a document; `None` if the document leaves it to the translator."""
    return None if value is None else RunnableSpec(_rule(value, where), where)


def _rule(value: Any, where: str) -> Rule:
    """Read a rule: its name in `RULES`, or a mapping from one name to its arguments.

    A rule inside a rule (`rule` of `static_table`) is written the same way.
    """
    if isinstance(value, str):
        value = {value: {}}
    if not isinstance(value, Mapping) or len(value) != 1:
        message = (
            f"expected one rule, such as run_any or {{count_window: {{size: 3}}}}, got {value!r}"
        )
        _refuse_rule("runnable_invalid", where, message)
    ((name, arguments),) = value.items()
    if name not in RULES:
        near = difflib.get_close_matches(str(name), RULES, n=1)
        hint = f"did you mean {near[0]}?" if near else f"use one of {', '.join(RULES)}"
        _refuse_rule("runnable_unknown", where, f"there is no rule {name!r}; {hint}")
    takes = ", ".join(map(str, inspect.signature(RULES[name]).parameters.values()))
    if not isinstance(arguments, Mapping):
        message = f"expected a mapping of the arguments of {name} ({takes}), got {arguments!r}"
        _refuse_rule("runnable_invalid", where, message)
    given = {
        key: _rule(argument, f"{where}.{name}.{key}") if key == "rule" else argument
        for key, argument in arguments.items()
    }
    try:
        rule: Rule = RULES[name](**given)
    except (TypeError, ValueError) as error:
        _refuse_rule("runnable_invalid", where, f"{name}: {error}; it takes ({takes})")
    return rule


def _refuse_rule(rule: str, where: str, message: str) -> NoReturn:
    raise DefinitionError(Mistake(rule, where, message))
