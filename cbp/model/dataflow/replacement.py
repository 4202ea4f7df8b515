"""Replacement: a source takes back the records of an earlier file, and brings others. Pure.

    increment   0        1        2                  5
                monday   tuesday  wednesday   ...    files: records of the corrected tuesday
                                                     gone:  records of tuesday that it lacks

A replacement is an increment of its source like any other. Records that both files have are in
neither part. A stage that reads the source as signed records is given the sums that it needs: all
its records are in `files` then, with their signs turned for those that are gone. Any other stage
recomputes the groups of the run, from all of their records that are kept, as if these had come
in one increment and the groups had no state (`cbp.engine.run.recomputation`). That is right if the
stage's answer depends on nothing but the records, which its author says (`any_order`), and if all
that it wrote can be replaced. `hindrances` says what of this a stage lacks.

Later stages read the changes of views, as always.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from cbp.model.dataflow.nodes import SourceNode, StageNode
from cbp.model.dataflow.sinks import SinkNode
from cbp.model.flow.changes import SIGN, SIGN_TYPES


@dataclass(frozen=True, slots=True)
class Hindrance:
    """Why a reader of a source cannot follow the replacement of a file.

    Attributes:
        reader: Where the document has it, such as `stages.count` or `sinks.archive`.
        why: The reason, and what its author can declare so that it follows.
    """

    reader: str
    why: str


def is_signed(source: SourceNode, stages: Mapping[str, StageNode]) -> bool:
    """Return whether a source has signs, and all that read it read signed records."""
    types = (field.type.kind for field in source.schema.fields if field.name == SIGN)
    return next(types, "") in SIGN_TYPES and all(
        node.translator.input(name).changes == "signed"
        for node in stages.values()
        for name, flow in node.wiring.items()
        if flow == source.name
    )


def hindrances(
    source: SourceNode,
    sources: Collection[str],
    stages: Mapping[str, StageNode],
    sinks: Mapping[str, SinkNode] = MappingProxyType({}),
    altered: Collection[str] = (),
    *,
    taken_back: bool = False,
) -> Iterator[Hindrance]:
    """Yield why readers of a source cannot follow the replacement of one of its files.

    Args:
        altered: Stages whose tables are not computed from all input by their present code: a
            version began them later, or an operator corrected their state.
        taken_back: Whether it was taken in while a stage read records without their signs. Then its
            increment takes records back, and all readers recompute groups, also those of signs.
    """
    if source.format == "delta":
        yield Hindrance(f"sources.{source.name}", "it follows a table, which says what changed")
    if is_signed(source, stages) and not taken_back:
        return
    for name, node in stages.items():
        if source.name not in node.wiring.values():
            continue
        adds_up = taken_back and all(one.changes == "signed" for one in node.translator.inputs)
        if why := _why_not(node, sources, altered, promised=node.any_order or adds_up):
            yield Hindrance(f"stages.{name}", why)
    for name, sink in sinks.items():
        if sink.flow == source.name:
            yield Hindrance(f"sinks.{name}", "it publishes the source, and nothing is taken back")


def _why_not(
    node: StageNode, sources: Collection[str], altered: Collection[str], *, promised: bool
) -> str:
    """Return what keeps a stage from recomputing groups, in words; `""` if nothing does.

    `promised`: whether its answer depends on nothing but the records. That is asked last: a promise
    helps only where nothing else is in the way.
    """
    spec = node.translator
    if spec.key is None or any(one.route_by is None for one in spec.inputs):
        return "it has an input without groups, and what it wrote of single records stays"
    for one in spec.inputs:
        if one.loopback or node.wiring[one.name] not in sources:
            return (
                f"its input {one.name!r} reads {node.wiring[one.name]!r}, whose history is not kept"
            )
        if one.frame_by is not None:
            return f"its input {one.name!r} is framed, and frames that closed are not opened again"
        if not isinstance(one.route_by, tuple):
            return (
                f"its input {one.name!r} is routed by a function; route by columns, and let a "
                "stage behind it, which reads the changes of its view, be routed by the function"
            )
    if outputs := [one.name for one in spec.emitted]:
        return (
            f"its output {outputs[0]!r} is not a view, and records that were emitted stay; declare "
            "it as a `View`"
        )
    for state in spec.states:
        if state.keep or state.grouping == "outer" or spec.writes_remote:
            return f"its state {state.name!r} is more than what each group emits when it is called"
    if spec.form == "sql":
        return "it is in SQL"
    if node.sets_aside:
        return (
            "it sets records aside (`on_error`), and records that are set aside are not recomputed"
        )
    if spec.lookups or spec.reads_run or spec.timers or spec.expiries:
        return "it reads look-ups, the time or timers, which have changed since"
    if not node.runnable.split_free:
        return f"its rule {node.runnable.name} reads records twice, or leaves some out"
    if node.name in altered:
        return "a version began it later than its input, or an operator corrected its state"
    if not promised:
        return (
            "the document does not say that its answer is the same in any order of its records; "
            "if it is, as that of a count, write `any_order: true` beside its translator, and "
            "register again: its state stays (`check_any_order` of cbp.testing tests the promise)"
        )
    return ""
