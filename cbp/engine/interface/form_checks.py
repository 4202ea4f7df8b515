"""Checks that refuse a stage whose form (rows, Arrow, SQL) an engine cannot run correctly."""

from __future__ import annotations

from collections.abc import Sequence

from cbp.errors import DataflowInvalidError, DefinitionError, Mistake
from cbp.model.dataflow.dataflow import StageNode
from cbp.model.dataflow.stage import TranslatorSpec

__all__ = ["require_no_spark", "require_python"]


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
