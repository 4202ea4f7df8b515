"""Checks of loopbacks whose messages come back within the same run (`Loopback.supersteps`)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cbp.model.dataflow.stage import InputSpec, StateSpec

__all__ = ["SUPERSTEPS_MAX", "supersteps_mistakes"]

SUPERSTEPS_MAX = 1_000_000
"""Most supersteps of a run; a loop that never ends is cut there, and goes on in another run."""


def supersteps_mistakes(
    inputs: Sequence[InputSpec], states: Sequence[StateSpec]
) -> Iterator[tuple[str, str, str]]:
    """Yield name, code and message of what is wrong with the supersteps of a translator.

    Args:
        inputs: Its inputs, loopbacks included.
        states: Its states.
    """
    loopbacks = [spec for spec in inputs if spec.loopback]
    for spec in loopbacks:
        number = spec.supersteps
        whole = isinstance(number, int) and not isinstance(number, bool)
        if not whole or not 1 <= number <= SUPERSTEPS_MAX:
            message = f"supersteps is {number!r}; give a whole number from 1 to {SUPERSTEPS_MAX}"
            yield spec.name, "supersteps_invalid", message
            return
    first = loopbacks[0] if loopbacks else None
    for spec in loopbacks:
        if first is not None and spec.supersteps != first.supersteps:
            message = (
                f"supersteps is {spec.supersteps}, and {first.supersteps} for {first.name!r}: a "
                "run has one number of supersteps, so give all loopbacks the same"
            )
            yield spec.name, "supersteps_differ", message
    if any(spec.supersteps > 1 for spec in loopbacks):
        yield from _unsupported(inputs, states)


def _unsupported(
    inputs: Sequence[InputSpec], states: Sequence[StateSpec]
) -> Iterator[tuple[str, str, str]]:
    code = "supersteps_unsupported"
    for spec in inputs:
        if spec.loopback and (spec.route_by is None or spec.has_several or spec.in_sql):
            message = (
                "a message of a superstep has exactly one receiver, found in Python: give route_by "
                "columns or by(...), not route(...) or by_sql(...); or use supersteps=1"
            )
            yield spec.name, code, message
        elif spec.route_by is None:
            message = (
                "single records have no groups that messages could reach in the same run: give "
                "route_by, or use supersteps=1"
            )
            yield spec.name, code, message
    for state in states:
        if state.expire_ms:
            message = "records expire by epochs (expire=...), not by supersteps: use supersteps=1"
            yield state.name, code, message
