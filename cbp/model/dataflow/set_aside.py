"""What a stage does with a record on which its author's code fails: the option `on_error`; pure.

    on_error: stop                        the default: the stage fails, is tried again, and stops
    on_error: set_aside                   failing records are set aside; other groups continue
    set_aside_max: 1000                   at most this many; if more records fail, the stage stops

If `translate` raises for a group, or emits a record that is refused, the new records of that group
are set aside. The run goes on as if the group had not been called: its state and its timers stay,
and nothing that it emitted counts. Its later records are then set aside without a call, until an
operator gives all of them back. So a group always sees its records in their order. If later records
were applied first, a last value, a session or a balance could be wrong without any error.

If a function that routes, orders or frames fails on a record, this record alone is set aside. A
record without a frame joins the frame that is open when it arrives, or that its increment opens,
and is set aside by the run that reads that frame. If there is no frame, the next run sets it aside.
A frame that arrives too late to be aligned (`AlignmentError`) is read alone, and its records are
set aside without a call. If a Runnable fails, its stage stops, since no single record is at fault.

Records that are set aside are in a table of the stage (`SET_ASIDE`), a row for each record, in the
order in which they are given back. If a group fails when a timer calls it, without a new record,
its row has no record: the call is given back.
"""

from __future__ import annotations

from collections.abc import Iterator

from cbp.errors import Mistake
from cbp.model.dataflow.stage import TranslatorSpec
from cbp.model.flow.schema import Schema

ON_ERROR = ("stop", "set_aside")

SET_ASIDE_DEFAULT = 1_000
SET_ASIDE_MAX = 10_000
"""Largest `set_aside_max`, since each run reads all records that its stage has set aside."""

BEHIND_CODE = "set_aside_behind"
"""The code of a record that was not tried, since earlier records of its group are set aside."""

SET_ASIDE = Schema.parse(
    "epoch BIGINT, number BIGINT, input STRING, key STRING, record STRING, code STRING, "
    "message STRING, increment BIGINT, file STRING, line BIGINT, set_aside_at TIMESTAMP"
)
"""`epoch`: the epoch of the run that set the record aside; `number`: its position among the records
that this run set aside. `key` and `record` are JSON objects by column. `key` is null for a record
that is a group of its own; `record` and `input` are null for the call of a timer. `increment` is
the index of the record's increment in the flow that the input reads. `file` and `line` name the
record's line in the dropped file, if the flow is a source's."""

SET_ASIDE_COMPARED = SET_ASIDE.select(("epoch", "number", "input", "key", "record", "code"))
"""Columns that a verification compares; not `message`, whose line of code can have moved since."""


def read_on_error(on_error: object, most: object) -> int | None:
    """Return how many records of a stage can be set aside; `None` if it stops instead.

    `most` is the number that the author gives; `None` means the default.

    Raises:
        ValueError: The settings are not valid. The message says what is allowed.
    """
    if on_error not in ON_ERROR:
        message = f"got {on_error!r}; use one of {', '.join(ON_ERROR)}"
        raise ValueError(message)
    if on_error == "stop":
        if most is not None:
            only = "set_aside_max has an effect only with `on_error: set_aside`"
            message = f"{only}: add that line, or remove set_aside_max"
            raise ValueError(message)
        return None
    if most is None:
        return SET_ASIDE_DEFAULT
    if type(most) is not int or not 1 <= most <= SET_ASIDE_MAX:
        message = f"set_aside_max must be an integer from 1 to {SET_ASIDE_MAX}, not {most!r}"
        raise ValueError(message)
    return most


def set_aside_mistakes(stage: str, spec: TranslatorSpec) -> Iterator[Mistake]:
    """Yield why a stage with this translator cannot set records aside.

    A group can be left out of a run if it is called only because of its own records, state and
    timers, and if one task has all of its new records.
    """
    reasons = []
    if spec.form == "sql" or any(one.in_sql for one in spec.inputs):
        reasons.append("a stage in SQL computes all groups at once, so no group can be left out")
    if any(one.has_several for one in spec.inputs):
        why = "a record can have several destinations, and might be set aside for only some of them"
        reasons.append(why)
    if spec.supersteps > 1 or spec.has_one_task:
        reasons.append("the stage loops within a run, so its groups are not called one by one")
    if any(one.combine is not None for one in spec.inputs):
        why = "a combiner merges several records into one, so they cannot be set aside one by one"
        reasons.append(why)
    if any(one.grouping == "outer" for one in spec.states):
        why = "grouping='outer' calls every group in every epoch, so no group can be left out"
        reasons.append(why)
    for why in reasons:
        message = f"this stage cannot set records aside: {why}. Remove on_error"
        yield Mistake("set_aside_impossible", f"stages.{stage}.on_error", message, spec.place)
