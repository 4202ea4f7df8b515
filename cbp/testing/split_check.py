"""Check that a result does not depend on how the input was split into epochs."""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import partial
from typing import Any

from cbp.engine.reference.stage import whole
from cbp.errors import DefinitionError, Mistake
from cbp.errors.counts import format_count
from cbp.model.dataflow.stage import TranslatorSpec
from cbp.sdk.translate import spec_of
from cbp.testing.result import Result
from cbp.testing.translator_runs import (
    NO_TABLES,
    Author,
    Tables,
    by_input,
    outside,
    run_epochs,
)

__all__ = ["check_split"]


def check_split(
    translator: Author, epochs: Sequence[Any], *, lookups: Tables = NO_TABLES
) -> Result:
    """Check that these epochs, one by one or all at once, give the same result as one batch.

    The batch is run twice, to find results that are random or depend on values kept between
    runs. It is also run without combiners, with combiners over all records of a group, and with
    combiners over parts of them. The result must be the same each time.

    The batch has the last table of each look-up. With `wake=True` all tables come before all input
    and behind it, too. Without it, a group keeps what it found when it was called, so the result
    depends on when a table changes: then a table may come with the first epoch, and with no other.

    Args:
        translator: As in `run_epochs`.
        epochs: As in `run_epochs`.
        lookups: As in `run_epochs`.

    Returns:
        The result of the batch, to compare with an oracle.

    Raises:
        DefinitionError: `lookup_unwoken`: a table changes, and its look-up calls no groups.
        AssertionError: Results differ. Names the first state or output that differs, and where.
    """
    spec = spec_of(translator() if isinstance(translator, type) else translator)
    everything, tables = _together(spec, epochs, lookups)
    batch = run_epochs(translator, [{**everything, **tables}], parts_of=_apart)
    dice = random.Random(7)
    ways = {"the same once more": _apart, "combined as a whole": whole}
    if any(input_.combine for input_ in spec.inputs):
        ways |= {f"combined in parts ({n})": partial(_parts, dice) for n in range(3)}
    for how, parts_of in ways.items():
        again = run_epochs(translator, [{**everything, **tables}], parts_of=parts_of)
        if problem := batch.difference(again):
            message = f"{spec.name}: one batch against {how}: {problem}"
            raise AssertionError(message)
    count = format_count(len(epochs), "epoch")
    splits: dict[str, tuple[Sequence[Any], bool, Tables]] = {
        f"{count} one by one": (epochs, False, lookups),
        f"{count} all at once": (epochs, True, lookups),
    }
    woken = {one.name: tables[one.name] for one in spec.lookups if one.wake and one.name in tables}
    if woken:
        others = {name: table for name, table in tables.items() if name not in woken}
        splits["the tables before all input"] = [woken, everything], False, others
        splits["the tables behind all input"] = [everything, woken], False, others
    for how, (parts, at_once, first) in splits.items():
        split = run_epochs(translator, parts, at_once=at_once, lookups=first)
        if problem := batch.difference(split):
            message = f"{spec.name}: one batch against {how}: {problem}"
            raise AssertionError(message)
    return batch


def _together(
    spec: TranslatorSpec, epochs: Sequence[Any], lookups: Tables
) -> tuple[dict[str, list[Any]], dict[str, list[Any]]]:
    """Return the input of all epochs, and the last table of each look-up that has one."""
    everything: dict[str, list[Any]] = {name: [] for name in outside(spec)}
    tables = {name: list(records) for name, records in lookups.items()}
    unwoken = {one.name for one in spec.lookups if not one.wake}
    for number, epoch in enumerate(epochs):
        for name, records in by_input(epoch, spec).items():
            if name in everything:
                everything[name].extend(records)
                continue
            if name in unwoken and number:
                _refuse(spec, name, number)
            tables[name] = list(records)
    return everything, tables


def _refuse(spec: TranslatorSpec, lookup: str, number: int) -> None:
    message = (
        f"epochs[{number}] has another table for it, but it calls no groups when records change: "
        "what a group found depends on when it was called, and so two splits may differ. Give one "
        f"table for all epochs, with lookups={{{lookup!r}: [...]}}; or declare wake=True; or "
        "compare what run_epochs gives with what you expect of each epoch"
    )
    raise DefinitionError(Mistake("lookup_unwoken", f"{spec.name}.{lookup}", message, spec.place))


def _apart(rows: list[Any]) -> list[list[Any]]:
    return [[row] for row in rows]


def _parts(dice: random.Random, rows: list[Any]) -> list[list[Any]]:
    """Shuffle and cut at random places, since a combiner can be given any records of a group."""
    parts: list[list[Any]] = []
    for row in dice.sample(rows, len(rows)):
        if not parts or dice.random() < 0.4:
            parts.append([])
        parts[-1].append(row)
    return parts
