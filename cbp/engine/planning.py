"""From a planned run to what each of its tasks is given: files, live state, number of tasks.

Guaranteed: nothing is written, and no log is read again: the tables are as the run before
left them, with what it recorded on top. A plan holds names of files, never records.
Absent on purpose: whether the tasks' input is shuffled; that is the executor's choice.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from cbp.engine.base import RunPlan
from cbp.engine.bindings import BindingFile
from cbp.engine.executor import Executor
from cbp.engine.faults import Faults
from cbp.engine.fused import followers_of, only_flow
from cbp.engine.layout import shuffle_layout
from cbp.engine.opened import OpenTables
from cbp.engine.reach import Reach
from cbp.engine.records import record_shares, share_of
from cbp.engine.taskplan import TaskPlan, Then
from cbp.engine.taskstate import is_overdue
from cbp.model.explain import PhysicalLimits
from cbp.model.increment import DataFile, Increment

__all__ = ["ROWS_PER_TASK", "Planner"]

ROWS_PER_TASK = {"groupwise": 2_000, "arrow": 2_000, "sql": 50_000}
"""Records of an increment, or groups that it reaches, that are worth a task of their own; by form.

A plan of Spark without a shuffle is worth more than a second task for some thousand records.
"""

MESSAGES_MIN = 4_096
"""Messages of a file from which on they lie by bucket; to read fewer whole costs no task more."""


@dataclass(frozen=True, slots=True)
class Planner:
    """Plans the tasks of runs; safe to use from several threads.

    Attributes:
        executor: Carries the tasks out.
        tables: Where the state lies.
        cache: Folder of the index copies, on every worker's machine.
        hash_mask: Applied to every hash.
        reach: What runs like the planned one called; told by whoever carries them out.
    """

    executor: Executor
    tables: OpenTables
    cache: str
    hash_mask: int
    reach: Reach = field(default_factory=Reach)

    def limits(self) -> PhysicalLimits:
        """Return what decides how a run is executed."""
        reads, size = self.executor.arranged_max or (None, None)
        return PhysicalLimits(self.executor.slots, ROWS_PER_TASK, reads, size)

    def jobs(self, plan: RunPlan, *, faults: Faults) -> Iterator[tuple[RunPlan, TaskPlan]]:
        """Yield the jobs of a phase, in order: what each reads, and what its tasks are given.

        There are two where some inputs bring groups and some single records: these have no key
        to be brought together by, so they are read by shares, and written behind the groups.
        """
        specs = plan.node.translator.parts()
        for number, spec in enumerate(specs):
            node = replace(plan.node, translator=spec)
            inputs = {i.name: plan.inputs[i.name] for i in spec.inputs if i.name in plan.inputs}
            part = replace(plan, node=node, inputs=inputs)
            records = sum(i.records for increments in inputs.values() for i in increments)
            task = self.task(part, records, faults=faults)
            if records or _works_on_state(task):
                yield part, replace(task, first_number=number * node.buckets)

    def task(self, plan: RunPlan, records: int, *, faults: Faults) -> TaskPlan:
        """Return what every task of a phase is given.

        Args:
            plan: The phase; its fused stages follow in its tasks.
            records: That it reads; it goes by them how many tasks are worth it, or by the groups
                that such a run called the last time, where these are more.
            faults: Told at every file that a task writes.
        """
        spec, node = plan.node.translator, plan.node
        outer = any(state.grouping == "outer" for state in spec.states)
        work = max(records, self.reach.expected(plan))
        wanted = node.buckets if outer else -(-work // ROWS_PER_TASK[spec.form])
        return TaskPlan(
            folder=plan.folder,
            stage=node.name,
            epoch=plan.epoch,
            run=plan.run,
            spec=spec,
            layout=None if spec.record_wise else shuffle_layout(spec),
            buckets=node.buckets,
            tasks=max(1, min(wanted, plan.slots_of(self.executor.slots), node.buckets)),
            states={
                state.name: self.tables.state(
                    plan.folder, node, state.name, plan.unpublished, refresh=False
                )
                for state in spec.states
            },
            cache=self.cache,
            inputs={
                name: tuple(share_of(plan.folder, f) for i in many for f in i.files)
                for name, many in plan.inputs.items()
            },
            in_place=_in_place(plan),
            by_bucket=_by_bucket(plan),
            by_bucket_min=MESSAGES_MIN,
            bindings=tuple(
                BindingFile(f"{plan.folder}/{file.path}", file.records, increment.index)
                for file, increment in _bindings(plan).items()
            ),
            followers=followers_of(plan),
            hash_mask=self.hash_mask,
            faults=faults,
        )

    def then(self, plan: RunPlan, behind: RunPlan, *, faults: Faults) -> Then | None:
        """Return what the only task of a phase may go on with; `None`: there are several."""
        outer = any(state.grouping == "outer" for state in behind.node.translator.states)
        in_sql = behind.node.translator.form == "sql" or any(
            input_.in_sql for input_ in behind.node.translator.inputs
        )
        slots = plan.slots_of(self.executor.slots)
        if outer or in_sql or len(record_shares(plan, slots)) > 1:
            return None
        task = self.task(behind, records=1, faults=faults)
        return Then(only_flow(behind.node), task)


def _works_on_state(task: TaskPlan) -> bool:
    """Tell whether tasks that get no record have something to do."""
    if task.spec.record_wise:
        return False
    return any(
        live and (state.grouping == "outer" or is_overdue(live))
        for state in task.spec.states
        for live in task.states[state.name].live.values()
    )


def _in_place(plan: RunPlan) -> frozenset[str]:
    """Return the inputs of which some file lies by the buckets that the stage has."""
    return frozenset(
        input_.name
        for input_ in plan.node.translator.inputs
        if input_.lies_by_bucket
        and any(
            file.whole and file.buckets == plan.node.buckets
            for increment in plan.inputs.get(input_.name, ())
            for file in increment.files
        )
    )


def _by_bucket(plan: RunPlan) -> frozenset[str]:
    """Return the messages of a stage that nobody else reads, and that tasks can route."""
    spec = plan.node.translator
    return frozenset(
        input_.name
        for input_ in (*spec.inputs, *spec.absent)
        if input_.lies_by_bucket and f"{plan.node.name}.{input_.name}" in plan.own_messages
    )


def _bindings(plan: RunPlan) -> Mapping[DataFile, Increment]:
    """Return the files of bindings, each with an increment of the epoch that made them."""
    return {
        file: increment
        for increments in plan.inputs.values()
        for increment in increments
        for file in increment.bindings
    }
