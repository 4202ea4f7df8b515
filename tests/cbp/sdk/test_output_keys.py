"""Which record of a key of an output counts does not depend on the order of groups."""

from __future__ import annotations

from typing import Any

import pytest

from cbp import Input, Loopback, Output, State, Translate, TranslateRecords, by
from cbp.errors import AuthorCodeError, DefinitionError
from cbp.model.author.code_fingerprint import Code
from cbp.sdk.translate import spec_of
from cbp.testing import check_split, run_epochs

ITEMS = "id BIGINT, k BIGINT, at BIGINT"


class Moves(Translate):
    """In which group an item is; an item that moves is emitted by the group that it leaves, too.

    An item that is reported of a group leaves the group before it, which was informed.
    """

    items = Input(ITEMS, route_by="k")
    left = Input(ITEMS, route_by="k")
    places = Output("id BIGINT, k BIGINT, at BIGINT", key="id", latest_by="at")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        """Emit each item, and null for one that left."""
        for row in group.items:
            out.places(row.id, key.k, row.at)
        for row in group.left:
            out.places(row.id, None, row.at)


def declared(**more: Any) -> Any:
    return type("Declared", (Moves,), {**more, "__module__": __name__})


@pytest.mark.parametrize(
    ("output", "code"),
    [
        (Output(ITEMS, key="id"), "output_key_shared"),
        (Output("id BIGINT, k STRING", key="id, k"), "output_key_shared"),
        (Output(ITEMS, key="id, k"), ""),
        (Output(ITEMS, key="k"), ""),
        (Output(ITEMS, key="id", history=True), ""),
        (Output(ITEMS), ""),
        (Output(ITEMS, key="id", latest_by="at"), ""),
        (Output(ITEMS, key="id", latest_by="at, k"), ""),
        (Output(ITEMS, key="id", latest_by="later"), "latest_by_unknown"),
        (Output(ITEMS, key="id", latest_by="id"), "latest_by_invalid"),
        (Output(ITEMS, latest_by="at"), "latest_by_invalid"),
        (Output(ITEMS, key="id, k", history=True, latest_by="at"), "latest_by_invalid"),
        (Output("id BIGINT, at ARRAY<INT>", key="id", latest_by="at"), "latest_by_invalid"),
    ],
)
def test_an_output_whose_key_groups_share_says_which_record_counts(
    output: Output, code: str
) -> None:
    """Its key holds the stage's key, or `latest_by` names columns with an order."""
    translator = declared(places=output)
    if not code:
        assert spec_of(translator()).output("places").key == tuple(
            (output.key or "").split(", ") if output.key else ()
        )
        return
    with pytest.raises(DefinitionError) as caught:
        spec_of(translator())
    assert caught.value.mistake.code == code
    assert "Declared.places" in caught.value.mistake.where


class Copied(TranslateRecords):
    """Each record is a group of its own."""

    items = Input(ITEMS)
    places = Output(ITEMS, key="id")

    def translate(self, record: Any, out: Any) -> None:
        """Never called here."""


class InRounds(Translate):
    """Its groups are called several times in an epoch."""

    items = Input(ITEMS, route_by="k")
    again = Loopback("k BIGINT", route_by="k", supersteps=3)
    places = Output("k BIGINT, n BIGINT", key="k")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        """Never called here."""


class OneByOne(Translate):
    """One of its inputs has no groups."""

    items = Input(ITEMS, route_by="k")
    others = Input(ITEMS)
    places = Output("k BIGINT, n BIGINT", key="k")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        """Never called here."""


@pytest.mark.parametrize("translator", [Copied, InRounds, OneByOne])
def test_records_that_no_single_call_of_a_group_emits_need_it_too(translator: type) -> None:
    """Records that are groups of their own, and groups that are called in rounds."""
    with pytest.raises(DefinitionError) as caught:
        spec_of(translator())
    assert caught.value.mistake.code == "output_key_shared"


def test_an_option_that_is_not_given_leaves_the_code_as_it_was() -> None:
    """A dataflow with an output from before need not be registered again."""
    plain, ordered = (
        spec_of(declared(places=one)()).code
        for one in (Output(ITEMS, key="id, k"), Output(ITEMS, key="id, k", latest_by="at"))
    )
    assert isinstance(plain, Code)
    assert plain != ordered
    assert plain == spec_of(declared(places=Output(ITEMS, key="id, k", latest_by=None))()).code


def test_the_greatest_record_counts_however_the_input_is_split() -> None:
    """An item that moved is where it is, whichever of the two groups is called last."""
    for first, second in ((1, 3), (3, 1)):
        moved = [
            {"items": [(1, first, 1)], "left": []},
            {"items": [(1, second, 3)], "left": [(1, first, 2)]},
            {"items": [(2, second, 4)], "left": []},
        ]
        assert check_split(Moves, moved).last("places") == {1: (second, 3), 2: (second, 4)}
        gone = [*moved, {"items": [], "left": [(2, second, 5)]}]
        assert check_split(Moves, gone).last("places")[2] == (None, 5)


class Emits(Translate):
    """Emits what a record says: the key of its own group, or of another one; once, or twice."""

    key = "k STRING"
    items = Input("k STRING, other STRING, part BIGINT", route_by=by(lambda r: r.k, "STRING"))
    seen = State("k STRING")
    totals = Output("k STRING, part BIGINT, n BIGINT", key="k, part")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        """Emit."""
        for at, row in enumerate(group.items):
            out.totals(row.other, row.part, at)
        out.seen(key.k)


@pytest.mark.parametrize(
    ("rows", "code"),
    [
        ([("a", "a", 1), ("a", "a", 2), ("b", "b", 1)], ""),
        ([("a", "b", 1)], "output_key_foreign"),
        ([("a", "a", 1), ("a", "a", 1)], "output_key_twice"),
        ([("a", "a", None), ("a", "a", None)], "output_key_twice"),
        ([("a", "a", 1), ("b", "a", 2)], "output_key_foreign"),
    ],
)
def test_a_group_emits_its_own_keys_and_each_once(rows: list[Any], code: str) -> None:
    """In the test kit; the author's line is named."""
    if not code:
        assert len(run_epochs(Emits, [rows]).last("totals")) == len(rows)
        return
    with pytest.raises(AuthorCodeError) as caught:
        run_epochs(Emits, [rows])
    assert caught.value.code == code
    assert __file__.rpartition("/")[2] in str(caught.value.details["place"])
    apart = run_epochs(Emits, [[("a", "a", 1)], [("a", "a", 1)]])
    assert apart.last("totals") == {("a", 1): 0}
