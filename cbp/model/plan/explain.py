"""Explain: the physical plan of a dataflow, derived from its description alone; pure.

The plan says which stages run together, and how the records of every input and state reach the
groups. Where an engine decides by the size of an increment, the plan shows the limit; the figures
of a run show what was done.

Guaranteed: every stage, input, state and output occurs once
(tests/cbp/model/plan/test_explain.py).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from cbp.errors.counts import format_count
from cbp.model.dataflow.dataflow import Dataflow
from cbp.model.dataflow.equality import in_words
from cbp.model.dataflow.nodes import BUCKETS_MAX, StageNode
from cbp.model.dataflow.stage import AggregateSpec, Computed, InputSpec, LookupSpec, TranslatorSpec
from cbp.model.flow.framing import FrameBy
from cbp.model.plan.fusion import PhysicalStage, physical_stages, split_phases
from cbp.model.plan.spark_or_worker import Bypass

Way = Literal["shares", "handed_over", "behind", "in_place", "by_size", "shuffled", "every_task"]
"""How records of an input reach the groups; `_WORDS` has the meaning of each."""


@dataclass(frozen=True, slots=True)
class PhysicalLimits:
    """The limits by which an engine plans a run.

    Attributes:
        slots: Tasks that run at the same time.
        rows_per_task: Maps the form of a translator to the number of records that justify
            another task.
        arranged_reads: Every task reads the whole increment while the product of its records and
            the tasks is at most this; `None` means no limit.
        arranged_bytes: Bytes of an increment up to which every task reads all of it.
        bypass: Which jobs run without Spark; `None` if there is no Spark.
        loop_bytes: Bytes that a task of a loop, or the call of a whole run, may hold; 0: unknown.
        loop_tasks: Maximum number of tasks of a loop, which exchange messages.
        rows_per_loop_task: The number of records within a loop's reach that justify another task.
    """

    slots: int
    rows_per_task: Mapping[str, int] = field(default_factory=dict)
    arranged_reads: int | None = None
    arranged_bytes: int | None = None
    bypass: Bypass | None = None
    loop_bytes: int = 0
    loop_tasks: int = 1
    rows_per_loop_task: int = 0


@dataclass(frozen=True, slots=True)
class InputPlan:
    """The plan of one input.

    Attributes:
        route: What gives the group's key: columns, a function or an expression; `""` if there is
            nothing.
        computed: Where the key or the order is computed; `""` if both are plain columns.
        frame_by: What gives the framing key: a column or a function; `""` means that each output
            increment of the flow is one increment of the input.
        memo: Whether the framing function has a memo, so that it reads records in order.
        close_idle_seconds: Seconds without a record after which the open frame is closed;
            0: never.
    """

    input: str
    flow: str
    way: Way
    route: str
    computed: Literal["", "python", "sql"]
    combined: bool
    broadcast: bool
    loopback: bool
    framed: bool
    frame_by: str
    memo: bool
    close_idle_seconds: float
    words: str


@dataclass(frozen=True, slots=True)
class LookupPlan:
    """The plan of one look-up.

    Attributes:
        table: The view or state that is read, as `stage.state`.
        by: Columns of the table that equal the group's key; empty if a group reads all records.
        key: Columns by which a group reads single records; empty if it reads all of its own.
        wakes: Whether a change of looked-up records causes calls of the groups that read them.
    """

    lookup: str
    table: str
    columns: str
    by: tuple[str, ...]
    key: tuple[str, ...]
    wakes: bool
    words: str


@dataclass(frozen=True, slots=True)
class StatePlan:
    """The plan of one state: called groups are looked up, or the whole state is scanned."""

    state: str
    columns: str
    access: Literal["looked_up", "scanned"]
    words: str


@dataclass(frozen=True, slots=True)
class OutputPlan:
    """The plan of one output, with the inputs (`stage.input`) that read it."""

    flow: str
    columns: str
    compared: str
    readers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StagePlan:
    """The plan of one stage.

    Attributes:
        form: `record-wise`, `groupwise`, `arrow`, `run` or `sql`.
        buckets: Hash partitions of groups and state; 0 if it is record-wise.
        tasks_max: Maximum number of tasks of a run.
        runnable: The rule or function that decides when it runs. For a stage that does not
            lead, the rule of its leader applies instead.
        ways: For a loop within a run, or the call of a whole run: how it proceeds and ends, and
            its limit of memory, as a text for people; empty for other stages.
    """

    name: str
    translator: str
    place: str
    form: str
    ways: str
    buckets: int
    tasks_max: int
    rows_per_task: int
    runnable: str
    inputs: tuple[InputPlan, ...]
    lookups: tuple[LookupPlan, ...]
    states: tuple[StatePlan, ...]
    outputs: tuple[OutputPlan, ...]


@dataclass(frozen=True, slots=True)
class UnitPlan:
    """A physical stage: one run, one epoch, one intention.

    Attributes:
        jobs: Maximum number of jobs of a run.
        cycle: Stages of its cycle; empty if it is on none.
    """

    leader: str
    stages: tuple[StagePlan, ...]
    jobs: int
    cycle: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """A dataflow's physical plan; units in the order of the stages."""

    dataflow: str
    sources: Mapping[str, str]
    units: tuple[UnitPlan, ...]
    limits: PhysicalLimits
    lanes: str


def explain(dataflow: Dataflow, leaders: Collection[str], limits: PhysicalLimits) -> Plan:
    """Return the physical plan of a dataflow, whose leaders were chosen at registration."""
    cycles = dataflow.cycles()
    units = []
    for name, unit in physical_stages(dataflow, leaders).items():
        run = _Run(dataflow, unit, split_phases(unit.members), limits, dataflow.own_messages())
        stages = tuple(_stage(run, node) for node in unit.members)
        jobs = len(run.phases) + len(unit.leader.translator.parts()) - 1
        units.append(UnitPlan(name, stages, jobs, cycles.get(name, ())))
    sources = {name: str(source.schema) for name, source in dataflow.sources.items()}
    return Plan(dataflow.name, sources, tuple(units), limits, _lanes(limits))


@dataclass(frozen=True, slots=True)
class _Run:
    """The facts about a physical stage from which its plan is made."""

    dataflow: Dataflow
    unit: PhysicalStage
    phases: list[tuple[StageNode, ...]]
    limits: PhysicalLimits
    own_messages: Collection[str]


def buckets_advised(buckets: int, slots: int) -> int | None:
    """Return how many buckets use an engine's slots evenly; `None` if `buckets` (0: none) does.

    One task works on a bucket, so fewer than two buckets per slot leave slots idle while the last
    tasks end. With more than about four, the cost of small files outweighs the gain.
    """
    if buckets == 0 or buckets >= 2 * slots:
        return None
    return min(BUCKETS_MAX, 1 << (4 * slots - 1).bit_length())


def _stage(run: _Run, node: StageNode) -> StagePlan:
    spec, limits = node.translator, run.limits
    rows = 0 if spec.record_wise else limits.rows_per_task.get(spec.form, 0)
    if spec.supersteps > 1:
        rows = limits.rows_per_loop_task if limits.loop_tasks > 1 else 0
    return StagePlan(
        name=node.name,
        translator=spec.name,
        place=spec.place,
        form="record-wise" if spec.record_wise else spec.form,
        ways=_loop(node, limits),
        buckets=0 if spec.record_wise else node.buckets,
        tasks_max=_tasks_max(node, limits),
        rows_per_task=rows,
        runnable=node.runnable.name,
        inputs=tuple(_input(run, node, input_) for input_ in spec.inputs),
        lookups=tuple(_lookup(node, one) for one in spec.lookups),
        states=tuple(_states(node)),
        outputs=tuple(_outputs(run.dataflow, node)),
    )


def _loop(node: StageNode, limits: PhysicalLimits) -> str:
    """Return how a loop within a run proceeds and ends, in words; empty if there is none."""
    spec = node.translator
    if spec.supersteps == 1 and not spec.has_one_task:
        return ""
    where = "in one task, which holds in memory the records that it reads and changes"
    words = [spec.ways] if spec.ways else []
    if spec.supersteps > 1:
        whole = [_end(aggregate) for aggregate in spec.aggregates if not aggregate.loop]
        ends = ["no message is left", *filter(None, whole)]
        words.append(
            f"as a loop of up to {spec.supersteps:,} supersteps per run, until "
            f"{' or '.join(ends)}; if messages are left, the next run reads them"
        )
        words += _nesting(spec)
        tasks = _tasks_max(node, limits)
        if tasks > 1 and any(one.microsteps for one in spec.loopbacks):
            words.append(
                "a task handles the messages for its own groups until none is left (microsteps), "
                "and then exchanges messages with the other tasks, which ends the superstep"
            )
        where = "in one task, which holds in memory its messages and the records that it changes"
        if tasks > 1:
            where = (
                f"in up to {tasks:,} tasks that exchange messages: one task for each "
                f"{limits.rows_per_loop_task:,} records that the loop may reach, if enough slots "
                "are free; a task holds in memory its messages and the records that it changes"
            )
    if limits.loop_bytes:
        where += f": {limits.loop_bytes:,} bytes at most, and the rest in temporary files"
    words.append(where)
    return "; ".join(words)


def _nesting(spec: TranslatorSpec) -> Iterator[str]:
    """Yield how loops are inside each other, and what ends only some of them, in words."""
    for one in spec.loopbacks:
        if one.inside:
            chain = "` inside `".join([one.name, *spec.loops.around(one.name)])
            if one.name not in spec.loops.around_others:
                yield f"`{chain}`: messages of an outer loop wait until the inner one has none left"
    for aggregate in spec.aggregates:
        if aggregate.loop and (end := _end(aggregate)):
            yield f"the loop of `{aggregate.loop}` also ends when {end}"


def _end(aggregate: AggregateSpec) -> str:
    if aggregate.ends_below is None:
        return ""
    how = {"sum": "sum", "min": "minimum", "max": "maximum"}[aggregate.how]
    return f"the {how} of `{aggregate.name}` is below {aggregate.ends_below:g}"


def _tasks_max(node: StageNode, limits: PhysicalLimits) -> int:
    if node.translator.supersteps > 1:
        return min(limits.loop_tasks, node.buckets)
    if node.translator.has_one_task:
        return 1
    return limits.slots if node.translator.record_wise else min(limits.slots, node.buckets)


def _lookup(node: StageNode, spec: LookupSpec) -> LookupPlan:
    words = ["read by the keys of the inputs" if spec.by else "every group has all records"]
    words.append("as of the newest epoch that the table shows when a run begins")
    if spec.wake:
        changes = "the changes of the table for which the run calls groups"
        words.append(f"and at least as new as {changes}")
    if node.translator.supersteps > 1:
        part = "the buckets of its own groups" if spec.by else "the whole table"
        words.append(f"each task of the loop reads {part}, once")
    table, columns = node.lookups[spec.name], str(spec.schema)
    said = ", ".join(words)
    return LookupPlan(spec.name, table, columns, spec.by, spec.key, wakes=spec.wake, words=said)


def _states(node: StageNode) -> Iterator[StatePlan]:
    spec = node.translator
    for state in spec.states:
        scanned = state.grouping == "outer"
        words = (
            "looked up by the keys of the inputs; each file is searched by its index or scanned, "
            "whichever is cheaper"
        )
        if spec.form == "run":
            words = "read by the author's code in one call: by any keys, or all at once"
        elif scanned:
            words = "scanned: every group in it is called in every epoch"
        if state.route_by is not None:
            words += f"; its key has the columns {', '.join(state.route_by)}"
        if state.keep:
            second = ", ".join(state.second_key)
            words += f"; a group has one record for each ({second}), which stays until deleted"
        if state.bag:
            words += "; a group may have equal records (a bag)"
        if state.order_by:
            words += f"; a group reads it in the order of {', '.join(state.order_by)}"
        if spec.supersteps > 1:
            words += "; between supersteps, each bucket stays with its task"
        yield StatePlan(state.name, str(state.schema), "scanned" if scanned else "looked_up", words)


def _outputs(dataflow: Dataflow, node: StageNode) -> Iterator[OutputPlan]:
    loopbacks = {spec.name for spec in node.translator.loopbacks}
    for output in node.translator.outputs:
        flow = f"{node.name}.{output.name}"
        readers = tuple(f"{stage}.{input_}" for stage, input_ in dataflow.consumers(flow))
        if output.name in loopbacks:
            compared = "messages: not compared"
        elif output.history:
            compared = "history: epoch by epoch"
        elif output.key:
            compared = f"view: the last record per ({', '.join(output.key)})"
        else:
            compared = "all records of all epochs"
        compared = ", ".join(filter(None, (compared, in_words(output))))
        yield OutputPlan(flow, str(output.schema), compared, readers)


def _input(run: _Run, node: StageNode, spec: InputSpec) -> InputPlan:
    flow, way = node.wiring[spec.name], _way(run, node, spec)
    computed: Literal["", "python", "sql"] = "python" if spec.computed else ""
    computed = "sql" if spec.in_sql else computed
    words = [_WORDS[way].format(by=flow.partition(".")[0], limit=_limit(run.limits))]
    if computed == "python" and way in ("by_size", "shuffled"):
        words.append("its key or order is computed in Python before the shuffle")
    if spec.combine is not None:
        columns = ", ".join(f"{how} of {column}" for column, how in spec.combine.columns)
        words.append(f"combined before the shuffle{columns and f' ({columns})'}")
    if spec.has_several:
        words.append("each task gets one copy of a record that is sent to ALL or to an address")
    if spec.frame_by is not None:
        words.append(_framing(spec.frame_by, spec.close_idle_seconds))
    if spec.supersteps > 1:
        sent = _tasks_max(node, run.limits) > 1
        read = (
            f"messages are {'sent to the task of the receiving group, and ' if sent else ''}read "
            f"in the run that wrote them, in up to {spec.supersteps:,} supersteps"
        )
        inner = (one.name for one in node.translator.loopbacks if one.inside == spec.name)
        if inside := "` or `".join(inner):
            read += f", once no message of `{inside}` is left"
        words.insert(0, read)
    return InputPlan(
        spec.name,
        flow,
        way,
        _route(spec),
        computed,
        combined=spec.combine is not None,
        broadcast=spec.has_several,
        loopback=spec.loopback,
        framed=spec.frame_by is not None,
        frame_by="" if spec.frame_by is None else _frame_by(spec.frame_by),
        memo=spec.frame_by is not None and spec.frame_by.memo,
        close_idle_seconds=spec.close_idle_seconds,
        words="; ".join(words),
    )


def _way(run: _Run, node: StageNode, spec: InputSpec) -> Way:
    writer = node.wiring[spec.name].partition(".")[0]
    if node is not run.unit.leader and writer in run.unit.names:
        heads = {phase[0].name for phase in run.phases[1:]}
        return "behind" if node.name in heads else "handed_over"
    if spec.route_by is None:
        return "shares"
    if node.wiring[spec.name] in run.own_messages and spec.lies_by_bucket:
        return "in_place"
    if any(input_.in_sql for input_ in node.translator.inputs):
        return "shuffled"  # only Spark evaluates SQL; all inputs of a run take one way
    return "every_task" if run.limits.arranged_reads is None else "by_size"


def _lanes(limits: PhysicalLimits) -> str:
    bypass = limits.bypass
    if bypass is None:
        return "every job is `local`: in the service's process, or in one of its worker processes"
    always = "`sql` for a stage in SQL, otherwise `spark`"
    tasks = bypass.tasks_max
    if not tasks or not bypass.seconds_max:
        return f"every job is a Spark job: {always}"
    return (
        f"a job of up to {format_count(tasks, 'task')} without a shuffle is `resident` (it runs "
        f"without Spark) if starting a Spark job ({bypass.job_start_seconds:g} s) would take more "
        "than a tenth of its estimated time, start included. Jobs of up to about "
        f"{bypass.records_max('groupwise', tasks):,} small records "
        f"({bypass.records_max('arrow', tasks):,} with Arrow) are such jobs; any other job is a "
        f"Spark job: {always}"
    )


def _limit(limits: PhysicalLimits) -> str:
    return (
        f"the number of records times the number of tasks is at most {limits.arranged_reads or 0:,}"
        f", and the files have at most {(limits.arranged_bytes or 0) / 1e6:,.0f} MB"
    )


_WORDS: Mapping[Way, str] = {
    "shares": "each task reads a part of its files; nothing is shuffled",
    "handed_over": "received from `{by}` within the same task, without reading files",
    "behind": "read once `{by}` is complete: by the same task if `{by}` had only one task, "
    "otherwise by a second job of the run",
    "in_place": "messages are stored by the bucket of the receiving group, and each task reads "
    "those of its buckets (or all, if they are few); nothing is shuffled",
    "by_size": "if {limit}, every task reads the whole input and keeps the records of its buckets; "
    "a larger input is shuffled",
    "shuffled": "Spark shuffles the records by key, whatever their number",
    "every_task": "every task reads the whole input and keeps the records of its buckets; nothing "
    "is shuffled",
}


def _route(spec: InputSpec) -> str:
    by = spec.route_by
    if isinstance(by, Computed):
        return ", ".join(by.sql) or _named(by.function, by.place)
    return ", ".join(by or ())


def _frame_by(by: FrameBy) -> str:
    return by.column or _named(by.function, by.place)


def _framing(by: FrameBy, close_idle_seconds: float) -> str:
    order = "in the order of the records" if by.memo else "with each increment grouped by this key"
    ends = "a frame ends when a record with another key follows, or when the frame is closed"
    if close_idle_seconds:
        ends += f" (automatically after {close_idle_seconds:g} s without a record)"
    return f"cut into frames by {_frame_by(by)}, {order}; {ends}"


def _named(function: Callable[..., Any], place: str) -> str:
    name = getattr(function, "__name__", "function")
    return f"{name} ({place})" if place else name
