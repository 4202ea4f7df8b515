"""Records that are groups of their own: whose code failed on which one, and how they are shared.

What they give is compared with the reference in test_direct.py and test_phases.py.

Groups come first, then single records, input by input: the same records in the same order on every
engine, fused or apart, with state, messages and addresses.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cbp import DataflowBuilder, Input, Output, RunAny, Translate
from cbp.engine.columnar.file_slices import InputShare, Share
from cbp.engine.direct import LocalEngine
from cbp.engine.reference.engine import ReferenceEngine
from cbp.engine.storage.engine_limits import EngineLimits
from cbp.engine.task.record_task import shares
from cbp.errors import AuthorCodeError
from tests.driver import Driver


class Strict(Translate):
    """Takes no record with the number 3, and emits what does not fit for 4."""

    runnable = RunAny()
    groups = Input("n INT", route_by="n")
    left = Input("n INT")
    right = Input("n INT")
    o = Output("n INT")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        for row in (*group.groups, *group.left, *group.right):
            if row.n == 3:
                raise ValueError("three")
            out.o("four" if row.n == 4 else row.n)


def runners(folder: Path) -> list[Any]:
    """Give the same dataflow on both engines."""
    builder = DataflowBuilder("strict")
    groups, left, right = (builder.source(name, "n INT") for name in ("groups", "left", "right"))
    builder.stage("stage", Strict(), buckets=2, groups=groups, left=left, right=right)
    dataflow = builder.build()
    engine = LocalEngine(cache=str(folder / "cache"))
    return [Driver(engine, dataflow, folder / "t"), ReferenceEngine(dataflow)]


@pytest.mark.parametrize(("bad", "cause"), [(3, "ValueError"), (4, "TypeError")])
@pytest.mark.parametrize("side", ["left", "right"])
def test_an_error_names_the_record_and_its_input(
    bad: int, cause: str, side: str, tmp_path: Path
) -> None:
    """On both engines alike: stage, function, line, and the one record, which has no key."""
    told = []
    for one in runners(tmp_path):
        one.feed("groups", [{"n": 1}])
        one.feed(side, [{"n": 7}, {"n": bad}, {"n": 8}])
        with pytest.raises(AuthorCodeError) as caught:
            one.run_until_idle()
        details = caught.value.details
        assert details["inputs"] == {side: [f"({bad},)"]}
        assert "key" not in details
        assert details["cause"].startswith(cause)
        told.append((details["stage"], details["function"], details["place"]))
    assert told[0] == told[1]
    assert told[0][2].startswith(__file__)


def test_shares_go_over_the_inputs_as_they_are_declared() -> None:
    """Contiguous, of about equal size, cut inside files, whichever input these are of."""
    limits = EngineLimits(rows_per_record_task=2)
    files = [
        InputShare("left", Share("a", 3, 0, 3)),
        InputShare("left", Share("b", 9, 4, 5)),
        InputShare("right", Share("c", 4, 0, 4)),
    ]
    assert shares(files, 2, limits) == [
        files[:2],
        files[2:],
    ]
    assert shares(files, 4, limits) == [
        [InputShare("left", Share("a", 3, 0, 2))],
        [InputShare("left", Share("a", 3, 2, 3)), files[1]],
        [InputShare("right", Share("c", 4, 0, 2))],
        [InputShare("right", Share("c", 4, 2, 4))],
    ]
