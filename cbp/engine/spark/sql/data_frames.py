"""An author's interface to Spark SQL: the frames that the plan reads, and its results.

Guaranteed: a result has the declared columns, in their order and types. If two results are the same
frame, or equal queries, Spark evaluates them once, except for states whose columns or keys have
other names than those of the first such result.

A query finds the facts of its run in the table `run`, which has one record (`RUN_COLUMNS`). Its
values are those of `cbp.model.dataflow.run_context`; labels of frames are texts.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, NoReturn

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from cbp.engine.kernel.arrow.kept_tables import kept_key
from cbp.engine.spark.bucket_shuffle import ddl, quoted
from cbp.engine.spark.sql.task_plans import deletions
from cbp.model.dataflow.run_context import RunContext, hidden
from cbp.model.dataflow.stage import TranslatorSpec
from cbp.model.flow.schema import Schema

RUN_COLUMNS = "epoch BIGINT, time TIMESTAMP, frames MAP<STRING, ARRAY<STRING>>"

_TYPES = pa.schema(
    {
        "epoch": pa.int64(),
        "time": pa.timestamp("us", tz="UTC"),
        "frames": pa.map_(pa.string(), pa.list_(pa.string())),
    }
)


def run_record(spec: TranslatorSpec, context: RunContext) -> pa.RecordBatch:
    """Return a run as one record; inputs without `frame_by` have no labels."""
    frames = [(one.name, [*map(str, context.frames(one.name))]) for one in spec.inputs]
    record = {"epoch": context.epoch, "time": context.time, "frames": frames}
    return pa.RecordBatch.from_pylist([record], schema=_TYPES)


class Frames:
    """The frames that the author's plan reads; see `cbp.sdk.forms.TranslateSql`.

    Each becomes an attribute, and a view of the session. Nothing else may use this session at the
    same time. The text of every query is added to `texts`.
    """

    def __init__(
        self, session: SparkSession, frames: Mapping[str, DataFrame], texts: list[str]
    ) -> None:
        self._session, self._names, self._texts = session, tuple(frames), texts
        for name, frame in frames.items():
            setattr(self, name, frame)
            self.define(name, frame)

    def __getattr__(self, name: str) -> NoReturn:
        if name == "run":
            raise hidden()
        message = f"there is no input {name!r}; use one of {', '.join(self.__dict__['_names'])}"
        raise AttributeError(message)

    def define(self, name: str, frame: DataFrame) -> None:
        """Name a frame for later queries."""
        frame.createOrReplaceTempView(name)

    def sql(self, text: str) -> DataFrame:
        """Return the frame of a query."""
        self._texts.append(text)
        return self._session.sql(text)


class Results:
    """Collects the frame of every output and state from `out`, checked against its declaration."""

    def __init__(self, spec: TranslatorSpec, *, shared: bool = True) -> None:
        self.out: Any = _Namespace()
        self._shared = shared
        self.frames: dict[str, DataFrame] = {}
        self._keys = {state.name: spec.key_of(state).names for state in spec.authored}
        self._schemas = {state.name: state.schema for state in spec.authored}
        deletes = {deletions(state.name): state for state in spec.kept}
        self._keys |= {name: self._keys[state.name] for name, state in deletes.items()}
        self._schemas |= {name: kept_key(spec, state) for name, state in deletes.items()}
        self._schemas |= {output.name: output.schema for output in spec.emitted}
        for name, schema in self._schemas.items():
            take, state = partial(self._take, name, schema), deletes.get(name)
            if state is None:
                setattr(self.out, name, take)
            else:
                getattr(self.out, state.name).delete = take

    def distinct(self) -> tuple[dict[str, DataFrame], dict[str, str]]:
        """Return each distinct frame under its first flow, and for each flow that first flow.

        States come before outputs.
        """
        frames: dict[str, DataFrame] = {}
        given: dict[str, str] = {}
        for name in self._schemas:
            if name in self.frames:
                given[name] = next(filter(lambda one: self._same(name, one), frames), name)
                frames.setdefault(given[name], self.frames[name])
        return frames, given

    def _same(self, name: str, other: str) -> bool:
        if not self._shared:
            return False
        # A state's key is found by column names, so a shared frame needs the same names.
        if name in self._keys and self._lies_by(name) != self._lies_by(other):
            return False
        return self.frames[name].sameSemantics(self.frames[other])

    def _lies_by(self, state: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
        return self._schemas[state].names, self._keys[state]

    def _take(self, flow: str, schema: Schema, frame: DataFrame) -> None:
        frame = _conformed(flow, schema, frame)
        before = self.frames.get(flow)
        self.frames[flow] = frame if before is None else before.unionAll(frame)


class _Namespace:
    """An object whose attributes are set by name; an author's error names this class."""


def _conformed(flow: str, schema: Schema, frame: DataFrame) -> DataFrame:
    if sorted(frame.columns) != sorted(schema.names):
        came = ", ".join(frame.columns)
        message = f"out.{flow}: expected the columns {', '.join(schema.names)}, got {came}"
        raise TypeError(message)
    declared: Any = StructType.fromDDL(ddl(schema))
    for field, wanted in zip(schema.fields, declared.fields, strict=True):
        type_name = frame.schema[field.name].dataType.simpleString()
        if type_name not in (wanted.dataType.simpleString(), "void"):
            message = (
                f"out.{flow}: column {field.name!r} is declared {field.type}, got "
                f"{type_name.upper()}; write CAST(... AS {field.type})"
            )
            raise TypeError(message)
    return frame.selectExpr(
        *(f"CAST({quoted(f.name)} AS {f.type}) AS {quoted(f.name)}" for f in schema.fields)
    )
