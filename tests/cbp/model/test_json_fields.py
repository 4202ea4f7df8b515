"""Records as JSON: what every release has written is required, later fields are not."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cbp.errors import InvariantError
from cbp.model.author.code_fingerprint import UNKNOWN_CODE
from cbp.model.flow.connector import Connector
from cbp.model.flow.framing import FrameNote, Framing
from cbp.model.flow.generation import Generation
from cbp.model.flow.increment import DataFile, Increment
from cbp.model.flow.position import Position, StagePosition
from cbp.model.flow.punctuation import Punctuation
from cbp.model.flow.schema import Schema
from cbp.model.run.correction import CorrectionNote
from cbp.model.run.intention import Intention, LookupMoment, TableChange
from cbp.model.version.dataflow_shape import DataflowShape, InputShape, SourceShape, StageShape

_INCREMENT = Increment("pages", 3, "k", (DataFile("pages/3.parquet", 10, 100),))
_FRAMING = Framing(memo=1, next=2, open=_INCREMENT, last=3, closed=True)
_CONNECTOR = Connector("pages", (), _FRAMING, (_INCREMENT,), (2,))
_POSITION = Position("d", {"s": StagePosition(3, None, {"pages": _CONNECTOR})}, (_INCREMENT,), 2, 3)
_NOTE = CorrectionNote("s", "counts", 3, "", "ann", "a test", "r1", 1)
_CHANGE = TableChange("state/s.counts", ({"path": "a"},), ("b",), {"c": {"rows": 1}}, False, 4)
_INTENTION = Intention(
    "d",
    "s",
    7,
    "run",
    5,
    {"pages": (1, 2)},
    {"pages": (1,)},
    {"totals": _INCREMENT},
    (_CHANGE,),
    leader_epoch=4,
    generation=1,
    correction=_NOTE,
    frames={"pages": (FrameNote(1, "k", 3, 4),)},
    codes={"s": "3:3.11:0"},
    time_ms=9,
    due_ms=0,
    lookups={"s.names": LookupMoment(3, 4)},
)
_SCHEMA = Schema.parse("url STRING NOT NULL, n BIGINT")
_INPUT = InputShape("pages", _SCHEMA, False, {"route_by": "url"})
_STAGE = StageShape(
    "count",
    {},
    UNKNOWN_CODE,
    "groupwise",
    None,
    {"pages": _INPUT},
    {"totals": _SCHEMA},
    {"counts": _SCHEMA},
    8,
    state_rules={"counts": {"keep": "yes"}},
)
_RECORDS: list[tuple[Any, set[str]]] = [
    (_FRAMING, {"last", "closed"}),
    (_POSITION, {"punctuations", "version"}),
    (
        Generation(1, _POSITION, {"s": 4}, 5, "ann", "a test", {}, "r1", (1,), {"pages": (1,)}),
        {"closes_dropped", "superseded", "left_out"},
    ),
    (Punctuation(1, "pages", 3, "request", "k", 5, "s.pages"), {"input"}),
    (_NOTE, {"request", "left"}),
    (_CHANGE, {"below"}),
    (
        _INTENTION,
        {"leader_epoch", "generation", "correction", "frames", "codes", "time_ms", "due_ms"}
        | {"lookups"},
    ),
    (_INPUT, {"framing_code"}),
    (_STAGE, {"state_rules"}),
    (SourceShape(_SCHEMA, "csv", {}), set()),
    (DataflowShape({}, {"s": _STAGE}), set()),
]
"""Records, and the fields that some release did not write."""

_NAMES = [type(record).__name__ for record, _ in _RECORDS]


@pytest.mark.parametrize(("record", "later"), _RECORDS, ids=_NAMES)
def test_a_record_is_read_as_it_was_written(record: Any, later: set[str]) -> None:
    """Through real JSON text, and with a key of a release to come, where that is allowed."""
    value = json.loads(json.dumps(record.to_json()))
    assert later <= value.keys() | {"left_out", "superseded"}
    assert type(record).from_json(value) == record
    if not record.refuses_unknown:
        assert type(record).from_json({**value, "of_a_later_release": 1}) == record


@pytest.mark.parametrize(("record", "later"), _RECORDS, ids=_NAMES)
def test_a_record_that_lacks_what_every_release_wrote_is_refused(
    record: Any, later: set[str]
) -> None:
    """Without `drops`, for example, a table would show deleted records again."""
    value = record.to_json()
    for name in value:
        less = {key: one for key, one in value.items() if key != name}
        if name in later:
            assert type(record).from_json(less) is not None
        elif name == "format" and record.record:
            with pytest.raises(InvariantError):
                type(record).from_json(less)
        else:
            with pytest.raises(KeyError, match=name):
                type(record).from_json(less)


@pytest.mark.parametrize("record", [one for one, _ in _RECORDS if one.refuses_unknown])
def test_some_records_with_an_unknown_key_are_refused(record: Any) -> None:
    """A release that does not know `input` would close the frames of all inputs of a flow."""
    with pytest.raises(TypeError, match="of_a_later_release"):
        type(record).from_json({**record.to_json(), "of_a_later_release": 1})


def test_what_a_release_before_would_not_read_is_left_out() -> None:
    """A field with its default keeps the form of records that were written without it."""
    assert TableChange("state/s.counts").to_json().keys() == {
        *("table", "adds", "drops", "deletes", "data_change")
    }
