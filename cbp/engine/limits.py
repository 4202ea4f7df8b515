"""What an engine cannot do, refused before it could be done wrongly."""

from __future__ import annotations

from cbp.errors import DefinitionError, Mistake
from cbp.model.stage import TranslatorSpec

__all__ = ["require_no_spark"]


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
