"""Planner of a run's tasks: their input files, live state files and number.

Guaranteed: nothing is written, and no table log is read again: the tables are taken as the
previous run left them, plus the changes that are recorded but not published. A plan has names of
files, never records.

How many tasks a run gets depends on how many groups it is expected to call (`FanoutEstimate`). The
number of records is not enough: one record to `ALL` calls every group of a state. The groups
are only known once a task has called the author's RouteBy. But stages repeat themselves, so a run
is expected to call as many groups as the last run with records at the same inputs. Only the number
of tasks, and so the time of a run, depends on the estimate.

A loop within a run has several tasks if it can reach enough records to be worth the exchange
between them (`_loop_rows`), and if slots are free. Apart from free slots, this depends only on what
the run reads. So a try of a run can continue from the snapshots of an earlier try with as many
tasks, which it finds by a digest of what the run depends on (`_depends_on`,
`cbp.engine.task.superstep_log`).
"""

from __future__ import annotations

import hashlib
import json
import pickle
import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from cbp.engine.columnar.file_slices import Share, share_of
from cbp.engine.commit.table_entries import shown_generation
from cbp.engine.interface.runs import LookedUp, RunPlan
from cbp.engine.run.executor import Executor
from cbp.engine.run.phases import followers_of, only_flow
from cbp.engine.run.table_cache import OpenTables
from cbp.engine.shuffle.layout import shuffle_layout
from cbp.engine.shuffle.multicast_bindings import BindingFile
from cbp.engine.state.bucket_state import StateTable
from cbp.engine.storage.engine_limits import EngineLimits
from cbp.engine.storage.failpoints import Faults
from cbp.engine.task.record_task import record_shares
from cbp.engine.task.state_writer import is_overdue
from cbp.engine.task.task_plan import LookupTable, TaskPlan, Then
from cbp.errors import LookupTooLargeError
from cbp.model.dataflow.stage import LookupSpec
from cbp.model.flow.increment import DataFile, Increment

KINDS_MAX = 4_096
"""Number of kinds of runs that are remembered, the latest ones; each takes some hundred bytes."""

_Kind = tuple[str, str, tuple[str, ...]]


class FanoutEstimate:
    """Remembers how many groups the last run of each kind called; thread-safe.

    Two runs of a stage are of one kind if the same inputs of the stage got records.
    """

    def __init__(self) -> None:
        self._groups: OrderedDict[_Kind, int] = OrderedDict()
        self._lock = threading.Lock()

    def expected(self, plan: RunPlan) -> int:
        """Return how many groups a run is expected to call; 0 if no run of its kind was seen."""
        with self._lock:
            return self._groups.get(_kind(plan), 0)

    def note(self, plan: RunPlan, groups: int) -> None:
        """Remember how many groups a run called."""
        kind = _kind(plan)
        with self._lock:
            self._groups[kind] = groups
            self._groups.move_to_end(kind)
            while len(self._groups) > KINDS_MAX:
                self._groups.popitem(last=False)


def _kind(plan: RunPlan) -> _Kind:
    came = sorted(name for name, many in plan.inputs.items() if any(i.records for i in many))
    return plan.folder, plan.node.name, tuple(came)


@dataclass(frozen=True, slots=True)
class Planner:
    """Plans the tasks of runs; safe to use from several threads."""

    executor: Executor
    tables: OpenTables
    cache: str
    hash_mask: int
    limits: EngineLimits
    reach: FanoutEstimate = field(default_factory=FanoutEstimate)

    def jobs(self, plan: RunPlan, *, faults: Faults) -> Iterator[tuple[RunPlan, TaskPlan]]:
        """Yield the jobs of a phase, in order: each job's part of the run, and its tasks.

        There are two jobs if some inputs bring groups and others bring single records. Single
        records have no key to group by, so they are read by shares, and their output is written
        after that of the groups.
        """
        specs, context = plan.node.translator.parts(), plan.context()
        for number, spec in enumerate(specs):
            node = replace(plan.node, translator=spec)
            inputs = {i.name: plan.inputs[i.name] for i in spec.inputs if i.name in plan.inputs}
            # Messages of a loop wait while messages of loops inside it have arrived, too.
            loops = [one.name for one in spec.loopbacks]
            came = [name for name in loops if any(i.records for i in inputs.get(name, ()))]
            held = {name: inputs.pop(name) for name in {*came} - spec.loops.next_of(came)}
            part = replace(plan, node=node, inputs=inputs)
            records = sum(i.records for increments in inputs.values() for i in increments)
            task = self.task(part, records, faults=faults, held=held)
            if records or _works_on_state(task):
                numbers = number * node.buckets
                yield part, replace(task, first_number=numbers, context=context)

    def task(
        self,
        plan: RunPlan,
        records: int,
        *,
        faults: Faults,
        held: Mapping[str, Sequence[Increment]] = MappingProxyType({}),
    ) -> TaskPlan:
        """Return the plan that every task of a phase is given; its fused stages run as followers.

        The number of tasks depends on the number of records that the phase reads, or of groups that
        the last such run called, whichever is larger. `held` has, by loopback, messages that the
        first superstep of a loop does not read.
        """
        spec, node = plan.node.translator, plan.node
        outer = any(state.grouping == "outer" for state in spec.states)
        work = max(records, self.reach.expected(plan))
        wanted = node.buckets if outer else -(-work // self.limits.rows_per_task_of(spec.form))
        slots = plan.slots_of(self.executor.slots)
        states = {
            one.name: self.tables.state(
                plan.folder, node, one.name, plan.unpublished, refresh=False
            )
            for one in spec.states
        }
        if spec.supersteps > 1:
            rows = _loop_rows(plan, records, states, self.limits)
            worth = -(-rows // self.limits.rows_per_loop_task)
            most = plan.slots_of(self.executor.loop_tasks_max)
            wanted = max(1, min(most, worth, node.buckets))
            slots = self.executor.loop_slots() if wanted > 1 else 1
        elif spec.has_one_task:
            wanted = 1
        task = TaskPlan(
            folder=plan.folder,
            stage=node.name,
            epoch=plan.epoch,
            run=plan.run,
            spec=spec,
            layout=None if spec.record_wise else shuffle_layout(spec),
            buckets=node.buckets,
            tasks=max(1, min(wanted, slots, node.buckets)),
            states=states,
            cache=self.cache,
            work=work,
            worth=wanted,
            inputs=_shares(plan.folder, plan.inputs),
            held=_shares(plan.folder, held),
            in_place=_in_place(plan),
            by_bucket=_by_bucket(plan),
            bindings=tuple(
                BindingFile(f"{plan.folder}/{file.path}", file.records, increment.index)
                for file, increment in _bindings(plan).items()
            ),
            followers=followers_of(plan),
            context=plan.context(),
            lookups={
                one.name: self._looked_up(node.name, one, plan.lookups[f"{node.name}.{one.name}"])
                for one in spec.lookups
            },
            wakes=plan.wakes,
            ages=plan.wakes and plan.due_ms == 0,
            hash_mask=self.hash_mask,
            faults=faults,
            limits=self.limits,
        )
        if not spec.is_logged:
            return task
        snapshots = [self.tables.table(one.folder).snapshot for one in task.states.values()]
        generations = [shown_generation(one.txns) for one in snapshots]
        return replace(task, depends_on=_depends_on(plan, task, generations))

    def _looked_up(self, stage: str, spec: LookupSpec, one: LookedUp) -> LookupTable:
        table = self.tables.looked_up(one)
        if not spec.by and table.rows > (most := self.limits.settings_rows):
            raise LookupTooLargeError(stage, spec.name, table.rows, most)
        return LookupTable(table, one.node.buckets)

    def then(self, plan: RunPlan, behind: RunPlan, *, faults: Faults) -> Then | None:
        """Return the second phase for the first phase's task to run too, or `None`."""
        spec = behind.node.translator
        outer = any(state.grouping == "outer" for state in spec.states)
        in_sql = spec.form == "sql" or any(input_.in_sql for input_ in spec.inputs)
        slots = plan.slots_of(self.executor.slots)
        if outer or in_sql or behind.wakes or len(record_shares(plan, slots, self.limits)) > 1:
            return None
        task = self.task(behind, records=1, faults=faults)
        return Then(only_flow(behind.node), task) if task.tasks == 1 else None


def _shares(folder: str, inputs: Mapping[str, Sequence[Increment]]) -> dict[str, tuple[Share, ...]]:
    return {
        name: tuple(share_of(folder, file) for one in many for file in one.files)
        for name, many in inputs.items()
    }


def _loop_rows(
    plan: RunPlan, records: int, states: Mapping[str, StateTable], limits: EngineLimits
) -> int:
    """Return about how many records a loop can reach, as known before it begins.

    These are the records that arrive, all records of states that are grouped outer, and for each
    record that arrives `loop_reach` records of other states.
    """
    kept = {name: table.rows for name, table in states.items()}
    outer = {one.name for one in plan.node.translator.states if one.grouping == "outer"}
    whole = sum(rows for name, rows in kept.items() if name in outer)
    return records + whole + min(sum(kept.values()) - whole, limits.loop_reach * records)


_LOG_FORMAT = 2
"""Format of a loop's snapshots; increase it whenever their content changes."""


def _depends_on(plan: RunPlan, task: TaskPlan, generations: Sequence[int]) -> str:
    """Return a digest of all that the supersteps of a run depend on; `""` if unknown.

    It is the same for each try of a run, before and after a publication of the runs before it.
    """
    spec, made = task.spec, _made(plan)
    if not spec.code or not made:
        return ""
    files = [
        [name, bucket, file.path, file.rows, file.dead]
        for name, table in task.states.items()
        for bucket, live in table.live.items()
        for file in live
    ]
    known = {
        "format": _LOG_FORMAT,
        "stage": [task.stage, task.epoch, task.buckets, task.hash_mask, spec.code.text, spec.anew],
        "made": made,
        "inputs": {
            name: [repr(one) for one in many] for name, many in {**task.inputs, **task.held}.items()
        },
        "states": [[table.id for table in task.states.values()], list(generations), sorted(files)],
        "lookups": {name: repr(one.moment) for name, one in plan.lookups.items()},
        "run": repr(task.context) if spec.gives_run or task.wakes or task.ages else "",
    }
    return hashlib.sha256(json.dumps(known, sort_keys=True).encode()).hexdigest()[:32]


def _made(plan: RunPlan) -> str:
    """Return the translator's parameters, or its attributes; `""` if unknown."""
    node = plan.node
    if node.reference:
        return json.dumps([node.reference, dict(node.parameters)], sort_keys=True)
    try:
        return pickle.dumps(vars(getattr(node.translator.translate, "__self__", node))).hex()
    except Exception:  # an author's object may raise anything
        return ""


def _works_on_state(task: TaskPlan) -> bool:
    """Return whether tasks that get no records still have work to do on state."""
    if task.spec.record_wise:
        return False
    return any(
        live
        and (
            state.grouping == "outer"
            or (state.timers and task.wakes)
            or (state.expire_ms and task.ages)
            or is_overdue(live, task.limits)
        )
        for state in task.spec.states
        for live in task.states[state.name].live.values()
    )


def _in_place(plan: RunPlan) -> frozenset[str]:
    """Return the inputs with a file that is sorted by the stage's current buckets."""
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
    """Return a stage's message flows that only the stage itself reads, and that tasks can route."""
    spec = plan.node.translator
    return frozenset(
        input_.name
        for input_ in (*spec.inputs, *spec.absent)
        if input_.lies_by_bucket and f"{plan.node.name}.{input_.name}" in plan.own_messages
    )


def _bindings(plan: RunPlan) -> Mapping[DataFile, Increment]:
    return {
        file: increment
        for increments in plan.inputs.values()
        for increment in increments
        for file in increment.bindings
    }
