"""What the direct engine cannot do yet, refused before it could be done wrongly.

The reference engine does all of `cbp.model.routing`; a stage that needs more than the
direct engine has is refused when its tables are made and again when a run is prepared.
Remote state writes cannot be seen before a run: the task refuses them with the author's line.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cbp.errors import DataflowInvalidError, DefinitionError, Mistake
from cbp.model.dataflow import StageNode
from cbp.model.stage import Computed, TranslatorSpec

__all__ = ["refuse_unbuilt", "require_no_spark"]


def refuse_unbuilt(dataflow: str, nodes: Sequence[StageNode]) -> None:
    """Raise when a stage needs what is not built.

    Raises:
        DataflowInvalidError: Rule `engine_unsupported`, naming every input and its place.
    """
    if mistakes := [mistake for node in nodes for mistake in _unbuilt(node)]:
        raise DataflowInvalidError(dataflow, mistakes)


def _unbuilt(node: StageNode) -> Iterator[Mistake]:
    for spec in node.translator.inputs:
        if isinstance(spec.route_by, Computed) and spec.route_by.many and spec.loopback:
            yield Mistake(
                "engine_unsupported",
                f"stages.{node.name}.inputs.{spec.name}",
                "this engine routes a record to one key only; use columns or by(...), or run "
                "the dataflow in memory with cbp.testing",
                spec.route_by.place,
            )


def require_no_spark(stage: str, spec: TranslatorSpec) -> None:
    """Raise where a translator's code is a plan of Spark and there is no Spark.

    Raises:
        DefinitionError: Rule `spark_needed`.
    """
    if spec.form == "sql":
        message = (
            f"{spec.name} is written in Spark SQL: run it with an engine on Spark, or write it "
            "as Translate or TranslateArrow to run it without"
        )
        raise DefinitionError(Mistake("spark_needed", f"stages.{stage}", message, spec.place))
