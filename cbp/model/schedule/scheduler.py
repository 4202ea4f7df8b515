"""The scheduler: choose the runs to start next, from a picture of all stages. Pure.

`decide` is called at every tick with a view of each stage, and returns the runs to start. Its
rules:

- Epochs of one stage are serial. `cbp.model.schedule.parallel_runs` limits the runs at a time, per
  dataflow and in total, and chooses the run that gives way.
- A stage whose Runnable does not start it runs for its timers (`cbp.model.schedule.timers`).
- Priorities age: the stage that has waited longest since its last start goes first; among equals,
  upstream first (`cbp.model.graph.cycles`). So between two starts of a stage, every other stage
  that can run starts too: that is a *phase*, and no stage starves. The priority that an operator
  sets multiplies the waiting time (`cbp.model.schedule.priority`), so no stage starves because of
  it either.
- A stage is held while the queues of all its readers are full (`cbp.model.flow.back_pressure`).
- For each stage that does not start, there is a reason on which an operator can act; it names the
  stage that keeps it waiting.

Source: CBP (SoCC'10), section 4.2, "Scheduling with bottleneck detection".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Any

from cbp.errors import CbpError, CycleUndrainedError
from cbp.errors.counts import format_count, format_times
from cbp.model.dataflow.stage import RunnableSpec
from cbp.model.flow.back_pressure import FlowLimit, Reader, held
from cbp.model.flow.connector import Connector, Decision
from cbp.model.graph.cycles import components, cycles
from cbp.model.schedule.parallel_runs import ActiveRun, Places
from cbp.model.schedule.priority import NORMAL, WEIGHTS, Priority, waited
from cbp.model.schedule.runnable_call import call_runnable
from cbp.model.schedule.timers import is_due, waiting_words, woken
from cbp.model.schedule.waiting import Kind, Wait, open_frames

TURNS_MAX = 1000
"""Epochs without new input after which a cycle is reported as not draining, by default."""

_NAMED_MAX = 3
"""Stages of a higher priority that a reason names."""

StageId = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Answer:
    """The checked decision of a Runnable, or its error; without either, it has not answered yet."""

    decision: Decision | None = None
    error: CbpError | None = None


@dataclass(frozen=True, slots=True)
class StageView:
    """All facts that decide whether one stage may run.

    Attributes:
        waiting_since: When it could first have run, or last started.
        work: Its run under way; `None` if it has only just begun.
        active: Whether the dataflow and the stage should run.
        stopped: Whether it stopped by itself, without being paused.
        finishing: Whether it waits only for its last run to be finished.
        retry_at: After a failed run: the earliest time of the next; `None` means at once.
        members: Stages that run in its epochs, including itself; empty if it runs alone.
        limits: Maps each flow that it writes to how much of it can wait at a reader, if declared.
        turns: Epochs in a row that read nothing from outside its cycle; 0 if on no cycle.
        function, place: The author's code that it runs, and its `file.py:12`.
        due_at: A time before which no timer of it is due; `None` if it has no timer.
        answer: The answer of its Runnable; `None` means that `decide` calls it.
    """

    dataflow: str
    stage: str
    epoch: int
    connectors: Mapping[str, Connector]
    waiting_since: datetime
    running: bool = False
    work: ActiveRun | None = None
    active: bool = True
    paused_because: str = ""
    stopped: bool = False
    finishing: bool = False
    retry_at: datetime | None = None
    failed_because: str = ""
    gave_way: int = 0
    memo: Any = None
    runnable: RunnableSpec = field(default=RunnableSpec())
    wiring: Mapping[str, str] = field(default_factory=dict)
    members: tuple[str, ...] = ()
    limits: Mapping[str, FlowLimit] = field(default_factory=dict)
    turns: int = 0
    function: str = "translate"
    place: str = ""
    due_at: datetime | None = None
    answer: Answer | None = None
    priority: Priority = NORMAL

    @property
    def id(self) -> StageId:
        """The dataflow and the stage."""
        return self.dataflow, self.stage

    @property
    def by_author(self) -> bool:
        """Whether its Runnable is an author's code."""
        return self.runnable.by_author

    def may_start(self, now: datetime) -> bool:
        """Return whether to call its Runnable now."""
        rests = self.retry_at is not None and now < self.retry_at
        return not self.running and self.active and not rests


@dataclass(frozen=True, slots=True)
class Start:
    """A run to start: the stage, its epoch, its input, and the size of its input."""

    dataflow: str
    stage: str
    epoch: int
    decision: Decision
    read_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Schedule:
    """The answer of `decide`.

    Attributes:
        starts: Runs to start, in this order.
        waits: The reasons of stages that do not start now.
        failed: Errors of Runnables that failed, and must not be called again.
        circling: The errors to report for stages on a cycle that does not drain.
        gives_way: The run that gives way now, and the dataflow to which it does.
    """

    starts: tuple[Start, ...]
    waits: Mapping[StageId, Wait]
    failed: Mapping[StageId, CbpError] = field(default_factory=dict)
    circling: Mapping[StageId, CycleUndrainedError] = field(default_factory=dict)
    gives_way: tuple[ActiveRun, str] | None = None

    @property
    def waiting(self) -> dict[StageId, str]:
        """The reasons, in words."""
        return {id_: wait.words for id_, wait in self.waits.items()}


@dataclass(slots=True)
class _Case:
    """One stage during `decide`.

    Attributes:
        position: Place of its component in the order of the dataflow.
        decision: What it would read, if it can run.
        reason: Why it does not start; `""` if it does.
        behind: The stage before it that keeps it waiting.
        idle: Whether it lacks only input.
        writers: Maps each input, except from sources, to the stage whose runs write it.
    """

    view: StageView
    position: int = 0
    cycle: tuple[str, ...] = ()
    decision: Decision | None = None
    reason: str = ""
    kind: Kind = "input"
    behind: str = ""
    idle: bool = False
    error: CbpError | None = None
    writers: Mapping[str, str] = field(default_factory=dict)


def decide(
    stages: Iterable[StageView], *, now: datetime, places: Places, turns_max: int = TURNS_MAX
) -> Schedule:
    """Choose the runs to start now (UTC), and explain why the other stages wait."""
    cases = {view.id: _judged(view, now) for view in stages}
    for dataflow in sorted({dataflow for dataflow, _ in cases}):
        _place({case.view.stage: case for id_, case in cases.items() if id_[0] == dataflow})
    starts, gives_way = _placed(sorted(cases.values(), key=partial(_turn, now)), now, places)
    return Schedule(
        tuple(_start(case) for case in starts),
        {
            id_: Wait(case.kind, case.reason, case.view.waiting_since, case.behind, case.error)
            for id_, case in cases.items()
            if case.reason
        },
        {id_: case.error for id_, case in cases.items() if case.error is not None},
        {id_: e for id_, case in cases.items() if (e := _circling(case, turns_max)) is not None},
        gives_way,
    )


def _turn(now: datetime, case: _Case) -> tuple[Any, ...]:
    """Return the sort key of a start: the smallest goes first.

    Among stages that started at the same instant, the one with fewer epochs goes first, so that no
    stage starves even if the clock stops.
    """
    view = case.view
    longest = -waited(view.waiting_since, now, view.priority)
    return longest, view.waiting_since, view.epoch, case.position, *view.id


def _placed(
    order: Sequence[_Case], now: datetime, places: Places
) -> tuple[list[_Case], tuple[ActiveRun, str] | None]:
    """Return the stages that start, and which run gives way; set the reasons of the others."""
    could = [case for case in order if case.decision is not None and not case.reason]
    ready = [case for case in could if not case.view.gave_way]
    # Runs that gave way take turns: the one that gave way last comes last.
    narrow = [case for case in could if case.view.gave_way]
    narrow.sort(key=lambda case: case.view.retry_at or case.view.waiting_since)
    running = [case.view for case in order if case.view.running]
    works = [view.work or ActiveRun(*view.id) for view in running]
    starts = []
    while (chosen := places.next(works, _dataflows(ready), now)) is not None:
        starts.append(ready.pop(chosen))
        works.append(ActiveRun(*starts[-1].view.id, read_bytes=_read_bytes(starts[-1])))
    most = places.express_bytes
    small = [case for case in ready if most and _read_bytes(case) <= most]
    if (chosen := places.next_express(works, _dataflows(small), now)) is not None:
        starts.append(small[chosen])
        ready = [case for case in ready if case is not small[chosen]]
        works.append(ActiveRun(*small[chosen].view.id))
    if (chosen := places.next_narrow(works, _dataflows(narrow))) is not None:
        starts.append(narrow.pop(chosen))
        works.append(ActiveRun(*starts[-1].view.id, gave_way=starts[-1].view.gave_way))
    slow = {(work.dataflow, work.stage) for work in places.slow(works, now)}
    placed = [*running, *(case.view for case in starts)]
    for case in (*ready, *narrow):
        case.kind = "place"
    for before, case in enumerate(ready):
        if slow and places.used_up(case.view.dataflow, works):
            case.reason = f"waits for one of the {places.most} runs of its dataflow to end"
        else:
            case.reason = f"waits for a free slot ({places.most} in all){_behind(before)}"
            case.reason += _preferred(case.view, placed)
    for before, case in enumerate(narrow):
        case.reason = (
            f"gave way to other dataflows {format_times(case.view.gave_way)} and waits for its "
            f"turn: only one run that gave way is allowed at a time{_behind(before)}"
        )
    for case in order:
        if case.view.id in slow:
            case.reason += (
                f", for more than {places.slow_seconds:g} s; another dataflow can use its slot"
            )
        if case.view.work is not None and case.view.work.gave_way:
            times = format_times(case.view.work.gave_way)
            slots = "so it now uses at most half of the engine's slots"
            case.reason += f"; the run gave way to other dataflows {times}, {slots}"
    return starts, places.gives_way(works, _dataflows(ready), _dataflows(narrow), now)


def _read_bytes(case: _Case) -> int:
    assert case.decision is not None, "a stage without a decision reads no input"
    return sum(
        one.bytes
        for name, indexes in ((name, {*read}) for name, read in case.decision.read.items())
        for one in _connector(case, name).waiting
        if one.index in indexes
    )


def _dataflows(cases: Sequence[_Case]) -> list[str]:
    return [case.view.dataflow for case in cases]


def _behind(before: int) -> str:
    return f", behind {format_count(before, 'other')}" if before else ""


def _preferred(view: StageView, placed: Sequence[StageView]) -> str:
    higher = [one for one in placed if WEIGHTS[one.priority] > WEIGHTS[view.priority]]
    if not higher:
        return ""
    names = (one.stage if one.dataflow == view.dataflow else ".".join(one.id) for one in higher)
    named = [f"`{name}` ({one.priority})" for name, one in zip(names, higher, strict=True)]
    more = f" and {len(named) - _NAMED_MAX} more" if len(named) > _NAMED_MAX else ""
    return (
        f"; its priority is {view.priority}, and stages with a higher priority have slots: "
        f"{', '.join(named[:_NAMED_MAX])}{more}"
    )


def _start(case: _Case) -> Start:
    view, decision = case.view, case.decision
    assert decision is not None, "a stage without a decision cannot start"
    return Start(view.dataflow, view.stage, view.epoch, decision, _read_bytes(case))


def _judged(view: StageView, now: datetime) -> _Case:
    if view.running:
        return _Case(view, reason=f"runs epoch {view.epoch}", kind="running")
    if not view.active:
        kind: Kind = "stopped" if view.stopped else "paused"
        kind = "retry" if view.finishing else kind
        return _Case(view, reason=view.paused_because or "is paused", kind=kind)
    if view.retry_at is not None and not view.may_start(now):
        why = f": {view.failed_because}" if view.failed_because else ""
        words = f"next attempt at {view.retry_at:%Y-%m-%d %H:%M:%S} UTC{why}"
        return _Case(view, reason=words, kind="retry")
    answer = view.answer or _asked(view)
    if answer.error is not None:
        return _Case(view, reason=answer.error.message, kind="stopped", error=answer.error)
    if (decision := answer.decision) is None:
        words = f"waits for the answer of {view.runnable.name} ({view.runnable.place})"
        return _Case(view, reason=words, kind="asking")
    if not decision.runnable and is_due(view.due_at, now):
        return _Case(view, decision=woken(view.memo))
    if not decision.runnable:
        kind, frames = open_frames(view.connectors.values())
        parts = decision.waits_for or "waits for input", frames, waiting_words(view.due_at)
        words = "; ".join(part for part in parts if part)
        kind = "timer" if view.due_at is not None and kind == "input" else kind
        return _Case(view, reason=words, kind=kind, idle=True)
    return _Case(view, decision=decision)


def _asked(view: StageView) -> Answer:
    try:
        return Answer(call_runnable(view.stage, view.runnable, view.connectors, view.memo))
    except CbpError as error:
        return Answer(error=error)


def _place(cases: Mapping[str, _Case]) -> None:
    """Judge the stages of one dataflow together: their order, back-pressure, and blockers."""
    led_by = {m: name for name, case in cases.items() for m in (name, *case.view.members)}
    for case in cases.values():
        writers = {i: flow.partition(".")[0] for i, flow in case.view.wiring.items()}
        case.writers = {i: led_by[name] for i, name in writers.items() if name in led_by}
    before = {name: frozenset(case.writers.values()) for name, case in cases.items()}
    for position, component in enumerate(components(before)):
        for stage in component:
            cases[stage].position = position
    for stage, cycle in cycles(before).items():
        cases[stage].cycle = cycle
    readers = _readers(cases)
    holds = {name: held(readers[name], case.view.limits) for name, case in cases.items()}
    for name, case in cases.items():
        if case.decision is not None:
            case.reason, case.kind = holds[name], "readers"
        elif case.idle:
            case.behind, words = _blocker(name, cases, holds, set())
            case.reason += f"; {words}" if words else ""


def _readers(cases: Mapping[str, _Case]) -> dict[str, list[Reader]]:
    readers: dict[str, list[Reader]] = {name: [] for name in cases}
    for name, case in cases.items():
        hungry = _hungry(case, cases)
        for input_, writer in case.writers.items():
            if writer not in (name, *case.cycle):
                flow, connector = case.view.wiring[input_], _connector(case, input_)
                readers[writer].append(Reader(f"{name}.{input_}", flow, connector, hungry))
    return readers


def _hungry(case: _Case, cases: Mapping[str, _Case]) -> bool:
    """Return whether only more input can make a stage run; see `cbp.model.flow.back_pressure`."""
    inside = (*case.cycle, case.view.stage)
    others = (cases[name] for name in case.cycle if name != case.view.stage)
    if not case.idle or any(o.view.running or o.decision is not None for o in others):
        return False
    outer = (i for i in case.view.wiring if case.writers.get(i) not in inside)
    return all(_connector(case, input_).queue for input_ in outer)


def _connector(case: _Case, input_: str) -> Connector:
    return case.view.connectors.get(input_, Connector(input_))


def _blocker(
    name: str, cases: Mapping[str, _Case], holds: Mapping[str, str], seen: set[str]
) -> tuple[str, str]:
    """Return the upstream stage that stopped, is held or failed; otherwise empty texts."""
    seen.add(name)
    for input_, writer in cases[name].writers.items():
        if writer in seen or _connector(cases[name], input_).unread:
            continue
        case = cases[writer]
        if case.idle:
            blocker = _blocker(writer, cases, holds, seen)
            if blocker[0]:
                return blocker
        elif not case.view.running and (why := case.reason or holds[writer]):
            return writer, f"upstream stage `{writer}`: {why}"
    return "", ""


def _circling(case: _Case, turns_max: int) -> CycleUndrainedError | None:
    if not case.cycle or case.view.turns < turns_max:
        return None
    view, cycle = case.view, case.cycle
    return CycleUndrainedError(
        stage=view.stage, function=view.function, place=view.place, cycle=cycle, turns=view.turns
    )
