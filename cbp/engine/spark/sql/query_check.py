"""Check of an author's SQL: a query with another result at each run is refused.

A redo after a crash and `cbp verify` repeat a run. The clock, chance and the session are others by
then. A query reads the recorded time of its run instead (`cbp.engine.spark.sql.data_frames`).

    queries of a class     analysed over empty tables when a dataflow is registered, and before the
                           stage's first run in a process
    an author's own plan   looked at in each run, as it is made

Not guaranteed: what an author's Python code computes before it makes a plan.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyspark.sql import SparkSession

from cbp.engine.spark.bucket_shuffle import ddl
from cbp.engine.spark.sql.data_frames import RUN_COLUMNS, Frames, Results
from cbp.engine.spark.sql.determinism import differences, moments
from cbp.engine.spark.sql.lookup_task import named_tables
from cbp.errors import DataflowInvalidError, Mistake, is_authors
from cbp.model.dataflow.call_rules import Fresh
from cbp.model.dataflow.dataflow import StageNode
from cbp.model.dataflow.stage import TranslatorSpec

_INSTEAD = (
    "instead of the current time, use the column `time` of the table `run`, which is recorded "
    "(FROM urls CROSS JOIN run); instead of a random number or id, use a hash of columns, such as "
    "xxhash64(url)"
)


class QueryCheck:
    """Checks the queries of stages; those of one version of a stage only once."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._known: dict[tuple[str, str], tuple[tuple[Any, ...], list[Mistake]]] = {}

    def check(self, dataflow: str, nodes: Sequence[StageNode]) -> None:
        """Raise if a query gives another result when its run is repeated.

        A query that Spark rejects passes this check; the run reports that error.

        Raises:
            DataflowInvalidError: Rule `by_sql_invalid`, with each result of such a query.
        """
        mistakes = [
            mistake
            for node in nodes
            if node.translator.declared
            for mistake in self._mistakes(dataflow, node)
        ]
        if mistakes:
            raise DataflowInvalidError(dataflow, mistakes)

    def _mistakes(self, dataflow: str, node: StageNode) -> list[Mistake]:
        stage, version = (dataflow, node.name), (node.translator, node.translator.translate)
        known = self._known.get(stage)
        if known is None or known[0] != version:
            known = self._known[stage] = version, self._looked_for(node)
        return known[1]

    def _looked_for(self, node: StageNode) -> list[Mistake]:
        spec, session = node.translator, self._spark.newSession()
        tables = (*spec.authored, *spec.looked_up, *spec.looked_up_whole)
        columns = {one.name: ddl(one.schema) for one in spec.inputs}
        columns |= {one.name: ddl(one.schema) for one in tables}
        columns |= {one.name: ddl(one.state.schema) for one in named_tables(spec)}
        if spec.gives_run:
            columns["run"] = RUN_COLUMNS
        frames = {name: session.createDataFrame([], text) for name, text in columns.items()}
        results = Results(spec)
        texts: list[str] = []
        try:
            with Fresh(spec, stage=node.name) as fresh:
                fresh.spec.translate(Frames(session, frames, texts), results.out)
        except Exception as exc:
            if not is_authors(exc):
                raise
            return []
        return mistakes_of(session, node.name, spec, results, texts)


def mistakes_of(
    session: SparkSession, stage: str, spec: TranslatorSpec, results: Results, texts: Sequence[str]
) -> list[Mistake]:
    """Return a mistake for each result that differs when its run is repeated."""
    by_result = {
        f"out.{name}": differences(session, frame._jdf.queryExecution().analyzed())
        for name, frame in results.frames.items()
    }
    by_result["a query"] = moments(session, texts)
    return [
        Mistake(
            "by_sql_invalid",
            f"stages.{stage}",
            f"{name}: {', '.join(differing)} gives another result when the run is repeated; "
            f"{_INSTEAD}",
            spec.place,
        )
        for name, differing in by_result.items()
        if differing
    ]
