"""The final checks of the demo: every table is compared record by record.

(a) Every table equals the reference engine's after the same increments: a state or view as a
    set of records, a `history` output and the changes of a view epoch by epoch, an output with a
    declared key by the last value per key, any other output as all of its records.
(b) State, last values and all records equal a from-scratch computation over all pages
    in one increment. Left out are `history` outputs and changes, since their epochs are their
    meaning, and columns of a state that are declared not to be compared.
(c) Polars and delta-rs, which share no code with the service, read the same records.

Guaranteed: a difference of one record fails (tests/controller/demo/results/test_checks.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cbp.engine.reference.engine import ReferenceEngine
from cbp.model.dataflow.dataflow import Dataflow
from controller.demo.results.tables import (
    Row,
    TableRef,
    as_row,
    read_deltalake,
    read_epochs,
    read_polars,
)

__all__ = ["Check", "Difference", "against_reference", "from_scratch", "readers_agree", "reference"]

SHOWN_MAX = 5
"""Differences kept per table."""

Facts = Counter[Any]
"""The compared records, each with its epoch or key where these matter."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One record that is missing, or that should not be there."""

    table: str
    record: Any
    expected: int
    found: int


@dataclass(frozen=True, slots=True)
class Check:
    """One claim, and whether it holds.

    Attributes:
        records: Number of compared records.
    """

    claim: str
    tables: int
    records: int
    differences: tuple[Difference, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether nothing differs; a comparison of no records proves nothing, and is not ok."""
        return not self.differences and self.records > 0


def reference(
    dataflow: Dataflow, source: str, increments: Iterable[Sequence[Mapping[str, Any]]]
) -> ReferenceEngine:
    """Return the reference engine after these increments, each run to its end."""
    engine = ReferenceEngine(dataflow)
    for records in increments:
        engine.feed(source, records)
        engine.run_until_idle()
    return engine


def against_reference(tables: Sequence[TableRef], engine: ReferenceEngine) -> Check:
    """Check (a); `engine` saw the same increments."""
    claim = "every table equals the reference engine's after the same increments"
    return _check(claim, tables, lambda table: _expected(table, engine), _facts_on_disk)


def from_scratch(tables: Sequence[TableRef], engine: ReferenceEngine) -> Check:
    """Check (b); `engine` saw all records in one increment."""
    claim = "state and last values equal one run from scratch over all pages"
    chosen = [table for table in tables if not _is_history(table)]
    return _check(
        claim,
        chosen,
        lambda table: _comparable(table, _expected(table, engine)),
        lambda table: _comparable(table, _facts_on_disk(table)),
    )


def readers_agree(tables: Sequence[TableRef]) -> Check:
    """Check (c)."""
    claim = "Polars and delta-rs read the same records from every table"
    return _check(
        claim,
        tables,
        lambda table: Counter(read_deltalake(table)),
        lambda table: Counter(read_polars(table)),
    )


def _check(
    claim: str,
    tables: Sequence[TableRef],
    expected: Callable[[TableRef], Facts],
    found: Callable[[TableRef], Facts],
) -> Check:
    compared, differences = 0, []
    for table in tables:
        must, is_ = expected(table), found(table)
        compared += must.total()
        differences += _differences(table.label, must, is_)
    return Check(claim, len(tables), compared, tuple(differences))


def _differences(label: str, expected: Facts, found: Facts) -> list[Difference]:
    differing = [fact for fact in expected | found if expected[fact] != found[fact]]
    differing.sort(key=repr)
    return [Difference(label, fact, expected[fact], found[fact]) for fact in differing[:SHOWN_MAX]]


def _is_history(table: TableRef) -> bool:
    return table.output is not None and (table.output.history or bool(table.output.view))


def _comparable(table: TableRef, facts: Facts) -> Facts:
    """Return the facts without the columns that depend on how the input is split."""
    if not table.not_compared:
        return facts
    at = [n for n, name in enumerate(table.schema.names) if name not in table.not_compared]
    return Counter(tuple(row[i] for i in at) for row in facts.elements())


def _expected(table: TableRef, engine: ReferenceEngine) -> Facts:
    if table.output is None:
        return Counter(as_row(r, table.schema) for r in engine.state(table.stage, table.name))
    epochs = engine.outputs(table.flow)
    return _facts(
        table, {n: [as_row(r, table.schema) for r in records] for n, records in enumerate(epochs)}
    )


def _facts_on_disk(table: TableRef) -> Facts:
    if table.output is None:
        return Counter(read_deltalake(table))
    return _facts(table, read_epochs(table))


def _facts(table: TableRef, epochs: Mapping[int, Sequence[Row]]) -> Facts:
    """Return the compared facts of an output; see (a)."""
    assert table.output is not None
    if _is_history(table):
        return Counter((epoch, row) for epoch, rows in epochs.items() for row in rows)
    every = [row for epoch in sorted(epochs) for row in epochs[epoch]]
    if not table.output.key:
        return Counter(every)
    at = [table.schema.index(name) for name in table.output.key]
    last = {tuple(row[i] for i in at): row for row in every}
    return Counter(last.values())
