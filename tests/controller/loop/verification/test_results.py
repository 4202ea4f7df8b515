"""Results of verifications as the store keeps them."""

from __future__ import annotations

import json
from datetime import UTC, datetime

from cbp.model.verification import Differing, Request, TableVerdict, Verification
from controller.loop.verification.verifications import as_json, result_of

ONE = Differing("'a'", ("'a', 1",), ("'a', 2",), ("'a'",), (("'a'", "1"),), (("'a'", "2"),))
FULL = Verification(
    "v1",
    "clicks",
    Request("at_once", "reference", twice=True, seconds_max=7.5),
    "differs",
    step="compares",
    done=1,
    total=2,
    unit="tables",
    began_at=datetime(2026, 11, 23, 5, tzinfo=UTC),
    seconds=1.25,
    epochs={"count": 3},
    tables=(
        TableVerdict(
            "state/count.counts",
            "state",
            "differs",
            records=7,
            differing=(ONE,),
            within="exactly",
            since=4,
            columns=("url", "n"),
            key=("url",),
        ),
        TableVerdict("flows/count.messages", "records", "left_out", because="messages"),
    ),
    suspect="count",
    error={"error_code": "x", "message": "m", "details": {"a": [1, None]}},
)


def test_a_result_comes_back_as_it_was() -> None:
    """Every field, through text, with and without what is optional."""
    for one in (FULL, Verification("v2", "clicks", Request(), "equal")):
        assert result_of(json.loads(json.dumps(as_json(one)))) == one


def test_a_result_of_another_release_is_none() -> None:
    """It hides no other one: fields that are missing, and fields that are not known."""
    value = as_json(FULL)
    assert result_of({**value, "later": 1}) is None
    assert result_of({name: item for name, item in value.items() if name != "tables"}) is None
    assert result_of({**value, "began_at": "noon"}) is None
