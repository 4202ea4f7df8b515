"""The task plan: plain data that all tasks of one run share, shipped to the workers.

It is made from the plan of the run (`cbp.engine.interface.runs.RunPlan`), by
`cbp.engine.run.task_planner`. It holds names and sizes of files and the author's spec, never
records, so it is cheap to ship.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain

from cbp.engine.columnar.key_hash import first_bucket
from cbp.engine.shuffle.layout import FlowRoute, ShuffleLayout
from cbp.engine.shuffle.message_index import Receivers
from cbp.engine.shuffle.multicast_bindings import BindingFile
from cbp.engine.shuffle.replicated_read import InputFile, Replicate
from cbp.engine.state.bucket_state import StateTable
from cbp.engine.storage.engine_limits import DEFAULT_LIMITS, EngineLimits
from cbp.engine.storage.failpoints import NO_FAULTS, Faults
from cbp.model.dataflow.run_context import NO_RUN, RunContext
from cbp.model.dataflow.stage import TranslatorSpec


@dataclass(frozen=True, slots=True)
class Follower:
    """A record-wise stage that runs in the task of the stage whose output, `flow`, it reads."""

    stage: str
    spec: TranslatorSpec
    flow: str
    context: RunContext = NO_RUN


@dataclass(frozen=True, slots=True)
class LeftOut:
    """The groups, by keys as JSON, that a run leaves out; beyond `most`, the search ends."""

    keys: tuple[str, ...]
    most: int


@dataclass(frozen=True, slots=True)
class LookupTable:
    """A table of another stage, and the number of its buckets."""

    table: StateTable
    buckets: int

    def beside(self, chosen: Sequence[int], buckets: int) -> tuple[int, ...]:
        """Return this table's buckets for the hashes in the `chosen` ones of `buckets` buckets."""
        each = (
            range(b * self.buckets // buckets, -(-(b + 1) * self.buckets // buckets))
            for b in chosen
        )
        return tuple(sorted(set(chain.from_iterable(each))))


@dataclass(frozen=True, slots=True)
class TaskPlan:
    """The plan that all tasks of one run share; plain data, shipped to the workers.

    Attributes:
        states: Maps each state to its table and live files.
        tasks: Number of tasks; task t owns the buckets b with `b * tasks // buckets == t`.
        work: Records that the job reads, or groups that it is expected to call, if these are more.
        worth: Number of tasks that the run is worth, even if fewer slots are free.
        first_number: Number in file names of the job's first task. A later job of the same run
            has a higher one, so that the names of the files sort in the order of the jobs.
        inputs: Maps each input to its files, in order.
        held: For a loop with others inside it: maps its loopbacks to files, in order, that the
            first superstep does not read. Their messages wait for those of the inner loops.
        in_place: Inputs that are not shuffled (`cbp.engine.task.message_reader`).
        by_bucket: Outputs whose records may be sorted by their receivers' buckets.
        bindings: Binding files of the epochs whose messages are read.
        followers: Record-wise stages that run in this stage's tasks, on what it emits.
        then: The groupwise stage downstream of a record-wise one; a single task may run both.
        replicate: Makes the function that copies shared records for each group before the
            shuffle, as the black box does; `None` means that each task gets one copy.
        wakes: Whether groups with a timer up to the time of `context` are called.
        set_aside: The groups that are left out, if the stage sets aside what its code fails on.
        ages: Whether groups that have no timer, though their state expires, get one; only if
            `wakes`.
        depends_on: Digest of what the supersteps of a loop depend on, the same for each try of a
            run; `""` if they are not logged (`cbp.engine.task.superstep_log`).
        hash_mask: Applied to every hash; all bits are set, except in tests of collisions.
    """

    folder: str
    stage: str
    epoch: int
    run: str
    spec: TranslatorSpec
    layout: ShuffleLayout | None
    buckets: int
    tasks: int
    states: Mapping[str, StateTable]
    cache: str
    inputs: Mapping[str, tuple[InputFile, ...]]
    held: Mapping[str, tuple[InputFile, ...]] = field(default_factory=dict)
    in_place: frozenset[str] = frozenset()
    by_bucket: frozenset[str] = frozenset()
    bindings: tuple[BindingFile, ...] = ()
    followers: tuple[Follower, ...] = ()
    then: Then | None = None
    work: int = 0
    worth: int = 1
    first_number: int = 0
    context: RunContext = NO_RUN
    lookups: Mapping[str, LookupTable] = field(default_factory=dict)
    wakes: bool = False
    ages: bool = False
    set_aside: LeftOut | None = None
    replicate: Callable[[TaskPlan], Replicate] | None = None
    depends_on: str = ""
    hash_mask: int = -1
    faults: Faults = NO_FAULTS
    limits: EngineLimits = DEFAULT_LIMITS

    def owner(self, bucket: int) -> int:
        """Return the number of the task that a bucket belongs to."""
        return bucket * self.tasks // self.buckets

    def route(self, flow: int) -> FlowRoute:
        """Return how the records of the input number `flow` come to the tasks."""
        assert self.layout is not None, "a record-wise stage routes nothing"
        plan = self.stage, self.spec, self.layout, flow, self.buckets
        return FlowRoute(*plan, self.hash_mask, self.limits.narrow_bytes)

    def receivers(self, part: int) -> dict[str, Receivers]:
        """Return the function that computes receivers' buckets, for each output in `by_bucket`."""
        own = (0, 0)
        if not self.spec.record_wise:
            first, stop = (
                first_bucket(at, tasks=self.tasks, buckets=self.buckets) for at in (part, part + 1)
            )
            own = (first, stop)
        least, mask = self.limits.message_rows_min, self.hash_mask
        return {
            one.name: Receivers(self.stage, self.spec, one, self.buckets, own, least, mask)
            for one in (*self.spec.inputs, *self.spec.absent)
            if one.name in self.by_bucket
        }

    def replication(self) -> Replicate | None:
        """Return the function that copies shared records, for one reader of the increment."""
        return None if self.replicate is None else self.replicate(self)


@dataclass(frozen=True, slots=True)
class Then:
    """The plan, for one task, of a groupwise stage that reads only `flow` of a record-wise one."""

    flow: str
    plan: TaskPlan
