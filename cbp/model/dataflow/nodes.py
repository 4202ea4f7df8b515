"""The nodes of a dataflow: sources, and stages with their wiring. Plain values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from cbp.model.dataflow.stage import CHANGES_OF, RunnableSpec, TranslatorSpec
from cbp.model.flow.back_pressure import FlowLimit
from cbp.model.flow.retention import NO_WISH, RetentionWish
from cbp.model.flow.schema import Schema
from cbp.model.source.bad_records import QUARANTINE_FILE, BadRecords
from cbp.model.source.unfinished_names import UNFINISHED

FORMATS = ("jsonl", "csv", "parquet", "avro", "text", "access_log", "xml", "delta")
BINARY_FORMATS = ("parquet", "avro", "delta")
"""Formats whose records are not lines of the file."""

DUPLICATES = ("accept", "skip", "quarantine")
SAME_NAME = ("quarantine", "add", "replace")
BATCH_FILES, BATCH_BYTES = 1_000, 64 << 20
"""Maximum number of files and of bytes in an increment of several files, by default. This many
small files take about a second, and meanwhile the other sources of the dataflow wait."""
BATCH_FILES_MAX, BATCH_SECONDS_MAX = 10_000, 3600
BACKLOG_FILES = 32
"""This many waiting files are a backlog. If there are fewer, their runs take a few seconds in all,
and each file has an epoch of its own, which shows its effect."""
BUCKETS_DEFAULT = 8
BUCKETS_MAX = 4096


@dataclass(frozen=True, slots=True)
class FileBatch:
    """How many waiting files become one increment; a file above the limit is an increment alone.

    Attributes:
        bytes: Largest total size of the files, as dropped.
        seconds: How long the first file may wait for more; 0 means not at all.
        backlog: If this many files wait, `files` is ignored, and the files are taken together as
            with `FileBatch()`, unless this affects the result of a stage (`reading_together`);
            0 means never.
    """

    files: int = BATCH_FILES
    bytes: int = BATCH_BYTES
    seconds: float = 0.0
    backlog: int = 0


ONE_FILE = FileBatch(files=1)
"""Every file is an increment of its own, so that a stage can tell files apart by its epochs."""
UNSAID = FileBatch(files=1, backlog=BACKLOG_FILES)
"""Every file is an increment of its own, except in a backlog where only the final state counts."""


@dataclass(frozen=True, slots=True)
class SourceNode:
    """A flow that is fed from outside.

    Attributes:
        format: Format of dropped files, one of `FORMATS`, with `options` (`ReadOptions`).
        keep: How long its increments are kept once all readers have read them.
        duplicates: One of `DUPLICATES`: what happens to a file that has the content of an
            accepted file but another name.
        location: A further location of files, as read by `BucketPrefix.parse`; `""` means only
            the drop folder.
        same_name: One of `SAME_NAME`: what happens to a file that has the name of an accepted file
            but other content.
        unfinished: Endings of the names of unfinished files.
        nested: Whether files in folders below its drop folder are taken in, too.
        cut_anywhere: Whether the ends of its increments affect no stage and no sink. `Dataflow`
            sets it.
    """

    name: str
    schema: Schema
    format: str = "jsonl"
    options: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    keep: RetentionWish = NO_WISH
    duplicates: str = "accept"
    on_bad_records: BadRecords = QUARANTINE_FILE
    batch: FileBatch = UNSAID
    location: str = ""
    same_name: str = "quarantine"
    unfinished: tuple[str, ...] = UNFINISHED
    nested: bool = False
    cut_anywhere: bool = False

    @property
    def joins_backlog(self) -> bool:
        """Whether a backlog of its files is taken together even if it declares no batch."""
        return self.cut_anywhere and self.batch.backlog > 0

    def batch_of(self, waiting: int) -> FileBatch:
        """Return how many files become one increment while this many wait."""
        if self.joins_backlog and waiting >= self.batch.backlog:
            return FileBatch()
        return self.batch


@dataclass(frozen=True, slots=True)
class StageNode:
    """A node of the graph: one translator with its wiring and parallelism.

    Attributes:
        reference: The registered name of the translator; `""` if built in code.
        wiring: Maps input names to flow names; loopbacks are added automatically. Names of look-ups
            are moved to `lookups`.
        buckets: Number of hash partitions of its groups and state; a power of two.
        fuse: Whether it can run together with its neighbours; see `cbp.model.plan.fusion`.
        limits: Maps output names to how much of the output can wait at a reader.
        idle: Maps framed inputs to the seconds without a record after which the open frame is
            closed, overriding the translator; 0 means never.
        run_seconds_max: Time limit of one run; `None` means the service's limit.
        keep: Maps output names to how long their increments are kept; others are kept forever.
        lookups: Maps look-ups to the tables that they read, as `stage.state`.
        any_order: Whether a group's result depends only on its records, not on their order and
            epochs, so that it can be recomputed (`cbp.model.dataflow.replacement_obstacles`).
        set_aside_max: How many records it can set aside, if its code fails on them
            (`cbp.model.dataflow.set_aside`); `None` if it stops instead.
        together: The rule by which its runs read all queued increments
            (`cbp.model.dataflow.reading_together`); `None` if they do not. `Dataflow` sets it.
    """

    name: str
    translator: TranslatorSpec
    wiring: Mapping[str, str]
    reference: str = ""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    buckets: int = BUCKETS_DEFAULT
    fuse: bool = True
    rule: RunnableSpec | None = None
    limits: Mapping[str, FlowLimit] = field(default_factory=dict)
    idle: Mapping[str, float] = field(default_factory=dict)
    run_seconds_max: float | None = None
    keep: Mapping[str, RetentionWish] = field(default_factory=dict)
    lookups: Mapping[str, str] = field(default_factory=dict)
    together: RunnableSpec | None = None
    any_order: bool = False
    set_aside_max: int | None = None

    @property
    def sets_aside(self) -> bool:
        """Whether the stage sets aside records on which its code fails."""
        return self.set_aside_max is not None

    @property
    def runnable(self) -> RunnableSpec:
        """The rule that starts the stage and chooses the input of its runs."""
        rule = self.together or self.declared_rule
        return replace(rule, sets_aside=True) if self.sets_aside else rule

    @property
    def declared_rule(self) -> RunnableSpec:
        """The rule that its dataflow's document or otherwise its translator declares."""
        return self.rule or self.translator.runnable

    def close_idle_seconds(self, input_: str) -> float:
        """Return the seconds without a record after which an open frame is closed; 0: never."""
        return self.idle.get(input_, self.translator.input(input_).close_idle_seconds)

    def __post_init__(self) -> None:
        specs = {spec.name: spec for spec in self.translator.lookups}
        if specs:
            lookups = {n: table for n, table in self.wiring.items() if n in specs}
            lookups = {**self.lookups, **lookups}
            wiring = {n: flow for n, flow in self.wiring.items() if n not in specs}
            woken = {CHANGES_OF.format(n): t for n, t in lookups.items() if specs[n].wake}
            object.__setattr__(self, "lookups", MappingProxyType(lookups))
            object.__setattr__(self, "wiring", MappingProxyType({**woken, **wiring}))
        own = {spec.name: f"{self.name}.{spec.name}" for spec in self.translator.loopbacks}
        if own:
            # Wiring that an author gave for a loopback is kept, so that `check` can report it.
            object.__setattr__(self, "wiring", MappingProxyType({**own, **self.wiring}))
