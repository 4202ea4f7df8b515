"""Life of a flow: the increments since which its records have their present meaning. Pure.

    increment   0    1    2  |  3    4    5  |  6    7
                records      |  records      |  changes
                version 1       rebuilt         the output became a view

A stage that is rebuilt, or added again, emits everything again, and writes no deletions of earlier
records. So a reader that adds up signs begins with the flow's life (`first`). If an output became a
view that was filled, its changes begin later (`signed`) and do not add up to the view: the records
with which the view began were never emitted as changes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from cbp.model.version.dataflow_shape import DataflowShape
from cbp.model.version.new_views import flows_made_views


@dataclass(frozen=True, slots=True)
class FlowLife:
    """The first increments in which a flow's records have their present meaning.

    Attributes:
        first: The first increment since its stage began with nothing.
        signed: The first increment that has types and signs, if it has changes of a view.
        built: Whether its table began with records of a rebuild (`beside`), which no increment has.
        version: The version that last changed any of this; 0 if none did. It distinguishes two
            swaps without a run in between, which begin with the same increment.
    """

    first: int = 0
    signed: int = 0
    built: bool = False
    version: int = field(default=0, compare=False)

    @property
    def adds_up(self) -> bool:
        """Whether the signs of all changes add up to the view."""
        return self.signed <= self.first and not self.built


NEW_LIFE = FlowLife()


@dataclass(frozen=True, slots=True)
class Beginning:
    """The beginning of a version, as far as it matters for the lives of flows.

    Attributes:
        shape: The version, if it was recorded.
        epochs: Maps each stage that leads others to its first epoch under this version.
        emptied: Stages that begin with nothing.
        built: Whether their tables begin with the records of a rebuild (`beside`).
    """

    shape: DataflowShape | None
    epochs: Mapping[str, int]
    emptied: Collection[str] = ()
    built: bool = False


def lives_of_flows(versions: Iterable[Beginning]) -> dict[str, FlowLife]:
    """Return the life of each flow that did not begin with increment 0, from all versions."""
    lives: dict[str, FlowLife] = {}
    before: DataflowShape | None = None
    for number, version in enumerate(versions, 1):
        if (shape := version.shape) is None:
            continue
        for name, stage in shape.stages.items():
            epoch = version.epochs.get(_leader_of(name, shape, version.epochs), 0)
            if name in version.emptied:
                life = FlowLife(epoch, epoch, version.built, number)
                lives |= {f"{name}.{output}": life for output in stage.outputs}
            elif before is not None and name in before.stages:
                for view in flows_made_views(before.stages[name], stage):
                    flow = f"{name}.{view}"
                    known = lives.get(flow, NEW_LIFE)
                    lives[flow] = replace(known, signed=epoch, version=number)
        before = shape
    return {flow: life for flow, life in lives.items() if life != NEW_LIFE}


def _leader_of(name: str, shape: DataflowShape, leaders: Collection[str]) -> str:
    """Return the stage that leads another: a follower has one input, written in its leader's run.

    A version may name no leader, as the first one does. The search around a cycle then ends at a
    stage that it has passed.
    """
    passed = set[str]()
    while name not in leaders and name in shape.stages and name not in passed:
        passed.add(name)
        inputs = shape.stages[name].inputs.values()
        name = next((input_.flow.partition(".")[0] for input_ in inputs), "")
    return name
