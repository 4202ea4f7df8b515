"""Stage specifications: `TranslatorSpec` and the specs of its inputs, outputs and states.

The SDK (`cbp.sdk`) compiles the author's classes to these values, and every engine executes them;
SDK and engines do not know each other. Instances are plain and immutable. They hold functions of
the author, which are never called here.

Source: CBP (SoCC'10), table 1, "Five functions control stage processing".
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from cbp.model.author.code_fingerprint import UNKNOWN_CODE, Code
from cbp.model.dataflow.runnable import RunAll, can_start, is_ready_rule, rule_text
from cbp.model.flow.connector import Runnable
from cbp.model.flow.framing import FrameBy
from cbp.model.flow.schema import DataType, Schema

__all__ = [
    "SECONDS_MAX",
    "CombineSpec",
    "Computed",
    "Form",
    "Grouping",
    "InputSpec",
    "OutputSpec",
    "RunnableSpec",
    "StateSpec",
    "TranslatorSpec",
]

Grouping = Literal["inner", "outer"]

Form = Literal["groupwise", "arrow", "sql"]
"""How `translate` is called: per group, on Arrow tables of many groups, on Spark DataFrames."""


SECONDS_MAX = 3660 * 24 * 3600
"""Longest idle time or time limit, ten years, so that adding it to a date cannot overflow."""


@dataclass(frozen=True, slots=True)
class Computed:
    """A routing or ordering key that the author's function computes from one record.

    Attributes:
        function: `record -> value`, or a tuple of values for a key of several columns;
            deterministic and free of side effects.
        types: Types of the values, in order.
        place: `file.py:12` of the function.
        many: For a `route_by`: whether the function returns destinations, one or a list
            (`cbp.model.dataflow.routing`), instead of exactly one key.
        sql: Spark SQL expressions for the values, one per type; `function` then returns the
            same values where there is no Spark.
    """

    function: Callable[[Any], Any]
    types: tuple[DataType, ...]
    place: str = ""
    many: bool = False
    sql: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CombineSpec:
    """A combiner: the author's function that reduces records of one group to fewer records.

    Attributes:
        function: `records -> records` of the same schema and key. For every sub-multiset of a
            group's records of one input, replacing it by the result must not change the result
            of `translate` for the group.
        place: `file.py:12` of the function.
    """

    function: Callable[[list[Any]], Iterable[Any]]
    place: str = ""


@dataclass(frozen=True, slots=True)
class InputSpec:
    """One input flow of a translator.

    Attributes:
        route_by: Columns, or a function, that give the group's key; `None`: each
            record is its own group (RouteByRcd).
        order_by: Columns, or a function, that give the order within a group;
            `None`: the order of arrival (OrderByAny, made deterministic).
        loopback: Whether it is wired to the output of the same name of its own stage, so that
            its records are messages.
        frame_by: How the flow is cut into this input's increments; `None`: every output
            increment is one (FrameByPrior).
        close_idle_seconds: Seconds without a record after which the open frame is closed;
            0: never.
        combine: The combiner that can run on its records before they are shuffled.
    """

    name: str
    schema: Schema
    route_by: tuple[str, ...] | Computed | None = None
    order_by: tuple[str, ...] | Computed | None = None
    loopback: bool = False
    frame_by: FrameBy | None = None
    combine: CombineSpec | None = None
    close_idle_seconds: float = 0.0

    @property
    def computed(self) -> tuple[Computed, ...]:
        """The computed keys: first for routing, then for ordering."""
        both = (self.route_by, self.order_by)
        return tuple(by for by in both if isinstance(by, Computed))

    @property
    def has_several(self) -> bool:
        """Whether a record can have several destinations, or destinations without a key."""
        return isinstance(self.route_by, Computed) and self.route_by.many

    @property
    def lies_by_bucket(self) -> bool:
        """Whether messages are written by the bucket of their receiver.

        That needs exactly one receiver, which a task can find without Spark. Messages with a
        combiner are shuffled like other inputs, since files by bucket are read as they are.
        """
        one = self.route_by is not None and not self.has_several and self.combine is None
        return self.loopback and one and not self.in_sql

    @property
    def in_sql(self) -> bool:
        """Whether its routing or ordering key is a Spark SQL expression."""
        return any(by.sql for by in self.computed)


@dataclass(frozen=True, slots=True)
class OutputSpec:
    """One output flow of a translator.

    Attributes:
        key: Columns of the key: when two runs are compared, only the last record per key
            counts. Empty: all records count.
        history: Whether to compare epoch by epoch instead, since the sequence is the result.
        tolerance: How much floating-point numbers may differ in a comparison
            (`cbp.model.dataflow.equality`).
        not_compared: Columns that a comparison leaves out.
    """

    name: str
    schema: Schema
    key: tuple[str, ...] = ()
    history: bool = False
    tolerance: float = 0.0
    not_compared: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class StateSpec:
    """One state loopback: kept between epochs and looked up by the group's key.

    Attributes:
        schema: Holds the columns of the key, see `TranslatorSpec.key_of`.
        grouping: `inner`: only groups that have a record in another input are called;
            `outer`: every key in state is called in every epoch.
        tolerance: How much floating-point numbers may differ when two runs are compared
            (`cbp.model.dataflow.equality`).
        not_compared: Columns that a comparison leaves out.
        route_by: Columns that hold the stage's key, in its order; `None`: the columns with the
            names of the key's columns.
        order_by: Columns that come first in the order of a group's records; all others follow.
    """

    name: str
    schema: Schema
    grouping: Grouping = "inner"
    tolerance: float = 0.0
    not_compared: tuple[str, ...] = ()
    route_by: tuple[str, ...] | None = None
    order_by: tuple[str, ...] = ()

    @property
    def order(self) -> tuple[str, ...]:
        """Columns by which a group's records are ordered: all that can be compared."""
        others = (f.name for f in self.schema.fields if not f.type.arguments)
        return tuple(dict.fromkeys((*self.order_by, *others)))


@dataclass(frozen=True, slots=True)
class RunnableSpec:
    """When a stage runs, and on what.

    Attributes:
        function: A rule of `cbp.model.dataflow.runnable`, or the author's function.
        place: `file.py:12` of the function, or of the class that names the rule. For a rule of
            a document: `file.py:12` of the translator's class, and the place in the document.
    """

    function: Runnable = RunAll()  # noqa: RUF009 - a frozen value
    place: str = ""

    @property
    def name(self) -> str:
        """The rule's name, or the function's, for messages."""
        return getattr(self.function, "__name__", type(self.function).__name__)

    @property
    def named(self) -> tuple[str, ...]:
        """Inputs that a rule names; unknown, and so empty, for a function."""
        return getattr(self.function, "named", ())

    def can_start(self, fed: Collection[str], inputs: Sequence[str]) -> bool:
        """Tell whether a first run is possible if only these inputs ever have an increment.

        Always true for an author's function, since it can decide anything.

        Args:
            fed: Inputs that can have an increment before the first run.
            inputs: All inputs of the stage.
        """
        return self.by_author or can_start(self.function, fed, inputs)

    @property
    def by_author(self) -> bool:
        """Whether asking it calls an author's code, which can take any time."""
        return not is_ready_rule(self.function)

    @property
    def timeless(self) -> bool:
        """Whether every run is known to read the same increments, whenever runs are started."""
        return not self.by_author and bool(getattr(self.function, "timeless", False))

    @property
    def split_free(self) -> bool:
        """Whether all runs are known to read each record once, however the input is split."""
        return not self.by_author and bool(getattr(self.function, "split_free", False))

    @property
    def text(self) -> str:
        """The rule with its arguments; `function` for a function (its class has a fingerprint)."""
        return "function" if self.by_author else rule_text(self.function)

    @property
    def default(self) -> bool:
        """Whether it is the default: one increment of every input."""
        return self.function == RunAll()


@dataclass(frozen=True, slots=True)
class TranslatorSpec:
    """One translator, ready for an engine.

    Attributes:
        name: The author's class, for messages.
        place: `file.py:12` of the translate function.
        key: Columns of the group's key; `None` for a record-wise translator.
        translate: `translate(key, group, out)`, where the key is `None` for a single record;
            `translate(record, out)` if `takes_record`; `translate(groups, out)` for the form
            `arrow`, `translate(frames, out)` for `sql`.
        runnable: When it runs; a stage can override it (`StageNode.runnable`).
        form: How `translate` is called; a record-wise translator always has the default form.
        code: Fingerprint of the author's class and of what it needs of its package.
        declared: Whether an SQL translator consists only of queries: no function of the author
            makes its plan or runs in it.
        takes_record: Whether it has one input, without `route_by`, and is called with its bare
            records.
        absent: For a part of a translator (`parts`): inputs that are empty in every call.
    """

    name: str
    key: Schema | None
    inputs: tuple[InputSpec, ...]
    outputs: tuple[OutputSpec, ...]
    states: tuple[StateSpec, ...]
    translate: Callable[..., object] = field(compare=False)
    place: str = ""
    runnable: RunnableSpec = RunnableSpec()
    form: Form = "groupwise"
    code: Code = field(default=UNKNOWN_CODE, compare=False)
    declared: bool = field(default=False, compare=False)
    takes_record: bool = False
    absent: tuple[InputSpec, ...] = ()

    @property
    def record_wise(self) -> bool:
        """Whether every record of every input is its own group, so that nothing is shuffled."""
        return all(spec.route_by is None for spec in self.inputs)

    def parts(self) -> tuple[TranslatorSpec, ...]:
        """Split the translator into a part for groups and a part for single records.

        There is only one part if all inputs are of one kind. Otherwise each part has the inputs of
        its kind, and the others are `absent`. The part for records writes state but reads none.
        """
        grouped = tuple(spec for spec in self.inputs if spec.route_by is not None)
        single = tuple(spec for spec in self.inputs if spec.route_by is None)
        if not grouped or not single:
            return (self,)
        return (
            replace(self, inputs=grouped, absent=single),
            replace(self, inputs=single, absent=grouped),
        )

    @property
    def loopbacks(self) -> tuple[InputSpec, ...]:
        """Inputs that the stage feeds itself; each has an output of its name and schema."""
        return tuple(spec for spec in self.inputs if spec.loopback)

    @property
    def addressed(self) -> tuple[InputSpec, ...]:
        """Loopbacks whose messages can have addresses: those with a route function."""
        inputs = (*self.inputs, *self.absent)
        return tuple(spec for spec in inputs if spec.loopback and spec.has_several)

    @property
    def multicasts(self) -> bool:
        """Whether groups can be bound to addresses."""
        return bool(self.addressed)

    @property
    def framed(self) -> tuple[InputSpec, ...]:
        """Inputs that frame their flow, that is, cut it into their own increments."""
        return tuple(spec for spec in self.inputs if spec.frame_by is not None)

    def input(self, name: str) -> InputSpec:
        """Return the input of this name."""
        return next(spec for spec in self.inputs if spec.name == name)

    def output(self, name: str) -> OutputSpec:
        """Return the output of this name."""
        return next(spec for spec in self.outputs if spec.name == name)

    def state(self, name: str) -> StateSpec:
        """Return the state of this name."""
        return next(spec for spec in self.states if spec.name == name)

    def key_of(self, state: StateSpec) -> Schema:
        """Return the stage's key with the column names that it has in a state."""
        assert self.key is not None, "a stage with state has a key"
        if state.route_by is None:
            return self.key
        pairs = zip(self.key.fields, state.route_by, strict=True)
        return Schema(tuple(replace(column, name=name) for column, name in pairs))
