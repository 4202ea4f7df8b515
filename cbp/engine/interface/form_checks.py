"""Checks that refuse a stage whose form (rows, Arrow, SQL) an engine cannot run correctly."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from cbp.errors import DataflowInvalidError, DefinitionError, Mistake
from cbp.model.dataflow.dataflow import StageNode
from cbp.model.dataflow.stage import TranslatorSpec

__all__ = [
    "needs_spark",
    "require_epochs",
    "require_no_spark",
    "require_python",
    "require_stop",
]


def needs_spark(nodes: Iterable[StageNode]) -> bool:
    """Tell whether only Spark can check, and run, what these stages compute in SQL."""
    specs = [node.translator for node in nodes]
    return any(spec.form == "sql" or any(one.in_sql for one in spec.inputs) for spec in specs)


def require_no_spark(stage: str, spec: TranslatorSpec) -> None:
    """Refuse a translator in Spark SQL for an engine without Spark.

    Raises:
        DefinitionError: Rule `spark_needed`.
    """
    if spec.form == "sql":
        message = (
            f"{spec.name} is written in Spark SQL: run it with an engine on Spark, or write it "
            "as Translate or TranslateArrow to run it without"
        )
        raise DefinitionError(Mistake("spark_needed", f"stages.{stage}", message, spec.place))


def require_python(dataflow: str, nodes: Sequence[StageNode]) -> None:
    """Refuse translators in Spark SQL for an engine that hands each task its state.

    Such a translator reads its state itself, from the state files. It would ignore the state
    that arrives with the input.

    Raises:
        DataflowInvalidError: Rule `black_box_in_sql`, with each stage and its place.
    """
    mistakes = [
        Mistake(
            "black_box_in_sql",
            f"stages.{node.name}",
            f"{node.translator.name} is written in Spark SQL, which the black-box mode does not "
            "run: run it with the direct engine, or write it as Translate or TranslateArrow",
            node.translator.place,
        )
        for node in nodes
        if node.translator.form == "sql"
    ]
    if mistakes:
        raise DataflowInvalidError(dataflow, mistakes)


def require_epochs(dataflow: str, nodes: Sequence[StageNode]) -> None:
    """Refuse loops within a run for an engine in which a task ends after one superstep.

    Raises:
        DataflowInvalidError: Rule `black_box_in_loop`, with each stage and its place.
    """
    mistakes = [
        Mistake(
            "black_box_in_loop",
            f"stages.{node.name}",
            f"{node.translator.name} has up to {node.translator.supersteps} supersteps in a run, "
            "which the black-box mode does not do: run it with the direct engine, or leave "
            "supersteps out of its loopbacks",
            node.translator.place,
        )
        for node in nodes
        if node.translator.supersteps > 1
    ]
    if mistakes:
        raise DataflowInvalidError(dataflow, mistakes)


def require_stop(dataflow: str, nodes: Sequence[StageNode]) -> None:
    """Refuse stages that set records aside for an engine that cannot leave a group out.

    Raises:
        DataflowInvalidError: Rule `black_box_set_aside`, with each stage and its place.
    """
    mistakes = [
        Mistake(
            "black_box_set_aside",
            f"stages.{node.name}.on_error",
            "the black-box mode does not set records aside: run it with the direct engine, or "
            "leave on_error out",
            node.translator.place,
        )
        for node in nodes
        if node.sets_aside
    ]
    if mistakes:
        raise DataflowInvalidError(dataflow, mistakes)
