"""DataflowBuilder: wire translators into a dataflow in Python code instead of a document.

    flow = DataflowBuilder("word_counts")
    lines = flow.source("lines", "text STRING")
    words = flow.stage("split", SplitWords(), lines=lines)
    flow.stage("count", CountPerKey("word STRING"), items=words.words)
    dataflow = flow.build()

A flow can be wired by name (`items="split.words"`) before its stage exists, so cycles need no
special form. `build` raises one error that lists every mistake.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from cbp.errors import DataflowInvalidError, DefinitionError, Mistake, text_of
from cbp.model.dataflow.dataflow import EVERY_EPOCH, Dataflow, PublishPolicy
from cbp.model.dataflow.nodes import BUCKETS_DEFAULT, UNSAID, FileBatch, SourceNode, StageNode
from cbp.model.dataflow.set_aside import read_on_error
from cbp.model.dataflow.sinks import SinkNode
from cbp.model.flow.retention import NO_WISH, RetentionWish
from cbp.model.flow.schema import Schema
from cbp.model.source.bad_records import BadRecords
from cbp.model.source.unfinished_names import UNFINISHED
from cbp.sdk.translate import Declared, spec_of


@dataclass(frozen=True, slots=True)
class Flow:
    """A handle to a flow, for wiring."""

    name: str


class StageFlows:
    """Handles to the outputs of one stage, as attributes."""

    def __init__(self, stage: str, outputs: tuple[str, ...]) -> None:
        self._stage, self._outputs = stage, outputs

    def __getattr__(self, output: str) -> Flow:
        if output.startswith("_"):
            raise AttributeError(output)
        return Flow(f"{self._stage}.{output}")

    def __dir__(self) -> list[str]:
        return list(self._outputs)


class DataflowBuilder:
    """Collects sources, stages and sinks; not thread-safe.

    `publish` says when the tables show the results of runs; by default, after every epoch.
    """

    def __init__(self, name: str, *, publish: PublishPolicy = EVERY_EPOCH) -> None:
        self._name, self._publish = name, publish
        self._sources: dict[str, SourceNode] = {}
        self._stages: dict[str, StageNode] = {}
        self._sinks: dict[str, SinkNode] = {}
        self._retention_wishes: dict[str, RetentionWish] = {}
        self._mistakes: list[Mistake] = []

    def source(
        self,
        name: str,
        schema: str,
        *,
        format: str = "jsonl",
        options: Mapping[str, str] = MappingProxyType({}),
        keep: RetentionWish = NO_WISH,
        duplicates: str = "accept",
        on_bad_records: str | Mapping[str, Any] = "quarantine_file",
        batch: FileBatch = UNSAID,
        location: str = "",
        same_name: str = "quarantine",
        unfinished: tuple[str, ...] = UNFINISHED,
        nested: bool = False,
    ) -> Flow:
        """Declare a flow that is fed from outside, and return its handle.

        `duplicates` applies to a file with the content of an accepted file, but another name:
        `"accept"` takes it as data, `"skip"` leaves it out, `"quarantine"` moves it to
        quarantine. `on_bad_records` decides about a file with some wrong records; see
        `cbp.model.source.bad_records`. `batch` is the number of waiting files that become one
        increment. Without it each file is an increment, except in a backlog, if the stages
        depend only on the final state. `location` is a prefix of a bucket, such as
        `"s3://bucket/orders/"`, whose objects are taken in like dropped files. `same_name`
        applies to a file with the name of an accepted file, but other content: `"quarantine"`
        moves it to quarantine, `"add"` takes it as data, `"replace"` takes back the records of
        the earlier file. Files whose names end in one of `unfinished` are incomplete, and stay
        where they are. With `nested`, files in folders below the drop folder are taken in, too.
        """
        self._require_new("sources", name, self._sources)
        given: dict[str, tuple[object, type, str]] = {
            "schema": (schema, str, "DDL text, such as 'url STRING'"),
            "batch": (batch, FileBatch, "a FileBatch, such as FileBatch(files=1000)"),
            "location": (location, str, "a text, such as 's3://bucket/orders/'"),
        }
        wrong = [
            Mistake(
                f"{option}_invalid",
                f"sources.{name}.{option}",
                f"expected {expected}, got {text_of(value, repr)[:100]}",
            )
            for option, (value, type_, expected) in given.items()
            if not isinstance(value, type_)
        ]
        if wrong:
            self._mistakes.extend(wrong)
            return Flow(name)
        try:
            parsed = Schema.parse(schema, where=f"sources.{name}.schema")
            self._sources[name] = SourceNode(
                name,
                parsed,
                format,
                options,
                keep,
                duplicates,
                on_bad_records=BadRecords.parse(on_bad_records),
                batch=batch,
                location=location,
                same_name=same_name,
                unfinished=unfinished,
                nested=nested,
            )
        except DefinitionError as error:
            self._mistakes.extend(error.mistakes)
        except ValueError as exc:
            where = f"sources.{name}.on_bad_records"
            self._mistakes.append(Mistake("on_bad_records_invalid", where, str(exc)))
        return Flow(name)

    def stage(
        self,
        name: str,
        translator: Declared,
        /,
        *,
        buckets: int | Flow = BUCKETS_DEFAULT,
        fuse: bool | Flow = True,
        any_order: bool | Flow | str = False,
        on_error: str | Flow = "stop",
        set_aside_max: int | Flow | None = None,
        **wiring: Flow | str,
    ) -> StageFlows:
        """Add a stage, wire its inputs to flows, and return handles to its outputs.

        `wiring` maps each input name to the flow that it reads. An input can have the name of an
        option: if you pass a flow to that parameter, it is wired.

        Args:
            buckets: Number of hash partitions of its groups and state; a power of two.
            fuse: Whether the stage can run together with its neighbours, as one job.
            any_order: Whether a group's result depends only on its records, not on their order
                and epochs, so that it can be recomputed if a file of a source is replaced.
                `cbp.testing.check_any_order` tests it.
            on_error: `"stop"`, or `"set_aside"`: records on which the code fails are set aside,
                up to `set_aside_max` (by default 1,000; `cbp.model.dataflow.set_aside`).
        """
        options: dict[str, Any] = {
            "buckets": buckets,
            "fuse": fuse,
            "any_order": any_order,
            "on_error": on_error,
            "set_aside_max": set_aside_max,
        }
        for option, given in [*options.items()]:
            if isinstance(given, Flow) or (option == "any_order" and isinstance(given, str)):
                wiring[option] = options.pop(option)
        most: int | None = None
        try:
            most = read_on_error(
                options.pop("on_error", "stop"), options.pop("set_aside_max", None)
            )
        except ValueError as exc:
            where = f"stages.{name}.on_error"
            self._mistakes.append(Mistake("on_error_invalid", where, str(exc)))
        self._require_new("stages", name, self._stages)
        wired = {i: self._flow(name, i, flow) for i, flow in wiring.items()}
        try:
            spec = spec_of(translator)
        except DefinitionError as error:
            self._mistakes.extend(error.mistakes)
            return StageFlows(name, ())
        self._stages[name] = StageNode(
            name, spec, MappingProxyType(wired), set_aside_max=most, **options
        )
        return StageFlows(name, tuple(output.name for output in spec.outputs))

    def _require_new(self, kind: str, name: str, known: Collection[str]) -> None:
        if name in known:
            message = f"two {kind} have this name; rename one"
            self._mistakes.append(Mistake("name_twice", f"{kind}.{name}", message))

    def _flow(self, stage: str, input_: str, given: object) -> str:
        """Return the name of the flow wired to an input; note a mistake if it is not a flow."""
        if isinstance(given, Flow):
            return given.name
        if not isinstance(given, str):
            if isinstance(given, StageFlows):
                has = ", ".join(dir(given)) or "none"
                message = f"a stage is not a flow: name one of its outputs ({has})"
            else:
                message = (
                    f"got {type(given).__name__}; expected the value that flow.source(...) "
                    "returned, an output of a stage, or the name of a flow"
                )
            where = f"stages.{stage}.inputs.{input_}"
            self._mistakes.append(Mistake("wiring_invalid", where, message))
            return ""
        return given

    def sink(
        self,
        name: str,
        *,
        to: str,
        flow: Flow | str = "",
        view: Flow | str = "",
        path: str = "",
        url: str = "",
        secret: str = "",
        begin: str = "beginning",
        paused: bool = False,
    ) -> None:
        """Publish a flow, or mirror a view; see `cbp.model.dataflow.sinks` for the rules.

        Args:
            to: `"parquet"`, `"csv"`, `"delta"` or `"webhook"`.
            flow, view: The flow whose increments are published, or the view that is mirrored.
            path: The folder that it writes, absolute or below the service's first sink folder.
            url: The address to which a webhook posts.
            secret: Name of the secret that signs a webhook's requests.
            begin: `"beginning"` means from the oldest kept increment; `"now"` from the next one.
        """
        self._require_new("sinks", name, self._sinks)
        reads = _name_of(flow), _name_of(view)
        self._sinks[name] = SinkNode(name, to, *reads, path, url, secret, begin, paused)

    def keep(self, output: Flow | str, wish: RetentionWish) -> None:
        """Set how long increments of a stage's output are kept once read; by default forever."""
        self._retention_wishes[_name_of(output)] = wish

    def build(self) -> Dataflow:
        """Return the checked dataflow; raise `DataflowInvalidError` with every mistake."""
        wishes: dict[str, dict[str, RetentionWish]] = {}
        for flow, wish in self._retention_wishes.items():
            stage, _, output = flow.partition(".")
            wishes.setdefault(stage, {})[output] = wish
            if stage not in self._stages:
                message = f"there is no stage {stage!r}; name an output as 'stage.output'"
                self._mistakes.append(Mistake("keep_output_unknown", f"keep.{flow}", message))
        stages = {
            name: replace(node, keep=MappingProxyType(wishes.get(name, {})))
            for name, node in self._stages.items()
        }
        dataflow = Dataflow(
            self._name,
            MappingProxyType(self._sources),
            MappingProxyType(stages),
            self._publish,
            sinks=MappingProxyType(self._sinks),
        )
        try:
            dataflow.check()
        except DataflowInvalidError as error:
            known_places = {mistake.where for mistake in self._mistakes}
            self._mistakes += [one for one in error.mistakes if one.where not in known_places]
        if self._mistakes:
            raise DataflowInvalidError(self._name, self._mistakes)
        return dataflow


def _name_of(flow: Flow | str) -> str:
    return flow.name if isinstance(flow, Flow) else flow
