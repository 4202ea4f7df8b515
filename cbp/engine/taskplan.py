"""What every task of one run is given: plain data, shipped to the workers.

Guaranteed: it holds names and sizes of files and the author's spec, never records, so that
it costs nothing to ship.
Absent on purpose: how it is made (`cbp.engine.planning`) and what is done with it
(`cbp.engine.task`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from cbp.engine.arrange import InputFile
from cbp.engine.bindings import BindingFile
from cbp.engine.faults import NO_FAULTS, Faults
from cbp.engine.layout import ShuffleLayout, first_bucket
from cbp.engine.outputs import Follower
from cbp.engine.receivers import Receivers
from cbp.engine.replication import Replication
from cbp.engine.state.bucket import StateTable
from cbp.model.stage import TranslatorSpec

__all__ = ["TaskPlan", "Then"]


@dataclass(frozen=True, slots=True)
class TaskPlan:
    """What every task of one run needs; plain data, shipped to the workers.

    Attributes:
        folder: The dataflow's folder.
        states: State name to its table and live files.
        tasks: Number of tasks; task t owns the buckets b with `b * tasks // buckets == t`.
        first_number: Of a task, in the names of files; they order what the jobs of one run write.
        cache: Folder of the index copies on the worker's machine.
        inputs: Input name to its files, in order.
        in_place: Inputs that every task reads its part of where it lies (`cbp.engine.mail`).
        by_bucket: Outputs whose records may lie by the buckets of those who get them.
        by_bucket_min: Records of a file from which on they do.
        bindings: Of the epochs whose messages are read.
        followers: Record-wise stages that work on what this one emits, in its tasks.
        then: The groupwise stage behind a record-wise one, for a single task to go on with.
        replicates: Whether what groups share is copied for each of them before the shuffle,
            as the black box does, instead of once per task.
        hash_mask: Applied to every hash; all bits but in tests of collisions.
        faults: Told at every file that a task writes.
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
    in_place: frozenset[str] = frozenset()
    by_bucket: frozenset[str] = frozenset()
    by_bucket_min: int = 0
    bindings: tuple[BindingFile, ...] = ()
    followers: tuple[Follower, ...] = ()
    then: Then | None = None
    first_number: int = 0
    replicates: bool = False
    hash_mask: int = -1
    faults: Faults = NO_FAULTS

    def owner(self, bucket: int) -> int:
        """Return the number of the task that a bucket belongs to."""
        return bucket * self.tasks // self.buckets

    def receivers(self, part: int) -> dict[str, Receivers]:
        """Return, for each output that may lie by bucket, what finds the buckets."""
        own = (0, 0)
        if not self.spec.record_wise:
            first, stop = (
                first_bucket(at, tasks=self.tasks, buckets=self.buckets) for at in (part, part + 1)
            )
            own = (first, stop)
        return {
            one.name: Receivers(
                self.stage,
                self.spec,
                one,
                self.buckets,
                own,
                self.by_bucket_min,
                self.hash_mask,
            )
            for one in (*self.spec.inputs, *self.spec.absent)
            if one.name in self.by_bucket
        }

    def replication(self) -> Replication | None:
        """Return what copies shared records, for one reader of the increment."""
        if not self.replicates:
            return None
        assert self.layout is not None, "a record-wise stage shares nothing"
        return Replication(self.stage, self.spec, self.layout, self.inputs, self.bindings)


@dataclass(frozen=True, slots=True)
class Then:
    """A groupwise stage whose only input a record-wise one writes.

    Attributes:
        flow: That input, `stage.output`.
        plan: Of one task; its inputs are yet to be written.
    """

    flow: str
    plan: TaskPlan
