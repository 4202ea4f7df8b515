"""Stage specifications: `TranslatorSpec` and the specs of its inputs, outputs and states.

The SDK (`cbp.sdk`) compiles the author's classes to these values, and every engine executes them.
They hold functions of the author, which are never called here.

Source: CBP (SoCC'10), table 1, "Five functions control stage processing".
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, Literal

from cbp.model.author.code_fingerprint import UNKNOWN_CODE, Code
from cbp.model.dataflow.runnable import RunAll, can_start, is_ready_rule, rule_text
from cbp.model.flow.connector import Runnable
from cbp.model.flow.framing import FrameBy
from cbp.model.flow.schema import DataType, Schema
from cbp.model.flow.signed_changes import CHANGE_COLUMNS, ChangesRead, has_sign
from cbp.model.graph.loop_nesting import Nesting

Grouping = Literal["inner", "outer"]

AggregateHow = Literal["sum", "min", "max"]
"""How the numbers of an aggregate are combined into one."""

Form = Literal["groupwise", "arrow", "run", "sql"]
"""How `translate` is called: for each group, with Arrow tables of many groups, with Arrow tables of
a whole run, or with Spark DataFrames."""

TIMER_COLUMN = "at"
"""The column of a state of timers that holds the time."""

CHANGES_OF = "{}_changes"
"""Name of the input by which a look-up with `wake` reads the changes of its table."""

_AGGREGATED = Schema.parse("value DOUBLE NOT NULL")
"""Columns of the numbers that groups give to an aggregate."""

SECONDS_MAX = 3660 * 24 * 3600
"""Longest idle time or time limit, ten years, so that adding it to a date cannot overflow."""


@dataclass(frozen=True, slots=True)
class Computed:
    """A routing or ordering key that the author's function computes from one record.

    Attributes:
        function: `record -> value`, or a tuple of values for a key of several columns;
            deterministic and free of side effects.
        many: For a `route_by`: whether the function returns destinations
            (`cbp.model.dataflow.routing`) instead of exactly one key.
        sql: Spark SQL expressions for the same values, one per type.
    """

    function: Callable[[Any], Any]
    types: tuple[DataType, ...]
    place: str = ""
    many: bool = False
    sql: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CombineSpec:
    """A combiner, which reduces records of one group: an author's function, or columns to merge.

    Attributes:
        function: `records -> records` of the same schema and key. For every sub-multiset of a
            group's records of one input, replacing it by the result must not change the result
            of `translate` for the group.
        columns: Instead of a function: maps columns to `sum`, `min` or `max`. Records that are
            equal in all other columns become one.
    """

    function: Callable[[list[Any]], Iterable[Any]] | None
    place: str = ""
    columns: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class InputSpec:
    """One input flow of a translator.

    Attributes:
        route_by: What gives the group's key; `None` means that each record is its own group
            (RouteByRcd).
        order_by: What gives the order within a group; `None` means the order of arrival
            (OrderByAny, made deterministic).
        loopback: Whether it is wired to the output of the same name of its own stage, so that
            its records are messages.
        frame_by: How the flow is cut into this input's increments; `None` means that every output
            increment is one (FrameByPrior).
        close_idle_seconds: Seconds without a record after which the open frame is closed; 0
            means never.
        combine: The combiner for its records; it can run before they are shuffled.
        changes: How it reads the changes of a view; `""` if it is wired to another flow.
        supersteps: For a loopback: see `TranslatorSpec.supersteps`.
        inside: For a loopback: the loopback whose loop encloses its own; `""` means none.
        microsteps: For a loopback: whether the order of its messages does not matter.
    """

    name: str
    schema: Schema
    route_by: tuple[str, ...] | Computed | None = None
    order_by: tuple[str, ...] | Computed | None = None
    loopback: bool = False
    frame_by: FrameBy | None = None
    combine: CombineSpec | None = None
    close_idle_seconds: float = 0.0
    changes: ChangesRead = ""
    supersteps: int = 1
    inside: str = ""
    microsteps: bool = False

    @property
    def computed(self) -> tuple[Computed, ...]:
        """The computed keys: first for routing, then for ordering."""
        return tuple(by for by in (self.route_by, self.order_by) if isinstance(by, Computed))

    @property
    def has_several(self) -> bool:
        """Whether a record can have several destinations, or destinations without a key."""
        return isinstance(self.route_by, Computed) and self.route_by.many

    @property
    def lies_by_bucket(self) -> bool:
        """Whether messages are written by the bucket of their receiver, and read unchanged.

        That needs one receiver, which a task can find without Spark, and no combiner.
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
        key: Columns of the key. In a comparison, the last record of each key counts
            (`cbp.model.dataflow.equality`). Empty: all records count.
        history: Whether to compare epoch by epoch instead, since the sequence is the result.
        tolerance: How much floating-point numbers may differ in a comparison.
        not_compared: Columns that a comparison leaves out.
        view: The view whose changes it is; `""` if the author emits it.
        latest_by: Columns by which the greatest record of a key counts instead of the last.
    """

    name: str
    schema: Schema
    key: tuple[str, ...] = ()
    history: bool = False
    tolerance: float = 0.0
    not_compared: tuple[str, ...] = ()
    view: str = ""
    latest_by: tuple[str, ...] = ()

    @property
    def single(self) -> bool:
        """Whether an epoch has at most one record of each key, which engines check."""
        return bool(self.key) and not self.history and not self.latest_by

    @property
    def signed(self) -> bool:
        """Whether its records are changes, whose sum of signs is the result.

        This holds for the changes of a view, and for an output with an integer column `sign`
        that declares neither a key nor a history.
        """
        return bool(self.view) or (not self.key and not self.history and has_sign(self.schema))

    @property
    def record_schema(self) -> Schema:
        """The columns of its records; changes of views without their type and sign."""
        if not self.signed:
            return self.schema
        names = (name for name in self.schema.names if name not in CHANGE_COLUMNS)
        return self.schema.select(tuple(names))


@dataclass(frozen=True, slots=True)
class StateSpec:
    """One state loopback: kept between epochs and looked up by the group's key.

    Attributes:
        schema: Holds the columns of the key, see `TranslatorSpec.key_of`.
        grouping: `inner`: only groups that have a record in another input are called;
            `outer`: every key in state is called in every epoch.
        tolerance, not_compared: As in `OutputSpec`.
        route_by: Columns that hold the stage's key, in its order; `None` means the columns with the
            names of the key's columns.
        order_by: Columns that come first in the order of a group's records; all others follow.
        second_key: Columns that identify a record within its group; no two records have the
            same values.
        keep: Whether the records of a called group stay unless they are put or deleted; otherwise
            the group keeps only the records that it emits.
        changes: Name of the output that gets the changes of the records, which makes the state a
            view; `""` if it is not a view.
        timers: Whether its records are timers: a key, and the time `at` from which the group is
            called again.
        expire_ms: Milliseconds without a call after which a group loses its records; 0 means never.
        expires: For hidden timers (`cbp.model.dataflow.expiry`), which no author's code sees:
            the state that expires by them.
        bag: Whether the state is a view whose records have no key, so that a group may have
            equal records.
    """

    name: str
    schema: Schema
    grouping: Grouping = "inner"
    tolerance: float = 0.0
    not_compared: tuple[str, ...] = ()
    route_by: tuple[str, ...] | None = None
    order_by: tuple[str, ...] = ()
    second_key: tuple[str, ...] = ()
    keep: bool = False
    changes: str = ""
    timers: bool = False
    expire_ms: int = 0
    expires: str = ""
    bag: bool = False

    @property
    def order(self) -> tuple[str, ...]:
        """Columns by which a group's records are ordered: all columns that can be compared."""
        others = (f.name for f in self.schema.fields if not f.type.arguments)
        return tuple(dict.fromkeys((*self.order_by, *self.second_key, *others)))


@dataclass(frozen=True, slots=True)
class LookupSpec:
    """A table of another stage; each called group gets the records of its key.

    Attributes:
        by: Columns that hold the key, in its order; empty if every group gets all records.
        key: Columns that identify a record, if records are read by them; otherwise empty.
        wake: Whether groups are called because their records changed. The changes are an input
            (`CHANGES_OF`).
    """

    name: str
    schema: Schema
    by: tuple[str, ...]
    key: tuple[str, ...] = ()
    wake: bool = False

    @property
    def records(self) -> StateSpec:
        """The table as a state that is only read."""
        second = tuple(column for column in self.key if column not in self.by)
        return StateSpec(
            self.name,
            self.schema,
            route_by=self.by,
            order_by=second,
            second_key=second,
            keep=bool(self.key),
        )


@dataclass(frozen=True, slots=True)
class AggregateSpec:
    """A number over all groups of a superstep, which all groups read in the next superstep.

    Attributes:
        ends_below: The loop ends after a superstep (other than the first) whose number is below
            this; `None` means that the number does not end the loop.
        loop: The loopback whose loop it ends, with all loops inside it; `""` means all loops.
    """

    name: str
    how: AggregateHow
    ends_below: float | None = None
    loop: str = ""

    @property
    def output(self) -> OutputSpec:
        """The output to which groups emit their numbers; it is not written to a table."""
        return OutputSpec(self.name, _AGGREGATED)

    def value(self, numbers: Sequence[float]) -> float | None:
        """Return the number over all groups; `None` for a minimum or maximum of no numbers."""
        if any(number != number for number in numbers):
            return math.nan
        if self.how == "sum":
            return _exact_sum(numbers)
        return (min if self.how == "min" else max)(numbers, default=None)

    def ends(self, value: float | None) -> bool:
        """Return whether the loop ends after a superstep with this number."""
        return self.ends_below is not None and value is not None and value < self.ends_below


def _exact_sum(numbers: Sequence[float]) -> float:
    """Return the float nearest to the sum, in any order; NaN if both infinities are added."""
    try:
        return math.fsum(numbers)
    except ValueError:  # both infinities
        return math.nan
    except OverflowError:  # perhaps only of a partial sum
        if infinite := {number for number in numbers if math.isinf(number)}:
            return math.nan if len(infinite) > 1 else infinite.pop()
    total = sum(map(Fraction, numbers))
    try:
        return float(total)
    except OverflowError:
        return math.inf if total > 0 else -math.inf


@dataclass(frozen=True, slots=True)
class RunnableSpec:
    """The rule that starts a stage and chooses its input.

    Attributes:
        function: A rule of `cbp.model.dataflow.runnable`, or the author's function.
        place: `file.py:12` of the function, or of the class that names the rule; for a rule in
            a document, the place in it, too.
        sets_aside: Whether its stage sets aside a frame that arrives too late to be aligned.
    """

    function: Runnable = RunAll()  # noqa: RUF009 - a frozen value
    place: str = ""
    sets_aside: bool = False

    @property
    def name(self) -> str:
        """The rule's name, or the function's, for messages."""
        return getattr(self.function, "__name__", type(self.function).__name__)

    @property
    def named(self) -> tuple[str, ...]:
        """Inputs that a rule names; empty for a function, for which they are unknown."""
        return getattr(self.function, "named", ())

    def can_start(self, fed: Collection[str], inputs: Sequence[str]) -> bool:
        """Return whether a first run is possible if only these inputs ever have an increment.

        An author's function can decide anything.
        """
        return self.by_author or can_start(self.function, fed, inputs)

    @property
    def by_author(self) -> bool:
        """Whether a decision calls an author's function, which can take any time."""
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
        key: Columns of the key of its groups; `None` for a record-wise translator.
        translate: `translate(key, group, out)`, where the key is `None` for a single record;
            `translate(record, out)` if `takes_record`; `translate(groups, out)` for the form
            `arrow`, `translate(tables, out)` for `run`, `translate(frames, out)` for `sql`.
        runnable: When it runs; a stage can override it (`StageNode.runnable`).
        form: A record-wise translator always has the default form.
        code: Fingerprint of the author's class and of the code that it needs from its package.
        declared: Whether an SQL translator consists only of queries: no function of the author
            makes its plan or runs in it.
        takes_record: Whether it has one input, without `route_by`, and is called with its bare
            records.
        absent: For a part of a translator (see `parts`): inputs that are empty in every call.
        reads_run: Whether its code reads `group.run` (`cbp.model.dataflow.run_context`).
        ways: The author's description of the algorithms that a whole run can choose.
        writes_remote: Whether its code names `.remote`, so that a group can have records
            emitted by others.
        anew: For a run that recomputes its groups (`cbp.engine.run.recomputation`): the name of an
            input. The author's code gets no state. Groups with a record of this input are not
            called, so that they lose all records. `""` means an ordinary run.
        notes: For a whole run: whether its code names `out.note`, so that an attempt continues
            from the notes of an earlier one.
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
    reads_run: bool = False
    lookups: tuple[LookupSpec, ...] = ()
    ways: str = field(default="", compare=False)
    writes_remote: bool = False
    anew: str = ""
    aggregates: tuple[AggregateSpec, ...] = ()
    notes: bool = False

    @property
    def record_wise(self) -> bool:
        """Whether every record of every input is its own group, so that nothing is shuffled."""
        return all(spec.route_by is None for spec in self.inputs)

    def parts(self) -> tuple[TranslatorSpec, ...]:
        """Return the parts for groups and for single records, or only itself if it has one kind.

        The inputs of the other kind are `absent`. The part for records writes state but reads none.
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
    def supersteps(self) -> int:
        """Maximum number of supersteps of a run; 1 if messages come back in a later epoch.

        The first one reads the inputs, each further one the messages of the previous one.
        """
        return max((spec.supersteps for spec in self.loopbacks), default=1)

    @property
    def loops(self) -> Nesting:
        """How the loops within a run are nested, by the names of their loopbacks."""
        return Nesting({spec.name: spec.inside for spec in self.loopbacks})

    @property
    def has_one_task(self) -> bool:
        """Whether a run has one task, since its calls need the whole input in one process."""
        return self.form == "run"

    @property
    def is_logged(self) -> bool:
        """Whether a run can continue from the notes of an interrupted attempt."""
        return self.supersteps > 1 or self.notes

    @property
    def gives_run(self) -> bool:
        """Whether its groups have a `run`; an input, state or look-up of that name hides it."""
        names = {one.name for one in (*self.inputs, *self.absent)}
        names.update(one.name for one in self.states)
        names.update(one.name for one in self.lookups)
        return self.reads_run and "run" not in names

    @property
    def timers(self) -> tuple[StateSpec, ...]:
        """States of timers."""
        return tuple(spec for spec in self.states if spec.timers)

    @property
    def expiries(self) -> tuple[StateSpec, ...]:
        """The hidden timers of the states that expire."""
        return tuple(spec for spec in self.states if spec.expires)

    @property
    def authored(self) -> tuple[StateSpec, ...]:
        """States that the author's code gets: all except hidden timers."""
        return tuple(spec for spec in self.states if not spec.expires)

    @property
    def addressed(self) -> tuple[InputSpec, ...]:
        """Loopbacks with a route function, whose messages can go to addresses of groups."""
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

    @property
    def views(self) -> tuple[StateSpec, ...]:
        """States whose changes are an output."""
        return tuple(spec for spec in self.states if spec.changes)

    @property
    def keyed_views(self) -> tuple[StateSpec, ...]:
        """Views that have at most one record per key."""
        return tuple(spec for spec in self.views if not spec.bag)

    @property
    def emitted(self) -> tuple[OutputSpec, ...]:
        """Outputs that the author's code emits: aggregates, and all but the changes of views."""
        outputs = (spec for spec in self.outputs if not spec.view)
        return (*outputs, *(one.output for one in self.aggregates))

    def aggregated(self, numbers: Mapping[str, Sequence[float]]) -> dict[str, float | None]:
        """Return the value of each aggregate after a superstep in which groups gave numbers."""
        return {one.name: one.value(numbers.get(one.name, ())) for one in self.aggregates}

    def ended(self, values: Mapping[str, float | None], read: Collection[str]) -> frozenset[str]:
        """Return the loopbacks whose loops end, given the aggregates' values (`Nesting.ended`)."""
        ends = [one.loop for one in self.aggregates if one.ends(values[one.name])]
        return self.loops.ended(ends, read)

    def input(self, name: str) -> InputSpec:
        """Return the input of this name."""
        return next(spec for spec in self.inputs if spec.name == name)

    def output(self, name: str) -> OutputSpec:
        """Return the output of this name."""
        return next(spec for spec in self.outputs if spec.name == name)

    def state(self, name: str) -> StateSpec:
        """Return the state of this name."""
        return next(spec for spec in self.states if spec.name == name)

    @property
    def replaced(self) -> tuple[StateSpec, ...]:
        """States in which a called group keeps only the records that it emits."""
        return tuple(spec for spec in self.states if not spec.keep)

    @property
    def kept(self) -> tuple[StateSpec, ...]:
        """States whose records stay unless they are put or deleted."""
        return tuple(spec for spec in self.states if spec.keep)

    @property
    def looked_up(self) -> tuple[StateSpec, ...]:
        """Looked-up tables that give a called group all records of the group."""
        whole = self.form != "groupwise"
        return tuple(s.records for s in self.lookups if s.by and (whole or not s.key))

    @property
    def looked_up_by_key(self) -> tuple[StateSpec, ...]:
        """Looked-up tables in which a called group reads its records by their second key."""
        if self.form != "groupwise":
            return ()
        return tuple(spec.records for spec in self.lookups if spec.by and spec.key)

    @property
    def looked_up_whole(self) -> tuple[StateSpec, ...]:
        """Looked-up tables whose records all go to every group."""
        return tuple(spec.records for spec in self.lookups if not spec.by)

    def key_of(self, state: StateSpec) -> Schema:
        """Return the stage's key with the column names that it has in a state."""
        assert self.key is not None, "a stage with state has a key"
        if state.route_by is None:
            return self.key
        pairs = zip(self.key.fields, state.route_by, strict=True)
        return Schema(tuple(replace(column, name=name) for column, name in pairs))
