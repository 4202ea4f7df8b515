"""Translators of whole runs: what they declare, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from cbp import (
    Aggregate,
    Input,
    Lookup,
    Loopback,
    Output,
    State,
    Timers,
    TranslateRun,
    View,
    by,
    route,
)
from cbp.errors import DefinitionError
from cbp.sdk.translate import spec_of

SCHEMA = "k BIGINT, n BIGINT"


class Sums(TranslateRun):
    """Any."""

    items = Input(SCHEMA, route_by="k")
    seen = State(SCHEMA, keep=True, key="k, n")
    sums = View(SCHEMA, key="k", keep=True)

    def translate(self, tables: Any, out: Any) -> None:
        """Do nothing."""


def changed(**declarations: Any) -> Any:
    return type("Changed", (Sums,), declarations)()


def test_a_run_has_one_task_and_reads_its_run_only_if_the_code_does() -> None:
    """As its specification says, from which engines plan."""
    spec = spec_of(Sums())
    assert (spec.form, spec.has_one_task, spec.gives_run) == ("run", True, False)

    def translate(self: Any, tables: Any, out: Any) -> None:
        out.sums({"k": [1], "n": [tables.run.epoch]})

    assert spec_of(changed(translate=translate)).gives_run


def test_a_key_can_be_computed() -> None:
    """An input brings records, and no group is called for them."""
    one = by(lambda record: record.n, "BIGINT")
    assert spec_of(changed(items=Input(SCHEMA, route_by=one), key="k BIGINT")).key is not None


@pytest.mark.parametrize(
    ("code", "where", "declarations"),
    [
        ("run_shape", "mail", {"mail": Loopback(SCHEMA, route_by="k")}),
        ("run_shape", "more", {"more": Input(SCHEMA, route(lambda one: [one.k], "BIGINT"))}),
        ("run_shape", "more", {"more": Input(SCHEMA, route_by="k", combine=lambda many: many)}),
        ("route_by_missing", "more", {"more": Input(SCHEMA)}),
        ("run_shape", "told", {"told": Output(SCHEMA, key="k")}),
        ("run_shape", "others", {"others": Lookup(SCHEMA, by="k")}),
        ("run_shape", "wake", {"wake": Timers()}),
        ("run_shape", "moved", {"moved": Aggregate("sum")}),
        ("run_shape", "seen", {"seen": State(SCHEMA)}),
        ("run_shape", "sums", {"sums": View(SCHEMA, key="k")}),
        ("run_shape", "seen", {"seen": State(SCHEMA, keep=True, key="k", expire="3 days")}),
        ("translate_parameters", "translate", {"translate": lambda self, key, group, out: None}),
    ],
)
def test_what_a_whole_run_cannot_have_is_refused(
    code: str, where: str, declarations: dict[str, Any]
) -> None:
    """The declaration is named, and what to do instead."""
    with pytest.raises(DefinitionError) as caught:
        spec_of(changed(**declarations))
    mistake = caught.value.mistake
    assert (mistake.code, mistake.where) == (code, f"Changed.{where}")
