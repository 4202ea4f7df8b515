"""The age in `State(..., expire="30 days")`: how it is read, and where it is refused."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence

from cbp.model.dataflow.expiry import EXPIRY_SUFFIX
from cbp.model.dataflow.stage import SECONDS_MAX, TIMER_COLUMN, InputSpec, StateSpec
from cbp.model.flow.schema import Schema

__all__ = ["age_mistake", "age_ms", "expiry_mistakes"]

_SECONDS = {"second": 1, "minute": 60, "hour": 3600, "day": 86_400, "week": 604_800}
_AGE = re.compile(rf"([1-9][0-9]{{0,11}}) ({'|'.join(_SECONDS)})s?")


def age_mistake(given: object) -> str | None:
    """Return what is wrong with an age, for people; `None` if nothing is."""
    match = _AGE.fullmatch(given) if isinstance(given, str) else None
    if match is None or not 0 < _seconds(match) <= SECONDS_MAX:
        units = ", ".join(f"{unit}s" for unit in _SECONDS)
        message = f"expire={given!r} is not an age; give a whole number and one of {units}"
        return f"{message}, such as '30 days', and ten years at most"
    return None


def age_ms(given: str) -> int:
    """Return a checked age in milliseconds."""
    match = _AGE.fullmatch(given)
    assert match is not None, "checked before"
    return 1000 * _seconds(match)


def expiry_mistakes(
    states: Sequence[StateSpec],
    inputs: Sequence[InputSpec],
    *,
    key: Schema,
    names: Collection[str],
) -> Iterator[tuple[str, str, str]]:
    """Yield the name of a state that cannot expire, with the code and the message.

    Args:
        states: The states that the author declared.
        inputs: The inputs of the stage.
        key: The stage's key.
        names: The names of all declarations.
    """
    outer = next((one.name for one in states if one.grouping == "outer"), None)
    single = next((one.name for one in inputs if one.route_by is None), None)
    for state in states:
        if not state.expire_ms:
            continue
        if TIMER_COLUMN in key:
            message = f"the key has a column {TIMER_COLUMN!r}, as the hidden timers have"
            yield state.name, "expire_unsupported", f"{message}; rename the key's column"
        if outer is not None:
            message = f"state {outer!r} is outer, so each epoch calls every group, and none ages"
            yield state.name, "expire_unsupported", f"{message}; use 'inner', or leave out expire"
        if single is not None:
            message = f"records of input {single!r} have no group, so no age: give it route_by"
            yield state.name, "expire_unsupported", f"{message}, or leave out expire"
        if state.name + EXPIRY_SUFFIX in names:
            message = f"{state.name + EXPIRY_SUFFIX!r} is the state of its timers"
            yield state.name, "name_invalid", f"{message}; use another name for what you declare"


def _seconds(match: re.Match[str]) -> int:
    return int(match[1]) * _SECONDS[match[2]]
