"""Clusters of points that come and go: Lloyd's rounds in plain Python are the oracle."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cbp import DataflowBuilder
from cbp.engine.direct import LocalEngine
from cbp.engine.storage.engine_limits import DEFAULT_LIMITS
from cbp.errors import DefinitionError
from cbp.model.dataflow.dataflow import Dataflow
from cbp.testing import check_split, run_dataflow
from stages.translators.k_means_arrow import KMeansArrow
from stages.translators.latest import Latest
from tests.cbp.engine.epochs import assert_same
from tests.cbp.engine.task.test_supersteps import Dying
from tests.driver import Driver
from tests.sampling import examples

SCHEMA = "id BIGINT NOT NULL, x DOUBLE, y DOUBLE, gone BOOLEAN"
K = 3
Told = tuple[int, float | None, float, bool | None]
Point = tuple[float, ...]

COORDINATES = st.integers(0, 6).map(float)
DAYS = st.lists(
    st.lists(
        st.tuples(
            st.integers(0, 12),
            COORDINATES | st.none(),
            COORDINATES,
            st.sampled_from([None, None, True]),
        ),
        max_size=10,
    ),
    min_size=1,
    max_size=4,
)


def clusters(stage: KMeansArrow) -> Dataflow:
    """Return clusters of the points of a source."""
    flow = DataflowBuilder("clusters")
    flow.stage("near", stage, points=flow.source("points", SCHEMA))
    return flow.build()


def points_of(days: list[list[Told]]) -> dict[int, Point]:
    """Return the points that there are after some days."""
    last = {id_: (x, y, gone) for day in days for id_, x, y, gone in day}
    kept = {id_: (x, y) for id_, (x, y, gone) in last.items() if not gone and x is not None}
    return dict(sorted(kept.items()))


def lloyd(points: dict[int, Point], k: int) -> dict[int, int]:
    """Return the centre of each point, named after the point from which the centre began."""
    first: list[int] = []
    while len(first) < k:
        far = {
            id_: min((math.dist(p, points[f]) for f in first), default=1.0)
            for id_, p in points.items()
        }
        best = max(far, key=lambda id_: (far[id_], -id_), default=None)
        if best is None or not far[best]:
            break
        first.append(best)
    centres: list[Point] = [points[id_] for id_ in first]
    while True:
        near = {id_: _nearest(p, centres) for id_, p in points.items()}
        means = [
            _mean([points[id_] for id_, at in near.items() if at == number]) or centre
            for number, centre in enumerate(centres)
        ]
        if all(math.dist(*pair) < 1e-9 for pair in zip(means, centres, strict=True)):
            return {id_: first[at] for id_, at in near.items()}
        centres = means


def _nearest(point: Point, centres: list[Point]) -> int:
    far = [sum((a - b) ** 2 for a, b in zip(point, centre, strict=True)) for centre in centres]
    return far.index(min(far))


def _mean(points: list[Point]) -> Point | None:
    return tuple(math.fsum(many) / len(points) for many in zip(*points, strict=True)) or None


def blobs(seed: int, many: int) -> list[Told]:
    """Return points around three places."""
    dice = np.random.default_rng(seed)
    places = dice.choice([0.0, 20.0, 55.0], many)
    told = zip(range(many), dice.normal(places), dice.normal(places), strict=True)
    return [(id_, float(x), float(y), None) for id_, x, y in told]


@settings(max_examples=examples(30), deadline=None)
@given(days=DAYS, from_view=st.booleans())
def test_after_any_history_each_point_is_with_the_nearest_mean(
    days: list[list[Told]], from_view: bool
) -> None:
    """Points that come, move and go; the clusters are right for the points that there are.

    Ties make several clusterings right, so the result is checked, not compared.
    """
    stage, told = KMeansArrow(k=K, changes=from_view), days
    flow = DataflowBuilder("clusters")
    points: Any = flow.source("points", SCHEMA)
    if from_view:
        there = SCHEMA.replace("gone", "there")
        told = [[(*one[:3], None if one[3] else True) for one in day] for day in days]
        flow = DataflowBuilder("clusters")
        rows = flow.source("points", there)
        points = flow.stage("latest", Latest(there, "id", gone="there"), rows=rows).latest
    flow.stage("near", stage, points=points)
    result = run_dataflow(flow.build(), {"points": told})
    right = points_of(days)
    members = dict(result.view("near.members"))
    centres = {row[0]: row[1:] for row in result.view("near.centres")}
    assert members.keys() == right.keys()
    assert {*members.values()} == centres.keys() <= right.keys()
    assert len(centres) <= min(K, len({*right.values()}))
    for name, (*mean, size) in centres.items():
        mine = [right[id_] for id_, centre in members.items() if centre == name]
        assert (size, mean) == (len(mine), pytest.approx(_mean(mine)))
    for id_, point in right.items():
        nearest = min(math.dist(point, centre[:2]) for centre in centres.values())
        assert math.dist(point, centres[members[id_]][:2]) == pytest.approx(nearest)


def test_clusters_are_those_of_lloyd(tmp_path: Path) -> None:
    """Three crowds of points; one of them comes later, and goes again."""
    told = blobs(4, 120)
    late = [one for one in told if one[2] > 40]
    days = [[one for one in told if one not in late], late]
    days.append([(*one[:3], True) for one in late])
    dataflow = clusters(KMeansArrow(k=K))
    driver = Driver(LocalEngine(cache=str(tmp_path / "cache")), dataflow, tmp_path / "t")
    names = ("id", "x", "y", "gone")
    epochs = [{"points": [dict(zip(names, one, strict=True)) for one in day]} for day in days]
    for end, epoch in enumerate(epochs, 1):
        driver.feed("points", epoch["points"])
        driver.run_until_idle()
        actual = {row["id"]: row["centre"] for row in driver.state("near", "members")}
        assert actual == lloyd(points_of(days[:end]), K)
    again = Driver(LocalEngine(cache=str(tmp_path / "cache")), dataflow, tmp_path / "u")
    assert_same(dataflow, again, epochs, source="")


def test_another_try_goes_on_with_the_means_of_a_round(tmp_path: Path) -> None:
    """To the last bit, wherever the tries before it died."""
    dice = np.random.default_rng(2)
    points = [{"id": n, "x": x, "y": y} for n, (x, y) in enumerate(dice.random((300, 2)).tolist())]
    limits = replace(DEFAULT_LIMITS, superstep_log_ms=0)
    engine = LocalEngine(cache=str(tmp_path / "cache"), limits=limits)
    dataflow = clusters(KMeansArrow(k=5))
    driver = Dying(engine, dataflow, tmp_path / "t", passages=[4, 2])
    assert_same(dataflow, driver, [{"points": points}], source="")
    assert driver.deaths == 2
    assert [figures["notes_before"] for figures in driver.figures] == [4]
    whole = Driver(engine, dataflow, tmp_path / "u")
    whole.feed("points", points)
    whole.run_until_idle()
    assert driver.figures[0]["notes"] == whole.figures[0]["notes"] > 5, "rounds"


def test_any_split_gives_the_tables_of_one_batch() -> None:
    """The first centres follow from the points, not from what was there before."""
    told = [*blobs(7, 60), *((*one[:3], True) for one in blobs(7, 60)[::5])]
    check_split(
        clusters(KMeansArrow(k=K)), {"points": [told[at : at + 20] for at in range(0, 72, 20)]}
    )


def test_what_cannot_be_is_refused() -> None:
    """At registration, with the parameter."""
    for parameters in ({"k": 0}, {"rounds": 0}, {"moved": float("nan")}):
        with pytest.raises(DefinitionError, match=f"KMeansArrow.{next(iter(parameters))}"):
            KMeansArrow(**parameters)
