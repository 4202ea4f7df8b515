"""Frames on Spark: slices of files, read by every task or numbered by an expression.

One expression may number two slices here, so that what a run reads is put together from
several, as it is where an increment has hundreds of frames.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from cbp import DataflowBuilder
from cbp.engine.direct import DirectEngine
from cbp.engine.spark import SparkExecutor
from cbp.engine.spark import bucket_shuffle as increments
from cbp.model.dataflow.dataflow import Dataflow
from cbp.model.flow.increment import DataFile
from cbp.sdk.translate import Declared
from stages.flows.set_diff import set_diff
from tests.cbp.engine.epochs import assert_same
from tests.driver import Driver
from tests.flows import Framed, NumberedLines
from tests.limited import limits_of
from tests.sql_forms import Days, DaysSql

pytestmark = pytest.mark.spark

Epochs = list[dict[str, list[dict[str, Any]]]]
NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)


def one_stage(translator: Declared) -> Dataflow:
    """Wire each input of a translator to the source of its name."""
    builder = DataflowBuilder("frames")
    spec = translator.spec()
    wired: Any = {i.name: builder.source(i.name, str(i.schema)) for i in spec.inputs}
    builder.stage("stage", translator, buckets=4, **wired)
    return builder.build()


def hours(chance: random.Random) -> Epochs:
    """Two crawls of four hours; their increments end within an hour."""
    crawls = {
        side: [
            {"url": chance.choice("uvwxyz"), "time": NOON + timedelta(minutes=20 * at)}
            for at in range(12)
        ]
        for side in "ab"
    }
    return [{side: crawl[at : at + 4] for side, crawl in crawls.items()} for at in (0, 4, 8)]


def scattered(chance: random.Random) -> Epochs:
    """Equal keys that come and go within an increment: a frame is several slices of a file."""
    return [
        {
            "left": [
                {"k": chance.randrange(4), "t": chance.randrange(3), "v": str(at)}
                for at in range(14)
            ],
            "right": [{"k": chance.randrange(4), "t": chance.randrange(3)} for _ in range(5)],
        }
        for _ in range(2)
    ]


def beside_a_table(chance: random.Random) -> Epochs:
    """Keys that rise over increments, so that frames reach from file to file."""
    return [
        {
            "items": [{"k": chance.randrange(4), "t": 2 * epoch + at // 4} for at in range(12)],
            "names": [{"k": chance.randrange(4), "name": f"{epoch}{at}"} for at in range(5)],
        }
        for epoch in range(3)
    ]


def days(chance: random.Random) -> Epochs:
    """Days that come in any order, in two increments."""
    return [
        {"visits": [{"url": chance.choice("abc"), "day": chance.randrange(4)} for _ in range(16)]}
        for _ in range(2)
    ]


CASES: dict[str, tuple[Dataflow, Dataflow, Callable[[random.Random], Epochs]]] = {
    "align": (set_diff(), set_diff(), hours),
    "memo": (one_stage(Framed()), one_stage(Framed()), scattered),
    "window": (one_stage(NumberedLines()), one_stage(NumberedLines()), beside_a_table),
    "sql": (one_stage(Days()), one_stage(DaysSql()), days),
}
"""The dataflow for the reference engine, the one for Spark, and its records."""


@pytest.fixture
def numbered(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Note the slices that each expression numbers, and the number that it begins with."""
    noted: list[tuple[int, int]] = []
    sliced = increments._sliced

    def noting(files: Sequence[DataFile], position: int) -> str:
        noted.append((len(files), position))
        return sliced(files, position)

    monkeypatch.setattr(increments, "_sliced", noting)
    return noted


@pytest.mark.part(every=4)
@pytest.mark.parametrize(
    ("case", "shuffled"),
    list((case, way) for way in (False, True) for case in CASES),
)
def test_frames_equal_the_reference(
    case: str,
    shuffled: bool,
    spark: Any,
    tmp_path: Path,
    numbered: list[tuple[int, int]],
) -> None:
    """On every way of cutting frames out of files: the reference's epochs, order and state."""
    limits = limits_of(shuffled=shuffled, slices_per_expression=2)
    reference, mine, epochs = CASES[case]
    engine = DirectEngine(SparkExecutor(spark), cache=str(tmp_path / "cache"), limits=limits)
    driver = Driver(engine, mine, tmp_path / "t")
    ordered = case != "sql"
    assert_same(reference, driver, epochs(random.Random(5)), ordered=ordered, source="")
    assert len(driver.figures) > 1
    if shuffled:
        assert {count for count, _ in numbered} <= {1, 2}
        # The frame of one hour is never more than one slice of two increments' files.
        assert any(begin for _, begin in numbered) == (case != "align")
    else:
        assert not numbered, "every task reads the slices itself"
