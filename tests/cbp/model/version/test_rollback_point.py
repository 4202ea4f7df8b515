"""What an operator names becomes a consistent point, or is refused.

A point holds everything that some record of it depends on.
"""

from __future__ import annotations

import random

import pytest

from cbp.errors import DefinitionError
from cbp.model.version.rollback_point import NamedPoint, find_point, newest_points, parse_point

# Two stages whose records were put at these times.
TIMES = {"a": [10, 20, 40, 60], "b": [30, 50]}
SPANS = {name: range(len(times)) for name, times in TIMES.items()}


def time_of(stage: str, epoch: int) -> int:
    return TIMES[stage][epoch]


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("12", NamedPoint(number=12)),
        ("count:3", NamedPoint(stage="count", epoch=3)),
        ("count@3", NamedPoint(stage="count", epoch=3)),
        ("1970-01-01T00:00:01+00:00", NamedPoint(at_ms=1000)),
        ("1970-01-01T00:00:01Z", NamedPoint(at_ms=1000)),
        ("1970-01-01T00:00:01", NamedPoint(at_ms=1000)),
        ("1970-01-02", NamedPoint(at_ms=86_400_000)),
        ("1970-01-01T02:00:01+02:00", NamedPoint(at_ms=1000)),
    ],
)
def test_a_name_is_read(text: str, named: NamedPoint) -> None:
    """A number, an epoch of a stage, or a time; without a zone it is in UTC."""
    assert parse_point(text) == named


@pytest.mark.parametrize(
    "text", ["", "-1", "yesterday", "count:", "a:b", "1" * 19, "1970-01-01T25:00"]
)
def test_what_names_no_point_is_refused(text: str) -> None:
    """With the three ways to name one."""
    with pytest.raises(DefinitionError) as caught:
        parse_point(text)
    assert caught.value.details["rule"] == "rollback_target_invalid"


@pytest.mark.parametrize(
    ("named", "epochs"),
    [
        (NamedPoint(number=0), {"a": 0, "b": 0}),
        (NamedPoint(number=3), {"a": 2, "b": 1}),
        (NamedPoint(number=6), {"a": 4, "b": 2}),
        (NamedPoint(stage="b", epoch=0), {"a": 2, "b": 1}),
        (NamedPoint(stage="a", epoch=2), {"a": 3, "b": 1}),
        (NamedPoint(at_ms=45), {"a": 3, "b": 1}),
        (NamedPoint(at_ms=5), {"a": 0, "b": 0}),
        (NamedPoint(at_ms=10**6), {"a": 4, "b": 2}),
    ],
)
def test_a_name_is_a_point(named: NamedPoint, epochs: dict[str, int]) -> None:
    """Everything that was recorded up to the same moment stays, over all stages."""
    point = find_point(named, SPANS, time_of)
    assert point is not None
    assert point.epochs == epochs
    assert point.number == sum(epochs.values())


@pytest.mark.parametrize("named", [NamedPoint(number=7), NamedPoint(stage="b", epoch=2)])
def test_what_lies_ahead_is_refused(named: NamedPoint) -> None:
    """A roll-back goes back, never forward."""
    with pytest.raises(DefinitionError):
        find_point(named, SPANS, time_of)


@pytest.mark.parametrize(
    "named",
    [
        NamedPoint(number=1),
        NamedPoint(stage="a", epoch=0),
        NamedPoint(at_ms=25),
        NamedPoint(number=2),
    ],
)
def test_what_is_no_longer_recorded_is_no_point(named: NamedPoint) -> None:
    """Where a stage's older records are gone, nobody can say where the others stood."""
    spans = {"a": range(2, 4), "b": range(2)}
    assert find_point(named, spans, time_of) is None


@pytest.mark.parametrize(
    ("text", "flow", "index"), [("urls/3", "urls", 3), ("count.totals/57", "count.totals", 57)]
)
def test_an_increment_names_what_comes_next(text: str, flow: str, index: int) -> None:
    """The point is the source's, or a stage output's; a path is none."""
    assert parse_point(text) == NamedPoint(flow=flow, index=index)
    for wrong in (f"/{text}", f"{text}/1", f"{text}x"):
        with pytest.raises(DefinitionError):
            parse_point(wrong)


def test_every_number_has_its_cut() -> None:
    """It is the first n of random records by time, whatever stage put them."""
    chance = random.Random(7)
    times = chance.sample(range(1000), 40)
    by_stage: dict[str, list[int]] = {"a": [], "b": [], "c": []}
    for at in sorted(times):
        by_stage[chance.choice("abc")].append(at)
    spans = {name: range(len(actual)) for name, actual in by_stage.items()}
    for number in range(41):
        point = find_point(NamedPoint(number=number), spans, lambda s, e: by_stage[s][e])
        first = set(sorted(times)[:number])
        assert point is not None
        assert point.epochs == {
            s: sum(t in first for t in actual) for s, actual in by_stage.items()
        }


def test_moments_are_the_cuts_that_their_goals_mean() -> None:
    """Newest first, each the same point by its number, by its epoch and by its time."""
    moments = list(newest_points(SPANS, time_of))
    assert [(one.stage, one.epoch) for one in moments] == [
        ("a", 3),
        ("b", 1),
        ("a", 2),
        ("b", 0),
        ("a", 1),
        ("a", 0),
        ("", -1),
    ]
    for one in moments[:-1]:
        for named in (
            NamedPoint(number=one.point.number),
            NamedPoint(stage=one.stage, epoch=one.epoch),
            NamedPoint(at_ms=one.point.at_ms),
        ):
            assert find_point(named, SPANS, time_of) == one.point
    assert moments[-1].point.epochs == {"a": 0, "b": 0}


def test_moments_end_where_the_records_do() -> None:
    """A moment whose point would need the time of a record that is gone is not offered."""
    spans = {"a": range(2, 4), "b": range(2)}
    moments = list(newest_points(spans, time_of))
    assert [(one.stage, one.epoch) for one in moments] == [("a", 3), ("b", 1), ("a", 2)]
    for one in moments:
        assert find_point(NamedPoint(stage=one.stage, epoch=one.epoch), spans, time_of) is not None


def test_runs_of_one_millisecond_are_undone_together() -> None:
    """No listed moment is between them, and its number is refused with its neighbours."""
    times = {"a": [10, 20], "b": [5, 20, 30]}
    spans = {"a": range(2), "b": range(3)}

    def at(stage: str, epoch: int) -> int:
        return times[stage][epoch]

    moments = list(newest_points(spans, at))
    assert [moment.point.number for moment in moments] == [5, 4, 2, 1, 0]
    for moment in moments:
        point = find_point(NamedPoint(number=moment.point.number), spans, at)
        assert point is not None
        assert point.epochs == moment.point.epochs
    with pytest.raises(DefinitionError) as caught:
        find_point(NamedPoint(number=3), spans, at)
    assert caught.value.details["rule"] == "rollback_target_invalid"
    assert "use 2 or 4" in caught.value.message
