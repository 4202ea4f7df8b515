"""Code that changed under its document: what may go on, and what is reported of the rest.

Code that changed runs once it is registered again.
"""

from __future__ import annotations

from typing import Any

import pytest

from cbp import Input, RunAll, State, framed
from cbp.model.author.code_fingerprint import SCHEME
from cbp.model.version.code_drift import drift, unfingerprinted, with_codes
from cbp.model.version.dataflow_shape import DataflowShape, shape_of
from cbp.model.version.version_change import compare_versions
from tests.cbp.model.versions import (
    ByOther,
    Count,
    CountLess,
    CountMore,
    Echo,
    Named,
    Renamed,
    Talks,
    flow_of,
)


class Faster(Count):
    """The same by other code."""

    def translate(self, key: Any, group: Any, out: Any) -> None:
        """Never called here, either."""


class Outer(Count):
    """Calls every group that has state."""

    counts = State("word STRING, n INT", grouping="outer")


class Framed(Count):
    """Cuts its input elsewhere."""

    words = Input("word STRING", route_by="word", frame_by="word")


class ByFirst(Count):
    """Cuts its input by a function."""

    words = Input("word STRING", route_by="word", frame_by=framed(lambda r: r.word[:1]))


class ByLast(Count):
    """Cuts its input by another function."""

    words = Input("word STRING", route_by="word", frame_by=framed(lambda r: r.word[-1:]))


class Later(Count):
    """Runs by another rule."""

    runnable = RunAll(4)


def shape(translator: type, buckets: int = 4) -> DataflowShape:
    """Return the shape of a stage of this class."""
    source = "word BINARY" if translator is ByOther else "word STRING, n INT"
    return shape_of(flow_of(source=source, stage=(translator(), buckets, "words")))


@pytest.mark.parametrize("translator", [Count, Echo, Talks])
def test_a_version_has_not_drifted_from_itself(translator: type) -> None:
    """Nothing is reported, for any kind of stage."""
    assert drift(shape(translator), shape(translator)) == ()


def test_code_that_only_acts_differently_is_drift() -> None:
    """One version is one code; what differs is named."""
    (mistake,) = drift(shape(Count), shape(Faster))
    assert (mistake.code, mistake.where) == ("code_drifted", "stages.stage")
    assert f"{__name__}.Faster" in mistake.message


def test_another_framing_function_is_drift() -> None:
    """As other code of the class is; a version that takes over asks what waits there."""
    registered, installed = shape(ByFirst), shape(ByLast)
    (mistake,) = drift(registered, installed)
    assert "frame_by of input words: its code" in mistake.message
    (refused,) = compare_versions(registered, installed).refused
    assert "frame_by of input words: its code" in refused.message


def test_codes_of_an_earlier_release_are_adopted_once() -> None:
    """Sixteen digits without a scheme are no reason to stop; what was adopted is compared."""
    value = shape(Count).to_json()
    value["stages"]["stage"]["code"] = "0123456789abcdef"
    value["stages"]["stage"]["inputs"]["words"]["framing_code"] = ""
    earlier = DataflowShape.from_json(value)
    assert unfingerprinted(earlier)
    assert drift(earlier, shape(Count)) == drift(earlier, shape(Faster)) == ()
    adopted = with_codes(earlier, shape(Count))
    assert not unfingerprinted(adopted)
    assert drift(adopted, shape(Count)) == ()
    assert drift(adopted, shape(Faster))


def test_another_interpreter_is_told_as_that() -> None:
    """Its bytecode is another whatever the code: nobody looks for a function that differs."""
    value = shape(Count).to_json()
    value["stages"]["stage"]["code"] = {"text": f"{SCHEME}:3.9:0123456789abcdef", "parts": {}}
    (mistake,) = drift(DataflowShape.from_json(value), shape(Count))
    assert "another interpreter (Python 3.9 -> Python" in mistake.message


@pytest.mark.parametrize(
    ("now", "told"),
    [
        (CountMore, "stage.counts: n INT -> BIGINT (widened)"),
        (CountLess, "stage.counts: n INT -> TINYINT (narrowed)"),
        (ByOther, "key: word STRING -> word BINARY"),
        (Outer, "grouping of counts: inner -> outer"),
        (Later, "runnable: run_all -> run_all(batch=4)"),
        (Framed, "frame_by of input words: none -> word"),
        (Echo, "state counts no longer exists"),
        (Named, "route_by of state counts: none -> term"),
        (Renamed, "order_by of state counts: none -> n"),
    ],
)
def test_other_tables_keys_or_inputs_are_drift(now: type, told: str) -> None:
    """Each is reported, also what a change would carry out: no operator asked for one."""
    (mistake,) = drift(shape(Count), shape(now))
    assert (mistake.code, mistake.where) == ("code_drifted", "stages.stage")
    assert told in mistake.message


def test_buckets_that_a_document_does_not_give_may_not_move() -> None:
    """Another default is another placement."""
    (mistake,) = drift(shape(Count), shape(Count, buckets=8))
    assert mistake.message == "buckets: 4 -> 8"
