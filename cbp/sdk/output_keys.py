"""Keys of outputs: which record of a key counts must not depend on the order of groups.

    key of the output   holds the stage's key      one group emits its records, one in an epoch
                        anything, with latest_by   the greatest counts, whichever group emitted it

Two groups that emit records of one key in one epoch are called in the order of their hashes, which
says nothing about the records. In a history every record of an epoch counts, so it may have any
key. That a group emits its own key only, and each key once in an epoch, engines check.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cbp.model.dataflow.stage import InputSpec, OutputSpec
from cbp.model.flow.schema import Schema
from cbp.sdk.declare import Output


def latest_by_mistakes(
    declared: Output, schema: Schema, key: Sequence[str], latest_by: Sequence[str]
) -> Iterator[tuple[str, str]]:
    """Yield (code, message) for what is wrong with the `latest_by` of an output."""
    if declared.latest_by is None:
        return
    if not key or declared.history:
        why = "a history" if declared.history else "an output without a key"
        message = f"latest_by says which record of a key counts; of {why} every record counts"
        yield "latest_by_invalid", message
    for column in latest_by:
        if column in key:
            yield (
                "latest_by_invalid",
                f"{column!r} is part of the key, so it is the same in all records of a key",
            )
        elif schema[column].type.arguments:
            message = f"{column!r} is {schema[column].type}, whose values have no order"
            yield "latest_by_invalid", message


def shared_key_mistakes(
    outputs: Sequence[OutputSpec], inputs: Sequence[InputSpec], key: Schema | None
) -> Iterator[tuple[str, str, str]]:
    """Yield (name, code, message) for each output of which several groups may emit one key."""
    single = next((one.name for one in inputs if one.route_by is None), None)
    steps = max((one.supersteps for one in inputs), default=1)
    for output in outputs:
        if not output.single:
            continue
        lacking = [
            str(field)
            for field in (() if key is None else key.fields)
            if field.name not in output.key or output.schema[field.name].type != field.type
        ]
        if single is not None or key is None:
            why = f"each record of {single!r} is a group of its own, and two may emit one key"
        elif lacking:
            why = (
                f"the key ({', '.join(output.key)}) does not hold {', '.join(lacking)} of the "
                f"stage's key ({key}), so two groups may emit one key in one epoch"
            )
        elif steps > 1:
            why = "its groups are called several times in an epoch (supersteps)"
        else:
            continue
        message = (
            f"{why}, and which record counts would depend on their order: say which by "
            "latest_by=..., such as a time or a version; or declare a View; or leave the key out"
        )
        yield output.name, "output_key_shared", message
