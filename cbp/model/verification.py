"""Verification: what is compared with a recomputation, and what came of it. Pure.

A recomputation begins with nothing and reads the retained input again, either increment by
increment or all at once. What is compared follows `cbp.model.equality`: state exactly, an
output by the last value per declared key, by all records without a key, or epoch by epoch
if it is a history. What follows epochs is left out where these are no function of the input:
when all input comes at once, or behind a stage that runs when something arrives, whatever
that is. So are histories, and outputs without a key of stages that read changes; messages are
left out always. So are states and views, too, of a stage whose Runnable reads as much as is
there by then and reads it again (static tables, an author's own function), and all behind it.

Increment by increment, a dataflow whose rules wait for what they read gives the same
epochs however its runs were timed. So it can be compared at any snapshot, while runs go
on: the recomputation stops each stage at the epoch that the snapshot shows. Any other
dataflow is compared when it has nothing left to do.

Invariant: every table of a dataflow is compared or left out with a reason
(tests/cbp/model/test_verification.py).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from cbp.model.dataflow import Dataflow
from cbp.model.equality import in_words
from cbp.model.graph import components, predecessors

__all__ = [
    "Comparison",
    "Differing",
    "Kind",
    "Request",
    "Split",
    "Status",
    "TableVerdict",
    "Verification",
    "behind",
    "comparisons",
    "first_stage",
    "merged",
    "timeless",
]

Split = Literal["increments", "at_once"]

Kind = Literal["state", "view", "records", "history"]

Status = Literal[
    "waiting",
    "running",
    "equal",
    "differs",
    "not_deterministic",
    "timed_out",
    "cancelled",
    "failed",
]
"""`timed_out`: nothing differs as far as it came. `not_deterministic`: two recomputations of
the same input differ, so that no table can be held to either."""

_CHANGED = "an earlier version or a correction is in it, or in what it reads"


@dataclass(frozen=True, slots=True)
class Request:
    """What is asked for.

    Attributes:
        split: How the input is cut for the recomputation.
        engine: `direct`: the service's own engine, on tables of its own; `reference`: the
            slow engine in memory, for small inputs.
        twice: Recompute twice although nothing differs.
        seconds_max: Time limit, waiting included.
    """

    split: Split = "increments"
    engine: Literal["direct", "reference"] = "direct"
    twice: bool = False
    seconds_max: float = 600.0


@dataclass(frozen=True, slots=True)
class Comparison:
    """One table, and how it is compared.

    Attributes:
        stage, name: Of the state or output.
        left_out: Why it is not compared; `""`: it is.
        within: How closely, in words; `""`: exactly.
    """

    stage: str
    name: str
    kind: Kind
    left_out: str = ""
    within: str = ""

    @property
    def table(self) -> str:
        """Its folder, relative to the dataflow's."""
        folder = "state" if self.kind == "state" else "flows"
        return f"{folder}/{self.stage}.{self.name}"


@dataclass(frozen=True, slots=True)
class Differing:
    """One key whose records differ; texts, since any value can be in them.

    Attributes:
        key: Of the group, of the view, or the record itself where there is no key.
        expected: The records that the recomputation has and the table lacks.
        found: The records that the table has and the recomputation lacks.
    """

    key: str
    expected: tuple[str, ...]
    found: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TableVerdict:
    """What came of one table.

    Attributes:
        records: Compared, of both sides.
        differing: The first that differ; more may.
        within: How closely records had to agree, in words; `""`: exactly.
    """

    table: str
    kind: Kind
    status: Literal["open", "equal", "differs", "left_out"]
    records: int = 0
    differing: tuple[Differing, ...] = ()
    because: str = ""
    within: str = ""


@dataclass(frozen=True, slots=True)
class Verification:
    """How far one verification is, or what came of it.

    Attributes:
        step: What it does, in words.
        done, total: Of the step, in its unit; `total` 0: not known.
        epochs: Stage to the last epoch that is compared; empty until that is known.
        suspect: The first stage, upstream first, one of whose tables differs.
        error: `{"error_code", "message", "details"}` of a verification that failed.
    """

    id: str
    dataflow: str
    request: Request
    status: Status
    step: str = ""
    done: int = 0
    total: int = 0
    seconds: float = 0.0
    epochs: dict[str, int] | None = None
    tables: tuple[TableVerdict, ...] = ()
    suspect: str = ""
    error: dict[str, object] | None = None

    @property
    def ended(self) -> bool:
        """Whether nothing more will come."""
        return self.status not in ("waiting", "running")


def timeless(dataflow: Dataflow) -> frozenset[str]:
    """Return the stages whose epochs are a function of the input: they and all before them wait."""
    before = predecessors(dataflow.wiring())
    found: set[str] = set()
    for component in components(before):
        rules = [dataflow.stages[stage].runnable for stage in component]
        upstream = {b for stage in component for b in before[stage]} - set(component)
        on_cycle = len(component) > 1 or component[0] in before[component[0]]
        # Empties are not enqueued inside a cycle, so what waits there is a matter of time.
        if not on_cycle and upstream <= found and all(r.timeless for r in rules):
            found |= set(component)
    return frozenset(found)


def behind(dataflow: Dataflow, stages: Collection[str]) -> frozenset[str]:
    """Return these stages, as far as they are there, and all that read what they write."""
    before, found = predecessors(dataflow.wiring()), set[str]()
    for component in components(before):
        reads = {upstream for stage in component for upstream in before[stage]}
        if reads & found or not set(component).isdisjoint(stages):
            found |= set(component)
    return frozenset(found)


def comparisons(
    dataflow: Dataflow,
    split: Split,
    changed: Collection[str] = (),
    collected: Mapping[str, int] = MappingProxyType({}),
) -> Iterator[Comparison]:
    """Yield every table with how it is compared, upstream first, states before outputs.

    Args:
        dataflow: In its newest version.
        split: How the input is cut.
        changed: Stages that were not always what they are, that were corrected by hand, or
            that read what such wrote.
        collected: Output flow to the first increment that retention has left of it.
    """
    settled, free = timeless(dataflow), _split_free(dataflow)
    timed = _timed(dataflow, split, settled)
    for component in components(predecessors(dataflow.wiring())):
        for stage in component:
            spec = dataflow.stages[stage].translator
            old = _CHANGED if stage in changed else timed.get(stage, "")
            loopbacks = {loopback.name for loopback in spec.loopbacks}
            for state in spec.states:
                yield Comparison(stage, state.name, "state", old, in_words(state))
            for output in spec.outputs:
                kind: Kind = "history" if output.history else "view" if output.key else "records"
                why, first = old, collected.get(f"{stage}.{output.name}", 0)
                if why:
                    pass
                elif first:
                    why = f"its increments before {first} are collected (keep)"
                elif output.name in loopbacks:
                    why = "messages depend on the split, what they lead to does not"
                elif output.history and split == "at_once":
                    why = "a history has other epochs when all input comes at once"
                elif output.history and stage not in settled:
                    why = "its epochs depend on when runs were started"
                elif kind == "records" and stage not in free and split == "at_once":
                    why = "it follows changes, and all at once there are fewer; declare a key"
                elif kind == "records" and stage not in free and stage not in settled:
                    why = "it follows changes, and how many depends on when runs were started"
                yield Comparison(stage, output.name, kind, why, in_words(output))


def _timed(dataflow: Dataflow, split: Split, settled: Collection[str]) -> dict[str, str]:
    """Return the stages whose very state is no function of the input, with the reason.

    Those are stages whose rule does not read each record once, and reads others when it
    is asked at other times, or of input that is split otherwise; and all stages behind them.
    """
    found: dict[str, str] = {}
    before = predecessors(dataflow.wiring())
    for component in components(before):
        reasons = []
        for stage in component:
            rule = dataflow.stages[stage].runnable
            if rule.split_free:
                continue
            if not rule.timeless:
                why = f"what {rule.name} lets a run read depends on when runs were started"
            elif split == "at_once":
                why = f"the windows of {rule.name} hold others when all input comes at once"
            elif stage not in settled:
                why = f"the windows of {rule.name} hold others when runs before it start otherwise"
            else:
                continue
            reasons.append(f"`{stage}`: {why}")
        reasons += [found[b] for stage in component for b in before[stage] if b in found]
        if reasons:
            found |= dict.fromkeys(component, reasons[0])
    return found


def _split_free(dataflow: Dataflow) -> frozenset[str]:
    """Return the stages that read the same records however the input is split.

    Those that read sources, and all records of such stages; not views, whose records are
    changes, nor histories and messages.
    """
    found: set[str] = set()
    flows = set(dataflow.sources)
    for component in components(predecessors(dataflow.wiring())):
        for stage in component:
            node = dataflow.stages[stage]
            if flows.issuperset(node.wiring.values()):
                found.add(stage)
                flows |= {
                    f"{stage}.{output.name}"
                    for output in node.translator.outputs
                    if not output.key and not output.history
                }
    return frozenset(found)


def first_stage(dataflow: Dataflow, differing: Collection[str]) -> str:
    """Return the stage, upstream first, one of whose tables differs; `""`: none does."""
    for component in components(predecessors(dataflow.wiring())):
        for stage in component:
            if any(table.partition("/")[2].partition(".")[0] == stage for table in differing):
                return stage
    return ""


def merged(end: int, breaks: Collection[int], *, most: int) -> list[range]:
    """Return which increments of a source become one, where all of its input comes at once.

    Args:
        end: How many increments there are.
        breaks: Where punctuations stand: none of them is inside of what becomes one.
        most: So many become one.
    """
    found, start = [], 0
    while start < end:
        stop = min([end, start + most, *(at for at in breaks if at > start)])
        found.append(range(start, stop))
        start = stop
    return found
