"""Sweeps over all links, against sums by hand and linear equations."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from stages.fixpoint import LinkSums, fixpoint
from tests.stages.real_graphs import power_law

Floats = npt.NDArray[np.float64]

NONE = np.empty(0, np.int64)


def test_sums_are_those_of_the_links_that_are_left() -> None:
    """More links than are summed at a time, to nodes with none, few and many.

    Then some go, and others come, to new nodes too.
    """
    dice = np.random.default_rng(5)
    many, gone = 20_000, slice(None, None, 7)
    ends = [dice.integers(0, many, 300_000), (dice.random(300_000) ** 3 * many).astype(np.int64)]
    src, dst = np.unique(ends, axis=1)[:, dice.permutation(len(np.unique(ends, axis=1)[0]))]
    sizes = np.bincount(dst, minlength=many)
    assert sizes.min() == 0
    assert sizes.max() > 100
    assert len(src) > 2 * (1 << 17)
    gives, right = dice.integers(-9, 1 << 30, many).astype(np.float64), np.zeros(many)
    np.add.at(right, np.delete(dst, gone), gives[np.delete(src, gone)])
    sums, ranges = LinkSums(src, dst, many), list[tuple[int, int]]()
    sums.change((NONE, NONE), (src[gone], dst[gone]), many)
    found = sums.of(gives, lambda first, last, came: ranges.append((first, last)))
    assert np.array_equal(found, right)
    assert [*sum(ranges, ())] == sorted([0, *2 * [last for _, last in ranges[:-1]], many])
    come = np.unique(dice.integers(0, [[many + 50], [many + 90]], (2, 400)), axis=1)
    sums.change((come[0], come[1]), (src[1:500:7], dst[1:500:7]), many + 90)
    gives, right = np.append(gives, np.arange(90.0)), np.append(right, np.zeros(90))
    np.add.at(right, come[1], gives[come[0]])
    np.add.at(right, dst[1:500:7], -gives[src[1:500:7]])
    assert np.array_equal(sums.of(gives), right)
    assert len(LinkSums(NONE, NONE, 0).of(np.empty(0))) == 0


@pytest.mark.parametrize("kind", ["hubs", "a ring of two", "a path", "no links"])
def test_a_fixpoint_lacks_no_more_than_it_may(kind: str) -> None:
    """Where links lead everywhere, back and forth, only on, and nowhere: the right one."""
    src, dst = {
        "hubs": power_law(400, 3_000).T,
        "a ring of two": np.array([[0, 1], [1, 0]]),
        "a path": np.array([np.arange(399), np.arange(1, 400)]),
        "no links": np.empty((2, 0), np.int64),
    }[kind]
    links = np.bincount(src, minlength=400)
    share, sweeps = 0.85 / np.maximum(links, 1), list[int]()
    sums = LinkSums(src, dst, 400)

    def flow(scores: Floats) -> Floats:
        sweeps.append(len(sweeps))
        return 0.15 + sums.of(share * scores)

    found = fixpoint(flow, np.ones(400), 1e-11)
    assert np.abs(flow(found) - found).max() <= 1e-11
    matrix = np.eye(400)
    np.add.at(matrix, (dst, src), -share[src])
    right = np.linalg.solve(matrix, np.full(400, 0.15))
    assert np.abs(found - right).mean() <= 1e-10
    assert kind == "a path" or len(sweeps) < 60, "without mixing: ln(1e-11) / ln(0.85), 156"


def test_a_few_scores_may_lack_more() -> None:
    """Sweeps end sooner then, with no more than these few left."""
    src, dst = power_law(2_000, 20_000).T
    share, sums = 0.85 / np.maximum(np.bincount(src, minlength=2_000), 1), LinkSums(src, dst, 2_000)
    sweeps = list[Floats]()

    def flow(scores: Floats) -> Floats:
        sweeps.append(scores)
        return 0.15 + sums.of(share * scores)

    many = []
    for few in (0, 200):
        sweeps.clear()
        found = fixpoint(flow, np.ones(2_000), 1e-11, few=few)
        many.append(len(sweeps))
        assert np.count_nonzero(np.abs(flow(found) - found) > 1e-11) <= few
    assert many[1] < many[0]


def test_what_does_not_settle_ends() -> None:
    """Scores that grow for ever, that go back and forth, and that are no numbers any more."""
    fixpoint(lambda scores: scores + 1, np.zeros(3), 0.5)
    fixpoint(lambda scores: 1 - scores, np.zeros(3), 0.4)
    fixpoint(lambda scores: scores * 1e200 + 1, np.zeros(3), 0.4)
    fixpoint(lambda scores: scores * np.nan, np.zeros(3), 0.4)
