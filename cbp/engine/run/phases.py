"""Phases of a run over several fused stages: cut the run into phases, join their results; pure.

A run has one phase, or two if a groupwise stage follows a record-wise one. The second phase reads
the increment that the first one wrote, just as if both stages ran separately. Each phase has a
separate plan. Further stages of a phase run as followers in the tasks of its first stage
(`cbp.engine.task.writers`).
"""

from __future__ import annotations

from dataclasses import replace

from cbp.engine.interface.runs import PreparedRun, RunPlan
from cbp.engine.run.assembly import empty_outputs
from cbp.engine.task.task_plan import Follower
from cbp.model.dataflow.dataflow import StageNode
from cbp.model.plan.fusion import split_phases

_OF_MEMBERS = ("records_in", "groups", "records_out", "state_written", "state_removed")
_LARGEST = ("tasks",)


def phases(plan: RunPlan) -> tuple[RunPlan, RunPlan | None]:
    """Return the phases of a run; the inputs of the second one are not known yet."""
    first, *others = split_phases((plan.node, *plan.fused))
    begin = replace(plan, fused=first[1:])
    if not others:
        return begin, None
    ((node, *fused),) = others
    return begin, replace(plan, node=node, fused=tuple(fused), inputs={})


def reading(plan: RunPlan, before: PreparedRun) -> RunPlan:
    """Return the second phase with the increment that the first one wrote as its input."""
    (input_,) = plan.node.wiring
    flow = only_flow(plan.node)
    (increment,) = (i for i in before.outputs.values() if i.flow == flow)
    return replace(plan, inputs={input_: (increment,)})


def only_flow(node: StageNode) -> str:
    """Return the only flow that a fused stage reads."""
    (flow,) = node.wiring.values()
    return flow


def followers_of(plan: RunPlan) -> tuple[Follower, ...]:
    """Return the stages that run as followers in the tasks of a phase."""
    return tuple(
        Follower(n.name, n.translator, only_flow(n), replace(plan, node=n, inputs={}).context())
        for n in plan.fused
    )


def with_members(plan: RunPlan, prepared: PreparedRun) -> PreparedRun:
    """Add the figures `<stage>/<figure>` of the first stage; its followers have theirs already."""
    figures = dict(prepared.figures)
    mine = {name: figures[name] for name in _OF_MEMBERS if name in figures}
    theirs = sum(figures.get(f"{node.name}/records_out", 0) for node in plan.fused)
    if "records_out" in mine:
        mine["records_out"] -= theirs
    figures |= {f"{plan.node.name}/{name}": value for name, value in mine.items()}
    return replace(prepared, figures=figures)


def joined(plan: RunPlan, first: PreparedRun, second: PreparedRun) -> PreparedRun:
    """Join both phases of a run; changes of state come before those of outputs, as in any run."""
    increments = [*first.outputs.values(), *second.outputs.values()]
    by_flow = {increment.flow: increment for increment in increments}
    outputs = {key: by_flow[empty.flow] for key, empty in empty_outputs(plan).items()}
    figures = {**first.figures}
    for name, value in second.figures.items():
        before = figures.get(name, 0)
        figures[name] = max(before, value) if name in _LARGEST else before + value
    # The second phase reads what the first one wrote, which is not an input of the run.
    figures |= {name: first.figures.get(name, 0) for name in ("records_in", "bytes_in")}
    due = (one.due_ms for one in (first, second) if one.due_ms is not None)
    changes = (*second.changes, *first.changes)
    return PreparedRun(outputs, changes, figures, min(due, default=None))
