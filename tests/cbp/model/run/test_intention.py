"""Intentions: the record survives JSON, and a foreign format is refused."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cbp.errors import InvariantError
from cbp.model.flow.framing import FrameNote
from cbp.model.flow.increment import DataFile, Increment
from cbp.model.run.intention import Intention, TableChange

NAMES = st.sampled_from(["a", "counts", "urls"])
INDEXES = st.dictionaries(NAMES, st.lists(st.integers(0, 9), max_size=3).map(tuple))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(), inner, max_size=2),
    max_leaves=4,
)
ACTIONS = st.lists(st.dictionaries(NAMES, JSON, max_size=2), max_size=2).map(tuple)
FILES = st.lists(
    st.builds(DataFile, st.text(), st.integers(0, 99), st.integers(0, 99)), max_size=2
).map(tuple)
NOTES = st.builds(
    FrameNote, st.integers(0), st.integers() | st.text(), st.integers(0), st.integers(0)
)
INTENTIONS = st.builds(
    Intention,
    dataflow=NAMES,
    stage=NAMES,
    epoch=st.integers(0),
    run=NAMES,
    prepared_ms=st.integers(0),
    read=INDEXES,
    remove=INDEXES,
    outputs=st.dictionaries(
        NAMES, st.builds(Increment, NAMES, st.integers(0), st.integers() | st.text(), FILES)
    ),
    changes=st.lists(
        st.builds(
            TableChange,
            NAMES,
            ACTIONS,
            st.lists(NAMES, max_size=2).map(tuple),
            st.dictionaries(NAMES, st.dictionaries(NAMES, JSON, max_size=2), max_size=2),
            st.booleans(),
        ),
        max_size=2,
    ).map(tuple),
    dataflow_version=st.integers(1),
    unpublished_from=st.integers(0),
    memo=JSON,
    figures=st.dictionaries(NAMES, st.floats(allow_nan=False, allow_infinity=False)),
    frames=st.dictionaries(NAMES, st.lists(NOTES, max_size=2).map(tuple)),
    codes=st.dictionaries(NAMES, st.text()),
)


@given(INTENTIONS)
def test_json_round_trip(intention: Intention) -> None:
    """What was put is what is read, through real JSON text."""
    assert Intention.from_json(json.loads(json.dumps(intention.to_json()))) == intention


def test_a_record_of_another_format_is_refused() -> None:
    """A version that does not know the format stops instead of guessing."""
    value = Intention("d", "s", 7, "r", 0, {}, {}, {}, ()).to_json()
    for wrong in ({**value, "format": 1}, {k: v for k, v in value.items() if k != "format"}):
        with pytest.raises(InvariantError):
            Intention.from_json(wrong)


def test_a_record_from_before_frames_were_noted_is_read() -> None:
    """Nothing is known of its frames, and nothing else is missing."""
    value = Intention("d", "s", 7, "r", 0, {"a": (1,)}, {}, {}, ()).to_json()
    assert "frames" not in value
    assert Intention.from_json(value).frames == {}


def test_its_id_names_dataflow_stage_and_epoch() -> None:
    """The id is what log entries name as their cause."""
    assert Intention("d", "s", 7, "r", 0, {}, {}, {}, ()).id == "d/s/7"
