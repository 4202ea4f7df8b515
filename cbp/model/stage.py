"""What a stage is made of: inputs, outputs, state, and the function between them.

These are the values that the author's classes (`cbp.sdk`) are compiled to and
that every engine executes; neither side knows the other. Instances are plain
and immutable; functions in them are the author's and are never called here.

Source: CBP (SoCC'10), table 1, "Five functions control stage processing".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from cbp.model.connector import Runnable
from cbp.model.framing import FrameBy
from cbp.model.runnable import RunAll, is_ready_rule, rule_text
from cbp.model.schema import DataType, Schema

__all__ = [
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


@dataclass(frozen=True, slots=True)
class Computed:
    """A key computed by the author's function from one record.

    Attributes:
        function: `record -> value`, or a tuple of values for a key of several columns;
            deterministic and free of side effects.
        types: Types of the values, in order.
        place: `file.py:12` of the function.
        many: Of a `route_by`: the function gives any destinations, one or a list
            (`cbp.model.routing`); else exactly one key.
        sql: Spark's expressions for the values, one per type; `function` then gives the
            same values where there is no Spark.
    """

    function: Callable[[Any], Any]
    types: tuple[DataType, ...]
    place: str = ""
    many: bool = False
    sql: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CombineSpec:
    """A combiner: the author's function that makes fewer records of some of one group.

    Attributes:
        function: `records -> records` of the same schema and key; for every sub-multiset of
            a group's records of one input, replacing it by the result must not change what
            `translate` makes of the group.
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
        loopback: Wired to the output of the same name of its own stage: messages.
        frame_by: What cuts the flow into this input's increments; `None`: every output
            increment is one (FrameByPrior).
        close_idle_seconds: After so long without a record, the open frame is closed; 0: never.
        combine: What may run on its records before they are shuffled.
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
        """What is computed of a record: of its key, then of its order."""
        both = (self.route_by, self.order_by)
        return tuple(by for by in both if isinstance(by, Computed))

    @property
    def has_several(self) -> bool:
        """Whether a record may have several destinations, or ones that name no key."""
        return isinstance(self.route_by, Computed) and self.route_by.many

    @property
    def lies_by_bucket(self) -> bool:
        """Whether a task can say which group gets a message: one, found without Spark."""
        return (
            self.loopback and self.route_by is not None and not self.has_several and not self.in_sql
        )

    @property
    def in_sql(self) -> bool:
        """Whether some of it is an expression of Spark's."""
        return any(by.sql for by in self.computed)


@dataclass(frozen=True, slots=True)
class OutputSpec:
    """One output flow of a translator.

    Attributes:
        key: Columns whose last value counts when two runs are compared; empty: all.
        history: Compare epoch by epoch instead (the sequence is the result).
        tolerance: By how much floating-point numbers may differ then (`cbp.model.equality`).
        not_compared: Columns that are left out then.
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
        grouping: `inner`: only groups that another input carries are called;
            `outer`: every key in state is called in every epoch.
        tolerance: By how much floating-point numbers may differ when two runs are compared
            (`cbp.model.equality`).
        not_compared: Columns that are left out then.
        route_by: Columns that hold the stage's key, in its order; `None`: those of its names.
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
        function: A rule of `cbp.model.runnable`, or the author's function.
        place: `file.py:12` of the function, or of the class that names the rule; of a rule in
            a document, of the class that it is for, and where it stands in the document.
    """

    function: Runnable = RunAll()  # noqa: RUF009 - a frozen value
    place: str = ""

    @property
    def name(self) -> str:
        """The rule's name, or the function's, for messages."""
        return getattr(self.function, "__name__", type(self.function).__name__)

    @property
    def named(self) -> tuple[str, ...]:
        """Inputs that a rule names; of a function, none is known."""
        return getattr(self.function, "named", ())

    @property
    def by_author(self) -> bool:
        """Whether asking it calls an author's code, which may take any time."""
        return not is_ready_rule(self.function)

    @property
    def timeless(self) -> bool:
        """Whether it is known that runs read the same, one by one, whenever they are started."""
        return not self.by_author and bool(getattr(self.function, "timeless", False))

    @property
    def split_free(self) -> bool:
        """Whether it is known that all runs read each record once, however input is split."""
        return not self.by_author and bool(getattr(self.function, "split_free", False))

    @property
    def text(self) -> str:
        """The rule with its arguments; of a function, whose class has a fingerprint, `function`."""
        return "function" if self.by_author else rule_text(self.function)

    @property
    def default(self) -> bool:
        """Whether it is the default: every input, one increment of each."""
        return self.function == RunAll()


@dataclass(frozen=True, slots=True)
class TranslatorSpec:
    """One translator, ready for an engine.

    Attributes:
        name: The author's class, for messages.
        place: `file.py:12` of the translate function.
        key: Columns of the group's key; `None` for a record-wise translator.
        translate: `translate(key, group, out)`, of a record's own group with `None` as the key;
            `translate(record, out)` if it takes records; `translate(groups, out)` and
            `translate(frames, out)` of the forms `arrow` and `sql`.
        runnable: When it runs; a stage may say otherwise (`StageNode.runnable`).
        form: Which of these; a record-wise translator has no other than the default.
        code: Fingerprint of the author's class; `""`: not known.
        declared: Whether a translator in SQL is its queries alone: no function of the author's
            makes its plan, or runs in it.
        takes_record: It has one input, without `route_by`, and is given its records as they are.
        absent: Inputs that are empty in every call; of a part of a translator (`parts`).
    """

    name: str
    key: Schema | None
    inputs: tuple[InputSpec, ...]
    outputs: tuple[OutputSpec, ...]
    states: tuple[StateSpec, ...]
    translate: Callable[..., None] = field(compare=False)
    place: str = ""
    runnable: RunnableSpec = RunnableSpec()
    form: Form = "groupwise"
    code: str = field(default="", compare=False)
    declared: bool = field(default=False, compare=False)
    takes_record: bool = False
    absent: tuple[InputSpec, ...] = ()

    @property
    def record_wise(self) -> bool:
        """Whether every record of every input is its own group, so that nothing is shuffled."""
        return all(spec.route_by is None for spec in self.inputs)

    def parts(self) -> tuple[TranslatorSpec, ...]:
        """Return what is called for groups, then what is called for single records.

        It is one part if all inputs are of one kind. Else each part has the inputs of its kind,
        the others are `absent`; the part for records writes state, and has none.
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
        """Loopbacks whose messages may have addresses: those with a route function."""
        inputs = (*self.inputs, *self.absent)
        return tuple(spec for spec in inputs if spec.loopback and spec.has_several)

    @property
    def multicasts(self) -> bool:
        """Whether groups may be bound to addresses."""
        return bool(self.addressed)

    @property
    def framed(self) -> tuple[InputSpec, ...]:
        """Inputs that cut their flow into increments of their own."""
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
        """Return the stage's key by the names that its columns have in a state."""
        assert self.key is not None, "a stage with state has a key"
        if state.route_by is None:
            return self.key
        pairs = zip(self.key.fields, state.route_by, strict=True)
        return Schema(tuple(replace(column, name=name) for column, name in pairs))
