"""Replacement: a source takes back the records of an earlier file, and adds others. Pure.

    increment   0        1        2                  5
                monday   tuesday  wednesday   ...    files: records of the corrected tuesday
                                                     gone:  other records of the first tuesday

Records that both files have are in neither part. If all readers read signed records, all records
are in `files`: removed records have the opposite sign there. Any other stage recomputes the groups
of the run (`cbp.engine.run.recomputation`). The result is right if the stage's answer depends only
on the records, as its author declares (`any_order`), and if all records that it wrote can be
replaced. `obstacles` reports which of these conditions a stage does not meet.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from cbp.model.dataflow.nodes import SourceNode, StageNode
from cbp.model.dataflow.sinks import SinkNode
from cbp.model.flow.signed_changes import has_sign


@dataclass(frozen=True, slots=True)
class ReplacementObstacle:
    """Why a reader of a source cannot apply the replacement of a file.

    Attributes:
        reader: Its place in the document, such as `stages.count` or `sinks.archive`.
        why: The reason, and the declaration that would make it possible.
    """

    reader: str
    why: str


def is_signed(source: SourceNode, stages: Mapping[str, StageNode]) -> bool:
    """Return whether a source has signs and all its readers read signed records."""
    return has_sign(source.schema) and all(
        node.translator.input(name).changes == "signed"
        for node in stages.values()
        for name, flow in node.wiring.items()
        if flow == source.name
    )


def obstacles(
    source: SourceNode,
    sources: Collection[str],
    stages: Mapping[str, StageNode],
    sinks: Mapping[str, SinkNode] = MappingProxyType({}),
    altered: Collection[str] = (),
    *,
    taken_back: bool = False,
) -> Iterator[ReplacementObstacle]:
    """Yield why readers of a source cannot apply the replacement of one of its files.

    Args:
        altered: Stages whose tables are not computed from all input by their current code: a
            version began them later, or an operator corrected their state.
        taken_back: Whether the replacement was taken in while a stage read records without
            signs. Then its increment takes records back, and all readers recompute groups,
            including readers of signs.
    """
    if source.format == "delta":
        why = "the source follows a Delta table: correct the records in that table"
        yield ReplacementObstacle(f"sources.{source.name}", why)
    if is_signed(source, stages) and not taken_back:
        return
    for name, node in stages.items():
        if source.name not in node.wiring.values():
            continue
        adds_up = taken_back and all(one.changes == "signed" for one in node.translator.inputs)
        if why := _why_not(node, sources, altered, promised=node.any_order or adds_up):
            yield ReplacementObstacle(f"stages.{name}", why)
    for name, sink in sinks.items():
        if sink.flow == source.name:
            why = "the sink publishes this source, and published records cannot be taken back"
            yield ReplacementObstacle(f"sinks.{name}", why)


def _why_not(
    node: StageNode, sources: Collection[str], altered: Collection[str], *, promised: bool
) -> str:
    """Return why a stage cannot recompute groups, in words; `""` if it can.

    A missing promise (`any_order`) is reported last: it helps only if there is no other obstacle.
    """
    spec = node.translator
    if spec.key is None or any(one.route_by is None for one in spec.inputs):
        return (
            "the stage has an input without `route_by`, and its output for single records "
            "cannot be taken back"
        )
    for one in spec.inputs:
        its, flow = f"input {one.name!r} of the stage", node.wiring.get(one.name)
        if flow is None:
            continue  # the check of the stage reports this
        if one.loopback or flow not in sources:
            return f"{its} reads {flow!r}, and only records of sources can be read again"
        if one.frame_by is not None:
            return f"{its} is framed, and closed frames cannot be reopened"
        if not isinstance(one.route_by, tuple):
            return (
                f"{its} is routed by a function. Route this input by columns, and use the function "
                "in a later stage, which reads the changes of a view of this stage"
            )
    if outputs := [one.name for one in spec.emitted]:
        return (
            f"output {outputs[0]!r} of the stage is not a view, so emitted records cannot be taken "
            "back: declare the output as a `View`"
        )
    for state in spec.states:
        cannot = f"state {state.name!r} of the stage cannot be recomputed group by group, since"
        if state.keep:
            return (
                f"{cannot} it keeps records that a call does not emit again: declare the state "
                "without `keep=True`, and emit all records of the group in each call"
            )
        if state.grouping == "outer":
            advice = 'declare the state without `grouping="outer"`'
            return f"{cannot} each run calls every group: {advice}"
    if spec.writes_remote and spec.states:
        return (
            "the stage cannot be recomputed group by group, since its calls write state of other "
            "groups with `.remote`: emit such records to a view, and let a later stage read the "
            "changes of the view, routed by the other key"
        )
    if spec.form == "sql":
        return "the stage is written in SQL, which is not recomputed group by group"
    if node.sets_aside:
        return "the stage sets records aside (`on_error`), and such records are not recomputed"
    if spec.lookups or spec.reads_run or spec.timers or spec.expiries:
        return (
            "the stage reads look-ups, the time of the run or timers, whose values may have "
            "changed since the records were first read"
        )
    if not node.runnable.split_free:
        return f"the stage's rule {node.runnable.name} may read records twice, or skip some"
    if node.name in altered:
        return (
            "the stage did not begin with the first increment of its input, or an operator "
            "corrected its state"
        )
    if not promised:
        return (
            "the document does not say that the stage gives the same result for any order of its "
            "records. If it does, as a count does (`check_any_order` of cbp.testing tests that), "
            "write `any_order: true` next to the stage's translator and register the document "
            "again, which keeps the state"
        )
    return ""
