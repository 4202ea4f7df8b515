"""Loopbacks whose messages come back within the run: what is refused, and what it says."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from cbp import Aggregate, Input, Loopback, Output, State, Translate, View, by, by_sql, route
from cbp.errors import DefinitionError
from cbp.sdk.translate import spec_of

SCHEMA = "k BIGINT, n BIGINT"
AVERAGE: Any = "mean"
AGGREGATES: Any = (("sum", None), ("max", None), ("sum", 1), ("sum", 2))
MAIL: Any = Loopback(SCHEMA, route_by="k", combine={"n": "sum"})
NO_ENDS: tuple[Any, ...] = ("1", True, float("nan"), 10**400)
NO_NUMBERS: tuple[Any, ...] = (0, -1, 1_000_001, True, 2.5, "2", None)


NO_FLAG: Any = "yes"
RESULT = View(SCHEMA, key="k")


def micro(**options: Any) -> Loopback:
    """Return a loopback whose order does not matter."""
    return Loopback(SCHEMA, **{"route_by": "k", "supersteps": 10, "microsteps": True, **options})


MICRO: dict[str, Any] = {"out": RESULT, "mail": micro()}


def writes_far(self: Any, key: Any, group: Any, out: Any) -> None:
    """Write a record of another key."""
    out.out.remote(key.k + 1, 1)


class Rounds(Translate):
    """Any."""

    items = Input(SCHEMA, route_by="k")
    mail = Loopback(SCHEMA, route_by="k", supersteps=10)
    out = Output(SCHEMA)

    def translate(self, key: Any, group: Any, out: Any) -> None:
        """Do nothing."""


def changed(**declarations: Any) -> Any:
    return type("Changed", (Rounds,), declarations)()


def test_the_number_of_supersteps_is_that_of_the_loopbacks() -> None:
    """1 without loopbacks that say otherwise, which is what it was before."""
    assert spec_of(Rounds()).supersteps == 10
    assert spec_of(changed(mail=Loopback(SCHEMA, route_by="k"))).supersteps == 1
    one = by(lambda record: record.n, "BIGINT")
    assert spec_of(changed(mail=Loopback(SCHEMA, route_by=one, supersteps=2))).supersteps == 2


@pytest.mark.parametrize(
    ("code", "where", "translator"),
    [
        *(
            ("supersteps_invalid", "mail", {"mail": Loopback(SCHEMA, "k", supersteps=number)})
            for number in NO_NUMBERS
        ),
        ("supersteps_differ", "more", {"more": Loopback(SCHEMA, "k", supersteps=11)}),
        ("supersteps_differ", "more", {"more": Loopback(SCHEMA, "k")}),
        ("supersteps_unsupported", "mail", {"mail": Loopback(SCHEMA, supersteps=10)}),
        (
            "supersteps_unsupported",
            "mail",
            {"mail": Loopback(SCHEMA, route(lambda one: [one.k], "BIGINT"), supersteps=10)},
        ),
        (
            "supersteps_unsupported",
            "mail",
            {"mail": Loopback(SCHEMA, by_sql("k + 1", "BIGINT"), supersteps=10)},
        ),
        ("supersteps_unsupported", "more", {"more": Input(SCHEMA)}),
        ("supersteps_unsupported", "kept", {"kept": State(SCHEMA, expire="3 days")}),
        ("inside_unknown", "more", {"more": Loopback(SCHEMA, "k", supersteps=10, inside="mile")}),
        ("inside_unknown", "more", {"more": Loopback(SCHEMA, "k", supersteps=10, inside="items")}),
        ("inside_unknown", "more", {"more": Loopback(SCHEMA, "k", supersteps=10, inside=MAIL)}),
        ("inside_cycle", "mail", {"mail": Loopback(SCHEMA, "k", supersteps=10, inside="mail")}),
        (
            "inside_cycle",
            "mail",
            {
                "mail": Loopback(SCHEMA, "k", supersteps=10, inside="more"),
                "more": Loopback(SCHEMA, "k", supersteps=10, inside="mail"),
            },
        ),
        (
            "inside_without_supersteps",
            "more",
            {"mail": Loopback(SCHEMA, "k"), "more": Loopback(SCHEMA, "k", inside="mail")},
        ),
        ("microsteps_invalid", "mail", {"out": RESULT, "mail": micro(microsteps=NO_FLAG)}),
        ("microsteps_differ", "more", {**MICRO, "more": Loopback(SCHEMA, "k", supersteps=10)}),
        ("microsteps_without_supersteps", "mail", {"out": RESULT, "mail": micro(supersteps=1)}),
        ("microsteps_unsupported", "mail", {"out": RESULT, "mail": micro(order_by="n")}),
        ("microsteps_unsupported", "more", {**MICRO, "more": micro(inside="mail")}),
        ("microsteps_unsupported", "moved", {**MICRO, "moved": Aggregate("sum")}),
        ("microsteps_unsupported", "out", {"mail": micro()}),
        ("microsteps_unsupported", "all_", {**MICRO, "all_": State(SCHEMA, grouping="outer")}),
        ("microsteps_unsupported", "", {**MICRO, "translate": writes_far}),
        ("aggregate_invalid", "moved", {"moved": Aggregate("sum", ends_below=1, ends="items")}),
        ("aggregate_invalid", "moved", {"moved": Aggregate("sum", ends="mail")}),
        ("aggregate_invalid", "moved", {"moved": Aggregate(AVERAGE)}),
        *(
            ("aggregate_invalid", "moved", {"moved": Aggregate("sum", ends_below=number)})
            for number in NO_ENDS
        ),
        (
            "aggregate_without_loop",
            "moved",
            {"mail": Loopback(SCHEMA, route_by="k"), "moved": Aggregate("sum")},
        ),
    ],
)
def test_what_a_loop_cannot_do_is_refused(
    code: str, where: str, translator: dict[str, Any]
) -> None:
    """The declaration is named, and what to do instead."""
    with pytest.raises(DefinitionError) as caught:
        spec_of(changed(**translator))
    mistake = caught.value.mistake
    assert (mistake.code, mistake.where) == (code, f"Changed.{where}".rstrip("."))


def test_a_fingerprint_is_that_of_before() -> None:
    """A loopback that says nothing of supersteps has the code that earlier releases saw."""
    said = spec_of(changed(mail=Loopback(SCHEMA, route_by="k", supersteps=1))).code
    assert said == spec_of(changed(mail=Loopback(SCHEMA, route_by="k"))).code
    assert said != spec_of(changed(mail=Loopback(SCHEMA, route_by="k", supersteps=9))).code


def test_what_a_loop_is_inside_of_belongs_to_the_code() -> None:
    """Without it, nothing is nested, and the code is that of before; all loops are as one."""
    more = Loopback(SCHEMA, route_by="k", supersteps=10)
    flat, named = changed(more=more), changed(more=replace(more, inside=None))
    nested = changed(more=replace(more, inside="mail"))
    assert spec_of(flat).code == spec_of(named).code != spec_of(nested).code
    assert spec_of(flat).loops.outer == {"mail": "", "more": ""}
    assert spec_of(nested).loops.outer == {"mail": "", "more": "mail"}
    ends = Aggregate("sum", ends_below=1)
    whole, named = changed(moved=ends), changed(moved=replace(ends, ends=None))
    one = changed(moved=replace(ends, ends="mail"))
    assert spec_of(whole).code == spec_of(named).code != spec_of(one).code


def test_that_order_does_not_matter_belongs_to_the_code() -> None:
    """A loopback that says nothing of it has the code that earlier releases saw."""
    said, unsaid, changes = (
        spec_of(changed(out=RESULT, mail=mail))
        for mail in (micro(microsteps=False), Loopback(SCHEMA, "k", supersteps=10), micro())
    )
    assert said.code == unsaid.code != changes.code
    assert (unsaid.input("mail").microsteps, changes.input("mail").microsteps) == (False, True)


def test_what_an_aggregate_is_belongs_to_the_code() -> None:
    """Another end of a loop is another code, which a new version asks about."""
    codes = {spec_of(changed(moved=Aggregate(how, ends_below=end))).code for how, end in AGGREGATES}
    assert len(codes) == 4
