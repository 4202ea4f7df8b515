"""The tables that the stages of a run look up, for its plan; pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType

from cbp.engine.interface.runs import LookedUp
from cbp.model.dataflow.dataflow import Dataflow, StageNode
from cbp.model.run.intention import Intention, LookupMoment

Unpublished = Callable[[str], Iterable[Intention]]
"""Stage -> its intentions that its tables may not show yet, oldest first."""


def nothing_unpublished(stage: str) -> tuple[Intention, ...]:
    """Return no intentions: the tables show every epoch."""
    return ()


def looked_up_tables(
    dataflow: Dataflow,
    folder: str,
    stages: Iterable[StageNode],
    *,
    unpublished: Unpublished = nothing_unpublished,
    moments: Mapping[str, LookupMoment] = MappingProxyType({}),
) -> dict[str, LookedUp]:
    """Return the tables that stages look up, by `stage.lookup`.

    A look-up with `wake=True` calls groups for changes, and must not read an older table than those
    changes. So only such a look-up reads epochs that are recorded and not yet published.

    Args:
        stages: The stages of the run.
        unpublished: Returns the intentions of a stage, given a stage that wrote a table.
        moments: Moments that are known already, from the record of the run.
    """
    tables = {}
    for node in stages:
        for spec in node.translator.lookups:
            writer, _, state = node.lookups[spec.name].partition(".")
            name = f"{node.name}.{spec.name}"
            intentions = tuple(unpublished(writer)) if spec.wake else ()
            tables[name] = LookedUp(
                folder, dataflow.stages[writer], state, moments.get(name), intentions
            )
    return tables
