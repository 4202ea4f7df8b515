"""Which engine can run a stage, by its form (rows, Arrow, SQL)."""

from __future__ import annotations

from collections.abc import Iterable

from cbp.errors import DefinitionError, Mistake
from cbp.model.dataflow.dataflow import StageNode
from cbp.model.dataflow.stage import TranslatorSpec


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
