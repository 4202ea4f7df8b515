"""Checks of an author's SQL: queries and keys must give the same result whenever they run.

A redo after a crash and `cbp verify` repeat a run, with another clock, another session and other
random numbers. So a query reads the recorded time of its run (`cbp.engine.spark.sql.data_frames`).

    queries of a class     analysed over empty tables when a dataflow is registered, and before the
                           stage's first run in a process
    an author's own plan   checked in each run, when it is made

Not checked: what an author's Python code computes before it makes a plan.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from cbp.engine.spark.bucket_shuffle import ddl
from cbp.engine.spark.sql.data_frames import RUN_COLUMNS, Frames, Results
from cbp.engine.spark.sql.determinism import differences, moments
from cbp.engine.spark.sql.lookup_task import named_tables
from cbp.errors import AuthorCodeError, CbpError, DataflowInvalidError, Mistake, is_authors
from cbp.model.dataflow.call_rules import Fresh
from cbp.model.dataflow.dataflow import StageNode
from cbp.model.dataflow.stage import InputSpec, TranslatorSpec
from cbp.model.flow.schema import DataType, Schema

_INSTEAD = (
    "Instead of the current time, use the column `time` of the table `run`, which is recorded "
    "(FROM urls CROSS JOIN run); instead of a random number or id, use a hash of columns, such as "
    "xxhash64(url)"
)


class QueryCheck:
    """Checks the queries of stages; those of one version of a stage only once."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._known: dict[tuple[str, str], tuple[tuple[Any, ...], list[Mistake]]] = {}

    def check(self, dataflow: str, nodes: Sequence[StageNode]) -> None:
        """Raise `DataflowInvalidError` if a query that Spark accepts is not repeatable."""
        mistakes = [
            mistake
            for node in nodes
            if node.translator.declared
            for mistake in self._mistakes(dataflow, node)
        ]
        if mistakes:
            raise DataflowInvalidError(dataflow, mistakes)

    def forget(self, dataflow: str) -> None:
        """Drop what is known of a dataflow's stages, such as their translators."""
        for stage in list(self._known):  # a copy, since other threads add theirs
            if stage[0] == dataflow:
                self._known.pop(stage, None)

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
            f"{name} uses {', '.join(differing)}, so a repeated run would have another result. "
            f"{_INSTEAD}",
            spec.place,
        )
        for name, differing in by_result.items()
        if differing
    ]


_BAD_VALUE = re.compile(r"\[([A-Z0-9_.]+)\] (.*?)\s*SQLSTATE: 22\w{3}", re.DOTALL)
"""Spark's error text when a value does not fit: SQL's class 22, data exceptions."""


class SqlKeys:
    """Checks expressions that are keys, on one session; each is checked only once.

    An expression must have one value of its declared type for each record, and the same value
    whenever it is evaluated, since a run may be retried. Spark analyses it over the columns of the
    input, so that a wrong expression is refused when the dataflow is registered.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._known: dict[tuple[str, str, str], str] = {}

    def check(self, dataflow: str, nodes: Sequence[StageNode]) -> None:
        """Raise `DataflowInvalidError` with each expression that cannot be a key, and its place."""
        mistakes = [
            mistake
            for node in nodes
            for input_ in node.translator.inputs
            for mistake in self._mistakes(node, input_)
        ]
        if mistakes:
            raise DataflowInvalidError(dataflow, mistakes)

    def _mistakes(self, node: StageNode, input_: InputSpec) -> Iterator[Mistake]:
        for by in input_.computed:
            for text, type_ in zip(by.sql, by.types, strict=False):
                key = str(input_.schema), text, str(type_)
                if key not in self._known:
                    self._known[key] = self._wrong(input_.schema, text, type_)
                if wrong := self._known[key]:
                    where = f"stages.{node.name}.inputs.{input_.name}"
                    yield Mistake("by_sql_invalid", where, f"{text!r} {wrong}", by.place)

    def _wrong(self, schema: Schema, text: str, type_: DataType) -> str:
        """Return the mistake in an expression; `""` if there is none."""
        columns = ", ".join(f"CAST(NULL AS {f.type}) AS `{f.name}`" for f in schema.fields)
        try:
            frame = self._spark.sql(f"SELECT {columns}").selectExpr(f"({text}) AS k")
        except AnalysisException as exc:  # includes parse errors
            said = " ".join(str(exc).split(";")[0].split("==")[0].split())
            return f"is refused by Spark: {said}; the columns of the input are ({schema})"
        plan = frame._jdf.queryExecution().analyzed()
        if not self._is_plain(plan):
            return "must have one value for each record: no aggregate, window, explode or subquery"
        jvm: Any = self._spark.sparkContext._jvm
        current = jvm.org.apache.spark.sql.catalyst.trees.TreePattern.CURRENT_LIKE()
        if not plan.deterministic() or plan.containsPattern(current):
            return "must have the same value every time (it must be deterministic)"
        given = frame.schema[0].dataType.simpleString()
        if given != str(type_).lower():
            return (
                f"has type {given.upper()}, but is declared as {type_}; CAST the expression, or "
                "change the declared type"
            )
        return ""

    def _is_plain(self, plan: Any) -> bool:
        """Return whether a plan computes one column from each record, and reads nothing else."""
        below = plan.children().head()
        plain = plan.getClass().getSimpleName() == "Project" and plan.subqueries().isEmpty()
        leaf = below.getClass().getSimpleName() == "Project" and below.children().head()
        return bool(plain and leaf and leaf.children().isEmpty())


def failed_expression(node: StageNode, text: str) -> CbpError | None:
    """Return the author's error if a value did not fit an expression, otherwise `None`."""
    by = next((by for i in node.translator.inputs for by in i.computed if by.sql), None)
    match = _BAD_VALUE.search(text)
    if by is None or match is None:
        return None
    cause = f"{match[1]}: {' '.join(match[2].split())}"
    return AuthorCodeError(
        stage=node.name,
        function=f"{node.translator.name}: {', '.join(by.sql)}",
        place=by.place,
        cause=cause[:1000],
    )
