"""Corrections: exactly what is named changes."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cbp import Input, Output, State, Translate
from cbp.errors import DefinitionError
from cbp.model.dataflow.run_context import NO_RUN
from cbp.model.run.correction import (
    Correction,
    CorrectionNote,
    check_corrections,
    correcting,
    correction_rows,
)

KEYS = ("a", "b", "c")
RECORDS: Any = st.builds(dict, n=st.integers(0, 3), tag=st.sampled_from([None, "x", "y"]))
SOME: Any = st.one_of(
    st.builds(dict, n=st.integers(4, 6)),
    st.builds(dict, tag=st.sampled_from([None, "z"])),
    st.builds(dict, n=st.integers(4, 6), tag=st.just("z")),
)


class Words(Translate):
    """Keeps two states per word."""

    words = Input("word STRING", route_by="word")
    counts = State("n BIGINT, word STRING, tag STRING", grouping="outer")
    corrections = State("word STRING, m BIGINT")
    totals = Output("word STRING")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        raise AssertionError("never called")


class Strict(Words):
    """One column must have a value."""

    counts = State("n BIGINT NOT NULL, word STRING, tag STRING")


SPEC = Words().spec()
STATE = SPEC.state("counts")


class Count(NamedTuple):
    n: int | None
    word: str
    tag: str | None


class Step(tuple):  # type: ignore[type-arg]
    """A record with names, as engines give them."""

    values: dict[str, Any]

    def __new__(cls, names: tuple[str, ...], row: tuple[Any, ...]) -> Step:
        made = super().__new__(cls, row)
        made.values = dict(zip(names, row, strict=True))
        return made

    def __getattr__(self, name: str) -> Any:
        return self.values[name]


def one(key: str, kind: Any, *records: Mapping[str, Any]) -> Correction:
    return Correction({"word": key}, kind, records)


corrections: Any = st.dictionaries(
    st.sampled_from(KEYS),
    st.one_of(
        st.lists(RECORDS, max_size=2).map(lambda found: ("records", *found)),
        SOME.map(lambda record: ("set", record)),
    ),
    min_size=1,
).map(lambda found: [one(key, *what) for key, what in found.items()])


def _take(into: list[Any], **record: Any) -> None:
    into.append(record)


def run(state: Mapping[str, list[Count]], made: list[Correction]) -> dict[str, list[Count]]:
    """Run the corrections as an engine does: one call per key that is named."""
    spec = correcting(SPEC, "counts", NO_RUN.time)
    schema, rows = correction_rows(STATE.schema, made)
    (input_,) = spec.inputs
    assert input_.schema == schema
    flow = [Step(schema.names, row) for row in rows]
    after = {key: list(records) for key, records in state.items()}
    for key in {step.c1 for step in flow}:
        written: dict[str, list[Any]] = {"counts": [], "corrections": []}
        group = SimpleNamespace(
            counts=iter(state.get(key, ())),
            corrections=iter([("other", 1)]),
            **{input_.name: iter([step for step in flow if step.c1 == key])},
        )
        out = SimpleNamespace(**{name: partial(_take, into) for name, into in written.items()})
        spec.translate(SimpleNamespace(word=key), group, out)
        assert written["corrections"] == [{"word": "other", "m": 1}]
        after[key] = [Count(**record) for record in written["counts"]]
    return {key: records for key, records in after.items() if records}


@given(
    state=st.dictionaries(st.sampled_from(KEYS), st.lists(RECORDS, min_size=1, max_size=2)),
    made=corrections,
)
def test_exactly_what_is_named_changes(state: Any, made: list[Correction]) -> None:
    """Against plain Python: other keys, other columns and other states stay."""
    before = {k: [Count(word=k, **r) for r in records] for k, records in state.items()}
    expected = {key: list(records) for key, records in before.items()}
    for change in made:
        key = change.key["word"]
        blank = Count(None, key, None)
        if change.kind == "records":
            expected[key] = [blank._replace(**record) for record in change.records]
        else:
            base = expected.get(key) or [blank]
            expected[key] = [record._replace(**change.records[0]) for record in base]
    assert run(before, made) == {key: records for key, records in expected.items() if records}


@pytest.mark.parametrize(
    "made",
    [
        [],
        [Correction({"url": "a"}, "records")],
        [Correction({}, "records")],
        [one("a", "set", {"m": 1})],
        [one("a", "set", {"word": "b"})],
        [one("a", "set", {})],
        [one("a", "set")],
        [one("a", "records"), one("a", "set", {"n": 1})],
        [one("a", "records", *[{"n": 1}] * 10_001)],
        [one(str(n), "records") for n in range(10_001)],
    ],
)
def test_what_names_other_columns_or_a_key_twice_is_refused(made: list[Correction]) -> None:
    """With the rule and the place; too many too."""
    with pytest.raises(DefinitionError) as raised:
        check_corrections(SPEC, STATE, made, where="corrections")
    assert raised.value.details["rule"] == "correction_invalid"


def test_a_column_that_is_not_null_needs_a_value() -> None:
    """Left out of a record, or set to null."""
    spec = Strict().spec()
    for made in (one("a", "records", {"tag": "x"}), one("a", "set", {"n": None})):
        with pytest.raises(DefinitionError):
            check_corrections(spec, spec.state("counts"), [made], where="")
    check_corrections(spec, spec.state("counts"), [one("b", "records", {"n": 1})], where="")


def test_other_states_stay_whichever_is_corrected() -> None:
    """The one that is written first, too."""
    spec = correcting(SPEC, "corrections", NO_RUN.time)
    schema, rows = correction_rows(SPEC.state("corrections").schema, [one("a", "set", {"m": 5})])
    (input_,) = spec.inputs
    written: dict[str, list[Any]] = {"counts": [], "corrections": []}
    group = SimpleNamespace(
        counts=iter([Count(1, "a", "x")]),
        corrections=iter([("a", 1)]),
        **{input_.name: iter([Step(schema.names, row) for row in rows])},
    )
    out = SimpleNamespace(**{name: partial(_take, into) for name, into in written.items()})
    spec.translate(SimpleNamespace(word="a"), group, out)
    assert written["counts"] == [{"n": 1, "word": "a", "tag": "x"}]
    assert written["corrections"] == [{"word": "a", "m": 5}]


def test_a_state_is_corrected_by_the_columns_that_hold_its_key() -> None:
    """They are named, and written with the key's value; the stage's own names are refused."""
    given = {**vars(Words), "counts": State("word BIGINT, term STRING, n INT", route_by="term")}
    spec = type("Named", (Words,), given)().spec()
    state = spec.state("counts")
    made = [Correction({"term": "a"}, "records", ({"n": 1, "word": 2},))]
    check_corrections(spec, state, made, where="corrections")
    with pytest.raises(DefinitionError, match=r"columns \(term STRING\)"):
        check_corrections(spec, state, [one("a", "records", {"n": 1})], where="corrections")
    run_ = correcting(spec, "counts", NO_RUN.time)
    schema, rows = correction_rows(state.schema, made)
    assert run_.inputs[0].route_by == ("c1",)
    written: list[dict[str, Any]] = []
    group = SimpleNamespace(
        counts=iter([(5, "a", 6)]),
        corrections=iter(()),
        **{run_.inputs[0].name: iter([Step(schema.names, row) for row in rows])},
    )
    run_.translate(
        SimpleNamespace(word="a"), group, SimpleNamespace(counts=partial(_take, written))
    )
    assert written == [{"word": 2, "term": "a", "n": 1}]


def test_a_note_reads_what_it_wrote() -> None:
    """Field by field."""
    note = CorrectionNote("count", "counts", 2, "p", "me", "why", "r")
    assert CorrectionNote.from_json(note.to_json()) == note


class Kept(Words):
    """Its records are named within their group."""

    counts = State("n BIGINT, word STRING, tag STRING", keep=True, key="word, n")


@pytest.mark.parametrize(
    ("wrong", "correction"),
    [
        (True, Correction({"word": "a"}, "set", ({"n": 1},))),
        (False, Correction({"word": "a"}, "set", ({"tag": "z"},))),
        (True, Correction({"word": "a"}, "records", ({"n": 1}, {"n": 1, "tag": "x"}))),
        (True, Correction({"word": "a"}, "records", ({"tag": "y"}, {"tag": "x"}))),
        (False, Correction({"word": "a"}, "records", ({"n": 1}, {"n": 2}))),
    ],
)
def test_no_two_records_get_the_same_second_key(wrong: bool, correction: Correction) -> None:
    """A kept state would not know which of them is meant."""
    spec = Kept().spec()
    check = partial(check_corrections, spec, spec.state("counts"), [correction], where="here")
    if not wrong:
        return check()
    with pytest.raises(DefinitionError) as caught:
        check()
    assert caught.value.mistake.code == "correction_invalid"
    return None
