"""Declarations of a translator: inputs, outputs, state and routing.

    urls   = Input("url STRING", route_by="url")
    counts = State("url STRING, n BIGINT", grouping="inner")
    totals = Output("url STRING, n BIGINT", key="url")

These classes only hold values. `cbp.sdk.compile` checks them together and compiles them to a
`TranslatorSpec`.
"""

from __future__ import annotations

import inspect
import re
import sys
import threading
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

from cbp.errors import DefinitionError, Mistake
from cbp.model.author.code_fingerprint import LATER
from cbp.model.dataflow.stage import Computed, Grouping
from cbp.model.flow.framing import FrameBy
from cbp.model.flow.schema import Schema
from cbp.model.flow.signed_changes import ChangesRead

# Up to Python 3.12, two threads that parse at the same time share a recursion depth: SystemError.
_ONE_PARSES = threading.Lock()

# There is no file, no weak reference, or the file was changed since it was loaded.
_NO_PLACE = (OSError, TypeError, SyntaxError, IndexError)

# A cache: `inspect` parses the whole file again for each class.
_places: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()


def place_of(function: Callable[..., Any] | type) -> str:
    """Return where a function or class is defined, as `file.py:12`; `""` if unknown."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    if code is not None:
        return f"{code.co_filename}:{code.co_firstlineno}"
    try:
        with _ONE_PARSES:
            if (known := _places.get(function)) is not None:
                return known
            place = f"{inspect.getsourcefile(function)}:{inspect.getsourcelines(function)[1]}"
            _places[function] = place
            return place
    except _NO_PLACE:
        return ""


def place_of_attribute(class_: type, name: str) -> str:
    """Return where an author's class or its base sets an attribute; `""` if none does."""
    authors = (base for base in class_.__mro__ if not base.__module__.startswith(__package__))
    owner = next((base for base in authors if name in vars(base)), class_)
    try:
        with _ONE_PARSES:
            file, (lines, first) = inspect.getsourcefile(owner), inspect.getsourcelines(owner)
    except _NO_PLACE:
        return ""
    sets = re.compile(rf"\s*(?:self\.)?{re.escape(name)}\s*(?::[^=]*)?=[^=]")
    numbers = (at for at, line in enumerate(lines, first) if sets.match(line))
    return f"{file}:{line}" if (line := next(numbers, 0)) else ""


def route(function: Callable[[Any], Any], type_: str) -> Computed:
    """Declare a route to any number of groups: several keys, `ALL`, multicast addresses, or none.

        Input("src BIGINT, dst BIGINT", route_by=route(lambda e: [e.src, e.dst], "BIGINT"))
        Input("total DOUBLE", route_by=route(lambda r: All("ranks"), "BIGINT"))
        Loopback("src BIGINT, n INT", route_by=route(lambda m: Multicast(m.src), "BIGINT"))

    The function takes a record and returns a destination, or a list or set of destinations: a key
    (a tuple if `type_` names several types), `ALL` or `All("flow", ...)`; on a `Loopback` also
    `Multicast(address)`. See `cbp.model.dataflow.routing`.
    """
    return replace(by(function, type_), many=True)


def by(function: Callable[[Any], Any], type_: str) -> Computed:
    """Declare a routing or ordering key that a function computes from each record.

    `type_` has the types of the key, such as `"STRING"`. If it names several, as in
    `"STRING, BIGINT"`, the function returns a tuple.
    """
    parts = Schema.parse(
        ", ".join(f"k{i} {t}" for i, t in enumerate(_split_types(type_))), where=type_
    )
    return Computed(function, tuple(f.type for f in parts.fields), place_of(function))


def framed(function: Callable[..., Any], *, memo: bool = False) -> FrameBy:
    """Declare how a flow is cut into the increments of one input: by a framing key of each record.

        Input("url STRING, at TIMESTAMP", frame_by=framed(lambda r: f"{r.at:%Y-%m-%d %H}"))
        Input("n BIGINT", frame_by=framed(lambda r, total: ..., memo=True))

    The records of each output increment are grouped by key: a number, a text, a date or a time.
    With memo the function is `(record, memo) -> (key, memo)`, called once per record in order, so
    that the keys `A A B A` give three increments. A memo holds JSON values and begins as `None`.
    """
    return FrameBy(function, memo, "", place_of(function))


def by_sql(
    expression: str | Sequence[str], type_: str, *, function: Callable[[Any], Any] | None = None
) -> Computed:
    """Declare a routing or ordering key that Spark SQL computes from each record, without Python.

        Input("url STRING", route_by=by_sql("parse_url(url, 'HOST')", "STRING"))

    Such an input is always read by a Spark job, even a small one, since only Spark is sure to
    evaluate the expression to the same value. It is worthwhile for large increments.

    Args:
        expression: A deterministic expression over the columns of one record, or one
            expression per column of the key.
        type_: The types that the expressions have.
        function: `record -> value`, the same value as that of the expression. Engines without
            Spark (the test kit and `local`) call it. Without it the dataflow runs on Spark only.
    """
    texts = (expression,) if isinstance(expression, str) else tuple(expression)
    frame = sys._getframe(1)
    place = f"{frame.f_code.co_filename}:{frame.f_lineno}"

    def needs_spark(record: Any) -> Any:
        given = ", ".join(texts)
        message = (
            f"only Spark can evaluate {given}; to run without Spark, pass function=... to by_sql"
        )
        raise NotImplementedError(message)

    types = by(needs_spark, type_).types
    if len(types) != len(texts):
        message = (
            f"got {len(texts)} expressions for {len(types)} types; give one expression for each "
            "type"
        )
        raise DefinitionError(Mistake("by_sql_types", type_, message, place))
    return Computed(function or needs_spark, types, place, sql=texts)


def _split_types(text: str) -> list[str]:
    """Split at commas outside of `<...>` and `(...)`."""
    parts, depth = [""], 0
    for character in text:
        depth += (character in "<(") - (character in ">)")
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return parts


Combine = Callable[[list[Any]], Iterable[Any]] | Mapping[str, Literal["sum", "min", "max"]]
"""A function of records, or how to merge some columns."""


@dataclass(frozen=True)
class Input:
    """An input flow.

    Args:
        schema: DDL, such as `"url STRING, n BIGINT"`. The flow wired to the input can have
            more columns.
        route_by: The column, or comma-separated columns, of the group's key; or `by(...)`; or
            `route(...)` to reach several groups. All inputs of a translator that have
            `route_by` must have the same key types. Default: every record is a group of its
            own.
        order_by: Columns, or `by(...)`, that order the records of a group.
        frame_by: Column, or `framed(...)`, whose value labels the input's increments. An
            increment can be read after a record with another value, or a close, has followed.
            Default: one epoch of the writer is one increment, which can be read at once.
        close_idle_seconds: With `frame_by`: close the open increment after this many seconds
            without a record. 0 means never. A dataflow can override it.
        combine: `records -> records`. Reduces a list of records of one group before they are
            shuffled. The law: replacing any records of a group by the result must not change
            the effect of `translate`, just as partial sums do not change a sum. Every engine
            calls it, with any number of records of a group. It returns at least one record,
            with the same columns and key. Not allowed with `order_by`. `check_split` finds a
            combiner that breaks the law.
            Instead of a function: how to merge some columns, as `{"n": "sum"}` (or `"min"`,
            `"max"`). Records that are equal in all other columns become one. Only columns of
            whole numbers can be summed; a sum that is too large for its column stays in parts. A
            record with a null or a NaN in such a column stays unchanged.
        changes: How to read the changes of a view; required for an input that is wired to a view.
            `"signed"`: all of them; the schema may name their columns `change_type STRING` and
            `sign INT` (+1 for `insert` and `update_after`, -1 for `update_before` and `delete`).
            `"after"`: only new and changed records, without these columns.
    """

    schema: str
    route_by: str | Computed | None = None
    order_by: str | Computed | None = None
    frame_by: str | FrameBy | None = None
    combine: Combine | None = None
    close_idle_seconds: float = 0.0
    changes: ChangesRead = field(default="", metadata=LATER)


@dataclass(frozen=True)
class Loopback:
    """Messages that groups of a stage send to groups of the same stage.

    What `out.<name>(...)` emits in one epoch comes back as `group.<name>` in a later epoch (the
    next, unless the stage's Runnable prefers other inputs). The groups that it reaches are called.
    A loopback is not wired: it is connected to its own stage. On a loopback with `route(...)`,
    `out.associate(key, address)` binds a key to the address of a `Multicast` for the messages of
    the same epoch. `schema`, `route_by` (the receivers) and `order_by` are as in `Input`.

    Args:
        combine: As in `Input`. With it, messages are shuffled like any other input. Without it,
            the task of a group reads them in place. In a loop within a run, messages are combined
            before they are sorted for their receivers.
        supersteps: Largest number of times that a run calls the groups: the messages of one
            superstep call groups in the next superstep of the same run, with the state that the
            previous one left. The run ends when no message is left, and only then its results
            become visible: a view's changes are the net changes of the whole run. If messages
            are left after that many supersteps, they come back in the next epoch; only these are
            records of the loopback's flow, for other stages and sinks. All loopbacks of a
            translator have the same number. 1 means that each message comes back in a later
            epoch.
        inside: The name of another loopback: the loop of this loopback runs inside the loop of the
            other. While messages of the inner loop are left, messages of the outer loop wait. So a
            message of the outer loop arrives when the inner loop has none left. Loops can be nested
            to any depth. Messages that earlier epochs left wait in the same way; inputs never wait.
        microsteps: Whether the order of messages does not matter: the states at the end of the
            loop are the same, however many messages a call gets, and whenever one arrives.
            (Messages of one group to another still arrive in their order.) If the loop has
            several tasks, each of them then continues with the messages for its own groups, and
            exchanges messages with the others only when it has none left. `supersteps` counts
            the exchanges. The stage's results must be states and views of its groups: no other
            outputs, aggregates, nested loops, `order_by`, `.remote` or `grouping="outer"`. All
            loopbacks of a translator have the same value.
    """

    schema: str
    route_by: str | Computed | None = None
    order_by: str | Computed | None = None
    combine: Combine | None = None
    supersteps: int = field(default=1, metadata=LATER)
    inside: str | None = field(default=None, metadata=LATER)
    microsteps: bool = field(default=False, metadata=LATER)


@dataclass(frozen=True)
class Aggregate:
    """A number over all groups of a superstep, which all groups read in the next superstep.

        moved = Aggregate("sum", ends_below=1e-6)

        out.moved(abs(new - old))   # any number of times in a call; most groups give one number
        group.moved                 # the number of the previous superstep; None in the first

    It needs a `Loopback` with `supersteps`. A sum is exact in any order of its numbers. The sum
    of no numbers is 0; their minimum and maximum are None. In `TranslateArrow`, `out.moved`
    takes a table with the column `value`, and `groups.moved` is a number.

    Args:
        how: `"sum"`, `"min"` or `"max"` of the numbers that the groups give.
        ends_below: The loop ends after a superstep whose number is below this. The messages of
            that superstep are dropped. The first superstep, which reads the inputs, never ends
            the loop. If each changed group emits 1, `Aggregate("sum", ends_below=1)` ends the
            loop once nothing changes. None means that the number does not end the loop.
        ends: The name of the loopback whose loop ends, and all loops inside it; the loops around
            it continue. Only supersteps that read messages of these loops end it. None means that
            all loops end.
    """

    schema: ClassVar[str] = "value DOUBLE NOT NULL"
    how: Literal["sum", "min", "max"]
    ends_below: float | None = None
    ends: str | None = field(default=None, metadata=LATER)


@dataclass(frozen=True)
class Output:
    """An output flow.

    Args:
        schema: DDL of its records.
        key: Columns of the key, for an output in which only the last record per key counts (an
            updated view). Default: every record counts. The key includes the columns of the
            stage's key, so that no two groups emit records of one key, and a group emits at
            most one in an epoch; otherwise `latest_by` decides which record counts. A record
            whose other columns are all null, except those of `latest_by`, is a tombstone: its
            key is removed.
        latest_by: With `key`: columns that decide which record of a key counts: the one with
            the greatest values, nulls first. Among equal ones the last epoch counts, and within
            an epoch the record that is greatest in the other columns. Any group may then emit
            records of any key.
        history: Whether the sequence of epochs is part of the result. Such an output is compared
            epoch by epoch.
        tolerance: The allowed difference in FLOAT and DOUBLE columns when two runs are compared
            (`cbp verify`, `cbp.testing`): relative to the larger number, absolute for numbers
            smaller than 1. Meant for iterations that stop when values change little. 0 means
            that values must be equal.
        not_compared: Columns that such a comparison leaves out, such as a counter of rounds.
    """

    schema: str
    key: str | None = None
    history: bool = False
    tolerance: float = 0.0
    not_compared: str | None = None
    latest_by: str | None = field(default=None, metadata=LATER)


@dataclass(frozen=True)
class State:
    """Records that are kept between epochs, grouped by the key.

    When a group is called, its records are kept only if `translate` emits them again. Groups
    that are not called keep their records. Writes are visible in the next epoch.

    `out.<state>(...)` takes only records of the group's own key. `out.<state>.remote(...)`
    appends a record to the state of any key, without calling the group of that key.

        ranks = State("page BIGINT, rank DOUBLE", route_by="page", order_by="rank")

    With `keep=True` the records of a called group stay unless they are put or deleted by their
    key, so that the cost of a call depends on the records that it touches, not on the size of
    the group:

        orders = State("customer STRING, id BIGINT, total DOUBLE", keep=True, key="customer, id")

        group.orders.get(id=7)              # the record, or None
        group.orders.range(id=(1, 10))      # an iterator of the records with 1 <= id < 10
        group.orders.range(reverse=True)    # all, from the last to the first; ten cost ten
        for order in group.orders: ...      # all, in order of the key; read only as far as needed
        out.orders(customer="c", id=7, total=9.5)       # puts: adds the record, or replaces it
        out.orders.delete(id=7)             # nothing happens if there is none

    It can be read any number of times. The last put or delete of a key counts. Reads of the same
    call see the records as they were before it. There is no `out.<state>.remote(...)`.

    Args:
        schema: DDL; holds the columns of the stage's key.
        grouping: `"inner"`: call only groups that have a record in some input. `"outer"`: also
            call every key that has state.
        tolerance, not_compared: As in `Output`; the key is compared exactly.
        route_by: The column, or comma-separated columns, that hold the key, in the key's order
            and with its types. Records are looked up and corrected by these columns. Default:
            the columns that have the names of the key's columns.
        order_by: The column, or comma-separated columns, that order the records of a group,
            nulls first; ties are ordered by all columns. Default: all columns, in the order of
            the schema. Not allowed in SQL translators.
        keep: Whether records stay unless they are put or deleted.
        key: With `keep`: columns that identify a record, separated by commas. They include
            those of the group's key; the others, in this order, are the second key, which
            identifies and orders the records within the group.
        expire: An age, such as `"30 days"` (seconds, minutes, hours, days or weeks): a group
            that was not called for this long loses its records of this state, without a call.
            The service starts a run for that, at most a sixteenth of the age late. Records of
            other groups stay. There is no `out.<state>.remote(...)`.
    """

    schema: str
    grouping: Grouping = "inner"
    tolerance: float = 0.0
    not_compared: str | None = None
    route_by: str | None = None
    order_by: str | None = None
    keep: bool = field(default=False, metadata=LATER)
    key: str | None = field(default=None, metadata=LATER)
    expire: str | None = field(default=None, metadata=LATER)


@dataclass(frozen=True)
class View(State):
    """A state with a key whose current records and changes other stages can read.

        top = View("site STRING, url STRING, score DOUBLE", key="site, url")

    A group reads and emits it as a `State`, with or without `keep`; it emits at most one record per
    key, and only those of its own key: a view has no `.remote`. The changes of an epoch are the
    flow `stage.<view>`, which other stages read with `Input(..., changes="signed")` or
    `changes="after"`. A record that is emitted unchanged is no change, and costs no I/O.

    Without `key` the view is a *bag*: a group may emit equal records, the table has each as
    often as it was emitted, and the changes are only inserts and deletes, one for each added or
    removed record. The columns of a bag are not nested.

    Args:
        schema: As in `State`. No column is named `change_type` or `sign`.
        key: The columns, separated by commas, that identify a record. They include those that
            hold the stage's key; without further columns, each group has at most one record.
        order_by: As in `State`. Default: the columns of `key` that are not the stage's.
        expire: As in `State`. Each record that expires is a `delete` in the changes.
    """


@dataclass(frozen=True)
class Timers(State):
    """Times at which a group is called again, even if no input has a record for it.

        wake = Timers()

    `out.wake(<key columns>, at=...)` sets a timer of the called group, such as
    `out.wake(order=key.order, at=group.run.time + timedelta(days=30))`. Once the time has passed, a
    run is started for it, and the group is called: `group.wake` has its timers, the earliest
    first, and those up to `group.run.time` are due. The run may read input as well.

    Timers are a state: a called group keeps those that it emits, and loses the others, due or not.
    So a group that is called for another reason must set its timer again, or drops it by
    emitting none. To keep pending timers: `for timer in group.wake: out.wake(*timer)`. If the
    time has already passed, the group is called in the next epoch. The table has the columns of
    the key and `at`.
    """

    schema: str = "at TIMESTAMP NOT NULL"
