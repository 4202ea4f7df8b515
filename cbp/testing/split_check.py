"""Check that a result does not depend on how the input was split into epochs.

`cbp.model.dataflow.equality` defines equality of results. Tables that `cbp verify` cannot compare
(`cbp.model.verification`) are not compared between two splits of a dataflow's input either.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Any

from cbp.engine.reference.stage import whole
from cbp.errors import DefinitionError, Mistake
from cbp.errors.counts import format_count
from cbp.model.dataflow.dataflow import Dataflow
from cbp.model.dataflow.stage import InputSpec, TranslatorSpec
from cbp.model.verification import behind, comparisons
from cbp.sdk.translate import spec_of
from cbp.testing.dataflow_runs import accepted, run_dataflow, taking_all
from cbp.testing.result import Result
from cbp.testing.translator_runs import NO_TABLES, Author, Tables, by_input, outside, run_epochs

_Parts = Callable[[list[Any]], list[list[Any]]]


def check_split(checked: Author | Dataflow, epochs: Any, *, lookups: Tables = NO_TABLES) -> Result:
    """Check that these epochs, one by one or all at once, give the same result as one batch.

    The batch is run twice, to find results that are random or depend on values kept between
    runs. It is also run without combiners, with combiners over all records of a group, and with
    combiners over parts of them. The result must be the same each time.

    The batch has the last table of each look-up. With `wake=True`, one run gets all tables before
    all input, and another run gets them after it. Without `wake`, a group keeps the records that it
    found when it was called, so the result depends on when a table changes. Then only the first
    epoch may have a table.

    A dataflow also gets its sources one after the other, forwards and backwards. If one source has
    an increment and another has none, the other gets an empty one, so that stages that wait for all
    inputs run. The check leaves out messages, and tables that depend on the split by declaration:
    histories, outputs that follow a view and declare neither a key nor a sign, and all tables
    downstream of a rule or a look-up whose reads depend on timing.

    Args:
        checked: A translator, as in `run_epochs`; or a dataflow, as in `run_dataflow`.
        epochs: As in `run_epochs`; for a dataflow a dict from source to increments, as in
            `run_dataflow`.
        lookups: As in `run_epochs`; a dataflow has none.

    Returns:
        The result of the batch, to compare with an oracle.

    Raises:
        DefinitionError: `lookup_unwoken`: a table changes, and its look-up calls no groups.
        ValueError: No table of the dataflow can be compared between two splits.
        AssertionError: Results differ. Names the first state or output that differs, and where.
    """
    if isinstance(checked, Dataflow):
        return _check_dataflow(checked, epochs)
    translator = checked
    spec = spec_of(translator() if isinstance(translator, type) else translator)
    epochs, lookups = _listed(spec, epochs), {name: [*table] for name, table in lookups.items()}
    everything, tables = _together(spec, epochs, lookups)
    together = [{**everything, **tables}]
    batch = run_epochs(translator, together, parts_of=_apart)
    for how, parts_of in _ways(spec.inputs).items():
        _require_same(spec.name, how, batch, run_epochs(translator, together, parts_of=parts_of))
    count = format_count(len(epochs), "epoch")
    splits: dict[str, tuple[Sequence[Any], bool, Tables]] = {
        f"{count} one by one": (epochs, False, lookups),
        f"{count} all at once": (epochs, True, lookups),
    }
    woken = {one.name: tables[one.name] for one in spec.lookups if one.wake and one.name in tables}
    if woken:
        others = {name: table for name, table in tables.items() if name not in woken}
        splits["the tables in an epoch before all input"] = [woken, everything], False, others
        splits["the tables in an epoch after all input"] = [everything, woken], False, others
    for how, (parts, at_once, first) in splits.items():
        split = run_epochs(translator, parts, at_once=at_once, lookups=first)
        _require_same(spec.name, how, batch, split)
    return batch


def check_any_order(checked: Author, epochs: Any) -> Result:
    """Check the promise `any_order: true` of a stage: its result depends only on the records.

    Besides what `check_split` checks, the records are given in other orders: backwards, and
    shuffled three times, each as one batch and in epochs of one record.

    Arguments, result and errors are those of `check_split` for a translator.
    """
    spec = spec_of(checked() if isinstance(checked, type) else checked)
    epochs = _listed(spec, epochs)
    batch = check_split(checked, epochs)
    everything, _ = _together(spec, epochs, NO_TABLES)
    dice = random.Random(7)
    orders = {"backwards": {name: rows[::-1] for name, rows in everything.items()}}
    for number in range(3):
        orders[f"shuffled ({number})"] = {
            name: dice.sample(rows, len(rows)) for name, rows in everything.items()
        }
    for how, records in orders.items():
        alone = [{name: [row]} for name, rows in records.items() for row in rows]
        for parts in ([records], alone):
            if problem := batch.difference(run_epochs(checked, parts)):
                message = (
                    f"{spec.name}: the result depends on the order of the records. One batch in "
                    f"the given order, and the records {how} in "
                    f"{format_count(len(parts), 'epoch')}, give different results: {problem}"
                )
                raise AssertionError(message)
    return batch


def _check_dataflow(
    dataflow: Dataflow, increments: Mapping[str, Iterable[Iterable[Any] | None]]
) -> Result:
    without = _not_compared(dataflow)
    taken, dataflow = accepted(dataflow, increments), taking_all(dataflow)
    rounds = max(map(len, taken.values()), default=0)
    split = {
        source: [rows or [] for rows in (*arrivals, *[None] * (rounds - len(arrivals)))]
        for source, arrivals in taken.items()
    }
    together = {source: list(chain.from_iterable(rows)) for source, rows in split.items()}
    one = {source: [rows] for source, rows in together.items()}
    batch = run_dataflow(dataflow, one, parts_of=_apart)

    def compare(how: str, again: Result) -> None:
        _require_same(dataflow.name, how, batch, again, without)

    inputs = [spec for node in dataflow.stages.values() for spec in node.translator.inputs]
    for how, parts_of in _ways(inputs).items():
        compare(how, run_dataflow(dataflow, one, parts_of=parts_of))
    count = format_count(rounds, "increment")
    compare(f"{count} applied one by one", run_dataflow(dataflow, split))
    compare(f"{count} queued at once", run_dataflow(dataflow, split, at_once=True))
    for order in (list(together), list(together)[::-1]) if len(together) > 1 else ():
        apart = {
            source: [together[source] if source == turn else [] for turn in order]
            for source in together
        }
        compare(f"the sources in turn ({', '.join(order)})", run_dataflow(dataflow, apart))
    return batch


def _require_same(
    name: str, how: str, batch: Result, again: Result, without: Collection[str] = ()
) -> None:
    if problem := batch.difference(again, without=without):
        message = f"{name}: one batch and {how} give different results: {problem}"
        raise AssertionError(message)


def _not_compared(dataflow: Dataflow) -> set[str]:
    """Return the states and outputs that depend on the split by declaration.

    Raises `ValueError` if all of them do.
    """
    timed = {
        name
        for name, node in dataflow.stages.items()
        if node.translator.reads_run or any(not one.wake for one in node.translator.lookups)
    }
    tables = list(comparisons(dataflow, "at_once", behind(dataflow, timed)))
    if all(one.left_out for one in tables):
        reasons = "; ".join(dict.fromkeys(one.left_out for one in tables)) or "there are no tables"
        message = f"no table of {dataflow.name!r} can be compared between two splits: {reasons}"
        raise ValueError(message)
    return {f"{one.stage}.{one.name}" for one in tables if one.left_out}


def _ways(inputs: Iterable[InputSpec]) -> dict[str, _Parts]:
    dice = random.Random(7)
    ways: dict[str, _Parts] = {
        "the same batch again": _apart,
        "the same batch combined in entire groups": whole,
    }
    if any(input_.combine for input_ in inputs):
        ways |= {f"the same batch combined in parts ({n})": partial(_parts, dice) for n in range(3)}
    return ways


def _listed(spec: TranslatorSpec, epochs: Iterable[Any]) -> list[dict[str, list[Any]]]:
    """Return the records of each epoch by input, as lists, since they are read several times."""
    return [{name: [*rows] for name, rows in by_input(one, spec).items()} for one in epochs]


def _together(
    spec: TranslatorSpec, epochs: Sequence[Mapping[str, Sequence[Any]]], lookups: Tables
) -> tuple[dict[str, list[Any]], dict[str, list[Any]]]:
    """Return the input of all epochs, and the last table of each look-up that has one."""
    everything: dict[str, list[Any]] = {name: [] for name in outside(spec)}
    tables = {name: list(records) for name, records in lookups.items()}
    unwoken = {one.name for one in spec.lookups if not one.wake}
    for number, epoch in enumerate(epochs):
        for name, records in epoch.items():
            if name in everything:
                everything[name].extend(records)
                continue
            if name in unwoken and number:
                _refuse(spec, name, number)
            tables[name] = list(records)
    return everything, tables


def _refuse(spec: TranslatorSpec, lookup: str, number: int) -> None:
    message = (
        f"epochs[{number}] changes the table of this look-up, but such a change calls no groups. "
        "The result of a group then depends on when the group is called, so two splits may "
        f"differ. Give one table for all epochs, with lookups={{{lookup!r}: [...]}}, or declare "
        "wake=True, or compare the result of run_epochs with the expected records of each epoch"
    )
    raise DefinitionError(Mistake("lookup_unwoken", f"{spec.name}.{lookup}", message, spec.place))


def _apart(rows: list[Any]) -> list[list[Any]]:
    return [[row] for row in rows]


def _parts(dice: random.Random, rows: list[Any]) -> list[list[Any]]:
    """Shuffle records and cut them at random, since a combiner can get any records of a group."""
    parts: list[list[Any]] = []
    for row in dice.sample(rows, len(rows)):
        if not parts or dice.random() < 0.4:
            parts.append([])
        parts[-1].append(row)
    return parts
